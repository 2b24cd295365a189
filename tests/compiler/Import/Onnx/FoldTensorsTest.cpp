// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Which elements folded operations read, and which tensors become constants.
#include "tests/compiler/Import/Onnx/FoldProgram.h"

#include <chrono>
#include <cmath>
#include <cstring>
#include <regex>

using namespace millrace;

namespace {

// ---- what is read

std::vector<double> foldedMain(const std::string &text, unsigned result = 0) {
  Program program(text);
  program.fold();
  std::optional<ConstantView> view = program.constant(result);
  EXPECT_TRUE(view) << text;
  return view ? numbers(*view) : std::vector<double>();
}

TEST(FoldTensors, SliceJoinPadAndReshape) {
  const std::string text = R"(func.func @main() -> (tensor<2x2xi32>, tensor<2x5xi32>, tensor<3x4xi32>, tensor<3x2xi32>) {
    %a = arith.constant dense<[[1, 2, 3], [4, 5, 6]]> : tensor<2x3xi32>
    %s = tensor.extract_slice %a[0, 0] [2, 2] [1, 2] : tensor<2x3xi32> to tensor<2x2xi32>
    %c = tensor.concat dim(1) %a, %s : (tensor<2x3xi32>, tensor<2x2xi32>) -> tensor<2x5xi32>
    %z = arith.constant 9 : i32
    %p = tensor.pad %a low[1, 0] high[0, 1] {
    ^bb0(%i: index, %j: index):
      tensor.yield %z : i32
    } : tensor<2x3xi32> to tensor<3x4xi32>
    %f = tensor.collapse_shape %a [[0, 1]] : tensor<2x3xi32> into tensor<6xi32>
    %e = tensor.expand_shape %f [[0, 1]] output_shape [3, 2] : tensor<6xi32> into tensor<3x2xi32>
    return %s, %c, %p, %e : tensor<2x2xi32>, tensor<2x5xi32>, tensor<3x4xi32>, tensor<3x2xi32>
  })";
  EXPECT_EQ(foldedMain(text, 0), std::vector<double>({1, 3, 4, 6}));
  EXPECT_EQ(foldedMain(text, 1), std::vector<double>({1, 2, 3, 1, 3, 4, 5, 6, 4, 6}));
  EXPECT_EQ(foldedMain(text, 2), std::vector<double>({9, 9, 9, 9, 1, 2, 3, 9, 4, 5, 6, 9}));
  EXPECT_EQ(foldedMain(text, 3), std::vector<double>({1, 2, 3, 4, 5, 6}));
}

TEST(FoldTensors, OfEqualElementsAreSlicedJoinedAndReadAsOthers) {
  const std::string text = R"(func.func @main() -> (tensor<2xf32>, tensor<5xf32>) {
    %a = arith.constant dense<2.5> : tensor<3xf32>
    %b = arith.constant dense<[1.0, 4.0]> : tensor<2xf32>
    %s = tensor.extract_slice %a[1] [2] [1] : tensor<3xf32> to tensor<2xf32>
    %c = tensor.concat dim(0) %b, %a : (tensor<2xf32>, tensor<3xf32>) -> tensor<5xf32>
    return %s, %c : tensor<2xf32>, tensor<5xf32>
  })";
  EXPECT_EQ(foldedMain(text, 0), std::vector<double>({2.5, 2.5}));
  EXPECT_EQ(foldedMain(text, 1), std::vector<double>({1, 4, 2.5, 2.5, 2.5}));
}

