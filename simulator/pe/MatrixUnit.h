// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The MXM of one hemisphere: planes with weight buffers and accumulators. Products are computed in
// batches: only when a result is sampled, or when the weights they need are about to be replaced.
#pragma once

#include "simulator/base/UnitModule.h"
#include "simulator/kernels/Gemm.h"

#include <deque>
#include <vector>

namespace millrace::sim {

/// Leaves new elements as they lie in memory; for what is written before it is read.
template <class T> struct Unfilled : std::allocator<T> {
  template <class U> struct rebind {
    using other = Unfilled<U>;
  };
  template <class U> void construct(U *) noexcept {}
  template <class U, class V> void construct(U *at, V &&value) { *at = std::forward<V>(value); }
};
template <class T> using UnfilledRows = std::vector<T, Unfilled<T>>;

class MatrixUnit : public UnitModule {
public:
  /// `batch`: elements of a run, and sums of a plane, that are kept before results are computed
  /// unasked.
  MatrixUnit(const sc_core::sc_module_name &name, PeContext &context, size_t batch);
  ~MatrixUnit() override;

  void element(Burst &burst, Cycle now) override; ///< S4, S7, S8
  void settle(Cycle now) override;                ///< S7 of what no later install has settled
  void endStep() override;

private:
  /// What stands in a column group of a buffer, and since when.
  struct Group {
    Tag tag;
    Cycle at = INT64_MIN / 2;
  };
  struct Buffer {
    std::vector<Group> groups;
    std::unique_ptr<PlaneWeights> weights; ///< values only
  };
  /// An activation vector whose product is not yet computed.
  struct Activation {
    Cycle at;
    uint32_t element;
  };
  /// An Activate burst; its elements in `activations` from `discarded` on.
  struct Run {
    Burst burst;
    unsigned groups0, groups1;
    std::vector<Activation> activations;
    size_t discarded = 0; ///< elements dropped from the front of the three vectors below
    size_t taken =
        0; ///< elements whose Accumulate came or never will, counted from the burst's start
    std::vector<size_t> verified, computed; ///< by column group, counted from the burst's start
    UnfilledRows<uint8_t> low, high;        ///< activation rows
    UnfilledRows<uint32_t> products;        ///< rows of `columns`
    size_t count() const { return discarded + activations.size(); }
    const Activation &at(size_t k) const { return activations[k - discarded]; }
  };
  /// An Accumulate whose row is not yet computed.
  struct Operation {
    Cycle activated;
    Run *run;
    size_t element; ///< of the run
    uint32_t row;
    uint8_t mode;
    VectorRef result; ///< to be filled when it emits
  };
  /// The last Accumulate of an accumulator row in this step.
  struct LastSum {
    Cycle at = INT64_MIN / 2; ///< far enough from INT64_MIN to add to
    Tag tag;                  ///< empty: there was none
    bool isInteger = false;   ///< int32, else fp32 (R3)
  };
  struct Plane : PendingValues {
    MatrixUnit *unit = nullptr;
    unsigned index = 0;
    std::vector<Buffer> buffers;
    std::deque<std::unique_ptr<Run>> runs; ///< in order of time
    std::vector<Operation> operations;
    std::vector<LastSum> sums; ///< [accumulator row]
    std::vector<std::vector<uint32_t>> accumulators;
    void computeNow() override { unit->compute(*this); }
  };

  void install(Burst &burst, Cycle now);
  void clear(Burst &burst, Cycle now);
  void activate(Burst &burst, Cycle now);
  void accumulate(Burst &burst, Cycle now);
  void checkSum(Burst &burst, const LastSum &held, int64_t row, Cycle now);
  std::pair<Run *, size_t> productOf(Plane &plane, Cycle activated);

  /// Column group `group` of (plane, buffer) is about to change in cycle `now`: settles everyone
  /// who used it until then. Their other column groups are computed ahead with it, since new
  /// weights come group by group; those whose weights change too soon are taken back.
  void beforeInstall(unsigned plane, unsigned buffer, unsigned group, Cycle now);
  void replace(Burst &burst, unsigned plane, unsigned group, Cycle now);
  void verify(Run &run, unsigned planeIndex, unsigned group, Cycle now);
  void verifyBytes(Run &run, unsigned planeIndex, unsigned group, size_t element);

  /// How many elements of the run use group `group` only before `now`.
  static size_t settledBefore(const Run &run, unsigned group, Cycle now);
  void growProducts(Run &run) const;
  void multiply(Plane &plane, Run &run, unsigned group0, unsigned group1, size_t until);
  void multiplyAll(Plane &plane, Run &run, size_t until);
  void compute(Plane &plane);
  void perform(Plane &plane, const Operation &operation);
  void discard(Plane &plane, Run &run);
  void trim(Plane &plane, Run &run);
  void dropRuns(Plane &plane, Cycle now);
  std::unique_ptr<Run> newRun(const Burst &burst);
  unsigned planesOf(const Run &run) const {
    return byteWidth(run.burst.instruction->format) == 2 ? 2 : 1;
  }

  const size_t batch;
  unsigned groupCount, groupColumns, columns, lanes;
  std::vector<std::unique_ptr<Plane>> planes;
  std::vector<std::unique_ptr<Run>> spare; ///< that are over; new ones take their memory
  UnfilledRows<uint32_t> partial;          ///< products of some column groups
  std::vector<ByteRow> lowRows, highRows;  ///< of one product
  std::vector<uint8_t> columnBytes;        ///< scratch of one column
};

} // namespace millrace::sim
