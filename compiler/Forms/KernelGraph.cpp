// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "compiler/Forms/Kernel.h"
#include "compiler/Forms/KernelBuilder.h"
#include "compiler/Forms/Uses.h"
#include "compiler/Forms/WrittenPoints.h"

#include <algorithm>
#include <sstream>

namespace millrace::forms {

int64_t KernelGraph::macs() const {
  int64_t sum = 0;
  for (const Kernel &kernel : kernels)
    for (const Term &term : kernel.terms)
      sum += term.macs;
  return sum;
}

namespace {

/// Walks the graph in its order and keeps what is defined so far. Every check returns what is
/// wrong, or nothing.
class Verifier {
public:
  explicit Verifier(const KernelGraph &graph) : graph(graph) {}
  std::string run();

private:
  std::string checkTensor(const Tensor &tensor) const;
  std::string checkAccess(const Kernel &kernel, const Access &access, std::string_view what) const;
  std::string checkKinds(const Kernel &kernel, const Access &access, std::string_view what,
                         bool contracted, bool running) const;
  std::string checkLookup(const Kernel &kernel, const Access &access) const;
  std::string checkTerm(const Kernel &kernel, const Term &term) const;
  std::string checkNodes(const Kernel &kernel) const;
  std::string checkShape(const Kernel &kernel) const;
  std::string checkRunning(const Kernel &kernel) const;
  std::string checkReads(const Kernel &kernel) const;
  std::string checkRead(unsigned tensor, const std::string &reader) const;
  std::string mark(const Kernel &kernel, const Result &result);
  std::string markHost(const HostCall &call);
  void countWriters();

