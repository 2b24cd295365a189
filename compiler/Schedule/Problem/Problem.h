// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The schedule of an image as a problem that can leave the compiler: bundles of bursts with fixed
// distances, what they hold when, who waits for whom. What is free is the start of each bundle;
// streams, ALUs, buffers, accumulator rows and memory rows are those of the image.
// docs/spec/schedule-problem.md is normative.
#pragma once

#include "arch/spec/Expected.h"
#include "arch/spec/Types.h"

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace millrace::schedule {

/// What bundles hold.
enum class ResourceKind : uint8_t {
  // For cycles that are known from the bundle's start.
  Queue,     ///< a MEM queue, which serves two ports
  ReadPort,  ///< of a MEM slice
  WritePort, ///< of a MEM slice
  Banks,     ///< of a MEM slice, numbered
  MxmPort,   ///< of an MXM queue
  Alu,
  SxmPort,   ///< of an SXM unit
  LinkPort,  ///< a C2C port, sending or receiving
  AluResult, ///< the way out of an ALU, one result a cycle
  Link,      ///< a vector's slot on a link
  Stream,    ///< registers of a stream, numbered, in the time of its vectors (diagonals)
  // For as long as a value lives, which several bundles decide.
  Weights,      ///< column groups of a weight buffer, numbered
  Accumulators, ///< accumulator rows, numbered
  Latch,        ///< of an ALU
  Rows,         ///< rows of a MEM slice, numbered, each of one region at a time
  Contents,     ///< rows of a MEM slice that are written more than once while a region lives
};
constexpr unsigned kResourceKinds = unsigned(ResourceKind::Contents) + 1;
/// "read_port": a word of the text form.
std::string_view nameOf(ResourceKind kind);

struct Resource {
  ResourceKind kind = ResourceKind::Queue;
  std::string name; ///< "pe0.mem.w.3.read"
  /// Part p lives in a time of its own: moment t there is cycle t + p cyclesPerPart. What passes
  /// the parts one after the other at this pace thereby holds all of them at once.
  Cycle cyclesPerPart = 0;
  bool operator==(const Resource &) const = default;
};

/// Parts [low, high] of a resource, held in cycles [at + k every, at + k every + length) behind the
/// start of a bundle, 0 <= k < count. Parts of a resource that has none are 0.
struct Hold {
  uint32_t resource = 0, low = 0, high = 0;
  Cycle at = 0, length = 1;
  uint32_t count = 1;
  Cycle every = 0; ///< 0 if count is 1
  bool operator==(const Hold &) const = default;
};

/// `at` cycles behind the start of a bundle.
struct Moment {
  uint32_t bundle = 0;
  Cycle at = 0;
  auto operator<=>(const Moment &) const = default;
};

/// Parts [low, high] of a resource are held from the first of `begins` to before the last of
/// `ends`. Without `begins`: from before the step; without `ends`: to behind it.
struct Span {
  uint32_t resource = 0, low = 0, high = 0;
  uint32_t step = 0; ///< index into ScheduleProblem::steps
  std::vector<Moment> begins, ends;
  bool operator==(const Span &) const = default;
};

enum class PrecedenceKind : uint8_t {
  Data,       ///< through rows of memory
  Install,    ///< weights into the buffer
  PartialSum, ///< through accumulator rows
  Latch,
  Reuse, ///< a Gather may take any row of a table, which is written behind it
};
constexpr unsigned kPrecedenceKinds = unsigned(PrecedenceKind::Reuse) + 1;
std::string_view nameOf(PrecedenceKind kind);

/// `after` starts at least `distance` cycles behind `before`; less than 0: at most so long before.
struct Precedence {
  uint32_t before = 0, after = 0;
  Cycle distance = 0;
  PrecedenceKind kind = PrecedenceKind::Data;
  bool operator==(const Precedence &) const = default;
};

/// An instruction of the image, dispatched `at` cycles behind the bundle's start.
struct Member {
  uint32_t pe = 0, instruction = 0;
  Cycle at = 0;
  bool operator==(const Member &) const = default;
};

/// Bursts that what flows between them ties to fixed distances.
struct Bundle {
  uint32_t step = 0;              ///< index into ScheduleProblem::steps
  Cycle start = 0;                ///< in the image; the first dispatch
  std::optional<Cycle> lastWrite; ///< its last write slot, from the start
  std::string name;               ///< provenance of its first burst; names need not differ
  std::vector<Member> members;
  std::vector<Hold> holds;
  bool operator==(const Bundle &) const = default;
};

/// A grid step: bundles of different steps never meet.
struct GridStep {
  uint32_t step = 0; ///< number in the image
  Cycle fixed = 0;   ///< cycles of the step beside its last write slot
  Cycle fewest = 0;  ///< no starts take fewer cycles, Check.cpp
  bool operator==(const GridStep &) const = default;
};

struct ScheduleProblem {
  std::string machine;
  uint64_t machineHash = 0;
  std::vector<GridStep> steps;
  std::vector<Resource> resources;
  std::vector<Bundle> bundles; ///< by step and start
  std::vector<Precedence> precedence;
  /// Of one resource in the order in which the image uses it.
  std::vector<Span> spans;
  bool operator==(const ScheduleProblem &) const = default;
};

/// Cycle of each bundle's start, within its step; 0 to kLatest.
using Starts = std::vector<Cycle>;
constexpr Cycle kLatest = (Cycle(1) << 40) - 1;

/// Those of the image.
Starts startsOf(const ScheduleProblem &problem);
/// The objective: cycles of all grid steps. Every bundle has a start.
Cycle cyclesOf(const ScheduleProblem &problem, const Starts &starts);

/// Is the problem whole, and not infeasible at sight? Errors name bundles and resources: an index
/// that does not exist, a bundle that meets itself, precedence in a circle, values that live all
/// through a step in the same place.
Status check(const ScheduleProblem &problem);
/// Cycles that no starts undercut in a grid step: the longest way along precedence, and the work of
/// each resource behind its earliest start and before its shortest tail. Of a problem that passes
/// check().
Cycle lowerBound(const ScheduleProblem &problem, uint32_t step);

/// Are these starts a schedule? Shares no code with what makes problems or solves them. The problem
/// passes check(). Errors name two bundles, what both need and the cycle.
Status verify(const ScheduleProblem &problem, const Starts &starts);

struct SolveOptions {
  unsigned rounds = 1; ///< at most; each goes once backward and once forward through the bundles
};
/// Starts that take at most as many cycles as `starts`, which verify: bundles move to where they
/// fit, the most urgent first; who follows whom on a resource's spans stays. The same each time.
Starts improve(const ScheduleProblem &problem, const Starts &starts, const SolveOptions &options);

} // namespace millrace::schedule
