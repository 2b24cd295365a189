// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// A ring of stages in shared memory: one thread of the producer fills them through TMA, consumers
// multiply what is full and give it back. Then bias, rounding, and the tile of C through TMA.
#include "compiler/Codegen/Gpu/Gemm/Gemm.h"

#include "compiler/Dialect/Hopper/IR/Hopper.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/LLVMIR/LLVMDialect.h"
#include "mlir/Dialect/SCF/IR/SCF.h"
#include "mlir/IR/ImplicitLocOpBuilder.h"
#include "mlir/IR/Verifier.h"

namespace millrace::gpu {

using namespace mlir;
using namespace millrace::hopper;

namespace {

/// Elements along K of one panel (128 bytes, the swizzle's span), and of one wgmma.
constexpr unsigned kPanel = 64, kDepth = 16;
/// Bytes of 64 rows of one panel.
constexpr unsigned kBlockPanelBytes = 64 * 128;
/// The named barrier at which consumers meet before C is stored.
constexpr unsigned kEpilogueBarrier = 1;

/// What two loops of the ring carry: the stage and the parity of its phase.
struct RingState {
  Value stage, parity;
};

class GemmBuilder {
public:
  GemmBuilder(ModuleOp module, const GemmProblem &problem, const GemmSchedule &schedule,
              const GemmLayout &layout)
      : module(module), problem(problem), schedule(schedule), layout(layout),
        b(module.getLoc(), module.getContext()) {}

  KernelOp build(const std::string &name);

private:
  // Arithmetic of i32; constants stand once, at the begin of the kernel.
  Value number(int64_t value);
  Value add(Value x, Value y) { return arith::AddIOp::create(b, x, y); }
  Value add(Value x, int64_t y) { return y ? add(x, number(y)) : x; }
  Value times(Value x, int64_t y) { return arith::MulIOp::create(b, x, number(y)); }
  Value bits(Value x, int64_t mask) { return arith::AndIOp::create(b, x, number(mask)); }
  Value shiftRight(Value x, int64_t by) { return arith::ShRUIOp::create(b, x, number(by)); }
  Value is(Value x, int64_t y) {
    return arith::CmpIOp::create(b, arith::CmpIPredicate::eq, x, number(y));
  }
  Value isBelow(Value x, int64_t y) {
    return arith::CmpIOp::create(b, arith::CmpIPredicate::ult, x, number(y));
  }
  /// Runs `body` in the branch that `condition` opens.
  template <class Body> void when(Value condition, Body body) {
    auto branch = scf::IfOp::create(b, condition, /*withElseRegion=*/false);
    OpBuilder::InsertionGuard guard(b);
    b.setInsertionPoint(branch.thenYield());
    body();
  }

  Type elementType() {
    return problem.type == GemmProblem::Type::BFloat16 ? Type(b.getBF16Type())
                                                       : Type(b.getF16Type());
  }
  TensorMapType boxes(unsigned rows) {
    return TensorMapType::get(b.getContext(), rows, kPanel, elementType(), 128);
  }
  AccumulatorType accumulator(bool inFlight) {
    return AccumulatorType::get(b.getContext(), schedule.tileN, inFlight);
  }

  Value fullBarrier(Value stage) { return add(times(stage, 8), layout.barriers); }
  Value emptyBarrier(Value stage) {
    return add(times(stage, 8), layout.barriers + 8 * schedule.stages);
  }
  RingState next(RingState state);

  void initBarriers();
  void produce();
  void loadStage(Value tile, RingState state);
  void consume();
  SmallVector<Value> multiplyStage(RingState state, ValueRange accumulators);
  void release(Value stage);
  SmallVector<Value> reduce();
  void storeTile(ArrayRef<Value> accumulators);
  void storeFragment(Value accumulator, unsigned group, Value rowAddress, Value rowInEight);
  SmallVector<Value> biasOf(unsigned group);

