// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Folded values against those of the reference executor, on random programs.
#include "tests/compiler/Import/Onnx/FoldProgram.h"

#include "compiler/Reference/Reference.h"

#include <cmath>
#include <cstring>
#include <random>

using namespace millrace;

namespace {

// ---- against the reference executor

/// Bodies of random operations.
class RandomBody {
public:
  explicit RandomBody(unsigned seed) : random(seed) {}

  unsigned below(unsigned n) { return unsigned(random() % n); }
  template <class T> T oneOf(std::vector<T> all) { return all[below(unsigned(all.size()))]; }

  std::string type() { return oneOf<std::string>({"f32", "f64", "f16", "bf16", "i1", "i8", "i16", "i32", "i64"}); }

  double number(const std::string &type) {
    if (type == "i1")
      return below(2);
    if (!isFloat(type))
      return double(below(200)) - 100;
    return (double(below(400)) - 200) / 8;
  }

  void add(const std::string &name, const std::string &type) { values.push_back({name, type}); }

  /// A value of the type, cast from another where there is none.
  std::string valueOf(const std::string &type) {
    std::vector<std::string> fitting;
    for (const auto &[name, its] : values)
      if (its == type)
        fitting.push_back(name);
    return fitting.empty() ? cast(values.back(), type) : oneOf(fitting);
  }

  std::string emit(const std::string &operation, const std::string &type) {
    const std::string name = "%v" + std::to_string(count++);
    text += name + " = " + operation + "\n";
    values.push_back({name, type});
    return name;
  }

  std::string constant(double value, const std::string &type) {
    const std::string name = "%c" + std::to_string(count++);
    text += name + " = arith.constant " + (type == "i1" ? (value ? "true" : "false") : "") +
            (type == "i1" ? "" : std::to_string(int64_t(value)) + (isFloat(type) ? ".0" : "") + " : " + type) + "\n";
    return name;
  }

  static unsigned width(const std::string &type) { return unsigned(std::stoul(type.substr(type.find_first_of("0123456789")))); }

  std::string cast(std::pair<std::string, std::string> value, const std::string &to) {
    auto [name, from] = value;
    const std::string types = " : " + from + " to " + to;
    if (isFloat(from) && isFloat(to)) {
      if (width(to) == 16 && from == "f64")
        return cast({emit("arith.truncf " + name + " : f64 to f32", "f32"), "f32"}, to);
      if (width(to) == width(from))
        return cast({emit("arith.extf " + name + " : " + from + " to f32", "f32"), "f32"}, to);
      return emit((width(to) > width(from) ? "arith.extf " : "arith.truncf ") + name + types, to);
    }
    if (isFloat(from)) {
      const std::string wide = emit("arith.fptosi " + name + " : " + from + " to i64", "i64");
      return to == "i64" ? wide : emit("arith.trunci " + wide + " : i64 to " + to, to);
    }
    if (isFloat(to)) { // small ones: the executor rounds large ones twice on their way to 16 bits
      const std::string narrow = width(from) > 16 ? emit("arith.trunci " + name + " : " + from + " to i16", "i16") : name;
      return emit(oneOf<std::string>({"arith.sitofp ", "arith.uitofp "}) + narrow + " : " +
                      (width(from) > 16 ? "i16" : from) + " to " + to, to);
    }
    if (width(to) < width(from))
      return emit("arith.trunci " + name + types, to);
    return emit(oneOf<std::string>({"arith.extsi ", "arith.extui "}) + name + types, to);
  }

  void addFloatOperation(const std::string &type) {
    const std::string x = valueOf(type), y = valueOf(type);
    const std::string op = oneOf<std::string>({"arith.addf", "arith.subf", "arith.mulf", "arith.divf", "arith.maximumf",
                                  "arith.minimumf", "arith.negf", "math.absf", "math.floor", "math.ceil",
                                  "math.roundeven", "math.sqrt", "cmp"});
    if (op == "cmp") {
      const std::string is = emit("arith.cmpf " + oneOf<std::string>({"oeq", "olt", "ole", "ogt", "oge", "une", "uno",
                                                                        "one", "ult", "uge", "ueq", "ord"}) +
                                      ", " + x + ", " + y + " : " + type, "i1");
      emit("arith.select " + is + ", " + x + ", " + valueOf(type) + " : " + type, type);
      return;
    }
    const bool isUnary = op == "arith.negf" || op.starts_with("math.");
    emit(op + " " + x + (isUnary ? "" : ", " + y) + " : " + type, type);
  }

