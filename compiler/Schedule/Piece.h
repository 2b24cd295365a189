// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// A piece: bursts with fixed distances to each other (what flows cannot wait). The scheduler's unit
// of work: it finds the earliest cycle, the streams and the ALUs at which everything a piece needs
// is free, and every hazard is kept.
#pragma once

#include "compiler/Schedule/Program.h"

#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace millrace::schedule {

class Piece {
public:
  using StreamVar = unsigned;
  using AluVar = unsigned;
  using BurstId = unsigned;

  explicit Piece(Program &program) : program(program) {}

  /// A group of `width` adjacent, aligned streams, chosen at placement.
  StreamVar stream(unsigned pe, Hemisphere h, Direction d, unsigned width);
  /// An ALU, chosen at placement, held from the first to the last burst on it.
  AluVar alu(unsigned pe);

  /// A burst on a fixed queue, dispatched at `at` from the piece's start. Operand and out fields of
  /// `proto` that name streams are filled at placement through feed() and tap().
  BurstId add(unsigned pe, Unit unit, Instruction proto, Cycle at);
  BurstId addAlu(AluVar alu, Instruction proto, Cycle at);

  /// The burst's elements enter bytes [byte, byte + width) of the group at `position`, `delay`
  /// after each element's cycle. `outSlot` 0 or 1 is the out field that names the stream.
  void feed(BurstId burst, unsigned outSlot, StreamVar stream, unsigned byte, unsigned width,
            unsigned position, Cycle delay);
  /// The burst samples bytes [byte, byte + width) of the group at `position` at its element cycles,
  /// as operand a, b or c.
  void tap(BurstId burst, ProducerOf operand, StreamVar stream, unsigned byte, unsigned width,
           unsigned position);
  /// Operand a, b or c of `burst` is what ALU burst `from` leaves.
  void chain(BurstId burst, ProducerOf operand, BurstId from);
  /// Operand a, b or c of `burst` is the latch of its ALU, as Latch burst `from` on it loads it.
  void latch(BurstId burst, ProducerOf operand, BurstId from);
  /// `accumulate` adds to partial sums: per element, the Accumulate element that left them. The
  /// plan says whose; what the row holds by then is for the simulator to find out.
  void sum(BurstId accumulate, std::vector<Origin> partial);
  /// `activate` multiplies by the weights that these elements installed into its `plane`-th plane:
  /// one per column group, from its g0 on. The plan says whose; what the buffer holds by then is
  /// for the simulator to find out.
  void weights(BurstId activate, unsigned plane, std::vector<Origin> groups);
  /// `accumulate` takes the products of `activate`, element by element.
  void product(BurstId accumulate, BurstId activate);
  /// `receive` delivers what `send` (on another PE) put on the link.
  void link(BurstId receive, BurstId send);

  /// What is wrong with the piece whatever its start: place() gives the first such error.
  void refuse(const std::string &error) {
    if (wrong.empty())
      wrong = error;
  }
  void setOutWidth(BurstId burst, unsigned width) { bursts[burst].proto.outWidth = uint8_t(width); }
  /// Number of a placed burst in its PE's program.
  uint32_t idOf(BurstId burst) const { return bursts[burst].id; }
  const Instruction &proto(BurstId burst) const { return bursts[burst].proto; }
  Cycle at(BurstId burst) const { return bursts[burst].at; }
  bool empty() const { return bursts.empty(); }
  size_t size() const { return bursts.size(); }

