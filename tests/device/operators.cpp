// Every operator on the device: it runs on the CPU, on the same memory, after the checks that a GPU makes.
#include "sim.h"

#include <ATen/ATen.h>
#include <ATen/EmptyTensor.h>
#include <ATen/autocast_mode.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/native/Resize.h>
#include <ATen/ops/_reshape_alias_native.h>
#include <ATen/ops/as_strided_native.h>
#include <ATen/ops/resize_native.h>
#include <ATen/ops/unfold_native.h>
#include <ATen/ops/view_native.h>
#include <c10/core/DeviceGuard.h>
#include <torch/library.h>

#include <cmath>
#include <cstring>
#include <unordered_map>
#include <unordered_set>

namespace sim {
namespace {

constexpr c10::DispatchKeySet kKeys(c10::DispatchKey::PrivateUse1);

// Operators whose result depends on values: a GPU's host waits for them.
const std::unordered_set<std::string> kWaiting{
    "aten::_local_scalar_dense", "aten::bincount", "aten::equal", "aten::masked_select", "aten::nonzero",
    "aten::_unique2", "aten::unique_consecutive", "aten::unique_dim", "aten::repeat_interleave"};
// Operators that take indices from the host, and copy them.
const std::unordered_set<std::string> kIndexing{"aten::index", "aten::index_put_", "aten::_index_put_impl_"};

bool on_device(const at::Tensor& tensor) {
  return tensor.defined() && tensor.device().type() == kSim;
}

c10::Storage host_storage(const c10::Storage& storage) {
  c10::DataPtr same(storage.mutable_data(), c10::Device(c10::DeviceType::CPU));
  return c10::make_intrusive<c10::StorageImpl>(
      c10::StorageImpl::use_byte_size_t(), storage.nbytes(), std::move(same), c10::GetAllocator(c10::kCPU), true);
}

at::Tensor like(const at::Tensor& tensor, c10::Storage storage, c10::DispatchKeySet keys) {
  auto result = at::detail::make_tensor<c10::TensorImpl>(std::move(storage), keys, tensor.dtype());
  auto* impl = result.unsafeGetTensorImpl();
  impl->set_storage_offset(tensor.storage_offset());
  impl->set_sizes_and_strides(tensor.sizes(), tensor.strides());
  if (tensor.unsafeGetTensorImpl()->is_wrapped_number()) {
    impl->set_wrapped_number(true);
  }
  return result;
}

void check_same(c10::Device one, c10::Device other) {
  TORCH_CHECK(
      one == other,
      "Expected all tensors to be on the same device, but found at least two devices, ", one, " and ", other, "!");
}

// One call of an operator on the CPU.
class Call {
 public:
  Call(const c10::OperatorHandle& op, torch::jit::Stack* stack) : op_(op), stack_(stack) {}

  void run() {
    const size_t count = op_.schema().arguments().size();
    auto arguments = torch::jit::last(*stack_, count);
    const std::string& name = op_.schema().name();
    indexing_ = kIndexing.count(name) > 0;
    for (const c10::IValue& argument : arguments) {
      inspect(argument);
    }
    deliver_to_device(current_stream(device_.index()));
    if (kWaiting.count(name)) {
      count_host_wait(name.c_str());
      synchronize_stream(current_stream(device_.index()));
    }
    const size_t first = stack_->size() - count;
    for (size_t index = first; index < stack_->size(); ++index) {
      (*stack_)[index] = to_host((*stack_)[index]);
    }
    at::Generator before; // the CPU's own numbers
    auto& cpu = const_cast<at::Generator&>(at::detail::getDefaultCPUGenerator());
    const bool random = op_.hasTag(at::Tag::nondeterministic_seeded) && !own_generator_;
    if (random) {
      before = cpu.clone();
      cpu.set_state(numbers_of(default_generator(device_.index())).get_state());
    }
    op_.callBoxed(stack_);
    if (random) {
      numbers_of(default_generator(device_.index())).set_state(cpu.get_state());
      cpu.set_state(before.get_state());
    }
    for (const auto& [alias, tensor] : inputs_) {
      write_back(alias, tensor);
    }
    const size_t results = op_.schema().returns().size();
    for (size_t index = stack_->size() - results; index < stack_->size(); ++index) {
      (*stack_)[index] = to_device((*stack_)[index]);
    }
  }

 private:
  void inspect(const at::Tensor& tensor) {
    if (!tensor.defined()) {
      return;
    }
    if (on_device(tensor)) {
      if (found_) {
        check_same(device_, tensor.device());
      }
      found_ = true;
      device_ = tensor.device();
    }
  }

