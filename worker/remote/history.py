"""Asks the service of the past of jobs, and of folders on this host."""

from collections.abc import Collection, Mapping, Sequence
from typing import Any

from store.worker import wire
from store.worker.protocol import BEYOND_ALL
from store.worker.records import (
    ArtifactFacts,
    CheckpointFacts,
    Claim,
    EarlierAttempt,
    InitialFacts,
    KnownJob,
)
from torchyard.contract.states import EndReason
from worker.remote.connection import Connection

_AT_ONCE = 500
"""Jobs of one request."""


class RemoteHistory:
    """A `store.worker.protocol.History`."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    def list_attempts(self, job_id: str, *, before: int = BEYOND_ALL) -> list[EarlierAttempt]:
        return self._connection.call(wire.ATTEMPTS, wire.EarlierAsked(job_id=job_id, before=before))

    def count_ended(self, claim: Claim, reason: EndReason, *, since: int, why: str = "") -> int:
        return self._connection.call(wire.ENDED, wire.CountAsked(claim=claim, reason=reason, since=since, why=why))

    def list_messages(self, job_id: str, *, attempt: int) -> list[str]:
        return self._connection.call(wire.MESSAGES, wire.MessagesAsked(job_id=job_id, attempt=attempt))

    def list_checkpoints(self, job_id: str) -> list[CheckpointFacts]:
        return self._connection.call(wire.CHECKPOINTS, wire.JobAsked(job_id=job_id))

    def find_checkpoint(self, job_id: str, checkpoint_id: str) -> CheckpointFacts | None:
        asked = wire.CheckpointAsked(job_id=job_id, checkpoint_id=checkpoint_id)
        return self._connection.call(wire.CHECKPOINT, asked)

    def list_files(self, job_id: str) -> tuple[list[CheckpointFacts], Sequence[ArtifactFacts]]:
        found = self._connection.call(wire.FILES, wire.JobAsked(job_id=job_id))
        return found.checkpoints, found.artifacts

    def find_initial(self, job_id: str) -> InitialFacts | None:
        return self._connection.call(wire.INITIAL, wire.JobAsked(job_id=job_id))

    def list_captured_names(self, job_id: str) -> list[str]:
        return self._connection.call(wire.CAPTURED, wire.JobAsked(job_id=job_id))

    def list_published_names(self, claim: Claim) -> list[str]:
        return self._connection.call(wire.PUBLISHED, wire.ClaimAsked(claim=claim))

    def find_removed(self, job_id: str, *, attempt: int, names: Collection[str]) -> set[str]:
        asked = wire.RemovedAsked(job_id=job_id, attempt=attempt, names=[*names])
        return self._connection.call(wire.REMOVED, asked)


class RemoteFolders:
    """A `store.worker.protocol.Folders`."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._sizes: dict[str, int] | None = None
        """What was stored last."""

    def find_known(self, job_ids: Collection[str]) -> dict[str, KnownJob]:
        known: dict[str, KnownJob] = {}
        for some in _parts(job_ids):
            known |= self._connection.call(wire.KNOWN, wire.JobsAsked(job_ids=some))
        return known

    def list_deleted(self, job_ids: Collection[str]) -> list[str]:
        parts = (self._connection.call(wire.DELETED, wire.JobsAsked(job_ids=some)) for some in _parts(job_ids))
        return [job_id for part in parts for job_id in part]

    def list_active_owners(self) -> set[str]:
        return self._connection.call(wire.OWNERS, wire.Nothing())

    def list_active_specs(self, owner: str) -> list[Mapping[str, Any]]:
        return self._connection.call(wire.SPECS, wire.OwnerAsked(owner=owner))

    def store_sizes(self, sizes: Mapping[str, int]) -> None:
        if sizes != self._sizes:  # an idle worker sends its heartbeat alone
            self._connection.call(wire.SIZES, wire.SizesAsked(sizes=dict(sizes)))
            self._sizes = dict(sizes)


def _parts(job_ids: Collection[str]) -> list[list[str]]:
    ids = [*job_ids]
    return [ids[first : first + _AT_ONCE] for first in range(0, len(ids), _AT_ONCE)]