  /// Earliest start >= `from` that keeps every hazard and finds everything free; reserves it,
  /// appends the bursts to the program with their producers, and updates the state. Returns the
  /// start; an error if no start fits, since the piece needs one resource twice at a time or more
  /// streams or ALUs than the machine has. The search ends: a piece for which streams and ALUs are
  /// found on the machine alone finds them at the latest behind all reservations.
  Expected<Cycle> place(Cycle from);
  /// Do two of its bursts leave one queue in one cycle? Then no start fits.
  bool clashes() const;
  /// Has the machine ALUs enough for the piece, were nothing else reserved?
  bool findsAlus();
  /// Two Reads, Writes or Gathers that need one port, bank or queue at once, whatever the start.
  std::optional<std::pair<BurstId, BurstId>> conflict();
  /// Such pairs, one after the other, while bursts are moved out of them.
  class Conflicts;
  /// Lets Read or Write `burst` use rows of another slice: element (i1, i0) that of `address` + i1
  /// s1 + i0 s0, in `region`. It is dispatched when its stream passes there.
  void moveRows(BurstId burst, unsigned slice, unsigned address, int32_t s0, int32_t s1,
                uint32_t region);
  /// The PE of a burst, and the unit of one that is on no ALU.
  unsigned peOf(BurstId burst) const { return bursts[burst].pe; }
  const Unit &unitOf(BurstId burst) const { return bursts[burst].unit; }
  /// Does the piece read this slice already?
  bool reads(unsigned pe, Hemisphere h, unsigned slice) const;
  /// Does a burst of the piece in the slice go on in cycle `at` from its start?
  bool touches(unsigned pe, Hemisphere h, unsigned slice, Cycle at) const;

private:
  struct Burst {
    unsigned pe = 0;
    bool onAlu = false;
    AluVar alu = 0;
    Unit unit{};
    Instruction proto;
    Cycle at = 0;
    uint32_t id = 0; ///< in the PE's program, once placed
  };
  struct Feed {
    BurstId burst;
    unsigned byte, width, position;
    Cycle delay;
    unsigned outSlot;
  };
  struct Tap {
    BurstId burst;
    ProducerOf operand;
    unsigned byte, width, position;
  };
  struct Stream {
    unsigned pe;
    Hemisphere hemisphere;
    Direction direction;
    unsigned width;
    std::vector<Feed> feeds;
    std::vector<Tap> taps;
    std::vector<Rectangle> needs; ///< per byte, relative to the start
    unsigned base = 0;            ///< chosen
  };
  struct Chain {
    BurstId burst;
    ProducerOf operand;
    BurstId from;
  };
  struct Sum {
    BurstId accumulate;
    std::vector<Origin> partial;
  };
  struct Weights {
    BurstId activate;
    unsigned plane;
    std::vector<Origin> groups;
  };
  struct Pair {
    BurstId consumer, producer;
  };
  struct Hold {
    IntervalSet *set;
    Cycle at, length;
    BurstId burst;
    uint32_t resource;
    Cause cause; ///< if it is not free
  };
  struct AluNeed {
    unsigned pe;
    Cycle at = INT64_MAX, last = INT64_MIN;
    unsigned chosen = 0;
    BurstId lastBurst = 0; ///< which holds it to `last`
  };
  struct DispatchNeed {
    CycleSet *set;
    Cycle at;
    BurstId burst;
    uint32_t otherPort; ///< of the slice: whoever leaves the queue in the same cycle holds that
  };
  static constexpr BurstId kNoBurst = UINT32_MAX;
  /// What keeps the piece from starting before `until`.
  struct Obstacle {
    Cycle until = 0;
    Cause cause = Cause::StepBegin;
    BurstId burst = kNoBurst;    ///< which needs what is not free or not there
    uint32_t resource = kNobody; ///< held by another piece ...
    Cycle heldAt = 0;            ///< ... in this cycle
    uint32_t holder = kNobody;   ///< or the burst, if it is known: number in its PE's program
    /// Is it held up by the same piece of the machine, for the same burst, as by `o` until then?
    bool isAsBefore(const Obstacle &o) const {
      return cause == o.cause && burst == o.burst && resource == o.resource && holder == o.holder;
    }
  };

  Program &program;
  std::string wrong;
  std::vector<Burst> bursts;
  std::vector<Stream> streams;
  std::vector<AluNeed> alus;
  std::vector<Chain> chains, latches;
  std::vector<Sum> sums;
  std::vector<Weights> installed;
  std::vector<Pair> products, links;
  std::vector<Hold> holds;
  std::vector<DispatchNeed> dispatchNeeds;
  std::vector<unsigned> streamOrder, aluOrder; ///< in which they are chosen

