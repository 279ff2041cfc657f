"""How long a rank waits for the others where they exchange gradients or weights, without waiting for the device."""

from collections.abc import Callable
import math
import time
from typing import Any, NamedTuple, Protocol

import torch
from torch import Tensor, nn

from torchyard.contract.recipes import DistributedConfig
from torchyard.run.accelerator import is_accelerator
from trainer.world import World

KEPT_PAIRS = 64
"""Exchanges between two log lines that are timed on an accelerator, at most."""


def make_meeting(model: nn.Module, config: DistributedConfig, world: World) -> "Meeting | NoMeeting":
    """Returns what times the exchanges of this rank with the others. With shards they meet in every layer: nothing."""
    meets = world.size > 1 and config.strategy != "fsdp"
    return Meeting(model, world.device) if meets else NoMeeting()


class Meeting:
    """Runs from this rank's own last gradient to the end of the backward pass that averages the gradients.

    `arrive` and `leave` measure other exchanges. The time is that of the transfer and of the wait for slower ranks: the
    rank that comes last has the least of it.
    """

    def __init__(self, model: nn.Module, device: torch.device) -> None:
        self._timer = EventTimer(lambda: torch.Event(device, enable_timing=True)) if is_accelerator(device) else _Host()
        # A backward pass ends with the parameters that a forward pass begins with.
        last = next(parameter for parameter in model.parameters() if parameter.requires_grad)
        last.register_post_accumulate_grad_hook(self._on_last_gradient)

    def arrive(self) -> None:
        """Begins an exchange. Of several calls before a `leave`, the last one counts."""
        self._timer.arrive()

    def leave(self) -> None:
        """Ends the exchange that has begun, if any."""
        self._timer.leave()

    def take(self) -> float:
        """Returns the seconds of all exchanges since the last `take`; NaN if none was measured."""
        return self._timer.take()

    def _on_last_gradient(self, _: Tensor) -> None:
        self._timer.arrive()


class NoMeeting:
    """Measures nothing."""

    def arrive(self) -> None:
        pass

    def leave(self) -> None:
        pass

    def take(self) -> float:
        return math.nan


class Event(Protocol):
    """The part of torch.Event that is used."""

    def record(self) -> None: ...
    def query(self) -> bool: ...
    def elapsed_time(self, other: Any, /) -> float: ...


class EventTimer:
    """Times exchanges by events on the stream of the step, and reads only events that are done."""

    def __init__(self, make_event: Callable[[], Event]) -> None:
        self._make = make_event
        self._open: _Pair | None = None
        self._pending: list[_Pair] = []
        self._free: list[_Pair] = []
        self._exchanges = 0

    def arrive(self) -> None:
        if self._open is None and len(self._pending) < KEPT_PAIRS:
            self._open = self._free.pop() if self._free else _Pair(self._make(), self._make())
        if self._open is not None:
            self._open.begin.record()

    def leave(self) -> None:
        self._exchanges += 1
        if self._open is not None:
            self._open.end.record()
            self._pending.append(self._open)
            self._open = None

    def take(self) -> float:
        """Returns the mean of the exchanges that are done times the number of all."""
        ended = 0
        while ended < len(self._pending) and self._pending[ended].end.query():
            ended += 1
        done, self._pending = self._pending[:ended], self._pending[ended:]
        self._free += done
        exchanges, self._exchanges = self._exchanges, 0
        milliseconds = sum(pair.begin.elapsed_time(pair.end) for pair in done)
        return milliseconds / 1000 / len(done) * exchanges if done else math.nan


class _Pair(NamedTuple):
    begin: Event
    end: Event


class _Host:
    """Times exchanges by the clock of the host, which waits for them itself."""

    def __init__(self) -> None:
        self._arrived: float | None = None
        self._seconds = math.nan

    def arrive(self) -> None:
        self._arrived = time.monotonic()

    def leave(self) -> None:
        if self._arrived is not None:
            waited = time.monotonic() - self._arrived
            self._seconds = waited if math.isnan(self._seconds) else self._seconds + waited
            self._arrived = None

    def take(self) -> float:
        seconds, self._seconds = self._seconds, math.nan
        return seconds
