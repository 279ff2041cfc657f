"""What the service does for a remote worker: its verbs, with what only the service may decide."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from itertools import chain

from sqlalchemy.orm import Session

from store.attempts import keeping, lease
from store.attempts import use as attempt_use
from store.cluster import device_history, worker_tokens, workers
from store.cluster.facts import Sample
from store.queue import away, waiting
from store.store import Store
from store.worker import checks
from store.worker.records import (
    DEFAULTS,
    NOTHING_BEGUN,
    NOTHING_PUT,
    Batch,
    Begun,
    Claim,
    HostOffer,
    KeepOrder,
    NewArtifact,
    Orders,
    OutputLimits,
    Pass,
    Put,
    Registered,
)
from store.worker.verbs import WorkerStore
from torchyard.contract.cluster.devices import DeviceReport, StartsReport
from torchyard.contract.errors import Conflict
from torchyard.contract.telemetry.views import LiveLine


@dataclass(frozen=True)
class Look:
    """The attempts of a worker before a pass, and its devices that it has told of."""

    found: Pass
    devices: Sequence[DeviceReport]

    @property
    def may_claim(self) -> bool:
        return not (self.found.claims or self.found.lost)


class ServedWorker(WorkerStore):
    """The verbs of one remote worker, whose host may be hostile. Threads may share it."""

    def __init__(self, store: Store, worker_id: str) -> None:
        super().__init__(store, worker_id, remote=True)

    def register_from(self, boot: str, name: str, offer: HostOffer) -> Registered:
        """Registers the daemon of the host of that boot under the name with which it joined, whatever it says.

        Jobs may ask for a worker by its name. Raises Conflict while another host uses the worker's token.
        """
        with self._store.write("register") as session:
            is_only_one = worker_tokens.use_from(session, self.worker_id, boot)
        if not is_only_one:
            raise Conflict(
                "another host uses this worker's token, or this host was restarted. Join this host with "
                "a code of its own; after a restart, wait half a minute"
            )
        with self._store.read() as session:
            workers.check_devices(session, self.worker_id, offer.devices)
            joined_as = workers.name_of(session, self.worker_id)
        return self.register(joined_as or name, offer)

    def beat(
        self,
        samples: Sequence[tuple[float, Sequence[DeviceReport]]],
        *,
        starts: StartsReport,
        attempts: Collection[int],
    ) -> tuple[Orders, set[int]]:
        """Stores a heartbeat and renews the leases of attempts. Returns those that the worker still owns, too.

        `samples`: how many seconds ago the devices were so, the oldest first. Raises Conflict if another worker has one
        of the devices.
        """
        with self._store.write("heartbeat") as session:
            if samples:
                workers.check_devices(session, self.worker_id, chain.from_iterable(devices for _, devices in samples))
                reports = [Sample(age_s, [device.to_dict() for device in devices]) for age_s, devices in samples]
                device_history.add_samples(session, self.worker_id, reports)
                attempt_use.add(session, self.worker_id, reports)
                workers.heartbeat(session, self.worker_id, devices=[*reports[-1].devices], starts=starts.to_dict())
            else:
                workers.mark_seen(session, self.worker_id)
            owned = lease.renew(session, self.worker_id, attempts) if attempts else set[int]()
            away.note_back(session, owned)
            return self._orders(session), owned

    def read_orders(self) -> Orders:
        with self._store.read() as session:
            return self._orders(session)

    def look(self, devices: Sequence[DeviceReport], *, running: Collection[int]) -> Look:
        """Returns what is to be known before a pass. `running`: the attempts that the worker carries out.

        What an earlier pass has claimed comes again until it runs, and no job while an attempt is no longer its own.
        """
        with self._store.read() as session:
            mine = lease.list_open(session, self.worker_id)
            offered = workers.device_uuids(session, self.worker_id)
        lost = sorted({*running} - {claim.attempt_id for claim in mine})
        unknown = [claim for claim in mine if claim.attempt_id not in running]
        return Look(Pass(unknown, lost), [device for device in devices if device.uuid in offered])

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
        checks.check_batch(batch)
        return super().append(claim, batch, seq=seq, limits=limits, begun=begun, put=put)

    def keep_files(self, order: KeepOrder, new: Sequence[NewArtifact], *, copied: int, put: Put = NOTHING_PUT) -> None:
        checks.check_artifacts(new)
        super().keep_files(order, new, copied=copied, put=put)

    def show(self, lines: Sequence[LiveLine]) -> None:
        """Shows those lines that are of open attempts of the worker."""
        with self._store.read() as session:
            mine = {(claim.job_id, claim.number) for claim in lease.list_open(session, self.worker_id)}
        super().show([line for line in lines if (line.job_id, line.attempt) in mine])

    def _orders(self, session: Session) -> Orders:
        return Orders(
            cpu_sharers=workers.cpu_sharers(session, self.worker_id),
            drains=workers.is_draining(session, self.worker_id),
            waits=waiting.any_waits(session) or waiting.any_ungrouped(session),
            keeps=keeping.is_asked(session, self.worker_id),
            is_copied=worker_tokens.was_refused(session, self.worker_id),
        )
