// A simulated HPU: a torch backend on the dispatch key, hooks and device type that Intel Gaudi has,
// with memory that the host cannot read. It computes by torch's CPU kernels, and behaves like the
// device where programs that bring data there and back can go wrong:
//
// * Addresses of tensors are reserved and unreadable: who reads one on the host dies.
// * What is allocated is filled with 0xCD.
// * Copies between host and device are counted, those that the simulation needs are not.
// * float64 is held as float32, silently: what comes back has lost its last bits.
// * A non-blocking copy to the host arrives when the device is synchronized, or at the next blocking
//   copy. One from pinned memory reads it as late as it can: at the next work on the device. One
//   from other memory reads it at once.
// * Operands on host and device do not mix.
//
// What is missing: convolutions, lazy mode, HCCL, torch.compile.

#include <ATen/CPUFunctions.h>
#include <ATen/EmptyTensor.h>
#include <ATen/core/Tensor.h>
#include <ATen/detail/HPUHooksInterface.h>
#include <ATen/native/CPUFallback.h>
#include <ATen/ops/_reshape_alias_native.h>
#include <ATen/ops/_to_cpu.h>
#include <ATen/ops/as_strided_native.h>
#include <ATen/ops/empty_strided.h>
#include <ATen/ops/from_blob.h>
#include <ATen/ops/set_native.h>
#include <ATen/ops/unfold_native.h>
#include <ATen/ops/view_as_complex_native.h>
#include <ATen/ops/view_as_real_native.h>
#include <ATen/ops/view_native.h>
#include <ATen/CPUGeneratorImpl.h>
#include <c10/core/impl/DeviceGuardImplInterface.h>
#include <sys/mman.h>
#include <torch/library.h>

#include <cstring>
#include <map>
#include <mutex>
#include <vector>

