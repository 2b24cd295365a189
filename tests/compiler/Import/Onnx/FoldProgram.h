// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Programs of constants for the tests of folding: what they are written as, and what becomes of them.
#pragma once

#include "compiler/Import/Onnx/Fold.h"
#include "compiler/Import/Onnx/Import.h"
#include "compiler/Support/Constants.h"

#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/Dialect/Linalg/IR/Linalg.h"
#include "mlir/Dialect/Tensor/IR/Tensor.h"
#include "mlir/IR/MLIRContext.h"
#include "mlir/Parser/Parser.h"

#include <array>
#include <cmath>
#include <gtest/gtest.h>
#include <map>

namespace millrace {

/// A module with its context.
struct Program {
  std::unique_ptr<mlir::MLIRContext> context =
      std::make_unique<mlir::MLIRContext>(mlir::MLIRContext::Threading::DISABLED);
  mlir::OwningOpRef<mlir::ModuleOp> module;

  explicit Program(const std::string &text) {
    loadImportDialects(*context);
    module = mlir::parseSourceString<mlir::ModuleOp>(text, context.get());
    EXPECT_TRUE(module) << text;
  }

  void fold() { onnx_import::foldConstants(*module); }

  mlir::Value result(unsigned i = 0) {
    auto function = module->lookupSymbol<mlir::func::FuncOp>("main");
    return function.front().getTerminator()->getOperand(i);
  }

  /// The constant that result `i` is, if it is one.
  std::optional<ConstantView> constant(unsigned i = 0) { return viewConstant(result(i)); }
};

/// Of integers and floats.
inline std::vector<double> numbers(const ConstantView &view) {
  const bool isFloat = mlir::isa<mlir::FloatType>(view.type.getElementType());
  std::vector<double> values;
  for (int64_t i = 0; i < view.type.getNumElements(); ++i)
    values.push_back(isFloat ? view.real(i) : double(view.integer(i)));
  return values;
}

inline std::string list(const std::vector<double> &values) {
  std::string text;
  for (double value : values) {
    std::string number(32, ' ');
    number.resize(size_t(std::snprintf(number.data(), number.size(), "%.20g", value)));
    text += (text.empty() ? "" : ", ") + number;
  }
  return "[" + text + "]";
}

inline bool isFloat(const std::string &type) { return type[0] == 'f' || type[0] == 'b'; }

/// dense<[...]> of a type; infinities and NaN as MLIR writes them.
inline std::string dense(const std::vector<double> &values, const std::string &type) {
  std::string text;
  const std::map<std::string, std::array<const char *, 3>> words = {
      {"f16", {"0x7C00", "0xFC00", "0x7E00"}},
      {"bf16", {"0x7F80", "0xFF80", "0x7FC0"}},
      {"f32", {"0x7F800000", "0xFF800000", "0x7FC00000"}},
      {"f64", {"0x7FF0000000000000", "0xFFF0000000000000", "0x7FF8000000000000"}}};
  for (double value : values) {
    char number[64];
    std::snprintf(number, sizeof(number), isFloat(type) ? "%.17e" : "%.0f", value);
    text += text.empty() ? "" : ", ";
    text += std::isfinite(value) ? number
            : std::isnan(value)  ? words.at(type)[2]
                                 : words.at(type)[value < 0];
  }
  return "dense<[" + text + "]> : tensor<" + std::to_string(values.size()) + "x" + type + ">";
}

/// @main returns the map of `body`, which computes %r of type `to` from %x and %y of type `from`.
inline std::string mapOf(const std::string &body, const std::vector<double> &x,
                  const std::vector<double> &y, const std::string &from, const std::string &to) {
  const std::string n = std::to_string(x.size()) + "x", in = "tensor<" + n + from + ">",
                    out = "tensor<" + n + to + ">";
  return R"(func.func @main() -> )" + out + R"( {
    %a = arith.constant )" + dense(x, from) + R"(
    %b = arith.constant )" + dense(y, from) + R"(
    %e = tensor.empty() : )" + out + R"(
    %m = linalg.generic {indexing_maps = [affine_map<(i) -> (i)>, affine_map<(i) -> (i)>, affine_map<(i) -> (i)>],
                         iterator_types = ["parallel"]} ins(%a, %b : )" + in + ", " + in + ") outs(%e : " + out + R"() {
    ^bb0(%x: )" + from + ", %y: " + from + ", %o: " + to + R"():
      )" + body + R"(
      linalg.yield %r : )" + to + R"(
    } -> )" + out + R"(
    return %m : )" + out + R"(
  })";
}

/// What folding makes of it; nothing if it leaves it alone.
inline std::optional<std::vector<double>> folded(const std::string &body, const std::vector<double> &x,
                                          const std::vector<double> &y, const std::string &from,
                                          const std::string &to) {
  Program program(mapOf(body, x, y, from, to));
  program.fold();
  std::optional<ConstantView> view = program.constant();
  return view ? std::optional(numbers(*view)) : std::nullopt;
}

inline void expectFolded(const std::string &body, const std::vector<double> &x,
                  const std::vector<double> &y, const std::string &from, const std::string &to,
                  const std::vector<double> &wanted) {
  SCOPED_TRACE(body + " " + list(x) + " " + list(y));
  const std::optional<std::vector<double>> found = folded(body, x, y, from, to);
  ASSERT_TRUE(found);
  ASSERT_EQ(found->size(), wanted.size());
  for (size_t i = 0; i < wanted.size(); ++i)
    if (std::isnan(wanted[i]))
      EXPECT_TRUE(std::isnan((*found)[i])) << i << ": " << (*found)[i];
    else
      EXPECT_TRUE((*found)[i] == wanted[i] && std::signbit((*found)[i]) == std::signbit(wanted[i]))
          << i << ": " << (*found)[i] << " instead of " << wanted[i];
}

/// One operation of two operands, or of one, in one type.
inline void expectOp(const std::string &op, const std::string &type, const std::vector<double> &x,
              const std::vector<double> &y, const std::vector<double> &wanted) {
  expectFolded("%r = " + op + " %x" + (y.empty() ? "" : ", %y") + " : " + type, x,
               y.empty() ? x : y, type, type, wanted);
}


inline std::optional<std::vector<double>> resultOf(const std::string &text) {
  Program program(text);
  program.fold();
  std::optional<ConstantView> view = program.constant();
  return view ? std::optional(numbers(*view)) : std::nullopt;
}

inline std::string maps(const std::vector<std::string> &all) {
  std::string text;
  for (const std::string &map : all)
    text += (text.empty() ? "affine_map<" : ", affine_map<") + map + ">";
  return "indexing_maps = [" + text + "]";
}

} // namespace millrace
