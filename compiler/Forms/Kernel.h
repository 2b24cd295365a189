// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The kernel graph: a model as the grid sees it. Every kernel is one affine loop nest of one shape,
//
//   for all parallel loops:  result = E( sum over contraction loops of a * w,  operands... )
//
// optionally reduced over running loops. Convolution, matmul, pooling, softmax parts, normalisation
// parts, residual chains are all this one form; layouts, tiles and cycles are not decided here.
// Plain C++: the planner and scheduler need no MLIR. compiler/Dialect/Spatial is its textual form.
#pragma once

#include "arch/operations/AluOp.h"
#include "arch/spec/StepDevice.h"
#include "arch/spec/Types.h"

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace millrace::forms {

enum class TensorRole : uint8_t { Input, Constant, Intermediate, Output };

/// How the host fills an input that is not simply its own tensor in another order (R15): one loop
/// adds `step` to index `dim` of the grid's tensor and `hostStep` to index `hostDim` of the host's.
/// Host indices outside its shape give `hostFill`.
struct HostLoop {
  int64_t extent = 1;
  unsigned dim = 0;
  int64_t step = 1;
  unsigned hostDim = 0;
  int64_t hostStep = 1;
  bool operator==(const HostLoop &) const = default;
};

/// A tensor in MEM. One dimension lies along the lanes, the others are rows (row major in their
/// order).
struct Tensor {
  std::string name;
  std::vector<int64_t> shape;           ///< logical; rank 0 is not used (scalars are shape {1})
  ElementType type = ElementType::Fp16; ///< as stored
  unsigned laneDim = 0;
  TensorRole role = TensorRole::Intermediate;
  std::vector<uint8_t> data; ///< Constant: row major in `type`; one element if `splat`
  bool splat = false;
  /// It may hold infinities or NaN, of which a product with 0 would make NaN (tensors of whole rows
  /// of NaN aside).
  bool unbounded = false;
  /// All lanes of a row hold one value, in a whole vector: it meets the lanes of others wherever
  /// these begin in theirs.
  bool uniform = false;
  std::string value; ///< the ONNX value whose elements, all of them, it was formed to hold, by name
  std::string hostName, hostType; ///< Input, Output: ONNX value name and element type
  std::vector<int64_t>
      hostShape; ///< Input, Output: ONNX shape; same row-major element order as `shape`
  std::vector<HostLoop> hostLoops; ///< empty: same row-major element order as `shape`
  std::vector<int64_t> hostStart;  ///< with hostLoops: first index of every host dimension
  double hostScale = 0; ///< Int8 Input: if not 0, the host stores round(x / hostScale) + hostZero,
                        ///< ties to even, clamped
  int64_t hostZero = 0;
  uint32_t hostFill = 0;  ///< with hostLoops: raw bits in `type`
  int64_t hostExtent = 0; ///< Int32 Input: if not 0, indices of so many rows: the host counts
                          ///< negative ones from the end and refuses those outside
  bool operator==(const Tensor &) const = default;
};

/// One dimension's index as an affine form of the kernel's loops: offset + sum of coefficient *
/// loop.
struct AffineIndex {
  int64_t offset = 0;
  std::vector<std::pair<unsigned, int64_t>> terms; ///< (loop, coefficient), coefficient != 0
  bool operator==(const AffineIndex &) const = default;
};

/// How far one step of `loop` moves the index, in elements; 0 if it does not.
int64_t coefficient(const AffineIndex &index, unsigned loop);

/// An index that is data: what `tensor` (Int32) holds at `index` is added to the access's own index
/// of dimension `dim`, which is a number then. On the grid: a Gather.
struct Lookup {
  unsigned dim = 0; ///< a row dimension
  unsigned tensor = 0;
  std::vector<AffineIndex> index;
  bool operator==(const Lookup &) const = default;
};

/// An operand's address. Indices outside the shape read `pad` (raw bits of the tensor's type).
struct Access {
  unsigned tensor = 0;
  std::vector<AffineIndex> index; ///< one per dimension of the tensor
  uint32_t pad = 0;
  std::optional<Lookup> lookup = std::nullopt; ///< of epilogue operands alone
  bool operator==(const Access &) const = default;
};

enum class LoopKind : uint8_t {
  Parallel,   ///< an index of the results
  Running,    ///< reduced by a Reduce node, one row after another in the VXM
  Contracted, ///< summed in the MXM; appears in both a and w of a term
};
struct Loop {
  int64_t extent = 1;
  LoopKind kind = LoopKind::Parallel;
  bool operator==(const Loop &) const = default;
};

/// acc += a * w over the contracted loops that a and w use. a streams through the MXM, w is
/// installed: the lanes of both are the contracted index, the lanes of the result are a parallel
/// loop that indexes w and not a. Types of a and w are equal (an MXM format). A loop may index both
/// (a batch).
struct Term {
  Access a, w;
  int64_t macs = 0; ///< MACs of the model that this term does, unpadded; 0 for helpers such as sums
                    ///< by a ones matrix
  bool operator==(const Term &) const = default;
};

/// One scalar operation of the epilogue. Values are 32-bit lanes; an operand of a narrow type is
/// first converted by an explicit node (semantics in arch/operations/AluOp.def).
struct Node {
  enum class Kind : uint8_t {
    Accumulator, ///< the contraction's sum: fp32 bits, or int32 for int8 operands
    Operand,     ///< operands[index], raw bits zero-extended
    Immediate,   ///< bits
    Op,          ///< op(args...)
    Reduce,      ///< op reduced over all running loops of args[0]; nodes that use it run once per
                 ///< parallel point
  };
  Kind kind = Kind::Op;
  unsigned index = 0;
  uint32_t bits = 0;
  AluOp op{};
  std::vector<unsigned> args; ///< earlier nodes
  bool operator==(const Node &) const = default;
};

/// A stored result: the node's low bytes as the tensor's type. The access uses parallel loops only,
/// each point of the tensor is written by one kernel; several kernels may write disjoint parts of
/// one tensor (concatenation).
struct Result {
  unsigned node = 0;
  Access access;
  bool operator==(const Result &) const = default;
};

struct Kernel {
  std::string name;       ///< for people
  std::string provenance; ///< ONNX node(s)
  std::vector<Loop> loops;
  std::vector<Term> terms;      ///< empty: a map, window or row reduction
  std::vector<Access> operands; ///< over parallel and running loops
  std::vector<Node> nodes;
  std::vector<Result> results;
  bool operator==(const Kernel &) const = default;
};

/// A function on the host between kernels (what no form covers). Named in the report.
struct HostCall {
  std::string name, function; ///< ONNX node; symbol in KernelGraph::hostModule
  StepDevice device = StepDevice::Host;
  std::vector<unsigned> inputs, outputs; ///< tensors
  bool operator==(const HostCall &) const = default;
};

/// Kernels and host calls in an executable order.
struct KernelGraph {
  std::string name;
  std::vector<Tensor> tensors;
  std::vector<Kernel> kernels;
  std::vector<HostCall> hostCalls;
  std::vector<std::pair<bool, unsigned>> order; ///< (isHostCall, index)
  std::string hostModule;                       ///< MLIR text of the host functions
  int64_t macs() const;                         ///< sum over terms
  /// Empty, or what is wrong: types, ranks, loops, undefined or doubly written points, order.
  std::string verify() const;
  bool operator==(const KernelGraph &) const = default;
};

} // namespace millrace::forms
