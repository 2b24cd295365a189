// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

#include "arch/isa/semantics/Convert.h"
#include "arch/isa/semantics/ConvertLane.h"
#include "arch/isa/semantics/RowKernels.h"

namespace millrace::semantics {

float canonicalized(float value) { return lane::asFloat(lane::result(value)); }

float fp16ToFp32(uint16_t bits) { return lane::asFloat(lane::widen<lane::fp16>(bits)); }
float bf16ToFp32(uint16_t bits) { return lane::asFloat(lane::widen<lane::bf16>(bits)); }
float e4m3ToFp32(uint8_t bits) { return lane::asFloat(lane::widen<lane::e4m3>(bits)); }
float e5m2ToFp32(uint8_t bits) { return lane::asFloat(lane::widen<lane::e5m2>(bits)); }
uint16_t fp32ToFp16(float value) { return uint16_t(lane::narrow<lane::fp16>(lane::asBits(value))); }
uint16_t fp32ToBf16(float value) { return uint16_t(lane::narrow<lane::bf16>(lane::asBits(value))); }
uint16_t fp32ToFp16Finite(float value) {
  return uint16_t(lane::narrow<lane::fp16, lane::TooLarge::KeepsFinite>(lane::asBits(value)));
}
uint16_t fp32ToBf16Finite(float value) {
  return uint16_t(lane::narrow<lane::bf16, lane::TooLarge::KeepsFinite>(lane::asBits(value)));
}
uint8_t fp32ToE4m3(float value) { return uint8_t(lane::narrow<lane::e4m3>(lane::asBits(value))); }
uint8_t fp32ToE4m3Saturating(float value) {
  return uint8_t(lane::narrow<lane::e4m3, lane::TooLarge::Saturates>(lane::asBits(value)));
}
uint8_t fp32ToE5m2(float value) { return uint8_t(lane::narrow<lane::e5m2>(lane::asBits(value))); }
uint8_t fp32ToE5m2Saturating(float value) {
  return uint8_t(lane::narrow<lane::e5m2, lane::TooLarge::Saturates>(lane::asBits(value)));
}
int8_t fp32ToInt8(float value) { return int8_t(lane::toInt8(lane::asBits(value))); }
uint8_t fp32ToUint8(float value) { return uint8_t(lane::toUint8(lane::asBits(value))); }
int32_t fp32ToInt32(float value) { return int32_t(lane::toInt32(lane::asBits(value))); }

float int32ToFp32(int32_t value) { return float(value); }
int8_t int32ToInt8(int32_t value) { return int8_t(lane::clampInteger(value, -128, 127)); }
uint8_t int32ToUint8(int32_t value) { return uint8_t(lane::clampInteger(value, 0, 255)); }

// The row functions take bits. float and int32_t arrays hold the same 32 bits as uint32_t ones,
// int8_t the same 8 as uint8_t; the loops are compiled apart, so no aliasing rule is at stake.
void fp16ToFp32(const uint16_t *in, float *out, size_t count) {
  rowKernels().fp16ToFp32(in, reinterpret_cast<uint32_t *>(out), count);
}
void bf16ToFp32(const uint16_t *in, float *out, size_t count) {
  rowKernels().bf16ToFp32(in, reinterpret_cast<uint32_t *>(out), count);
}
void e4m3ToFp32(const uint8_t *in, float *out, size_t count) {
  rowKernels().e4m3ToFp32(in, reinterpret_cast<uint32_t *>(out), count);
}
void e5m2ToFp32(const uint8_t *in, float *out, size_t count) {
  rowKernels().e5m2ToFp32(in, reinterpret_cast<uint32_t *>(out), count);
}
void fp32ToFp16(const float *in, uint16_t *out, size_t count) {
  rowKernels().fp32ToFp16(reinterpret_cast<const uint32_t *>(in), out, count);
}
void fp32ToBf16(const float *in, uint16_t *out, size_t count) {
  rowKernels().fp32ToBf16(reinterpret_cast<const uint32_t *>(in), out, count);
}
void fp32ToFp16Finite(const float *in, uint16_t *out, size_t count) {
  rowKernels().fp32ToFp16Finite(reinterpret_cast<const uint32_t *>(in), out, count);
}
void fp32ToBf16Finite(const float *in, uint16_t *out, size_t count) {
  rowKernels().fp32ToBf16Finite(reinterpret_cast<const uint32_t *>(in), out, count);
}
void fp32ToE4m3(const float *in, uint8_t *out, size_t count) {
  rowKernels().fp32ToE4m3(reinterpret_cast<const uint32_t *>(in), out, count);
}
void fp32ToE4m3Saturating(const float *in, uint8_t *out, size_t count) {
  rowKernels().fp32ToE4m3Saturating(reinterpret_cast<const uint32_t *>(in), out, count);
}
void fp32ToE5m2(const float *in, uint8_t *out, size_t count) {
  rowKernels().fp32ToE5m2(reinterpret_cast<const uint32_t *>(in), out, count);
}
void fp32ToE5m2Saturating(const float *in, uint8_t *out, size_t count) {
  rowKernels().fp32ToE5m2Saturating(reinterpret_cast<const uint32_t *>(in), out, count);
}
void fp32ToInt8(const float *in, int8_t *out, size_t count) {
  rowKernels().fp32ToInt8(reinterpret_cast<const uint32_t *>(in), reinterpret_cast<uint8_t *>(out),
                          count);
}
void fp32ToUint8(const float *in, uint8_t *out, size_t count) {
  rowKernels().fp32ToUint8(reinterpret_cast<const uint32_t *>(in), out, count);
}
void fp32ToInt32(const float *in, int32_t *out, size_t count) {
  rowKernels().fp32ToInt32(reinterpret_cast<const uint32_t *>(in),
                           reinterpret_cast<uint32_t *>(out), count);
}
void int32ToFp32(const int32_t *in, float *out, size_t count) {
  rowKernels().int32ToFp32(reinterpret_cast<const uint32_t *>(in),
                           reinterpret_cast<uint32_t *>(out), count);
}
void int32ToInt8(const int32_t *in, int8_t *out, size_t count) {
  rowKernels().int32ToInt8(reinterpret_cast<const uint32_t *>(in), reinterpret_cast<uint8_t *>(out),
                           count);
}
void int32ToUint8(const int32_t *in, uint8_t *out, size_t count) {
  rowKernels().int32ToUint8(reinterpret_cast<const uint32_t *>(in), out, count);
}

void joinBytes(const uint8_t *const *bytes, unsigned width, uint32_t *lanes, size_t count) {
  rowKernels().joinBytes(bytes, width, lanes, count);
}
void splitBytes(const uint32_t *lanes, unsigned width, uint8_t *const *bytes, size_t count) {
  for (unsigned byte = 0; byte < width; ++byte)
    cutByte(lanes, byte, bytes[byte], count);
}
void cutByte(const uint32_t *lanes, unsigned byte, uint8_t *out, size_t count) {
  rowKernels().cutByte(lanes, byte, out, count);
}

} // namespace millrace::semantics
