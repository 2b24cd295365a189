// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// A library with the functions of the CUDA driver that are used, for tests of who calls them on a
// computer without a GPU. It keeps memory, checks what it is given as the driver would, writes down
// every call, and runs no kernel: what one "computes" here says nothing of a GPU.
//
// The environment, read at each call:
//   MILLRACE_STUB_CALLS       a file that gets a line for each call
//   MILLRACE_STUB_FAIL        FUNCTION=N: the N-th call of it fails (CUDA_ERROR_OUT_OF_MEMORY)
//   MILLRACE_STUB_DEVICES     how many GPUs it has, 1 without
//   MILLRACE_STUB_CAPABILITY  of them, times ten, 90 without
//   MILLRACE_STUB_LAUNCH      invert: a launch inverts all bytes of the memory of its arguments
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <set>
#include <string>
#include <vector>

namespace {

constexpr int kInvalidValue = 1, kOutOfMemory = 2, kInvalidContext = 201, kInvalidPtx = 218,
              kNotFound = 500;
constexpr size_t kAlignment = 256;

struct Kernel {
  std::string name;
  size_t arguments = 0;
  std::vector<bool> isNumber; ///< of 32 bits; others begin with an address here
};
struct LoadedModule {
  std::string ptx;
  std::vector<Kernel *> kernels;
};

struct Stub {
  std::map<uintptr_t, size_t> memory; ///< begin and bytes of what is allocated
  std::set<LoadedModule *> modules;
  std::map<std::string, int> calls; ///< how many of each
  bool isCurrent = false;
  int context = 0; ///< its address is the only context
  std::set<int *> events;
};

Stub &stub() {
  static Stub one;
  return one;
}

std::string variable(const char *name) {
  const char *value = std::getenv(name);
  return value ? value : "";
}

/// Writes the call down. An error if it is the one that is to fail.
int note(const std::string &function, const std::string &arguments) {
  if (const std::string path = variable("MILLRACE_STUB_CALLS"); !path.empty())
    if (FILE *file = std::fopen(path.c_str(), "a")) {
      std::fprintf(file, "%s(%s)\n", function.c_str(), arguments.c_str());
      std::fclose(file);
    }
  const int number = ++stub().calls[function];
  return variable("MILLRACE_STUB_FAIL") == function + "=" + std::to_string(number) ? kOutOfMemory
                                                                                   : 0;
}

/// What lies at the address and how many bytes follow in its memory; 0: nothing does.
size_t roomAt(uintptr_t at) {
  auto after = stub().memory.upper_bound(at);
  if (after == stub().memory.begin())
    return 0;
  const auto &[begin, bytes] = *std::prev(after);
  return at < begin + bytes ? begin + bytes - at : 0;
}

/// Parameters of the entry in PTX, whether each is a number of 32 bits; false if it has none of the
/// name.
bool findEntry(const std::string &ptx, const std::string &name, std::vector<bool> &parameters) {
  const size_t begin = ptx.find(".entry " + name + "(");
  if (begin == ptx.npos)
    return false;
  const size_t end = ptx.find(')', begin);
  for (size_t at = ptx.find(".param", begin); at < end; at = ptx.find(".param", at + 1))
    parameters.push_back(ptx.compare(at, 11, ".param .u32") == 0 ||
                         ptx.compare(at, 11, ".param .b32") == 0);
  return true;
}

std::string text(uint64_t number) { return std::to_string(number); }

} // namespace

