// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// LSTM, GRU and RNN. The products of all steps with the inputs' weights are one contraction for
// each gate; what is left of a step follows the step before it, so that the steps are written one
// after the other: their number is static, like all else.
#include "compiler/Import/Onnx/Activation.h"
#include "compiler/Import/Onnx/Handlers.h"
#include "compiler/Support/OnnxValue.h"

#include "mlir/IR/Matchers.h"

using namespace mlir;

namespace millrace::onnx_import {
namespace {

enum Input : size_t { X, W, R, B, SequenceLengths, InitialHidden, InitialCell, Peepholes };

/// What one step hands to the next: [batch, hidden]; null where it is 0.
struct State {
  Value hidden, cell;
};

/// A term of what a gate's function is taken of: a value, or the product of two. Null factors make
/// it vanish.
struct Term {
  Value value, factor;
  bool isProduct = false;
};

/// One direction of a recurrent operation.
class Direction {
public:
  Direction(NodeImporter &node, int64_t index, unsigned gates, ArrayRef<Activation> functions)
      : node(node), t(node.t), index(index), gates(gates), functions(functions),
        hidden(node.shape(R)[2]), clip(node.getFloat("clip", 0)) {}

  /// Everything of a gate that does not wait for the step before it, for all steps: the product
  /// with the input and its biases. `both`: that of the recurrent product, too.
  void addGate(Value inputs, bool both) {
    const auto gate = unsigned(projected.size());
    const int64_t rows = shapeOf(inputs)[0] * shapeOf(inputs)[1], width = shapeOf(inputs)[2];
    Value product = multiply(t.reshape(inputs, {rows, width}), weights(W, gate), rows);
    SmallVector<Value> terms{product};
    for (unsigned i = 0; i < (both ? 2u : 1u) && node.has(B); ++i)
      terms.push_back(bias(gate, i));
    if (terms.size() > 1)
      product = t.map(terms, elementTypeOf(product), [](Scalars &s, ValueRange x) {
        Arithmetic a(s);
        return x.size() == 3 ? a.add(x[0], a.add(x[1], x[2])) : a.add(x[0], x[1]);
      });
    projected.push_back(t.reshape(product, {shapeOf(inputs)[0], shapeOf(inputs)[1], hidden}));
  }

  /// The part of `gate` that addGate made, at one step.
  Term input(unsigned gate, int64_t step) {
    const int64_t batch = shapeOf(projected[gate])[1];
    return {t.reshape(t.sliceAxis(projected[gate], 0, step, 1), {batch, hidden}), Value()};
  }

  /// `state` times the gate's recurrent weights.
  Term recurrent(unsigned gate, Value state) {
    return {state ? multiply(state, weights(R, gate), shapeOf(state)[0]) : Value(), Value()};
  }

  /// The bias of the gate's recurrent product.
  Term recurrentBias(unsigned gate) { return {node.has(B) ? bias(gate, 1) : Value(), Value()}; }

  Term peephole(unsigned gate, Value cell) {
    if (!node.has(Peepholes))
      return {};
    Value row = t.slice(node.in(Peepholes), {index, gate * hidden}, {1, hidden});
    return {cell, t.reshape(row, {hidden}), true};
  }

  /// The function `which` of the sum of `terms`.
  Value apply(unsigned which, ArrayRef<Term> terms) {
    SmallVector<Value> values;
    SmallVector<Term> present;
    for (const Term &term : terms)
      if (term.value && (term.factor || !term.isProduct)) {
        present.push_back(term);
        values.push_back(term.value);
        if (term.isProduct)
          values.push_back(term.factor);
      }
    const Activation &function = functions[which];
    return t.map(values, elementTypeOf(values[0]), [&](Scalars &s, ValueRange x) {
      Arithmetic a(s);
      Value sum;
      size_t next = 0;
      for (const Term &term : present) {
        Value value = x[next++];
        if (term.isProduct)
          value = a.mul(value, x[next++]);
        sum = sum ? a.add(sum, value) : value;
      }
      if (clip > 0)
        sum = a.clamp(sum, -clip, clip);
      return function.body(a, sum, function.parameters);
    });
  }

private:
  /// x [rows, k] times the transpose of w [n, k].
  Value multiply(Value x, Value w, int64_t rows) {
    return t.contract(x, w, {rows, shapeOf(w)[0]},
                      {t.select(3, {0, 2}), t.select(3, {1, 2}), t.select(3, {0, 1})}, {2});
  }
  Value weights(size_t input, unsigned gate) {
    const int64_t width = node.shape(input)[2];
    return t.reshape(t.slice(node.in(input), {index, gate * hidden, 0}, {1, hidden, width}),
                     {hidden, width});
  }
  Value bias(unsigned gate, unsigned which) {
    const int64_t from = (which * gates + gate) * hidden;
    return t.reshape(t.slice(node.in(B), {index, from}, {1, hidden}), {hidden});
  }

