"""Asks the ranks of an attempt that hangs where they are in their collectives, and says it in words."""

from collections.abc import Iterable, Mapping
import contextlib

from torchyard.contract.attempts.records import Collective, ProcessIdentity, RankCollectives
from torchyard.contract.attempts.rundir import COLLECTIVES_SIGNAL, RunDir
from torchyard.contract.wire.text import storable
from torchyard.host.untrusted import read_untrusted
from worker.engines.local.supervisor.ranks import has_signal
from worker.host import process

_MOST_PLACES = 8
"""Different states that a message names."""


def request(ranks: Mapping[int, ProcessIdentity], *, send: process.Send) -> None:
    """Signals those ranks that write an answer: the others would be ended by the signal. Waits for none."""
    for rank in ranks.values():
        with contextlib.suppress(OSError):  # it has ended
            if has_signal(rank, "SigCgt", COLLECTIVES_SIGNAL):
                send(rank, COLLECTIVES_SIGNAL)


def describe(run: RunDir, *, ranks: Iterable[int]) -> list[str]:
    """Returns where the ranks are, by what they wrote, ranks in one state together. The job may have forged it."""
    by_state: dict[str, list[int]] = {}
    for rank in ranks:
        state = read_untrusted(run.collectives / f"{rank}.json", RankCollectives)
        if state is not None:
            by_state.setdefault(_described(state), []).append(rank)
    said = [f"rank {', '.join(map(str, together))} {place}" for place, together in by_state.items()]
    return [*said[:_MOST_PLACES], "and so on"] if len(said) > _MOST_PLACES else said


def _described(state: RankCollectives) -> str:
    if state.waits_for is not None:
        return f"waits for {_shown(state.waits_for)}"
    return "waits for no collective" + (f", after {_shown(state.ended)}" if state.ended is not None else "")


def _shown(collective: Collective) -> str:
    text = f"{collective.name} {collective.number} of {collective.group} on {collective.sizes}"
    return storable(" ".join(text.split()))
