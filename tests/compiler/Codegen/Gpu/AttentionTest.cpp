// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Attention against double precision: on a CPU, on the emulator under every order of threads, and
// as PTX that ptxas takes; prefill and decoding with everything that models do to the scores.
#include "compiler/Codegen/Gpu/Attention/Attention.h"
#include "compiler/Codegen/Gpu/Emulator/Emulator.h"
#include "compiler/Codegen/Gpu/Ptx/EmitPtx.h"
#include "compiler/Codegen/Gpu/Ptx/Ptxas.h"
#include "compiler/Dialect/Hopper/IR/Hopper.h"
#include "compiler/Dialect/Hopper/Transforms/Passes.h"
#include "compiler/Dialect/Tile/IR/Tile.h"
#include "compiler/Dialect/Tile/Transforms/Passes.h"
#include "compiler/Reference/Reference.h"
#include "tests/compiler/Codegen/Gpu/Parsed.h"
#include "tests/compiler/Codegen/Gpu/PtxasGate.h"

#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/IR/MLIRContext.h"
#include "mlir/Parser/Parser.h"
#include "mlir/Pass/Pass.h"
#include "mlir/Pass/PassManager.h"
#include "llvm/ADT/APFloat.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <random>

#include <sys/resource.h>

using namespace millrace;
using namespace millrace::gpu;
using testing::HasSubstr;