  void inspect(const c10::IValue& value) {
    if (value.isTensor()) {
      inspect(value.toTensor());
    } else if (value.isDevice()) {
      device_ = value.toDevice();
    } else if (value.isList()) {
      for (const c10::IValue& item : value.toListRef()) {
        if (item.isTensor()) {
          inspect(item.toTensor());
        }
      }
    }
    if (device_.index() < 0) {
      device_ = c10::Device(kSim, current_device());
    }
  }

  at::Tensor to_host(const at::Tensor& tensor) {
    if (!tensor.defined()) {
      return tensor;
    }
    if (!on_device(tensor)) {
      if (found_ && tensor.dim() > 0 && !indexing_) {
        check_same(device_, tensor.device());
      }
      return tensor;
    }
    auto* key = tensor.storage().unsafeGetStorageImpl();
    auto [entry, is_new] = storages_.try_emplace(key);
    if (is_new) {
      entry->second = host_storage(tensor.storage());
      origins_.emplace(entry->second.unsafeGetStorageImpl(), tensor.storage());
    }
    at::Tensor alias = like(tensor, entry->second, c10::DispatchKeySet(c10::DispatchKey::CPU));
    inputs_.emplace_back(alias, tensor);
    return alias;
  }

  c10::IValue to_host(const c10::IValue& value) {
    if (value.isTensor()) {
      return to_host(value.toTensor());
    }
    if (value.isTensorList()) {
      c10::List<at::Tensor> tensors;
      for (const at::Tensor& tensor : value.toTensorList()) {
        tensors.push_back(to_host(tensor));
      }
      return tensors;
    }
    if (value.isOptionalTensorList()) {
      c10::List<std::optional<at::Tensor>> tensors;
      for (const std::optional<at::Tensor>& tensor : value.toOptionalTensorList()) {
        tensors.push_back(tensor ? std::optional<at::Tensor>(to_host(*tensor)) : std::nullopt);
      }
      return tensors;
    }
    if (value.isDevice() && value.toDevice().type() == kSim) {
      return c10::Device(c10::DeviceType::CPU);
    }
    if (value.isGenerator() && value.toGenerator().defined()) {
      own_generator_ = true;
      return numbers_of(value.toGenerator());
    }
    return value;
  }

  // Gives `tensor` the shape and memory that the operator has given its alias.
  static void write_back(const at::Tensor& alias, const at::Tensor& tensor) {
    if (alias.sizes() != tensor.sizes()) {
      const c10::DeviceGuard guard(tensor.device());
      at::native::resize_(tensor, alias.sizes());
      tensor.unsafeGetTensorImpl()->set_sizes_and_strides(alias.sizes(), alias.strides());
    }
    if (alias.numel() && alias.data_ptr() != tensor.data_ptr()) {
      std::memcpy(tensor.mutable_data_ptr(), alias.data_ptr(), alias.storage().nbytes());
    }
  }

  at::Tensor to_device(const at::Tensor& tensor) {
    if (!tensor.defined()) {
      return tensor;
    }
    for (const auto& [alias, original] : inputs_) {
      if (alias.is_same(tensor)) {
        return original;
      }
    }
    auto origin = origins_.find(tensor.storage().unsafeGetStorageImpl());
    if (origin != origins_.end()) {
      return like(tensor, origin->second, kKeys);
    }
    const size_t bytes = tensor.storage().nbytes();
    auto* owner = new c10::Storage(tensor.storage());
    c10::DataPtr owned(
        owner->mutable_data(), owner, [](void* held) { delete static_cast<c10::Storage*>(held); }, c10::Device(c10::kCPU));
    c10::Storage storage = c10::make_intrusive<c10::StorageImpl>(
        c10::StorageImpl::use_byte_size_t(), bytes, adopt(std::move(owned), bytes, device_.index()), allocator(), true);
    return like(tensor, std::move(storage), kKeys);
  }

  c10::IValue to_device(const c10::IValue& value) {
    if (value.isTensor()) {
      return to_device(value.toTensor());
    }
    if (value.isTensorList()) {
      c10::List<at::Tensor> tensors;
      for (const at::Tensor& tensor : value.toTensorList()) {
        tensors.push_back(to_device(tensor));
      }
      return tensors;
    }
    return value;
  }