namespace {

using at::IntArrayRef;
using at::Tensor;

// Counters, in the order in which fakehpu.py reads them.
enum Counter { H2D, D2H, H2D_BYTES, D2H_BYTES, FALLBACK, SYNC, DEFERRED, LIVE_BLOCKS, COUNTERS };
int64_t counters[COUNTERS];
bool lossy = true;

// The device's work and its books, one at a time: backward passes run on a thread of their own.
std::recursive_mutex device_lock;
using Locked = std::lock_guard<std::recursive_mutex>;

// Copies made while the CPU stands in for the device are no copies to the program.
thread_local int standing_in = 0;
struct StandIn {
  StandIn() { ++standing_in; }
  ~StandIn() { --standing_in; }
};

// ---- memory -------------------------------------------------------------------------------

constexpr size_t PAGE = 4096;
constexpr int GARBAGE = 0xCD;

struct Block {
  size_t size;
  char* payload;  // what the device would hold
};
std::map<void*, Block> blocks;  // by the unreadable address that the program sees

size_t reserved(size_t size) { return (size + PAGE - 1) / PAGE * PAGE; }

void release(void* address) {
  if (address == nullptr) return;
  Locked locked(device_lock);
  auto found = blocks.find(address);
  munmap(address, reserved(found->second.size));
  free(found->second.payload);
  blocks.erase(found);
  --counters[LIVE_BLOCKS];
}

struct DeviceAllocator final : c10::Allocator {
  c10::DataPtr allocate(size_t size) override {
    const c10::Device device(c10::kHPU, 0);
    if (size == 0) return {nullptr, nullptr, &release, device};
    void* address = mmap(nullptr, reserved(size), PROT_NONE,
                         MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    TORCH_CHECK(address != MAP_FAILED, "simulated HPU: out of address space");
    auto* payload = static_cast<char*>(malloc(size));
    TORCH_CHECK(payload != nullptr, "simulated HPU: out of memory");
    memset(payload, GARBAGE, size);
    Locked locked(device_lock);
    blocks[address] = {size, payload};
    ++counters[LIVE_BLOCKS];
    return {address, address, &release, device};
  }
  c10::DeleterFnPtr raw_deleter() const override { return &release; }
  void copy_data(void* to, const void* from, size_t count) const override {
    Locked locked(device_lock);
    memcpy(blocks.at(to).payload, blocks.at(const_cast<void*>(from)).payload, count);
  }
};
DeviceAllocator device_allocator;
REGISTER_ALLOCATOR(c10::kHPU, &device_allocator)

std::map<const char*, size_t> pinned;

void release_pinned(void* address) {
  Locked locked(device_lock);
  pinned.erase(static_cast<char*>(address));
  free(address);
}

bool is_pinned(const void* address) {
  Locked locked(device_lock);
  const auto* wanted = static_cast<const char*>(address);
  auto after = pinned.upper_bound(wanted);
  if (after == pinned.begin()) return false;
  const auto& [start, size] = *std::prev(after);
  return wanted < start + size;
}

struct PinnedAllocator final : c10::Allocator {
  c10::DataPtr allocate(size_t size) override {
    void* address = aligned_alloc(64, (size + 63) / 64 * 64 + 64);
    Locked locked(device_lock);
    pinned[static_cast<char*>(address)] = size + 1;
    return {address, address, &release_pinned, c10::Device(c10::kCPU)};
  }
  c10::DeleterFnPtr raw_deleter() const override { return &release_pinned; }
  void copy_data(void* to, const void* from, size_t count) const override {
    memcpy(to, from, count);
  }
};
PinnedAllocator pinned_allocator;

// The device's values of a tensor, as a tensor that the host can work on.
Tensor payload_of(const Tensor& tensor) {
  const auto options = tensor.options().device(c10::kCPU);
  void* address = tensor.storage().mutable_data();
  if (address == nullptr) return at::empty_strided(tensor.sizes(), tensor.strides(), options);
  Locked locked(device_lock);
  char* first = blocks.at(address).payload + tensor.storage_offset() * tensor.itemsize();
  return at::from_blob(first, tensor.sizes(), tensor.strides(), options);
}

// ---- copies -------------------------------------------------------------------------------

struct Copy {
  Tensor from, to;
};
std::vector<Copy> to_device_later, to_host_later;

// Values as they enter the device.
void enter(const Tensor& values, const Tensor& target) {
  Tensor payload = payload_of(target);
  const bool rounds = lossy && target.scalar_type() == c10::kDouble;
  payload.copy_(rounds ? values.to(c10::kFloat) : values);
}

// The order on the device is kept: what was sent before is there before anything is computed.
void start_work() {
  Locked locked(device_lock);
  auto waiting = std::move(to_device_later);
  to_device_later.clear();
  for (auto& copy : waiting) enter(copy.from, copy.to);
}

void synchronize() {
  Locked locked(device_lock);
  start_work();
  auto waiting = std::move(to_host_later);
  to_host_later.clear();
  for (auto& copy : waiting) copy.to.copy_(copy.from);
}

void count(Counter calls, Counter bytes, const Tensor& tensor) {
  if (standing_in) return;
  ++counters[calls];
  counters[bytes] += tensor.nbytes();
}

void to_device(const Tensor& from, const Tensor& to, bool non_blocking) {
  count(H2D, H2D_BYTES, to);
  if (standing_in || !non_blocking) {
    if (standing_in) start_work(); else synchronize();
    return enter(from, to);
  }
  ++counters[DEFERRED];
  to_device_later.push_back({is_pinned(from.data_ptr()) ? from : from.clone(), to});
}

void to_host(const Tensor& from, const Tensor& to, bool non_blocking) {
  count(D2H, D2H_BYTES, from);
  start_work();
  if (standing_in) {
    to.copy_(payload_of(from));
  } else if (!non_blocking) {
    synchronize();
    to.copy_(payload_of(from));
  } else {
    ++counters[DEFERRED];
    to_host_later.push_back({payload_of(from).clone(), to});
    if (to.is_contiguous()) memset(to.data_ptr(), GARBAGE, to.nbytes());
  }
}

Tensor copy_from(const Tensor& from, const Tensor& to, bool non_blocking) {
  Locked locked(device_lock);
  if (to.is_cpu()) {
    to_host(from.expand(to.sizes()), to, non_blocking);
  } else if (from.is_cpu()) {
    to_device(from.expand(to.sizes()), to, non_blocking);
  } else {
    start_work();
    enter(payload_of(from).expand(to.sizes()), to);
  }
  return to;
}

const Tensor& resize(const Tensor& self, IntArrayRef size, std::optional<at::MemoryFormat> format) {
  Locked locked(device_lock);
  start_work();
  auto* impl = self.unsafeGetTensorImpl();
  impl->set_sizes_contiguous(size);
  if (format.has_value() && *format != at::MemoryFormat::Preserve) {
    impl->empty_tensor_restride(*format);
  }
  const size_t wanted = (impl->numel() + impl->storage_offset()) * impl->itemsize();
  auto storage = impl->storage();
  if (wanted > storage.nbytes()) {
    auto larger = device_allocator.allocate(wanted);
    if (storage.nbytes()) {
      device_allocator.copy_data(larger.get(), storage.mutable_data(), storage.nbytes());
    }
    storage.set_data_ptr_noswap(std::move(larger));
    storage.set_nbytes(wanted);
  }
  return self;
}

Tensor copy_from_and_resize(const Tensor& from, const Tensor& to) {
  if (to.sizes() != from.sizes()) {
    if (to.is_cpu()) to.resize_(from.sizes());
    else resize(to, from.sizes(), std::nullopt);
  }
  return copy_from(from, to, false);
}

at::Scalar item(const Tensor& self) {
  Locked locked(device_lock);
  count(D2H, D2H_BYTES, self);
  synchronize();
  return payload_of(self).item();
}

// ---- making and viewing -------------------------------------------------------------------

constexpr c10::DispatchKeySet HPU_KEYS(c10::DispatchKey::HPU);

void no_pinning(std::optional<bool> pin) {
  TORCH_CHECK(!pin.value_or(false), "Only dense CPU tensors can be pinned");
}

Tensor empty(IntArrayRef size, std::optional<at::ScalarType> dtype, std::optional<at::Layout>,
             std::optional<at::Device>, std::optional<bool> pin,
             std::optional<at::MemoryFormat> format) {
  no_pinning(pin);
  const auto kind = c10::dtype_or_default(dtype);
  return at::detail::empty_generic(size, &device_allocator, HPU_KEYS, kind, format);
}

Tensor empty_strided(IntArrayRef size, IntArrayRef stride, std::optional<at::ScalarType> dtype,
                     std::optional<at::Layout>, std::optional<at::Device>,
                     std::optional<bool> pin) {
  no_pinning(pin);
  const auto kind = c10::dtype_or_default(dtype);
  return at::detail::empty_strided_generic(size, stride, &device_allocator, HPU_KEYS, kind);
}

Tensor& set_nothing(Tensor& self) {
  return at::native::set_(self, c10::Storage(c10::Storage::use_byte_size_t(), 0,
                                             device_allocator.allocate(0), &device_allocator,
                                             true));
}

// ---- everything else ----------------------------------------------------------------------

bool takes_host_indices(const std::string& name) {
  return name.find("index") != std::string::npos;
}

void refuse_host_operand(const Tensor& tensor, const std::string& name) {
  TORCH_CHECK(!tensor.defined() || !tensor.is_cpu() || tensor.dim() == 0,
              "Expected all tensors to be on the same device, but found at least two devices, "
              "hpu:0 and cpu! (when calling ", name, ")");
}

void refuse_host_operands(const c10::OperatorHandle& op, torch::jit::Stack* stack) {
  const auto& name = op.schema().name();
  if (takes_host_indices(name)) return;
  for (const auto& value : torch::jit::last(stack, op.schema().arguments().size())) {
    if (value.isTensor()) {
      refuse_host_operand(value.toTensor(), name);
    } else if (value.isTensorList()) {
      for (const Tensor& tensor : value.toTensorVector()) refuse_host_operand(tensor, name);
    }
  }
}

void compute(const c10::OperatorHandle& op, torch::jit::Stack* stack) {
  // Other libraries' operators would run on what looks like device memory: gloo has no HPU.
  TORCH_CHECK_NOT_IMPLEMENTED(op.schema().name().rfind("aten::", 0) == 0, "simulated HPU: no ",
                              op.schema().name());
  refuse_host_operands(op, stack);
  Locked locked(device_lock);
  start_work();
  StandIn stand_in;
  ++counters[FALLBACK];
  at::native::cpu_fallback(op, stack, /*error_on_views=*/true);
}

TORCH_LIBRARY_IMPL(_, HPU, m) { m.fallback(torch::CppFunction::makeFromBoxedFunction<&compute>()); }

TORCH_LIBRARY_IMPL(aten, HPU, m) {
  m.impl("empty.memory_format", empty);
  m.impl("empty_strided", empty_strided);
  m.impl("_copy_from", copy_from);
  m.impl("_copy_from_and_resize", copy_from_and_resize);
  m.impl("_local_scalar_dense", item);
  m.impl("resize_", resize);
  m.impl("set_", set_nothing);
  m.impl("set_.source_Storage", static_cast<Tensor& (*)(Tensor&, at::Storage)>(at::native::set_));
  m.impl("set_.source_Storage_storage_offset", at::native::set_storage_cpu_);
  m.impl("set_.source_Tensor", at::native::set_tensor_);
  m.impl("as_strided", at::native::as_strided_tensorimpl);
  m.impl("view", at::native::view);
  m.impl("_reshape_alias", at::native::_reshape_alias);
  m.impl("unfold", at::native::unfold);
  m.impl("view_as_real", at::native::view_as_real);
  m.impl("view_as_complex", at::native::view_as_complex);
}

// ---- what torch asks a device -------------------------------------------------------------

struct Guard final : c10::impl::DeviceGuardImplInterface {
  static c10::Device device() { return {c10::kHPU, 0}; }
  static c10::Stream stream() { return c10::Stream(c10::Stream::DEFAULT, device()); }
  c10::DeviceType type() const override { return c10::kHPU; }
  c10::Device exchangeDevice(c10::Device) const override { return device(); }
  c10::Device getDevice() const override { return device(); }
  void setDevice(c10::Device) const override {}
  void uncheckedSetDevice(c10::Device) const noexcept override {}
  c10::Stream getStream(c10::Device) const override { return stream(); }
  c10::Stream getDefaultStream(c10::Device) const override { return stream(); }
  c10::Stream getStreamFromGlobalPool(c10::Device, bool) const override { return stream(); }
  c10::Stream getNewStream(c10::Device, int) const override { return stream(); }
  c10::Stream exchangeStream(c10::Stream) const override { return stream(); }
  c10::DeviceIndex deviceCount() const noexcept override { return 1; }
  void record(void**, const c10::Stream&, const c10::DeviceIndex,
              const c10::EventFlag) const override {}
  void block(void*, const c10::Stream&) const override {}
  bool queryEvent(void*) const override { return true; }
  bool queryStream(const c10::Stream&) const override { return true; }
  void synchronizeStream(const c10::Stream&) const override { synchronize(); }
  void synchronizeEvent(void*) const override { synchronize(); }
  void synchronizeDevice(const c10::DeviceIndex) const override { synchronize(); }
};
C10_REGISTER_GUARD_IMPL(HPU, Guard);

struct HPUHooks final : at::HPUHooksInterface {
  explicit HPUHooks(at::HPUHooksArgs) {}
  void init() const override {}
  bool isBuilt() const override { return true; }
  bool isAvailable() const override { return true; }
  bool hasHPU() const override { return true; }
  bool hasPrimaryContext(c10::DeviceIndex) const override { return true; }
  c10::DeviceIndex deviceCount() const override { return 1; }
  void setCurrentDevice(c10::DeviceIndex) const override {}
  c10::DeviceIndex getCurrentDevice() const override { return 0; }
  c10::DeviceIndex exchangeDevice(c10::DeviceIndex) const override { return 0; }
  c10::DeviceIndex maybeExchangeDevice(c10::DeviceIndex) const override { return 0; }
  bool isPinnedPtr(const void* address) const override { return is_pinned(address); }
  c10::Allocator* getPinnedMemoryAllocator() const override { return &pinned_allocator; }
  at::Device getDeviceFromPtr(void*) const override { return Guard::device(); }
  const at::Generator& getDefaultGenerator(c10::DeviceIndex) const override {
    return at::detail::getDefaultCPUGenerator();
  }
  at::Generator getNewGenerator(c10::DeviceIndex) const override {
    return at::make_generator<at::CPUGeneratorImpl>();
  }
};
}  // namespace

namespace at {
REGISTER_HPU_HOOKS(HPUHooks);
}

extern "C" {

void fakehpu_stats(int64_t* into) {
  Locked locked(device_lock);
  memcpy(into, counters, sizeof(counters));
}

void fakehpu_reset() {
  Locked locked(device_lock);
  const auto live = counters[LIVE_BLOCKS];
  memset(counters, 0, sizeof(counters));
  counters[LIVE_BLOCKS] = live;
}

void fakehpu_synchronize() {
  Locked locked(device_lock);
  ++counters[SYNC];
  synchronize();
}

void fakehpu_set_lossy(int on) { lossy = on != 0; }
}
