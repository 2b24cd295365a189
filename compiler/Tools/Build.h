// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// From an ONNX file to a program image: the one place where the order of the stages is written.
#pragma once

#include "compiler/Codegen/Grid/Compile.h"
#include "compiler/Tools/Commands.h"
#include "compiler/Tools/ExplainCycles.h"
#include "compiler/Tools/ExplainLayouts.h"
#include "compiler/Tools/Judges.h"
#include "compiler/Tools/Notes.h"
#include "compiler/Tools/Progress.h"

#include <map>
#include <optional>
#include <string>
#include <vector>

namespace millrace::driver {

/// The levels of a model on its way, in their order. The pipeline is entered at any but the problem
/// and the image, and left at any but ONNX. The problem is that of the schedule that the compiler
/// places, whatever is made of it.
enum class Level : uint8_t { Onnx, Tensor, Spatial, Sched, Problem, Image };

/// Adds an option that names one of the levels `first` to `last`; `level` outlives the command.
void addLevel(CLI::App &command, const std::string &option, Level &level, const std::string &first,
              const std::string &last, const std::string &text);

/// Values of --dim, each name=n.
std::optional<Failure> parseDims(const std::vector<std::string> &texts,
                                 std::map<std::string, int64_t> &dims);

struct ModelOptions {
  std::string model, machine = "tsp-v1", precision = "auto", partition = "auto", order = "auto",
                     layouts = "exact";
  unsigned effort = 1;               ///< of the search for a schedule
  uint64_t layoutSeed = 0;           ///< of --layouts random
  std::vector<std::string> dims;     ///< name=n
  std::vector<std::string> settings; ///< machine overrides, path=value
  bool exactQdq = false;
  std::string explain;               ///< "layouts", "cycles", "what-would-help" or nothing
  std::string schedule;              ///< file of starts that solve the schedule problem
  std::vector<std::string> keepFp32; ///< ONNX values that lie in memory as fp32
  std::string deviceMap;             ///< kind=device,...; empty: all on the grid
  JudgeKind judge = JudgeKind::None; ///< keep what this check of the values needs
  Verbosity verbosity = Verbosity::Normal;
  Level from = Level::Onnx; ///< of the file `model`
  /// Adds --machine, --precision, --dim, --set, --from and the model itself to a subcommand.
  void addTo(CLI::App &command);
  /// Was an option given that a file of the level `from` has behind it?
  std::optional<Failure> checkLevels() const;
  /// Of what --explain layouts is: "model.onnx on tsp-v1 in fp16, chosen by exact".
  std::string layoutsTitle(const Machine &machine, const LayoutReport &layouts) const;
  /// Is the file plainly of another kind than the level `from`? Says what to call instead.
  std::optional<Failure> checkKind() const;

private:
  /// Options that decide how files of a level, or earlier ones, become the next.
  std::vector<std::pair<const CLI::Option *, Level>> lastOf;
};

struct Built {
  Machine machine;
  Image image;                         ///< notes hold what the compiler knows, as JSON
  double seconds = 0;                  ///< that it took
  std::optional<Reckoning> reckoning;  ///< with a judge
  TensorLevel tensors;                 ///< with a judge beside the kernels
  std::optional<LayoutReport> layouts; ///< with --explain layouts
  std::optional<CycleReport> cycles;   ///< unless the file holds a schedule
};

/// Text of a level.
struct BuiltText {
  Machine machine;
  std::string text;
  std::optional<LayoutReport> layouts; ///< with --explain layouts
  std::optional<CycleReport> cycles;   ///< with --explain of the schedule
};

/// Runs the stages from the level of the file on, with progress on stderr. The image passed
/// verifyImage, and is the same whether the pipeline ran in one go or was left and entered.
std::variant<Built, Failure> build(const ModelOptions &options);

/// Runs them up to a level with a text, `options.from` or a later one, and returns that.
std::variant<BuiltText, Failure> buildText(const ModelOptions &options, Level to);

/// Runs them as far as what --explain is about; without a text.
std::variant<BuiltText, Failure> buildExplanation(const ModelOptions &options);

} // namespace millrace::driver