  ModuleOp module;
  const GemmProblem &problem;
  const GemmSchedule &schedule;
  const GemmLayout &layout;
  ImplicitLocOpBuilder b;
  Block *entry = nullptr;
  llvm::DenseMap<int64_t, Value> numbers;
  Value mapA, mapB, mapC, bias, n, k;
  Value thread, lane, warpgroup, row0, column0, tiles, rank;
};

Value GemmBuilder::number(int64_t value) {
  Value &made = numbers[value];
  if (!made) {
    OpBuilder::InsertionGuard guard(b);
    b.setInsertionPointToStart(entry);
    made = arith::ConstantOp::create(b, b.getI32IntegerAttr(static_cast<int32_t>(value)));
  }
  return made;
}

RingState GemmBuilder::next(RingState state) {
  Value stage = add(state.stage, 1);
  Value wraps = is(stage, schedule.stages);
  Value turned = arith::XOrIOp::create(b, state.parity, number(1));
  return {arith::SelectOp::create(b, wraps, number(0), stage),
          arith::SelectOp::create(b, wraps, turned, state.parity)};
}

void GemmBuilder::initBarriers() {
  when(is(thread, 0), [&] {
    for (unsigned stage = 0; stage < schedule.stages; ++stage) {
      MbarrierInitOp::create(b, number(layout.barriers + 8 * stage), 1);
      MbarrierInitOp::create(b, number(layout.barriers + 8 * (schedule.stages + stage)),
                             schedule.consumers * schedule.cluster);
    }
    FenceMbarrierInitOp::create(b);
  });
  if (schedule.cluster == 1) {
    CtaBarrierOp::create(b);
    return;
  }
  ClusterArriveOp::create(b);
  ClusterWaitOp::create(b);
}

//===-- Producer
//------------------------------------------------------------------------------------===//

void GemmBuilder::produce() {
  SetMaxRegistersOp::create(b, RegisterChange::Decrease, schedule.producerRegisters, 1);
  when(isBelow(thread, 32), [&] {
    Value elected = ElectOp::create(b, b.getI1Type());
    when(elected, [&] {
      // Fresh barriers let the first round of waits for "empty" pass with parity 1.
      auto loop =
          scf::ForOp::create(b, number(0), tiles, number(1), ValueRange{number(0), number(1)});
      OpBuilder::InsertionGuard guard(b);
      b.setInsertionPointToStart(loop.getBody());
      const RingState state{loop.getRegionIterArgs()[0], loop.getRegionIterArgs()[1]};
      loadStage(loop.getInductionVar(), state);
      const RingState following = next(state);
      scf::YieldOp::create(b, ValueRange{following.stage, following.parity});
    });
  });
}

void GemmBuilder::loadStage(Value tile, RingState state) {
  MbarrierWaitOp::create(b, emptyBarrier(state.stage), state.parity);
  Value full = fullBarrier(state.stage);
  MbarrierArriveExpectOp::create(b, full, layout.stageBytes());
  Value stageA = times(state.stage, layout.stageBytes());
  Value stageB = add(stageA, layout.bytesA);
  const unsigned share = schedule.tileN / schedule.cluster;
  Value rowB = column0, mask;
  if (schedule.cluster > 1) {
    // Each CTA brings its share of B to all of them.
    rowB = add(column0, times(rank, share));
    stageB = add(stageB, times(rank, share * 128));
    mask = arith::ConstantOp::create(
        b, b.getI16IntegerAttr(static_cast<int16_t>((1u << schedule.cluster) - 1)));
  }
  for (unsigned panel = 0; panel < schedule.panels(); ++panel) {
    Value column = add(times(tile, schedule.tileK), panel * kPanel);
    TmaLoadOp::create(b, mapA, row0, column, add(stageA, panel * schedule.tileM * 128), full,
                      Value(), ValueRange());
    TmaLoadOp::create(b, mapB, rowB, column, add(stageB, panel * schedule.tileN * 128), full, mask,
                      ValueRange());
  }
}

//===-- Consumers
//-----------------------------------------------------------------------------------===//

SmallVector<Value> GemmBuilder::multiplyStage(RingState state, ValueRange accumulators) {
  MbarrierWaitOp::create(b, fullBarrier(state.stage), state.parity);
  Value stageA = times(state.stage, layout.stageBytes());
  Value stageB = add(stageA, layout.bytesA);
  Value rows = times(add(warpgroup, -1), schedule.blocks() * kBlockPanelBytes);
  Value addressA = add(stageA, rows);
  const SmallVector<Type> inFlight(accumulators.size(), accumulator(true));
  auto fence = WgmmaFenceOp::create(b, inFlight, accumulators);
  SmallVector<Value> sums(fence.getResults());
  for (unsigned panel = 0; panel < schedule.panels(); ++panel) {
    Value descriptorB =
        MatrixDescriptorOp::create(b, b.getI64Type(), add(stageB, panel * schedule.tileN * 128));
    for (unsigned block = 0; block < sums.size(); ++block) {
      Value descriptorA = MatrixDescriptorOp::create(
          b, b.getI64Type(),
          add(addressA, panel * schedule.tileM * 128 + block * kBlockPanelBytes));
      for (unsigned step = 0; step < kPanel / kDepth; ++step) {
        // Descriptors count 16 bytes.
        const auto along = b.getI64IntegerAttr(int64_t(step) * kDepth * kGemmElementBytes / 16);
        Value offset = arith::ConstantOp::create(b, along);
        sums[block] = WgmmaOp::create(b, sums[block], arith::AddIOp::create(b, descriptorA, offset),
                                      arith::AddIOp::create(b, descriptorB, offset), elementType());
      }
    }
  }
  WgmmaCommitOp::create(b);
  return sums;
}

/// Gives a stage back to the producers that fill it: that of every CTA of the cluster.
void GemmBuilder::release(Value stage) {
  Value barrier = emptyBarrier(stage);
  Value own = bits(thread, 127);
  when(isBelow(own, schedule.cluster),
       [&] { MbarrierArriveOp::create(b, barrier, schedule.cluster > 1 ? own : Value()); });
}

SmallVector<Value> GemmBuilder::reduce() {
  const SmallVector<Type> inFlight(schedule.blocks(), accumulator(true));
  SmallVector<Value> zeros;
  for (unsigned block = 0; block < schedule.blocks(); ++block)
    zeros.push_back(AccumulatorZeroOp::create(b, accumulator(false)));
  // The first stage stands before the loop: were there a way around all products, ptxas would see
  // zeros written to registers in flight, and serialise (C7515).
  const RingState first{number(0), number(0)};
  const SmallVector<Value> begun = multiplyStage(first, zeros);
  const RingState second{number(1), number(0)}; // there are two stages at least
  SmallVector<Value> carried = {second.stage, second.parity, first.stage};
  llvm::append_range(carried, begun);
  auto loop = scf::ForOp::create(b, number(1), tiles, number(1), carried);
  {
    OpBuilder::InsertionGuard guard(b);
    b.setInsertionPointToStart(loop.getBody());
    const auto arguments = loop.getRegionIterArgs();
    const RingState state{arguments[0], arguments[1]};
    SmallVector<Value> sums = multiplyStage(state, ValueRange(arguments.drop_front(3)));
    // All but this stage's products are complete: the stage before can be filled again.
    auto wait = WgmmaWaitOp::create(b, inFlight, 1, sums);
    release(arguments[2]);
    const RingState following = next(state);
    SmallVector<Value> yielded = {following.stage, following.parity, state.stage};
    llvm::append_range(yielded, wait.getResults());
    scf::YieldOp::create(b, yielded);
  }
  const SmallVector<Type> ready(zeros.size(), accumulator(false));
  auto last = WgmmaWaitOp::create(b, ready, 0, loop.getResults().drop_front(3));
  return SmallVector<Value>(last.getResults());
}

void GemmBuilder::consume() {
  SetMaxRegistersOp::create(b, RegisterChange::Increase, schedule.consumerRegisters,
                            schedule.consumers);
  storeTile(reduce());
}

//===-- Epilogue
//------------------------------------------------------------------------------------===//

/// This thread's four columns of a group of 16: two neighbours, and two eight further.
SmallVector<Value> GemmBuilder::biasOf(unsigned group) {
  SmallVector<Value> values;
  Value pair = times(bits(lane, 3), 2);
  Value first = add(add(column0, pair), group * 16);
  for (unsigned offset : {0u, 1u, 8u, 9u}) {
    // Columns beyond the matrix are not stored; any value will do.
    Value column = arith::MinSIOp::create(b, add(first, offset), add(n, -1));
    Value address = LLVM::GEPOp::create(b, bias.getType(), b.getF32Type(), bias,
                                        ArrayRef<LLVM::GEPArg>{column});
    values.push_back(LLVM::LoadOp::create(b, b.getF32Type(), address, /*alignment=*/4));
  }
  return values;
}

/// Rounds 16 columns of an accumulator and stores them: four matrices of 8 x 8, rows before
/// columns.
void GemmBuilder::storeFragment(Value sums, unsigned group, Value rowAddress, Value rowInEight) {
  const SmallVector<Value> addends = problem.hasBias ? biasOf(group) : SmallVector<Value>();
  SmallVector<Value> packed;
  for (unsigned matrix = 0; matrix < 4; ++matrix) {
    Value pair[2];
    for (unsigned half = 0; half < 2; ++half) {
      pair[half] =
          AccumulatorReadOp::create(b, b.getF32Type(), sums, group * 8 + matrix * 2 + half);
      if (problem.hasBias)
        pair[half] = arith::AddFOp::create(b, pair[half], addends[matrix / 2 * 2 + half]);
    }
    packed.push_back(PackOp::create(b, b.getI32Type(), pair[0], pair[1], elementType()));
  }
  Value chunk = add(shiftRight(lane, 4), group % 4 * 2);
  Value swizzled = arith::XOrIOp::create(b, chunk, rowInEight);
  Value address = add(add(rowAddress, times(swizzled, 16)), group / 4 * kBlockPanelBytes);
  StmatrixOp::create(b, address, packed[0], packed[1], packed[2], packed[3]);
}

void GemmBuilder::storeTile(ArrayRef<Value> accumulators) {
  const unsigned blockBytes = 64 * schedule.tileN * kGemmElementBytes;
  Value consumer = add(warpgroup, -1);
  Value base = add(times(consumer, schedule.blocks() * blockBytes), layout.c);
  Value warp = bits(shiftRight(thread, 5), 3);
  // Lane 8 m + r names row r of matrix m: matrices 0 and 1 lie one above the other.
  Value row = add(times(warp, 16), bits(lane, 15));
  Value rowAddress = add(base, times(row, 128));
  Value rowInEight = bits(row, 7);
  for (unsigned block = 0; block < accumulators.size(); ++block)
    for (unsigned group = 0; group < schedule.tileN / 16; ++group)
      storeFragment(accumulators[block], group, add(rowAddress, block * blockBytes), rowInEight);
  FenceAsyncOp::create(b);
  NamedBarrierOp::create(b, kEpilogueBarrier, 128 * schedule.consumers, ValueRange());
  when(is(bits(thread, 127), 0), [&] {
    Value firstRow = add(row0, times(consumer, 64 * schedule.blocks()));
    for (unsigned block = 0; block < schedule.blocks(); ++block)
      for (unsigned panel = 0; panel < schedule.tileN / kPanel; ++panel)
        TmaStoreOp::create(b, add(base, block * blockBytes + panel * kBlockPanelBytes), mapC,
                           add(firstRow, 64 * block), add(column0, panel * kPanel));
    TmaStoreCommitOp::create(b);
    TmaStoreWaitOp::create(b, 0, /*read=*/true);
  });
}

//===-- The kernel
//----------------------------------------------------------------------------------===//

KernelOp GemmBuilder::build(const std::string &name) {
  SmallVector<Type> types = {boxes(schedule.tileM), boxes(schedule.tileN / schedule.cluster),
                             boxes(64)};
  if (problem.hasBias)
    types.push_back(LLVM::LLVMPointerType::get(b.getContext(), 1));
  types.append(2, b.getI32Type());
  b.setInsertionPointToEnd(module.getBody());
  auto kernel = KernelOp::create(b, name, b.getFunctionType(types, {}), schedule.threads(),
                                 schedule.launchRegisters(), layout.total, schedule.cluster,
                                 ArrayAttr(), ArrayAttr());
  entry =
      b.createBlock(&kernel.getBody(), {}, types, SmallVector<Location>(types.size(), b.getLoc()));
  const auto arguments = entry->getArguments();
  mapA = arguments[0];
  mapB = arguments[1];
  mapC = arguments[2];
  bias = problem.hasBias ? Value(arguments[3]) : Value();
  n = arguments[arguments.size() - 2];
  k = arguments.back();

  thread = ThreadIdOp::create(b, b.getI32Type());
  lane = bits(thread, 31);
  warpgroup = WarpgroupIdOp::create(b, b.getI32Type());
  row0 = times(CtaIdOp::create(b, b.getI32Type(), Axis::X), schedule.tileM);
  column0 = times(CtaIdOp::create(b, b.getI32Type(), Axis::Y), schedule.tileN);
  tiles = arith::DivUIOp::create(b, add(k, schedule.tileK - 1), number(schedule.tileK));
  if (schedule.cluster > 1)
    rank = ClusterRankOp::create(b, b.getI32Type());
  initBarriers();
  auto roles = scf::IfOp::create(b, is(warpgroup, 0), /*withElseRegion=*/true);
  b.setInsertionPoint(roles.thenYield());
  produce();
  b.setInsertionPoint(roles.elseYield());
  consume();
  b.setInsertionPointAfter(roles);
  if (schedule.cluster > 1) {
    // No CTA ends while another still loads into it or arrives at its barriers.
    ClusterArriveOp::create(b);
    ClusterWaitOp::create(b);
  }
  ReturnOp::create(b);
  return kernel;
}

} // namespace

Status buildGemm(ModuleOp module, const std::string &name, const GemmProblem &problem,
                 const GemmSchedule &schedule) {
  Expected<GemmLayout> layout = planGemm(schedule);
  if (!layout)
    return layout.takeError();
  if (module.lookupSymbol(name))
    return Error{"the module has '" + name + "' already; choose another name"};
  module.getContext()
      ->loadDialect<HopperDialect, arith::ArithDialect, scf::SCFDialect, LLVM::LLVMDialect>();
  std::string text;
  ScopedDiagnosticHandler collect(module.getContext(), [&](Diagnostic &diagnostic) {
    text += (text.empty() ? "" : "; ") + diagnostic.str();
    return success();
  });
  KernelOp kernel = GemmBuilder(module, problem, schedule, *layout).build(name);
  if (succeeded(verify(kernel)))
    return Success{};
  kernel.erase();
  return Error{"the kernel does not verify: " + text};
}

} // namespace millrace::gpu