namespace {

constexpr auto kF16 = AttentionProblem::Type::Float16, kBf16 = AttentionProblem::Type::BFloat16;

/// type, batch, query heads, key heads, queries, keys, depth, value depth, causal, window, scale,
/// softcap, sinks.
const std::vector<AttentionProblem> kProblems = {
    // Prefill.
    {kF16, 1, 1, 1, 64, 64, 64, 64},
    {kF16, 1, 2, 2, 33, 33, 16, 16, true},
    {kF16, 2, 2, 1, 17, 17, 32, 24, true},
    {kBf16, 1, 1, 1, 40, 40, 64, 64, true},
    {kF16, 1, 1, 1, 70, 70, 8, 8, true, 16},
    {kF16, 1, 4, 2, 21, 21, 20, 20, true, 5},
    {kF16, 1, 1, 1, 31, 47, 33, 35, false},
    {kF16, 1, 1, 1, 31, 47, 33, 35, true},
    {kF16, 1, 2, 1, 20, 20, 16, 16, true, 0, 0.25, 3},
    {kF16, 1, 2, 1, 20, 20, 16, 16, true, 0, 0.25, 0, true},
    {kBf16, 1, 2, 1, 35, 35, 64, 64, true, 8, 0.125, 2.5, true},
    {kF16, 1, 1, 1, 96, 96, 128, 128, true, 0, 0.0884},
    {kF16, 1, 1, 1, 5, 100, 48, 40, true, 33, 0.2, 0, true},
    {kF16, 1, 3, 3, 9, 2, 16, 16, false},
    {kF16, 1, 1, 1, 9, 4, 16, 16, true}, // five queries see no key
    // Decoding.
    {kF16, 1, 1, 1, 1, 1, 16, 16},
    {kF16, 1, 8, 1, 1, 100, 64, 64, true, 0, 0.125},
    {kF16, 2, 8, 2, 1, 65, 64, 64, true, 0, 0.125, 0, true},
    {kBf16, 1, 16, 2, 1, 130, 32, 32, true, 64, 0.17},
    {kF16, 3, 4, 4, 1, 31, 16, 24, true, 0, 0.25, 5},
    {kF16, 1, 64, 8, 1, 50, 64, 64, true, 20, 0.125, 0, true},
    {kF16, 1, 4, 1, 3, 77, 80, 80, true, 0, 0.11},
    {kBf16, 1, 5, 1, 2, 33, 17, 7, true, 10, 0.25, 4, true},
    // Rows of Q that do not stay in registers.
    {kF16, 1, 2, 1, 7, 40, 200, 16, true, 0, 0.07},
    {kF16, 1, 1, 1, 33, 33, 256, 160, true, 20, 0.06, 5, true},
};

std::string nameOf(const AttentionProblem &p) {
  return "batch " + std::to_string(p.batch) + ", heads " + std::to_string(p.queryHeads) + "/" +
         std::to_string(p.keyHeads) + ", " + std::to_string(p.queries) + " queries, " +
         std::to_string(p.keys) + " keys, depth " + std::to_string(p.depth) + "/" +
         std::to_string(p.valueDepth) + (p.isCausal ? ", causal" : "") + ", window " +
         std::to_string(p.window) + (p.hasSinks ? ", sinks" : "");
}

/// Relative L2 error: weights of at most one are rounded to the type (half a unit in the last
/// place: 2^-11 or 2^-8 of them), products are exact, sums of `keys` terms are fp32; the
/// exponential's argument carries the rounding of its score, of at most 32 here.
double bound(const AttentionProblem &p) {
  return std::ldexp(1, p.type == kF16 ? -11 : -8) +
         std::ldexp(64 + 2 * std::sqrt(double(p.keys)), -24);
}

struct Numbers {
  std::vector<uint16_t> bits;
  std::vector<double> values;
};

Numbers draw(int64_t count, bool isBf16, unsigned seed) {
  Numbers numbers;
  std::minstd_rand random(seed + 1);
  std::uniform_real_distribution<float> uniform(-1.5, 1.5);
  for (int64_t i = 0; i < count; ++i) {
    llvm::APFloat number(uniform(random));
    bool isInexact = false;
    number.convert(isBf16 ? llvm::APFloat::BFloat() : llvm::APFloat::IEEEhalf(),
                   llvm::APFloat::rmNearestTiesToEven, &isInexact);
    numbers.bits.push_back(uint16_t(number.bitcastToAPInt().getZExtValue()));
    number.convert(llvm::APFloat::IEEEdouble(), llvm::APFloat::rmNearestTiesToEven, &isInexact);
    numbers.values.push_back(number.convertToDouble());
  }
  return numbers;
}

struct Inputs {
  explicit Inputs(const AttentionProblem &p)
      : q(draw(p.batch * p.queryHeads * p.queries * p.depth, p.type == kBf16, 1)),
        k(draw(p.batch * p.keyHeads * p.keys * p.depth, p.type == kBf16, 2)),
        v(draw(p.batch * p.keyHeads * p.keys * p.valueDepth, p.type == kBf16, 3)) {
    for (int64_t h = 0; h < p.queryHeads; ++h)
      sinks.push_back(float(h % 5) - 2);
  }
  Numbers q, k, v;
  std::vector<float> sinks;
};

std::vector<double> inDouble(const AttentionProblem &p, const Inputs &in) {
  std::vector<double> out;
  for (int64_t b = 0; b < p.batch; ++b)
    for (int64_t h = 0; h < p.queryHeads; ++h)
      for (int64_t i = 0; i < p.queries; ++i) {
        const int64_t kv = b * p.keyHeads + h / (p.queryHeads / p.keyHeads);
        const int64_t position = p.keys - p.queries + i;
        std::vector<double> weights(size_t(p.keys), 0.0);
        double sum = p.hasSinks ? std::exp(double(in.sinks[size_t(h)])) : 0;
        for (int64_t j = 0; j < p.keys; ++j) {
          if (p.isCausal && (j > position || (p.window && j <= position - p.window)))
            continue;
          double score = 0;
          for (int64_t d = 0; d < p.depth; ++d)
            score += in.q.values[size_t(((b * p.queryHeads + h) * p.queries + i) * p.depth + d)] *
                     in.k.values[size_t((kv * p.keys + j) * p.depth + d)];
          score *= p.scale;
          if (p.softcap != 0)
            score = p.softcap * std::tanh(score / p.softcap);
          sum += weights[size_t(j)] = std::exp(score);
        }
        for (int64_t d = 0; d < p.valueDepth; ++d) {
          double value = 0;
          for (int64_t j = 0; j < p.keys; ++j)
            value += weights[size_t(j)] * in.v.values[size_t((kv * p.keys + j) * p.valueDepth + d)];
          out.push_back(sum > 0 ? value / sum : 0);
        }
      }
  return out;
}

struct Context {
  Context() {
    loadKernelDialects(context);
    module = mlir::ModuleOp::create(mlir::UnknownLoc::get(&context));
  }
  bool run(std::unique_ptr<mlir::Pass> pass) {
    mlir::PassManager passes(&context);
    passes.addPass(std::move(pass));
    return succeeded(passes.run(*module));
  }
  mlir::MLIRContext context;
  mlir::OwningOpRef<mlir::ModuleOp> module;
};

double relativeError(const std::vector<float> &got, const std::vector<double> &expected) {
  double error = 0, size = 0;
  for (size_t i = 0; i < expected.size(); ++i) {
    error += std::pow(got[i] - expected[i], 2);
    size += expected[i] * expected[i];
  }
  return std::sqrt(error / size);
}

void expectWithin(const AttentionProblem &p, const std::vector<float> &got,
                  const std::vector<double> &expected) {
  EXPECT_LE(relativeError(got, expected), bound(p));
}

/// How a problem is cut: small tiles as well, so that short problems have several of each.
std::vector<AttentionSchedule> schedulesOf(const AttentionProblem &p) {
  return p.keys <= 48 ? std::vector<AttentionSchedule>{{32, 16}, {64, 32}}
                      : std::vector<AttentionSchedule>{AttentionSchedule::choose(p)};
}

/// A function of tensors whose result is zeros.
std::string functionOf(const AttentionProblem &p) {
  const auto tensor = [](const std::vector<int64_t> &shape, const std::string &type) {
    std::string text = "tensor<";
    for (int64_t size : shape)
      text += std::to_string(size) + "x";
    return text + type + ">";
  };
  const std::string type = p.type == kF16 ? "f16" : "bf16",
                    out = tensor({p.batch, p.queryHeads, p.queries, p.valueDepth}, "f32");
  return "func.func @main(%q: " + tensor({p.batch, p.queryHeads, p.queries, p.depth}, type) +
         ", %k: " + tensor({p.batch, p.keyHeads, p.keys, p.depth}, type) +
         ", %v: " + tensor({p.batch, p.keyHeads, p.keys, p.valueDepth}, type) +
         (p.hasSinks ? ", %s: " + tensor({p.queryHeads}, "f32") : "") + ") -> " + out +
         " {\n%z = arith.constant 0.0 : f32\n%e = tensor.empty() : " + out +
         "\n%f = linalg.fill ins(%z : f32) outs(%e : " + out + ") -> " + out +
         "\nreturn %f : " + out + "\n}";
}

/// Launches the kernel on all buffers of the function, at its end.
class CallAttention : public mlir::PassWrapper<CallAttention, mlir::OperationPass<mlir::ModuleOp>> {
public:
  MLIR_DEFINE_EXPLICIT_INTERNAL_INLINE_TYPE_ID(CallAttention)
  explicit CallAttention(const AttentionProblem &problem) : problem(problem) {}
  void runOnOperation() final {
    auto function = getOperation().lookupSymbol<mlir::func::FuncOp>("main");
    mlir::OpBuilder builder(function.getBody().back().getTerminator());
    tile::LaunchOp::create(builder, function.getLoc(), "k", function.getArguments());
    if (!buildAttention(getOperation(), "k", problem, AttentionSchedule::choose(problem)))
      signalPassFailure();
  }

private:
  AttentionProblem problem;
};

/// Of this process and of those that it ran, in milliseconds.
double processorTime() {
  double seconds = 0;
  for (int who : {RUSAGE_SELF, RUSAGE_CHILDREN}) {
    rusage used = {};
    getrusage(who, &used);
    for (const timeval &time : {used.ru_utime, used.ru_stime})
      seconds += double(time.tv_sec) + 1e-6 * double(time.tv_usec);
  }
  return 1000 * seconds;
}

} // namespace

