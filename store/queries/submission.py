"""Resolves a spec before it is submitted."""

from store.db.database import Snapshots
from store.rows import pools
from torchyard.contract.pools import needs_pool
from torchyard.contract.spec import Spec


def resolved(store: Snapshots, spec: Spec, *, owner: str) -> Spec:
    """Returns the spec as a job of the owner would have it. Raises InvalidSpec for what no pool has or allows.

    Asks the database only if the spec needs a pool. Raises Unavailable.
    """
    if not needs_pool(spec):
        return spec
    with store.read() as session:
        return pools.resolved(session, spec, owner)
