// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// MLIR, SystemC, ONNX and Boost.Graph serve one program. Each brings a shared library, and two of
// them build on other copies of common parts; this test fails first when an upgrade makes them
// clash.

#include <boost/graph/adjacency_list.hpp>
#include <boost/graph/topological_sort.hpp>
#include <gtest/gtest.h>
#include <mlir/IR/BuiltinOps.h>
#include <mlir/IR/MLIRContext.h>
#include <mlir/Parser/Parser.h>
#include <onnx/checker.h>
#include <onnx/defs/schema.h>
#include <onnx/onnx_pb.h>
#include <systemc>

#include <iterator>
#include <stdexcept>
#include <vector>

// SystemC brings a main of its own, which calls this; GoogleTest's main wins, so nobody does.
int sc_main(int, char **) { return 0; }

TEST(Parts, MlirParsesAModule) {
  mlir::MLIRContext context;
  auto module = mlir::parseSourceString<mlir::ModuleOp>("module @grid {}", &context);
  ASSERT_TRUE(module);
  EXPECT_EQ(module->getName(), "grid");
}

TEST(Parts, OnnxKnowsOpsetsThatDebiansVersionLacksAndRejectsAnEmptyModel) {
  EXPECT_GE(onnx::OpSchemaRegistry::DomainToVersionRange::Instance().Map().at("").second, 23);
  EXPECT_THROW(onnx::checker::check_model(onnx::ModelProto()), std::runtime_error);
}

TEST(Parts, SystemCAdvancesTimeByOneCycle) {
  sc_core::sc_start(1, sc_core::SC_NS);
  EXPECT_EQ(sc_core::sc_time_stamp(), sc_core::sc_time(1, sc_core::SC_NS));
}

TEST(Parts, BoostSortsAGraph) {
  boost::adjacency_list<boost::vecS, boost::vecS, boost::directedS> graph(2);
  boost::add_edge(1, 0, graph);
  std::vector<size_t> order;
  boost::topological_sort(graph, std::back_inserter(order));
  EXPECT_EQ(order, (std::vector<size_t>{0, 1}));
}
