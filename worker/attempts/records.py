"""Reads and writes one attempt for the worker that owns it. While the database is away, every call waits.

Two threads call it: the runner's, and the one that stores what the attempt writes.
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
import errno
import threading
from typing import Any

from store.worker.protocol import Verbs
from store.worker.records import (
    DEFAULTS,
    NOTHING_PUT,
    Answer,
    ArtifactFacts,
    AttemptFacts,
    AttemptSecrets,
    Batch,
    Begun,
    CheckpointFacts,
    Claim,
    EarlierAttempt,
    FinishedBlob,
    InitialFacts,
    NewEvent,
    NodeHeld,
    OutputLimits,
    Prepared,
    Put,
    Room,
    Wanted,
)
from torchyard.contract.attempts.records import ExitReport
from torchyard.contract.cluster.devices import EnvironmentReport
from torchyard.contract.errors import Conflict, Unavailable
from torchyard.contract.states import EndReason, JobState, Reason
from torchyard.contract.telemetry.views import LiveLine, RankStacksView
from worker.attempts.keep import not_kept
from worker.attempts.masking import masked_batch
from worker.attempts.patience import Patience
from worker.host.mask import Mask


class AttemptRecords:
    """Writes raise StaleClaim after the attempt has ended or been rescued.

    When `leaving` is set, a call that waits for the database raises Unavailable.
    """

    def __init__(
        self,
        store: Verbs,
        claim: Claim,
        *,
        leaving: threading.Event,
        waits: Callable[[], object] = lambda: None,
        limits: OutputLimits = DEFAULTS,
        masked: frozenset[str] = frozenset(),
    ) -> None:
        """`waits` is called before each wait for the database. `masked`: values that are masked besides secrets."""
        self._masked = masked
        self._store = store
        self._history = store.history
        self._claim = claim
        self._patience = Patience(claim.job_id, leaving=leaving, waits=waits)
        self._limits = limits
        self.start_step = 0
        """The step that the attempt's row says it resumes from."""
        self.secrets = AttemptSecrets()
        """The secrets that the job's spec names."""
        self.mask = Mask()
        """Masks the values that these secrets have, or had since this process runs the attempt."""
        self._values: set[str] = set()
        self.cut: frozenset[str] = frozenset()
        """The outputs that the attempt's row says are cut, such as `log`."""
        self._order = threading.RLock()
        """Held until a write is done that counts those before it, or that stores `_begun`, which is stored but once.

        Within it, the database alone is called.
        """
        self._seq = 0
        self._closed = False
        self._begun_lock = threading.Lock()
        self._begun = Begun()
        """What the next write stores of it."""

    def read(self) -> AttemptFacts:
        """Returns the attempt and what its worker needs of its job. Raises StaleClaim if the attempt has ended."""
        with self._order:
            record = self._patience.call(lambda: self._store.read(self._claim))
            self._seq, self.start_step, self.cut = record.relay_seq, record.start_step, record.cut
            self.secrets = record.secrets
            self._values.update(record.secrets.values.values())
            self.mask = Mask(self._values | self._masked)
        return record

    @property
    def secret_values(self) -> frozenset[str]:
        """The values of the secrets that the job's spec names, or that they had since this process runs the attempt."""
        return frozenset(self._values)

    def checkpoints(self) -> list[CheckpointFacts]:
        """Returns the job's checkpoints, newest first. Old ones with many files are without these."""
        return self._patience.call(lambda: self._history.list_checkpoints(self._claim.job_id))

    def with_files(self, checkpoint: CheckpointFacts) -> CheckpointFacts:
        """Returns the checkpoint with its files, if it is still there."""
        if not checkpoint.files_omitted:
            return checkpoint
        stored = self._patience.call(lambda: self._history.find_checkpoint(self._claim.job_id, checkpoint.id))
        return checkpoint if stored is None else stored

    def files_of(self, job_id: str) -> tuple[Sequence[CheckpointFacts], Sequence[ArtifactFacts]]:
        """Returns the checkpoints of a job, newest first, and the files that it has left."""
        return self._patience.call(lambda: self._history.list_files(job_id))

    def not_kept_of(self, attempt: int) -> str:
        """Returns what an earlier attempt of the job has reported as not kept; empty if it has reported nothing."""
        job_id = self._claim.job_id
        texts = self._patience.call(lambda: self._history.list_messages(job_id, attempt=attempt))
        text_kept = next((text for text in texts if text.startswith(not_kept.BEGINS)), "")
        return text_kept.removeprefix(not_kept.BEGINS).partition(not_kept.STILL)[0]

    def attempts_of(self, job_id: str) -> list[EarlierAttempt]:
        """Returns all attempts of another job, oldest first."""
        return self._patience.call(lambda: self._history.list_attempts(job_id))

    def initial(self) -> InitialFacts | None:
        """Returns what the job starts from, if its spec names weights."""
        return self._patience.call(lambda: self._history.find_initial(self._claim.job_id))

    def earlier(self) -> list[EarlierAttempt]:
        """Returns the attempts of the job that were claimed before this one, oldest first."""
        claim = self._claim
        if claim.number == 1:
            return []
        return self._patience.call(lambda: self._history.list_attempts(claim.job_id, before=claim.number))

    def captured_names(self) -> list[str]:
        """Returns the names of all checkpoints that any attempt of the job has ever captured."""
        return self._patience.call(lambda: self._history.list_captured_names(self._claim.job_id))

    def count_ended(self, reason: EndReason, *, since: int, why: str = "") -> int:
        """Returns how many attempts of the job, from number `since` on, ended for that reason, as `why` begins."""
        return self._patience.call(lambda: self._history.count_ended(self._claim, reason, since=since, why=why))

    def checkpoint_names(self) -> list[str]:
        """Returns the names of all checkpoints that the attempt has ever listed."""
        return self._patience.call(lambda: self._history.list_published_names(self._claim))

    def removed_among(self, attempt: int, names: Collection[str]) -> set[str]:
        """Returns those of `names` that an attempt of the job listed and that were removed since."""
        return self._patience.call(lambda: self._history.find_removed(self._claim.job_id, attempt=attempt, names=names))

    def artifact_room(self) -> Room:
        """Returns which artifacts of the job are stored, and how many bytes its owner may store besides."""
        return self._patience.call(lambda: self._store.read_room(self._claim.job_id))

    def wanted(self) -> Wanted:
        """Returns what is wanted of the attempt.

        Raises StaleClaim as `read` does. Raises Unavailable at once: an intent can be read again later.
        """
        return self._store.read_wanted(self._claim)

    def check_owned(self) -> None:
        """Raises StaleClaim if the attempt has ended, or another daemon of its pool has it."""
        self._patience.call(lambda: self._store.read_wanted(self._claim))

    def prepared(self, start_step: int, *, is_known: bool) -> None:
        """Stores the step that the attempt resumes from, before its processes start.

        `is_known`: whether the program goes on there.
        """
        prepared = Prepared(start_step, is_known)
        self._patience.call(lambda: self._store.change(self._claim, prepared))
        self.start_step = start_step

    def set_environment(self, environment: EnvironmentReport) -> None:
        """Stores the environment of the host in which the attempt is to run."""
        self._patience.call(lambda: self._store.change(self._claim, environment))

    def set_reason(self, reason: Reason) -> None:
        """Stores what the attempt does before its processes start, for the job's owner. Masks secrets in it."""
        reason = Reason(reason.code, self.mask.text(reason.message))
        self._patience.call(lambda: self._store.change(self._claim, reason))

    def launched_with_next_write(self, handle: Mapping[str, Any]) -> None:
        """Has the next write, whichever it is, store the engine's handle as JSON.

        By it a later daemon finds the attempt's processes, and until it is stored by what they wrote themselves.
        """
        with self._begun_lock:
            self._begun = replace(self._begun, launcher=handle)

    def running_with_next_write(self, reason: Reason) -> None:
        """Has the next write, whichever it is, move the job to `running` unless it is there already."""
        with self._begun_lock:
            self._begun = replace(self._begun, running=reason)

    def nodes_with_next_write(self, nodes: Sequence[NodeHeld]) -> None:
        """Has the next write, whichever it is, store what a cluster has given to the attempt."""
        with self._begun_lock:
            self._begun = replace(self._begun, nodes=nodes)

    def write_begun(self) -> None:
        """Stores what the next write was to store of the attempt's beginning, if nothing was written since."""
        with self._order:
            if begun := self._begun:
                self._patience.call(lambda: self._store.change(self._claim, begun))
                self._forget_begun(begun)

    def put(self, blobs: Sequence[FinishedBlob]) -> Put:
        """Stores blobs that a batch names, before it. Any thread may call it. Raises OSError."""
        return self._store.put(self._claim.job_id, blobs)

    def record(self, batch: Batch, *, put: Put = NOTHING_PUT) -> None:
        """Stores a batch exactly once, even if the answer to an earlier try was lost. Masks secrets in it.

        `put`: the blobs that it names. Raises Unavailable after `close`, and OSError if they are to be put again.
        """
        try:
            self._record(batch, put)
        except Conflict as error:
            raise OSError(errno.ESTALE, error.message) from None

    def _record(self, batch: Batch, put: Put) -> None:
        with self._order:
            if self._closed:
                raise Unavailable("this runner no longer owns the attempt")
            masked, seq, begun = masked_batch(batch, self.mask), self._seq, self._begun
            self.cut = self._patience.call(
                lambda: self._store.append(self._claim, masked, seq=seq, limits=self._limits, begun=begun, put=put)
            )
            self._seq += 1
            self._forget_begun(begun)

    def record_event(self, event: NewEvent) -> None:
        """Stores an event of the worker's own. What is stored of the output stays as it is. Masks secrets in it."""
        with self._order:
            self.record(Batch(offsets=dict(self.read().offsets), events=[event]))

    def close(self) -> None:
        """Has no batch be stored any more. Waits for one that is being stored."""
        with self._order:
            self._closed = True

    def show(self, texts: Mapping[tuple[int | None, str], str]) -> None:
        """Sends the newest texts of lines without an end, by rank and stream, to who watches. Masks secrets in them."""
        values = {"job_id": self._claim.job_id, "attempt": self._claim.number}
        self._store.show(
            [
                # The text may end within a secret, of which the rest comes later.
                LiveLine.model_validate(values | {"rank": rank, "stream": stream, "text": self.mask.quoted(text)})
                for (rank, stream), text in texts.items()
            ]
        )

    def store_stacks(self, requested_at: int, taken_at: int, ranks: Sequence[RankStacksView]) -> None:
        """Stores the answer to the request for the ranks' stacks that came at `requested_at`. Masks secrets in it."""
        masked = [
            view.model_copy(update={"text": self._quoted(view.text), "note": self._quoted(view.note)}) for view in ranks
        ]
        answer = Answer(
            requested_at=requested_at, taken_at=taken_at, ranks=[view.model_dump(mode="json") for view in masked]
        )
        self._patience.call(lambda: self._store.answer_stacks(self._claim, answer))

    def end(self, report: ExitReport, *, requested: Collection[EndReason] = ()) -> JobState:
        """Closes the attempt and returns the job's next state. `requested`: the stops that the worker asked for."""
        with self._order:
            masked, begun = self.mask.report(report), self._begun
            state = self._patience.call(
                lambda: self._store.end(self._claim, masked, requested_stops=requested, begun=begun)
            )
            self._forget_begun(begun)
        return state

    def take_outage_s(self) -> float:
        """Returns the longest wait for the database since the last call, in seconds. 0.0 if it always answered."""
        return self._patience.take_outage_s()

    def _forget_begun(self, stored: Begun) -> None:
        with self._begun_lock:
            self._begun = self._begun.without(stored)

    def _quoted(self, text: str | None) -> str | None:
        return None if text is None else self.mask.quoted(text)
