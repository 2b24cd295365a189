// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "compiler/Import/Onnx/Order.h"

#include "compiler/Import/Onnx/NodeImporter.h"

#include <functional>
#include <map>
#include <queue>
#include <set>

namespace millrace::onnx_import {
namespace {

/// Names that the nodes of a subgraph use and do not make themselves.
void captured(const onnx::GraphProto &graph, std::set<std::string> &names) {
  std::set<std::string> own, used;
  for (const onnx::ValueInfoProto &input : graph.input())
    own.insert(input.name());
  for (const onnx::TensorProto &tensor : graph.initializer())
    own.insert(tensor.name());
  for (const onnx::NodeProto &node : graph.node()) {
    own.insert(node.output().begin(), node.output().end());
    used.insert(node.input().begin(), node.input().end());
    for (const onnx::AttributeProto &attribute : node.attribute())
      if (attribute.has_g())
        captured(attribute.g(), used);
  }
  for (const onnx::ValueInfoProto &output : graph.output())
    used.insert(output.name());
  for (const std::string &name : used)
    if (!own.contains(name))
      names.insert(name);
}

/// Names of values that a node uses.
std::set<std::string> usedBy(const onnx::NodeProto &node) {
  std::set<std::string> names(node.input().begin(), node.input().end());
  for (const onnx::AttributeProto &attribute : node.attribute())
    if (attribute.has_g())
      captured(attribute.g(), names);
  names.erase("");
  return names;
}

class Sorter {
public:
  explicit Sorter(onnx::GraphProto &graph) : graph(graph) {
    for (const onnx::ValueInfoProto &input : graph.input())
      given.insert(input.name());
    for (const onnx::TensorProto &tensor : graph.initializer())
      given.insert(tensor.name());
    for (const onnx::SparseTensorProto &tensor : graph.sparse_initializer())
      given.insert(tensor.values().name());
    for (int n = 0; n < graph.node_size(); ++n)
      for (const std::string &output : graph.node(n).output())
        makers.emplace(output, n);
  }

  NodeOrder run() {
    findNeeds();
    std::vector<int> order = sorted();
    if (int(order.size()) < graph.node_size())
      found.cycle = cycleAmong(order);
    if (!found.cycle.empty() || !found.unknown.empty() || found.early.empty())
      return std::move(found);
    google::protobuf::RepeatedPtrField<onnx::NodeProto> nodes;
    nodes.Reserve(graph.node_size());
    for (int n : order)
      nodes.Add()->Swap(graph.mutable_node(n));
    graph.mutable_node()->Swap(&nodes);
    return std::move(found);
  }

private:
  std::string nameOf(int n) const { return nodeName(graph.node(n), size_t(n)); }

  void findNeeds() {
    needs.resize(size_t(graph.node_size()));
    for (int n = 0; n < graph.node_size(); ++n) {
      bool early = false;
      for (const std::string &name : usedBy(graph.node(n))) {
        if (given.contains(name))
          continue;
        const auto maker = makers.find(name);
        if (maker == makers.end()) {
          found.unknown.push_back("input '" + name + "' of " + graph.node(n).op_type() + " '" +
                                  nameOf(n) +
                                  "' is computed by no node and is no input or constant");
          continue;
        }
        needs[size_t(n)].insert(maker->second);
        early |= maker->second >= n;
      }
      if (early)
        found.early.push_back(nameOf(n));
    }
  }

  /// Of the nodes that may come next always the first.
  std::vector<int> sorted() const {
    std::vector<std::vector<int>> users(needs.size());
    std::vector<size_t> waiting(needs.size());
    std::priority_queue<int, std::vector<int>, std::greater<>> ready;
    for (size_t n = 0; n < needs.size(); ++n) {
      waiting[n] = needs[n].size();
      if (!waiting[n])
        ready.push(int(n));
      for (int maker : needs[n])
        users[size_t(maker)].push_back(int(n));
    }
    std::vector<int> order;
    while (!ready.empty()) {
      order.push_back(ready.top());
      ready.pop();
      for (int user : users[size_t(order.back())])
        if (!--waiting[size_t(user)])
          ready.push(user);
    }
    return order;
  }

  /// A cycle of those that have no place in the order: each of them needs another one.
  std::string cycleAmong(const std::vector<int> &order) const {
    std::vector<bool> placed(needs.size());
    for (int n : order)
      placed[size_t(n)] = true;
    int n = 0;
    while (placed[size_t(n)])
      ++n;
    std::vector<int> walk;
    std::map<int, size_t> at;
    while (at.emplace(n, walk.size()).second) {
      walk.push_back(n);
      for (int maker : needs[size_t(n)])
        if (!placed[size_t(maker)])
          n = maker;
    }
    std::string text;
    for (size_t k = walk.size(); k-- > at[n];)
      text += "'" + nameOf(walk[k]) + "' -> ";
    return text + "'" + nameOf(walk.back()) + "'";
  }

  onnx::GraphProto &graph;
  std::set<std::string> given;
  std::map<std::string, int> makers;
  std::vector<std::set<int>> needs; ///< per node: those whose values it uses
  NodeOrder found;
};

} // namespace

Status NodeOrder::status() const {
  std::string text;
  for (const std::string &value : unknown)
    text += (text.empty() ? "" : "; ") + value;
  if (!cycle.empty())
    text += (text.empty() ? "nodes" : "; nodes") + (" use each other's values: " + cycle);
  if (text.empty())
    return Success{};
  return Error{text + "; correct the model or export it again"};
}

NodeOrder sortNodes(onnx::GraphProto &graph) { return Sorter(graph).run(); }

} // namespace millrace::onnx_import
