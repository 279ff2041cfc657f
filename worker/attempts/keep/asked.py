"""Stores files of working folders on this host that somebody has asked for, by `torchyard keep`."""

from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, replace
import glob
import logging
from pathlib import Path
import time

from store.worker.protocol import Verbs
from store.worker.records import DEFAULTS, KeepOrder, OutputLimits
from torchyard.contract.attempts.rundir import WORK
from torchyard.contract.errors import Conflict, NotFound, StaleClaim, Unavailable
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
        store: Verbs,
        *,
        limits: OutputLimits = DEFAULTS,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._runs = runs.absolute()
        self._store = store
        self._limits = limits
        self._clock = clock
        self.interval = Interval(_INTERVAL_S, clock)
        """When it is due to look for requests. Any thread may make it due."""
        self._answers: dict[KeepOrder, _Answer] = {}
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
        for order in [*self._answers]:
            with suppress(OSError):  # the remains of a copy are removed after a day
                self._forget(order)

    def _answer_next(self) -> bool:
        """Takes one step of the request whose owner has waited longest. Returns whether there was any."""
        asked = self._store.list_keep_orders(limit=_MOST_AT_ONCE)
        for gone in self._answers.keys() - {*asked}:
            self._forget(gone)
        if not asked:
            return False
        order = min(asked, key=lambda each: self._turns.get(each.owner, 0))
        self._steps += 1
        self._turns = {each.owner: self._turns.get(each.owner, 0) for each in asked} | {order.owner: self._steps}
        try:
            answer = self._answers.get(order) or self._begin(order)
            if answer is not None:
                self._go_on(order, answer)
        except (StaleClaim, NotFound) as error:
            logger.info("%s", error.message)
            self._forget(order)
        except OSError as error:
            self._answer(order, f"it cannot be stored: {error.strerror or error}")
        except Unavailable:
            raise
        except Exception:
            logger.exception("%s: cannot store files of its working folder", order.job_id)
            self._answer(order, "it cannot be stored: see the worker's log")
        return True

    def _begin(self, order: KeepOrder) -> "_Answer | None":
        """Returns None if the working folder is gone, which it answers. Raises NotFound."""
        try:
            with folder_inside(self._runs, order.job_id, WORK):
                pass
        except OSError:
            self._answer(order, "its working folder is gone")
            return None
        answer = self._answers[order] = _Answer(self._files_of(order))
        return answer

    def _forget(self, order: KeepOrder) -> None:
        """Discards an unfinished copy. Raises OSError."""
        if (answer := self._answers.pop(order, None)) is not None:
            answer.files.discard()

    def _files_of(self, order: KeepOrder) -> KeptFiles:
        # A path is also meant as it is: it may have characters of patterns.
        patterns = [*order.paths, *(glob.escape(path) for path in order.paths)]
        keeping = Keeping(root=self._runs / order.job_id, parts=(WORK,), patterns=patterns)
        mask = Mask(self._store.read_secrets(order.job_id).values.values())
        room = lambda: self._store.read_room(order.job_id)  # noqa: E731 - it is passed on
        return KeptFiles(keeping, self._store.blobs, room=room, limits=self._limits, mask=mask)

    def _go_on(self, order: KeepOrder, answer: "_Answer") -> None:
        files = answer.files
        copies = files.take(COPY_LIMIT)
        try:
            new = [replace(files.row(copy), asked=True) for copy in copies]
            put = self._store.put(order.job_id, [blob for copy in copies for blob in copy.blobs])
            answer.copied += sum(item.size for item in new)
            copied = answer.copied + files.copied
            if new or copied != answer.reported:  # a long walk alone is nothing to write
                try:
                    self._store.keep_files(order, new, copied=copied, put=put)
                except Conflict as error:  # they are copied again
                    raise Unavailable(error.message) from None
                answer.reported = copied
        finally:
            for copy in copies:
                copy.discard()
        files.committed()
        answer.stored += len(new)
        if not files.unfinished:
            nothing = None if answer.stored or files.matched else "nothing there matches"
            self._answer(order, files.message() or nothing)

    def _answer(self, order: KeepOrder, refused: str | None) -> None:
        with suppress(StaleClaim):  # nobody waits for it any more
            self._store.answer_keep(order, refused=refused)
        stored = self._answers[order].stored if order in self._answers else 0
        logger.info("%s: stored %d files of its working folder: %s", order.job_id, stored, refused or "all")
        with suppress(OSError):  # the remains of a copy are removed after a day
            self._forget(order)


@dataclass
class _Answer:
    """How far one request is answered."""

    files: KeptFiles
    stored: int = 0
    copied: int = 0
    """Bytes."""
    reported: int = 0
    """Those that were stored with the request."""
