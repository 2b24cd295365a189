// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "compiler/Support/JitSymbols.h"

#include "llvm/ADT/APFloat.h"
#include "llvm/ExecutionEngine/Orc/Shared/ExecutorAddress.h"

namespace millrace {

namespace {

/// A bf16 number is returned in the low half of the register that an fp32 number is returned in.
float roundToBf16(double number) {
  llvm::APFloat real(number);
  bool isInexact = false;
  real.convert(llvm::APFloat::BFloat(), llvm::APFloat::rmNearestTiesToEven, &isInexact);
  return llvm::bit_cast<float>(uint32_t(real.bitcastToAPInt().getZExtValue()));
}

float roundFloatToBf16(float number) { return roundToBf16(number); } // exact as double

} // namespace

llvm::orc::SymbolMap roundingsToBf16(llvm::orc::MangleAndInterner named) {
  const auto flags = llvm::JITSymbolFlags::Exported | llvm::JITSymbolFlags::Callable;
  return {{named("__truncsfbf2"), {llvm::orc::ExecutorAddr::fromPtr(&roundFloatToBf16), flags}},
          {named("__truncdfbf2"), {llvm::orc::ExecutorAddr::fromPtr(&roundToBf16), flags}}};
}

} // namespace millrace
