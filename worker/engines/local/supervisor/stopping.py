"""Tells the programs of an attempt to stop: the training programs first, and what has started them last."""

from collections.abc import Collection, Mapping
import contextlib
import signal
import time

from torchyard.contract.attempts.records import ProcessIdentity
from worker.engines.local.supervisor.programs import Programs
from worker.host.process import Send

_LONGEST_WAIT_S = 30.0


class Stopping:
    """One stop. `send` sends a signal to a process.

    Once the programs that ran at first have ended, a launcher has half of what is left of the grace, at most 30 s, to
    end by itself: a script may copy what its program saved. Where no program has a handler, it is signalled at once.
    """

    def __init__(self, send: Send) -> None:
        self._send = send
        self._programs = Programs()
        self._signalled: set[ProcessIdentity] = set()
        self._first: set[ProcessIdentity] = set()
        """The programs that were found until all of them had ended. A script may start others after them."""
        self._launchers_at: float | None = None
        """When launchers are signalled. None while programs of the first run."""

    def tell(self, ranks: Mapping[int, ProcessIdentity], *, finished: Collection[int], seconds: float) -> bool:
        """Sends SIGTERM to what is to be signalled now, once each. Returns whether programs run that are waited for.

        `finished`: the ranks whose programs have done all their work: they get none. `seconds`: what is left of the
        grace. Raises OSError as `send` does.
        """
        look = self._programs.look(set(ranks.values()))
        self._signalled.update(ranks[number] for number in finished)
        for program in look.programs:
            self._tell(program)
        running = look.waited_for()
        if self._launchers_at is None:
            self._first |= running
            if not self._first & running:
                wait = min(_LONGEST_WAIT_S, seconds / 2) if self._first else 0.0
                self._launchers_at = time.monotonic() + wait
        if self._launchers_at is not None and time.monotonic() >= self._launchers_at:
            for launcher in look.launchers:
                self._tell(launcher)
        return bool(running)

    def _tell(self, target: ProcessIdentity) -> None:
        if target not in self._signalled:
            self._signalled.add(target)
            with contextlib.suppress(PermissionError):  # a set-user-ID program, where jobs are not isolated
                self._send(target, signal.SIGTERM)
