// A process group of the device, around Gloo: it takes tensors of the device only, as NCCL does. And the Python module.
#include "sim.h"

#include <pybind11/pybind11.h>
#include <torch/csrc/distributed/c10d/Backend.hpp>

PYBIND11_DECLARE_HOLDER_TYPE(T, c10::intrusive_ptr<T>, true) // as torch declares it

namespace sim {
namespace {

using Tensors = std::vector<at::Tensor>;
using Lists = std::vector<Tensors>;
using WorkPtr = c10::intrusive_ptr<c10d::Work>;

// Work on aliases of `held`. `finish` runs on them once, before anyone sees the results.
class SimWork final : public c10d::Work {
 public:
  SimWork(WorkPtr inner, Tensors held, std::function<void()> finish, bool at_once)
      : Work(-1, c10d::OpType::UNKNOWN), inner_(std::move(inner)), held_(std::move(held)) {
    const std::vector<c10::Device> devices =
        held_.empty() ? std::vector<c10::Device>{} : std::vector<c10::Device>{held_[0].device()};
    future_ = c10::make_intrusive<c10::ivalue::Future>(c10::ListType::create(c10::TensorType::get()), devices);
    auto result = c10::IValue(held_);
    if (at_once) {
      inner_->wait();
      inner_.reset();
      finish();
      future_->markCompleted(result);
      return;
    }
    inner_->getFuture()->addCallback(
        [future = future_, result, finish = std::move(finish)](c10::ivalue::Future& done) {
          if (done.hasError()) {
            future->setError(done.exception_ptr());
            return;
          }
          finish();
          future->markCompleted(result);
        });
  }

  bool isCompleted() override {
    return future_->completed();
  }
  bool isSuccess() const override {
    return future_->completed() && !future_->hasError();
  }
  bool wait(std::chrono::milliseconds timeout) override {
    if (inner_) {
      inner_->wait(timeout);
    }
    future_->waitAndThrow();
    return true;
  }
  void synchronize() override {
    wait(kNoTimeout);
  }
  Tensors result() override {
    return held_;
  }
  c10::intrusive_ptr<c10::ivalue::Future> getFuture() override {
    return future_;
  }

 private:
  WorkPtr inner_;
  Tensors held_;
  c10::intrusive_ptr<c10::ivalue::Future> future_;
};

class SimBackend final : public c10d::Backend {
 public:
  explicit SimBackend(c10::intrusive_ptr<c10d::Backend> gloo)
      : Backend(gloo->getRank(), gloo->getSize()), gloo_(std::move(gloo)) {}

  const std::string getBackendName() const override {
    return "sim";
  }
  c10::intrusive_ptr<Options> getBackendOptions() override {
    return gloo_->getBackendOptions();
  }
  void setTimeout(std::chrono::milliseconds timeout) override {
    gloo_->setTimeout(timeout);
  }
  void setSequenceNumberForGroup() override {
    gloo_->setSequenceNumberForGroup();
  }
  uint64_t getSequenceNumberForGroup() override {
    return gloo_->getSequenceNumberForGroup();
  }

