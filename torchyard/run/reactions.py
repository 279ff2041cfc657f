"""What a rank does at a signal while its main thread may wait in C: it leaves a failed attempt, or shows its place."""

from collections.abc import Callable
import ctypes
from dataclasses import dataclass
import os
import signal
import sys
import time
import traceback
from typing import NoReturn

from torchyard.contract.attempts.rundir import COLLECTIVES_SIGNAL, RunDir
from torchyard.run.agreement import StopAgreement
from torchyard.run.checkpoint_writer import CheckpointWriter
from torchyard.run.collectives import record_collectives
from torchyard.run.signals import hear

PEER_GRACE_S = 5.0
"""How long a rank may go on after another one has failed. The launcher kills it 30 s after that."""
_CHECKPOINT_S = 20.0
"""How much longer a checkpoint may take that is being written."""


@dataclass(frozen=True)
class Reactions:
    """The reactions of one rank. `hears_sigterm`: whether SIGTERM is this package's, not the program's."""

    run: RunDir
    rank: int
    agreement: StopAgreement
    checkpoints: CheckpointWriter
    hears_sigterm: Callable[[], bool]

    def start(self) -> None:
        """Reacts from now on. Only the main thread may call it."""
        signal.signal(COLLECTIVES_SIGNAL, _wake)
        hear(self._react)

    def _react(self, number: int) -> None:
        try:
            if number == COLLECTIVES_SIGNAL:
                record_collectives(self.run, self.rank)
            elif number == signal.SIGTERM and self._is_stranded():
                self._leave()
        except Exception:  # noqa: BLE001 the thread must hear the next signal
            traceback.print_exc()

    def _is_stranded(self) -> bool:
        """Whether SIGTERM came because another rank has failed. At a stop, the program decides when to leave."""
        stops = self.agreement.told or os.path.lexists(self.run.stop)
        return self.hears_sigterm() and not stops and self.agreement.another_has_failed()

    def _leave(self) -> None:
        time.sleep(PEER_GRACE_S)
        self.checkpoints.settle(_CHECKPOINT_S)
        if self._is_stranded():
            print("torchyard: another rank has failed, and this one waits: it ends", file=sys.stderr)  # noqa: T201
            _end_by_sigterm()


def _end_by_sigterm() -> NoReturn:
    """Ends the process as SIGTERM does by default: the launcher sees that this rank is not the one that failed."""
    ctypes.CDLL(None).signal(int(signal.SIGTERM), None)  # Python lets only the main thread do it
    os.kill(os.getpid(), signal.SIGTERM)
    os._exit(1)


def _wake(*_: object) -> None:
    """Does nothing: with a handler in Python, the thread hears the signal."""
