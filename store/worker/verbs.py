"""The direct driver of a worker's verbs, for hosts of the service: it asks the database, Redis and the folder of blobs.

Planning and what concerns the whole cluster are no verbs: they stand in `store.worker.placing`, `store.queue`,
`store.attempts` and `store.housekeeping`.
"""

from collections.abc import Collection, Iterable, Sequence
from contextlib import AbstractContextManager, nullcontext, suppress

from sqlalchemy.orm import Session

from store.attempts import append, end, keeping, lease, read, state
from store.attempts import use as attempt_use
from store.blobs import puts
from store.blobs.uploads import WorkerUploads
from store.cluster import device_history, workers
from store.cluster.facts import Sample
from store.jobs import jobs
from store.output import artifacts
from store.queue import away
from store.store import Store
from store.team import secrets
from store.worker.folders import HostFolders
from store.worker.history import JobHistory
from store.worker.protocol import Change
from store.worker.records import (
    DEFAULTS,
    NOTHING_BEGUN,
    NOTHING_PUT,
    Answer,
    AttemptFacts,
    AttemptSecrets,
    Batch,
    Begun,
    Blob,
    Claim,
    FinishedBlob,
    HostOffer,
    KeepOrder,
    NewArtifact,
    Orders,
    OutputLimits,
    Prepared,
    Put,
    Registered,
    Room,
    Wanted,
)
from store.worker.uploaded import blobs_of, published
from torchyard.contract.attempts.records import ExitReport
from torchyard.contract.cluster.devices import EnvironmentReport, PoolReport, StartsReport
from torchyard.contract.errors import StaleClaim
from torchyard.contract.states import EndReason, JobState, Reason
from torchyard.contract.telemetry.views import LiveLine


