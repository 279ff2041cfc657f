"""Changes of quotas. Each is one transaction, with its entry of the audit. All of them raise Unavailable."""

from collections.abc import Collection, Mapping
from typing import Literal

from store.store import Store
from store.team import audit, quotas, users
from store.team.callers import Caller
from torchyard.contract.team import Resource

Kind = Literal["role", "user"]


def set_limits(store: Store, kind: Kind, name: str, limits: Mapping[Resource, int | None], *, caller: Caller) -> None:
    """Sets limits of a user or of a role. None: unlimited. Raises NotFound if there is no such user."""
    with store.write("team") as session:
        if kind == "user":
            users.get(session, name)
        quotas.set_limits(session, kind, name, limits)
        written = " ".join(f"{resource}={limit}" for resource, limit in limits.items())
        audit.add(session, caller, "quota.set", f"{kind} {name}: {written}")


def clear(store: Store, kind: Kind, name: str, resources: Collection[Resource], *, caller: Caller) -> None:
    """Removes limits of a user or of a role. Raises NotFound if there is no such user."""
    with store.write("team") as session:
        if kind == "user":
            users.get(session, name)
        quotas.clear(session, kind, name, resources)
        audit.add(session, caller, "quota.clear", f"{kind} {name}: {' '.join(resources)}")