  const c10::OperatorHandle& op_;
  torch::jit::Stack* stack_;
  c10::Device device_{kSim, current_device()};
  bool found_ = false;
  bool indexing_ = false;
  bool own_generator_ = false;
  std::vector<std::pair<at::Tensor, at::Tensor>> inputs_; // each alias and its tensor
  std::unordered_map<c10::StorageImpl*, c10::Storage> storages_; // of the device, and its alias
  std::unordered_map<c10::StorageImpl*, c10::Storage> origins_; // of an alias, and the device's
};

void run_on_host(const c10::OperatorHandle& op, torch::jit::Stack* stack) {
  at::AutoDispatchBelowADInplaceOrView guard;
  Call(op, stack).run();
}

at::Tensor empty(
    at::IntArrayRef size,
    std::optional<at::ScalarType> dtype,
    std::optional<at::Layout>,
    std::optional<at::Device> device,
    std::optional<bool>,
    std::optional<at::MemoryFormat> format) {
  const c10::OptionalDeviceGuard guard(device);
  return at::detail::empty_generic(size, allocator(), kKeys, c10::dtype_or_default(dtype), format);
}

at::Tensor empty_strided(
    at::IntArrayRef size,
    at::IntArrayRef stride,
    std::optional<at::ScalarType> dtype,
    std::optional<at::Layout>,
    std::optional<at::Device> device,
    std::optional<bool>) {
  const c10::OptionalDeviceGuard guard(device);
  return at::detail::empty_strided_generic(size, stride, allocator(), kKeys, c10::dtype_or_default(dtype));
}

// Makes the values of a copy's target wrong until the copy has been made.
void spoil(const at::Tensor& target) {
  if (target.is_floating_point()) {
    target.fill_(NAN);
  } else {
    target.fill_(target.scalar_type() == at::kByte ? 0xFF : -1);
  }
}

void copy_to_device(const at::Tensor& self, const at::Tensor& source, bool non_blocking) {
  const auto stream = current_stream(self.device().index());
  if (!non_blocking || !is_pinned(source.const_data_ptr())) {
    count_host_wait("a copy from the host");
    deliver_to_device(stream);
    host_alias(self).copy_(source);
    return;
  }
  deliver_to_device(stream);
  spoil(host_alias(self));
  enqueue_copy(stream, true, [self, source] { host_alias(self).copy_(source); });
}

void copy_to_host(const at::Tensor& self, const at::Tensor& source, bool non_blocking) {
  const auto stream = current_stream(source.device().index());
  deliver_to_device(stream);
  if (!non_blocking || !is_pinned(self.const_data_ptr())) {
    count_host_wait("a copy to the host");
    synchronize_stream(stream);
    self.copy_(host_alias(source));
    return;
  }
  const at::Tensor now = host_alias(source).to(self.scalar_type(), /*non_blocking=*/false, /*copy=*/true);
  spoil(self);
  enqueue_copy(stream, false, [self, now] { self.copy_(now); });
}

at::Tensor& copy_(at::Tensor& self, const at::Tensor& source, bool non_blocking) {
  at::AutoDispatchBelowADInplaceOrView guard;
  if (self.is_same(source) || !self.numel()) {
    return self;
  }
  const at::Tensor whole = source.expand_as(self);
  if (!on_device(whole)) {
    copy_to_device(self, whole, non_blocking);
  } else if (!on_device(self)) {
    copy_to_host(self, whole, non_blocking);
  } else {
    deliver_to_device(current_stream(whole.device().index()));
    deliver_to_device(current_stream(self.device().index()));
    host_alias(self).copy_(host_alias(whole));
  }
  return self;
}

at::Tensor copy_from(const at::Tensor& source, const at::Tensor& self, bool non_blocking) {
  at::Tensor target = self;
  return copy_(target, source, non_blocking);
}

at::Tensor copy_from_and_resize(const at::Tensor& source, const at::Tensor& self) {
  self.resize_(source.sizes());
  return copy_from(source, self, false);
}

at::Tensor& set_storage(
    at::Tensor& self, c10::Storage storage, int64_t offset, at::IntArrayRef size, at::IntArrayRef stride) {
  auto* impl = self.unsafeGetTensorImpl();
  impl->set_storage_keep_dtype(std::move(storage));
  impl->set_storage_offset(offset);
  stride.data() ? impl->set_sizes_and_strides(size, stride) : impl->set_sizes_contiguous(size);
  return self;
}

at::Tensor& set_whole_storage(at::Tensor& self, c10::Storage storage) {
  const auto count = static_cast<int64_t>(storage.nbytes() / self.dtype().itemsize());
  return set_storage(self, std::move(storage), 0, {count}, {});
}

at::Tensor& set_tensor(at::Tensor& self, const at::Tensor& source) {
  return set_storage(self, source.storage(), source.storage_offset(), source.sizes(), source.strides());
}

at::Tensor convolution(
    const at::Tensor& input, const at::Tensor& weight, const std::optional<at::Tensor>& bias, at::IntArrayRef stride,
    at::IntArrayRef padding, at::IntArrayRef dilation, bool transposed, at::IntArrayRef output_padding, int64_t groups) {
  static const auto op = c10::Dispatcher::singleton().findSchemaOrThrow("aten::convolution", "");
  torch::jit::Stack stack;
  torch::jit::push(
      stack, input, weight, bias, stride, padding, dilation, transposed, output_padding, groups);
  run_on_host(op, &stack);
  return stack.back().toTensor();
}

std::tuple<at::Tensor, at::Tensor, at::Tensor> convolution_backward(
    const at::Tensor& gradient, const at::Tensor& input, const at::Tensor& weight, at::IntArrayRef stride,
    at::IntArrayRef padding, at::IntArrayRef dilation, bool transposed, at::IntArrayRef output_padding, int64_t groups,
    std::array<bool, 3> wanted) {
  static const auto op = c10::Dispatcher::singleton().findSchemaOrThrow("aten::convolution_backward", "");
  torch::jit::Stack stack;
  const std::vector<int64_t> bias_sizes{transposed ? weight.size(1) * groups : weight.size(0)};
  torch::jit::push(
      stack, gradient, input, weight, std::optional<std::vector<int64_t>>(bias_sizes), stride, padding, dilation,
      transposed, output_padding, groups, c10::List<bool>({wanted[0], wanted[1], wanted[2]}));
  run_on_host(op, &stack);
  return {stack[0].toTensor(), stack[1].toTensor(), stack[2].toTensor()};
}

const at::Tensor& resize_(const at::Tensor& self, at::IntArrayRef size, std::optional<at::MemoryFormat> format) {
  const c10::DeviceGuard guard(self.device());
  return at::native::resize_(self, size, format);
}

void record_stream(at::Tensor&, c10::Stream) {}

TORCH_LIBRARY_IMPL(_, PrivateUse1, library) {
  library.fallback(torch::CppFunction::makeFromBoxedFunction<&run_on_host>());
}

TORCH_LIBRARY_IMPL(aten, PrivateUse1, library) {
  library.impl("empty.memory_format", &empty);
  library.impl("empty_strided", &empty_strided);
  library.impl("copy_", &copy_);
  library.impl("_copy_from", &copy_from);
  library.impl("_copy_from_and_resize", &copy_from_and_resize);
  library.impl("as_strided", &at::native::as_strided_tensorimpl);
  library.impl("view", static_cast<at::Tensor (*)(const at::Tensor&, at::IntArrayRef)>(&at::native::view));
  library.impl("_reshape_alias", &at::native::_reshape_alias);
  library.impl("unfold", &at::native::unfold);
  library.impl("resize_", &resize_);
  library.impl("set_.source_Storage", &set_whole_storage);
  library.impl("set_.source_Storage_storage_offset", &set_storage);
  library.impl("set_.source_Tensor", &set_tensor);
  library.impl("convolution_overrideable", &convolution);
  library.impl("convolution_backward_overrideable", &convolution_backward);
  library.impl("record_stream", &record_stream);
}

} // namespace

at::Tensor host_alias(const at::Tensor& tensor) {
  return like(tensor, host_storage(tensor.storage()), c10::DispatchKeySet(c10::DispatchKey::CPU));
}

} // namespace sim

