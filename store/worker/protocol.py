"""What a worker asks of the service. `store.worker.verbs` asks the database; `worker.remote` does so over HTTPS."""

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any, Protocol

from store.worker.records import (
    DEFAULTS,
    NOTHING_BEGUN,
    NOTHING_PUT,
    Answer,
    ArtifactFacts,
    AttemptFacts,
    AttemptSecrets,
    Batch,
    Begun,
    BlobStore,
    CheckpointFacts,
    Claim,
    EarlierAttempt,
    FinishedBlob,
    HostOffer,
    InitialFacts,
    KeepOrder,
    KnownJob,
    NewArtifact,
    Orders,
    OutputLimits,
    Prepared,
    Put,
    Registered,
    Room,
    Wanted,
)
from torchyard.contract.attempts.records import ExitReport
from torchyard.contract.cluster.devices import EnvironmentReport, PoolReport, StartsReport
from torchyard.contract.states import EndReason, JobState, Reason
from torchyard.contract.telemetry.views import LiveLine

Change = Prepared | EnvironmentReport | Reason | Begun
"""How far an attempt has come: its files, its environment, what it does before its processes start, its processes."""

BEYOND_ALL = 2**31 - 1
"""The number of no attempt."""


class History(Protocol):
    """Reads the earlier attempts, checkpoints and files of a job. Deleted rows are left out. Raises Unavailable.

    A remote worker is told of jobs of which it has an open attempt, and of those that these retry: of any other, each
    method raises StaleClaim.
    """

    def list_attempts(self, job_id: str, *, before: int = BEYOND_ALL) -> list[EarlierAttempt]:
        """Returns the attempts of a job with numbers below `before`, oldest first."""
        ...

    def count_ended(self, claim: Claim, reason: EndReason, *, since: int, why: str = "") -> int:
        """Returns how many attempts of the same job, from number `since` on, ended for that reason, as `why` begins."""
        ...

    def list_messages(self, job_id: str, *, attempt: int) -> list[str]:
        """Returns the texts of the newest messages of an attempt, newest first."""
        ...

    def list_checkpoints(self, job_id: str) -> list[CheckpointFacts]:
        """Returns the checkpoints of a job without aliases, newest first. Only the newest have long lists of files."""
        ...

    def find_checkpoint(self, job_id: str, checkpoint_id: str) -> CheckpointFacts | None:
        """Returns a checkpoint of a job with all of its files; None if it is no longer there."""
        ...

    def list_files(self, job_id: str) -> tuple[list[CheckpointFacts], Sequence[ArtifactFacts]]:
        """Returns the checkpoints of a job, newest first, and the files that it has left."""
        ...

    def find_initial(self, job_id: str) -> InitialFacts | None:
        """Returns what the job starts from, if its spec names weights."""
        ...

    def list_captured_names(self, job_id: str) -> list[str]:
        """Returns the names of all checkpoints that any attempt of the job has ever captured."""
        ...

    def list_published_names(self, claim: Claim) -> list[str]:
        """Returns the names of all checkpoints that the attempt has ever listed."""
        ...

    def find_removed(self, job_id: str, *, attempt: int, names: Collection[str]) -> set[str]:
        """Returns those of `names` that an attempt of the job listed and that were removed since."""
        ...


class Folders(Protocol):
    """What is asked before folders of this host are removed, and told of their sizes. Each method raises Unavailable.

    A remote worker is told of jobs of which it has or had an attempt.
    """

    def find_known(self, job_ids: Collection[str]) -> dict[str, KnownJob]:
        """Returns those of `job_ids` that exist, by id."""
        ...

    def list_deleted(self, job_ids: Collection[str]) -> list[str]:
        """Returns those of `job_ids` that were deleted."""
        ...

    def list_active_owners(self) -> set[str]:
        """Returns the owners of jobs that have an attempt which has not ended."""
        ...

    def list_active_specs(self, owner: str) -> list[Mapping[str, Any]]:
        """Returns the specs of an owner's jobs that have an attempt which has not ended, as they were written."""
        ...

    def store_sizes(self, sizes: Mapping[str, int]) -> None:
        """Stores the bytes of all working folders on this host, by job."""
        ...


