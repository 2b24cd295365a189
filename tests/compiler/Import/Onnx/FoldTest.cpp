// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Values of folded operations against closed forms: each operation, in each kind of type.
#include "tests/compiler/Import/Onnx/FoldProgram.h"

#include <cmath>
#include <limits>

using namespace millrace;

namespace {

constexpr double infinity = std::numeric_limits<double>::infinity();

// ---- integers

TEST(FoldIntegers, WrapAroundAtTheirWidth) {
  expectOp("arith.addi", "i8", {127, -128, 100}, {1, -1, 27}, {-128, 127, 127});
  expectOp("arith.subi", "i16", {-32768, 5}, {1, 7}, {32767, -2});
  expectOp("arith.muli", "i32", {65536, -3, 2147483647}, {65536, 7, 2}, {0, -21, -2});
  expectOp("arith.muli", "i64", {4503599627370496, -3}, {2048, 7}, {-9223372036854775808.0, -21});
}

TEST(FoldIntegers, DivideTowardsZeroWithAndWithoutSign) {
  expectOp("arith.divsi", "i8", {-7, 7, -7}, {2, -2, -2}, {-3, -3, 3});
  expectOp("arith.remsi", "i8", {-7, 7, -7}, {2, -2, -2}, {-1, 1, -1});
  expectOp("arith.divui", "i8", {-1, 7}, {2, -1}, {127, 0});
  expectOp("arith.remui", "i8", {-1, 7}, {2, -1}, {1, 7});
}

TEST(FoldIntegers, ShiftCompareAndCombineBits) {
  expectOp("arith.shli", "i8", {1, 3, -1}, {7, 6, 1}, {-128, -64, -2});
  expectOp("arith.shrsi", "i8", {-128, 64}, {7, 6}, {-1, 1});
  expectOp("arith.shrui", "i8", {-128, 64}, {7, 6}, {1, 1});
  expectOp("arith.andi", "i8", {12, -1}, {10, 3}, {8, 3});
  expectOp("arith.ori", "i8", {12, -1}, {10, 3}, {14, -1});
  expectOp("arith.xori", "i8", {12, -1}, {10, 3}, {6, -4});
  expectOp("arith.maxsi", "i8", {-1, 2}, {1, 1}, {1, 2});
  expectOp("arith.maxui", "i8", {-1, 2}, {1, 1}, {-1, 2});
  expectOp("arith.minsi", "i8", {-1, 2}, {1, 1}, {-1, 1});
  expectOp("arith.minui", "i8", {-1, 2}, {1, 1}, {1, 1});
  expectOp("math.absi", "i8", {-5, 5, -128}, {}, {5, 5, -128});
}

TEST(FoldIntegers, WithoutADefinedResultAreLeftAlone) {
  for (const char *op : {"divsi", "divui", "remsi", "remui"})
    EXPECT_FALSE(folded("%r = arith." + std::string(op) + " %x, %y : i32", {4, 4}, {2, 0}, "i32", "i32"));
  for (const char *op : {"divsi", "remsi"}) {
    EXPECT_FALSE(folded("%r = arith." + std::string(op) + " %x, %y : i8", {4, -128}, {2, -1}, "i8", "i8"));
    EXPECT_FALSE(folded("%r = arith." + std::string(op) + " %x, %y : i64", {4, -9223372036854775808.0},
                        {2, -1}, "i64", "i64"));
  }
  for (const char *op : {"shli", "shrsi", "shrui"})
    for (double by : {8.0, -1.0})
      EXPECT_FALSE(folded("%r = arith." + std::string(op) + " %x, %y : i8", {4, 4}, {2, by}, "i8", "i8"));
}

TEST(FoldIntegers, CompareWithAndWithoutSign) {
  const auto compare = [](const std::string &predicate, const std::vector<double> &wanted) {
    expectFolded("%r = arith.cmpi " + predicate + ", %x, %y : i8", {-1, 1, 2}, {1, 1, -3}, "i8", "i1", wanted);
  };
  compare("eq", {0, 1, 0});
  compare("ne", {1, 0, 1});
  compare("slt", {1, 0, 0});
  compare("sle", {1, 1, 0});
  compare("sgt", {0, 0, 1});
  compare("sge", {0, 1, 1});
  compare("ult", {0, 0, 1});
  compare("ule", {0, 1, 1});
  compare("ugt", {1, 0, 0});
  compare("uge", {1, 1, 0});
}

TEST(FoldIntegers, OfOneBitAreFlags) {
  expectOp("arith.andi", "i1", {1, 1, 0, 0}, {1, 0, 1, 0}, {1, 0, 0, 0});
  expectOp("arith.xori", "i1", {1, 1, 0, 0}, {1, 0, 1, 0}, {0, 1, 1, 0});
  expectFolded("%r = arith.extui %x : i1 to i32", {1, 0}, {0, 0}, "i1", "i32", {1, 0});
  expectFolded("%r = arith.extsi %x : i1 to i32", {1, 0}, {0, 0}, "i1", "i32", {-1, 0});
  expectFolded("%r = arith.uitofp %x : i1 to f32", {1, 0}, {0, 0}, "i1", "f32", {1, 0});
  expectFolded("%r = arith.trunci %x : i32 to i1", {2, 3}, {0, 0}, "i32", "i1", {0, 1});
  expectFolded("%r = arith.select %x, %y, %x : i1", {1, 0}, {0, 1}, "i1", "i1", {0, 0});
}

TEST(FoldCasts, KeepSignsAndLowBits) {
  expectFolded("%r = arith.extui %x : i8 to i32", {-1, 5}, {0, 0}, "i8", "i32", {255, 5});
  expectFolded("%r = arith.extsi %x : i8 to i64", {-1, 5}, {0, 0}, "i8", "i64", {-1, 5});
  expectFolded("%r = arith.trunci %x : i32 to i8", {255, 384}, {0, 0}, "i32", "i8", {-1, -128});
  expectFolded("%r = arith.sitofp %x : i8 to f32", {-1, 5}, {0, 0}, "i8", "f32", {-1, 5});
  expectFolded("%r = arith.uitofp %x : i8 to f16", {-1, 5}, {0, 0}, "i8", "f16", {255, 5});
}

TEST(FoldCasts, RoundOnce) {
  // 2^53 + 2^29 + 1: half of a unit of f32, and a little. Through f64 it would be a tie, to even.
  expectFolded("%c = arith.constant 9007199791611905 : i64\n %r = arith.sitofp %c : i64 to f32", {0}, {0}, "i64",
               "f32", {9007200328482816});
  expectFolded("%c = arith.constant -1 : i64\n %r = arith.uitofp %c : i64 to f32", {0}, {0}, "i64", "f32",
               {18446744073709551616.0});
  expectFolded("%r = arith.truncf %x : f32 to bf16", {1.00390625, 1.01171875}, {0, 0}, "f32", "bf16",
               {1, 1.015625});
  expectFolded("%r = arith.truncf %x : f32 to f16", {65520, 65519, 5.960464477539063e-08}, {0, 0, 0}, "f32", "f16",
               {infinity, 65504, 5.960464477539063e-08});
  expectFolded("%r = arith.extf %x : f16 to f32", {65504, -0.0}, {0, 0}, "f16", "f32", {65504, -0.0});
  EXPECT_FALSE(folded("%r = arith.truncf %x : f64 to f16", {1, 2}, {0, 0}, "f64", "f16"));
  EXPECT_FALSE(folded("%r = arith.sitofp %x : i64 to f16", {1, 16777217}, {0, 0}, "i64", "f16"));
}

TEST(FoldCasts, ToIntegersRoundTowardsZeroAndLeaveAloneWhatHasNoPlace) {
  expectFolded("%r = arith.fptosi %x : f32 to i8", {-1.9, 1.9, -128.5, 127.9}, {0, 0, 0, 0}, "f32", "i8",
               {-1, 1, -128, 127});
  expectFolded("%r = arith.fptoui %x : f32 to i8", {-0.9, 255.5}, {0, 0}, "f32", "i8", {0, -1});
  for (double value : {128.0, -129.0, infinity, -infinity, std::nan("")})
    EXPECT_FALSE(folded("%r = arith.fptosi %x : f32 to i8", {0, value}, {0, 0}, "f32", "i8"));
  for (double value : {256.0, -1.0, infinity, std::nan("")})
    EXPECT_FALSE(folded("%r = arith.fptoui %x : f32 to i8", {0, value}, {0, 0}, "f32", "i8"));
  EXPECT_FALSE(folded("%r = arith.fptosi %x : f64 to i64", {0, 9223372036854775808.0}, {0, 0}, "f64", "i64"));
}

// ---- floats

TEST(FoldFloats, AreRoundedToTheirTypeAfterEveryOperation) {
  expectOp("arith.addf", "f32", {16777216, 0.1f}, {1, 0.2f}, {16777216, 0.1f + 0.2f});
  expectOp("arith.addf", "f64", {16777216, 0.1}, {1, 0.2}, {16777217, 0.1 + 0.2});
  expectOp("arith.addf", "f16", {2048, 60000}, {1, 60000}, {2048, infinity});
  expectOp("arith.addf", "bf16", {256, 3}, {1, 0.25}, {256, 3.25});
  expectOp("arith.mulf", "f32", {1e30f, 1e-30f}, {1e30f, 1e-30f}, {infinity, 0});
  expectOp("arith.subf", "f16", {1, 0.5}, {2, 0.25}, {-1, 0.25});
  expectOp("arith.divf", "f32", {1, -1, 0, 1}, {3, 0, 0, -infinity},
           {1.0f / 3.0f, -infinity, std::nan(""), -0.0});
  // Sums that f32 would keep apart: (2048 + 1) + 1 in f16.
  expectFolded("%s = arith.addf %x, %y : f16\n %r = arith.addf %s, %y : f16", {2048}, {1}, "f16", "f16", {2048});
}

TEST(FoldFloats, KnowNaNInfinityAndTheSignOfZero) {
  const double nan = std::nan("");
  for (const char *type : {"f16", "bf16", "f32", "f64"}) {
    expectOp("arith.maximumf", type, {1, nan, -0.0, 0.0, -infinity}, {2, 1, 0.0, -0.0, -3}, {2, nan, 0.0, 0.0, -3});
    expectOp("arith.minimumf", type, {1, nan, -0.0, 0.0, -infinity}, {2, 1, 0.0, -0.0, -3},
             {1, nan, -0.0, -0.0, -infinity});
    expectOp("arith.maxnumf", type, {1, nan}, {2, 1}, {2, 1});
    expectOp("arith.minnumf", type, {1, nan}, {2, 1}, {1, 1});
    expectOp("arith.negf", type, {0.0, -1, infinity}, {}, {-0.0, 1, -infinity});
    expectOp("arith.subf", type, {infinity, 0.0}, {infinity, 0.0}, {nan, 0.0});
    expectOp("math.absf", type, {-0.0, -2, -infinity}, {}, {0.0, 2, infinity});
    expectOp("arith.remf", type, {7, -7, 5.5}, {4, 4, infinity}, {3, -3, 5.5});
  }
}

TEST(FoldFloats, CompareInOrderAndOutOfIt) {
  const double nan = std::nan("");
  const auto compare = [&](const std::string &predicate, const std::vector<double> &wanted) {
    for (const std::string type : {"f16", "f32", "f64"})
      expectFolded("%r = arith.cmpf " + predicate + ", %x, %y : " + type, {1, 2, 3, nan, -0.0}, {2, 2, 2, 2, 0.0},
                   type, "i1", wanted);
  };
  compare("oeq", {0, 1, 0, 0, 1});
  compare("ogt", {0, 0, 1, 0, 0});
  compare("oge", {0, 1, 1, 0, 1});
  compare("olt", {1, 0, 0, 0, 0});
  compare("ole", {1, 1, 0, 0, 1});
  compare("one", {1, 0, 1, 0, 0});
  compare("ord", {1, 1, 1, 0, 1});
  compare("ueq", {0, 1, 0, 1, 1});
  compare("ugt", {0, 0, 1, 1, 0});
  compare("uge", {0, 1, 1, 1, 1});
  compare("ult", {1, 0, 0, 1, 0});
  compare("ule", {1, 1, 0, 1, 1});
  compare("une", {1, 0, 1, 1, 0});
  compare("uno", {0, 0, 0, 1, 0});
}

TEST(FoldFloats, RoundToWholeNumbers) {
  const std::vector<double> x = {-2.5, -1.5, -0.5, 0.5, 1.5, 2.5, infinity, -infinity};
  for (const char *type : {"f16", "f32", "f64"}) {
    expectOp("math.floor", type, x, {}, {-3, -2, -1, 0, 1, 2, infinity, -infinity});
    expectOp("math.ceil", type, x, {}, {-2, -1, -0.0, 1, 2, 3, infinity, -infinity});
    expectOp("math.trunc", type, x, {}, {-2, -1, -0.0, 0, 1, 2, infinity, -infinity});
    expectOp("math.round", type, x, {}, {-3, -2, -1, 1, 2, 3, infinity, -infinity});
    expectOp("math.roundeven", type, x, {}, {-2, -2, -0.0, 0, 2, 2, infinity, -infinity});
  }
}

struct Library {
  const char *op;
  double (*function)(double);
  std::vector<double> at;
};

TEST(FoldFloats, CallTheLibraryToTheLastDigit) {
  const std::vector<double> all = {-40, -3.25, -1, -0.5, -0.0, 0.0, 0.5, 1, 2.75, 40, infinity, -infinity},
                            one = {-1, -0.5, 0, 0.75, 1, 2}, positive = {0, 0.25, 1, 2.5, 100, -1, infinity};
  const std::vector<Library> functions = {
      {"exp", [](double x) { return std::exp(x); }, all},
      {"exp2", [](double x) { return std::exp2(x); }, all},
      {"expm1", [](double x) { return std::expm1(x); }, all},
      {"log", [](double x) { return std::log(x); }, positive},
      {"log2", [](double x) { return std::log2(x); }, positive},
      {"log10", [](double x) { return std::log10(x); }, positive},
      {"log1p", [](double x) { return std::log1p(x); }, positive},
      {"sqrt", [](double x) { return std::sqrt(x); }, positive},
      {"rsqrt", [](double x) { return 1 / std::sqrt(x); }, positive},
      {"cbrt", [](double x) { return std::cbrt(x); }, all},
      {"erf", [](double x) { return std::erf(x); }, all},
      {"erfc", [](double x) { return std::erfc(x); }, all},
      {"sin", [](double x) { return std::sin(x); }, all},
      {"cos", [](double x) { return std::cos(x); }, all},
      {"tan", [](double x) { return std::tan(x); }, all},
      {"asin", [](double x) { return std::asin(x); }, one},
      {"acos", [](double x) { return std::acos(x); }, one},
      {"atan", [](double x) { return std::atan(x); }, all},
      {"sinh", [](double x) { return std::sinh(x); }, all},
      {"cosh", [](double x) { return std::cosh(x); }, all},
      {"tanh", [](double x) { return std::tanh(x); }, all},
      {"asinh", [](double x) { return std::asinh(x); }, all},
      {"acosh", [](double x) { return std::acosh(x); }, positive},
      {"atanh", [](double x) { return std::atanh(x); }, one}};
  for (const Library &f : functions) {
    std::vector<double> singles, doubles;
    for (double x : f.at) {
      doubles.push_back(f.function(x));
      singles.push_back(float(f.function(x)));
    }
    expectOp(std::string("math.") + f.op, "f32", f.at, {}, singles);
    expectOp(std::string("math.") + f.op, "f64", f.at, {}, doubles);
  }
  expectOp("math.powf", "f32", {2, -2, 0, -8}, {0.5, 3, 0, 1.0 / 3}, {std::sqrt(2.0f), -8, 1, std::nan("")});
  expectOp("math.atan2", "f64", {1, -1}, {-1, 0}, {std::atan2(1.0, -1.0), std::atan2(-1.0, 0.0)});
  expectOp("math.copysign", "f32", {1, -2}, {-0.0, 3}, {-1, 2});
  expectOp("math.exp", "f16", {1, 11, 12}, {}, {2.71875, 59872, infinity});
}

// ---- numbers without a value

TEST(FoldUnknown, NumbersAreOfNoHarmWhereTheyAreNotChosen) {
  expectFolded(R"(%zero = arith.constant 0 : i32
      %is = arith.cmpi eq, %y, %zero : i32
      %q = arith.divsi %x, %y : i32
      %s = arith.addi %q, %x : i32
      %r = arith.select %is, %x, %s : i32)",
               {6, 7, 8}, {2, 0, 4}, "i32", "i32", {9, 7, 10});
  expectFolded(R"(%log = math.log %x : f32
      %i = arith.fptosi %log : f32 to i64
      %zero = arith.constant 0.0 : f32
      %is = arith.cmpf ogt, %x, %zero : f32
      %none = arith.constant -7 : i64
      %r = arith.select %is, %i, %none : i64)",
               {0, 100, -1}, {0, 0, 0}, "f32", "i64", {-7, 4, -7});
  EXPECT_FALSE(folded(R"(%q = arith.divsi %x, %y : i1
      %r = arith.select %q, %x, %y : i1)",
                      {1, 0}, {1, 0}, "i1", "i1"));
}

