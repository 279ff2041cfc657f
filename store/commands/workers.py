"""Writes of a worker about itself and the leases of its attempts. All of them raise Unavailable."""

from collections.abc import Iterable
from typing import Any

from store.facts.attempts import Claim
from store.rows import attempts, device_history, workers
from store.store import Store


def register(
    store: Store, worker_id: str, *, name: str, devices: list[Any], shares_cpus_of: str | None
) -> tuple[str, list[Claim]]:
    """Registers a daemon that has just started, as `store.rows.workers.register` does.

    Returns its name, and its open attempts, which it adopts, with renewed leases.
    """
    with store.write("register") as session:
        given = workers.register(session, worker_id, name=name, devices=devices, shares_cpus_of=shares_cpus_of)
        adopted = attempts.open_claims(session, worker_id)
        attempts.renew(session, worker_id, [claim.attempt_id for claim in adopted])
        return given, adopted


def heartbeat(store: Store, worker_id: str, *, devices: list[Any], starts: dict[str, Any]) -> list[str]:
    """Stores that the daemon is alive, the state of its devices, also in their history, and how it starts jobs.

    Returns the ids of the workers that share the CPUs of its host, as `store.rows.workers.cpu_sharers` does.
    """
    with store.write("heartbeat") as session:
        workers.heartbeat(session, worker_id, devices=devices, starts=starts)
        device_history.add_samples(session, worker_id, devices)
        return workers.cpu_sharers(session, worker_id)


def renew(store: Store, worker_id: str, attempt_ids: Iterable[int]) -> set[int]:
    """Extends the leases of the worker's attempts. Returns the ids of those that it still owns."""
    with store.write("renew") as session:
        return attempts.renew(session, worker_id, attempt_ids)


def rescue(store: Store, claim: Claim) -> bool:
    """Ends an attempt whose lease has expired. Returns False if it was renewed or has ended."""
    with store.write("rescue") as session:
        return attempts.rescue(session, claim)
