// The device's memory: filled with NaN, counted, limited. Pinned host memory. What torch asks of both.
#include "sim.h"

#include <ATen/detail/PrivateUse1HooksInterface.h>
#include <c10/core/StorageImpl.h>

#include <cstdlib>
#include <cstring>
#include <map>
#include <mutex>

namespace sim {
namespace {

constexpr size_t kTotalBytes = size_t{1} << 34;

struct Usage {
  size_t current = 0;
  size_t peak = 0;
  size_t limit = kTotalBytes;
};

std::mutex memory_mutex;
Usage usage[kMostDevices];
std::map<const char*, size_t> pinned; // start and bytes

void take(c10::DeviceIndex device, size_t bytes) {
  std::lock_guard<std::mutex> lock(memory_mutex);
  Usage& of_device = usage[device];
  TORCH_CHECK_WITH(
      OutOfMemoryError,
      of_device.current + bytes <= of_device.limit,
      "sim out of memory. Tried to allocate ", bytes, " bytes. Device ", int(device), " has a total capacity of ",
      of_device.limit, " bytes of which ", of_device.limit - of_device.current, " bytes is free.");
  of_device.current += bytes;
  of_device.peak = std::max(of_device.peak, of_device.current);
}

void give(c10::DeviceIndex device, size_t bytes) {
  std::lock_guard<std::mutex> lock(memory_mutex);
  usage[device].current -= bytes;
}

struct Block {
  c10::DataPtr owned;
  size_t bytes;
  c10::DeviceIndex device;
};

void free_block(void* context) {
  auto* block = static_cast<Block*>(context);
  give(block->device, block->bytes);
  delete block;
}

c10::DataPtr filled(size_t bytes) {
  void* pointer = bytes ? std::malloc(bytes) : nullptr;
  TORCH_CHECK(pointer || !bytes, "the host has no memory for ", bytes, " bytes of the device");
  if (bytes) {
    std::memset(pointer, 0xFF, bytes); // NaN in each floating-point format
  }
  return {pointer, pointer, &std::free, c10::Device(c10::DeviceType::CPU)};
}

struct SimAllocator final : c10::DeviceAllocator {
  c10::DataPtr allocate(size_t bytes) override {
    return adopt(filled(bytes), bytes, current_device());
  }
  void copy_data(void* target, const void* source, size_t bytes) const override {
    default_copy_data(target, source, bytes);
  }
  bool initialized() override {
    return true;
  }
  void emptyCache(c10::MempoolId_t) override {}
  void recordStream(const c10::DataPtr&, c10::Stream) override {}
  c10::CachingDeviceAllocator::DeviceStats getDeviceStats(c10::DeviceIndex device) override {
    std::lock_guard<std::mutex> lock(memory_mutex);
    c10::CachingDeviceAllocator::DeviceStats stats;
    stats.allocated_bytes[0].current = static_cast<int64_t>(usage[device].current);
    stats.allocated_bytes[0].peak = static_cast<int64_t>(usage[device].peak);
    return stats;
  }
  void resetAccumulatedStats(c10::DeviceIndex) override {}
  void resetPeakStats(c10::DeviceIndex device) override {
    std::lock_guard<std::mutex> lock(memory_mutex);
    usage[device].peak = usage[device].current;
  }
  std::pair<size_t, size_t> getMemoryInfo(c10::DeviceIndex device) override {
    std::lock_guard<std::mutex> lock(memory_mutex);
    return {usage[device].limit - usage[device].current, usage[device].limit};
  }
};

void free_pinned(void* pointer) {
  {
    std::lock_guard<std::mutex> lock(memory_mutex);
    pinned.erase(static_cast<const char*>(pointer));
  }
  std::free(pointer);
}

struct PinnedAllocator final : c10::Allocator {
  c10::DataPtr allocate(size_t bytes) override {
    c10::DataPtr block = filled(bytes);
    void* pointer = block.release_context();
    std::lock_guard<std::mutex> lock(memory_mutex);
    if (bytes) {
      pinned[static_cast<const char*>(pointer)] = bytes;
    }
    return {pointer, pointer, &free_pinned, c10::Device(c10::DeviceType::CPU)};
  }
  void copy_data(void* target, const void* source, size_t bytes) const override {
    default_copy_data(target, source, bytes);
  }
};

struct Hooks final : at::PrivateUse1HooksInterface {
  bool isBuilt() const override {
    return true;
  }
  bool isAvailable() const override {
    return true;
  }
  bool hasPrimaryContext(c10::DeviceIndex) const override {
    return true;
  }
  c10::DeviceIndex deviceCount() const override {
    return device_count();
  }
  void setCurrentDevice(c10::DeviceIndex device) const override {
    set_current_device(device);
  }
  c10::DeviceIndex getCurrentDevice() const override {
    return current_device();
  }
  c10::DeviceIndex exchangeDevice(c10::DeviceIndex device) const override {
    const auto before = current_device();
    set_current_device(device);
    return before;
  }
  c10::DeviceIndex maybeExchangeDevice(c10::DeviceIndex device) const override {
    return exchangeDevice(device);
  }
  bool isPinnedPtr(const void* pointer) const override {
    return is_pinned(pointer);
  }
  c10::Allocator* getPinnedMemoryAllocator() const override {
    return pinned_allocator();
  }
  const at::Generator& getDefaultGenerator(c10::DeviceIndex device) const override {
    return default_generator(device < 0 ? current_device() : device);
  }
  at::Generator getNewGenerator(c10::DeviceIndex device) const override {
    return new_generator(device < 0 ? current_device() : device);
  }
  void resizePrivateUse1Bytes(const c10::Storage& storage, size_t bytes) const override {
    c10::StorageImpl* impl = storage.unsafeGetStorageImpl();
    const auto device = storage.device().index();
    c10::DataPtr fresh = adopt(filled(bytes), bytes, device);
    if (const size_t kept = std::min(bytes, impl->nbytes())) {
      std::memcpy(fresh.get(), impl->data(), kept);
    }
    impl->set_data_ptr_noswap(std::move(fresh));
    impl->set_nbytes(bytes);
  }
};

SimAllocator device_memory;
PinnedAllocator pinned_memory;
Hooks hooks;
const bool registered = [] {
  c10::SetAllocator(kSim, &device_memory);
  at::RegisterPrivateUse1HooksInterface(&hooks);
  return true;
}();

} // namespace

c10::DeviceAllocator* allocator() {
  return &device_memory;
}

c10::Allocator* pinned_allocator() {
  return &pinned_memory;
}

bool is_pinned(const void* pointer) {
  std::lock_guard<std::mutex> lock(memory_mutex);
  const auto* address = static_cast<const char*>(pointer);
  auto after = pinned.upper_bound(address);
  if (after == pinned.begin()) {
    return false;
  }
  const auto& [start, bytes] = *--after;
  return address < start + bytes;
}

c10::DataPtr adopt(c10::DataPtr owned, size_t bytes, c10::DeviceIndex device) {
  take(device, bytes);
  void* pointer = owned.get();
  return {pointer, new Block{std::move(owned), bytes, device}, &free_block, c10::Device(kSim, device)};
}

void set_memory_limit(c10::DeviceIndex device, size_t bytes) {
  std::lock_guard<std::mutex> lock(memory_mutex);
  usage[device].limit = bytes ? bytes : kTotalBytes;
}

} // namespace sim
