// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Small kernels in text: what the emulator computes, and what it reports of wrong ones.
#include "compiler/Codegen/Gpu/Emulator/Emulator.h"

#include "compiler/Dialect/Hopper/IR/Hopper.h"
#include "compiler/Dialect/Hopper/Transforms/Passes.h"

#include "mlir/IR/MLIRContext.h"
#include "mlir/Parser/Parser.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

using namespace mlir;
using namespace millrace;
using namespace millrace::gpu;
using testing::HasSubstr;

namespace {

/// Runs the kernel @k of a text; what the emulator says of it, or nothing.
std::string run(const std::string &text, const std::vector<Argument> &arguments = {},
                const Adversary &adversary = {}, Grid grid = {}) {
  DialectRegistry registry;
  hopper::registerLoweringDialects(registry);
  MLIRContext context(registry);
  std::string said;
  ScopedDiagnosticHandler collect(&context, [&](Diagnostic &diagnostic) {
    said += diagnostic.str();
    return success();
  });
  auto module = parseSourceString<ModuleOp>(text, &context);
  if (!module)
    return "does not parse: " + said;
  Expected<EmulatedKernel> kernel = EmulatedKernel::create(*module, "k");
  if (!kernel)
    return kernel.error();
  Status done = kernel->run(grid, arguments, adversary);
  return done ? "" : done.error();
}

/// A kernel of one warpgroup around a body; `arguments` may be empty.
std::string kernel(const std::string &body, const std::string &arguments = "",
                   const std::string &threads = "128") {
  return "hopper.kernel @k(" + arguments + ") attributes {threads = " + threads +
         " : i32, registers = 64 : i32, shared_memory = 32768 : i32} {\n"
         "  %0 = arith.constant 0 : i32\n  %1 = arith.constant 1 : i32\n"
         "  %bar = arith.constant 32760 : i32\n  %t = hopper.thread_id\n"
         "  %first = arith.cmpi eq, %t, %0 : i32\n" +
         body + "  hopper.return\n}\n";
}

/// Thread 0 makes the barrier at %bar.
std::string withBarrier(int count) {
  return "  scf.if %first {\n    hopper.mbarrier_init %bar count " + std::to_string(count) +
         "\n    hopper.fence_mbarrier_init\n  }\n  hopper.cta_barrier\n";
}

const std::string kMap = "!hopper.tensor_map<64x64xbf16, swizzle 128>";
const std::string kReady = "!hopper.accumulator<64x64xf32>";
const std::string kInFlight = "!hopper.accumulator<64x64xf32, in_flight>";

/// A box of 64 x 64 elements.
struct Box {
  alignas(16) uint16_t data[64 * 64] = {};
  TensorMap map{reinterpret_cast<std::byte *>(data), 64, 64, 128, 64, 64, 2, 128};
};

uint16_t bf16(float value) {
  uint32_t bits;
  std::memcpy(&bits, &value, 4);
  return static_cast<uint16_t>(bits >> 16); // of small integers, which are exact
}

} // namespace

