"""The remote driver of a worker's verbs: each is one request to the service over HTTPS."""

from collections.abc import Collection, Iterable, Sequence

from store.worker import wire
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
    Claim,
    FinishedBlob,
    HostOffer,
    KeepOrder,
    NewArtifact,
    Orders,
    OutputLimits,
    Put,
    Registered,
    Room,
    Wanted,
)
from torchyard.contract.attempts.records import ExitReport
from torchyard.contract.cluster.devices import PoolReport, StartsReport
from torchyard.contract.errors import ConfigError
from torchyard.contract.states import EndReason, JobState
from torchyard.contract.telemetry.views import LiveLine
from worker.remote.blobs import RemoteBlobs
from worker.remote.connection import Connection
from worker.remote.history import RemoteFolders, RemoteHistory
from worker.remote.reporting import Reporting


class RemoteVerbs:
    """A `store.worker.protocol.Verbs`. Threads may share it."""

    def __init__(self, connection: Connection, worker_id: str, *, blobs: RemoteBlobs, reporting: Reporting) -> None:
        self._connection = connection
        self._reporting = reporting
        self.worker_id = worker_id
        self.blobs = blobs
        self.history = RemoteHistory(connection)
        self.folders = RemoteFolders(connection)

    def register(self, name: str, offer: HostOffer | PoolReport) -> Registered:
        return self._connection.call(wire.REGISTER, wire.RegisterAsked(name=name, offer=_of_host(offer)))

    def release(self) -> None:
        pass

    def heartbeat(self, offer: HostOffer | PoolReport, *, starts: StartsReport) -> Orders:
        return self._reporting.observe(_of_host(offer).devices, starts)

    def is_draining(self) -> bool:
        return self._reporting.orders().drains

    def renew(self, attempt_ids: Iterable[int]) -> set[int]:
        return self._reporting.renew([*attempt_ids])

    def list_open(self) -> list[Claim]:
        return self._connection.call(wire.OPEN, wire.Nothing())

    def read(self, claim: Claim) -> AttemptFacts:
        return self._connection.call(wire.READ, wire.ClaimAsked(claim=claim))

    def read_wanted(self, claim: Claim) -> Wanted:
        return self._connection.call(wire.WANTED, wire.ClaimAsked(claim=claim))

    def change(self, claim: Claim, change: Change) -> None:
        self._connection.call(wire.CHANGE, wire.ChangeAsked(claim=claim, change=change))

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
        asked = wire.AppendAsked(claim=claim, batch=batch, seq=seq, begun=begun)
        return self._connection.call(wire.APPEND, asked)

    def put(self, job_id: str, blobs: Sequence[FinishedBlob]) -> Put:
        return self.blobs.put(job_id, blobs) if blobs else NOTHING_PUT

    def show(self, lines: Sequence[LiveLine]) -> None:
        self._connection.call(wire.SHOW, wire.ShowAsked(lines=[*lines]))

    def answer_stacks(self, claim: Claim, answer: Answer) -> None:
        asked = wire.StacksAsked(
            claim=claim, requested_at=answer["requested_at"], taken_at=answer["taken_at"], ranks=answer["ranks"]
        )
        self._connection.call(wire.STACKS, asked)

    def end(
        self,
        claim: Claim,
        report: ExitReport,
        *,
        requested_stops: Collection[EndReason] = (),
        begun: Begun = NOTHING_BEGUN,
    ) -> JobState:
        asked = wire.EndAsked(claim=claim, report=report, requested_stops=[*requested_stops], begun=begun)
        return self._connection.call(wire.END, asked)

    def read_room(self, job_id: str) -> Room:
        return self._connection.call(wire.ROOM, wire.JobAsked(job_id=job_id))

    def read_secrets(self, job_id: str) -> AttemptSecrets:
        return self._connection.call(wire.SECRETS, wire.JobAsked(job_id=job_id))

    def list_keep_orders(self, *, limit: int) -> list[KeepOrder]:
        if not self._reporting.orders().keeps:
            return []
        orders = self._connection.call(wire.KEEP_ORDERS, wire.OrdersAsked(limit=limit))
        if not orders:
            self._reporting.mark_stale()
        return orders

    def keep_files(
        self,
        order: KeepOrder,
        new: Sequence[NewArtifact],
        *,
        copied: int,
        put: Put = NOTHING_PUT,
    ) -> None:
        self._connection.call(wire.KEEP, wire.KeepAsked(order=order, new=[*new], copied=copied))

    def answer_keep(self, order: KeepOrder, *, refused: str | None) -> None:
        self._connection.call(wire.KEEP_ANSWER, wire.KeepAnswerAsked(order=order, refused=refused))


def _of_host(offer: HostOffer | PoolReport) -> HostOffer:
    if not isinstance(offer, HostOffer):
        raise ConfigError("a worker that has joined serves no pool")
    return offer
