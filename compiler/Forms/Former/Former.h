// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Forms kernels by demand: a stored value asks for the scalar at a point of its index space, and
// the request walks through views, maps, one contraction and one reduction until it meets values in
// memory. Only this folder's Form*.cpp include this header.
#pragma once

#include "compiler/Forms/Former/Build.h"
#include "compiler/Forms/Former/Index.h"
#include "compiler/Forms/Former/Ranges.h"
#include "compiler/Forms/KernelBuilder.h"

#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/Dialect/Linalg/IR/Linalg.h"
#include "mlir/Dialect/Tensor/IR/Tensor.h"
#include "llvm/ADT/DenseMap.h"
#include "llvm/ADT/DenseSet.h"
#include "llvm/ADT/SetVector.h"
#include "llvm/ADT/StringMap.h"

namespace millrace::forms {

using Point = llvm::SmallVector<Linear>;

/// A node of the epilogue and how its 32 bits are read.
struct Scalar {
  /// Raw: the bits of the stored type, of a value that is not negative.
  enum class Kind { F32, I32, I8, FlagF32, FlagI32, Raw };
  unsigned node = 0;
  Kind kind = Kind::F32;
};

/// A value that a kernel computes: its other uses there take the same node.
struct Inlined {
  mlir::Value value;
  Point index;
  Scalar scalar;
};

llvm::ArrayRef<int64_t> shapeOf(mlir::Value value);

/// One try to form a kernel.
struct Attempt {
  Attempt(KernelGraph &graph, const Splits &splits)
      : build(graph), space(build.kernel().loops, splits) {}
  KernelBuilder build;
  LoopSpace space;
  int lane = -1; ///< the loop along the lanes of the result; none if they are all one
  bool contracts = false, runs = false;
  bool reduces = false;    ///< what is pulled now goes into a running reduction
  bool recomputes = false; ///< a copy of a contraction, or none of the model's: it does not count
  bool loads = false;      ///< what is pulled now is needed at several points: nothing is inlined
  bool loadsIntegers = false; ///< what is rounded to integers is not inlined
  int64_t laneSplit = 0; ///< an operand's lanes are cut in parts of this size, and so the result's
  mlir::Operation *unscaled = nullptr; ///< a dequantising map whose scale is applied to a whole sum
  mlir::Value root;                    ///< what the kernel stores as it is computed
  bool shifts = false;                 ///< the result's lanes do not begin at 0
  bool isShifted = false;              ///< and an operand was brought to where they begin
  Linear resultLane;                   ///< the index along the result's lane dimension
  /// Quantisers whose scale could not be pushed down: they are computed as they stand. What was
  /// tried has left its loops here, so that the kernel is begun anew (`beginsAnew`).
  llvm::SmallPtrSet<mlir::Operation *, 2> plain;
  bool beginsAnew = false;
  llvm::SmallVector<std::string> names;
  llvm::SmallVector<Inlined> inlined;
  int64_t laneExtent() const { return lane < 0 ? 1 : space.loop(unsigned(lane)).extent; }
};

/// A value in memory. With `laneSplit`, its lane dimension is cut in two: parts, lanes of a part.
struct Stored {
  unsigned tensor = 0;
  int64_t laneSplit = 0;
};

/// Constants that a contraction adds: one, or one per channel, of which a result reads `element`.
struct ChannelBias {
  std::vector<double> values;
  Linear element;
};

/// What a quantiser does to a real x before it rounds: factor * x + offset.
struct Rescaling {
  double factor = 1, offset = 0;
};

/// Which operand of a product cannot be multiplied as it lies in memory.
enum class Misfit { None, A, W, Both };

class Former {
public:
  Former(mlir::func::FuncOp function, const PrecisionOptions &options, KernelGraph &graph)
      : function(function), options(options), ranges(function, activation()), graph(graph) {}
  mlir::LogicalResult run();
  /// Decides which tables look-ups find in MEM: before run(). A line for each that the host keeps.
  std::vector<std::string> keepTablesWithHost();
  std::vector<std::string> remarks; ///< after run(): what a report says of constants
  /// After run(): contractions that a function of the host does, and the grid does not.
  llvm::ArrayRef<mlir::Operation *> contractionsOf(const HostCall &call) const;

private:
  struct Resolved {
    mlir::Value base;
    Point index;
    bool padded = false;
    mlir::Attribute pad; ///< value outside the base
  };

