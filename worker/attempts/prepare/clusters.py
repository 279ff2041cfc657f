"""What an attempt asks of a cluster, from its job's spec and what the operator allows now."""

from collections.abc import Callable

from torchyard.contract.cluster.devices import PoolReport
from torchyard.contract.cluster.fitting import is_named
from torchyard.contract.cluster.pools import not_allowed
from torchyard.contract.errors import ConfigError
from torchyard.contract.spec.resources import SlurmOptions
from torchyard.contract.spec.spec import Spec
from worker.engines.base import ClusterRequest, NotStartedYet


def request_of(spec: Spec, *, owner: str, pool: Callable[[], PoolReport] | None) -> ClusterRequest | None:
    """Returns what the spec asks for in its pool; None if it asks for none.

    Raises ConfigError if the pool does not give that to the owner, and NotStartedYet while that is not known.
    """
    resources = spec.resources
    if resources.pool is None:
        return None
    if pool is None:
        raise ConfigError(f"resources.pool: this worker does not serve the pool {resources.pool}")
    report, options = pool(), spec.slurm or SlurmOptions()
    for error in not_allowed(options, owner, report):  # the operator may have changed it since the submission
        raise ConfigError(f"{error.field}: {error.message}")
    return ClusterRequest(
        nodes=resources.nodes,
        devices_per_node=resources.devices_per_node,
        kind=report.kind if resources.device == "auto" else resources.device,
        gpu=_gpu(resources.gpu, report),
        account=options.account or report.rules.account_of.get(owner),
        qos=options.qos,
        constraint=options.constraint,
        reservation=options.reservation,
    )


def _gpu(wanted: tuple[str, ...] | None, pool: PoolReport) -> str | None:
    """Returns the first wanted GPU that the pool has, as its operator has called it."""
    if wanted is None:
        return None
    for name in wanted:
        names = [there for there in pool.nodes.gpus if is_named(there, name)]
        if names:
            return min(names, key=len)
    if not pool.nodes.count:
        raise NotStartedYet(f"the nodes of pool {pool.partition} are not known: {pool.obstacle or pool.state}")
    raise ConfigError(f"resources.gpu: pool {pool.partition} has no {' or '.join(wanted)}")
