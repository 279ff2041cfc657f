"""The model, the batches and the optimizer of the trainer, for the other loops."""

from collections.abc import Iterator
from contextlib import nullcontext
import os

import numpy as np
import torch
from torch import Tensor, autocast, nn
from torch.optim import AdamW

from bench.turns import CLASSES, SIDE, TrainingSettings
from torchyard.models import vision
from trainer.randomness import derived_seed
from trainer.sampler import TrainSampler


class Pictures:
    """The batches of one rank in an epoch. All pictures are on its device."""

    def __init__(self, settings: TrainingSettings, device: torch.device) -> None:
        with np.load(settings.data) as arrays:
            pictures, labels = torch.from_numpy(arrays["x_train"]), torch.from_numpy(arrays["y_train"])
        self._pictures, self._labels = pictures[:, None].to(device), labels.to(device)
        windows = TrainSampler(
            len(labels),
            global_batch=settings.batch * settings.processes,
            batch_size=settings.batch,
            world_size=settings.processes,
            rank=int(os.environ["RANK"]),
            seed=settings.seed,
        ).steps(epoch=1)
        self._batches = (
            torch.cat([window.micro_batches[0].indices for window in windows]).to(device).split(settings.batch)
        )
        self._scale = torch.tensor(1 / settings.std / 255, device=device)
        self._shift = torch.tensor(-settings.mean / settings.std, device=device)
        self._channels = vision.channels_for(settings.model, 1)
        self._format = _memory_format(device)

    def __len__(self) -> int:
        return len(self._batches)

    def __iter__(self) -> Iterator[tuple[Tensor, Tensor]]:
        for batch in self._batches:
            pictures = torch.addcmul(self._shift, self._pictures[batch].float(), self._scale)
            pictures = pictures.expand(-1, self._channels, -1, -1).contiguous(memory_format=self._format)
            yield pictures, self._labels[batch]


def rank_device() -> torch.device:
    if not torch.cuda.is_available():
        return torch.device("cpu")
    device = torch.device("cuda", int(os.environ["LOCAL_RANK"]))
    torch.cuda.set_device(device)
    return device


def make_model(settings: TrainingSettings, device: torch.device) -> nn.Module:
    """Returns a model with the same weights on every rank. Later random numbers differ between ranks."""
    torch.manual_seed(settings.seed)
    model = vision.build(settings.model, channels=1, height=SIDE, width=SIDE, classes=CLASSES)
    torch.manual_seed(derived_seed(settings.seed, int(os.environ["RANK"])))
    return model.to(device=device, memory_format=_memory_format(device))  # pyright: ignore[reportCallIssue] no overload


def make_optimizer(settings: TrainingSettings, model: nn.Module, device: torch.device) -> AdamW:
    parameters = list(model.parameters())
    return AdamW(
        [
            {"params": [item for item in parameters if item.ndim > 1], "weight_decay": settings.weight_decay},
            {"params": [item for item in parameters if item.ndim <= 1], "weight_decay": 0.0},
        ],
        lr=settings.lr,
        fused=True if device.type == "cuda" else None,
    )


def in_bf16(device: torch.device) -> bool:
    """Returns whether to train in bf16: on a GPU that supports it, as the trainer does."""
    return device.type == "cuda" and torch.cuda.is_bf16_supported(including_emulation=False)


def precision(device: torch.device) -> autocast | nullcontext[None]:
    return autocast("cuda", dtype=torch.bfloat16) if in_bf16(device) else nullcontext()


def _memory_format(device: torch.device) -> torch.memory_format:
    return torch.channels_last if device.type == "cuda" else torch.contiguous_format
