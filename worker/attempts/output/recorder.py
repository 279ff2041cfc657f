"""Stores what an attempt writes. What cannot be stored now stays in the run directory and is read again.

Where files travel to the service, a thread of their own sends them, one batch at a time: lines and metrics do not wait.
"""

from collections.abc import Callable, Mapping
from concurrent.futures import Future
from concurrent.futures import wait as wait_for
from datetime import timedelta
import errno
from functools import partial
import threading
import time
from typing import Any

from store.worker.records import NOTHING_PUT, AttemptFacts, Batch, BlobStore, OutputLimits, Put, RefusedBlob
from torchyard.contract.attempts.keeping import used_in_place
from torchyard.contract.attempts.rundir import WORK, RunDir
from worker.attempts.capture.capturing import roots
from worker.attempts.keep.artifacts import Artifacts
from worker.attempts.keep.kept import Keeping, KeptFiles
from worker.attempts.keep.left_files import LeftFiles
from worker.attempts.keep.unmatched import Unmatched
from worker.attempts.notices import Notices
from worker.attempts.output.relay import Relay, RelayState
from worker.attempts.output.showing import Showing
from worker.attempts.output.thinning import Thinning
from worker.attempts.pace import Share
from worker.attempts.records import AttemptRecords
from worker.host import rundirs, workfolders
from worker.host.secret_bytes import SecretBytes

_MAX_BATCHES = 16
"""Batches that one call of `store_some` stores at most."""
_FLOODS = frozenset({"points", "messages"})
"""Outputs of `events.jsonl`. Once one of them is cut, its lines are read slowly."""
_RETRY_S = 1.0
_ARRIVAL_S = 0.2
"""So long, a turn waits for files that travel after the end of all processes. The next one goes on."""
REPORTED_OUTAGE_S = 2.0
"""The shortest outage of the database that the owner is notified of: a failed call may be tried again this late."""
_TOPIC = "store"
_WAITING = "output of the attempt cannot be stored now; retrying"
_RECOVERED = "output of the attempt is stored again"


class OutputRecorder:
    """Stores the output of one attempt. `attempts`: the number of attempts that the job has had.

    `stored` is called once all that it left is stored. `files_travel`: whether to put blobs takes long. `arrived` is
    called in another thread once they were put, or could not be.
    """

    def __init__(
        self,
        relay: Relay,
        *,
        records: AttemptRecords,
        notices: Notices,
        attempts: int,
        stored: Callable[[], object] = lambda: None,
        files_travel: bool = False,
        arrived: Callable[[], object] = lambda: None,
    ) -> None:
        self.has_more = False
        """Whether the last call of `store_some` left something that could be stored at once."""
        self._relay = relay
        self._records = records
        self._notices = notices
        self._attempts = attempts
        self._note_stored = stored
        self._files_travel = files_travel
        self._note_arrival = arrived
        self._travelling: Future[Put] | None = None
        """Puts the blobs of what the relay has set aside."""
        self._has_failed = False
        """Whether what was put last could not be."""
        self._thinning = Thinning()
        self._showing = Showing()
        self._share = Share()
        self.failures = 0
        """Failures in a row to store."""
        self._next_try = 0.0

    def store_some(self) -> bool:
        """Stores as much as one turn may take. Returns whether that was anything.

        After an error of the host it stores nothing for a second, and then tries again.
        """
        self.has_more = stored = False
        if time.monotonic() < self._next_try:
            return False
        began = time.thread_time()
        try:
            # One part of a checkpoint is enough for one turn.
            for _ in range(1 if self._slow else _MAX_BATCHES):
                self.has_more = self._store(final=False)
                stored = stored or self.has_more
                if not self.has_more or self._relay.copying:
                    break
        except OSError as error:
            self._report_failure(error)
        self._show_unfinished()
        if not self._relay.copying:
            self._share.take(time.thread_time() - began)
            self.has_more = self.has_more and not self._slow
        return stored

    def store_rest(self, *, completed: bool) -> bool:
        """Stores the next part of what is left, after all processes have ended. Returns whether all is stored.

        `completed`: whether they have ended with success.
        """
        try:
            if self._store(final=True, completed=completed):
                return False
            if self._travelling is not None:
                wait_for([self._travelling], _ARRIVAL_S)
            elif not self._store_thinned():
                self._show_unfinished(final=True)
                self._note_stored()
                return True
        except OSError as error:
            self._report_failure(error)
        return False

    def close(self) -> None:
        """Discards an unfinished copy of a checkpoint. Raises OSError."""
        self._relay.close()

    def remove_checkpoint_copies(self) -> None:
        """Removes the job's checkpoints that are no longer listed from the run directories on this disk."""
        rundirs.remove_checkpoint_copies(self._relay.folder, self._records.removed_among, attempts=self._attempts)

    @property
    def _slow(self) -> bool:
        return self._share.used_up or not _FLOODS.isdisjoint(self._records.cut)

    def _store(self, *, final: bool, completed: bool = False) -> bool:
        """Returns whether there may be more that can be stored at once."""
        if self._travelling is not None and self._travelling.done():
            self._store_arrived(self._travelling)
            return True
        cut = self._records.cut
        batch = self._relay.read(final=final, completed=completed, logs="log" not in cut, media="media" not in cut)
        if batch is None:
            return self._relay.copying
        blobs, put = self._relay.blobs, NOTHING_PUT
        if blobs and self._files_travel:
            self._travelling = _beside(partial(self._records.put, blobs), after=self._note_arrival)
            batch = self._relay.set_aside(batch)
            if batch is None:
                return False
        elif blobs:
            put = self._records.put(blobs)
        whole = self._thinning.take(batch) if "points" in self._records.cut else batch
        self._record(whole, batch, put)
        self._thinning.stored()
        if self._relay.error is not None:
            self._has_failed = True
            raise self._relay.error
        return True

    def _store_arrived(self, travelling: Future[Put]) -> None:
        """Stores what names the blobs that were put. Raises what to put them has raised."""
        self._travelling, self._has_failed = None, True
        try:
            put = travelling.result()
            batch = self._relay.arrived()
            self._record(batch, batch, put)
        except RefusedBlob as refused:
            self._relay.take_back(refused=refused)
        except BaseException:
            self._relay.take_back()
            raise

    def _record(self, batch: Batch, read: Batch, put: Put) -> None:
        """Stores the batch that was made of what the relay has read last."""
        self._records.record(batch, put=put)
        self._relay.note_stored(read)
        self._has_failed = self._has_failed and not put.blobs
        if not self._has_failed:
            self.failures = 0
            self._notices.report_recovery(_TOPIC, _RECOVERED)
        if (outage_s := self._records.take_outage_s()) >= REPORTED_OUTAGE_S:
            self._notices.send(f"{_RECOVERED}, after {outage_s:.0f} s without the database", level="info")
        if batch.checkpoints:
            self.remove_checkpoint_copies()

    def _show_unfinished(self, *, final: bool = False) -> None:
        if due := self._showing.due(self._relay.unfinished, final=final):
            self._records.show(due)

    def _store_thinned(self) -> bool:
        """Stores the points that still wait, of an attempt whose points are cut. Returns whether there were any."""
        if not self._thinning:
            return False
        offsets = dict(self._records.read().offsets)
        self._records.record(self._thinning.take(Batch(offsets=offsets), final=True))
        self._thinning.stored()
        return True

    def _report_failure(self, error: OSError) -> None:
        self.failures += 1
        self._next_try = time.monotonic() + _RETRY_S
        self._notices.report_problem(_TOPIC, f"{_WAITING}: {error}")