TEST(Emulator, WgmmaTakesARegistersInTheArchitecturesOrder) {
  // A comes from global memory by the fragment's map, B through TMA; each thread writes what it
  // has.
  const std::string text = kernel(withBarrier(1) + R"(
  scf.if %first {
    hopper.mbarrier_arrive_expect %bar bytes 8192
    hopper.tma_load %b[%0, %0] to %0 signal %bar : )" +
                                      kMap + R"(
  }
  hopper.mbarrier_wait %bar parity %0
  %c2 = arith.constant 2 : i32
  %c3 = arith.constant 3 : i32
  %c4 = arith.constant 4 : i32
  %c5 = arith.constant 5 : i32
  %c8 = arith.constant 8 : i32
  %c16 = arith.constant 16 : i32
  %c31 = arith.constant 31 : i32
  %c64 = arith.constant 64 : i32
  %lane = arith.andi %t, %c31 : i32
  %warp = arith.shrui %t, %c5 : i32
  %r0 = arith.shrui %lane, %c2 : i32
  %r1 = arith.muli %warp, %c16 : i32
  %row = arith.addi %r0, %r1 : i32
  %l3 = arith.andi %lane, %c3 : i32
  %col = arith.muli %l3, %c2 : i32
  %row8 = arith.addi %row, %c8 : i32
  %col8 = arith.addi %col, %c8 : i32
  %i0 = arith.muli %row, %c16 : i32
  %i1 = arith.muli %row8, %c16 : i32
  %x0 = arith.addi %i0, %col : i32
  %x1 = arith.addi %i1, %col : i32
  %x2 = arith.addi %i0, %col8 : i32
  %x3 = arith.addi %i1, %col8 : i32
  %p0 = llvm.getelementptr %a[%x0] : (!llvm.ptr<1>, i32) -> !llvm.ptr<1>, i16
  %p1 = llvm.getelementptr %a[%x1] : (!llvm.ptr<1>, i32) -> !llvm.ptr<1>, i16
  %p2 = llvm.getelementptr %a[%x2] : (!llvm.ptr<1>, i32) -> !llvm.ptr<1>, i16
  %p3 = llvm.getelementptr %a[%x3] : (!llvm.ptr<1>, i32) -> !llvm.ptr<1>, i16
  %a0 = llvm.load %p0 : !llvm.ptr<1> -> i32
  %a1 = llvm.load %p1 : !llvm.ptr<1> -> i32
  %a2 = llvm.load %p2 : !llvm.ptr<1> -> i32
  %a3 = llvm.load %p3 : !llvm.ptr<1> -> i32
  %zero = hopper.accumulator_zero : )" +
                                      kReady + R"(
  %db = hopper.matrix_descriptor %0 stride 1024
  %f = hopper.wgmma_fence %zero : ()" +
                                      kReady + ") -> " + kInFlight + R"(
  %m = hopper.wgmma_rs %f, [%a0, %a1, %a2, %a3], %db bf16 : )" +
                                      kInFlight + R"(
  hopper.wgmma_commit
  %d = hopper.wgmma_wait 0, %m : ()" + kInFlight +
                                      ") -> " + kReady + R"(
  %v = hopper.accumulator_read %d[6] : )" +
                                      kReady + R"(
  %o0 = arith.muli %row8, %c64 : i32
  %o1 = arith.addi %o0, %col8 : i32
  %o = llvm.getelementptr %c[%o1] : (!llvm.ptr<1>, i32) -> !llvm.ptr<1>, f32
  llvm.store %v, %o : f32, !llvm.ptr<1>
)",
                                  "%a: !llvm.ptr<1>, %b: " + kMap + ", %c: !llvm.ptr<1>");
  std::vector<uint16_t> a(64 * 16);
  Box b;
  for (int row = 0; row < 64; ++row)
    for (int k = 0; k < 16; ++k) {
      a[size_t(row * 16 + k)] = bf16(float(row % 7 + k));
      b.data[row * 64 + k] = bf16(float(row - 2 * k));
    }
  for (const Adversary &adversary : Adversary::all()) {
    std::vector<float> c(64 * 64, NAN);
    ASSERT_EQ(
        run(text,
            {GlobalMemory{a.data(), a.size() * 2}, &b.map, GlobalMemory{c.data(), c.size() * 4}},
            adversary),
        "");
    // Register 6: rows 8 to 15 of each 16, columns 8, 10, 12 and 14.
    for (int row = 8; row < 64; row += row % 16 == 15 ? 9 : 1)
      for (int column = 8; column < 16; column += 2) {
        float sum = 0;
        for (int k = 0; k < 16; ++k)
          sum += float(row % 7 + k) * float(column - 2 * k);
        EXPECT_EQ(c[size_t(row * 64 + column)], sum) << row << ", " << column;
      }
  }
}