  /// What f makes of an index of the value, with its loops cut as f asks, `tries` times at most;
  /// nothing where it makes nothing and asks for no other cuts.
  template <class F>
  std::invoke_result_t<F, Attempt &, const Point &> withCuts(mlir::Value value, int tries, F f) {
    Splits splits;
    for (int i = 0; i < tries; ++i) {
      Attempt attempt(graph, splits);
      Point point;
      for (auto [dim, extent] : llvm::enumerate(shapeOf(value)))
        point.push_back(
            attempt.space.dimension({nullptr, unsigned(dim)}, extent, LoopKind::Parallel));
      const auto found = f(attempt, point);
      if (found || !attempt.space.wanted)
        return found;
      splits = *attempt.space.wanted;
    }
    return std::nullopt;
  }

  // FormOutputs.cpp: results of the function.
  mlir::LogicalResult storeOutputs();
  void setOutput(Tensor &tensor, unsigned number);
  llvm::SmallVector<unsigned> takeOutputs(mlir::Value value);
  bool storeOutputByHost(mlir::Value value, unsigned number);
  bool isOfHost(mlir::Value value);
  bool isMadeByHost(unsigned tensor) const;

  // FormStore.cpp: values in memory.
  /// `isExact`: a lane dimension of extent 1 is taken as asked, not left to another layout.
  mlir::FailureOr<Stored> store(mlir::Value base, std::optional<unsigned> lane,
                                bool isExact = false);
  llvm::SmallVector<mlir::Operation *> viewsBelow(mlir::Operation *op) const;
  mlir::FailureOr<Stored> storeArgument(mlir::Value base, unsigned lane);
  /// FormShown.cpp: views of arguments.
  void findShownArguments();
  bool isShown(mlir::Operation *view) const;
  mlir::FailureOr<Stored> storeShown(mlir::Value view, unsigned lane);
  void nameArgument(Tensor &tensor, mlir::BlockArgument argument);
  bool computesSum(mlir::Value base, bool orProduct = true, int depth = 0);
  std::optional<unsigned> joinedPieces(unsigned tensor);
  mlir::FailureOr<Stored> storeConcat(mlir::tensor::ConcatOp op, unsigned lane);
  void storeScalar(KernelBuilder &build, Scalar value, const Access &to, mlir::Type model);
  /// `laneSplit`: how the result's lanes are cut; may come from an operand.
  mlir::LogicalResult emit(mlir::Value root, unsigned tensor, llvm::ArrayRef<int64_t> offsets,
                           unsigned lane, int64_t &laneSplit, bool isStored = false);
  struct Box { ///< of a value's index space
    llvm::SmallVector<int64_t> begin, size;
  };
  mlir::LogicalResult emitBox(mlir::Value root, const Box &box, unsigned tensor,
                              llvm::ArrayRef<int64_t> offsets, unsigned lane, int64_t &laneSplit,
                              bool isStored);
  mlir::LogicalResult emitBoxes(mlir::Value root, const Box &box, unsigned tensor,
                                llvm::ArrayRef<int64_t> offsets, unsigned lane, int64_t &laneSplit,
                                bool isStored, int depth);
  void storeBehindRagged(mlir::Value root);
  std::optional<Ragged> raggedView(mlir::Value root, const Box &box);
  static llvm::SmallVector<Box, 3> cutRagged(const Box &box, const Ragged &ragged, unsigned lane);
  using Compute = llvm::function_ref<mlir::FailureOr<Scalar>(Attempt &, const Point &)>;
  mlir::LogicalResult emitKernel(mlir::Value named, llvm::ArrayRef<int64_t> shape, unsigned laneDim,
                                 Splits splits, Compute compute,
                                 llvm::function_ref<void(Attempt &, const Point &, Scalar)> finish);
  unsigned newTensor(mlir::Value value, llvm::ArrayRef<int64_t> shape, unsigned lane,
                     std::optional<ElementType> type = {});
  unsigned constantTensor(mlir::Value constant, ElementType type, unsigned lane);
  void noteBeyond(mlir::Value constant, ElementType type, const std::vector<float> &values);
  unsigned splat(llvm::ArrayRef<int64_t> shape, ElementType type, float value);

