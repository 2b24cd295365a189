// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "tests/contract/Recipe.h"

#include <algorithm>
#include <sstream>

namespace millrace::test {

int64_t Value::elements() const {
  int64_t count = 1;
  for (int64_t extent : shape)
    count *= extent;
  return count;
}

namespace {

using Made = std::optional<Value>;

Made startOf(const Step &n) {
  const auto type = ElementType(n("type", int64_t(ElementType::Fp16)));
  if (n("height", 0))
    return Value{type, {1, n("lanes"), n("height"), n("width")}};
  if (n("batch", 0))
    return Value{type, {n("batch"), n("rows"), n("lanes")}};
  return Value{type, {n("rows"), n("lanes")}};
}

/// The product of x [(b,) m, k] and y [(b,) n, k]: [(b,) m, n].
Made productOf(const Value &x, const Value &y, int64_t &macs) {
  const size_t rank = x.shape.size();
  if (rank == 4 || y.shape.size() != rank || x.type != y.type || x.lanes() != y.lanes() ||
      (rank == 3 && x.shape[0] != y.shape[0]))
    return {};
  Value made = x;
  made.shape.back() = y.shape[rank - 2];
  macs = made.elements() * x.lanes();
  return made;
}

int64_t windowsIn(int64_t size, int64_t kernel, int64_t stride, int64_t dilation, int64_t pad) {
  const int64_t rest = size + 2 * pad - (kernel - 1) * dilation - 1;
  return rest < 0 || pad >= (kernel - 1) * dilation + 1 ? 0 : rest / stride + 1;
}

Made convOf(const Step &n, const std::vector<Value> &in, int64_t &macs) {
  const Value &x = in[0];
  const int64_t groups = n("groups") ? n("groups") : x.shape[1], d = n("dilation");
  if (x.shape.size() != 4 || x.shape[1] % groups || n("lanes") % groups)
    return {};
  Value made{x.type,
             {1, n("lanes"), windowsIn(x.shape[2], n("height"), n("stride"), d, n("pad", 0)),
              windowsIn(x.shape[3], n("width"), n("stride"), d, n("pad", 0))}};
  if (in.size() == 2 && in[1] != made) // the residual
    return {};
  macs = made.elements() * (x.shape[1] / groups) * n("height") * n("width");
  return made;
}

Made poolOf(const Step &n, const Value &x) {
  if (x.shape.size() != 4)
    return {};
  return Value{x.type,
               {1, x.shape[1], windowsIn(x.shape[2], n("height"), n("stride"), 1, n("pad", 0)),
                windowsIn(x.shape[3], n("width"), n("stride"), 1, n("pad", 0))}};
}

Made concatOf(const std::vector<Value> &in) {
  const size_t dim = in[0].shape.size() == 4 ? 2 : in[0].shape.size() - 2;
  Value made = in[0], other = in[1];
  if (other.shape.size() != made.shape.size())
    return {};
  const int64_t rows = made.shape[dim] + other.shape[dim];
  made.shape[dim] = other.shape[dim] = rows;
  return made == other ? Made(made) : Made();
}

bool isFloat(const Value &v) { return v.type == ElementType::Fp16 || v.type == ElementType::Bf16; }

/// Of parts of the lanes, each over all rows or pixels: a row for each part.
Made partSumsOf(const Step &n, const Value &x, int64_t &macs) {
  if (x.shape.size() == 3 || x.lanes() % n("parts"))
    return {};
  macs = x.elements() * n("lanes");
  return Value{x.type, {n("parts"), n("lanes")}};
}

/// Steps on matrices.
Made matrixStepOf(const std::string &op, const Step &n, const std::vector<Value> &in,
                  int64_t &macs) {
  const Value &x = in[0];
  if (op == "flatten")
    return x.shape.size() == 4 ? Made(Value{x.type, {x.shape[2] * x.shape[3], x.shape[1]}})
                               : Made();
  if (x.shape.size() != 2)
    return {};
  const int64_t rows = x.shape[0], lanes = x.shape[1];
  if (op == "unflatten")
    return rows % n("height") ? Made()
                              : Made(Value{x.type, {1, lanes, n("height"), rows / n("height")}});
  if (op == "lanes") {
    macs = x.elements() * n("lanes");
    return n("from", 0) + n("lanes") <= lanes ? Made(Value{x.type, {rows, n("lanes")}}) : Made();
  }
  if (op == "swapped" || op == "transpose") {
    const int64_t most = op == "swapped" ? n("rows") : lanes;
    macs = x.elements() * most;
    return Value{x.type, {most, rows}};
  }
  if (op == "sums") {
    macs = x.elements() * lanes;
    return x;
  }
  if (!isFloat(x))
    return {};
  macs = op == "softmax" ? rows * lanes * std::max(rows, lanes) : x.elements() * lanes;
  return x; // softmax, layernorm
}

Made linearOf(const Step &n, const Value &x, int64_t &macs) {
  if (x.shape.size() == 4)
    return {};
  Value made = x;
  made.shape.back() = n("lanes");
  macs = x.elements() * n("lanes");
  return made;
}

Made made(const Step &step, const std::vector<Value> &in, int64_t &macs) {
  const Step &n = step;
  const std::string &op = step.operation;
  if (op == "input" || op == "constant")
    return in.empty() ? startOf(n) : Made();
  if (op == "embedding")
    return in.empty() && n("table") >= 1 ? Made(Value{ElementType::Fp16, {n("rows"), n("lanes")}})
                                         : Made();
  if (in.empty())
    return {};
  const Value &x = in[0];
  const bool two = in.size() == 2;
  if (op == "conv" && in.size() <= 2)
    return convOf(n, in, macs);
  if (op == "zip")
    return two && in[1] == x ? Made(x) : Made();
  if (op == "product")
    return two ? productOf(x, in[1], macs) : Made();
  if (op == "concat")
    return two ? concatOf(in) : Made();
  if (two)
    return {};
  if (op == "linear")
    return linearOf(n, x, macs);
  if (op == "map" || op == "affine" || op == "parts")
    return x;
  if (op == "convert")
    return Value{ElementType(n("type")), x.shape};
  if (op == "pool")
    return poolOf(n, x);
  if (op == "partsums")
    return partSumsOf(n, x, macs);
  if (op == "reduce") {
    Value v = x;
    for (size_t dim = 0; dim < v.shape.size(); ++dim)
      v.shape[dim] = dim == v.laneDim() || (v.shape.size() == 3 && dim == 0) ? v.shape[dim] : 1;
    return v;
  }
  if (op == "window") {
    Value v = x;
    v.shape[v.shape.size() == 4 ? 2 : v.shape.size() - 2] = n("rows");
    return v;
  }
  return matrixStepOf(op, n, in, macs);
}

} // namespace

std::optional<Value> valueOf(const Step &step, const std::vector<Value> &operands, int64_t *macs) {
  int64_t needed = 0;
  for (const auto &[name, number] : step.numbers)
    if (number < 0 && name != "from")
      return std::nullopt;
  for (const char *name :
       {"lanes", "rows", "height", "width", "stride", "dilation", "batch", "parts"})
    if (auto it = step.numbers.find(name); it != step.numbers.end() && it->second < 1)
      return std::nullopt;
  Made value = made(step, operands, needed);
  if (macs)
    *macs = needed;
  if (!value || value->elements() > kMostElements || needed > kMostMacs)
    return std::nullopt;
  for (int64_t extent : value->shape)
    if (extent < 1)
      return std::nullopt;
  return value;
}

Expected<std::vector<Value>> valuesOf(const Recipe &recipe) {
  std::vector<Value> values;
  for (const Step &step : recipe.steps) {
    std::vector<Value> operands;
    for (unsigned o : step.operands) {
      if (o >= values.size())
        return Error{"step " + std::to_string(values.size()) + " reads the later step " +
                     std::to_string(o)};
      operands.push_back(values[o]);
    }
    const std::optional<Value> value = valueOf(step, operands, nullptr);
    if (!value)
      return Error{"step " + std::to_string(values.size()) + ", " + step.operation +
                   ", cannot be made of its operands"};
    values.push_back(*value);
  }
  for (unsigned o : recipe.outputs)
    if (o >= values.size())
      return Error{"output " + std::to_string(o) + " is no step"};
  return values;
}

std::string print(const Recipe &recipe) {
  std::string text;
  for (size_t s = 0; s < recipe.steps.size(); ++s) {
    const Step &step = recipe.steps[s];
    text += std::to_string(s) + " " + step.operation;
    for (unsigned o : step.operands)
      text += " " + std::to_string(o);
    for (const auto &[name, number] : step.numbers)
      text += " " + name + "=" +
              (name == "type" ? nameOf(ElementType(number)) : std::to_string(number));
    text += "\n";
  }
  for (unsigned o : recipe.outputs)
    text += "out " + std::to_string(o) + "\n";
  if (recipe.simplified)
    text += "simplify\n";
  return text;
}

static int64_t numberFrom(const std::string &text) {
  for (unsigned type = 0; type < kElementTypes; ++type)
    if (text == nameOf(ElementType(type)))
      return type;
  return std::stoll(text);
}

Status parseLine(const std::string &line, Recipe &recipe) {
  std::istringstream words(line);
  std::string word;
  words >> word;
  try {
    if (word == "out") {
      words >> word;
      recipe.outputs.push_back(unsigned(std::stoul(word)));
      return Success{};
    }
    if (word == "simplify") {
      recipe.simplified = true;
      return Success{};
    }
    if (std::stoul(word) != recipe.steps.size())
      return Error{"'" + line + "': expected step " + std::to_string(recipe.steps.size())};
    Step step;
    words >> step.operation;
    while (words >> word)
      if (const size_t equals = word.find('='); equals != word.npos)
        step.numbers[word.substr(0, equals)] = numberFrom(word.substr(equals + 1));
      else
        step.operands.push_back(unsigned(std::stoul(word)));
    recipe.steps.push_back(std::move(step));
    return Success{};
  } catch (const std::exception &) {
    return Error{"'" + line + "' is no step: number, operation, operands, name=number"};
  }
}

} // namespace millrace::test