TEST(FoldTensors, AreReadByWindowsStridesAndQuotients) {
  const std::string text = R"(func.func @main() -> tensor<2x2xf32> {
    %a = arith.constant dense<[1.0, 2.0, 4.0, 8.0, 16.0]> : tensor<5xf32>
    %b = arith.constant dense<[100.0, 200.0]> : tensor<2xf32>
    %e = tensor.empty() : tensor<2x2xf32>
    %m = linalg.generic {)" + maps({"(i, j) -> (i * 2 + j + 1)", "(i, j) -> ((i * 2 + j) floordiv 2)",
                                    "(i, j) -> (j, i)"}) + R"(,
      iterator_types = ["parallel", "parallel"]} ins(%a, %b : tensor<5xf32>, tensor<2xf32>) outs(%e : tensor<2x2xf32>) {
    ^bb0(%x: f32, %y: f32, %o: f32):
      %r = arith.addf %x, %y : f32
      linalg.yield %r : f32
    } -> tensor<2x2xf32>
    return %m : tensor<2x2xf32>
  })";
  EXPECT_EQ(foldedMain(text), std::vector<double>({102, 208, 104, 216}));
}

/// A sum over `loops[1]` of `n` and a map that says from where.
std::string gatherText(const std::string &positions, int64_t rows) {
  return R"(func.func @main() -> tensor<3x2xf32> {
    %t = arith.constant dense<[[1.0, 2.0], [3.0, 4.0], [5.0, 6.0], [7.0, 8.0]]> : tensor<4x2xf32>
    %i = arith.constant dense<)" + positions + "> : tensor<" + std::to_string(rows) + R"(xi64>
    %e = tensor.empty() : tensor<3x2xf32>
    %m = linalg.generic {)" + maps({"(i, j) -> (i)", "(i, j) -> (i, j)"}) + R"(,
      iterator_types = ["parallel", "parallel"]} ins(%i : tensor<)" + std::to_string(rows) + R"(xi64>) outs(%e : tensor<3x2xf32>) {
    ^bb0(%x: i64, %o: f32):
      %at = arith.index_cast %x : i64 to index
      %lane = linalg.index 1 : index
      %r = tensor.extract %t[%at, %lane] : tensor<4x2xf32>
      linalg.yield %r : f32
    } -> tensor<3x2xf32>
    return %m : tensor<3x2xf32>
  })";
}

TEST(FoldTensors, AreGatheredUnlessAnIndexLiesOutside) {
  EXPECT_EQ(foldedMain(gatherText("[3, 0, 1]", 3)), std::vector<double>({7, 8, 1, 2, 3, 4}));
  for (const char *outside : {"[3, 0, 4]", "[3, -1, 1]", "[3, 0, 9223372036854775807]"}) {
    Program program(gatherText(outside, 3));
    program.fold();
    EXPECT_FALSE(program.constant()) << outside;
  }
}

TEST(FoldTensors, AreSummedInTheOrderOfTheLoopsInTheirOwnType) {
  const std::string text = R"(func.func @main() -> (tensor<f32>, tensor<f16>, tensor<2xf32>) {
    %a = arith.constant dense<[16777216.0, 1.0, 1.0, -16777216.0]> : tensor<4xf32>
    %h = arith.constant dense<[2048.0, 1.0, 1.0, 1.0]> : tensor<4xf16>
    %m = arith.constant dense<[[16777216.0, 1.0], [1.0, 1.0], [-16777216.0, 1.0]]> : tensor<3x2xf32>
    %z = arith.constant 0.0 : f32
    %zh = arith.constant 0.5 : f16
    %e = tensor.empty() : tensor<f32>
    %eh = tensor.empty() : tensor<f16>
    %em = tensor.empty() : tensor<2xf32>
    %f = linalg.fill ins(%z : f32) outs(%e : tensor<f32>) -> tensor<f32>
    %fh = linalg.fill ins(%zh : f16) outs(%eh : tensor<f16>) -> tensor<f16>
    %fm = linalg.fill ins(%z : f32) outs(%em : tensor<2xf32>) -> tensor<2xf32>
    %s = linalg.generic {)" + maps({"(i) -> (i)", "(i) -> ()"}) + R"(, iterator_types = ["reduction"]}
        ins(%a : tensor<4xf32>) outs(%f : tensor<f32>) {
    ^bb0(%x: f32, %o: f32):
      %r = arith.addf %o, %x : f32
      linalg.yield %r : f32
    } -> tensor<f32>
    %sh = linalg.generic {)" + maps({"(i) -> (i)", "(i) -> ()"}) + R"(, iterator_types = ["reduction"]}
        ins(%h : tensor<4xf16>) outs(%fh : tensor<f16>) {
    ^bb0(%x: f16, %o: f16):
      %r = arith.addf %o, %x : f16
      linalg.yield %r : f16
    } -> tensor<f16>
    %sm = linalg.generic {)" + maps({"(i, j) -> (i, j)", "(i, j) -> (j)"}) + R"(,
        iterator_types = ["reduction", "parallel"]} ins(%m : tensor<3x2xf32>) outs(%fm : tensor<2xf32>) {
    ^bb0(%x: f32, %o: f32):
      %r = arith.addf %o, %x : f32
      linalg.yield %r : f32
    } -> tensor<2xf32>
    return %s, %sh, %sm : tensor<f32>, tensor<f16>, tensor<2xf32>
  })";
  EXPECT_EQ(foldedMain(text, 0), std::vector<double>({0}));
  EXPECT_EQ(foldedMain(text, 1), std::vector<double>({2048}));
  EXPECT_EQ(foldedMain(text, 2), std::vector<double>({0, 3}));
}