  // FormRows.cpp: a value for each row.
  static Box wholeBox(mlir::Value value);
  static Box boxRead(const Attempt &attempt, const Resolved &at);
  bool isReadInAll(mlir::Value value, const Box &box) const;
  mlir::FailureOr<unsigned> storeBroadcast(mlir::Value value, int64_t extent, Box &box);
  unsigned storeRepeated(mlir::BlockArgument argument, int64_t extent, ElementType type);
  unsigned copyRows(unsigned tensor, const Box &box);
  mlir::LogicalResult spreadLanes(mlir::Value value, Box box, unsigned rows, size_t parts);
  bool selectsFew(const Tensor &tensor, const Box &box, int64_t extent) const;
  static Scalar sumIn(KernelBuilder &build, mlir::Value value);
  void spreadFewLanes(mlir::Value value, const Box &box, unsigned from, unsigned rows);
  static constexpr size_t kAllParts = 3; ///< bf16 that add up to an fp32
  llvm::SmallVector<unsigned, 3> diagonalsOf(unsigned tensor, int64_t first, int64_t blocks,
                                             int64_t block, size_t most = kAllParts);

  // FormScores.cpp: products of two run-time values, and who takes them.
  /// Scores of attention: a contraction of two run-time values, perhaps scaled and masked.
  bool isRunTimeScores(mlir::Value value) const;
  /// Scores that are their product, scaled, and what is known to be small: no mask, which may hide
  /// by a number of any size.
  bool isUnmasked(mlir::Value scores) const;
  bool isMultiplied(mlir::Value value, bool two = false, int depth = 0);
  bool meetsMaximum(mlir::Value value, unsigned lane);
  std::optional<unsigned> laneOfScores(mlir::Value base, unsigned lane);
  bool isAddedToScores(mlir::Value value);

  // FormViews.cpp: through reshapes, slices, transpositions; uses of a value.
  /// `copied`: stepped through although it is stored by itself.
  mlir::FailureOr<Resolved> resolve(Attempt &attempt, mlir::Value value, Point index,
                                    mlir::Operation *copied = nullptr);
  bool stepView(Attempt &attempt, mlir::Operation *op, Point &index, mlir::Value &source);
  bool isView(mlir::Operation *op) const;
  mlir::Value baseOf(mlir::Value value) const;
  void collectUsers(mlir::Value value, llvm::SetVector<mlir::Operation *> &users);
  std::optional<unsigned> laneBesideMaximum(mlir::linalg::LinalgOp op, unsigned dim);
  unsigned demand(mlir::Value base); ///< consumers that would each have to compute the value
  mlir::Value inputBehind(mlir::Value value) const;
  struct LaneChoice {
    unsigned dim;
    bool hasReason; ///< an operation below wants it, it is not just the innermost one
  };
  unsigned preferredLane(mlir::Value base);
  LaneChoice chooseLane(mlir::Value base);
  LaneChoice chooseLaneAnew(mlir::Value base);
  /// Notes a place of a value. What lanes were chosen by another guess of its lanes is forgotten.
  void noteStored(mlir::Value value, const Stored &place);
  /// The view is stored as it shows, or no longer.
  void setCopied(mlir::Operation *view, bool isCopied = true);
  std::optional<LaneChoice> shownLane(mlir::Value value, bool orPart = false, bool isDealt = false);
  bool isOnlyWeighed(mlir::Value value) const;
  void findSlicePoints();
  void findStoredViews();

  // JoinedBeside.cpp: what is joined beside scores.
  void findJoinedBeside();
  std::optional<unsigned> laneBesideJoined(mlir::Value base, unsigned lane);
  bool isBesideScores(mlir::Value value, int depth = 0);
  bool cutsRows(mlir::tensor::CollapseShapeOp view);
  std::optional<bool> cutsRows(Attempt &attempt, mlir::Value value, const Point &index,
                               const Linear &rows, mlir::Operation *copied, int depth = 0);