  void addIntegerOperation(const std::string &type) {
    const std::string x = valueOf(type), y = valueOf(type);
    const std::string op = oneOf<std::string>({"addi", "subi", "muli", "andi", "ori", "xori", "maxsi", "minsi", "maxui", "minui",
                                  "divsi", "divui", "remsi", "remui", "shli", "shrsi", "shrui", "cmp"});
    const bool divides = op.starts_with("div") || op.starts_with("rem"), shifts = op.starts_with("sh");
    if (op == "cmp") {
      const std::string is = emit("arith.cmpi " + oneOf<std::string>({"eq", "ne", "slt", "sle", "sgt", "sge", "ult",
                                                                        "ule", "ugt", "uge"}) +
                                      ", " + x + ", " + y + " : " + type, "i1");
      emit("arith.select " + is + ", " + x + ", " + y + " : " + type, type);
      return;
    }
    if ((divides || shifts) && type == "i1")
      return;
    if (divides && below(2)) { // not chosen where it has no value
      const std::string zero = constant(0, type), minusOne = constant(-1, type);
      const std::string isZero = emit("arith.cmpi eq, " + y + ", " + zero + " : " + type, "i1");
      const std::string isMinusOne = emit("arith.cmpi eq, " + y + ", " + minusOne + " : " + type, "i1");
      const std::string isNone = emit("arith.ori " + isZero + ", " + isMinusOne + " : i1", "i1");
      const std::string quotient = emit("arith." + op + " " + x + ", " + y + " : " + type, type);
      values.pop_back();
      emit("arith.select " + isNone + ", " + x + ", " + quotient + " : " + type, type);
      return;
    }
    std::string right = y;
    if (divides || shifts) { // 1 to 8, or 0 to 7
      right = emit("arith.andi " + y + ", " + constant(7, type) + " : " + type, type);
      if (divides)
        right = emit("arith.addi " + right + ", " + constant(1, type) + " : " + type, type);
    }
    emit("arith." + op + " " + x + ", " + right + " : " + type, type);
  }