def output_of(
    attempt: AttemptFacts,
    *,
    number: int,
    run: RunDir,
    blobs: BlobStore,
    limits: OutputLimits,
    records: AttemptRecords,
    notices: Notices,
    folder_lasts: timedelta | None = None,
    arrived: Callable[[], object] = lambda: None,
) -> OutputRecorder:
    """Returns what stores the output of the attempt, the `number`-th of its job. Its run directory must be there.

    `folder_lasts`: how long its working folder is there after the job's end. `arrived` is called in another thread when
    there is more to store, as files have arrived.
    """
    spec, mask = attempt.spec, records.mask
    is_script = spec.get("trainer") == "script"
    patterns = _patterns(spec.get("config", {}), "checkpoints") if is_script else []
    relay: Relay
    keeping = Keeping(
        root=run.root.parent,
        parts=(WORK,),
        patterns=_patterns(spec, "keep") if is_script else (),
        since_ns=lambda: workfolders.came_ns(run),
        secrets=SecretBytes(records.secret_values),
        job_id=run.root.parent.name,
        host=attempt.worker,
        lasts=folder_lasts,
        captured=lambda match: relay.is_captured(match),  # noqa: PLW0108 it is made below
    )
    kept_files = KeptFiles(keeping, blobs, room=records.artifact_room, limits=limits, mask=mask)
    artifacts = Artifacts(run, blobs, room=records.artifact_room, limits=limits, mask=mask)
    left: list[LeftFiles] = [artifacts, kept_files] if is_script else [artifacts]
    relay = Relay(
        run,
        blobs,
        state=RelayState.of(attempt.offsets),
        listed=records.checkpoint_names() if attempt.relay_seq else [],
        captured=records.captured_names() if patterns else [],
        world_size=attempt.world_size,
        nodes=spec.get("resources", {}).get("nodes", 1),
        most_checkpoints=limits.checkpoints,
        patterns=patterns,
        left=left,
        unmatched=_unmatched(spec, run) if is_script else None,
        metrics=_patterns(spec.get("metrics", {}), "patterns") if is_script else (),
        mask=mask,
    )

    def note_stored() -> None:
        if kept_files.is_complete:
            workfolders.note_stored(run, number)

    return OutputRecorder(
        relay,
        records=records,
        notices=notices,
        attempts=number,
        stored=note_stored,
        files_travel=blobs.travel,
        arrived=arrived,
    )


def _beside(put: Callable[[], Put], *, after: Callable[[], object]) -> Future[Put]:
    """Calls `put` in a thread of its own, and then `after`. Raises OSError if the system has none left."""
    future = Future[Put]()

    def run() -> None:
        try:
            future.set_result(put())
        except BaseException as error:  # noqa: BLE001 who asks for the result gets it
            future.set_exception(error)
        after()

    try:
        threading.Thread(target=run, name="what sends files of an attempt", daemon=True).start()
    except RuntimeError as error:
        raise OSError(errno.EAGAIN, str(error)) from error
    return future


def _unmatched(spec: Mapping[str, Any], run: RunDir) -> Unmatched:
    config = spec.get("config", {})
    patterns = {"keep": _patterns(spec, "keep"), "checkpoints": _patterns(config, "checkpoints")}
    note = f"; {warning}" if (warning := used_in_place(spec)) else ""
    return Unmatched(run.root.parent, roots(run), patterns, began_ns=lambda: rundirs.began_ns(run), note=note)


def _patterns(of: Mapping[str, Any], key: str) -> list[str]:
    """Returns the patterns of files that a script writes."""
    return [str(pattern) for pattern in of.get(key, [])]
