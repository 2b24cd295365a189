// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// DriverApi.h against cuda.h, where that is installed: numbers, symbols, and as many arguments of
// as many bytes.
#include "compiler/Codegen/Gpu/Driver/DriverApi.h"

#include <gtest/gtest.h>

#if __has_include(<cuda.h>)
#define MILLRACE_HAS_CUDA_HEADER 1
#include <cuda.h>
#endif

#include <array>

namespace driver = millrace::gpu::driver;

#ifdef MILLRACE_HAS_CUDA_HEADER

namespace {

/// Bytes of the result, then of each argument.
template <class R, class... A> constexpr std::array<size_t, sizeof...(A) + 1> bytesOf(R (*)(A...)) {
  return {sizeof(R), sizeof(A)...};
}

static_assert(driver::kProcessors == CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT);
static_assert(driver::kSharedMemoryOptIn == CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN);
static_assert(driver::kCapabilityMajor == CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR);
static_assert(driver::kCapabilityMinor == CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR);
static_assert(driver::kL2Bytes == CU_DEVICE_ATTRIBUTE_L2_CACHE_SIZE);
static_assert(driver::kMaxDynamicSharedBytes == CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES);
static_assert(driver::kErrorLogBuffer == CU_JIT_ERROR_LOG_BUFFER);
static_assert(driver::kErrorLogBytes == CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES);
static_assert(driver::kMapUint16 == CU_TENSOR_MAP_DATA_TYPE_UINT16);
static_assert(driver::kMapUint32 == CU_TENSOR_MAP_DATA_TYPE_UINT32);
static_assert(driver::kMapSwizzle128 == CU_TENSOR_MAP_SWIZZLE_128B);
static_assert(driver::kMapPromote128 == CU_TENSOR_MAP_L2_PROMOTION_L2_128B);
static_assert(0 == CU_TENSOR_MAP_INTERLEAVE_NONE && 0 == CU_TENSOR_MAP_SWIZZLE_NONE &&
              0 == CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
static_assert(sizeof(driver::EncodedMap) == sizeof(CUtensorMap) &&
              alignof(driver::EncodedMap) == alignof(CUtensorMap));
static_assert(CUDA_SUCCESS == 0);

} // namespace

TEST(DriverHeader, FunctionsTakeWhatTheHeaderOfCudaSays) {
  const driver::Api api;
#define MILLRACE_COMPARE(member, symbol, arguments)                                                \
  EXPECT_EQ(bytesOf(api.member), bytesOf(&symbol)) << #symbol;
  MILLRACE_DRIVER_FUNCTIONS(MILLRACE_COMPARE)
#undef MILLRACE_COMPARE
}

#else

TEST(DriverHeader, FunctionsTakeWhatTheHeaderOfCudaSays) {
  GTEST_SKIP() << "cuda.h is not installed: the declarations were not compared";
}

#endif
