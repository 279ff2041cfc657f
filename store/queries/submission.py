"""Resolves a spec before it is submitted."""

from store.db.database import Snapshots
from store.facts.callers import Caller
from store.rows import after, pools
from torchyard.contract.pools import needs_pool
from torchyard.contract.spec import Spec


def resolved(store: Snapshots, spec: Spec, *, caller: Caller) -> Spec:
    """Returns the spec as a job of the caller would have it.

    Raises InvalidSpec for what no pool has or allows, and for jobs in `after` that are not there. Asks the database
    only if the spec needs a pool, or has an `after`. Raises Unavailable.
    """
    if not needs_pool(spec) and not spec.after:
        return spec
    with store.read() as session:
        return after.checked(session, caller, pools.resolved(session, spec, caller.name))
