// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Runs kernels of the hopper level on a CPU, thread by thread, with the values that a GPU gives and
// with reports of what a GPU would do wrong or never end. It has no time.
#pragma once

#include "arch/spec/Expected.h"
#include "compiler/Codegen/Gpu/Emulator/TensorMap.h"

#include "mlir/IR/BuiltinOps.h"

#include <memory>
#include <string_view>
#include <variant>
#include <vector>

namespace millrace::gpu {

/// When asynchronous work happens: at its issue, or as late as its wait allows.
enum class Landing : uint8_t { Early, Late };

/// How an emulation chooses where the machine is free to. A right kernel has the same values under
/// every choice.
struct Adversary {
  Landing loads = Landing::Early;    ///< TMA writes shared memory
  Landing products = Landing::Early; ///< wgmma reads shared memory
  Landing stores = Landing::Early;   ///< TMA reads shared memory
  /// Order of threads, CTAs and loads, and the lane that `elect` takes. 0: ascending; 1:
  /// descending; others: shuffled.
  unsigned seed = 0;

  /// The choices that every kernel is tested under.
  static std::vector<Adversary> all();
};

/// Global memory that a `!llvm.ptr<1>` points to. Loads and stores elsewhere are violations, and so
/// are accesses of one launch to bytes that another of its threads writes.
struct GlobalMemory {
  void *data = nullptr;
  size_t bytes = 0;
};

/// An argument of a kernel.
using Argument = std::variant<const TensorMap *, GlobalMemory, int32_t, int64_t, float>;

/// CTAs along x and y.
struct Grid {
  unsigned x = 1, y = 1;
};

/// A kernel as machine code of this CPU.
class EmulatedKernel {
public:
  /// Compiles the kernel `name` of a module of the hopper level, which is not changed.
  static Expected<EmulatedKernel> create(mlir::ModuleOp module, std::string_view name);

  /// Runs one launch. Errors: arguments that do not fit; the first violation that a CTA met, with
  /// the kernel, the CTA and the thread: a deadlock with what each thread waits for, use of an
  /// accumulator before its wait, shared memory out of bounds, more arrivals than a barrier counts,
  /// reads through TMA or wgmma of what no fence made visible, accesses outside of global memory.
  Status run(Grid grid, const std::vector<Argument> &arguments, const Adversary &adversary = {});

  EmulatedKernel(EmulatedKernel &&) noexcept;
  EmulatedKernel &operator=(EmulatedKernel &&) noexcept;
  ~EmulatedKernel();

private:
  struct State;
  explicit EmulatedKernel(std::unique_ptr<State> state);
  std::unique_ptr<State> state;
};

} // namespace millrace::gpu
