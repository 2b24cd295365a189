// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "compiler/Codegen/Gpu/Attention/AttentionForm.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Math/IR/Math.h"

namespace millrace::gpu {

using namespace mlir;

Error refusedAttention(const std::string &what, int64_t number, const std::string &remedy) {
  return Error{"attention has " + what + " " + std::to_string(number) + "; " + remedy};
}

namespace {

Status check(const AttentionProblem &p) {
  const std::pair<const char *, int64_t> sizes[] = {{"a batch of", p.batch},
                                                    {"query heads:", p.queryHeads},
                                                    {"key heads:", p.keyHeads},
                                                    {"queries:", p.queries},
                                                    {"keys:", p.keys},
                                                    {"a depth of", p.depth},
                                                    {"a depth of values of", p.valueDepth}};
  for (const auto &[what, size] : sizes)
    if (size < 1)
      return refusedAttention(what, size, "give at least one");
  if (p.queryHeads % p.keyHeads)
    return refusedAttention("query heads:", p.queryHeads,
                            "give a multiple of the " + std::to_string(p.keyHeads) + " key heads");
  if (p.window < 0)
    return refusedAttention("a window of", p.window, "give the number of keys, or 0 for all");
  if (p.window && !p.isCausal)
    return refusedAttention("a window of", p.window,
                            "make it causal: the window ends at the query's position");
  if (p.softcap < 0)
    return Error{"attention has a softcap below 0; give a positive one, or 0 for none"};
  return Success{};
}

/// Row r of a batch and a key head is query r / group, of head r mod group: rows of a program are
/// neighbouring queries, which see neighbouring keys.
AttentionForm formOf(const AttentionProblem &p, OpBuilder &builder) {
  AttentionForm form;
  form.batch = {p.batch, p.keyHeads};
  form.rows = {p.queries, p.queryHeads / p.keyHeads};
  form.keys = p.keys;
  form.depth = p.depth;
  form.valueDepth = p.valueDepth;
  form.isCausal = p.isCausal;
  form.window = p.window;
  form.element = p.type == AttentionProblem::Type::BFloat16 ? Type(builder.getBF16Type())
                                                            : Type(builder.getF16Type());
  enum : unsigned { Batch, KeyHead, Query, Member, Key, Element, ValueElement };
  form.q = {form.element, {{Batch}, {KeyHead, Member}, {Query}, {Element}}};
  form.k = {form.element, {{Batch}, {KeyHead}, {Key}, {Element}}};
  form.v = {form.element, {{Batch}, {KeyHead}, {Key}, {ValueElement}}};
  form.o = {builder.getF32Type(), {{Batch}, {KeyHead, Member}, {Query}, {ValueElement}}};
  if (p.hasSinks) {
    form.others.push_back({builder.getF32Type(), {{KeyHead, Member}}});
    form.sinks.push_back([](ScoreCode &code) { return code.load(0); });
  }
  form.score = [&p](ScoreCode &code, Value score) -> Value {
    OpBuilder &b = code.builder();
    const Location place = b.getUnknownLoc();
    const VectorType type = code.blockType(b.getF32Type());
    const auto constant = [&](double value) -> Value {
      return arith::ConstantOp::create(
          b, place, SplatElementsAttr::get(type, Attribute(b.getF32FloatAttr(float(value)))));
    };
    score = arith::MulFOp::create(b, place, score, constant(p.scale));
    if (!p.softcap)
      return score;
    Value part = arith::DivFOp::create(b, place, score, constant(p.softcap));
    return arith::MulFOp::create(b, place, math::TanhOp::create(b, place, part),
                                 constant(p.softcap));
  };
  return form;
}

} // namespace

AttentionSchedule AttentionSchedule::choose(const AttentionProblem &problem) {
  MLIRContext context;
  OpBuilder builder(&context);
  return chooseSchedule(formOf(problem, builder), TuningTable::builtIn(), /*isStaged=*/false);
}

Status buildAttention(ModuleOp module, const std::string &name, const AttentionProblem &problem,
                      const AttentionSchedule &schedule) {
  if (Status valid = check(problem); !valid)
    return valid;
  if (module.lookupSymbol(name))
    return Error{"the module has '" + name + "' already; choose another name"};
  OpBuilder builder = OpBuilder::atBlockEnd(module.getBody());
  return buildAttentionForm(builder, name, formOf(problem, builder), schedule);
}

} // namespace millrace::gpu
