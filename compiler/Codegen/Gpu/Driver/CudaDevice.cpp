// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "compiler/Codegen/Gpu/Driver/CudaDevice.h"

#include <array>
#include <utility>

namespace millrace::gpu {

using driver::Result;

struct CudaDevice::State {
  driver::Api api;
  driver::Device device = 0;
  CudaFacts facts;
  driver::Context context = nullptr;

  Status check(Result result, const char *function, const std::string &doing) const {
    return driver::check(api, result, function, doing);
  }
  /// The driver keeps one context per thread.
  Status enter() const {
    return check(api.setCurrent(context), "cuCtxSetCurrent",
                 "choosing the GPU '" + facts.name + "'");
  }
  ~State() {
    if (context)
      api.releaseContext(device);
  }
};

Expected<std::string> chipFor(int major, int minor) {
  const int capability = 10 * major + minor;
  if (capability < 80)
    return Error{"the GPU has compute capability " + std::to_string(major) + "." +
                 std::to_string(minor) + ", and kernels need 8.0; use a newer GPU, or --gpu cpu"};
  // PTX without the letter a runs on every later chip, that with it on its own chip alone.
  return std::string(capability >= 100  ? "sm_100"
                     : capability >= 90 ? "sm_90a"
                     : capability >= 89 ? "sm_89"
                     : capability >= 86 ? "sm_86"
                                        : "sm_80");
}

CudaDevice::CudaDevice(std::shared_ptr<State> state) : state(std::move(state)) {}
const CudaFacts &CudaDevice::facts() const { return state->facts; }

Expected<CudaDevice> CudaDevice::open(const std::string &library, int ordinal) {
  Expected<driver::Api> api = driver::open(library);
  if (!api)
    return api.takeError();
  auto state = std::make_shared<State>();
  state->api = *api;
  CudaFacts &facts = state->facts;
  int count = 0;
  if (Status s = state->check(api->init(0), "cuInit",
                              "starting (is a GPU there, and is its kernel module loaded?)");
      !s)
    return s.takeError();
  if (Status s = state->check(api->driverVersion(&facts.driverVersion), "cuDriverGetVersion",
                              "asking its version");
      !s)
    return s.takeError();
  if (Status s = state->check(api->deviceCount(&count), "cuDeviceGetCount", "counting GPUs"); !s)
    return s.takeError();
  if (ordinal < 0 || ordinal >= count)
    return Error{"the CUDA driver has " + std::to_string(count) + " GPUs, and number " +
                 std::to_string(ordinal) +
                 " was asked for; make one visible (CUDA_VISIBLE_DEVICES), or use --gpu cpu"};
  const std::string of = "asking about GPU " + std::to_string(ordinal);
  if (Status s = state->check(api->getDevice(&state->device, ordinal), "cuDeviceGet", of); !s)
    return s.takeError();
  std::array<char, 256> name = {};
  if (Status s = state->check(api->deviceName(name.data(), int(name.size()) - 1, state->device),
                              "cuDeviceGetName", of);
      !s)
    return s.takeError();
  facts.name = name.data();
  int shared = 0, l2 = 0;
  const std::pair<int *, int> attributes[] = {{&facts.major, driver::kCapabilityMajor},
                                              {&facts.minor, driver::kCapabilityMinor},
                                              {&facts.processors, driver::kProcessors},
                                              {&shared, driver::kSharedMemoryOptIn},
                                              {&l2, driver::kL2Bytes}};
  for (const auto &[value, attribute] : attributes)
    if (Status s = state->check(api->deviceAttribute(value, attribute, state->device),
                                "cuDeviceGetAttribute", of);
        !s)
      return s.takeError();
  facts.sharedBytes = size_t(shared);
  facts.l2Bytes = size_t(l2);
  Expected<std::string> chip = chipFor(facts.major, facts.minor);
  if (!chip)
    return chip.takeError();
  facts.chip = *chip;
  driver::Context context = nullptr;
  if (Status s = state->check(api->retainContext(&context, state->device),
                              "cuDevicePrimaryCtxRetain", "opening the GPU '" + facts.name + "'");
      !s)
    return s.takeError();
  state->context = context;
  if (Status s = state->enter(); !s)
    return s.takeError();
  return CudaDevice(std::move(state));
}

Expected<CudaMemory> CudaDevice::allocate(size_t bytes) const {
  if (Status s = state->enter(); !s)
    return s.takeError();
  driver::Address at = 0;
  if (Status s = state->check(state->api.allocate(&at, bytes), "cuMemAlloc_v2",
                              "allocating " + std::to_string(bytes) + " bytes on the GPU");
      !s)
    return s.takeError();
  return CudaMemory(state, at, bytes);
}

Expected<CudaKernel> CudaDevice::load(const std::string &ptx, const std::string &name,
                                      size_t sharedBytes) const {
  if (sharedBytes > state->facts.sharedBytes)
    return Error{"kernel '" + name + "' takes " + std::to_string(sharedBytes) +
                 " bytes of shared memory, and the GPU '" + state->facts.name + "' gives " +
                 std::to_string(state->facts.sharedBytes)};
  if (Status s = state->enter(); !s)
    return s.takeError();
  CudaKernel kernel;
  kernel.device = state;
  kernel.name = name;
  kernel.sharedBytes = sharedBytes;
  std::string log(8192, '\0');
  std::array<int, 2> options = {driver::kErrorLogBuffer, driver::kErrorLogBytes};
  std::array<void *, 2> values = {log.data(), reinterpret_cast<void *>(log.size() - 1)};
  Status loaded =
      state->check(state->api.loadModule(&kernel.module, ptx.c_str(), unsigned(options.size()),
                                         options.data(), values.data()),
                   "cuModuleLoadDataEx", "compiling kernel '" + name + "'");
  if (!loaded) {
    kernel.module = nullptr;
    log.resize(log.find('\0'));
    return Error{loaded.error() + (log.empty() ? "" : "; its log: " + log)};
  }
  if (Status s = state->check(state->api.getFunction(&kernel.function, kernel.module, name.c_str()),
                              "cuModuleGetFunction", "looking for kernel '" + name + "'");
      !s)
    return s.takeError();
  constexpr size_t kWithoutAsking = 48 << 10;
  if (sharedBytes > kWithoutAsking)
    if (Status s =
            state->check(state->api.setFunctionAttribute(
                             kernel.function, driver::kMaxDynamicSharedBytes, int(sharedBytes)),
                         "cuFuncSetAttribute",
                         "giving kernel '" + name + "' " + std::to_string(sharedBytes) +
                             " bytes of shared memory");
        !s)
      return s.takeError();
  return kernel;
}

Expected<driver::EncodedMap> CudaDevice::encode(const CudaMatrix &matrix) const {
  // From the innermost dimension on, whose elements lie side by side.
  std::vector<unsigned long long> sizes = {(unsigned long long)(matrix.columns),
                                           (unsigned long long)(matrix.rows)},
                                  strides = {(unsigned long long)(matrix.rowBytes)};
  std::vector<unsigned> box = {matrix.boxColumns, matrix.boxRows};
  for (const auto &[size, bytes] : matrix.outer) {
    sizes.push_back((unsigned long long)(size));
    strides.push_back((unsigned long long)(bytes));
    box.push_back(1);
  }
  const std::vector<unsigned> steps(box.size(), 1);
  driver::EncodedMap map = {};
  // Bits are moved and zeros put in their place: of which type they are does not matter.
  const int type = matrix.elementBytes == 2 ? driver::kMapUint16 : driver::kMapUint32;
  if (Status s = state->check(
          state->api.encodeMap(
              &map, type, unsigned(sizes.size()), reinterpret_cast<void *>(matrix.base),
              sizes.data(), strides.data(), box.data(), steps.data(), 0,
              matrix.isSwizzled ? driver::kMapSwizzle128 : 0, driver::kMapPromote128, 0),
          "cuTensorMapEncodeTiled",
          "describing a matrix of " + std::to_string(matrix.rows) + " x " +
              std::to_string(matrix.columns) + " elements, " + std::to_string(matrix.rowBytes) +
              " bytes a row, in boxes of " + std::to_string(matrix.boxRows) + " x " +
              std::to_string(matrix.boxColumns));
      !s)
    return s.takeError();
  return map;
}

Status CudaDevice::synchronize(const std::string &doing) const {
  if (Status s = state->enter(); !s)
    return s;
  return state->check(state->api.synchronize(), "cuCtxSynchronize", doing);
}

CudaMemory::CudaMemory(CudaMemory &&other) noexcept
    : device(std::move(other.device)), at(other.at), size(other.size) {}
CudaMemory &CudaMemory::operator=(CudaMemory &&other) noexcept {
  std::swap(device, other.device);
  std::swap(at, other.at);
  std::swap(size, other.size);
  return *this;
}
CudaMemory::~CudaMemory() {
  if (!device)
    return;
  (void)device->enter(); // there is nobody to tell
  device->api.release(at);
}

static std::string within(size_t offset, size_t bytes, size_t size) {
  return std::to_string(bytes) + " bytes at byte " + std::to_string(offset) + " of " +
         std::to_string(size);
}

Status CudaMemory::copyIn(size_t offset, const void *from, size_t bytes) const {
  if (offset > size || bytes > size - offset)
    return Error{"a copy to the GPU of " + within(offset, bytes, size)};
  if (Status s = device->enter(); !s)
    return s;
  return device->check(device->api.copyIn(at + offset, from, bytes), "cuMemcpyHtoD_v2",
                       "copying to the GPU " + within(offset, bytes, size));
}

Status CudaMemory::copyOut(size_t offset, void *to, size_t bytes) const {
  if (offset > size || bytes > size - offset)
    return Error{"a copy from the GPU of " + within(offset, bytes, size)};
  if (Status s = device->enter(); !s)
    return s;
  return device->check(device->api.copyOut(to, at + offset, bytes), "cuMemcpyDtoH_v2",
                       "copying from the GPU " + within(offset, bytes, size));
}

Status CudaMemory::fill(unsigned char value) const {
  if (Status s = device->enter(); !s)
    return s;
  return device->check(device->api.fill(at, value, size), "cuMemsetD8_v2",
                       "filling " + std::to_string(size) + " bytes of the GPU");
}

CudaKernel::CudaKernel(CudaKernel &&other) noexcept
    : device(std::move(other.device)), name(std::move(other.name)), module(other.module),
      function(other.function), sharedBytes(other.sharedBytes) {}
CudaKernel &CudaKernel::operator=(CudaKernel &&other) noexcept {
  std::swap(device, other.device);
  std::swap(name, other.name);
  std::swap(module, other.module);
  std::swap(function, other.function);
  std::swap(sharedBytes, other.sharedBytes);
  return *this;
}
CudaKernel::~CudaKernel() {
  if (!device || !module)
    return;
  (void)device->enter(); // there is nobody to tell
  device->api.unloadModule(module);
}

Status CudaKernel::launch(CudaGrid grid, unsigned threads,
                          const std::vector<CudaArgument> &arguments) {
  if (Status s = device->enter(); !s)
    return s;
  std::vector<void *> places;
  for (const CudaArgument &argument : arguments)
    places.push_back(const_cast<void *>(
        std::visit([](const auto &value) { return static_cast<const void *>(&value); }, argument)));
  return device->check(device->api.launch(function, grid.x, grid.y, 1, threads, 1, 1,
                                          unsigned(sharedBytes), nullptr, places.data(), nullptr),
                       "cuLaunchKernel",
                       "launching kernel '" + name + "' with " + std::to_string(grid.x) + " x " +
                           std::to_string(grid.y) + " programs of " + std::to_string(threads) +
                           " threads");
}

namespace {

/// An event of the driver, destroyed when it goes.
struct OwnedEvent {
  explicit OwnedEvent(const driver::Api &api) : api(api) {}
  OwnedEvent(const OwnedEvent &) = delete;
  OwnedEvent &operator=(const OwnedEvent &) = delete;
  ~OwnedEvent() {
    if (event)
      api.destroyEvent(event);
  }
  const driver::Api &api;
  driver::Event event = nullptr;
};

} // namespace

Expected<double> CudaKernel::timeOne(CudaGrid grid, unsigned threads,
                                     const std::vector<CudaArgument> &arguments) {
  if (Status s = device->enter(); !s)
    return s.takeError();
  const driver::Api &api = device->api;
  const std::string doing = "timing kernel '" + name + "'";
  OwnedEvent begin(api), end(api);
  for (OwnedEvent *event : {&begin, &end})
    if (Status s = device->check(api.createEvent(&event->event, 0), "cuEventCreate", doing); !s)
      return s.takeError();
  if (Status s = device->check(api.recordEvent(begin.event, nullptr), "cuEventRecord", doing); !s)
    return s.takeError();
  if (Status s = launch(grid, threads, arguments); !s)
    return s.takeError();
  if (Status s = device->check(api.recordEvent(end.event, nullptr), "cuEventRecord", doing); !s)
    return s.takeError();
  if (Status s = device->check(api.waitEvent(end.event), "cuEventSynchronize", doing); !s)
    return s.takeError();
  float milliseconds = 0;
  if (Status s = device->check(api.elapsed(&milliseconds, begin.event, end.event),
                               "cuEventElapsedTime", doing);
      !s)
    return s.takeError();
  return double(milliseconds) * 1e-3;
}

} // namespace millrace::gpu