  // FormParts.cpp: tensors that sums of products move without a change.
  /// Tensors whose sum, each times its factor, is the tensor, or its bits as a number.
  struct Parts {
    llvm::SmallVector<std::pair<unsigned, float>, 3> terms; ///< tensor, factor
    bool areBits = false;
    std::optional<float> nan = std::nullopt; ///< what stands for NaN, beyond all other elements
  };
  /// To multiply by 0 and 1 and add up: none of them is infinite or NaN. Nothing for types that the
  /// MXM does not take.
  std::optional<Parts> partsToSelect(unsigned tensor);
  /// To add up with zeros: tensors whose sum is this one.
  llvm::SmallVector<unsigned, 3> partsToSum(unsigned tensor);
  llvm::SmallVector<unsigned, 3> threeParts(unsigned tensor);
  static std::array<unsigned, kAllParts> inThree(KernelBuilder &build, unsigned rest,
                                                 bool unbounded);
  /// To multiply as `type`: the tensor, or bf16 parts of fp32; none if neither is possible.
  llvm::SmallVector<unsigned, 3> partsToMultiply(unsigned tensor, ElementType type);
  Scalar joined(KernelBuilder &build, const Parts &parts, ElementType type);
  void storeJoined(KernelBuilder &build, const Parts &parts, const Access &to);
  /// Remembers that the tensor may hold infinities or NaN if the value may.
  void noteRange(unsigned tensor, mlir::Value value);

  // FormTurned.cpp: values made with other lanes, then turned.
  mlir::FailureOr<Stored> storePreferred(mlir::Value base, unsigned lane);
  mlir::FailureOr<Stored> storeTransposed(mlir::Value base, Stored source, unsigned lane);
  bool holdsWeights(mlir::Value base);
  bool storeTurned(mlir::Value value, unsigned lane);
  static bool turnsAfterwards(mlir::Value part, mlir::Value base, unsigned lane);
  int64_t passesAgain(mlir::Value base);
  bool isTurnedSooner(mlir::Value base, Stored known, unsigned lane);
  std::optional<unsigned> laneOfSum(mlir::Value base, unsigned lane);
  /// Of a value that maps make of a product with constants: along which dimension its channels lie.
  struct ChannelsOf {
    mlir::linalg::LinalgOp product;
    bool hasMaps = false;
    std::optional<unsigned> dim; ///< of the value, that channels lie along one by one
    int64_t count = 1;           ///< channels that the value has of the product
  };
  std::optional<ChannelsOf> channelsOf(mlir::Value base);
  std::optional<ChannelsOf> channelsOf(Attempt &attempt, mlir::Value base, const Point &point);
  std::optional<unsigned> laneBeforeTurning(mlir::Value base, unsigned lane);
  std::optional<unsigned> laneBehindMaps(mlir::Value base, unsigned lane);
  std::optional<Resolved> storedBehindMaps(Attempt &attempt, mlir::Value value, Point index);
  static constexpr int64_t kShort = 8; ///< to a vector: of a fifth of one, 64 lanes, it was no gain
  /// Scores, the dimension along which the maxima of their rows lie, and sums beside those.
  struct Maxima {
    mlir::Value scores, greatest;
    unsigned lane;
    llvm::SmallVector<mlir::Value, 1> sums;
  };
  std::optional<Maxima> maximaBelow(mlir::Value base, unsigned lane);
  mlir::FailureOr<Stored> storeAlongMaxima(mlir::Value base, unsigned lane);

  // FormSelect.cpp: lanes brought into place.
  std::optional<unsigned> selectLanes(const LoopSpace &space, unsigned tensor, int64_t stride,
                                      int64_t extent, const Linear &rest, std::optional<float> pad,
                                      bool isInstalled);
  unsigned selectInput(const LoopSpace &space, unsigned tensor, int64_t stride, int64_t extent,
                       const Linear &rest, float pad);
  static void readWholeSteps(const LoopSpace &space, int64_t width, Linear &begin, int64_t &span,
                             llvm::MutableArrayRef<int64_t> lanes);
  unsigned emitSelection(const LoopSpace &space, unsigned tensor, Linear begin, int64_t span,
                         llvm::SmallVector<int64_t> lanes, const Parts &parts,
                         std::vector<int64_t> shape, std::optional<float> pad);
  std::optional<unsigned> permuteLanes(const Attempt &attempt, unsigned tensor, const Linear &index,
                                       Linear &rest, size_t leastLoops);
  unsigned selection(llvm::ArrayRef<int64_t> lanes, int64_t span, ElementType type, float factor);
  unsigned selection(int64_t extent, ElementType type, float factor = 1);
  bool hasShortRuns(const Attempt &attempt) const;
  static bool isAlong(const Attempt &attempt, const Linear &index);
  mlir::FailureOr<Scalar> loadRepeated(Attempt &attempt, const Resolved &at);
  mlir::FailureOr<Scalar> loadCopy(Attempt &attempt, unsigned copy, const Resolved &at,
                                   unsigned lane, const Linear &rest, const Linear &along);
  mlir::FailureOr<Scalar> loadSelected(Attempt &attempt, const Resolved &at, unsigned lane);
  mlir::FailureOr<Scalar> loadShifted(Attempt &attempt, const Resolved &at, unsigned lane);
  void alignOperand(Attempt &attempt, Access &access);

