"""The metrics of a language model, from sums over counted tokens."""

import math

import torch
from torch import Tensor


class TokenTally:
    """Sums over counted tokens: their cross-entropy, and how many there are."""

    def __init__(self, *, device: torch.device) -> None:
        self.sums = torch.zeros(2, dtype=torch.float64, device=device)

    def add(self, outputs: Tensor, targets: Tensor) -> None:
        """Adds the mean loss of a batch, and its counted tokens (tokens,). Does not wait for the device."""
        count = outputs.new_full((), len(targets), dtype=torch.float64)
        self.sums += torch.stack([outputs.double() * count, count])

    def metrics(self) -> dict[str, float]:
        """Returns the mean loss of a token, and its exponential. Waits for the device."""
        total, count = self.sums.tolist()
        loss = total / count
        try:
            perplexity = math.exp(loss)
        except OverflowError:
            perplexity = math.inf
        return {"val/loss": loss, "val/perplexity": perplexity}
