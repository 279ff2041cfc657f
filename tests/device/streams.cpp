// Devices, streams and events. Only copies between the device and pinned memory are asynchronous.
#include "sim.h"

#include <c10/core/impl/DeviceGuardImplInterface.h>

#include <atomic>
#include <list>
#include <mutex>

namespace sim {
namespace {

std::atomic<c10::DeviceIndex> count{1};
std::atomic<c10::StreamId> last_stream{0};
std::atomic<int64_t> waits{0};
std::atomic<bool> waits_forbidden{false};
thread_local c10::DeviceIndex device_of_thread = 0;
thread_local c10::StreamId stream_of_thread[kMostDevices] = {};

struct Point {
  c10::Stream stream;
  int64_t number;
};

struct Copy {
  std::vector<Point> after; // whoever waits for one of these has waited for the copy
  bool to_device;
  std::function<void()> deliver;
};

std::recursive_mutex copies_mutex;
std::list<Copy> copies; // oldest first
int64_t last_number = 0;

bool covers(const Copy& copy, c10::Stream stream, int64_t number) {
  for (const Point& point : copy.after) {
    if (point.stream == stream && point.number <= number) {
      return true;
    }
  }
  return false;
}

void deliver_if(const std::function<bool(const Copy&)>& due) {
  // Ends after the lock: the end of a tensor may wait for Python, and Python for the lock.
  std::vector<std::function<void()>> delivered;
  std::lock_guard<std::recursive_mutex> lock(copies_mutex);
  for (auto copy = copies.begin(); copy != copies.end();) {
    if (due(*copy)) {
      delivered.push_back(std::move(copy->deliver));
      copy = copies.erase(copy);
      delivered.back()();
    } else {
      ++copy;
    }
  }
}

struct Guard final : c10::impl::DeviceGuardImplInterface {
  c10::DeviceType type() const override {
    return kSim;
  }
  c10::Device exchangeDevice(c10::Device device) const override {
    const auto before = getDevice();
    setDevice(device);
    return before;
  }
  c10::Device getDevice() const override {
    return {kSim, device_of_thread};
  }
  void setDevice(c10::Device device) const override {
    set_current_device(device.index());
  }
  void uncheckedSetDevice(c10::Device device) const noexcept override {
    device_of_thread = device.index();
  }
  c10::Stream getStream(c10::Device device) const override {
    return current_stream(device.index());
  }
  c10::Stream getDefaultStream(c10::Device device) const override {
    return c10::Stream(c10::Stream::DEFAULT, device);
  }
  c10::Stream getStreamFromGlobalPool(c10::Device device, bool) const override {
    return getNewStream(device, 0);
  }
  c10::Stream getNewStream(c10::Device device, int) const override {
    const auto index = device.has_index() ? device.index() : current_device();
    return c10::Stream(c10::Stream::UNSAFE, c10::Device(kSim, index), ++last_stream);
  }
  c10::Stream exchangeStream(c10::Stream stream) const override {
    const auto before = current_stream(stream.device_index());
    stream_of_thread[stream.device_index()] = stream.id();
    return before;
  }
  c10::DeviceIndex deviceCount() const noexcept override {
    return count;
  }

  void record(void** event, const c10::Stream& stream, c10::DeviceIndex, c10::EventFlag) const override {
    std::lock_guard<std::recursive_mutex> lock(copies_mutex);
    if (!*event) {
      *event = new Point{stream, 0};
    }
    *static_cast<Point*>(*event) = Point{stream, last_number};
  }
  void block(void* event, const c10::Stream& stream) const override {
    if (!event) {
      return;
    }
    std::lock_guard<std::recursive_mutex> lock(copies_mutex);
    const Point point = *static_cast<Point*>(event);
    const int64_t number = ++last_number;
    for (Copy& copy : copies) {
      if (covers(copy, point.stream, point.number)) {
        copy.after.push_back({stream, number});
      }
    }
  }
  bool queryEvent(void* event) const override {
    wait(event);
    return true;
  }
  void synchronizeEvent(void* event) const override {
    count_host_wait("an event");
    wait(event);
  }
  void destroyEvent(void* event, c10::DeviceIndex) const noexcept override {
    delete static_cast<Point*>(event);
  }
  double elapsedTime(void*, void*, c10::DeviceIndex) const override {
    return 0.0;
  }
  bool queryStream(const c10::Stream& stream) const override {
    synchronize_stream(stream);
    return true;
  }
  void synchronizeStream(const c10::Stream& stream) const override {
    count_host_wait("a stream");
    synchronize_stream(stream);
  }
  void synchronizeDevice(c10::DeviceIndex device) const override {
    count_host_wait("a device");
    synchronize_device(device);
  }

 private:
  static void wait(void* event) {
    if (event) {
      const Point point = *static_cast<Point*>(event);
      deliver_if([&](const Copy& copy) { return covers(copy, point.stream, point.number); });
    }
  }
};

C10_REGISTER_GUARD_IMPL(PrivateUse1, Guard)

} // namespace

void set_device_count(c10::DeviceIndex wanted) {
  TORCH_CHECK(0 < wanted && size_t(wanted) <= kMostDevices, "1 to ", kMostDevices, " devices, not ", int(wanted));
  count = wanted;
}

c10::DeviceIndex device_count() {
  return count;
}

c10::DeviceIndex current_device() {
  return device_of_thread;
}

void set_current_device(c10::DeviceIndex device) {
  TORCH_CHECK(0 <= device && device < count, "invalid device ordinal ", int(device));
  device_of_thread = device;
}

c10::Stream current_stream(c10::DeviceIndex device) {
  const auto index = device < 0 ? current_device() : device;
  return c10::Stream(c10::Stream::UNSAFE, c10::Device(kSim, index), stream_of_thread[index]);
}

void enqueue_copy(c10::Stream stream, bool to_device, std::function<void()> deliver) {
  std::lock_guard<std::recursive_mutex> lock(copies_mutex);
  copies.push_back({{{stream, ++last_number}}, to_device, std::move(deliver)});
}

void deliver_to_device(c10::Stream stream) {
  deliver_if([&](const Copy& copy) { return copy.to_device && covers(copy, stream, INT64_MAX); });
}

void synchronize_stream(c10::Stream stream) {
  deliver_if([&](const Copy& copy) { return covers(copy, stream, INT64_MAX); });
}

void synchronize_device(c10::DeviceIndex device) {
  deliver_if([&](const Copy& copy) { return copy.after.front().stream.device_index() == device; });
}

void count_host_wait(const char* reason) {
  ++waits;
  TORCH_CHECK(!waits_forbidden, "the host waits for the device here: ", reason);
}

int64_t host_waits() {
  return waits;
}

void forbid_host_waits(bool forbidden) {
  waits_forbidden = forbidden;
}

} // namespace sim