  const KernelGraph &graph;
  std::vector<WrittenPoints> written;   ///< by kernels, per tensor
  std::vector<unsigned> pendingWriters; ///< results and host outputs still to come
};

std::string Verifier::checkTensor(const Tensor &tensor) const {
  std::string at = "tensor '" + tensor.name + "': ";
  if (tensor.shape.empty() || tensor.laneDim >= tensor.shape.size())
    return at + "has rank " + std::to_string(tensor.shape.size()) +
           " and its lanes are dimension " + std::to_string(tensor.laneDim);
  for (int64_t extent : tensor.shape)
    if (extent < 1)
      return at + "has a dimension of " + std::to_string(extent);
  int64_t points = tensor.splat ? 1 : elementCount(tensor);
  size_t bytes = size_t(points) * byteWidth(tensor.type);
  if (tensor.role == TensorRole::Constant && tensor.data.size() != bytes)
    return at + "holds " + std::to_string(tensor.data.size()) + " bytes of data instead of " +
           std::to_string(bytes);
  if (tensor.role != TensorRole::Constant && !tensor.data.empty())
    return at + "has data but is no constant";
  if (tensor.hostExtent < 0 || (tensor.hostExtent && tensor.type != ElementType::Int32))
    return at + "holds indices of " + std::to_string(tensor.hostExtent) + " rows as " +
           nameOf(tensor.type) + "; they are int32, and their extent is positive";
  return {};
}

std::string Verifier::checkAccess(const Kernel &kernel, const Access &access,
                                  std::string_view what) const {
  std::string at = "kernel '" + kernel.name + "': " + std::string(what) + " ";
  if (access.tensor >= graph.tensors.size())
    return at + "names tensor " + std::to_string(access.tensor) + " of " +
           std::to_string(graph.tensors.size());
  const Tensor &tensor = graph.tensors[access.tensor];
  if (access.index.size() != tensor.shape.size())
    return at + "has " + std::to_string(access.index.size()) + " indices for '" + tensor.name +
           "' of rank " + std::to_string(tensor.shape.size());
  for (const AffineIndex &index : access.index)
    for (auto [loop, coefficient] : index.terms)
      if (loop >= kernel.loops.size() || coefficient == 0)
        return at + "uses loop " + std::to_string(loop) + " of " +
               std::to_string(kernel.loops.size()) + " with coefficient " +
               std::to_string(coefficient);
  return {};
}

std::string Verifier::checkKinds(const Kernel &kernel, const Access &access, std::string_view what,
                                 bool contracted, bool running) const {
  for (unsigned loop = 0; loop < kernel.loops.size(); ++loop) {
    LoopKind kind = kernel.loops[loop].kind;
    bool allowed = kind == LoopKind::Parallel || (kind == LoopKind::Contracted && contracted) ||
                   (kind == LoopKind::Running && running);
    if (!allowed && usesLoop(access, loop))
      return "kernel '" + kernel.name + "': " + std::string(what) + " may not use loop " +
             std::to_string(loop) + ", which is " +
             (kind == LoopKind::Running ? "running" : "contracted");
  }
  return {};
}

/// Only operands look indices up, in rows.
std::string Verifier::checkLookup(const Kernel &kernel, const Access &access) const {
  if (!access.lookup)
    return {};
  const Lookup &lookup = *access.lookup;
  const Tensor &table = graph.tensors[access.tensor];
  const std::string at = "kernel '" + kernel.name + "': the lookup in '" + table.name + "' ";
  if (lookup.dim >= table.shape.size() || lookup.dim == table.laneDim)
    return at + "is in dimension " + std::to_string(lookup.dim) + " of " +
           std::to_string(table.shape.size()) + ", whose lanes are dimension " +
           std::to_string(table.laneDim);
  if (!access.index[lookup.dim].terms.empty())
    return at + "adds to an index that loops move";
  const Access indices{lookup.tensor, lookup.index, 0};
  if (std::string error = checkAccess(kernel, indices, "lookup"); !error.empty())
    return error;
  if (graph.tensors[lookup.tensor].type != ElementType::Int32)
    return at + "takes its indices from '" + graph.tensors[lookup.tensor].name + "' of " +
           nameOf(graph.tensors[lookup.tensor].type) + " instead of int32";
  return checkKinds(kernel, indices, "lookup", false, true);
}

std::string Verifier::checkTerm(const Kernel &kernel, const Term &term) const {
  for (const Access *access : {&term.a, &term.w})
    if (std::string error = checkAccess(kernel, *access, "term"); !error.empty())
      return error;
  if (term.a.lookup || term.w.lookup)
    return "kernel '" + kernel.name + "': a term looks up indices, which only operands can";
  const Tensor &a = graph.tensors[term.a.tensor], &w = graph.tensors[term.w.tensor];
  std::string at = "kernel '" + kernel.name + "': term " + a.name + " * " + w.name + " ";
  if (a.type != w.type || a.type == ElementType::Fp32 || a.type == ElementType::Int32)
    return at + "multiplies " + nameOf(a.type) + " by " + nameOf(w.type) +
           "; both must be one MXM format";
  for (unsigned loop = 0; loop < kernel.loops.size(); ++loop)
    if (kernel.loops[loop].kind == LoopKind::Contracted &&
        usesLoop(term.a, loop) != usesLoop(term.w, loop))
      return at + "contracts loop " + std::to_string(loop) + ", which only one of them uses";
  for (const Access *access : {&term.a, &term.w})
    for (auto [loop, step] : access->index[graph.tensors[access->tensor].laneDim].terms)
      for (unsigned dim = 0; dim < access->index.size(); ++dim)
        if (kernel.loops[loop].kind == LoopKind::Contracted && kernel.loops[loop].extent > 1 &&
            dim != graph.tensors[access->tensor].laneDim && coefficient(access->index[dim], loop))
          return at + "contracts loop " + std::to_string(loop) + " along the lanes of '" +
                 graph.tensors[access->tensor].name + "' and along its dimension " +
                 std::to_string(dim) + " at once (a diagonal); use another operation";
  return {};
}

std::string Verifier::checkNodes(const Kernel &kernel) const {
  for (unsigned i = 0; i < kernel.nodes.size(); ++i) {
    const Node &node = kernel.nodes[i];
    std::string at = "kernel '" + kernel.name + "': node " + std::to_string(i) + " ";
    for (unsigned arg : node.args)
      if (arg >= i)
        return at + "uses the later node " + std::to_string(arg);
    if (node.kind == Node::Kind::Accumulator && kernel.terms.empty())
      return at + "reads an accumulator, but there is no term";
    if (node.kind == Node::Kind::Operand && node.index >= kernel.operands.size())
      return at + "reads operand " + std::to_string(node.index) + " of " +
             std::to_string(kernel.operands.size());
    if (node.kind == Node::Kind::Op && node.args.size() != aluOpInfo(node.op).operands)
      return at + "gives " + std::to_string(node.args.size()) + " arguments to " +
             std::string(aluOpInfo(node.op).mnemonic);
    std::optional<uint32_t> held;
    for (unsigned arg : node.args) {
      const Node &operand = kernel.nodes[arg];
      if (operand.kind == Node::Kind::Immediate && held.value_or(operand.bits) != operand.bits)
        return at + "has two immediates, and an instruction holds one; pass one through an ALU";
      if (operand.kind == Node::Kind::Immediate)
        held = operand.bits;
    }
    if (node.kind == Node::Kind::Reduce &&
        (node.args.size() != 1 || aluOpInfo(node.op).operands != 2))
      return at + "reduces by " + std::string(aluOpInfo(node.op).mnemonic) + " over " +
             std::to_string(node.args.size()) + " arguments";
  }
  return {};
}

/// What running loops move reaches a result through a Reduce alone, and there they are reduced.
std::string Verifier::checkRunning(const Kernel &kernel) const {
  const auto runs = [&](const Access &access) {
    for (unsigned l = 0; l < kernel.loops.size(); ++l)
      if (kernel.loops[l].kind == LoopKind::Running && kernel.loops[l].extent > 1 &&
          usesLoop(access, l))
        return true;
    return false;
  };
  const bool anyRuns = std::any_of(kernel.loops.begin(), kernel.loops.end(), [](const Loop &l) {
    return l.kind == LoopKind::Running && l.extent > 1;
  });
  const bool sumRuns = std::any_of(kernel.terms.begin(), kernel.terms.end(),
                                   [&](const Term &t) { return runs(t.a) || runs(t.w); });
  std::vector<bool> moves(kernel.nodes.size(), false), reduced(kernel.nodes.size(), false);
  for (unsigned n = 0; n < kernel.nodes.size(); ++n) {
    const Node &node = kernel.nodes[n];
    moves[n] = (node.kind == Node::Kind::Accumulator && sumRuns) ||
               (node.kind == Node::Kind::Operand && runs(kernel.operands[node.index]));
    reduced[n] = node.kind == Node::Kind::Reduce;
    for (unsigned a : node.args) {
      moves[n] = moves[n] || (moves[a] && node.kind != Node::Kind::Reduce);
      reduced[n] = reduced[n] || reduced[a];
    }
  }
  for (const Result &result : kernel.results)
    if (anyRuns && (moves[result.node] || !reduced[result.node]))
      return "kernel '" + kernel.name + "': result '" + graph.tensors[result.access.tensor].name +
             "' stores node " + std::to_string(result.node) +
             (moves[result.node] ? ", which a running loop moves" : "") +
             ", and each running loop has to be reduced on the way to it";
  return {};
}

std::string Verifier::checkShape(const Kernel &kernel) const {
  for (const Loop &loop : kernel.loops)
    if (loop.extent < 1)
      return "kernel '" + kernel.name + "': a loop has extent " + std::to_string(loop.extent);
  for (const Term &term : kernel.terms)
    if (std::string error = checkTerm(kernel, term); !error.empty())
      return error;
  for (const Access &access : kernel.operands) {
    if (std::string error = checkAccess(kernel, access, "operand"); !error.empty())
      return error;
    if (std::string error = checkLookup(kernel, access); !error.empty())
      return error;
    if (std::string error = checkKinds(kernel, access, "operand", false, true); !error.empty())
      return error;
    const Tensor &read = graph.tensors[access.tensor];
    for (auto [loop, step] : access.index[read.laneDim].terms)
      if (kernel.loops[loop].kind == LoopKind::Running && kernel.loops[loop].extent > 1)
        return "kernel '" + kernel.name + "': loop " + std::to_string(loop) +
               " runs along the lanes of '" + read.name + "', which stay where they are";
  }
  if (kernel.results.empty())
    return "kernel '" + kernel.name + "' has no result";
  for (const Result &result : kernel.results) {
    if (std::string error = checkAccess(kernel, result.access, "result"); !error.empty())
      return error;
    if (result.access.lookup)
      return "kernel '" + kernel.name + "': a result looks up indices, which only operands can";
    if (std::string error = checkKinds(kernel, result.access, "result", false, false);
        !error.empty())
      return error;
    if (result.node >= kernel.nodes.size())
      return "kernel '" + kernel.name + "': a result names node " + std::to_string(result.node) +
             " of " + std::to_string(kernel.nodes.size());
  }
  if (std::string error = checkNodes(kernel); !error.empty())
    return error;
  return checkRunning(kernel);
}

std::string Verifier::checkRead(unsigned tensor, const std::string &reader) const {
  const Tensor &read = graph.tensors[tensor];
  if (read.role == TensorRole::Input || read.role == TensorRole::Constant ||
      pendingWriters[tensor] == 0)
    return {};
  return reader + " reads '" + read.name + "' before all of it is written";
}

std::string Verifier::checkReads(const Kernel &kernel) const {
  std::vector<unsigned> reads;
  for (const Term &term : kernel.terms) {
    reads.push_back(term.a.tensor);
    reads.push_back(term.w.tensor);
  }
  for (const Access &access : kernel.operands) {
    reads.push_back(access.tensor);
    if (access.lookup)
      reads.push_back(access.lookup->tensor);
  }
  for (unsigned tensor : reads)
    if (std::string error = checkRead(tensor, "kernel '" + kernel.name + "'"); !error.empty())
      return error;
  return {};
}

/// Marks the points that `result` writes; each must lie in the tensor and be new.
std::string Verifier::mark(const Kernel &kernel, const Result &result) {
  const Tensor &tensor = graph.tensors[result.access.tensor];
  std::string at = "kernel '" + kernel.name + "' writes '" + tensor.name + "' ";
  if (tensor.role == TensorRole::Input || tensor.role == TensorRole::Constant)
    return at + ", which is not for writing";
  --pendingWriters[result.access.tensor];
  const std::string wrong = written[result.access.tensor].add(kernel, tensor, result.access);
  return wrong.empty() ? wrong : at + wrong;
}

std::string Verifier::markHost(const HostCall &call) {
  for (unsigned tensor : call.inputs) {
    if (tensor >= graph.tensors.size())
      return "host call '" + call.name + "' names tensor " + std::to_string(tensor);
    if (std::string error = checkRead(tensor, "host call '" + call.name + "'"); !error.empty())
      return error;
  }
  for (unsigned tensor : call.outputs)
    --pendingWriters[tensor];
  return {};
}

void Verifier::countWriters() {
  pendingWriters.assign(graph.tensors.size(), 0);
  written.resize(graph.tensors.size());
  for (const Kernel &kernel : graph.kernels)
    for (const Result &result : kernel.results)
      ++pendingWriters[result.access.tensor];
  for (const HostCall &call : graph.hostCalls)
    for (unsigned tensor : call.outputs)
      ++pendingWriters[tensor];
}

std::string Verifier::run() {
  for (const Tensor &tensor : graph.tensors)
    if (std::string error = checkTensor(tensor); !error.empty())
      return error;
  for (const Kernel &kernel : graph.kernels)
    if (std::string error = checkShape(kernel); !error.empty())
      return error;
  for (const HostCall &call : graph.hostCalls)
    for (unsigned tensor : call.outputs)
      if (tensor >= graph.tensors.size())
        return "host call '" + call.name + "' names tensor " + std::to_string(tensor);
  countWriters();
  std::vector<bool> ran(graph.kernels.size()), called(graph.hostCalls.size());
  for (auto [isHost, index] : graph.order) {
    auto &done = isHost ? called : ran;
    if (index >= done.size() || done[index])
      return std::string("the order names ") + (isHost ? "host call " : "kernel ") +
             std::to_string(index) + (index >= done.size() ? ", which does not exist" : " twice");
    done[index] = true;
    if (isHost) {
      if (std::string error = markHost(graph.hostCalls[index]); !error.empty())
        return error;
      continue;
    }
    const Kernel &kernel = graph.kernels[index];
    if (std::string error = checkReads(kernel); !error.empty())
      return error;
    for (const Result &result : kernel.results)
      if (std::string error = mark(kernel, result); !error.empty())
        return error;
  }
  if (graph.order.size() != graph.kernels.size() + graph.hostCalls.size())
    return "the order names " + std::to_string(graph.order.size()) + " of " +
           std::to_string(graph.kernels.size() + graph.hostCalls.size()) +
           " kernels and host calls";
  for (unsigned i = 0; i < graph.tensors.size(); ++i)
    if (graph.tensors[i].role == TensorRole::Output)
      if (const std::optional<int64_t> missing = written[i].firstMissing(graph.tensors[i]))
        return "output '" + graph.tensors[i].name + "' lacks element " + std::to_string(*missing);
  return {};
}

} // namespace

std::string KernelGraph::verify() const { return Verifier(*this).run(); }

int64_t elementCount(const Tensor &tensor) {
  int64_t count = 1;
  for (int64_t extent : tensor.shape)
    count *= extent;
  return count;
}

int64_t coefficient(const AffineIndex &index, unsigned loop) {
  int64_t sum = 0;
  for (auto [l, c] : index.terms)
    sum += l == loop ? c : 0;
  return sum;
}

static bool uses(const std::vector<AffineIndex> &indices, unsigned loop) {
  return std::any_of(indices.begin(), indices.end(),
                     [&](const AffineIndex &index) { return coefficient(index, loop) != 0; });
}

bool usesLoop(const Access &access, unsigned loop) {
  return uses(access.index, loop) || (access.lookup && uses(access.lookup->index, loop));
}

std::optional<unsigned> wholeLoop(const Kernel &kernel, const AffineIndex &index, int64_t extent,
                                  LoopKind kind) {
  if (index.offset != 0 || index.terms.size() != 1 || index.terms[0].second != 1)
    return std::nullopt;
  const unsigned loop = index.terms[0].first;
  const Loop &is = kernel.loops[loop];
  return is.extent == extent && is.kind == kind ? std::optional(loop) : std::nullopt;
}

std::optional<unsigned> onlyLoop(const Kernel &kernel, const AffineIndex &index) {
  std::optional<unsigned> found;
  for (auto [l, c] : index.terms)
    if (kernel.loops[l].extent > 1) {
      if (found)
        return std::nullopt;
      found = l;
    }
  return found;
}

std::pair<int64_t, int64_t> rangeOf(const Kernel &kernel, const AffineIndex &index) {
  int64_t low = index.offset, high = index.offset;
  for (auto [loop, step] : index.terms) {
    const int64_t reach = step * (kernel.loops[loop].extent - 1);
    low += std::min<int64_t>(0, reach);
    high += std::max<int64_t>(0, reach);
  }
  return {low, high};
}

bool staysInside(const KernelGraph &graph, const Kernel &kernel, const Access &access) {
  for (unsigned d = 0; d < access.index.size(); ++d) {
    const auto [low, high] = rangeOf(kernel, access.index[d]);
    if (low < 0 || high >= graph.tensors[access.tensor].shape[d])
      return false;
  }
  return true;
}

bool isIdempotent(AluOp op) {
  return op == AluOp::MaxF32 || op == AluOp::MinF32 || op == AluOp::MaxI32 || op == AluOp::MinI32;
}

unsigned splitLoop(Kernel &kernel, unsigned loop, const Blocks &blocks) {
  const auto inner = unsigned(kernel.loops.size());
  kernel.loops.push_back({blocks.steps, kernel.loops[loop].kind});
  kernel.loops[loop].extent = blocks.count;
  const auto split = [&](std::vector<AffineIndex> &index) {
    for (AffineIndex &i : index)
      if (const int64_t step = coefficient(i, loop)) {
        for (auto &[its, c] : i.terms)
          c *= its == loop ? blocks.apart : 1;
        i.terms.push_back({inner, step});
      }
  };
  forEachAccess(kernel, [&](Access &access) {
    split(access.index);
    if (access.lookup)
      split(access.lookup->index);
  });
  return inner;
}

std::optional<unsigned> unitLoop(const Kernel &kernel, const AffineIndex &index, LoopKind kind) {
  std::optional<unsigned> longest;
  for (auto [loop, step] : index.terms)
    if (step == 1 && kernel.loops[loop].kind == kind &&
        (!longest || kernel.loops[loop].extent > kernel.loops[*longest].extent))
      longest = loop;
  return longest;
}

void applyTo(Kernel &kernel, unsigned at, AluOp op) {
  for (Node &node : kernel.nodes)
    for (unsigned &arg : node.args)
      arg += arg >= at;
  for (Result &result : kernel.results)
    result.node += result.node >= at;
  kernel.nodes.insert(kernel.nodes.begin() + at + 1, {Node::Kind::Op, 0, 0, op, {at}});
}

std::vector<unsigned> usesOfNodes(const Kernel &kernel) {
  std::vector<unsigned> uses(kernel.nodes.size(), 0);
  for (const Node &node : kernel.nodes)
    for (unsigned arg : node.args)
      ++uses[arg];
  for (const Result &result : kernel.results)
    ++uses[result.node];
  return uses;
}

std::vector<unsigned> nodesOf(const Kernel &kernel, unsigned node) {
  std::vector<bool> needed(node + 1, false);
  needed[node] = true;
  for (unsigned n = node + 1; n-- > 0;)
    if (needed[n])
      for (unsigned arg : kernel.nodes[n].args)
        needed[arg] = true;
  std::vector<unsigned> nodes;
  for (unsigned n = 0; n <= node; ++n)
    if (needed[n])
      nodes.push_back(n);
  return nodes;
}

std::vector<bool> neededNodes(const Kernel &kernel, std::optional<unsigned> given) {
  std::vector<bool> needed(kernel.nodes.size(), false);
  for (const Result &result : kernel.results)
    needed[result.node] = true;
  for (size_t n = kernel.nodes.size(); n-- > 0;)
    if (needed[n] && n != given)
      for (unsigned arg : kernel.nodes[n].args)
        needed[arg] = true;
  return needed;
}

bool looksUp(const Kernel &kernel) {
  return std::any_of(kernel.operands.begin(), kernel.operands.end(),
                     [](const Access &access) { return access.lookup.has_value(); });
}

int64_t linearOffset(const Tensor &tensor, const Access &access,
                     const std::vector<int64_t> &point) {
  int64_t offset = 0;
  for (size_t dim = 0; dim < access.index.size(); ++dim) {
    int64_t index = access.index[dim].offset;
    for (auto [loop, coefficient] : access.index[dim].terms)
      index += coefficient * point[loop];
    if (index < 0 || index >= tensor.shape[dim])
      return -1;
    offset = offset * tensor.shape[dim] + index;
  }
  return offset;
}

void forEachPoint(const Kernel &kernel, const std::vector<unsigned> &loops,
                  const std::function<bool(const std::vector<int64_t> &)> &visit) {
  std::vector<int64_t> point(kernel.loops.size(), 0);
  for (;;) {
    if (!visit(point))
      return;
    size_t i = loops.size();
    while (i > 0 && ++point[loops[i - 1]] == kernel.loops[loops[i - 1]].extent)
      point[loops[--i]] = 0;
    if (i == 0)
      return;
  }
}

} // namespace millrace::forms