namespace at::autocast {

TORCH_LIBRARY_IMPL(_, AutocastPrivateUse1, m) {
  m.fallback(torch::CppFunction::makeFallthrough());
}

TORCH_LIBRARY_IMPL(aten, AutocastPrivateUse1, m) {
#define LOWER(...) KERNEL_PRIVATEUSEONE(__VA_ARGS__, lower_precision_fp)
#define WIDE(...) KERNEL_PRIVATEUSEONE(__VA_ARGS__, fp32)
#define WIDE_UNLESS_GIVEN(...) KERNEL_PRIVATEUSEONE(__VA_ARGS__, fp32_set_opt_dtype)
#define WIDE_APPEND KERNEL_DIFFERENT_REDISPATCH_SIGNATURE_PRIVATEUSEONE
#define PROMOTE(...) KERNEL_PRIVATEUSEONE(__VA_ARGS__, promote)
  AT_FORALL_LOWER_PRECISION_FP(LOWER)
  AT_FORALL_FP32(WIDE)
  AT_FORALL_FP32_SET_OPT_DTYPE(WIDE_UNLESS_GIVEN)
  AT_FORALL_DIFFERENT_REDISPATCH_SIGNATURE(WIDE_APPEND)
  AT_FORALL_PROMOTE(PROMOTE)
}

} // namespace at::autocast
