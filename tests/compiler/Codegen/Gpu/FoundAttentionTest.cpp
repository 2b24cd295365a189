// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Attention as models have it, found at the tensor level: one kernel with the values of the
// reference, on a CPU and on the emulator; and what must not be taken for one.
#include "compiler/Codegen/Gpu/Attention/FindAttention.h"
#include "compiler/Codegen/Gpu/Kernels/HostKernels.h"
#include "compiler/Codegen/Gpu/Ptx/Ptxas.h"
#include "tests/compiler/Codegen/Gpu/Parsed.h"

#include "llvm/ADT/APFloat.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <random>

using namespace millrace;
using namespace millrace::gpu;
using testing::ElementsAre;
using testing::HasSubstr;

namespace {

/// What is done to the scores, by name.
enum class Mask : uint8_t { None, Given, Additive, Indices, GuardedInfinity, PerHead };

/// Tensors are Q[b, q, h, d], K[b, k, kh, d], V[b, k, kh, v] where tokens come first, else with
/// heads before tokens. h = kh * group.
struct Model {
  const char *name;
  int64_t b = 1, kh = 1, group = 1, q = 1, k = 16, d = 16, v = 16;
  bool tokensFirst = true;
  Mask mask = Mask::None;
  double softcap = 0;
  bool sinks = false;
  bool reciprocal = false; ///< weights are products with 1 / sum
};

const std::vector<Model> kModels = {
    {"an encoder", 2, 3, 1, 17, 17, 16, 16},
    {"heads first", 1, 4, 1, 33, 20, 24, 8, false},
    {"a mask that is given", 1, 2, 1, 20, 20, 16, 16, true, Mask::Given},
    {"a mask that is added", 2, 2, 1, 9, 40, 32, 32, true, Mask::Additive},
    {"causal by indices", 1, 2, 1, 35, 35, 16, 16, true, Mask::Indices},
    {"rows of nothing but infinity", 1, 2, 1, 18, 18, 16, 16, true, Mask::GuardedInfinity},
    {"a bias of heads and keys", 1, 4, 1, 10, 50, 16, 16, false, Mask::PerHead},
    {"grouped heads", 1, 2, 4, 12, 12, 16, 16, true, Mask::Given},
    {"grouped heads, decoding", 1, 2, 4, 1, 70, 64, 64, false, Mask::Additive},
    {"softcap", 1, 1, 2, 12, 30, 16, 16, true, Mask::Given, 3},
    {"sinks", 1, 2, 4, 12, 12, 64, 64, true, Mask::Given, 0, true},
    {"sinks, decoding", 2, 2, 2, 1, 33, 16, 16, false, Mask::Additive, 0, true},
    {"long rows", 1, 1, 1, 5, 40, 200, 160, false},
    {"a reciprocal", 1, 2, 1, 7, 9, 8, 24, true, Mask::None, 0, false, true},
    {"one query and head", 1, 1, 1, 1, 5, 16, 16},
    {"sixty-four rows, eight keys", 1, 1, 1, 64, 8, 16, 16},
};

std::string type(std::vector<int64_t> shape, const char *element = "f32") {
  std::string text = "tensor<";
  for (int64_t size : shape)
    text += std::to_string(size) + "x";
  return text + element + ">";
}

/// Text of a function, an operation after the other.
class Text {
public:
  std::string body;