// ---- which ones

/// @main(%v) returns `value` of type tensor<`type`>, after `text`.
std::string returning(const std::string &text, const std::string &value, const std::string &type) {
  return "func.func @main() -> tensor<" + type + "> {\n" + text + "\n return " + value + " : tensor<" + type +
         ">\n}";
}

std::string weights(const std::string &name, const std::string &type) {
  return name + " = arith.constant dense_resource<" + name.substr(1) + "> : tensor<" + type + ">\n";
}

/// The file's end, where the bytes of weights stand: 0, 1, 2... as f32, or as `i64`.
template <class T> std::string resources(const std::string &name, int64_t elements, int64_t below) {
  std::string text = "{-# dialect_resources: { builtin: { " + name + ": \"0x08000000";
  char byte[3];
  for (int64_t i = 0; i < elements; ++i) {
    const T value = T(i % below);
    unsigned char bytes[sizeof(T)];
    std::memcpy(bytes, &value, sizeof(T));
    for (unsigned char one : bytes) {
      std::snprintf(byte, sizeof(byte), "%02X", one);
      text += byte;
    }
  }
  return text + "\" } } #-}";
}

std::string generic(const std::string &name, const std::vector<std::string> &all, unsigned loops,
                    const std::vector<std::pair<std::string, std::string>> &inputs, const std::string &type,
                    const std::string &element, const std::string &body) {
  std::string values, types, arguments, iterators;
  for (size_t i = 0; i < inputs.size(); ++i) {
    values += (i ? ", " : "") + inputs[i].first;
    types += (i ? ", tensor<" : "tensor<") + inputs[i].second + ">";
    arguments += "%x" + std::to_string(i) + ": " +
                 inputs[i].second.substr(inputs[i].second.rfind('x') + 1) + ", ";
  }
  for (unsigned i = 0; i < loops; ++i)
    iterators += i ? ", \"parallel\"" : "\"parallel\"";
  return name + "e = tensor.empty() : tensor<" + type + ">\n" + name + " = linalg.generic {" + maps(all) +
         ", iterator_types = [" + iterators + "]} ins(" + values + " : " + types + ") outs(" + name + "e : tensor<" +
         type + ">) {\n ^bb0(" + arguments + "%o: " + element + "):\n" + body + "\n linalg.yield %r : " + element +
         "\n} -> tensor<" + type + ">\n";
}

const std::string identity1 = "(i) -> (i)", identity2 = "(i, j) -> (i, j)";

/// Whether what @main returns is a constant.
bool becomesConstant(const std::string &text) {
  Program program(text);
  program.fold();
  return program.constant().has_value();
}

