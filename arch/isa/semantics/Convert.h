// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Named conversions between the number formats of the machine.
//
// Every conversion rounds at most once, to nearest even; subnormals are kept, never flushed. NaN
// becomes the canonical NaN of the target: fp32 0x7fc00000, fp16 0x7e00, bf16 0x7fc0, e4m3 0x7f,
// e5m2 0x7e; an integer target gets 0. Floats carry IEEE bits; e4m3 is the OCP format without
// infinities (largest finite value 448), e5m2 the one with them (57344).
//
// The array forms choose the widest vectors of the CPU at run time and give the same bits as the
// scalar forms. They assume the default floating-point environment: round to nearest, no
// flush-to-zero.

#ifndef MILLRACE_ARCH_ISA_SEMANTICS_CONVERT_H
#define MILLRACE_ARCH_ISA_SEMANTICS_CONVERT_H

#include <cstddef>
#include <cstdint>

namespace millrace::semantics {

/// Bits of the NaN that every fp32 operation of the machine produces.
inline constexpr uint32_t canonicalNanBits = 0x7fc00000;

/// The value itself, or the canonical NaN when it is any NaN.
float canonicalized(float value);

float fp16ToFp32(uint16_t bits);
float bf16ToFp32(uint16_t bits);
float e4m3ToFp32(uint8_t bits);
float e5m2ToFp32(uint8_t bits);

/// Too large a magnitude, from halfway above the largest finite value, becomes infinity.
uint16_t fp32ToFp16(float value);
uint16_t fp32ToBf16(float value);
uint8_t fp32ToE5m2(float value);
/// Infinities stay; a finite magnitude that is too large becomes the largest finite value.
uint16_t fp32ToFp16Finite(float value);
uint16_t fp32ToBf16Finite(float value);
/// Too large a magnitude becomes NaN: the format has no infinity.
uint8_t fp32ToE4m3(float value);
/// Infinities and too large magnitudes become the largest finite value of that sign.
uint8_t fp32ToE4m3Saturating(float value);
uint8_t fp32ToE5m2Saturating(float value);

int8_t fp32ToInt8(float value);   ///< saturating to [-128, 127]
uint8_t fp32ToUint8(float value); ///< saturating to [0, 255]
int32_t fp32ToInt32(float value); ///< saturating to [-2^31, 2^31 - 1]
float int32ToFp32(int32_t value); ///< rounds above 2^24
int8_t int32ToInt8(int32_t value);
uint8_t int32ToUint8(int32_t value);

/// Array forms over `count` elements; `in` and `out` do not overlap.
void fp16ToFp32(const uint16_t *in, float *out, size_t count);
void bf16ToFp32(const uint16_t *in, float *out, size_t count);
void e4m3ToFp32(const uint8_t *in, float *out, size_t count);
void e5m2ToFp32(const uint8_t *in, float *out, size_t count);
void fp32ToFp16(const float *in, uint16_t *out, size_t count);
void fp32ToBf16(const float *in, uint16_t *out, size_t count);
void fp32ToFp16Finite(const float *in, uint16_t *out, size_t count);
void fp32ToBf16Finite(const float *in, uint16_t *out, size_t count);
void fp32ToE4m3(const float *in, uint8_t *out, size_t count);
void fp32ToE4m3Saturating(const float *in, uint8_t *out, size_t count);
void fp32ToE5m2(const float *in, uint8_t *out, size_t count);
void fp32ToE5m2Saturating(const float *in, uint8_t *out, size_t count);
void fp32ToInt8(const float *in, int8_t *out, size_t count);
void fp32ToUint8(const float *in, uint8_t *out, size_t count);
void fp32ToInt32(const float *in, int32_t *out, size_t count);
void int32ToFp32(const int32_t *in, float *out, size_t count);
void int32ToInt8(const int32_t *in, int8_t *out, size_t count);
void int32ToUint8(const int32_t *in, uint8_t *out, size_t count);

/// Joins byte vectors, lowest byte first, to lanes of 32 bits: how a stream group of `width` (1, 2,
/// 3 or 4) byte streams is read by an ALU. Missing upper bytes are 0.
void joinBytes(const uint8_t *const *bytes, unsigned width, uint32_t *lanes, size_t count);
/// The reverse: the low `width` bytes of each lane to byte vectors.
void splitBytes(const uint32_t *lanes, unsigned width, uint8_t *const *bytes, size_t count);
/// One byte of each lane, 0 (the lowest) to 3.
void cutByte(const uint32_t *lanes, unsigned byte, uint8_t *out, size_t count);

} // namespace millrace::semantics

#endif // MILLRACE_ARCH_ISA_SEMANTICS_CONVERT_H
