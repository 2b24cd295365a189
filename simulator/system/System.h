// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// All PEs and links of a machine as one tree of modules, with the memory that persists from step to
// step.
#pragma once

#include "simulator/fabric/LinkModule.h"
#include "simulator/fabric/PortUnit.h"
#include "simulator/memory/MemorySlice.h"
#include "simulator/pe/MatrixUnit.h"
#include "simulator/pe/Pe.h"
#include "simulator/pe/SwitchUnit.h"
#include "simulator/pe/VectorUnit.h"
#include "simulator/system/Simulate.h"

namespace millrace::sim {

class System : public RowAccess {
public:
  System(const Image &image, const Machine &machine, const SimulationOptions &options);
  ~System() override;

  /// Contents that exist from the start of a step on: all blocks with data at step 0, and the rows
  /// that inputs or the host fill in the step in which their tensor begins.
  void loadBlocks(unsigned step);
  /// Runs one grid step to its end, or until its first violation is certain. Returns the measured
  /// cycles.
  uint64_t runStep(unsigned step);
  ViolationLog &violations() { return log; }
  const Counters &counters(unsigned pe) const { return parts[pe]->context.counters; }
  void finishCounters();

  unsigned lanes() const override { return machine.lanes(); }
  void read(unsigned pe, Hemisphere hemisphere, unsigned slice, uint32_t row,
            std::span<uint8_t> bytes) override;
  std::span<uint8_t> write(unsigned pe, Hemisphere hemisphere, unsigned slice,
                           uint32_t row) override;

private:
  /// One PE with its units.
  struct Part {
    Part(const Machine &machine, const Timing &timing, const Image &image, unsigned pe,
         const SimulationOptions &options, ViolationLog &log)
        : context(machine, timing, image, pe, options.values, options.annotations, log) {}
    PeContext context;
    std::vector<std::unique_ptr<MemorySlice>> memory; ///< west, then east
    std::vector<std::unique_ptr<UnitModule>> matrix;  ///< by hemisphere
    std::vector<std::unique_ptr<UnitModule>> switches;
    std::unique_ptr<UnitModule> vector;
    std::unique_ptr<UnitModule> ports;
    std::unique_ptr<Pe> pe;
  };
  void build(unsigned pe);
  Pe::Wiring wire(Part &part) const;
  template <class Own, class... Arguments>
  std::unique_ptr<UnitModule> make(const std::string &name, PeContext &context, Unit unit,
                                   Arguments &&...arguments);
  Cycle windowOf(unsigned pe, const Pe::Wiring &wiring) const;
  unsigned currentStep = 0; ///< whose blocks were loaded last
  void checkQueueOrder(unsigned step);
  void checkCount(unsigned step, uint64_t measured);
  MemorySlice &slice(unsigned pe, Hemisphere h, unsigned s) {
    return *parts[pe]->memory[unsigned(h) * machine.memory.slices + s];
  }
  void sortBlocks();
  uint32_t blockOf(unsigned pe, Hemisphere h, unsigned s, uint32_t row) const;

  const Image &image;
  const Machine &machine;
  const SimulationOptions &options;
  const Timing timing;
  ViolationLog log;
  std::vector<std::unique_ptr<LinkModule>> links;
  std::vector<std::unique_ptr<Part>> parts;
  std::vector<uint32_t> blockOrder; ///< blocks by (pe, hemisphere, slice, row), once one is sought
  Cycle base = 1;
};

} // namespace millrace::sim