TEST(WhatIsFolded, AreLargeTensorsThatAreComputedAndTakeNoMoreRoom) {
  const std::string square = generic("%m", {identity1, identity1}, 1, {{"%w", "8192xf32"}}, "8192xf32", "f32",
                                     "%r = arith.mulf %x0, %x0 : f32");
  Program program(returning(weights("%w", "8192xf32") + square, "%m", "8192xf32") +
                  resources<float>("w", 8192, 100));
  program.fold();
  std::optional<ConstantView> view = program.constant();
  ASSERT_TRUE(view);
  EXPECT_EQ(view->real(8191), 91.0 * 91.0);
  EXPECT_EQ(view->real(99), 9801);
}

TEST(WhatIsFolded, AreNoWeightsThatAreOnlyMoved) {
  const std::string moved = generic("%m", {"(i, j) -> (j, i)", identity2}, 2, {{"%w", "64x128xf32"}}, "128x64xf32",
                                    "f32", "%r = arith.constant 0.0 : f32");
  std::string transposed = moved;
  transposed.replace(transposed.find("%r = arith.constant 0.0 : f32"), 29, "");
  transposed.replace(transposed.find("yield %r"), 8, "yield %x0");
  EXPECT_FALSE(becomesConstant(returning(weights("%w", "64x128xf32") + transposed, "%m", "128x64xf32") +
                               resources<float>("w", 64 * 128, 100)));
}

TEST(WhatIsFolded, IsNoBroadcastButWhatItRepeats) {
  const std::string text =
      returning("%w = arith.constant " + dense({1, 2}, "f32") + "\n" +
                    generic("%s", {identity1, identity1}, 1, {{"%w", "2xf32"}}, "2xf32", "f32",
                            "%r = arith.addf %x0, %x0 : f32") +
                    generic("%m", {"(i, j) -> (j)", identity2}, 2, {{"%s", "2xf32"}}, "4096x2xf32", "f32",
                            "%r = arith.negf %x0 : f32"),
                "%m", "4096x2xf32");
  Program program(text);
  program.fold();
  EXPECT_FALSE(program.constant());
  std::optional<ConstantView> repeated = viewConstant(program.result().getDefiningOp()->getOperand(0));
  ASSERT_TRUE(repeated);
  EXPECT_EQ(numbers(*repeated), std::vector<double>({2, 4}));
}

TEST(WhatIsFolded, IsNoOuterSumOfSmallTensorsUnlessItCallsTheLibrary) {
  const auto outer = [](const std::string &body) {
    std::vector<double> steps;
    for (int i = 0; i < 128; ++i)
      steps.push_back(i);
    return returning("%w = arith.constant " + dense(steps, "f32") + "\n" +
                         generic("%m", {"(i, j) -> (i)", "(i, j) -> (j)", identity2}, 2,
                                 {{"%w", "128xf32"}, {"%w", "128xf32"}}, "128x128xf32", "f32", body),
                     "%m", "128x128xf32");
  };
  EXPECT_FALSE(becomesConstant(outer("%r = arith.addf %x0, %x1 : f32")));
  EXPECT_TRUE(becomesConstant(outer("%s = arith.mulf %x0, %x1 : f32\n %r = math.cos %s : f32")));
}

TEST(WhatIsFolded, IsATableReadAtConstantPositionsAndWhatFollowsFromIt) {
  const std::string text =
      returning("%t = arith.constant " + dense({1, 2, 3, 4}, "f32") + "\n" + weights("%p", "8192xi64") +
                    generic("%g", {identity1, identity1}, 1, {{"%p", "8192xi64"}}, "8192xf32", "f32",
                            "%at = arith.index_cast %x0 : i64 to index\n %r = tensor.extract %t[%at] : tensor<4xf32>") +
                    generic("%m", {identity1, identity1}, 1, {{"%g", "8192xf32"}}, "8192xf32", "f32",
                            "%r = arith.negf %x0 : f32"),
                "%m", "8192xf32") +
      resources<int64_t>("p", 8192, 4);
  Program program(text);
  program.fold();
  std::optional<ConstantView> view = program.constant();
  ASSERT_TRUE(view);
  for (int64_t i = 0; i < 8192; ++i)
    ASSERT_EQ(view->real(i), -double(i % 4 + 1));
}