  std::mt19937 random;
  std::vector<std::pair<std::string, std::string>> values;
  std::string text;
  unsigned count = 0;
};

/// A constant of `rows` by `columns` random numbers.
std::string randomConstant(RandomBody &random, const std::string &type, int64_t rows, int64_t columns) {
  std::string all;
  for (int64_t i = 0; i < rows; ++i) {
    all += i ? ", [" : "[";
    for (int64_t j = 0; j < columns; ++j) {
      char number[64];
      const double value = random.number(type);
      std::snprintf(number, sizeof(number), isFloat(type) ? "%.3f" : "%.0f", value);
      all += std::string(j ? ", " : "") + (type == "i1" ? (value ? "true" : "false") : number);
    }
    all += "]";
  }
  return "arith.constant dense<[" + all + "]> : tensor<" + std::to_string(rows) + "x" + std::to_string(columns) +
         "x" + type + ">\n";
}

/// One result of @main: a map, or a sum or product over the last loop, of two random tensors that
/// are read in some order of the loops.
struct RandomResult {
  std::string text, type;
};

RandomResult randomResult(RandomBody &random, const std::string &name) {
  random.values.clear();
  random.text.clear();
  const int64_t e[3] = {1 + random.below(5), 2 + random.below(6), 1 + random.below(4)};
  const std::string out = random.type();
  RandomResult result;
  const bool reduces = random.below(2);
  std::string ins, types, arguments, map;
  for (int k = 0; k < 2; ++k) {
    // MLIR wants each loop to be a dimension of some tensor: the last one, of the first if of none else.
    const bool isLast = reduces && k == 0;
    const unsigned a = random.below(3), b = isLast ? 2 : random.below(3), form = isLast ? 0 : random.below(4);
    const std::string type = random.type(), da = "d" + std::to_string(a), db = "d" + std::to_string(b);
    int64_t rows = e[a], columns = e[b];
    std::string at = da + ", " + db;
    if (form == 1)
      at = da + " + " + db + ", 0", rows = e[a] + e[b] - 1, columns = 1;
    if (form == 2)
      at = da + " floordiv 2, " + db + " * 2", rows = (e[a] + 1) / 2, columns = 2 * e[b] - 1;
    if (form == 3)
      at = "0, " + db, rows = 1;
    const std::string tensor = "tensor<" + std::to_string(rows) + "x" + std::to_string(columns) + "x" + type + ">";
    const std::string input = name + "i" + std::to_string(k);
    result.text += input + " = " + randomConstant(random, type, rows, columns);
    ins += (k ? ", " : "") + input;
    types += (k ? ", " : "") + tensor;
    arguments += "%x" + std::to_string(k) + ": " + type + ", ";
    map += "affine_map<(d0, d1, d2) -> (" + at + ")>, ";
    random.add("%x" + std::to_string(k), type);
  }
  const std::string order = random.below(2) ? "d0, d1" : "d1, d0";
  result.type = "tensor<" + std::to_string(order == "d0, d1" ? e[0] : e[1]) + "x" +
                std::to_string(order == "d0, d1" ? e[1] : e[0]) + "x" +
                (reduces ? "" : std::to_string(e[2]) + "x") + out + ">";
  map += "affine_map<(d0, d1, d2) -> (" + order + (reduces ? "" : ", d2") + ")>";
  const std::string loops = reduces ? "\"parallel\", \"parallel\", \"reduction\"" : "\"parallel\", \"parallel\", \"parallel\"";
  if (reduces)
    random.add("%o", out);
  for (unsigned i = 0, n = 1 + random.below(6); i < n; ++i) {
    const std::string type = random.below(3) ? random.oneOf(random.values).second : random.type();
    isFloat(type) ? random.addFloatOperation(type) : random.addIntegerOperation(type);
  }
  std::string last = random.valueOf(out);
  if (reduces)
    last = random.emit((isFloat(out) ? "arith.addf %o, " : "arith.addi %o, ") + last + " : " + out, out);
  result.text += name + "e = tensor.empty() : " + result.type + "\n" + name + "z = arith.constant " +
                 (out == "i1" ? "true" : isFloat(out) ? "0.5 : " + out : "3 : " + out) + "\n" + name +
                 "f = linalg.fill ins(" + name + "z : " + out + ") outs(" + name + "e : " + result.type + ") -> " +
                 result.type + "\n" + name + " = linalg.generic {indexing_maps = [" + map + "], iterator_types = [" +
                 loops + "]} ins(" + ins + " : " + types + ") outs(" + name + "f : " + result.type + ") {\n ^bb0(" +
                 arguments + "%o: " + out + "):\n" + random.text + " linalg.yield " + last + " : " + out + "\n} -> " +
                 result.type + "\n";
  return result;
}

/// Element `i`, NaN as one number.
bool isSame(const ConstantView &found, const HostTensor &wanted, int64_t i) {
  const mlir::Type type = found.type.getElementType();
  const unsigned size = elementBytes(type);
  const char *bytes = found.bytes.data() + (found.splat ? 0 : i * size);
  if (std::memcmp(bytes, wanted.data.data() + i * size, size) == 0)
    return true;
  if (!mlir::isa<mlir::FloatType>(type))
    return false;
  const ConstantView other{found.type,
                           llvm::ArrayRef<char>(reinterpret_cast<const char *>(wanted.data.data()), wanted.data.size()),
                           false, nullptr};
  return std::isnan(found.real(i)) && std::isnan(other.real(i));
}

TEST(FoldedValues, AreThoseOfTheReferenceExecutor) {
  constexpr unsigned modules = 12, results = 25;
  unsigned folded = 0;
  for (unsigned seed = 0; seed < modules; ++seed) {
    RandomBody random(seed);
    std::string body, values, types;
    for (unsigned i = 0; i < results; ++i) {
      const RandomResult result = randomResult(random, "%r" + std::to_string(i) + "_");
      body += result.text;
      values += (i ? ", %r" : "%r") + std::to_string(i) + "_";
      types += (i ? ", " : "") + result.type;
    }
    Program program("func.func @main() -> (" + types + ") {\n" + body + "return " + values + " : " + types + "\n}");
    ASSERT_TRUE(program.module);
    const auto wanted = runReference(*program.module, {});
    ASSERT_TRUE(wanted) << wanted.error();
    program.fold();
    for (unsigned i = 0; i < results; ++i) {
      std::optional<ConstantView> view = program.constant(i);
      if (!view)
        continue; // a number that is too large for an integer
      ++folded;
      for (int64_t k = 0; k < view->type.getNumElements(); ++k)
        if (!isSame(*view, (*wanted)[i], k)) {
          ADD_FAILURE() << "seed " << seed << ", result " << i << ", element " << k;
          break;
        }
    }
  }
  EXPECT_GT(folded, modules * results * 8 / 10);
}

} // namespace