/// @main returns `value`, of %q = [1 / 1, 1 / 0, 4 / 2, 1 / 0] and %w = [1, 0, 2, 0].
std::string ofQuotients(const std::string &text, const std::string &value, const std::string &type) {
  return "func.func @main() -> tensor<" + type + R"(> {
    %x = arith.constant dense<[1, 1, 4, 1]> : tensor<4xi32>
    %w = arith.constant dense<[1, 0, 2, 0]> : tensor<4xi32>
    %qe = tensor.empty() : tensor<4xi32>
    %q = linalg.generic {indexing_maps = [affine_map<(i) -> (i)>, affine_map<(i) -> (i)>, affine_map<(i) -> (i)>],
                         iterator_types = ["parallel"]} ins(%x, %w : tensor<4xi32>, tensor<4xi32>) outs(%qe : tensor<4xi32>) {
    ^bb0(%a: i32, %b: i32, %o: i32):
      %r = arith.divsi %a, %b : i32
      linalg.yield %r : i32
    } -> tensor<4xi32>
    )" + text + "\n return " + value + " : tensor<" + type + ">\n }";
}

TEST(FoldUnknown, NumbersMoveWithTheirTensor) {
  const auto slice = [](int first, int count, int step) {
    const std::string n = std::to_string(count), type = "tensor<" + n + "xi32>";
    return resultOf(ofQuotients("%s = tensor.extract_slice %q[" + std::to_string(first) + "] [" + n + "] [" +
                                    std::to_string(step) + "] : tensor<4xi32> to " + type,
                                "%s", n + "xi32"));
  };
  EXPECT_EQ(slice(0, 2, 2), std::vector<double>({1, 2}));
  EXPECT_FALSE(slice(0, 2, 1));
  EXPECT_FALSE(slice(1, 2, 2));
  const std::string join = R"(%c = tensor.concat dim(0) %w, %q : (tensor<4xi32>, tensor<4xi32>) -> tensor<8xi32>
    %e = tensor.expand_shape %c [[0, 1]] output_shape [2, 4] : tensor<8xi32> into tensor<2x4xi32>
    %z = arith.constant 9 : i32
    %p = tensor.pad %e low[0, 0] high[0, 1] {
    ^bb0(%i: index, %j: index):
      tensor.yield %z : i32
    } : tensor<2x4xi32> to tensor<2x5xi32>
    )";
  EXPECT_EQ(resultOf(ofQuotients(join + "%s = tensor.extract_slice %p[0, 0] [2, 3] [1, 2] : tensor<2x5xi32> to "
                                        "tensor<2x3xi32>", "%s", "2x3xi32")),
            std::vector<double>({1, 2, 9, 1, 2, 9}));
  EXPECT_FALSE(resultOf(ofQuotients(join + "%s = tensor.extract_slice %p[1, 1] [1, 1] [1, 1] : tensor<2x5xi32> to "
                                           "tensor<1x1xi32>", "%s", "1x1xi32")));
}

