// A generator for each device. It draws the numbers of a CPU generator of its own.
#include "sim.h"

#include <ATen/CPUGeneratorImpl.h>

#include <memory>
#include <mutex>

namespace sim {
namespace {

struct SimGenerator final : c10::GeneratorImpl {
  explicit SimGenerator(c10::DeviceIndex device, at::Generator numbers = at::detail::createCPUGenerator())
      : GeneratorImpl(c10::Device(kSim, device), c10::DispatchKeySet(c10::DispatchKey::PrivateUse1)),
        numbers(std::move(numbers)) {}

  void set_current_seed(uint64_t seed) override {
    numbers.set_current_seed(seed);
  }
  uint64_t current_seed() const override {
    return numbers.current_seed();
  }
  uint64_t seed() override {
    return numbers.seed();
  }
  void set_offset(uint64_t) override {
    TORCH_CHECK(false, "the simulated device has no offset");
  }
  uint64_t get_offset() const override {
    TORCH_CHECK(false, "the simulated device has no offset");
  }
  void set_state(const c10::TensorImpl& state) override {
    numbers.unsafeGetGeneratorImpl()->set_state(state);
  }
  c10::intrusive_ptr<c10::TensorImpl> get_state() const override {
    return numbers.unsafeGetGeneratorImpl()->get_state();
  }
  SimGenerator* clone_impl() const override {
    return new SimGenerator(device_.index(), numbers.clone());
  }

  at::Generator numbers;
};

} // namespace

const at::Generator& default_generator(c10::DeviceIndex device) {
  static std::mutex mutex;
  static std::vector<std::unique_ptr<at::Generator>> generators;
  std::lock_guard<std::mutex> lock(mutex);
  while (generators.size() <= size_t(device)) {
    const auto index = static_cast<c10::DeviceIndex>(generators.size());
    generators.push_back(std::make_unique<at::Generator>(at::make_generator<SimGenerator>(index)));
  }
  return *generators[device];
}

at::Generator new_generator(c10::DeviceIndex device) {
  return at::make_generator<SimGenerator>(device);
}

at::Generator& numbers_of(const at::Generator& generator) {
  return static_cast<SimGenerator*>(generator.unsafeGetGeneratorImpl())->numbers;
}

} // namespace sim