extern "C" {

int cuInit(unsigned flags) { return note("cuInit", text(flags)); }
int cuDriverGetVersion(int *version) {
  *version = 13000;
  return note("cuDriverGetVersion", "");
}
int cuDeviceGetCount(int *count) {
  const std::string devices = variable("MILLRACE_STUB_DEVICES");
  *count = devices.empty() ? 1 : std::atoi(devices.c_str());
  return note("cuDeviceGetCount", "");
}
int cuDeviceGet(int *device, int ordinal) {
  *device = ordinal + 7; // no number of theirs
  return note("cuDeviceGet", text(uint64_t(ordinal)));
}
int cuDeviceGetName(char *name, int bytes, int device) {
  std::snprintf(name, size_t(bytes), "stub of a driver, no GPU");
  const int failed = note("cuDeviceGetName", "");
  return failed ? failed : device == 7 ? 0 : kInvalidValue;
}
int cuDeviceGetAttribute(int *value, int attribute, int device) {
  const std::string named = variable("MILLRACE_STUB_CAPABILITY");
  const int capability = named.empty() ? 90 : std::atoi(named.c_str());
  const std::map<int, int> values = {
      {75, capability / 10}, {76, capability % 10}, {16, 132}, {97, 232448}, {38, 50 << 20}};
  const int failed = note("cuDeviceGetAttribute", text(uint64_t(attribute)));
  if (failed || device != 7 || !values.count(attribute))
    return failed ? failed : kInvalidValue;
  *value = values.at(attribute);
  return 0;
}
int cuDevicePrimaryCtxRetain(void **context, int device) {
  *context = &stub().context;
  const int failed = note("cuDevicePrimaryCtxRetain", "");
  return failed ? failed : device == 7 ? 0 : kInvalidValue;
}
int cuDevicePrimaryCtxRelease_v2(int device) {
  note("cuDevicePrimaryCtxRelease_v2", "");
  return device == 7 ? 0 : kInvalidValue;
}
int cuCtxSetCurrent(void *context) {
  if (const int failed = note("cuCtxSetCurrent", ""))
    return failed;
  stub().isCurrent = context == &stub().context;
  return stub().isCurrent ? 0 : kInvalidContext;
}
int cuCtxSynchronize() { return note("cuCtxSynchronize", ""); }

int cuMemAlloc_v2(unsigned long long *address, size_t bytes) {
  if (const int failed = note("cuMemAlloc_v2", text(bytes)))
    return failed;
  if (!bytes || !stub().isCurrent)
    return bytes ? kInvalidContext : kInvalidValue;
  void *memory = nullptr;
  if (posix_memalign(&memory, kAlignment, bytes))
    return kOutOfMemory;
  std::memset(memory, 0xcd, bytes);
  *address = reinterpret_cast<uintptr_t>(memory);
  stub().memory[uintptr_t(*address)] = bytes;
  return 0;
}
int cuMemFree_v2(unsigned long long address) {
  note("cuMemFree_v2", "");
  if (!stub().memory.erase(uintptr_t(address)))
    return kInvalidValue;
  std::free(reinterpret_cast<void *>(address));
  return 0;
}
int cuMemcpyHtoD_v2(unsigned long long to, const void *from, size_t bytes) {
  if (const int failed = note("cuMemcpyHtoD_v2", text(bytes)))
    return failed;
  if (roomAt(uintptr_t(to)) < bytes)
    return kInvalidValue;
  std::memcpy(reinterpret_cast<void *>(to), from, bytes);
  return 0;
}
int cuMemcpyDtoH_v2(void *to, unsigned long long from, size_t bytes) {
  if (const int failed = note("cuMemcpyDtoH_v2", text(bytes)))
    return failed;
  if (roomAt(uintptr_t(from)) < bytes)
    return kInvalidValue;
  std::memcpy(to, reinterpret_cast<const void *>(from), bytes);
  return 0;
}
int cuMemsetD8_v2(unsigned long long to, unsigned char value, size_t bytes) {
  if (const int failed = note("cuMemsetD8_v2", text(bytes)))
    return failed;
  if (roomAt(uintptr_t(to)) < bytes)
    return kInvalidValue;
  std::memset(reinterpret_cast<void *>(to), value, bytes);
  return 0;
}

int cuModuleLoadDataEx(void **module, const void *image, unsigned options, int *names,
                       void **values) {
  std::string ptx = static_cast<const char *>(image);
  const size_t at = ptx.find(".target ");
  const std::string target =
      at == ptx.npos ? "none" : ptx.substr(at + 8, ptx.find('\n', at) - at - 8);
  const int failed = note("cuModuleLoadDataEx", "target " + target);
  if (failed || at == ptx.npos) {
    for (unsigned i = 0; i < options; ++i)
      if (names[i] == 5) // CU_JIT_ERROR_LOG_BUFFER, of the size that the next one says
        std::snprintf(static_cast<char *>(values[i]), reinterpret_cast<size_t>(values[i + 1]),
                      "ptxas of the stub: line 1 is refused");
    return failed ? failed : kInvalidPtx;
  }
  auto *made = new LoadedModule{std::move(ptx), {}};
  stub().modules.insert(made);
  *module = made;
  return 0;
}
int cuModuleUnload(void *module) {
  note("cuModuleUnload", "");
  auto *loaded = static_cast<LoadedModule *>(module);
  if (!stub().modules.erase(loaded))
    return kInvalidValue;
  for (Kernel *kernel : loaded->kernels)
    delete kernel;
  delete loaded;
  return 0;
}
int cuModuleGetFunction(void **function, void *module, const char *name) {
  if (const int failed = note("cuModuleGetFunction", name))
    return failed;
  auto *loaded = static_cast<LoadedModule *>(module);
  std::vector<bool> parameters;
  if (!stub().modules.count(loaded) || !findEntry(loaded->ptx, name, parameters))
    return kNotFound;
  loaded->kernels.push_back(new Kernel{name, parameters.size(), parameters});
  *function = loaded->kernels.back();
  return 0;
}
int cuFuncSetAttribute(void *, int attribute, int value) {
  return note("cuFuncSetAttribute", text(uint64_t(attribute)) + ", " + text(uint64_t(value)));
}
int cuLaunchKernel(void *function, unsigned gridX, unsigned gridY, unsigned gridZ, unsigned blockX,
                   unsigned blockY, unsigned blockZ, unsigned sharedBytes, void *, void **arguments,
                   void **) {
  const auto *kernel = static_cast<const Kernel *>(function);
  if (const int failed =
          note("cuLaunchKernel", kernel->name + ", grid " + text(gridX) + " " + text(gridY) + " " +
                                     text(gridZ) + ", block " + text(blockX) + " " + text(blockY) +
                                     " " + text(blockZ) + ", shared " + text(sharedBytes) +
                                     ", arguments " + text(kernel->arguments)))
    return failed;
  if (!gridX || !gridY || !gridZ || blockX * blockY * blockZ - 1 >= 1024)
    return kInvalidValue;
  for (size_t i = 0; i < kernel->arguments; ++i) {
    if (kernel->isNumber[i])
      continue;
    const auto at = uintptr_t(*static_cast<const unsigned long long *>(arguments[i]));
    const size_t room = roomAt(at);
    if (!room)
      return kInvalidValue;
    auto *bytes = reinterpret_cast<unsigned char *>(at);
    for (size_t b = 0; variable("MILLRACE_STUB_LAUNCH") == "invert" && b < room; ++b)
      bytes[b] = static_cast<unsigned char>(~bytes[b]);
  }
  return 0;
}

int cuTensorMapEncodeTiled(void *map, int type, unsigned rank, void *base,
                           const unsigned long long *sizes, const unsigned long long *strides,
                           const unsigned *box, const unsigned *steps, int interleave, int swizzle,
                           int promotion, int outside) {
  const auto list = [](const auto *numbers, unsigned count) {
    std::string all;
    for (unsigned i = 0; i < count; ++i)
      all += " " + text(numbers[i]);
    return all;
  };
  if (rank < 2 || rank > 5)
    return kInvalidValue;
  if (const int failed =
          note("cuTensorMapEncodeTiled",
               "type " + text(uint64_t(type)) + ", sizes" + list(sizes, rank) + ", strides" +
                   list(strides, rank - 1) + ", box" + list(box, rank) + ", swizzle " +
                   text(uint64_t(swizzle)) + ", promotion " + text(uint64_t(promotion))))
    return failed;
  const auto at = reinterpret_cast<uintptr_t>(base);
  const uint64_t width = type == 1 ? 2 : 4;
  bool isValid = at % 16 == 0 && !interleave && !outside && !(swizzle == 3 && box[0] * width > 128);
  uint64_t bytes = sizes[0] * width;
  for (unsigned d = 0; d < rank; ++d) {
    isValid &= sizes[d] && box[d] && box[d] <= 256 && steps[d] == 1 &&
               (d + 1 == rank || strides[d] % 16 == 0);
    bytes += d ? (sizes[d] - 1) * strides[d - 1] : 0;
  }
  if (!isValid || roomAt(at) < bytes)
    return kInvalidValue;
  std::memcpy(map, &at, sizeof at); // a launch checks it as it checks an address
  return 0;
}

int cuEventCreate(void **event, unsigned) {
  if (const int failed = note("cuEventCreate", ""))
    return failed;
  auto *made = new int(0);
  stub().events.insert(made);
  *event = made;
  return 0;
}
int cuEventRecord(void *event, void *) {
  const int failed = note("cuEventRecord", "");
  return failed ? failed : stub().events.count(static_cast<int *>(event)) ? 0 : kInvalidValue;
}
int cuEventSynchronize(void *event) {
  const int failed = note("cuEventSynchronize", "");
  return failed ? failed : stub().events.count(static_cast<int *>(event)) ? 0 : kInvalidValue;
}
int cuEventElapsedTime(float *milliseconds, void *, void *) {
  *milliseconds = 0.25F;
  return note("cuEventElapsedTime", "");
}
int cuEventDestroy_v2(void *event) {
  note("cuEventDestroy_v2", "");
  auto *made = static_cast<int *>(event);
  if (!stub().events.erase(made))
    return kInvalidValue;
  delete made;
  return 0;
}
int cuGetErrorName(int result, const char **name) {
  *name = result == kOutOfMemory ? "CUDA_ERROR_OUT_OF_MEMORY" : "CUDA_ERROR_OF_THE_STUB";
  return 0;
}
int cuGetErrorString(int result, const char **message) {
  *message = result == kOutOfMemory ? "out of memory" : "the stub refuses it";
  return 0;
}

/// For tests: what is still held, of memory, modules and events.
size_t millraceStubHeld() {
  return stub().memory.size() + stub().modules.size() + stub().events.size();
}
/// For tests: counts of calls begin anew.
void millraceStubForget() { stub().calls.clear(); }
}