TEST(Attention, OnTheEmulatorIsWithinTheBoundUnderEveryOrderOfThreads) {
  for (const AttentionProblem &p : kProblems)
    for (const AttentionSchedule &schedule : schedulesOf(p)) {
      SCOPED_TRACE(nameOf(p));
      Context c;
      const Status built = buildAttention(*c.module, "k", p, schedule);
      ASSERT_TRUE(built) << built.error();
      ASSERT_TRUE(c.run(tile::createLowerToHopperPass()));
      auto kernel = *c.module->getOps<hopper::KernelOp>().begin();
      const auto programs =
          unsigned(kernel->getAttrOfType<mlir::IntegerAttr>(tile::kProgramsAttribute).getInt());
      Expected<EmulatedKernel> compiled = EmulatedKernel::create(*c.module, "k");
      ASSERT_TRUE(compiled) << compiled.error();
      Inputs in(p);
      const std::vector<double> expected = inDouble(p, in);
      for (const Adversary &adversary : Adversary::all()) {
        std::vector<float> out(expected.size(), NAN);
        std::vector<Argument> arguments;
        for (Numbers *numbers : {&in.q, &in.k, &in.v})
          arguments.emplace_back(GlobalMemory{numbers->bits.data(), numbers->bits.size() * 2});
        if (p.hasSinks)
          arguments.emplace_back(GlobalMemory{in.sinks.data(), in.sinks.size() * 4});
        arguments.emplace_back(GlobalMemory{out.data(), out.size() * 4});
        const Status done = compiled->run({programs, 1}, arguments, adversary);
        ASSERT_TRUE(done) << done.error();
        expectWithin(p, out, expected);
      }
    }
}

