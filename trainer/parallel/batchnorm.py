"""Synchronized batch norm: statistics over the micro-batches of all ranks."""

from typing import Any

import torch
from torch import Tensor, distributed, nn
from torch.autograd import Function
from torch.nn import functional
from torch.nn.modules.batchnorm import _BatchNorm  # pyright: ignore[reportPrivateUsage] the base of all of them

from trainer.world import World


def synchronized(model: nn.Module, world: World) -> nn.Module:
    """Returns the model with synchronized batch norms. Parameters keep their values and names.

    These are PyTorch's SyncBatchNorm on CUDA. It supports no other device, where PlainSyncBatchNorm computes the same.
    """
    if world.device.type == "cuda":  # the only device with its kernels
        model = nn.SyncBatchNorm.convert_sync_batchnorm(model)
    for module in model.modules():
        if type(module) is nn.SyncBatchNorm:
            module.__class__ = CudaSyncBatchNorm
        elif isinstance(module, _BatchNorm) and not isinstance(module, Synchronized):
            module.__class__ = PlainSyncBatchNorm
    return model


class Synchronized(_BatchNorm):
    """A batch norm whose statistics are of all ranks."""

    stands_in = False
    """Whether this rank's inputs do not count. It still takes part in the exchange."""


class CudaSyncBatchNorm(nn.SyncBatchNorm, Synchronized):
    """PyTorch's, which filters out the ranks without inputs."""

    def forward(self, input: Tensor) -> Tensor:
        if not (self.training and self.stands_in):
            return super().forward(input)
        joined = super().forward(input[:0])
        mean, variance = self.running_mean, self.running_var
        normal = functional.batch_norm(input, mean, variance, self.weight, self.bias, mean is None, 0.0, self.eps)
        return normal + joined.sum()  # so that the backward pass takes part, too


class PlainSyncBatchNorm(Synchronized):
    """Normalizes (N, C, …) by mean and variance of each channel over all ranks, whose N may differ."""

    def forward(self, input: Tensor) -> Tensor:
        if not self.training:
            return super().forward(input)
        axes = [axis for axis in range(input.ndim) if axis != 1]
        shape = [1, -1] + [1] * (input.ndim - 2)
        wide = input.float() if input.dtype in {torch.float16, torch.bfloat16} else input
        count = self._sum_of_ranks(wide.new_tensor(input.numel() // input.shape[1]))
        mean = self._sum_of_ranks(wide.sum(axes)) / count
        centered = wide - mean.view(shape)
        variance = self._sum_of_ranks(centered.square().sum(axes)) / count
        self._track(mean.detach(), variance.detach(), count)
        normal = centered * torch.rsqrt(variance + self.eps).view(shape)
        if self.affine:
            normal = normal * self.weight.view(shape) + self.bias.view(shape)
        return normal.to(input.dtype)

    def _check_input_dim(self, input: Tensor) -> None:
        pass

    def _sum_of_ranks(self, own: Tensor) -> Tensor:
        return _Sum.apply(own * 0 if self.stands_in else own)

    def _track(self, mean: Tensor, variance: Tensor, count: Tensor) -> None:
        if self.running_mean is None or self.running_var is None or self.num_batches_tracked is None:
            return
        self.num_batches_tracked.add_(1)
        share = self.momentum if self.momentum is not None else 1 / float(self.num_batches_tracked)
        self.running_mean.lerp_(mean.to(self.running_mean.dtype), share)
        unbiased = variance * count / (count - 1).clamp(min=1)  # of a single value it is 0
        self.running_var.lerp_(unbiased.to(self.running_var.dtype), share)


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
