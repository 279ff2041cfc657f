// A simulated accelerator: host memory behind a device that keeps a GPU's rules. Registered as torch's PrivateUse1.
#pragma once

#include <ATen/core/Generator.h>
#include <ATen/core/Tensor.h>
#include <c10/core/CachingDeviceAllocator.h>
#include <c10/core/Stream.h>

#include <functional>
#include <vector>

namespace sim {

constexpr auto kSim = c10::DeviceType::PrivateUse1;
constexpr size_t kMostDevices = 8;

// memory.cpp
c10::DeviceAllocator* allocator();
c10::Allocator* pinned_allocator();
bool is_pinned(const void* pointer);
// Counts bytes that a kernel has allocated on the host as memory of the device. Raises OutOfMemoryError.
c10::DataPtr adopt(c10::DataPtr owned, size_t bytes, c10::DeviceIndex device);
void set_memory_limit(c10::DeviceIndex device, size_t bytes);

// streams.cpp
void set_device_count(c10::DeviceIndex count);
c10::DeviceIndex device_count();
c10::DeviceIndex current_device();
void set_current_device(c10::DeviceIndex device);
c10::Stream current_stream(c10::DeviceIndex device);
// A copy that a stream makes later: `deliver` runs when the host or another stream has waited for it. With `to_device`
// the stream's own next operation sees it, too.
void enqueue_copy(c10::Stream stream, bool to_device, std::function<void()> deliver);
// Runs before an operation on `stream`.
void deliver_to_device(c10::Stream stream);
void synchronize_stream(c10::Stream stream);
void synchronize_device(c10::DeviceIndex device);
// Counts a wait of the host for the device, and raises if waits are forbidden.
void count_host_wait(const char* reason);
int64_t host_waits();
void forbid_host_waits(bool forbidden);

// random.cpp
const at::Generator& default_generator(c10::DeviceIndex device);
at::Generator new_generator(c10::DeviceIndex device);
// The CPU generator whose numbers a generator of the device draws.
at::Generator& numbers_of(const at::Generator& generator);

// operators.cpp
// A CPU tensor on the memory of `tensor`. It must not outlive `tensor`.
at::Tensor host_alias(const at::Tensor& tensor);

} // namespace sim