TEST(Attention, AsLoopsOfACpuIsWithinTheBound) {
  for (const AttentionProblem &p : kProblems) {
    SCOPED_TRACE(nameOf(p));
    Context c;
    c.module = mlir::parseSourceString<mlir::ModuleOp>(functionOf(p), &c.context);
    ASSERT_TRUE(c.module);
    ReferenceOptions options;
    options.onBuffers = [&](mlir::OpPassManager &passes) {
      passes.addPass(std::make_unique<CallAttention>(p));
      passes.addPass(tile::createLowerToLoopsPass());
    };
    Expected<Reference> code = Reference::create(*c.module, "main", options);
    ASSERT_TRUE(code) << code.error();
    const Inputs in(p);
    const std::vector<double> expected = inDouble(p, in);
    const HostType type = p.type == kF16 ? HostType::Float16 : HostType::BFloat16;
    std::vector<HostTensor> tensors;
    const auto add = [&](HostType of, const std::vector<int64_t> &shape, const void *data) {
      tensors.push_back(HostTensor::zeros(of, shape));
      std::memcpy(tensors.back().data.data(), data, tensors.back().data.size());
    };
    add(type, {p.batch, p.queryHeads, p.queries, p.depth}, in.q.bits.data());
    add(type, {p.batch, p.keyHeads, p.keys, p.depth}, in.k.bits.data());
    add(type, {p.batch, p.keyHeads, p.keys, p.valueDepth}, in.v.bits.data());
    if (p.hasSinks)
      add(HostType::Float32, {p.queryHeads}, in.sinks.data());
    const auto results = code->run(tensors);
    ASSERT_TRUE(results) << results.error();
    const auto *data = reinterpret_cast<const float *>(results->front().data.data());
    expectWithin(p, {data, data + expected.size()}, expected);
  }
}

TEST(Attention, PtxasTakesItWithoutSpillsOnEveryChip) {
  const std::optional<std::string> ptxas = findPtxas();
  std::vector<AttentionProblem> problems = kProblems;
  std::vector<double> toPtx, toCode; // milliseconds of processor time, for the record alone
  // Too large to run on the emulator.
  for (int64_t depth : {64, 128, 192, 256}) {
    problems.push_back({kBf16, 1, 64, 8, 2048, 2048, depth, std::min<int64_t>(depth, 160), true,
                        128, 0.1, 20, true});
    problems.push_back(
        {kF16, 1, 32, 8, 1, 4096, depth, std::min<int64_t>(depth, 160), true, 0, 0.1});
  }
  for (const AttentionProblem &p : problems)
    for (const char *chip : {"sm_80", "sm_90a", "sm_100"}) {
      SCOPED_TRACE(nameOf(p) + chip);
      Context c;
      const double begin = processorTime();
      const auto elapsed = [&] { return processorTime() - begin; };
      ASSERT_TRUE(buildAttention(*c.module, "k", p, AttentionSchedule::choose(p)));
      ASSERT_TRUE(c.run(tile::createLowerToHopperPass()));
      Expected<std::string> ptx = emitPtx(*c.module, chip);
      ASSERT_TRUE(ptx) << ptx.error();
      EXPECT_THAT(*ptx, HasSubstr("mma.sync.aligned.m16n8k16"));
      toPtx.push_back(elapsed());
      expectAssembles(ptxas, *ptx, chip);
      if (ptxas)
        toCode.push_back(elapsed());
    }
  for (auto *times : {&toPtx, &toCode})
    if (std::sort(times->begin(), times->end()); !times->empty())
      std::printf("%zu kernels, to %s: median %.0f ms, 95 %% within %.0f ms\n", times->size(),
                  times == &toPtx ? "PTX" : "machine code", (*times)[times->size() / 2],
                  (*times)[times->size() * 95 / 100]);
  if (!ptxas)
    GTEST_SKIP() << "ptxas is not installed: PTX was made and not assembled";
}

