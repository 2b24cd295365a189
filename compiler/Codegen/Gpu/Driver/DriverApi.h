// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The few types and functions of the CUDA driver that launches need, as cuda.h declares them, so
// that neither headers nor a library of CUDA are needed to build. tests/compiler/Codegen/Gpu/
// DriverHeaderTest.cpp holds this file to cuda.h where that is installed.
#pragma once

#include "arch/spec/Expected.h"

#include <cstddef>
#include <string>

namespace millrace::gpu::driver {

/// CUresult: 0 is success.
using Result = int;
/// CUdevice: a number.
using Device = int;
/// CUdeviceptr: an address of the GPU's memory.
using Address = unsigned long long;
/// CUcontext, CUmodule, CUfunction, CUstream, CUevent.
using Context = struct ContextTag *;
using Module = struct ModuleTag *;
using Function = struct FunctionTag *;
using Stream = struct StreamTag *;
using Event = struct EventTag *;

/// CUtensorMap: how TMA moves boxes of a tensor, in bits that only the GPU reads.
struct alignas(128) EncodedMap {
  unsigned long long bits[16];
};

// Of CUtensorMapDataType, CUtensorMapSwizzle, CUtensorMapL2promotion; of the other choices 0 is
// none.
constexpr int kMapUint16 = 1, kMapUint32 = 2, kMapSwizzle128 = 3, kMapPromote128 = 2;

// Of CUdevice_attribute, CUfunction_attribute and CUjit_option.
constexpr int kProcessors = 16, kSharedMemoryOptIn = 97, kCapabilityMajor = 75,
              kCapabilityMinor = 76, kL2Bytes = 38;
constexpr int kMaxDynamicSharedBytes = 8;
constexpr int kErrorLogBuffer = 5, kErrorLogBytes = 6;

/// X(member, symbol of the library, arguments). The symbols are those that cuda.h of CUDA 12 and 13
/// stands for, by the versions that they were given last; drivers keep old ones.
#define MILLRACE_DRIVER_FUNCTIONS(X)                                                               \
  X(init, cuInit, (unsigned flags))                                                                \
  X(driverVersion, cuDriverGetVersion, (int *version))                                             \
  X(deviceCount, cuDeviceGetCount, (int *count))                                                   \
  X(getDevice, cuDeviceGet, (Device * device, int ordinal))                                        \
  X(deviceName, cuDeviceGetName, (char *name, int bytes, Device device))                           \
  X(deviceAttribute, cuDeviceGetAttribute, (int *value, int attribute, Device device))             \
  X(retainContext, cuDevicePrimaryCtxRetain, (Context * context, Device device))                   \
  X(releaseContext, cuDevicePrimaryCtxRelease_v2, (Device device))                                 \
  X(setCurrent, cuCtxSetCurrent, (Context context))                                                \
  X(synchronize, cuCtxSynchronize, ())                                                             \
  X(allocate, cuMemAlloc_v2, (Address * address, size_t bytes))                                    \
  X(release, cuMemFree_v2, (Address address))                                                      \
  X(copyIn, cuMemcpyHtoD_v2, (Address to, const void *from, size_t bytes))                         \
  X(copyOut, cuMemcpyDtoH_v2, (void *to, Address from, size_t bytes))                              \
  X(fill, cuMemsetD8_v2, (Address to, unsigned char value, size_t bytes))                          \
  X(loadModule, cuModuleLoadDataEx,                                                                \
    (Module * module, const void *image, unsigned options, int *names, void **values))             \
  X(unloadModule, cuModuleUnload, (Module module))                                                 \
  X(getFunction, cuModuleGetFunction, (Function * function, Module module, const char *name))      \
  X(setFunctionAttribute, cuFuncSetAttribute, (Function function, int attribute, int value))       \
  X(launch, cuLaunchKernel,                                                                        \
    (Function function, unsigned gridX, unsigned gridY, unsigned gridZ, unsigned blockX,           \
     unsigned blockY, unsigned blockZ, unsigned sharedBytes, Stream stream, void **arguments,      \
     void **extra))                                                                                \
  X(encodeMap, cuTensorMapEncodeTiled,                                                             \
    (EncodedMap * map, int type, unsigned rank, void *base, const unsigned long long *sizes,       \
     const unsigned long long *strides, const unsigned *box, const unsigned *steps,                \
     int interleave, int swizzle, int promotion, int outside))                                     \
  X(createEvent, cuEventCreate, (Event * event, unsigned flags))                                   \
  X(recordEvent, cuEventRecord, (Event event, Stream stream))                                      \
  X(waitEvent, cuEventSynchronize, (Event event))                                                  \
  X(elapsed, cuEventElapsedTime, (float *milliseconds, Event begin, Event end))                    \
  X(destroyEvent, cuEventDestroy_v2, (Event event))                                                \
  X(errorName, cuGetErrorName, (Result result, const char **text))                                 \
  X(errorText, cuGetErrorString, (Result result, const char **text))

/// Functions of an open driver.
struct Api {
#define MILLRACE_MEMBER(member, symbol, arguments) Result(*member) arguments = nullptr;
  MILLRACE_DRIVER_FUNCTIONS(MILLRACE_MEMBER)
#undef MILLRACE_MEMBER
};

/// Where drivers install it.
constexpr const char *kLibrary = "libcuda.so.1";
/// The environment variable that names another; the command line reads it.
constexpr const char *kLibraryVariable = "MILLRACE_CUDA_DRIVER";

/// Opens the driver's library, by name or path; it stays open until the process ends, as drivers do
/// not expect to be closed. Errors: no such library; a library without one of the functions.
Expected<Api> open(const std::string &library);

/// Nothing if a call succeeded; else which call failed, with what name and text of the driver,
/// while `doing` ("allocating 12 bytes").
Status check(const Api &api, Result result, const char *function, const std::string &doing);

} // namespace millrace::gpu::driver
