// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The parts of problemOf(): bundles, then what they hold, then what they leave to each other.
#pragma once

#include "arch/program/Image.h"
#include "compiler/Schedule/Hazards.h"
#include "compiler/Schedule/Problem/Problem.h"

#include <map>
#include <vector>

namespace millrace::schedule {

/// Calls f(i0, i1, e) for the consumer's elements of which an annotation speaks; e is the
/// producer's element.
template <class F> void forEachProduced(const Producer &p, F f) {
  for (unsigned i1 = 0; i1 < p.count1; ++i1)
    for (unsigned i0 = 0; i0 < p.count0; ++i0)
      f(p.from0 + i0, p.from1 + i1,
        uint32_t(int64_t(p.first) + int64_t(i0) * p.step0 + int64_t(i1) * p.step1));
}

/// Cycle of element `e` behind the dispatch.
inline Cycle cycleOfElement(const Instruction &i, uint32_t e) {
  return elementCycle(i, e % i.n0, e / i.n0);
}

/// Does a value stay in something until it is taken, so that who takes it need not come at a fixed
/// distance?
bool isKept(const Instruction &consumer, const Producer &from);

class Extractor {
public:
  Extractor(const Image &image, const Machine &machine)
      : image(image), machine(machine), timing(machine) {}
  Expected<ScheduleProblem> run();

private:
  struct Place {
    uint32_t step = 0, bundle = 0;
    Cycle at = 0; ///< of the dispatch, from the start of the bundle
  };
  const Image &image;
  const Machine &machine;
  const Timing timing;
  ScheduleProblem problem;
  std::string wrong;                      ///< the first thing that no problem can hold
  std::vector<std::vector<Place>> places; ///< [pe][instruction]
  std::map<std::pair<ResourceKind, std::string>, uint32_t> numbers; ///< of resources

  const Instruction &at(unsigned pe, uint32_t k) const { return image.instructions[pe][k]; }
  Bundle &bundleOf(unsigned pe, uint32_t k) { return problem.bundles[places[pe][k].bundle]; }
  /// Cycle of an element from the start of its bundle.
  Cycle cycleIn(unsigned pe, uint32_t k, uint32_t element) const {
    return places[pe][k].at + cycleOfElement(at(pe, k), element);
  }
  void refuse(unsigned pe, uint32_t k, const std::string &what);
  uint32_t resource(ResourceKind kind, unsigned pe, unsigned queue, const std::string &part,
                    Cycle cyclesPerPart = 0);

  // Bundles.cpp
  void makeBundles();
  void checkInstructions();
  void checkAnnotations(unsigned pe, uint32_t k);
  std::vector<std::vector<uint32_t>> join() const;

  // Holds.cpp
  struct Output { ///< bytes that a burst puts on a stream
    StreamId stream = 0;
    std::vector<uint16_t> last; ///< by element: position of its last sampler
  };
  std::vector<std::vector<std::vector<Output>>> outputs; ///< [pe][instruction]
  void addHolds();
  void addPorts(unsigned pe, uint32_t k);
  void addBanks(unsigned pe, uint32_t k);
  void addAluResults(unsigned pe);
  void addLink(unsigned pe, uint32_t k);
  void addStreams(unsigned pe, uint32_t k);
  std::vector<StreamId> streamsOf(const Instruction &i) const;
  unsigned operandWidth(const Instruction &i, const Operand &o) const;
  unsigned positionOf(const Instruction &i) const;
  Cycle injection(const Instruction &i) const;
  Cycle diagonal(StreamId stream, Cycle cycle, unsigned position) const;
  void followSamplers();
  void noteSampler(unsigned pe, uint32_t k, const Producer &from);
  void hold(unsigned pe, uint32_t k, Hold like, std::vector<Cycle> cycles);

  // Spans.cpp
  struct Value { ///< that lives in parts [low, high] of a resource
    uint32_t resource = 0, step = 0, low = 0, high = 0;
    std::vector<Moment> begins, ends; ///< by bundle, in the time of the resource
    Cycle order = 0;                  ///< begin in the image
  };
  std::vector<Value> values;
  /// Bursts whose rows somebody takes after their step.
  std::vector<std::vector<bool>> outlives; ///< [pe][instruction]
  struct Touched { ///< first and last step in which instructions access a region
    uint32_t first = UINT32_MAX, last = 0;
  };
  std::vector<Touched> touched; ///< by region
  void addSpans();
  void addWeights();
  void addAccumulators();
  void addLatches();
  void addRegions(unsigned step);
  void addContents(unsigned step);
  void markWhatOutlives();
  void noteTouches();
  Cycle slopeOf(unsigned pe, unsigned queue) const;
  void finishSpans();

  // Precedence.cpp
  std::map<std::tuple<uint32_t, uint32_t>, std::pair<Cycle, PrecedenceKind>> least; ///< by bundles
  void addPrecedence();
  void precede(uint32_t before, uint32_t after, Cycle distance, PrecedenceKind kind);
  void precedeData(unsigned pe, uint32_t k, const Producer &from);
  void precedeGathers();
  void reduce();
};

/// Is a region there when its first step begins, since data, inputs or the host fill it?
std::vector<bool> regionsLoaded(const Image &image);
/// Does a region live to the end of its last step, whoever touches it last?
bool isKeptToEnd(const Image &image, const Region &region);

} // namespace millrace::schedule
