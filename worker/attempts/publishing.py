"""Copies the checkpoints that an attempt has published in its run directory, and lists them."""

from store.blobs import Blobs
from store.facts.output import Batch
from torchyard.contract.errors import DataError
from torchyard.contract.events import CheckpointSaved
from torchyard.contract.rundir import RunDir
from worker.attempts.copying import CheckpointCopy, Copy
from worker.attempts.spacing import Spacing
from worker.attempts.warnings import warn
from worker.host.mask import Mask
from worker.host.untrusted import folders_inside

MOST_FOLDERS = 50_000
REFUSED_COST = 8 << 20
"""What is wrong with a checkpoint counts as copying so many bytes: to parse its manifest may take another process
half a second."""
MOST_UNANNOUNCED = 1000
"""Folders in `checkpoints` without an event line that are looked at."""


class Publishing:
    """The checkpoints of one attempt. `known`: the names of those that are listed, or are never to be.

    Beyond `most` checkpoints one a minute is listed. `limit`: the most bytes of one. `mask`: what no name of a file may
    have. Each method adds to `copied` the copies that are complete, whose rows are in the batch.
    """

    def __init__(self, run: RunDir, blobs: Blobs, *, known: set[str], limit: int, most: int | None, mask: Mask) -> None:
        self.known = known
        self._run = run
        self._blobs = blobs
        self._limit = limit
        self._mask = mask
        self._spacing = Spacing(most)
        self._unannounced = MOST_UNANNOUNCED
        self._saved_at = 0
        """When the newest was saved, in nanoseconds."""
        self._copy: CheckpointCopy | None = None
        """The unfinished copy. The line that announces its checkpoint waits, and so do the lines behind it."""

    @property
    def copying(self) -> bool:
        """Whether a copy is unfinished."""
        return self._copy is not None

    def add(
        self,
        name: str,
        batch: Batch,
        copied: list[Copy],
        *,
        budget: int,
        one_a_minute: bool = True,
    ) -> int:
        """Copies at most `budget` bytes of the checkpoint. Returns what is left of the budget. Raises OSError.

        `one_a_minute`: whether it is left out if the attempt has too many, and one was listed within a minute.
        """
        if name in self.known or any(new.name == name for new in batch.checkpoints):
            return budget
        begun = self._copy is not None and self._copy.name == name
        count = len(self.known) + len(batch.checkpoints)
        if one_a_minute and not begun and self._spacing.leaves_out(name, count=count):
            if (text := self._spacing.notice()) is not None:
                warn(batch, text)
            return budget
        if self._copy is not None and self._copy.name != name:  # the job has rewritten its event log
            self.discard()
        try:
            copy = self._copy = self._copy or self._begin(name)
            budget = copy.copy_some(budget)
        except DataError as error:
            self.discard()
            self.known.add(name)
            warn(batch, f"checkpoint {name} is not listed: {error.message}")
            return max(0, budget - REFUSED_COST)
        except OSError:
            self.discard()
            raise
        if budget:
            # In the order in which they were saved, also within one tick of the file system's clock.
            self._saved_at = copy.saved_at = max(copy.saved_at, self._saved_at + 1)
            batch.checkpoints.append(copy.checkpoint)
            copied.append(copy)
            self._copy = None
        return budget

    def add_unannounced(self, batch: Batch, copied: list[Copy], *, budget: int) -> None:
        """Adds checkpoints without an event line: the process ended before it could write the line. Raises OSError."""
        if self._spacing.is_over(len(self.known)):
            if self._spacing.newest is not None:
                self.add(self._spacing.newest, batch, copied, budget=budget, one_a_minute=False)
            return
        for name in folders_inside(self._run.job, self._run.checkpoints.name, most=MOST_FOLDERS):
            if name in self.known or name.startswith("."):
                continue
            if not self._unannounced:
                return
            if self._copy is None:
                self._unannounced -= 1
            if not _is_checkpoint_name(name):
                self.known.add(name)
                warn(batch, f"checkpoint {name!r} is not listed: its name is not a valid checkpoint name")
                continue
            budget = self.add(name, batch, copied, budget=budget)
            if self.copying or not budget:
                return

    def discard(self) -> None:
        """Discards an unfinished copy. Raises OSError."""
        copy, self._copy = self._copy, None
        if copy is not None:
            copy.discard()

    def _begin(self, name: str) -> CheckpointCopy:
        copy = CheckpointCopy(self._run, self._blobs, name, limit=self._limit)
        self._spacing.begin(copy.described)
        if any(map(self._mask.finds, [name, *(file.path for file in copy.checkpoint.files)])):
            copy.discard()
            raise DataError("its name, or that of one of its files, has the value of a secret")
        return copy


def _is_checkpoint_name(text: str) -> bool:
    try:
        CheckpointSaved(time=0, name=text)
    except ValueError:
        return False
    return True