  WorkPtr broadcast(Tensors& tensors, const c10d::BroadcastOptions& options) override {
    Tensors aliases = aliases_of(tensors);
    return work(gloo_->broadcast(aliases, options), tensors);
  }
  WorkPtr allreduce(Tensors& tensors, const c10d::AllreduceOptions& options) override {
    Tensors aliases = aliases_of(tensors);
    c10d::AllreduceOptions plain = options;
    const bool mean = replace_mean(plain.reduceOp);
    return work(gloo_->allreduce(aliases, plain), tensors, mean ? aliases : Tensors{});
  }
  WorkPtr allreduce_coalesced(Tensors& tensors, const c10d::AllreduceCoalescedOptions& options) override {
    return each(tensors.size(), [&](size_t index) {
      Tensors one{tensors[index]};
      return allreduce(one, options);
    });
  }
  WorkPtr reduce(Tensors& tensors, const c10d::ReduceOptions& options) override {
    Tensors aliases = aliases_of(tensors);
    return work(gloo_->reduce(aliases, options), tensors);
  }
  WorkPtr allgather(Lists& outputs, Tensors& inputs, const c10d::AllgatherOptions& options) override {
    Lists out = aliases_of(outputs);
    Tensors in = aliases_of(inputs);
    return work(gloo_->allgather(out, in, options), all(outputs, inputs));
  }
  WorkPtr all_gather_single(at::Tensor& output, at::Tensor& input, const c10d::AllgatherOptions& options) override {
    at::Tensor out = alias_of(output), in = alias_of(input);
    return work(gloo_->all_gather_single(out, in, options), {output, input});
  }
  WorkPtr all_gather_single_coalesced(
      Tensors& outputs, Tensors& inputs, const c10d::AllgatherOptions& options) override {
    return each(inputs.size(), [&](size_t index) { return all_gather_single(outputs[index], inputs[index], options); });
  }
  WorkPtr reduce_scatter_single_coalesced(
      Tensors& outputs, Tensors& inputs, const c10d::ReduceScatterOptions& options) override {
    return each(
        inputs.size(), [&](size_t index) { return reduce_scatter_single(outputs[index], inputs[index], options); });
  }
  WorkPtr gather(Lists& outputs, Tensors& inputs, const c10d::GatherOptions& options) override {
    Lists out = aliases_of(outputs);
    Tensors in = aliases_of(inputs);
    return work(gloo_->gather(out, in, options), all(outputs, inputs));
  }
  WorkPtr scatter(Tensors& outputs, Lists& inputs, const c10d::ScatterOptions& options) override {
    Tensors out = aliases_of(outputs);
    Lists in = aliases_of(inputs);
    return work(gloo_->scatter(out, in, options), all(inputs, outputs));
  }
  WorkPtr reduce_scatter_single(
      at::Tensor& output, at::Tensor& input, const c10d::ReduceScatterOptions& options) override {
    at::Tensor out = alias_of(output), in = alias_of(input);
    c10d::ReduceScatterOptions plain = options;
    const bool mean = replace_mean(plain.reduceOp);
    // Gloo writes the sum in each `wait`, which would undo a division.
    return work(gloo_->reduce_scatter_single(out, in, plain), {output, input}, mean ? Tensors{out} : Tensors{}, true);
  }
  WorkPtr barrier(const c10d::BarrierOptions& options) override {
    c10d::BarrierOptions plain = options;
    plain.device_ids.clear();
    plain.device = std::nullopt;
    return work(gloo_->barrier(plain), {});
  }

 private:
  static at::Tensor alias_of(const at::Tensor& tensor) {
    TORCH_CHECK(tensor.device().type() == kSim, "No backend type associated with device type ", tensor.device().type());
    TORCH_CHECK(tensor.is_contiguous() || tensor.is_non_overlapping_and_dense(), "Tensors must be contiguous");
    deliver_to_device(current_stream(tensor.device().index()));
    return host_alias(tensor);
  }
  static Tensors aliases_of(const Tensors& tensors) {
    Tensors aliases;
    for (const at::Tensor& tensor : tensors) {
      aliases.push_back(alias_of(tensor));
    }
    return aliases;
  }
  static Lists aliases_of(const Lists& lists) {
    Lists aliases;
    for (const Tensors& tensors : lists) {
      aliases.push_back(aliases_of(tensors));
    }
    return aliases;
  }
  static Tensors all(const Lists& lists, Tensors tensors) {
    for (const Tensors& more : lists) {
      tensors.insert(tensors.end(), more.begin(), more.end());
    }
    return tensors;
  }
  // Makes `count` collectives, one after another. Returns the last one.
  static WorkPtr each(size_t count, const std::function<WorkPtr(size_t)>& make) {
    WorkPtr last;
    for (size_t index = 0; index < count; ++index) {
      last = make(index);
      last->wait();
    }
    return last;
  }
  static bool replace_mean(c10d::ReduceOp& operation) {
    const bool mean = operation == c10d::ReduceOp::AVG;
    if (mean) {
      operation = c10d::ReduceOp::SUM;
    }
    return mean;
  }
  WorkPtr work(WorkPtr inner, Tensors held, Tensors divided = {}, bool at_once = false) {
    const auto size = getSize();
    auto finish = [divided, size] {
      for (at::Tensor tensor : divided) {
        tensor.div_(size);
      }
    };
    return c10::make_intrusive<SimWork>(std::move(inner), std::move(held), finish, at_once);
  }

  c10::intrusive_ptr<c10d::Backend> gloo_;
};

} // namespace
} // namespace sim

PYBIND11_MODULE(TORCH_EXTENSION_NAME, module) {
  module.def("set_device_count", &sim::set_device_count);
  module.def("set_memory_limit", &sim::set_memory_limit);
  module.def("host_waits", &sim::host_waits);
  module.def("forbid_host_waits", &sim::forbid_host_waits);
  module.def("backend", [](c10::intrusive_ptr<c10d::Backend> gloo) -> c10::intrusive_ptr<c10d::Backend> {
    return c10::make_intrusive<sim::SimBackend>(std::move(gloo));
  });
}