/// Element numbers as the PTX ISA counts them, section "Matrix Fragments for mma.m16n8k16 with
/// floating point type": i of a0 to a7, b0 to b3, c0 to c3 of a lane, not words.
TEST(Emulator, MmaTakesFragmentsInTheArchitecturesOrder) {
  std::string body = R"(  %ten = arith.constant 10 : i32
  %four = arith.constant 4 : i32
  %at = arith.muli %t, %ten : i32
  %p = llvm.getelementptr %in[%at] : (!llvm.ptr<1>, i32) -> !llvm.ptr<1>, i32
  %to = arith.muli %t, %four : i32
  %q = llvm.getelementptr %out[%to] : (!llvm.ptr<1>, i32) -> !llvm.ptr<1>, f32
)";
  for (int i = 0; i < 10; ++i) {
    const std::string n = std::to_string(i), type = i < 6 ? "i32" : "f32";
    body += "  %p" + n + " = llvm.getelementptr %p[" + n +
            "] : (!llvm.ptr<1>) -> !llvm.ptr<1>, i32\n  %w" + n + " = llvm.load %p" + n +
            " : !llvm.ptr<1> -> " + type + "\n";
  }
  body += "  %d:4 = hopper.mma [%w0, %w1, %w2, %w3], [%w4, %w5], [%w6, %w7, %w8, %w9] bf16\n";
  for (int i = 0; i < 4; ++i) {
    const std::string n = std::to_string(i);
    body += "  %q" + n + " = llvm.getelementptr %q[" + n +
            "] : (!llvm.ptr<1>) -> !llvm.ptr<1>, f32\n  llvm.store %d#" + n + ", %q" + n +
            " : f32, !llvm.ptr<1>\n";
  }
  const auto a = [](int row, int k) { return float((row * 3 + k * 5) % 7 - 3); };
  const auto b = [](int k, int column) { return float((k * 2 + column * 3) % 5 - 2); };
  const auto c = [](int row, int column) { return float(row - 2 * column); };
  std::vector<uint32_t> in(320, 0);
  for (int lane = 0; lane < 32; ++lane) {
    const int group = lane / 4, inGroup = lane % 4;
    const auto put = [&](int element, float value) {
      in[size_t(lane * 10 + element / 2)] |= uint32_t(bf16(value)) << (16 * (element % 2));
    };
    for (int i = 0; i < 8; ++i)
      put(i, a(i < 2 || (i >= 4 && i < 6) ? group : group + 8,
               inGroup * 2 + (i & 1) + (i < 4 ? 0 : 8)));
    for (int i = 0; i < 4; ++i) {
      put(8 + i, b(inGroup * 2 + (i & 1) + (i < 2 ? 0 : 8), group));
      const float before = c(i < 2 ? group : group + 8, inGroup * 2 + (i & 1));
      std::memcpy(&in[size_t(lane * 10 + 6 + i)], &before, 4);
    }
  }
  for (const Adversary &adversary : Adversary::all()) {
    std::vector<float> out(128, NAN);
    ASSERT_EQ(run(kernel(body, "%in: !llvm.ptr<1>, %out: !llvm.ptr<1>", "32"),
                  {GlobalMemory{in.data(), in.size() * 4}, GlobalMemory{out.data(), 512}},
                  adversary),
              "");
    for (int lane = 0; lane < 32; ++lane)
      for (int i = 0; i < 4; ++i) {
        const int row = lane / 4 + (i < 2 ? 0 : 8), column = lane % 4 * 2 + (i & 1);
        float expected = c(row, column);
        for (int k = 0; k < 16; ++k)
          expected += a(row, k) * b(k, column);
        EXPECT_EQ(out[size_t(lane * 4 + i)], expected) << "lane " << lane << ", sum " << i;
      }
  }
}

TEST(Emulator, AnMmaNeedsAllLanesOfItsWarp) {
  const std::string body = R"(  %v = arith.constant 1.0 : f32
  %half = arith.constant 16 : i32
  %low = arith.cmpi ult, %t, %half : i32
  scf.if %low {
    %d:4 = hopper.mma [%0, %0, %0, %0], [%0, %0], [%v, %v, %v, %v] f16
  }
)";
  EXPECT_THAT(run(kernel(body, "", "32")), HasSubstr("16 threads of CTA 0, 0: mma of its warp"));
}

TEST(Emulator, ADeadlockNamesWhatEachThreadWaitsForAndWhatTheBarrierLacks) {
  const std::string said = run(kernel(withBarrier(3) + R"(
  scf.if %first {
    hopper.mbarrier_arrive_expect %bar bytes 96
  } else {
    hopper.mbarrier_wait %bar parity %0
  }
)"));
  EXPECT_THAT(said, HasSubstr("deadlock: 127 threads of CTA 0, 0: mbarrier_wait 32760 parity 0"));
  EXPECT_THAT(said, HasSubstr("the barrier at 32760 lacks 2 of 3 arrivals and 96 bytes"));
}

TEST(Emulator, MoreArrivalsThanCountedAreReported) {
  EXPECT_THAT(run(kernel(withBarrier(1) + "  hopper.mbarrier_arrive_expect %bar bytes 16\n")),
              HasSubstr("gets more than its 1 arrivals in one phase"));
}

TEST(Emulator, BarriersAreMadeBeforeTheyAreUsed) {
  EXPECT_THAT(run(kernel("  hopper.mbarrier_wait %bar parity %1\n")),
              HasSubstr("there is no barrier at 32760 yet"));
}

TEST(Emulator, TmaNeedsABarrierThatAFenceMadeVisible) {
  Box box;
  EXPECT_THAT(run(kernel(R"(
  scf.if %first {
    hopper.mbarrier_init %bar count 1
    hopper.mbarrier_arrive_expect %bar bytes 8192
    hopper.tma_load %a[%0, %0] to %0 signal %bar : )" +
                             kMap + "\n  }\n",
                         "%a: " + kMap),
                  {&box.map}),
              HasSubstr("which no fence_mbarrier_init made visible"));
}

TEST(Emulator, AnAccumulatorThatIsTakenBackTooEarlyIsReportedEvenIfItsValueIsRight) {
  const std::string text = kernel("  %z = hopper.accumulator_zero : " + kReady + R"(
  %d = hopper.matrix_descriptor %0 stride 1024
  %f = hopper.wgmma_fence %z : ()" +
                                  kReady + ") -> " + kInFlight + R"(
  %m = hopper.wgmma %f, %d, %d bf16 : )" +
                                  kInFlight + R"(
  hopper.wgmma_commit
  %r = hopper.wgmma_wait 1, %m : ()" +
                                  kInFlight + ") -> " + kReady + "\n");
  EXPECT_THAT(run(text), HasSubstr("returns an accumulator of group 0"));
}

