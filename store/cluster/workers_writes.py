"""Writes of a worker about itself and the leases of its attempts. All of them raise Unavailable."""

from collections.abc import Iterable
from typing import Any

from sqlalchemy.orm import Session

from store.attempts import leases
from store.attempts import rows as attempts
from store.attempts import use as attempt_use
from store.attempts.facts import Claim
from store.cluster import device_history, workers
from store.store import Store
from torchyard.contract.devices import PoolReport


def register(
    store: Store, worker_id: str, *, name: str, devices: list[Any], shares_cpus_of: str | None
) -> tuple[str, list[Claim]]:
    """Registers a daemon that has just started, as `store.cluster.workers.register` does.

    Returns its name, and its open attempts, which it adopts, with renewed leases.
    """
    with store.write("register") as session:
        given = workers.register(session, worker_id, name=name, devices=devices, shares_cpus_of=shares_cpus_of)
        return given, _adopted(session, worker_id)


def register_pool(store: Store, worker_id: str, *, name: str, holder: str, pool: PoolReport) -> list[Claim]:
    """Registers a daemon that serves a pool from now on, as `store.cluster.workers.register_pool` does.

    Returns the pool's open attempts, which it adopts, with renewed leases. Raises Conflict while another one serves it.
    """
    with store.write("register") as session:
        workers.register_pool(session, worker_id, name=name, holder=holder, pool=pool.to_dict())
        return _adopted(session, worker_id)


def release_pool(store: Store, worker_id: str, *, holder: str) -> None:
    """Lets another daemon serve the pool at once: the last write of one that leaves."""
    with store.write("release") as session:
        workers.release_pool(session, worker_id, holder=holder)


def heartbeat(store: Store, worker_id: str, *, devices: list[Any], starts: dict[str, Any]) -> list[str]:
    """Stores that the daemon is alive, the state of its devices, how its jobs use them, and how it starts jobs.

    Returns the ids of the workers that share the CPUs of its host, as `store.cluster.workers.cpu_sharers` does.
    """
    with store.write("heartbeat") as session:
        workers.heartbeat(session, worker_id, devices=devices, starts=starts)
        device_history.add_samples(session, worker_id, devices)
        attempt_use.add(session, worker_id, devices)
        return workers.cpu_sharers(session, worker_id)


def pool_heartbeat(store: Store, worker_id: str, *, holder: str, pool: PoolReport, starts: dict[str, Any]) -> bool:
    """Stores that the daemon is alive, and the state of its pool. Returns False if another one serves it now."""
    with store.write("heartbeat") as session:
        return workers.pool_heartbeat(session, worker_id, holder=holder, pool=pool.to_dict(), starts=starts)


def renew(store: Store, worker_id: str, attempt_ids: Iterable[int], *, holder: str | None = None) -> set[int]:
    """Extends the leases of the worker's attempts. Returns the ids of those that it still owns.

    `holder`: as in `store.attempts.leases.renew`.
    """
    with store.write("renew") as session:
        return leases.renew(session, worker_id, attempt_ids, holder=holder)


def rescue(store: Store, claim: Claim) -> bool:
    """Ends an attempt whose lease has expired. Returns False if it was renewed or has ended."""
    with store.write("rescue") as session:
        return attempts.rescue(session, claim)


def _adopted(session: Session, worker_id: str) -> list[Claim]:
    adopted = leases.open_claims(session, worker_id)
    leases.renew(session, worker_id, [claim.attempt_id for claim in adopted])
    return adopted