  /// When and where a burst of MEM holds its port, its banks and its queue, if it lay in `slice`.
  struct MemNeed {
    Cycle at = 0, length = 0;
    unsigned slice = 0, firstBank = 0, lastBank = 0;
    bool writes = false;
  };
  MemNeed memNeed(const Burst &burst) const;
  /// First and last slice from whose positions the burst's streams reach who samples them, or to
  /// which they come from who makes them; none if first > last.
  std::pair<unsigned, unsigned> slicesFor(BurstId burst) const;
  bool meet(const MemNeed &x, const MemNeed &y) const;
  /// A stream that the burst feeds or taps; none: null.
  const Stream *streamOf(BurstId burst) const;
  /// Dispatch of `burst` of `stream` in a slice so that its elements stay on their diagonals.
  Cycle dispatchIn(const Burst &burst, const Stream *stream, unsigned slice) const;
  void collectNeeds();
  Status checkHolds() const;
  Status orderAlus();
  /// Finds orders in which streams and ALUs can be chosen where nothing else is reserved.
  Status orderChoices();
  Error tooManyStreams(const Stream &last) const;
  Error tooManyAlus() const;
  void collectHolds(BurstId burst);
  Cycle diagonal(const Stream &s, Cycle cycle, unsigned position) const;
  Obstacle lowerBound() const;
  void raise(Obstacle &bound, BurstId burst) const;
  std::optional<Obstacle> misfit(Cycle start);
  BurstId longestOn(const Stream &stream, unsigned byte) const;
  Obstacle obstacleOf(const Stream &stream, Cycle start, Cycle wait) const;
  /// `alone`: as if nothing else were reserved. kNoShift if no shift helps but by other choices.
  static constexpr Cycle kNoShift = INT64_MAX;
  /// How much later to try; 0 if all have a place. `which`: the first that has none.
  Cycle misfitStreams(Cycle start, bool alone = false, unsigned *which = nullptr);
  Cycle shiftFor(const Stream &stream, unsigned base, size_t chosen, Cycle start, bool alone) const;
  /// One ALU takes both, and streams of one number may not enter it from both hemispheres (R8).
  bool excludeEachOther(const Stream &x, const Stream &y) const;
  Cycle misfitAlus(Cycle start, bool alone = false, unsigned *which = nullptr);

  void reserve(Cycle start);
  void emit(Cycle start);
  void note(Cycle start, const std::vector<Obstacle> &obstacles);
  void updateState(const Burst &burst);
  void annotateState(const Burst &burst);
  void annotateStreams(const Stream &stream);
  void annotateChains();
  std::vector<Producer> &producersOf(const Burst &burst) {
    return program.pes[burst.pe].producers[burst.id];
  }
};

/// Of a piece that changes by move() alone. What was found free stays so: a search goes on from
/// where it was.
class Piece::Conflicts {
public:
  explicit Conflicts(Piece &piece);
  std::optional<std::pair<BurstId, BurstId>> next();
  /// In which (slice, bank) of its hemisphere would Read or Write `burst` meet no other burst,
  /// upstream of who samples its rows (or downstream of who makes them)? By slice * banks + bank.
  std::vector<bool> freePlaces(BurstId burst) const;
  /// Piece::moveRows() of a burst of the pair that next() gave last, into a free place.
  void move(BurstId burst, unsigned slice, unsigned address, int32_t s0, int32_t s1,
            uint32_t region);

private:
  Piece &piece;
  std::vector<std::vector<BurstId>> bySlice; ///< of all PEs and hemispheres; by number
  size_t at = 0, first = 0, second = 1;      ///< the pair to look at

  std::vector<BurstId> &sliceOf(BurstId burst);
  size_t placeOf(const Burst &burst, unsigned slice) const;
};

} // namespace millrace::schedule