class Verbs(Protocol):
    """Each verb is one transaction at most. It takes and returns frozen records, and leaves nothing open behind it.

    All verbs raise Unavailable while the service does not answer; then they may be called again: each is stored once.
    Those about an attempt raise StaleClaim once it has ended, was rescued, or belongs to another daemon of its pool,
    and for one of another worker. Threads may share it.
    """

    @property
    def worker_id(self) -> str: ...

    @property
    def blobs(self) -> BlobStore: ...

    @property
    def history(self) -> History: ...

    @property
    def folders(self) -> Folders: ...

    def register(self, name: str, offer: HostOffer | PoolReport) -> Registered:
        """Registers a daemon that has just started. Its name is `name`, or `name-2`, … if other hosts have it.

        Raises Conflict while another daemon serves the pool or has this worker's token, or a pool of another folder has
        its name.
        """
        ...

    def release(self) -> None:
        """Lets another daemon serve the pool at once: the last write of one that leaves. Does nothing on a host."""
        ...

    def heartbeat(self, offer: HostOffer | PoolReport, *, starts: StartsReport) -> Orders:
        """Stores that the daemon is alive, what it offers, how its jobs use that, and how it starts jobs."""
        ...

    def is_draining(self) -> bool:
        """Returns whether the worker is to claim no jobs, and to return those that it runs to the queue."""
        ...

    def renew(self, attempt_ids: Iterable[int]) -> set[int]:
        """Extends the leases to 30 s from now. Returns the ids of the attempts that the worker still owns."""
        ...

    def list_open(self) -> list[Claim]:
        """Returns the open attempts that the worker owns."""
        ...

    def read(self, claim: Claim) -> AttemptFacts:
        """Returns the attempt, what its worker needs of its job, and the secrets that this names."""
        ...

    def read_wanted(self, claim: Claim) -> Wanted:
        """Returns what is wanted of the attempt: by the job's owner, or for a job that preempts it."""
        ...

    def change(self, claim: Claim, change: Change) -> None:
        """Stores how far the attempt has come. Repeating it changes nothing."""
        ...

    def append(
        self,
        claim: Claim,
        batch: Batch,
        *,
        seq: int,
        limits: OutputLimits = DEFAULTS,
        begun: Begun = NOTHING_BEGUN,
        put: Put = NOTHING_PUT,
    ) -> frozenset[str]:
        """Stores a batch exactly once, even if the answer to an earlier call was lost. Returns which outputs are cut.

        `seq` is the number of batches stored before it. `begun` is stored first, in the same transaction. `put`: the
        blobs that the batch names. `limits`: of a remote worker, the service's own count instead. Raises Conflict if
        the blobs are to be put again.
        """
        ...

    def put(self, job_id: str, blobs: Sequence[FinishedBlob]) -> Put:
        """Puts finished blobs of a job into the store. `append` or `keep_files` is told of them.

        Raises RefusedBlob for a file that was lent and is not what it should be, and OSError.
        """
        ...

    def show(self, lines: Sequence[LiveLine]) -> None:
        """Sends lines that have no end so far to who watches their jobs now. They are stored nowhere."""
        ...

    def answer_stacks(self, claim: Claim, answer: Answer) -> None:
        """Stores the answer to a request for the stacks of the ranks."""
        ...

    def end(
        self,
        claim: Claim,
        report: ExitReport,
        *,
        requested_stops: Collection[EndReason] = (),
        begun: Begun = NOTHING_BEGUN,
    ) -> JobState:
        """Closes the attempt and returns the job's next state. Call it when all is stored and no process is left.

        `requested_stops` are the stops that the worker has requested. `begun` is as in `append`.
        """
        ...

    def read_room(self, job_id: str) -> Room:
        """Returns which files of the job are stored, and how much its owner may store besides.

        Raises NotFound. A remote worker runs the job, or is asked to keep files of it: else it raises StaleClaim.
        """
        ...

    def read_secrets(self, job_id: str) -> AttemptSecrets:
        """Returns the secrets that the job's spec names, as they are now. Raises as `read_room` does."""
        ...

    def list_keep_orders(self, *, limit: int) -> list[KeepOrder]:
        """Returns the requests to keep files that the worker is to answer: of each owner of jobs the oldest."""
        ...

    def keep_files(self, order: KeepOrder, new: Sequence[NewArtifact], *, copied: int, put: Put = NOTHING_PUT) -> None:
        """Stores files of an unanswered request, whose blobs were put, and how many bytes were copied for it.

        Raises StaleClaim if it is gone, and Conflict if the blobs are to be put again.
        """
        ...

    def answer_keep(self, order: KeepOrder, *, refused: str | None) -> None:
        """Ends a request. `refused`: why nothing was stored, or what was not. Raises StaleClaim if it is gone."""
        ...