  NodeImporter &node;
  TensorBuilder &t;
  int64_t index;
  unsigned gates;
  ArrayRef<Activation> functions;
  int64_t hidden;
  double clip;
  SmallVector<Value> projected; ///< per gate [steps, batch, hidden]
};

/// What a step made where the sequence lasts longer than `step`; elsewhere what was before, or 0.
/// `lengths`: [batch, 1].
Value whereLonger(TensorBuilder &t, Value lengths, int64_t step, Value next, Value now) {
  SmallVector<Value> inputs{lengths, next};
  if (now)
    inputs.push_back(now);
  return t.map(inputs, elementTypeOf(next), [&](Scalars &s, ValueRange x) {
    Arithmetic a(s);
    Value isLonger = a.compare(Arithmetic::Order::Less, a.like(x[0], double(step)), x[0]);
    return a.choose(isLonger, x[1], now ? x[2] : a.like(x[1], 0));
  });
}

bool isFloatZero(Value value) {
  DenseElementsAttr constant;
  return matchPattern(value, m_Constant(&constant)) && constant.isSplat() &&
         isa<FloatType>(constant.getElementType()) && constant.getSplatValue<APFloat>().isZero();
}

/// What the operations differ in.
struct Kind {
  unsigned gates, functions;
  std::vector<const char *> defaults; ///< functions of a direction
  size_t states;                      ///< of which the last ones are outputs: 1 or 2
  std::function<bool(NodeImporter &, unsigned gate)> addsBothBiases;
  std::function<State(NodeImporter &, Direction &, const State &, int64_t step)> step;
};

/// The functions of all directions, in order.
Expected<SmallVector<Activation>> functionsOf(NodeImporter &node, const Kind &kind,
                                              int64_t directions) {
  SmallVector<std::string> names;
  if (const onnx::AttributeProto *given = node.attribute("activations"))
    names.assign(given->strings().begin(), given->strings().end());
  else
    for (int64_t i = 0; i < directions; ++i)
      names.append(kind.defaults.begin(), kind.defaults.end());
  if (int64_t(names.size()) != directions * kind.functions)
    return node.error("it has " + std::to_string(names.size()) + " activations where " +
                      std::to_string(directions) + " directions take " +
                      std::to_string(kind.functions) + " each");
  // Given parameters go to the functions that take some, in order.
  const auto parameters = [&](const char *name) {
    const onnx::AttributeProto *given = node.attribute(name);
    return given ? SmallVector<double>(given->floats().begin(), given->floats().end())
                 : SmallVector<double>();
  };
  const SmallVector<double> alphas = parameters("activation_alpha"),
                            betas = parameters("activation_beta");
  size_t alpha = 0, beta = 0;
  SmallVector<Activation> functions;
  for (const std::string &name : names) {
    std::optional<Activation> function = activationNamed(name);
    if (!function)
      return node.error("its activation '" + name + "' is none that ONNX lists");
    if (function->taken > 0 && alpha < alphas.size())
      function->parameters.alpha = alphas[alpha++];
    if (function->taken > 1 && beta < betas.size())
      function->parameters.beta = betas[beta++];
    functions.push_back(*function);
  }
  return functions;
}

/// Lengths of the sequences of a batch, [batch, 1]; null where all have `steps`.
Expected<Value> lengthsOf(NodeImporter &node, int64_t steps, int64_t batch) {
  if (!node.has(SequenceLengths))
    return Value();
  if (node.shape(SequenceLengths) != ArrayRef(batch))
    return node.error("its sequence_lens are not " + std::to_string(batch) + " numbers");
  if (std::optional<Shape> lengths = node.constantIntegers(SequenceLengths)) {
    if (llvm::any_of(*lengths, [&](int64_t length) { return length < 0 || length > steps; }))
      return node.error("its sequence_lens are not all from 0 to " + std::to_string(steps));
    if (llvm::all_of(*lengths, [&](int64_t length) { return length == steps; }))
      return Value();
  }
  TensorBuilder &t = node.t;
  const Type real = elementTypeOf(node.in(X));
  return t.map({t.reshape(node.in(SequenceLengths), {batch, 1})}, real,
               [&](Scalars &s, ValueRange x) { return Arithmetic(s).cast(x[0], real, false); });
}

Status checkShapes(NodeImporter &node, const Kind &kind, int64_t directions) {
  for (size_t i : {X, W, R})
    if (node.rank(i) != 3)
      return node.error("input " + std::to_string(i) + " has rank " + std::to_string(node.rank(i)) +
                        " where it must have 3");
  const int64_t hidden = node.shape(R)[2], rows = kind.gates * hidden;
  const auto fits = [&](size_t i, const Shape &shape) {
    return !node.has(i) || node.shape(i) == ArrayRef(shape);
  };
  const bool isBatchFirst = node.getInt("layout", 0) != 0;
  const int64_t batch = node.shape(X)[isBatchFirst ? 0 : 1];
  const Shape state =
      isBatchFirst ? Shape{batch, directions, hidden} : Shape{directions, batch, hidden};
  const std::pair<size_t, Shape> expected[] = {{W, {directions, rows, node.shape(X)[2]}},
                                               {R, {directions, rows, hidden}},
                                               {B, {directions, 2 * rows}},
                                               {InitialHidden, state},
                                               {InitialCell, state},
                                               {Peepholes, {directions, 3 * hidden}}};
  for (const auto &[i, shape] : expected)
    if (!fits(i, shape))
      return node.error("input " + std::to_string(i) + " does not have the shape that " +
                        std::to_string(directions) + " directions of " + std::to_string(hidden) +
                        " hidden numbers need");
  return Success{};
}

Status importRecurrent(NodeImporter &node, const Kind &kind) {
  TensorBuilder &t = node.t;
  const std::string direction = node.getString("direction", "forward");
  if (direction != "forward" && direction != "reverse" && direction != "bidirectional")
    return node.error("its direction '" + direction +
                      "' is none of forward, reverse, bidirectional");
  const int64_t directions = direction == "bidirectional" ? 2 : 1;
  if (Status fits = checkShapes(node, kind, directions); !fits)
    return fits;
  Expected<SmallVector<Activation>> functions = functionsOf(node, kind, directions);
  if (!functions)
    return functions.takeError();
  const bool isBatchFirst = node.getInt("layout", 0) != 0;
  Value inputs = isBatchFirst ? t.transpose(node.in(X), {1, 0, 2}) : node.in(X);
  const int64_t steps = shapeOf(inputs)[0], batch = shapeOf(inputs)[1], hidden = node.shape(R)[2];
  Expected<Value> lengths = lengthsOf(node, steps, batch);
  if (!lengths)
    return lengths.takeError();

  const auto initial = [&](size_t i, int64_t index) -> Value {
    if (!node.has(i) || isFloatZero(node.in(i)))
      return Value();
    return t.reshape(t.sliceAxis(node.in(i), isBatchFirst ? 1 : 0, index, 1), {batch, hidden});
  };
  SmallVector<Value> sequences, hiddens, cells; // per direction
  for (int64_t index = 0; index < directions; ++index) {
    Direction one(node, index, kind.gates,
                  ArrayRef(*functions).slice(size_t(index) * kind.functions, kind.functions));
    for (unsigned gate = 0; gate < kind.gates; ++gate)
      one.addGate(inputs, kind.addsBothBiases(node, gate));
    State state{initial(InitialHidden, index),
                kind.states > 1 ? initial(InitialCell, index) : Value()};
    SmallVector<Value> made(static_cast<size_t>(steps));
    const bool isBackward = direction == "reverse" || index == 1;
    for (int64_t i = 0; i < steps; ++i) {
      const int64_t step = isBackward ? steps - 1 - i : i;
      State next = kind.step(node, one, state, step);
      Value result = next.hidden;
      if (*lengths) {
        result = whereLonger(t, *lengths, step, next.hidden, Value());
        next.hidden = whereLonger(t, *lengths, step, next.hidden, state.hidden);
        if (next.cell)
          next.cell = whereLonger(t, *lengths, step, next.cell, state.cell);
      }
      made[size_t(step)] = t.reshape(result, {1, 1, batch, hidden});
      state = next;
    }
    sequences.push_back(t.concat(made, 0));
    hiddens.push_back(t.reshape(state.hidden, {1, batch, hidden}));
    if (state.cell)
      cells.push_back(t.reshape(state.cell, {1, batch, hidden}));
  }
  const auto give = [&](size_t output, Value value, ArrayRef<int64_t> batchFirst) {
    if (node.wants(output))
      node.set(output, isBatchFirst ? t.transpose(value, batchFirst) : value, node.inType(X));
  };
  give(0, t.concat(sequences, 1), {2, 0, 1, 3});
  give(1, t.concat(hiddens, 0), {1, 0, 2});
  if (!cells.empty())
    give(2, t.concat(cells, 0), {1, 0, 2});
  return Success{};
}

Value product(TensorBuilder &t, Value x, Value y) {
  return t.map({x, y}, elementTypeOf(x),
               [](Scalars &s, ValueRange v) { return Arithmetic(s).mul(v[0], v[1]); });
}

/// Gates: input, output, forget, cell. Functions: of the gates, of the cell's gate, of the cell.
State stepOfLstm(NodeImporter &node, Direction &d, const State &state, int64_t step) {
  enum { In, Out, Forget, Cell };
  TensorBuilder &t = node.t;
  const auto gate = [&](unsigned which, unsigned function, const Term &peephole = {}) {
    return d.apply(function, {d.input(which, step), d.recurrent(which, state.hidden), peephole});
  };
  Value in = gate(In, 0, d.peephole(0, state.cell)), candidate = gate(Cell, 1);
  Value cell;
  if (!state.cell) {
    cell = product(t, in, candidate);
  } else if (node.getInt("input_forget", 0) != 0) {
    cell = t.map({in, candidate, state.cell}, elementTypeOf(in), [](Scalars &s, ValueRange x) {
      Arithmetic a(s);
      return a.add(a.mul(a.sub(a.like(x[0], 1), x[0]), x[2]), a.mul(x[0], x[1]));
    });
  } else {
    Value forget = gate(Forget, 0, d.peephole(2, state.cell));
    cell =
        t.map({in, candidate, state.cell, forget}, elementTypeOf(in), [](Scalars &s, ValueRange x) {
          Arithmetic a(s);
          return a.add(a.mul(x[3], x[2]), a.mul(x[0], x[1]));
        });
  }
  t.keepFp32(cell); // its errors add up over the steps
  Value out = gate(Out, 0, d.peephole(1, cell));
  return {product(t, out, d.apply(2, {{cell, Value()}})), cell};
}

/// Gates: update, reset, hidden. Functions: of the first two, of the last.
State stepOfGru(NodeImporter &node, Direction &d, const State &state, int64_t step) {
  enum { Update, Reset, Hidden };
  TensorBuilder &t = node.t;
  const auto gate = [&](unsigned which) {
    return d.apply(0, {d.input(which, step), d.recurrent(which, state.hidden)});
  };
  Value update = gate(Update), made;
  t.keepFp32(update); // what is fresh counts by its distance from 1
  if (node.getInt("linear_before_reset", 0) != 0) {
    Value product = d.recurrent(Hidden, state.hidden).value, bias = d.recurrentBias(Hidden).value;
    Value linear =
        product && bias
            ? t.map({product, bias}, elementTypeOf(product),
                    [](Scalars &s, ValueRange x) { return Arithmetic(s).add(x[0], x[1]); })
        : product ? product
                  : bias;
    made = d.apply(1, {d.input(Hidden, step), {linear, linear ? gate(Reset) : Value(), true}});
  } else {
    Value kept = state.hidden ? product(t, gate(Reset), state.hidden) : Value();
    made = d.apply(1, {d.input(Hidden, step), d.recurrent(Hidden, kept)});
  }
  SmallVector<Value> inputs{update, made};
  if (state.hidden)
    inputs.push_back(state.hidden);
  Value hidden = t.map(inputs, elementTypeOf(made), [](Scalars &s, ValueRange x) {
    Arithmetic a(s);
    Value fresh = a.mul(a.sub(a.like(x[0], 1), x[0]), x[1]);
    return x.size() == 3 ? a.add(fresh, a.mul(x[0], x[2])) : fresh;
  });
  return {hidden, Value()};
}

State stepOfRnn(NodeImporter &, Direction &d, const State &state, int64_t step) {
  return {d.apply(0, {d.input(0, step), d.recurrent(0, state.hidden)}), Value()};
}

Handler recurrent(Kind kind) {
  return [kind](NodeImporter &node) { return importRecurrent(node, kind); };
}

} // namespace

void addRecurrentOps(HandlerTable &table) {
  const auto always = [](NodeImporter &, unsigned) { return true; };
  table[":LSTM"] = recurrent({4, 3, {"Sigmoid", "Tanh", "Tanh"}, 2, always, stepOfLstm});
  table[":GRU"] = recurrent({3,
                             2,
                             {"Sigmoid", "Tanh"},
                             1,
                             [](NodeImporter &node, unsigned gate) { // what is reset has its own
                               return gate < 2 || node.getInt("linear_before_reset", 0) == 0;
                             },
                             stepOfGru});
  table[":RNN"] = recurrent({1, 1, {"Tanh"}, 1, always, stepOfRnn});
}

} // namespace millrace::onnx_import