  // FormPull.cpp: scalars of values.
  mlir::FailureOr<Scalar> pull(Attempt &attempt, mlir::Value value, const Point &index);
  mlir::FailureOr<Scalar> pullBase(Attempt &attempt, const Resolved &at);
  mlir::FailureOr<Scalar> pullConstant(Attempt &attempt, const Resolved &at);
  mlir::FailureOr<Access> layOutConstant(Attempt &attempt, const Resolved &at, ElementType type);
  mlir::FailureOr<Scalar> load(Attempt &attempt, Stored stored, const Resolved &at);
  Scalar loadScalar(KernelBuilder &build, const Access &from, mlir::Type tensor);
  mlir::FailureOr<Scalar> loadBroadcast(Attempt &attempt, const Resolved &at);
  mlir::FailureOr<Scalar> compute(Attempt &attempt, mlir::Value value, const Point &index);
  mlir::FailureOr<Scalar> computeMap(Attempt &attempt, mlir::linalg::LinalgOp op,
                                     const Point &index);
  mlir::FailureOr<Access> access(Attempt &attempt, Stored stored, const Resolved &at);
  bool leaves(const Attempt &attempt, const Resolved &at, unsigned lane) const;
  bool keepsLanes(const Attempt &attempt, const Access &access) const;
  bool repeatsSum(const Attempt &attempt, mlir::Value base, const Point &index);
  bool runsLong(const Attempt &attempt) const;
  bool isMadeByProduct(mlir::Value base, int depth = 0);
  bool canInline(Attempt &attempt, mlir::Value base, const Point &index);
  bool coversRoot(Attempt &attempt, const Point &index) const;

  // FormLookup.cpp: rows of constant tables at indices that are data.
  bool isLookup(mlir::Operation *op);
  unsigned indexTensor(mlir::BlockArgument argument, int64_t extent);
  mlir::FailureOr<Scalar> computeLookup(Attempt &attempt, mlir::linalg::LinalgOp op,
                                        const Point &index);

  // FormBody.cpp: scalar operations.
  using Values = llvm::DenseMap<mlir::Value, Scalar>;
  mlir::FailureOr<Scalar> bodyValue(Attempt &attempt, mlir::Value value, Values &known);
  mlir::FailureOr<Scalar> bodyOp(Attempt &attempt, mlir::Operation *op,
                                 llvm::ArrayRef<Scalar> args);
  bool isBelowMaximum(mlir::Operation *op) const;
  static bool isFormableBody(mlir::Block &body);

  // FormContraction.cpp, FormReduction.cpp
  mlir::FailureOr<Scalar> computeContraction(Attempt &attempt, mlir::linalg::LinalgOp op,
                                             const Point &index);
  mlir::FailureOr<Scalar> computeOuterProduct(Attempt &attempt, mlir::linalg::LinalgOp op,
                                              const Point &index);
  mlir::FailureOr<Access> contractionOperand(Attempt &attempt, const Resolved &at, ElementType type,
                                             std::optional<llvm::SmallVector<unsigned>> &laneLoops);
  struct Operands { ///< of a contraction, where it streams a and installs w
    Point at[2];
    unsigned w = 1;
    int64_t inside = 1, all = 1; ///< points of reduced loops that were cut, and before
  };
  mlir::FailureOr<Operands> contractionPoints(Attempt &attempt, mlir::linalg::LinalgOp op,
                                              const Point &index, bool cutsPadding);
  mlir::FailureOr<Misfit> addTerm(Attempt &attempt, const Operands &operands,
                                  const Resolved (&at)[2], ElementType type);
  /// Whether one operand keeps fp32 and the other is constants that bf16 holds.
  bool multipliesInParts(mlir::linalg::LinalgOp op);
  mlir::LogicalResult addProduct(Attempt &attempt, const Operands &operands,
                                 std::array<mlir::Value, 2> values, ElementType type);
  mlir::FailureOr<Scalar> computeReduction(Attempt &attempt, mlir::linalg::LinalgOp op,
                                           const Point &index);
  std::optional<unsigned> runningOfSum(const Attempt &attempt, mlir::linalg::LinalgOp op);
  mlir::FailureOr<Scalar> sumOverLanes(Attempt &attempt, mlir::linalg::LinalgOp op,
                                       const Point &index);
  /// `isRounded`: one alone.
  mlir::FailureOr<llvm::SmallVector<unsigned, 2>> storeTerms(mlir::Value key,
                                                             llvm::ArrayRef<int64_t> shape,
                                                             unsigned lane, bool isRounded,
                                                             Compute compute);
  mlir::FailureOr<unsigned> pullBits(Attempt &attempt, mlir::Value value, const Point &index);
  bool reachesInside(Attempt &attempt, mlir::linalg::LinalgOp op, Point dims);
  bool isNonNegative(mlir::Value value) const;
  /// The dimension of what is reduced that lies along lanes.
  unsigned lanesOfReduced(mlir::linalg::LinalgOp op);
  bool reducesLanes(mlir::linalg::LinalgOp op);
  bool runsOverRows(mlir::linalg::LinalgOp op); ///< one after another, not as a tree
  bool slidesBesideLanes(Attempt &attempt, mlir::linalg::LinalgOp op, const Point &dims);
  mlir::Value reducedInput(mlir::linalg::LinalgOp op) const;

