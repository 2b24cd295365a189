// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "compiler/Codegen/Gpu/Driver/DriverApi.h"

#include <dlfcn.h>

namespace millrace::gpu::driver {

Expected<Api> open(const std::string &library) {
  void *handle = dlopen(library.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (!handle) {
    const char *why = dlerror();
    return Error{"no CUDA driver: looked for the library '" + library + "' (" +
                 (why ? why : "no reason given") +
                 "); install NVIDIA's driver, or name its library in " + kLibraryVariable};
  }
  Api api;
  const char *missing = nullptr;
#define MILLRACE_FIND(member, symbol, arguments)                                                   \
  api.member = reinterpret_cast<decltype(api.member)>(dlsym(handle, #symbol));                     \
  if (!api.member && !missing)                                                                     \
    missing = #symbol;
  MILLRACE_DRIVER_FUNCTIONS(MILLRACE_FIND)
#undef MILLRACE_FIND
  if (missing)
    return Error{"the library '" + library + "' has no function '" + missing +
                 "', so that it is no CUDA driver or an old one; install a driver of CUDA 12 or "
                 "later"};
  return api;
}

Status check(const Api &api, Result result, const char *function, const std::string &doing) {
  if (result == 0)
    return Success{};
  const char *name = nullptr, *text = nullptr;
  api.errorName(result, &name);
  api.errorText(result, &text);
  return Error{"the CUDA driver's " + std::string(function) + " failed " + doing + ": " +
               (name ? name : "error " + std::to_string(result)) +
               (text ? " (" + std::string(text) + ")" : "")};
}

} // namespace millrace::gpu::driver
