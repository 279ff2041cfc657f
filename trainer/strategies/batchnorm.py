"""Synchronized batch norm: statistics over the micro-batches of all ranks."""

from typing import Any

import torch
from torch import Tensor, distributed, nn
from torch.autograd import Function
from torch.nn.modules.batchnorm import _BatchNorm  # pyright: ignore[reportPrivateUsage] the base of all of them

from trainer.world import World


def synchronized(model: nn.Module, world: World) -> nn.Module:
    """Returns the model with synchronized batch norms. Parameters keep their values and names.

    These are PyTorch's SyncBatchNorm on CUDA. It supports no other device, where PlainSyncBatchNorm computes the same.
    """
    if world.device.type == "cuda":  # the only device with its kernels
        return nn.SyncBatchNorm.convert_sync_batchnorm(model)
    for module in model.modules():
        if isinstance(module, _BatchNorm) and not isinstance(module, nn.SyncBatchNorm):
            module.__class__ = PlainSyncBatchNorm
    return model


class PlainSyncBatchNorm(_BatchNorm):
    """Normalizes (N, C, …) by mean and variance of each channel over all ranks, whose N may differ."""

    def forward(self, input: Tensor) -> Tensor:
        if not self.training:
            return super().forward(input)
        axes = [axis for axis in range(input.ndim) if axis != 1]
        shape = [1, -1] + [1] * (input.ndim - 2)
        wide = input.float() if input.dtype in {torch.float16, torch.bfloat16} else input
        count = _sum_of_ranks(wide.new_tensor(input.numel() // input.shape[1]))
        mean = _sum_of_ranks(wide.sum(axes)) / count
        centered = wide - mean.view(shape)
        variance = _sum_of_ranks(centered.square().sum(axes)) / count
        self._track(mean.detach(), variance.detach(), count)
        normal = centered * torch.rsqrt(variance + self.eps).view(shape)
        if self.affine:
            normal = normal * self.weight.view(shape) + self.bias.view(shape)
        return normal.to(input.dtype)

    def _check_input_dim(self, input: Tensor) -> None:
        pass

    def _track(self, mean: Tensor, variance: Tensor, count: Tensor) -> None:
        if self.running_mean is None or self.running_var is None or self.num_batches_tracked is None:
            return
        self.num_batches_tracked.add_(1)
        share = self.momentum if self.momentum is not None else 1 / float(self.num_batches_tracked)
        self.running_mean.lerp_(mean.to(self.running_mean.dtype), share)
        self.running_var.lerp_((variance * count / (count - 1)).to(self.running_var.dtype), share)


class _Sum(Function):
    """The sum over ranks. Its gradient is the sum of the ranks' gradients."""

    @staticmethod
    def forward(ctx: Any, tensor: Tensor) -> Tensor:  # pyrefly: ignore[bad-override] torch's takes anything
        total = tensor.clone()
        distributed.all_reduce(total)
        return total

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> Tensor:
        total = gradients[0].clone()
        distributed.all_reduce(total)
        return total


def _sum_of_ranks(tensor: Tensor) -> Tensor:
    return _Sum.apply(tensor)
