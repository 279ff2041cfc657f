"""mixup (Zhang et al., arXiv 1710.09412): samples and labels of a batch, blended in pairs."""

import torch
from torch.distributions import Beta

from trainer.data.loading import to_device
from trainer.task import Batch


def mixup(batch: Batch, alpha: float, *, classes: int) -> Batch:
    """Each sample with another one of the batch, by one share of Beta(α, α); targets become probabilities of classes.

    Share and pairs are drawn from torch's own generator on the CPU, and nothing waits for the device.
    """
    inputs, targets = batch
    share = Beta(alpha, alpha).sample().item()
    other = to_device(torch.randperm(len(targets)), targets.device)
    labels = (targets[:, None] == torch.arange(classes, device=targets.device)).to(inputs.dtype)
    return Batch(inputs.lerp(inputs[other], 1 - share), labels.lerp(labels[other], 1 - share))
