// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The single stages of the compiler on one model, and the text of every level between them. Their
// order stands in Build.cpp.
#pragma once

#include "arch/program/Image.h"
#include "compiler/Codegen/Grid/Fit.h"
#include "compiler/Dialect/Spatial/Transforms/Facts.h"
#include "compiler/Schedule/Problem/Extract.h"
#include "compiler/Tools/Build.h"
#include "compiler/Tools/ErrorLine.h"
#include "compiler/Tools/Progress.h"

#include "mlir/IR/BuiltinOps.h"
#include "mlir/IR/MLIRContext.h"
#include "mlir/IR/OwningOpRef.h"

#include <optional>

namespace millrace::driver {

/// A model on its way: what the last stage left is there, the rest is empty. Every step returns a
/// failure or nothing.
class Stages {
public:
  explicit Stages(const ModelOptions &options);

  std::optional<Failure> loadTarget();

  // Stages, each from its level to the next. Images pass verifyImage.
  std::optional<Failure> importModel();
  std::optional<Failure> formKernels();
  std::optional<Failure> schedule();

  // Levels as text: read the model's file as that level; make the text.
  std::optional<Failure> readTensors();
  std::optional<Failure> readKernels();
  std::optional<Failure> readSchedule();
  std::optional<Failure> writeTensors(std::string &text);
  std::optional<Failure> writeKernels(std::string &text);
  std::optional<Failure> writeSchedule(std::string &text);
  std::optional<Failure> writeProblem(std::string &text);

  Built take(double seconds) {
    return {std::move(*target),
            std::move(image),
            seconds,
            std::move(reckoning),
            {context, std::move(imported)},
            std::move(explanation),
            std::move(cycles)};
  }
  BuiltText takeText(std::string text) {
    return {std::move(*target), std::move(text), std::move(explanation), std::move(cycles)};
  }

private:
  /// Schedules the kernels as they are.
  std::optional<Failure> scheduleKernels();
  /// A program of the kernels, or why there is none.
  struct Attempt {
    Expected<Image> image;
    grid::CompileReport report;
  };
  Attempt compileKernels(unsigned effort);
  /// Kernels of a tensor level for a machine; with the costs of layouts of others for it.
  std::optional<Failure> formKernelsFor(mlir::ModuleOp tensors, const Machine &machine,
                                        std::shared_ptr<layouts::CostCache> costs);
  /// Forms the kernels again for fewer PEs, if these may take fewer cycles, and keeps those that
  /// take fewest.
  std::optional<Failure> chooseComputingPes();
  void explain(const layouts::LayoutProblem &problem, const layouts::Choice &choice);
  /// Forms the kernels anew, for another share of the memory.
  std::optional<Failure> formAgain(forms::Room its);
  /// With --explain what-would-help: of each resource, as much more as there would be and no end.
  std::vector<schedule::Relief> reliefs() const;
  /// Marks the values of --keep-fp32.
  std::optional<Failure> markFp32();
  /// The problem of the image as it was placed.
  std::optional<Failure> poseProblem();
  /// Starts bundles when --schedule says. `report`, if there is one, follows.
  std::optional<Failure> applySchedule(grid::CompileReport *report);
  /// Takes what moving bundles gains.
  std::optional<Failure> improveSchedule(grid::CompileReport &report);
  std::optional<Failure> startAt(const schedule::Starts &starts, grid::CompileReport *report);
  /// Marks what --device-map sends elsewhere.
  std::optional<Failure> markDevices();
  /// Whether each device that --device-map names has a step.
  std::optional<Failure> checkDevices();
  /// Notes what kernels the steps of the GPU have, for estimates of their time.
  std::optional<Failure> noteKernels();
  /// Whether the image passes verifyImage.
  std::optional<Failure> verify();
  std::optional<Failure> parse(const std::string &level);
  Failure failed(Exit code, const std::string &what) const;

  const ModelOptions &options;
  Progress progress;
  std::optional<Machine> target;
  std::shared_ptr<mlir::MLIRContext> context = std::make_shared<mlir::MLIRContext>();
  ErrorLine errors;
  mlir::OwningOpRef<mlir::ModuleOp> module;   ///< tensor level, or the text's spatial level
  mlir::OwningOpRef<mlir::ModuleOp> imported; ///< the tensor level as it was, for a judge
  spatial::ModelFacts facts;
  /// What kernels are formed of again, in forms that take less room, if they do not fit.
  struct Origin {
    mlir::OwningOpRef<mlir::ModuleOp> module;
    spatial::ModelFacts facts;
  };
  std::optional<Origin> origin;
  /// What forming leaves.
  struct Formed {
    forms::KernelGraph graph;
    spatial::ModelFacts facts;
    std::optional<LayoutReport> explanation;
  };
  void take(Formed formed);
  std::optional<Attempt> attempt; ///< the kernels' program, if it was made to choose among them
  forms::Room room = forms::Room::Ample;
  bool rewritesToFit = false; ///< kernels as they were formed did not fit
  std::shared_ptr<layouts::CostCache> layoutCosts = std::make_shared<layouts::CostCache>();
  forms::KernelGraph graph;
  Image image;
  std::optional<schedule::ScheduleProblem> problem; ///< if it was asked for
  std::optional<Reckoning> reckoning;
  std::optional<LayoutReport> explanation;
  std::optional<CycleReport> cycles;
};

} // namespace millrace::driver
