"""Stores files of working folders on this host that somebody has asked for, by `torchyard keep`."""

from collections.abc import Callable
from contextlib import nullcontext, suppress
from dataclasses import replace
import glob
import logging
from pathlib import Path
import time

from store.commands import keeping as commands
from store.facts.keeping import Kept
from store.facts.output import DEFAULTS, OutputLimits
from store.queries import keeping as queries
from store.store import Store
from torchyard.contract.errors import NotFound, StaleClaim
from torchyard.contract.rundir import WORK
from torchyard.host.untrusted import folder_inside
from worker.attempts.kept import Keeping, KeptFiles
from worker.duties import Duty, Interval
from worker.host.mask import Mask

COPY_LIMIT = 1 << 25
"""Bytes that are copied between two writes."""
_INTERVAL_S = 10.0
_TURN_S = 1.0
"""How long one turn stores, before others of its thread have theirs."""

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
        self._kept: Kept | None = None
        """The request that is answered now."""
        self._files: KeptFiles | None = None
        self._stored = self._copied = 0

    @property
    def duty(self) -> Duty:
        return "the storing of files that were asked for", self.interval, self.answer_some

    def answer_some(self) -> None:
        """Goes on with the oldest request for about a second, and is due again if there is more. Raises Unavailable."""
        ends = self._clock() + _TURN_S
        while self._answer_next():
            if self._clock() >= ends:
                self.interval.make_due()
                return

    def close(self) -> None:
        """Discards an unfinished copy. A later worker begins with it again."""
        if self._files is not None:
            with suppress(OSError):  # the remains of a copy are removed after a day
                self._files.discard()

    def _answer_next(self) -> bool:
        """Takes one step of the oldest request. Returns whether there was any."""
        asked = queries.unanswered(self._store, self._worker_id)
        if self._kept not in asked:
            self._begin(asked[0] if asked else None)
        if self._kept is None or self._files is None:
            return bool(asked[1:])
        try:
            self._go_on(self._kept, self._files)
        except (StaleClaim, NotFound) as error:
            logger.info("%s", error.message)
            self._begin(None)
        except OSError as error:
            self._answer(self._kept, f"it cannot be stored: {error.strerror or error}")
        return True

    def _begin(self, kept: Kept | None) -> None:
        if self._files is not None:
            self._files.discard()
        self._kept, self._files, self._stored = kept, None, 0
        self._copied = 0
        if kept is None:
            return
        try:
            with folder_inside(self._runs, kept.job_id, WORK):
                pass
        except OSError:
            self._answer(kept, "its working folder is gone")
            return
        try:
            self._files = self._files_of(kept)
        except NotFound:
            self._kept = None

    def _files_of(self, kept: Kept) -> KeptFiles:
        # A path is also meant as it is: it may have characters of patterns.
        patterns = [*kept.paths, *(glob.escape(path) for path in kept.paths)]
        keeping = Keeping(root=self._runs / kept.job_id, parts=(WORK,), patterns=patterns)
        mask = Mask(queries.secrets_of(self._store, kept.job_id).values.values())
        room = lambda: queries.room(self._store, kept.job_id)  # noqa: E731 - it is passed on
        return KeptFiles(keeping, self._store.blobs, room=room, limits=self._limits, mask=mask)

    def _go_on(self, kept: Kept, files: KeptFiles) -> None:
        copies = files.take(COPY_LIMIT)
        try:
            new = [replace(files.row(copy), asked=True) for copy in copies]
            with self._store.blobs.shared_lock() if copies else nullcontext():
                for copy in copies:
                    copy.publish()
                self._copied += sum(item.size for item in new)
                copied = self._copied + files.copied
                commands.store_files(self._store, self._worker_id, kept, new, copied=copied)
        finally:
            for copy in copies:
                copy.discard()
        files.committed()
        self._stored += len(new)
        if not files.unfinished:
            self._answer(kept, files.message() or (None if self._stored or files.matched else "nothing there matches"))

    def _answer(self, kept: Kept, refused: str | None) -> None:
        with suppress(StaleClaim):  # nobody waits for it any more
            commands.answer(self._store, self._worker_id, kept, refused=refused)
        logger.info("%s: %d files of its folder are kept: %s", kept.job_id, self._stored, refused or "all")
        self._kept = self._files = None
