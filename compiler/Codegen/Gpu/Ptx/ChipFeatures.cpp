// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "compiler/Codegen/Gpu/Ptx/ChipFeatures.h"

#include "compiler/Dialect/Hopper/Transforms/Passes.h"

#include "mlir/IR/BuiltinOps.h"

#include <algorithm>

namespace millrace::gpu {

using namespace mlir;

namespace {

/// What an operation needs at least: PTX ISA, section of the instruction, "Target ISA Notes".
struct Need {
  StringRef prefix;       ///< of the operation's name; the first that fits counts
  unsigned capability;    ///< sm_90: 90
  bool needsArchFeatures; ///< of that capability alone, the letter a
  unsigned ptx;           ///< version times ten
};

constexpr unsigned kAnyChip = 70;
constexpr StringLiteral kInlinePtx = "inline_asm";

constexpr Need kNeeds[] = {
    {"nvvm.wgmma.", 90, true, 80},
    {"nvvm.setmaxregister", 90, true, 80},
    {"nvvm.cp.async.bulk.", 90, false, 80},
    {"nvvm.mapa", 90, false, 78},
    {"nvvm.cluster.", 90, false, 78},
    {"nvvm.read.ptx.sreg.cluster.", 90, false, 78},
    {"nvvm.elect.sync", 90, false, 80},
    {"nvvm.stmatrix", 90, false, 78},
    {"nvvm.fence.mbarrier.init", 90, false, 80},
    {"nvvm.fence.proxy", 90, false, 80},
    {"nvvm.mbarrier.arrive.expect_tx", 90, false, 80},
    {"nvvm.mbarrier.try_wait.parity", 90, false, 78},
    {"nvvm.mbarrier.", 80, false, 80},
    {"nvvm.convert.f32x2.to.bf16x2", 80, false, 70},
    {"nvvm.convert.f32x2.to.f16x2", 80, false, 70},
    {"nvvm.barrier", kAnyChip, false, 63},
    {"nvvm.shfl.sync", kAnyChip, false, 63},
    {"nvvm.read.ptx.sreg.", kAnyChip, false, 63},
};

/// Of instructions in inline PTX, by the text with which they begin.
constexpr Need kInlineNeeds[] = {
    {"ex2.approx.ftz.f32", kAnyChip, false, 63},
    {"mma.sync.aligned.m16n8k16.", 80, false, 70},
    {"wgmma.", 90, true, 80},
    {"{ .reg .pred p; setp.ne.b32 p, 1, 0; wgmma.", 90, true, 80},
};

const Need *findNeed(ArrayRef<Need> needs, StringRef name) {
  const auto *found =
      llvm::find_if(needs, [&](const Need &need) { return name.starts_with(need.prefix); });
  return found == needs.end() ? nullptr : found;
}

/// Plain arithmetic, memory and control flow, which every chip has. Calls and intrinsics are not:
/// the kernels need none, and NVPTX lacks some.
bool isPlain(Operation *op) {
  const StringRef dialect = op->getName().getDialectNamespace();
  if (isa<ModuleOp, UnrealizedConversionCastOp>(op) || dialect == "arith" || dialect == "cf" ||
      dialect == "scf" || dialect == "vector" || hopper::hasInstruction(op))
    return true;
  const StringRef name = op->getName().stripDialect();
  return dialect == "llvm" && name != "call" && name != "call_intrinsic" && name != kInlinePtx &&
         !name.starts_with("intr.");
}

/// The operation's kernel, for messages.
std::string kernelOf(Operation *op) {
  for (; op; op = op->getParentOp())
    if (op->getName().getStringRef() == "llvm.func")
      return "kernel '" + SymbolTable::getSymbolName(op).str() + "': ";
  return "";
}

Error missing(Operation *op, const Need &need, const Chip &chip) {
  return Error{kernelOf(op) + "the operation '" + op->getName().getStringRef().str() +
               "' needs sm_" + std::to_string(need.capability) +
               (need.needsArchFeatures ? "a" : "") + ", and PTX is made for " + chip.name +
               "; lower the kernel for that chip otherwise"};
}

bool fits(const Need &need, const Chip &chip) {
  return need.needsArchFeatures ? chip.capability == need.capability && chip.hasArchFeatures
                                : chip.capability >= need.capability;
}

} // namespace

Expected<Chip> parseChip(std::string_view name) {
  constexpr std::string_view known[] = {"sm_80", "sm_86", "sm_89", "sm_90", "sm_90a", "sm_100"};
  if (std::find(std::begin(known), std::end(known), name) == std::end(known))
    return Error{"chip '" + std::string(name) +
                 "' is not known; PTX is made for sm_80, sm_86, sm_89, sm_90, sm_90a and sm_100"};
  Chip chip{std::string(name), 0, name.back() == 'a'};
  chip.capability = static_cast<unsigned>(std::stoul(chip.name.substr(3)));
  return chip;
}

Expected<unsigned> requirePtxVersion(ModuleOp module, const Chip &chip) {
  unsigned version = chip.capability >= 100  ? 86
                     : chip.capability >= 90 ? 80
                     : chip.capability >= 89 ? 78
                                             : 71;
  std::string error;
  module.walk([&](Operation *op) {
    const StringRef name = op->getName().getStringRef();
    const bool isInline = name == "llvm.inline_asm";
    auto text = isInline ? op->getAttrOfType<StringAttr>("asm_string") : StringAttr();
    const Need *need = text ? findNeed(kInlineNeeds, text.getValue()) : findNeed(kNeeds, name);
    if (!need && isPlain(op))
      return WalkResult::advance();
    if (!need) {
      error = "the operation '" + name.str() +
              "' is not in the table of what chips take; lower it, or add it to ChipFeatures.cpp";
      return WalkResult::interrupt();
    }
    if (!fits(*need, chip)) {
      error = missing(op, *need, chip).message;
      return WalkResult::interrupt();
    }
    version = std::max(version, need->ptx);
    return WalkResult::advance();
  });
  if (!error.empty())
    return Error{error};
  return version;
}

} // namespace millrace::gpu
