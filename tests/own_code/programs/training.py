"""A small training. What it computes depends on each of its steps, in their order."""

from collections.abc import Callable
import hashlib
import os
import time

import torch

STEPS = 5
HELD_AT = 3


class Training:
    """A linear model, its optimizer, and the number of steps that they have done."""

    def __init__(self) -> None:
        torch.manual_seed(0)
        self.model = torch.nn.Linear(8, 1)
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.05, momentum=0.9)
        self.done = 0

    def state(self) -> dict[str, object]:
        return {"model": self.model.state_dict(), "optimizer": self.optimizer.state_dict(), "step": self.done}

    def load(self, state: dict[str, object]) -> None:
        self.model.load_state_dict(state["model"])
        self.optimizer.load_state_dict(state["optimizer"])
        self.done = state["step"]

    def advance(self) -> float:
        generator = torch.Generator().manual_seed(self.done)
        inputs = torch.randn(16, 8, generator=generator)
        loss = (self.model(inputs) - inputs.sum(1, keepdim=True)).square().mean()
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()
        self.done += 1
        return loss.item()

    def begins(self) -> None:
        print("begins after step", self.done, flush=True)

    def saved(self, should_stop: Callable[[], bool] = lambda: False) -> None:
        """Blocks after step `HELD_AT` until the test creates the file `$GATE`, or `should_stop` returns True."""
        if self.done == HELD_AT and (gate := os.environ.get("GATE")):
            print("held", flush=True)
            while not (os.path.exists(gate) or should_stop()):
                time.sleep(0.01)

    def ends(self) -> None:
        weights = b"".join(value.detach().numpy().tobytes() for value in self.model.state_dict().values())
        print("result", hashlib.sha256(weights).hexdigest(), flush=True)