class WorkerStore:
    """A `store.worker.protocol.Verbs`, which says what each method does. Threads may share it."""

    def __init__(self, store: Store, worker_id: str, *, holder: str | None = None, remote: bool = False) -> None:
        """`holder`: the daemon of a pool, which owns no attempt once another one serves the pool.

        `remote`: whether the worker reads no database, and is told of its own jobs alone.
        """
        self._store = store
        self.worker_id = worker_id
        self._holder = holder
        self.blobs = store.blobs
        self._remote = remote
        self.history = JobHistory(store, asking=worker_id if remote else None)
        self.folders = HostFolders(store, worker_id, remote=remote)

    def register(self, name: str, offer: HostOffer | PoolReport) -> Registered:
        with self._store.write("register") as session:
            if isinstance(offer, HostOffer):
                devices = [device.to_dict() for device in offer.devices]
                name = workers.register(
                    session,
                    self.worker_id,
                    name=name,
                    devices=devices,
                    shares_cpus_of=offer.shares_cpus_of,
                    remote=self._remote,
                )
            else:
                holder = self._holder or ""
                workers.register_pool(session, self.worker_id, name=name, holder=holder, pool=offer.to_dict())
            return Registered(name, lease.adopt(session, self.worker_id))

    def release(self) -> None:
        if self._holder is not None:
            with self._store.write("release") as session:
                workers.release_pool(session, self.worker_id, holder=self._holder)

    def heartbeat(self, offer: HostOffer | PoolReport, *, starts: StartsReport) -> Orders:
        with self._store.write("heartbeat") as session:
            if not isinstance(offer, HostOffer):
                pool = {"holder": self._holder or "", "pool": offer.to_dict(), "starts": starts.to_dict()}
                return Orders(is_served=workers.pool_heartbeat(session, self.worker_id, **pool))
            devices = [device.to_dict() for device in offer.devices]
            workers.heartbeat(session, self.worker_id, devices=devices, starts=starts.to_dict())
            now = [Sample(0.0, devices)]
            device_history.add_samples(session, self.worker_id, now)
            attempt_use.add(session, self.worker_id, now)
            return Orders(cpu_sharers=workers.cpu_sharers(session, self.worker_id))

    def is_draining(self) -> bool:
        with self._store.read() as session:
            return workers.is_draining(session, self.worker_id)

    def renew(self, attempt_ids: Iterable[int]) -> set[int]:
        with self._store.write("renew") as session:
            owned = lease.renew(session, self.worker_id, attempt_ids, holder=self._holder)
            away.note_back(session, owned)
            return owned

    def list_open(self) -> list[Claim]:
        with self._store.read() as session:
            return lease.list_open(session, self.worker_id, holder=self._holder)

    def read(self, claim: Claim) -> AttemptFacts:
        self._require_own(claim)
        with self._store.read() as session:
            return read.read_attempt(session, claim, self._store.secret_keys)

    def read_wanted(self, claim: Claim) -> Wanted:
        self._require_own(claim)
        with self._store.read() as session:
            return read.read_wanted(session, claim)

    def change(self, claim: Claim, change: Change) -> None:
        self._require_own(claim)
        match change:
            case Prepared(start_step, is_known):
                with self._store.write("mark_prepared") as session:
                    state.mark_prepared(session, claim, start_step=start_step, is_known=is_known)
            case EnvironmentReport():
                with self._store.write("environment") as session:
                    state.set_environment(session, claim, change.to_dict())
            case Reason():
                with self._store.write("reason") as session:
                    state.set_reason(session, claim, change)
            case Begun():
                with self._store.write(
                    purpose="mark_launched" if change.running is None else "mark_running"
                ) as session:
                    state.store_begun(session, claim, change)

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
        self._require_own(claim)
        named = self._published(claim.job_id, blobs_of(batch), put)
        with named as checked, self._store.write("store_batch") as session:
            puts.check(session, checked)
            state.store_begun(session, claim, begun)
            return append.store_batch(session, claim, batch, seq=seq, limits=limits)

    def put(self, job_id: str, blobs: Sequence[FinishedBlob]) -> Put:
        if not blobs:
            return NOTHING_PUT
        with self._store.read() as session:
            put = puts.begin(session, (each.blob.sha256 for each in blobs))
        self.blobs.publish_all(blobs)
        return put

    def show(self, lines: Sequence[LiveLine]) -> None:
        self._store.show(lines)

    def answer_stacks(self, claim: Claim, answer: Answer) -> None:
        self._require_own(claim)
        with self._store.write("store_stacks") as session:
            state.store_stacks(session, claim, answer)

    def end(
        self,
        claim: Claim,
        report: ExitReport,
        *,
        requested_stops: Collection[EndReason] = (),
        begun: Begun = NOTHING_BEGUN,
    ) -> JobState:
        self._require_own(claim)
        with self._store.write("end") as session:
            state.store_begun(session, claim, begun)
            ended = end.end(session, claim, report, requested_stops=requested_stops)
        self._remove_uploads(claim.job_id)
        return ended

    def read_room(self, job_id: str) -> Room:
        with self._store.read() as session:
            self._require_job(session, job_id)
            return artifacts.read_room(session, job_id)

    def read_secrets(self, job_id: str) -> AttemptSecrets:
        with self._store.read() as session:
            self._require_job(session, job_id)
            return secrets.resolve(session, self._store.secret_keys, jobs.require(session, job_id))

    def list_keep_orders(self, *, limit: int) -> list[KeepOrder]:
        with self._store.read() as session:
            return keeping.list_unanswered(session, self.worker_id, limit=limit)

    def keep_files(self, order: KeepOrder, new: Sequence[NewArtifact], *, copied: int, put: Put = NOTHING_PUT) -> None:
        named = self._published(order.job_id, {Blob(item.sha256, item.size) for item in new}, put)
        with named as checked, self._store.write("store_kept") as session:
            puts.check(session, checked)
            keeping.store_files(session, self.worker_id, order, new, copied=copied)

    def answer_keep(self, order: KeepOrder, *, refused: str | None) -> None:
        with self._store.write("answer_keep") as session:
            keeping.answer(session, self.worker_id, order, refused=refused)
        self._remove_uploads(order.job_id)

    def _require_own(self, claim: Claim) -> None:
        """Whether the row is this worker's, too, each transaction sees by the claim."""
        if claim.worker_id != self.worker_id:
            raise StaleClaim(f"attempt {claim.number} of job {claim.job_id} does not belong to this worker")

    def _published(self, job_id: str, blobs: Collection[Blob], put: Put) -> AbstractContextManager[Put]:
        """Publishes what a remote worker has uploaded. Its `put` is not believed."""
        return published(self._store, self.worker_id, job_id, blobs) if self._remote else nullcontext(put)

    def _remove_uploads(self, job_id: str) -> None:
        if self._remote:
            with suppress(OSError):  # they are removed after a day
                WorkerUploads(self._store.blobs, self.worker_id).remove(job_id)

    def _require_job(self, session: Session, job_id: str) -> None:
        if self._remote:
            keeping.require_job(session, self.worker_id, job_id)
