"""mixup (Zhang et al., arXiv 1710.09412): blends pairs of samples and their labels."""

import random

import torch

from trainer.data.batch import Batch
from trainer.data.loading import to_device


def mixup(batch: Batch, alpha: float, *, classes: int) -> Batch:
    """Blends each sample with another one of the batch, by a share from Beta(α, α). Targets become class probabilities.

    Draws the share from Python's generator and the pairs from torch's CPU generator. Does not wait for the device.
    """
    inputs, targets = batch
    share = random.betavariate(alpha, alpha)  # torch's Beta takes 20 times as long
    other = to_device(torch.randperm(len(targets)), targets.device)
    labels = (targets[:, None] == torch.arange(classes, device=targets.device)).to(inputs.dtype)
    return Batch(inputs.lerp(inputs[other], 1 - share), labels.lerp(labels[other], 1 - share))