  // FormExtreme.cpp: the greatest and the least lane of a row.
  unsigned foldLanes(unsigned tensor, int64_t size, int64_t parts, AluOp combine);
  std::optional<unsigned> extremeOfFew(unsigned tensor, int64_t first, int64_t count,
                                       int64_t extent, AluOp combine);
  std::optional<unsigned> extremeByTurns(unsigned tensor, AluOp combine);
  unsigned widen(unsigned tensor, std::optional<unsigned> other, int64_t extent, AluOp combine);
  mlir::FailureOr<Scalar> extremeOverLanes(Attempt &attempt, mlir::linalg::LinalgOp op,
                                           const Point &index);

  // FormQuantized.cpp: integer kernels of quantised graphs (--precision int8).
  bool isQuantized(mlir::linalg::LinalgOp contraction);
  llvm::ArrayRef<mlir::Value> partsOfConstant(mlir::linalg::LinalgOp dequantize);
  bool isRoundedOnce(mlir::Value quantized);
  bool quantizesInput(mlir::linalg::LinalgOp op);
  mlir::FailureOr<Stored> storeQuantizedInput(mlir::Value base, unsigned lane);
  mlir::FailureOr<Scalar> computeIntegerContraction(Attempt &attempt, mlir::linalg::LinalgOp op,
                                                    const Point &index, Rescaling to,
                                                    const ChannelBias &bias);

  // FormScaled.cpp: maps between quantisers.
  mlir::FailureOr<Scalar> computeQuantize(Attempt &attempt, mlir::linalg::LinalgOp op,
                                          const Point &index);
  mlir::FailureOr<Scalar> pullScaled(Attempt &attempt, mlir::Value value, const Point &index,
                                     Rescaling to);
  mlir::FailureOr<Scalar> bodyScaled(Attempt &attempt, mlir::linalg::LinalgOp op, mlir::Value value,
                                     const Point &index, Rescaling to);
  /// A real as factor * (node + offset): of what is dequantised, the node is its integers.
  struct Unscaled {
    unsigned node = 0;
    double factor = 1, offset = 0;
  };
  std::optional<double> constantIn(mlir::linalg::LinalgOp op, mlir::Value value);
  bool takesFactor(Attempt &attempt, mlir::linalg::LinalgOp op, mlir::Value value,
                   const Point &index);
  mlir::FailureOr<Unscaled> bodyUnscaled(Attempt &attempt, mlir::linalg::LinalgOp op,
                                         mlir::Value value, const Point &index);
  mlir::FailureOr<Scalar> affineScaled(Attempt &attempt, mlir::linalg::LinalgOp op,
                                       mlir::Operation *sum, const Point &index, Rescaling to);
  mlir::FailureOr<Scalar> sumScaled(Attempt &attempt, mlir::linalg::LinalgOp op,
                                    mlir::Operation *sum, const Point &index, Rescaling to);
  mlir::FailureOr<Linear> elementOf(Attempt &attempt, mlir::linalg::LinalgOp op, unsigned number,
                                    const Point &index);
  unsigned channelOperand(Attempt &attempt, llvm::ArrayRef<double> values, const Linear &channel,
                          llvm::StringRef name);