TEST(WhatIsFolded, AreNoQuantisedConstants) {
  std::string text = mapOf("%r = arith.mulf %x, %y : f32", {1, 2}, {3, 4}, "f32", "f32");
  text.replace(text.find("outs(%e : tensor<2xf32>)") + 24, 0, " attrs = {millrace.quant = \"dequantize\"}");
  EXPECT_FALSE(becomesConstant(text));
}

TEST(WhatIsFolded, GoesRoundWhatHasNoResult) {
  // The quotient by 0 stays, and what it is computed of becomes a constant nevertheless.
  const std::string text =
      returning("%w = arith.constant " + dense({1, 0}, "i32") + "\n" +
                    generic("%s", {identity1, identity1}, 1, {{"%w", "2xi32"}}, "2xi32", "i32",
                            "%r = arith.addi %x0, %x0 : i32") +
                    generic("%m", {identity1, identity1, identity1}, 1, {{"%w", "2xi32"}, {"%s", "2xi32"}}, "2xi32",
                            "i32", "%r = arith.divsi %x0, %x1 : i32"),
                "%m", "2xi32");
  Program program(text);
  program.fold();
  EXPECT_FALSE(program.constant());
  EXPECT_TRUE(viewConstant(program.result().getDefiningOp()->getOperand(1)));
}

TEST(WhatIsFolded, EndsWhereThereIsTooMuchToDo) {
  const auto product = [](int64_t n) {
    const std::string size = std::to_string(n), type = size + "x" + size + "xf32";
    const std::string text = weights("%w", type) + "%z = arith.constant 0.0 : f32\n %e = tensor.empty() : tensor<" +
                             type + ">\n %f = linalg.fill ins(%z : f32) outs(%e : tensor<" + type +
                             ">) -> tensor<" + type + ">\n %m = linalg.matmul ins(%w, %w : tensor<" + type +
                             ">, tensor<" + type + ">) outs(%f : tensor<" + type + ">) -> tensor<" + type + ">\n";
    return returning(text, "%m", type) + resources<float>("w", n * n, 3);
  };
  EXPECT_TRUE(becomesConstant(product(96)));
  EXPECT_FALSE(becomesConstant(product(400))); // 64 million points
}

TEST(WhatIsFolded, IsAMillionElementsWithinSeconds) {
  const std::string text =
      returning("%t = arith.constant " + dense({1, 2, 3, 4}, "f32") + "\n" +
                    generic("%m", {"(i, j) -> (i, j)"}, 2, {}, "1024x1024xf32", "f32",
                            R"(%i = linalg.index 0 : index
                               %j = linalg.index 1 : index
                               %four = arith.constant 4 : index
                               %k = arith.addi %i, %j : index
                               %at = arith.remui %k, %four : index
                               %v = tensor.extract %t[%at] : tensor<4xf32>
                               %r = math.tanh %v : f32)"),
                "%m", "1024x1024xf32");
  Program program(std::regex_replace(text, std::regex("ins\\( : \\) "), ""));
  const auto start = std::chrono::steady_clock::now();
  program.fold();
  const std::chrono::duration<double> taken = std::chrono::steady_clock::now() - start;
  RecordProperty("milliseconds", int(taken.count() * 1000));
  std::optional<ConstantView> view = program.constant();
  ASSERT_TRUE(view);
  EXPECT_EQ(view->real(1025 * 3), float(std::tanh(3.0))); // (3 + 3) % 4 + 1
  EXPECT_LT(taken.count(), 10);                           // 0.03 on an idle CPU
}

} // namespace
