"""A pool on a store, and jobs in it."""

from typing import Any

from scheduling.snapshot import Placement
from store.attempts import claim as claims
from store.attempts.facts import Claim, NodeHeld
from store.cluster import pools, workers
from store.ids import new_id
from tests.store.fixture import StoreFixture
from torchyard.contract.cluster.devices import DeviceReport, PoolNodes, PoolReport

HOLDER = "head/boot-1"


def report(**changes: Any) -> PoolReport:
    """Returns the report of a pool of four nodes with two CPU slots each."""
    given: dict[str, Any] = {"partition": "cpu", "kind": "cpu", "nodes": PoolNodes(count=4, devices=2), **changes}
    return PoolReport(**given)


def serve(
    db: StoreFixture, name: str = "cpu", *, worker_id: str | None = None, holder: str = HOLDER, **changes: Any
) -> str:
    """Has a daemon serve a pool, and returns the id of its worker."""
    worker = worker_id or new_id("wrk")
    pool = report(partition=name, **changes).to_dict()
    db.write(lambda session: workers.register_pool(session, worker, name=name, holder=holder, pool=pool))
    return worker


def beat(db: StoreFixture, worker_id: str, *, holder: str = HOLDER, **changes: Any) -> bool:
    """Sends the heartbeat of a daemon of the pool."""
    pool = report(**changes).to_dict()
    return db.write(lambda session: workers.pool_heartbeat(session, worker_id, holder=holder, pool=pool, starts={}))


def submit(db: StoreFixture, *, nodes: int = 2, devices: int = 2, pool: str = "cpu", **spec: Any) -> str:
    """Submits a job as the service does, with what the pool decides."""
    asked = {"nodes": nodes, "devices_per_node": devices, "pool": pool, **spec.pop("resources", {})}
    owner = spec.pop("owner", "ada")
    parsed = db.read(lambda session: pools.resolved(session, db.spec(resources=asked, **spec), owner))
    return db.submit(owner=owner, **parsed.model_dump(mode="json"))


def give(db: StoreFixture, job_id: str, worker_id: str, *, holder: str | None = HOLDER) -> Claim | None:
    """Gives a job to the pool."""
    to = Placement(worker_id, ())
    return db.write(lambda session: claims.claim(session, job_id, to, holder=holder))


def given(db: StoreFixture, worker_id: str, **asked: Any) -> Claim:
    """Submits a job and gives it to the pool."""
    claim = give(db, submit(db, **asked), worker_id)
    assert claim is not None
    return claim


def nodes(*hosts: str, devices: int = 2, slurm_id: int = 7) -> tuple[NodeHeld, ...]:
    """Returns what nodes tell of CPU slots."""
    return tuple(
        NodeHeld(
            host,
            [
                DeviceReport(index=index, uuid=f"cpu-{host}-{slurm_id}-{index}", name="CPU slot", kind="cpu")
                for index in range(devices)
            ],
        )
        for host in hosts
    )