  // FormHost.cpp
  mlir::FailureOr<Stored> storeByHost(mlir::Value base, unsigned lane);
  bool isFormable(mlir::Operation *op);

  mlir::FailureOr<ElementType> storedType(mlir::Type type) const;
  mlir::FailureOr<ElementType> memoryType(mlir::Value value);
  bool isScale(mlir::Value value);
  bool isCompared(mlir::Value value, int depth = 0);
  ElementType activation() const { return options.activation(); }
  unsigned opCount(const Attempt &attempt) const;
  /// Those that the node needs.
  unsigned opCountOf(const Attempt &attempt, unsigned node) const;

  mlir::func::FuncOp function;
  llvm::DenseMap<mlir::Operation *, llvm::SmallVector<mlir::Value, 1>> constantParts;
  PrecisionOptions options;
  Ranges ranges;
  KernelGraph &graph;
  std::map<unsigned, Parts> bytes;          ///< of such tensors of 16 bits
  std::map<unsigned, float> markedNan;      ///< tensors in which a number stands for NaN
  llvm::DenseSet<mlir::Value> joinedBeside; ///< scores
  llvm::DenseSet<mlir::Value> wide;         ///< values that lie in fp32 as they are computed
  std::map<unsigned, llvm::SmallVector<unsigned, 3>> sums;       ///< of tensors of fp32
  llvm::DenseMap<mlir::Value, llvm::SmallVector<Stored>> stored; ///< noteStored() adds to it
  /// What chooseLane() said, so that a long chain of maps is not walked down for each of them.
  llvm::DenseMap<mlir::Value, LaneChoice> laneChoices;
  std::map<std::tuple<void *, int64_t, unsigned>, unsigned> constants, broadcasts;
  std::map<std::tuple<void *, int64_t, std::vector<int64_t>>, unsigned>
      rowsOfValues;                     ///< by the lanes of each, begin and size of the box
  std::vector<unsigned> movedConstants; ///< tensors of layOutConstant
  std::map<void *, llvm::SmallVector<unsigned, 2>> termsOf;
  std::map<std::pair<unsigned, int64_t>, unsigned> indexTensors; ///< by argument, rows of the table
  llvm::DenseSet<mlir::Value> hostTables; ///< that look-ups leave to the host
  std::map<std::vector<int64_t>, unsigned> splats, selections;
  std::map<std::tuple<unsigned, int64_t, int64_t, size_t>, llvm::SmallVector<unsigned, 3>>
      diagonals; ///< first lane, block, parts
  std::map<std::pair<unsigned, AluOp>, std::optional<unsigned>> extremes; ///< none: not by turns
  std::map<std::pair<unsigned, AluOp>, unsigned> folded;
  std::map<std::tuple<unsigned, int64_t, AluOp>, unsigned> copiesInLanes;
  std::map<std::tuple<unsigned, int64_t, int64_t, AluOp>, std::optional<unsigned>> extremesOfFew;
  llvm::DenseSet<mlir::Operation *> slicePoints; ///< slices that are stored each by itself
  llvm::DenseSet<mlir::Operation *> copies;      ///< other views that are
  llvm::DenseSet<mlir::Operation *> ofHost;      ///< those of them that the host puts together
  llvm::DenseSet<mlir::Value> hosted;
  llvm::DenseSet<mlir::Value> noted;     ///< constants of which a remark says something
  llvm::DenseSet<unsigned> takenOutputs; ///< results that somebody writes
  unsigned hostFunctions = 0;            ///< how many have a name
  llvm::StringMap<llvm::SmallVector<mlir::Operation *>> hostContractions; ///< by function
  std::optional<Ragged> ragged; ///< of the last kernel that could not be formed
  llvm::DenseSet<std::pair<mlir::Value, unsigned>>
      storing;            ///< values, by lane, as `store` makes them
  bool isTooDeep = false; ///< the recursion ended for lack of stack: nothing more is tried
};

/// result[i..., l] = table[indices[i...], l]: a map whose body reads a constant where its input
/// says.
struct LookupForm {
  mlir::Value table, indices;
  unsigned dim = 0, lane = 0;        ///< of the table: looked up; along the lanes
  llvm::SmallVector<unsigned> loops; ///< per dimension of the table, but `dim`: the map's loop
};
/// `x < 0 ? x + extent : x`: returns x.
mlir::Value wrappedIndex(mlir::Value value, int64_t extent);

/// Nothing where rows are not of one dimension, or the body does something else.
std::optional<LookupForm> lookupOf(mlir::Operation *op);

/// The ONNX node that the value came from.
std::string nameOf(mlir::Value value);

/// The view that joins parts to a dimension which `expand` cuts elsewhere (windows of 7 in 8 rows
/// become a grid of 8 by 7): no index of one is a multiple of the other's.
mlir::Operation *joinedOtherwise(mlir::tensor::ExpandShapeOp expand);

/// Whether somebody asked for fp32 in memory.
bool isKept(mlir::Value value);

/// What a reduction's body does.
enum class Combiner { None, Sum, SumOfProducts, Max, Min };
Combiner combinerOf(mlir::linalg::LinalgOp op);
AluOp aluOf(Combiner combiner, bool isFloat);
/// The value behind reshapes that give or take dimensions of one element.
mlir::Value behindUnitDims(mlir::Value value);
/// Is the value elements of arguments, and constants, in another order?
bool isMoved(mlir::Value value);
/// Does the map take the greatest, or the least, of elements along `dim` of its result?
bool comparesAlong(mlir::linalg::LinalgOp map, unsigned dim);
/// The longest dimension, if it fills vectors of `lanes`, and elements along `dim` are few of one.
std::optional<unsigned> longestBeside(llvm::ArrayRef<int64_t> shape, unsigned dim, int64_t lanes);
/// Does a chain of maps make the value of what is compared so, where a dimension beside is long?
bool isComparedAlong(mlir::Value value, unsigned dim, int64_t lanes);
/// The dimensions of the input that reduced loops walk along.
llvm::SmallVector<unsigned> reducedDims(mlir::linalg::LinalgOp op);
/// Lanes of each part of a row that is done part by part: at least half a vector, all alike if that
/// can be, since lanes that were written in parts are cut where those end.
int64_t partOf(int64_t width, int64_t vector);
/// The value that is combined with the accumulator (for products: null).
mlir::Value combinedValue(mlir::linalg::LinalgOp op);
/// Maps, reductions and contractions; everything with one result of static shape.
mlir::linalg::LinalgOp formOf(mlir::Value value);
bool isMap(mlir::linalg::LinalgOp op);
/// On an operation: the host computes it.
inline constexpr llvm::StringLiteral kOnHost = "millrace.host";
/// On a contraction: it is none of the model's, and its multiplications do not count.
inline constexpr llvm::StringLiteral kUncounted = "millrace.uncounted";
/// On a map: its inputs from this number on are scales.
inline constexpr llvm::StringLiteral kScales = "millrace.scales";
/// "quantize" or "dequantize" for the maps that import tags so, else empty.
llvm::StringRef quantKind(mlir::Operation *op);
bool isContraction(mlir::linalg::LinalgOp op);
/// A sum of products over nothing but a window, of channels that keep to themselves: no lanes of
/// one operand meet all of the other's, so that each lane sums its own products in the VXM.
bool isDepthwise(mlir::linalg::LinalgOp op);
bool isConstantValue(mlir::Value value);
/// A constant, or, perhaps behind views, what dequantises one.
bool areWeights(mlir::Value value);
/// fp32 is multiplied by such constants in parts of that type, with no loss.
bool areExactInBf16(mlir::Value constant);
/// The operand is padded with what does not change the reduction.
bool isNeutralPadding(mlir::linalg::LinalgOp op, unsigned operand);
/// First value and count of those of a reduced loop that meet the operand and not only its padding:
/// where a sum is padded with zeros, a maximum with the lowest, and the window does not move, the
/// loop is cut down to them. `dims`: the loops of `op`.
std::pair<int64_t, int64_t> insidePadding(LoopSpace &space, mlir::linalg::LinalgOp op,
                                          unsigned operand, const Point &dims, unsigned loop);
/// The dimensions of more than one element.
llvm::SmallVector<unsigned> dimsBeside1(mlir::Value value);
/// Narrows as a model of that type does: too large a magnitude becomes infinity.
AluOp overflowing(ElementType type);
/// The shape of a tensor for the value: rank 0 becomes {1}.
std::vector<int64_t> tensorShape(mlir::Value value);

} // namespace millrace::forms
