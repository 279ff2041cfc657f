"""Where this attempt is to pause by itself, and whether its program has come there."""

from collections.abc import Mapping
from pathlib import Path
from typing import SupportsInt

from torchyard.contract.attempts.pausing import PausePoint
from torchyard.contract.attempts.records import Manifest
from torchyard.contract.attempts.rundir import MANIFEST, Env, RunDir
from torchyard.host.disk import full_disk_error, retry_while_unavailable
from torchyard.host.untrusted import read_untrusted


def pause_of(environ: Mapping[str, str]) -> "Pause":
    """Returns the pause that the variables of this attempt ask for, as far as the resumed checkpoint has come."""
    text, run = environ.get(Env.PAUSE_AT), environ.get(Env.RUN_DIR)
    if not text or not run:
        return Pause(None, Path())
    pause = Pause(PausePoint.parse(text), RunDir.of_job(Path(run)).paused)
    resumed = environ.get(Env.RESUME_FROM)
    saved = read_untrusted(Path(resumed) / MANIFEST, Manifest) if resumed else None
    if saved is not None:
        pause.note(step=saved.step, epoch=saved.epoch, whole=saved.end_of_epoch)
    return pause


class Pause:
    """Takes note of how far a program says that it is, and tells all ranks when it has come there.

    `point`: None if the attempt is not to pause. `mark`: the file by which the ranks and the supervisor are told.
    """

    def __init__(self, point: PausePoint | None, mark: Path) -> None:
        self._point, self._mark = point, mark
        self._reached = self._told = False

    def note(self, *, step: SupportsInt, epoch: SupportsInt | None = None, whole: bool = False) -> None:
        """`epoch`: the one that is being trained, counted from 1, or with `whole`, that has ended."""
        if self._point is not None and not self._reached:
            epochs = 0 if epoch is None else int(epoch) - (not whole)
            self._reached = self._point.is_reached(step=int(step), epochs=epochs)

    def is_due(self) -> bool:
        """Whether the program has come there, and all can find it. On a full disk, not yet. Raises OSError."""
        if self._reached and not self._told:
            try:
                self._tell(wait_s=0.0)
            except OSError as error:
                if full_disk_error(error) is None:
                    raise
        return self._told

    def begins_at(self, *, step: int, epochs: int, wait_s: float) -> bool:
        """Whether it is exactly here. Then all are told, and a full disk is waited for. Raises OSError."""
        if self._point is None or not self._point.is_reached(step=step, epochs=epochs):
            return False
        self._tell(wait_s=wait_s)
        return True

    def _tell(self, *, wait_s: float) -> None:
        retry_while_unavailable(self._mark.touch, seconds=wait_s, on_error=lambda _: None)
        self._told = True
