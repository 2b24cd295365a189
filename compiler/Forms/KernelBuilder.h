// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Small helpers to read and to build kernels.
#pragma once

#include "compiler/Forms/Kernel.h"

#include <cstring>
#include <functional>
#include <initializer_list>
#include <optional>

namespace millrace::forms {

int64_t elementCount(const Tensor &tensor);
/// The loop moves the access or the index that it looks up.
bool usesLoop(const Access &access, unsigned loop);

/// The loop, if the index is that loop of `kind`, whole (`extent` steps) and from 0, and nothing
/// else.
std::optional<unsigned> wholeLoop(const Kernel &kernel, const AffineIndex &index, int64_t extent,
                                  LoopKind kind);

/// The loop that moves the index, if it is one; loops of a single step move nothing.
std::optional<unsigned> onlyLoop(const Kernel &kernel, const AffineIndex &index);

/// The least and the greatest value of the index over all steps of the loops.
std::pair<int64_t, int64_t> rangeOf(const Kernel &kernel, const AffineIndex &index);
/// Does the kernel read none of the tensor's padding there?
bool staysInside(const KernelGraph &graph, const Kernel &kernel, const Access &access);

/// Whether a reduction gives the same where it meets a value twice.
bool isIdempotent(AluOp op);

/// Steps of a loop in `count` blocks of `steps` each, `apart` steps from one to the next.
struct Blocks {
  int64_t count = 1, steps = 1, apart = 1;
};

/// Cuts a loop in two: it steps through the blocks, and a loop behind all others, which is
/// returned, through the steps of one.
unsigned splitLoop(Kernel &kernel, unsigned loop, const Blocks &blocks);

/// The longest loop of `kind` that moves the index by 1 a step: of lanes, the loop along them.
std::optional<unsigned> unitLoop(const Kernel &kernel, const AffineIndex &index, LoopKind kind);

/// Per node: how many arguments and results it is.
std::vector<unsigned> usesOfNodes(const Kernel &kernel);

/// Per node: do the results need it? With node `given` known, what only that needs does not count.
std::vector<bool> neededNodes(const Kernel &kernel, std::optional<unsigned> given = std::nullopt);

/// The node and all that it is computed of, in their order.
std::vector<unsigned> nodesOf(const Kernel &kernel, unsigned node);

/// Applies `op` to node `at`: whoever uses that uses the result, node `at` + 1, instead. Nodes
/// behind it move by one.
void applyTo(Kernel &kernel, unsigned at, AluOp op);

/// Some operand's index is data.
bool looksUp(const Kernel &kernel);

/// Row-major element number of the point (one value per loop), or -1 outside the tensor.
int64_t linearOffset(const Tensor &tensor, const Access &access, const std::vector<int64_t> &point);

/// Visits the points of `loops` in row-major order (other loops are 0) until `visit` returns false.
void forEachPoint(const Kernel &kernel, const std::vector<unsigned> &loops,
                  const std::function<bool(const std::vector<int64_t> &)> &visit);

inline uint32_t bitsOf(float value) {
  uint32_t bits;
  std::memcpy(&bits, &value, sizeof bits);
  return bits;
}

/// The index `offset + loop * coefficient`; an extent of 1 still names its loop.
inline AffineIndex at(unsigned loop, int64_t coefficient = 1, int64_t offset = 0) {
  return {offset, {{loop, coefficient}}};
}
inline AffineIndex fixed(int64_t offset) { return {offset, {}}; }
/// Sum of two indices, for windows: `window(y, stride, ky, dilation, -pad)`.
inline AffineIndex window(unsigned loop, int64_t stride, unsigned tap, int64_t dilation,
                          int64_t offset) {
  return {offset, {{loop, stride}, {tap, dilation}}};
}

/// The operation that widens a stored value to fp32, or narrows fp32 to the type; Pass for fp32.
/// What is finite is stored as something finite: a sum with zeros, or a product with them, is as
/// the model has it wherever the model's value is no infinity.
AluOp widenToF32(ElementType type);
AluOp narrowFromF32(ElementType type);

/// Bits of `value` rounded as the type stores it.
uint32_t encode(ElementType type, float value);
float decode(ElementType type, uint32_t bits);

/// Data of a constant: row major, each value rounded to nearest even.
std::vector<uint8_t> encodeAll(ElementType type, const std::vector<float> &values);

/// Builds one kernel node by node. Equal nodes are shared.
class KernelBuilder {
public:
  explicit KernelBuilder(KernelGraph &graph) : graph(graph) {}
  /// Begins with the name, the provenance and the loops of another kernel.
  KernelBuilder(KernelGraph &graph, const Kernel &like) : graph(graph) {
    building.name = like.name;
    building.provenance = like.provenance;
    building.loops = like.loops;
  }

  unsigned loop(int64_t extent, LoopKind kind = LoopKind::Parallel);
  void term(Access a, Access w, int64_t macs);

  unsigned accumulator();
  /// The operand's raw bits.
  unsigned operand(Access access);
  /// The operand widened to fp32.
  unsigned load(Access access);
  unsigned immediate(uint32_t bits);
  unsigned constant(float value) { return immediate(bitsOf(value)); }
  unsigned op(AluOp op, std::initializer_list<unsigned> args) {
    return this->op(op, std::vector<unsigned>(args));
  }
  /// Computed here where all arguments are immediates. Of two different ones, one goes through an
  /// ALU of its own.
  unsigned op(AluOp op, std::vector<unsigned> args);
  unsigned reduce(AluOp op, unsigned node);
  /// Computes node `node` of `kernel` of what it reads where `place` says instead. No reduction or
  /// contraction comes before it.
  unsigned computeAt(const Kernel &kernel, unsigned node,
                     const std::function<Access(const Access &)> &place);
  /// Computes the results of `kernel`, whose node `given` is node `value` here, and stores them as
  /// it does.
  void continueFrom(const Kernel &kernel, unsigned given, unsigned value);
  /// Stores an fp32 node, narrowed to the tensor's type.
  void store(unsigned node, Access access);
  /// Stores the low bytes of a node as they are.
  void storeBits(unsigned node, Access access);
  /// Stores the accumulator, the sum of a product with ones and zeros of a tensor of that type.
  void storeMoved(Access access);

  Kernel &kernel() { return building; }
  /// Appends the kernel to the graph, last in order. Returns its index.
  unsigned finish(std::string name, std::string provenance = {});

private:
  unsigned add(Node node);

  KernelGraph &graph;
  Kernel building;
};

/// Appends a tensor and returns its index.
unsigned addTensor(KernelGraph &graph, std::string name, std::vector<int64_t> shape,
                   ElementType type, unsigned laneDim, TensorRole role = TensorRole::Intermediate);
/// Appends a constant with `values` rounded to its type.
unsigned addConstant(KernelGraph &graph, std::string name, std::vector<int64_t> shape,
                     ElementType type, unsigned laneDim, const std::vector<float> &values);
/// Appends a constant that is `value` everywhere.
unsigned addSplat(KernelGraph &graph, std::string name, std::vector<int64_t> shape,
                  ElementType type, unsigned laneDim, float value);

/// Every kernel, tensor and access in words, for people; constants by shape only.
std::string print(const KernelGraph &graph);

} // namespace millrace::forms
