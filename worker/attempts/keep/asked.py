"""Stores files of working folders on this host that somebody has asked for, by `torchyard keep`."""

from collections.abc import Callable
from contextlib import nullcontext, suppress
from dataclasses import dataclass, replace
import glob
import logging
from pathlib import Path
import time

from store.attempts import keeping_reads as queries
from store.attempts import keeping_writes as commands
from store.attempts.keeping_facts import Kept
from store.output.facts import DEFAULTS, OutputLimits
from store.store import Store
from torchyard.contract.errors import NotFound, StaleClaim, Unavailable
from torchyard.contract.rundir import WORK
from torchyard.host.untrusted import folder_inside
from worker.attempts.keep.kept import Keeping, KeptFiles
from worker.duties import Duty, Interval
from worker.host.mask import Mask

COPY_LIMIT = 1 << 25
"""Bytes that are copied between two writes."""
_INTERVAL_S = 10.0
_TURN_S = 1.0
"""How long one turn stores, before others of its thread have theirs."""

_MOST_AT_ONCE = 16
"""Owners whose requests take turns. One of each is answered at a time."""

logger = logging.getLogger(__name__)


class AskedFiles:
    """Answers the requests to one worker. `runs`: the folder of all run directories. One thread calls it."""

    def __init__(
        self,
        runs: Path,
        store: Store,
        worker_id: str,
        *,
        limits: OutputLimits = DEFAULTS,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._runs = runs.absolute()
        self._store = store
        self._worker_id = worker_id
        self._limits = limits
        self._clock = clock
        self.interval = Interval(_INTERVAL_S, clock)
        """When it is due to look for requests. Any thread may make it due."""
        self._answers: dict[Kept, _Answer] = {}
        """Those that were begun: at most one of each owner of jobs."""
        self._turns: dict[str, int] = {}
        """The number of the newest step for each owner in `_answers`, so that they take turns."""
        self._steps = 0

    @property
    def duty(self) -> Duty:
        return "the storing of files that were asked for", self.interval, self.answer_some

    def answer_some(self) -> None:
        """Goes on with the requests for about a second, and is due again if there is more. Raises Unavailable."""
        ends = self._clock() + _TURN_S
        while self._answer_next():
            if self._clock() >= ends:
                self.interval.make_due()
                return

    def close(self) -> None:
        """Discards unfinished copies. A later worker begins with them again."""
        for kept in [*self._answers]:
            with suppress(OSError):  # the remains of a copy are removed after a day
                self._forget(kept)

    def _answer_next(self) -> bool:
        """Takes one step of the request whose owner has waited longest. Returns whether there was any."""
        asked = queries.unanswered(self._store, self._worker_id, limit=_MOST_AT_ONCE)
        for gone in self._answers.keys() - {*asked}:
            self._forget(gone)
        if not asked:
            return False
        kept = min(asked, key=lambda each: self._turns.get(each.owner, 0))
        self._steps += 1
        self._turns = {each.owner: self._turns.get(each.owner, 0) for each in asked} | {kept.owner: self._steps}
        try:
            answer = self._answers.get(kept) or self._begin(kept)
            if answer is not None:
                self._go_on(kept, answer)
        except (StaleClaim, NotFound) as error:
            logger.info("%s", error.message)
            self._forget(kept)
        except OSError as error:
            self._answer(kept, f"it cannot be stored: {error.strerror or error}")
        except Unavailable:
            raise
        except Exception:
            logger.exception("%s: files of its folder cannot be kept", kept.job_id)
            self._answer(kept, "it cannot be stored: an unexpected error of the worker, whose log has it")
        return True

    def _begin(self, kept: Kept) -> "_Answer | None":
        """Returns None if the working folder is gone, which it answers. Raises NotFound."""
        try:
            with folder_inside(self._runs, kept.job_id, WORK):
                pass
        except OSError:
            self._answer(kept, "its working folder is gone")
            return None
        answer = self._answers[kept] = _Answer(self._files_of(kept))
        return answer

    def _forget(self, kept: Kept) -> None:
        """Discards an unfinished copy. Raises OSError."""
        if (answer := self._answers.pop(kept, None)) is not None:
            answer.files.discard()

    def _files_of(self, kept: Kept) -> KeptFiles:
        # A path is also meant as it is: it may have characters of patterns.
        patterns = [*kept.paths, *(glob.escape(path) for path in kept.paths)]
        keeping = Keeping(root=self._runs / kept.job_id, parts=(WORK,), patterns=patterns)
        mask = Mask(queries.secrets_of(self._store, kept.job_id).values.values())
        room = lambda: queries.room(self._store, kept.job_id)  # noqa: E731 - it is passed on
        return KeptFiles(keeping, self._store.blobs, room=room, limits=self._limits, mask=mask)

    def _go_on(self, kept: Kept, answer: "_Answer") -> None:
        files = answer.files
        copies = files.take(COPY_LIMIT)
        try:
            new = [replace(files.row(copy), asked=True) for copy in copies]
            with self._store.blobs.shared_lock() if copies else nullcontext():
                for copy in copies:
                    copy.publish()
                answer.copied += sum(item.size for item in new)
                copied = answer.copied + files.copied
                if new or copied != answer.told:  # a long walk alone is nothing to write
                    commands.store_files(self._store, self._worker_id, kept, new, copied=copied)
                    answer.told = copied
        finally:
            for copy in copies:
                copy.discard()
        files.committed()
        answer.stored += len(new)
        if not files.unfinished:
            nothing = None if answer.stored or files.matched else "nothing there matches"
            self._answer(kept, files.message() or nothing)

    def _answer(self, kept: Kept, refused: str | None) -> None:
        with suppress(StaleClaim):  # nobody waits for it any more
            commands.answer(self._store, self._worker_id, kept, refused=refused)
        stored = self._answers[kept].stored if kept in self._answers else 0
        logger.info("%s: %d files of its folder are kept: %s", kept.job_id, stored, refused or "all")
        with suppress(OSError):  # the remains of a copy are removed after a day
            self._forget(kept)


@dataclass
class _Answer:
    """How far one request is answered."""

    files: KeptFiles
    stored: int = 0
    copied: int = 0
    """Bytes."""
    told: int = 0
    """Those that the request has been told of."""