  std::string name() { return "%" + std::to_string(count++); }
  /// A map of tensors, each with its index as text over d0, d1 ...; the result has all loops.
  std::string map(std::vector<int64_t> shape, const std::vector<std::array<std::string, 3>> &inputs,
                  const std::string &code, const char *element = "f32") {
    std::string dims, maps, values, types, arguments, kinds;
    for (size_t i = 0; i < shape.size(); ++i) {
      dims += (i ? ", d" : "d") + std::to_string(i);
      kinds += i ? ", \"parallel\"" : "\"parallel\"";
    }
    for (size_t i = 0; i < inputs.size(); ++i) {
      const auto &[value, of, index] = inputs[i];
      maps += "affine_map<(" + dims + ") -> (" + index + ")>, ";
      values += (i ? ", " : "") + value;
      types += (i ? ", " : "") + of;
      const std::string scalar = of.substr(of.rfind('x') + 1);
      arguments += "%a" + std::to_string(i) + ": " + scalar.substr(0, scalar.size() - 1) + ", ";
    }
    const std::string result = type(shape, element), init = name(), made = name();
    body += init + " = tensor.empty() : " + result + "\n" + made +
            " = linalg.generic {indexing_maps = [" + maps + "affine_map<(" + dims + ") -> (" +
            dims + ")>], iterator_types = [" + kinds + "]} " +
            (inputs.empty() ? "" : "ins(" + values + " : " + types + ") ") + "outs(" + init +
            " : " + result + ") {\n^bb0(" + arguments + "%o: " + element + "):\n" + code +
            "\n} -> " + result + "\n";
    return made;
  }
  std::string filled(std::vector<int64_t> shape, const std::string &constant) {
    const std::string init = name(), made = name();
    body += init + " = tensor.empty() : " + type(shape) + "\n" + made + " = linalg.fill ins(" +
            constant + " : f32) outs(" + init + " : " + type(shape) + ") -> " + type(shape) + "\n";
    return made;
  }
  /// Along the last of four dimensions.
  std::string reduce(const std::string &value, std::vector<int64_t> shape, const char *op,
                     const std::string &first) {
    std::vector<int64_t> rows(shape.begin(), shape.end() - 1);
    const std::string init = filled(rows, first), made = name();
    body += made +
            " = linalg.generic {indexing_maps = [affine_map<(d0, d1, d2, d3) -> (d0, d1, d2, d3)>, "
            "affine_map<(d0, d1, d2, d3) -> (d0, d1, d2)>], iterator_types = [\"parallel\", "
            "\"parallel\", \"parallel\", \"reduction\"]} ins(" +
            value + " : " + type(shape) + ") outs(" + init + " : " + type(rows) +
            ") {\n^bb0(%a: f32, %o: f32):\n%x = " + op +
            " %o, %a : f32\nlinalg.yield %x : f32\n} -> " + type(rows) + "\n";
    return made;
  }

private:
  unsigned count = 0;
};

/// Without sinks the plain softmax; with them what exporters write of a row that is longer by one,
/// whose maximum is subtracted before the softmax subtracts it again.
std::string softmax(Text &text, const Model &m, std::string scores, int64_t heads) {
  std::vector<int64_t> all = {m.b, heads, m.q, m.k};
  const std::string identity = "d0, d1, d2, d3", rowOf = "d0, d1, d2";
  const auto rowType = [&] { return type({m.b, heads, m.q}); };
  const auto subtract = [&](const std::string &code) {
    const std::string most = text.reduce(scores, all, "arith.maximumf", "%low");
    return text.map(all, {{scores, type(all), identity}, {most, rowType(), rowOf}}, code);
  };
  if (m.sinks) {
    const std::string last =
        text.map({m.b, heads, m.q, 1}, {{"%sinks", type({heads}), "d1"}}, "linalg.yield %a0 : f32");
    const std::string joined = text.name();
    std::vector<int64_t> longer = {m.b, heads, m.q, m.k + 1};
    text.body += joined + " = tensor.concat dim(3) " + scores + ", " + last + " : (" + type(all) +
                 ", " + type({m.b, heads, m.q, 1}) + ") -> " + type(longer) + "\n";
    scores = joined;
    all = longer;
    scores = subtract("%x = arith.subf %a0, %a1 : f32\nlinalg.yield %x : f32");
  }
  const std::string weights =
      subtract("%x = arith.subf %a0, %a1 : f32\n%y = math.exp %x : f32\nlinalg.yield %y : f32");
  std::string sum = text.reduce(weights, all, "arith.addf", "%zero"), op = "arith.divf";
  if (m.reciprocal) {
    sum = text.map({m.b, heads, m.q}, {{sum, rowType(), "d0, d1, d2"}},
                   "%x = arith.divf %one, %a0 : f32\nlinalg.yield %x : f32");
    op = "arith.mulf";
  }
  std::string quotient = text.map(all, {{weights, type(all), identity}, {sum, rowType(), rowOf}},
                                  "%x = " + op + " %a0, %a1 : f32\nlinalg.yield %x : f32");
  if (m.mask == Mask::GuardedInfinity)
    quotient = text.map(all, {{quotient, type(all), identity}},
                        "%x = arith.cmpf uno, %a0, %a0 : f32\n%y = arith.select %x, %zero, %a0 : "
                        "f32\nlinalg.yield %y : f32");
  if (!m.sinks)
    return quotient;
  const std::string sliced = text.name(), most = type({m.b, heads, m.q, m.k});
  text.body += sliced + " = tensor.extract_slice " + quotient + "[0, 0, 0, 0] [" +
               std::to_string(m.b) + ", " + std::to_string(heads) + ", " + std::to_string(m.q) +
               ", " + std::to_string(m.k) + "] [1, 1, 1, 1] : " + type(all) + " to " + most + "\n";
  return sliced;
}

std::vector<std::vector<int64_t>> shapesOf(const Model &m) {
  const int64_t h = m.kh * m.group;
  std::vector<std::vector<int64_t>> shapes;
  const std::array<int64_t, 3> tensors[] = {{h, m.q, m.d}, {m.kh, m.k, m.d}, {m.kh, m.k, m.v}};
  for (const auto &[heads, tokens, depth] : tensors)
    shapes.push_back(m.tokensFirst ? std::vector<int64_t>{m.b, tokens, heads, depth}
                                   : std::vector<int64_t>{m.b, heads, tokens, depth});
  if (m.mask == Mask::Additive)
    shapes.push_back({m.b, 1, 1, m.k});
  else if (m.mask == Mask::PerHead)
    shapes.push_back({h, m.k});
  else
    shapes.push_back({m.q, m.k}); // of which i1 is made
  shapes.push_back({h});
  return shapes;
}

/// K or V with a copy of each head for every one of a group.
std::string repeated(Text &text, const Model &m, const std::string &value, int64_t depth) {
  const std::string wide =
      text.map({m.b, m.kh, m.group, m.k, depth},
               {{value,
                 type(m.tokensFirst ? std::vector<int64_t>{m.b, m.k, m.kh, depth}
                                    : std::vector<int64_t>{m.b, m.kh, m.k, depth}),
                 m.tokensFirst ? "d0, d3, d1, d4" : "d0, d1, d3, d4"}},
               "linalg.yield %a0 : f32");
  const std::string narrow = text.name();
  text.body += narrow + " = tensor.collapse_shape " + wide +
               " [[0, 1, 2], [3], [4]] : " + type({m.b, m.kh, m.group, m.k, depth}) + " into " +
               type({m.b * m.kh * m.group, m.k, depth}) + "\n";
  return narrow;
}

std::string functionOf(const Model &m, const std::string &replaced = {},
                       const std::string &with = {}) {
  Text text;
  const int64_t h = m.kh * m.group;
  const auto shapes = shapesOf(m);
  const std::string turned =
      text.map({m.b, h, m.q, m.d},
               {{"%q", type(shapes[0]), m.tokensFirst ? "d0, d2, d1, d3" : "d0, d1, d2, d3"}},
               "linalg.yield %a0 : f32");
  const std::string q = text.name(), k = repeated(text, m, "%k", m.d),
                    v = repeated(text, m, "%v", m.v);
  text.body += q + " = tensor.collapse_shape " + turned +
               " [[0, 1], [2], [3]] : " + type({m.b, h, m.q, m.d}) + " into " +
               type({m.b * h, m.q, m.d}) + "\n";
  const std::string keys =
      text.map({m.b * h, m.d, m.k}, {{k, type({m.b * h, m.k, m.d}), "d0, d2, d1"}},
               "linalg.yield %a0 : f32");
  const std::string begin = text.filled({m.b * h, m.q, m.k}, "%zero"), flat = text.name(),
                    scores = text.name();
  text.body += flat + " = linalg.batch_matmul ins(" + q + ", " + keys + " : " +
               type({m.b * h, m.q, m.d}) + ", " + type({m.b * h, m.d, m.k}) + ") outs(" + begin +
               " : " + type({m.b * h, m.q, m.k}) + ") -> " + type({m.b * h, m.q, m.k}) + "\n" +
               scores + " = tensor.expand_shape " + flat + " [[0, 1], [2], [3]] output_shape [" +
               std::to_string(m.b) + ", " + std::to_string(h) + ", " + std::to_string(m.q) + ", " +
               std::to_string(m.k) + "] : " + type({m.b * h, m.q, m.k}) + " into " +
               type({m.b, h, m.q, m.k}) + "\n";
  std::vector<std::array<std::string, 3>> inputs = {
      {scores, type({m.b, h, m.q, m.k}), "d0, d1, d2, d3"}};
  std::string code = "%s = arith.mulf %a0, %scale : f32\n", last = "%s";
  if (m.softcap) {
    code +=
        "%p = arith.divf %s, %cap : f32\n%t = math.tanh %p : f32\n%u = arith.mulf %t, %cap : f32\n";
    last = "%u";
  }
  const std::string add = "%m = arith.addf " + last + ", %a1 : f32\n";
  const std::string low = m.mask == Mask::GuardedInfinity ? "%low" : "%lowest";
  switch (m.mask) {
  case Mask::None:
    code += "%m = arith.addf " + last + ", %zero : f32\n";
    break;
  case Mask::Given:
  case Mask::GuardedInfinity: {
    const std::string flags =
        text.map({1, 1, m.q, m.k}, {{"%mask", type({m.q, m.k}), "d2, d3"}},
                 "%x = arith.cmpf ogt, %a0, %half : f32\nlinalg.yield %x : i1", "i1");
    inputs.push_back({flags, type({1, 1, m.q, m.k}, "i1"), "0, 0, d2, d3"});
    code += "%m = arith.select %a1, " + last + ", " + low + " : f32\n";
    break;
  }
  case Mask::Additive:
    inputs.push_back({"%mask", type({m.b, 1, 1, m.k}), "d0, 0, 0, d3"});
    code += add;
    break;
  case Mask::PerHead:
    inputs.push_back({"%mask", type({h, m.k}), "d1, d3"});
    code += add;
    break;
  case Mask::Indices:
    code +=
        "%i = linalg.index 2 : index\n%j = linalg.index 3 : index\n%c = arith.cmpi sle, %j, %i : "
        "index\n%m = arith.select %c, " +
        last + ", " + low + " : f32\n";
    break;
  }
  const std::string masked = text.map({m.b, h, m.q, m.k}, inputs, code + "linalg.yield %m : f32");
  const std::string weights = softmax(text, m, masked, h), rows = text.name(), out = text.name();
  const std::string zero = text.filled({m.b * h, m.q, m.v}, "%zero");
  text.body += rows + " = tensor.collapse_shape " + weights +
               " [[0, 1], [2], [3]] : " + type({m.b, h, m.q, m.k}) + " into " +
               type({m.b * h, m.q, m.k}) + "\n" + out + " = linalg.batch_matmul ins(" + rows +
               ", " + v + " : " + type({m.b * h, m.q, m.k}) + ", " + type({m.b * h, m.k, m.v}) +
               ") outs(" + zero + " : " + type({m.b * h, m.q, m.v}) + ") -> " +
               type({m.b * h, m.q, m.v}) + "\n";
  std::string all =
      "func.func @main(%q: " + type(shapes[0]) + ", %k: " + type(shapes[1]) +
      ", %v: " + type(shapes[2]) + ", %mask: " + type(shapes[3]) + ", %sinks: " + type(shapes[4]) +
      ") -> " + type({m.b * h, m.q, m.v}) +
      " {\n%zero = arith.constant 0.0 : f32\n%one = arith.constant 1.0 : f32\n%half = "
      "arith.constant -1.0 : f32\n%low = arith.constant 0xFF800000 : f32\n%lowest = "
      "arith.constant -3.40282347E+38 : f32\n%scale = arith.constant 0.25 : f32\n%cap = "
      "arith.constant " +
      std::to_string(m.softcap ? m.softcap : 1) + " : f32\n" + text.body + "return " + out + " : " +
      type({m.b * h, m.q, m.v}) + "\n}";
  if (!replaced.empty()) {
    const size_t found = all.find(replaced);
    EXPECT_NE(found, std::string::npos) << replaced;
    all.replace(found, replaced.size(), with);
  }
  return all;
}

/// Numbers that f16 holds, so that rounding operands changes none.
HostTensor draw(const std::vector<int64_t> &shape, unsigned seed) {
  HostTensor tensor = HostTensor::zeros(HostType::Float32, shape);
  std::minstd_rand random(seed + 1);
  std::uniform_real_distribution<float> numbers(-1.5, 1.5);
  auto *data = reinterpret_cast<float *>(tensor.data.data());
  for (int64_t i = 0; i < tensor.elementCount(); ++i)
    data[i] = std::round(numbers(random) * 256) / 256;
  return tensor;
}

std::vector<HostTensor> inputsOf(const Model &m) {
  std::vector<HostTensor> inputs;
  for (const auto &shape : shapesOf(m))
    inputs.push_back(draw(shape, unsigned(inputs.size())));
  if (m.mask == Mask::GuardedInfinity) // a row without any key
    std::fill_n(reinterpret_cast<float *>(inputs[3].data.data()), m.k, -2.0f);
  return inputs;
}

/// Relative L2 error; infinite if a number is none in one alone.
double errorOf(const HostTensor &x, const HostTensor &wanted) {
  const auto *a = reinterpret_cast<const float *>(x.data.data());
  const auto *b = reinterpret_cast<const float *>(wanted.data.data());
  double differences = 0, squares = 0;
  for (int64_t i = 0; i < x.elementCount(); ++i) {
    if (std::isnan(a[i]) != std::isnan(b[i]))
      return INFINITY;
    if (std::isnan(a[i]))
      continue;
    differences += std::pow(double(a[i]) - b[i], 2);
    squares += std::pow(double(b[i]), 2);
  }
  return std::sqrt(differences / squares);
}

/// As AttentionTest bounds it, twice what is fp32: the reference rounds, too. `depth`: products of
/// a score.
double bound(const Model &m) {
  return std::ldexp(1, -11) +
         2 * std::ldexp(64 + 2 * std::sqrt(double(m.k)) + 2 * std::sqrt(double(m.d)), -24);
}

TEST(FoundAttention, OfModelsIsOneKernelWithTheReferencesValues) {
  for (const Model &m : kModels) {
    SCOPED_TRACE(m.name);
    Parsed parsed(functionOf(m));
    ASSERT_TRUE(parsed.module) << functionOf(m);
    const std::vector<HostTensor> inputs = inputsOf(m);
    auto reference = runReference(*parsed.module, inputs);
    ASSERT_TRUE(reference) << reference.error();
    for (Device device : {Device::Cpu, Device::Emulated}) {
      SCOPED_TRACE(device == Device::Cpu ? "cpu" : "emulated");
      auto kernels = HostKernels::create(*parsed.module, "main", KernelOptions{device, "f16"});
      ASSERT_TRUE(kernels) << kernels.error();
      EXPECT_THAT(kernels->summary().notes, ElementsAre());
      EXPECT_THAT(kernels->summary().left, ElementsAre());
      EXPECT_THAT(kernels->summary().launches, testing::Contains("attention_1").Times(1));
      for (const std::string &kernel : kernels->summary().launches)
        EXPECT_THAT(kernel, testing::Not(HasSubstr("reduce"))) << "a part of it is computed apart";
      const Adversary adversary = {Landing::Late, Landing::Late, Landing::Late, 3};
      auto results = kernels->run(std::vector<HostView>(inputs.begin(), inputs.end()), adversary);
      ASSERT_TRUE(results) << results.error();
      EXPECT_LT(errorOf(results->at(0), reference->at(0)), bound(m));
    }
  }
}

/// A change of a function after which it is no softmax of scores times values any more, or none
/// that the kernel computes, and what is said of it; nothing where it does not look like one.
struct Change {
  const char *replaced, *with, *said;
};

TEST(FoundAttention, OfSomethingElseIsLeftWithTheReason) {
  Model plain{"", 1, 2, 1, 12, 12, 16, 16, true, Mask::Given};
  plain.reciprocal = true;
  const std::vector<Change> changes = {
      {"%x = arith.mulf %a0, %a1 : f32\nlinalg.yield %x",
       "%x = arith.addf %a0, %a1 : f32\nlinalg.yield %x",
       "weights are no quotient of an exponential"},
      {"%x = arith.divf %one, %a0", "%x = arith.divf %half, %a0",
       "weights are no quotient of an exponential"},
      {"%x = arith.addf %o, %a : f32", "%x = arith.mulf %o, %a : f32",
       "combines scores as no sum and no maximum"},
      {"%y = math.exp %x", "%y = math.exp2 %x", ""},
      {"linalg.fill ins(%low : f32)", "linalg.fill ins(%scale : f32)",
       "begins with another number"},
      {"linalg.fill ins(%zero : f32)", "linalg.fill ins(%scale : f32)", ""},
  };
  for (const Change &change : changes) {
    SCOPED_TRACE(change.with);
    Parsed parsed(functionOf(plain, change.replaced, change.with));
    ASSERT_TRUE(parsed.module);
    std::vector<LeftAttention> left;
    auto function = parsed.module->lookupSymbol<mlir::func::FuncOp>("main");
    EXPECT_TRUE(findAttention(function, &left).empty());
    if (*change.said) {
      ASSERT_EQ(left.size(), 1u);
      EXPECT_THAT(left[0].why, HasSubstr(change.said));
    } else {
      EXPECT_TRUE(left.empty());
    }
  }
}

// A sink that is shifted otherwise than the scores would count more or less.
TEST(FoundAttention, WithASumOfOtherWeightsIsLeft) {
  const Model sinks{"", 1, 1, 1, 6, 9, 16, 16, true, Mask::Given, 0, true};
  Parsed parsed(functionOf(sinks, "linalg.yield %x : f32\n} -> tensor<1x1x6x10xf32>",
                           "%z = arith.mulf %x, %x : f32\nlinalg.yield %z : f32\n} -> "
                           "tensor<1x1x6x10xf32>"));
  ASSERT_TRUE(parsed.module);
  std::vector<LeftAttention> left;
  auto function = parsed.module->lookupSymbol<mlir::func::FuncOp>("main");
  EXPECT_TRUE(findAttention(function, &left).empty());
  ASSERT_EQ(left.size(), 1u);
  EXPECT_THAT(left[0].why, HasSubstr("depend on a combination of their row"));
}

TEST(FoundAttention, WithRowsTooLongForRegistersIsComputedByOtherKernels) {
  const Model deep{"", 1, 1, 1, 3, 5, 300, 16};
  Parsed parsed(functionOf(deep));
  ASSERT_TRUE(parsed.module);
  mlir::ScopedDiagnosticHandler quiet(&parsed.context,
                                      [](mlir::Diagnostic &) { return mlir::success(); });
  auto kernels = HostKernels::create(*parsed.module, "main", KernelOptions{Device::Cpu, "f16"});
  ASSERT_TRUE(kernels) << kernels.error();
  ASSERT_EQ(kernels->summary().notes.size(), 1u);
  EXPECT_THAT(kernels->summary().notes[0], HasSubstr("a depth of 300; give at most 256"));
  const std::vector<HostTensor> inputs = inputsOf(deep);
  auto reference = runReference(*parsed.module, inputs);
  auto results = kernels->run(std::vector<HostView>(inputs.begin(), inputs.end()));
  ASSERT_TRUE(reference && results);
  EXPECT_LT(errorOf(results->at(0), reference->at(0)), std::ldexp(1, -18));
}

// Rows without any key that nothing guards are NaN in the model, and so they are here.
TEST(FoundAttention, OfUnguardedRowsOfInfinityIsNotANumber) {
  Model model{"", 1, 1, 1, 4, 6, 16, 16, true, Mask::GuardedInfinity};
  const std::string guard = "%y = arith.select %x, %zero, %a0 : f32";
  for (bool isGuarded : {true, false}) {
    Parsed parsed(isGuarded ? functionOf(model)
                            : functionOf(model, guard, "%y = arith.addf %a0, %zero : f32"));
    ASSERT_TRUE(parsed.module);
    if (!isGuarded) // what looks at the weights for no reason is no part of a softmax
      parsed.module->walk([](mlir::arith::AddFOp add) {
        if (add->getBlock()->getNumArguments() == 2 && add->getPrevNode() &&
            mlir::isa<mlir::arith::CmpFOp>(add->getPrevNode()))
          add->replaceAllUsesWith(mlir::ValueRange{add.getLhs()});
      });
    auto kernels =
        HostKernels::create(*parsed.module, "main", KernelOptions{Device::Emulated, "f16"});
    ASSERT_TRUE(kernels) << kernels.error();
    EXPECT_THAT(kernels->summary().launches, testing::Contains("attention_1"));
    const std::vector<HostTensor> inputs = inputsOf(model);
    auto results = kernels->run(std::vector<HostView>(inputs.begin(), inputs.end()));
    ASSERT_TRUE(results) << results.error();
    const auto *row = reinterpret_cast<const float *>(results->at(0).data.data());
    for (int64_t i = 0; i < model.v; ++i)
      EXPECT_TRUE(isGuarded ? row[i] == 0 : std::isnan(row[i]));
    EXPECT_FALSE(std::isnan(row[model.v])) << "the second row has keys";
  }
}

} // namespace