TEST(Emulator, AWgmmaThatNobodyWaitsForIsReported) {
  const std::string text = kernel("  %z = hopper.accumulator_zero : " + kReady + R"(
  %d = hopper.matrix_descriptor %0 stride 1024
  %f = hopper.wgmma_fence %z : ()" +
                                  kReady + ") -> " + kInFlight + R"(
  %m = hopper.wgmma %f, %d, %d bf16 : )" +
                                  kInFlight + "\n");
  EXPECT_THAT(run(text), HasSubstr("ends with a wgmma in flight"));
}

TEST(Emulator, WritesOfThreadsNeedAFenceBeforeTmaReadsThem) {
  Box box;
  const auto text = [](const std::string &fence, const std::string &wait) {
    return kernel("  hopper.stmatrix %0, [%t, %t, %t, %t]\n" + fence + R"(
  hopper.cta_barrier
  scf.if %first {
    hopper.tma_store %0 to %a[%0, %0] : )" +
                      kMap + R"(
    hopper.tma_store_commit
)" + wait + "  }\n",
                  "%a: " + kMap);
  };
  const std::string fence = "  hopper.fence_async\n", wait = "  hopper.tma_store_wait 0 read\n";
  EXPECT_EQ(run(text(fence, wait), {&box.map}), "");
  EXPECT_THAT(run(text("", wait), {&box.map}),
              HasSubstr("threads wrote and did not make visible by fence_async"));
  EXPECT_THAT(run(text(fence, ""), {&box.map}), HasSubstr("ends before tma_store_wait"));
}

TEST(Emulator, SharedMemoryHasBoundsAtRunTime) {
  const std::string beyond = kernel("  %far = arith.muli %t, %bar : i32\n"
                                    "  hopper.stmatrix %far, [%t, %t, %t, %t]\n");
  EXPECT_THAT(run(beyond), HasSubstr("stmatrix writes a row at 32760"));
}

TEST(Emulator, ThreadsOfAWarpActTogether) {
  EXPECT_THAT(run(kernel("  scf.if %first {\n    hopper.stmatrix %0, [%t, %t, %t, %t]\n  }\n")),
              HasSubstr("deadlock: 1 threads of CTA 0, 0: stmatrix of its warp"));
}

TEST(Emulator, ThreadsAgreeOnANamedBarrier) {
  EXPECT_THAT(run(kernel(R"(
  scf.if %first {
    hopper.named_barrier 2 threads 64
  } else {
    hopper.named_barrier 2 threads 128
  }
)")),
              HasSubstr("named_barrier 2 is for"));
}

TEST(Emulator, ALaunchFitsItsKernel) {
  Box box;
  const std::string text = kernel("", "%a: " + kMap + ", %n: i32");
  EXPECT_EQ(run(text, {&box.map, int32_t(1)}), "");
  EXPECT_THAT(run(text, {&box.map}), HasSubstr("got 1 arguments, it takes 2"));
  EXPECT_THAT(run(text, {int32_t(1), &box.map}), HasSubstr("argument 0 is of another type"));
  TensorMap odd = box.map;
  odd.rowBytes = 130;
  EXPECT_THAT(run(text, {&odd, int32_t(1)}),
              HasSubstr("130 bytes apart, which is no multiple of 16; pad the rows to 144"));
  const std::string loads = kernel(withBarrier(1) + R"(
  scf.if %first {
    hopper.mbarrier_arrive_expect %bar bytes 8192
    hopper.tma_load %a[%0, %0] to %0 signal %bar : )" +
                                       kMap + "\n  }\n",
                                   "%a: " + kMap);
  TensorMap other = box.map;
  other.boxRows = 32;
  EXPECT_THAT(run(loads, {&other}), HasSubstr("boxes of 32 x 64, and the kernel moves 64 x 64"));
  EXPECT_THAT(run(loads, {&box.map}, {Landing::Late}),
              HasSubstr("the cluster ends before 1 boxes that tma_load asked for have landed"));
}