/// The sum, choice or table look-up of the quotients; `body` computes %r of %a, %b (of %w), %o.
std::string nextOf(const std::string &body, bool sums) {
  return ofQuotients(std::string("%ne = tensor.empty() : tensor<") + (sums ? "" : "4x") + R"(i32>
    %zero = arith.constant 0 : i32
    %f = linalg.fill ins(%zero : i32) outs(%ne : tensor<)" + (sums ? "" : "4x") + "i32>) -> tensor<" + (sums ? "" : "4x") +
                         R"(i32>
    %n = linalg.generic {indexing_maps = [affine_map<(i) -> (i)>, affine_map<(i) -> (i)>, affine_map<(i) -> ()" +
                         (sums ? "" : "i") + R"()>],
      iterator_types = [")" + (sums ? "reduction" : "parallel") +
                         R"("]} ins(%q, %w : tensor<4xi32>, tensor<4xi32>) outs(%f : tensor<)" + (sums ? "" : "4x") +
                         R"(i32>) {
    ^bb0(%a: i32, %b: i32, %o: i32):
      )" + body + R"(
      linalg.yield %r : i32
    } -> tensor<)" + (sums ? "" : "4x") + "i32>",
                     "%n", sums ? "i32" : "4xi32");
}

TEST(FoldUnknown, NumbersSpoilWhatIsComputedOfThemAndNothingElse) {
  const std::string chosen = R"(%is = arith.cmpi ne, %b, %zero : i32
      %v = arith.select %is, %a, %zero : i32
      )";
  EXPECT_EQ(resultOf(nextOf(chosen + "%r = arith.addi %v, %o : i32", false)), std::vector<double>({1, 0, 2, 0}));
  EXPECT_EQ(resultOf(nextOf(chosen + "%r = arith.addi %o, %v : i32", true)), std::vector<double>({3}));
  EXPECT_FALSE(resultOf(nextOf("%r = arith.addi %o, %a : i32", true)));
  EXPECT_FALSE(resultOf(nextOf("%r = arith.muli %a, %zero : i32", false)));
  const auto table = [](const std::string &values, const std::string &at) {
    return nextOf("%t = arith.index_cast " + at + " : i32 to index\n %r = tensor.extract " + values +
                      "[%t] : tensor<4xi32>", false);
  };
  EXPECT_EQ(resultOf(table("%x", "%b")), std::vector<double>({1, 1, 4, 1}));
  EXPECT_EQ(resultOf(table("%q", "%b")), std::nullopt); // reads %q[1]
  EXPECT_EQ(resultOf(table("%x", "%a")), std::nullopt);
}

} // namespace