/// The kernel of a problem with every mask, with a part of its text replaced; what is wrong with
/// it.
namespace {
std::string runChanged(const std::string &from, const std::string &to) {
  const AttentionProblem p = {kF16, 1, 4, 2, 21, 37, 20, 12, true, 11, 0.3, 4, true};
  Context c;
  if (!buildAttention(*c.module, "k", p, {32, 16}))
    return "is not built";
  std::string text;
  llvm::raw_string_ostream out(text);
  c.module->print(out);
  if (!from.empty()) {
    const size_t at = text.find(from);
    EXPECT_NE(at, text.npos) << from;
    text.replace(at, from.size(), to);
  }
  c.module = mlir::parseSourceString<mlir::ModuleOp>(text, &c.context);
  if (!c.module || !c.run(tile::createLowerToHopperPass()))
    return "is not valid";
  Expected<EmulatedKernel> kernel = EmulatedKernel::create(*c.module, "k");
  if (!kernel)
    return kernel.error();
  Inputs in(p);
  const std::vector<double> expected = inDouble(p, in);
  std::vector<float> result(expected.size(), NAN);
  std::vector<Argument> arguments;
  for (Numbers *numbers : {&in.q, &in.k, &in.v})
    arguments.emplace_back(GlobalMemory{numbers->bits.data(), numbers->bits.size() * 2});
  arguments.emplace_back(GlobalMemory{in.sinks.data(), in.sinks.size() * 4});
  arguments.emplace_back(GlobalMemory{result.data(), result.size() * 4});
  if (const Status done = kernel->run({4, 1}, arguments, {}); !done)
    return done.error();
  return relativeError(result, expected) <= bound(p) ? "" : "is wrong";
}
} // namespace

TEST(Attention, AFaultInItsProgramIsNoticed) {
  EXPECT_EQ(runChanged("", ""), "");
  // Not among them: a bound of the keys that the causal mask has, too, and the maximum, without
  // which scores of this size have the same softmax.
  const std::pair<const char *, const char *> faults[] = {
      {"arith.cmpi sle", "arith.cmpi slt"}, // the query's own position
      {"arith.cmpi sgt", "arith.cmpi sge"}, // the first key of the window
      {"reduce_rows addf", "reduce_rows maximumf"},
      {"along[3, 2]", "along[2, 3]"}, // V turned
      {"along[2, 3]", "along[3, 2]"}, // K turned
      {"math.tanh", "math.absf"},     // no softcap
      {"dense<3.000000e-01>", "dense<3.010000e-01>"},
      {"arith.maximumf", "arith.minimumf"},
      {"dense<1.000000e+00> : vector<32xf32>", "dense<0.000000e+00> : vector<32xf32>"}, // sinks
      {"arith.constant 16 : index", "arith.constant 17 : index"},
      {"arith.divui", "arith.remui"},
      {"arith.cmpi ult", "arith.cmpi ule"},
  };
  for (const auto &[from, to] : faults)
    EXPECT_NE(runChanged(from, to), "") << from << " as " << to;
}

TEST(Attention, WithoutSenseIsRefused) {
  const auto refusal = [](const AttentionProblem &problem, const AttentionSchedule &schedule = {}) {
    Context c;
    const Status done = buildAttention(*c.module, "k", problem, schedule);
    return done ? std::string() : done.error();
  };
  EXPECT_THAT(refusal({.queryHeads = 3, .keyHeads = 2}),
              HasSubstr("query heads: 3; give a multiple of the 2 key heads"));
  EXPECT_THAT(refusal({.keys = 0}), HasSubstr("keys: 0; give at least one"));
  EXPECT_THAT(refusal({.depth = 300}), HasSubstr("a depth of 300; give at most 256"));
  EXPECT_THAT(refusal({.valueDepth = 200}),
              HasSubstr("a depth of values of 200; give at most 160"));
  EXPECT_THAT(refusal({.window = 4}), HasSubstr("a window of 4; make it causal"));
  EXPECT_THAT(refusal({.softcap = -1}), HasSubstr("a softcap below 0"));
  EXPECT_THAT(refusal({}, {48, 32}), HasSubstr("rows of a program: 48; give a multiple of 32"));
  EXPECT_THAT(refusal({}, {64, 24}), HasSubstr("keys of a block: 24; give a multiple of 16"));
}
