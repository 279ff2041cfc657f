"""What an attempt asks of a cluster, from its job's spec and what the operator allows now."""

from collections.abc import Callable

from torchyard.contract.devices import PoolReport
from torchyard.contract.errors import ConfigError
from torchyard.contract.fitting import is_named
from torchyard.contract.spec import SlurmOptions, Spec
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
    _check_options(options, owner=owner, pool=report)
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


def _check_options(options: SlurmOptions, *, owner: str, pool: PoolReport) -> None:
    """Raises ConfigError for what the operator has allowed at the submission, and allows no more."""
    rules = pool.rules
    own = rules.account_of.get(owner)
    for field, value, allowed in (
        ("account", options.account, [*rules.accounts, *([own] if own is not None else [])]),
        ("qos", options.qos, rules.qos),
        ("constraint", options.constraint, rules.constraints),
        ("reservation", options.reservation, rules.reservations),
    ):
        if value is not None and value not in allowed:
            raise ConfigError(f"slurm.{field}: the operator of pool {pool.partition} does not allow {value}")


def _gpu(wanted: tuple[str, ...] | None, pool: PoolReport) -> str | None:
    """Returns the first wanted GPU that the pool has, as its operator has called it."""
    if wanted is None:
        return None
    for name in wanted:
        found = [there for there in pool.nodes.gpus if is_named(there, name)]
        if found:
            return min(found, key=len)
    if not pool.nodes.count:
        raise NotStartedYet(f"the nodes of pool {pool.partition} are not known: {pool.obstacle or pool.state}")
    raise ConfigError(f"resources.gpu: pool {pool.partition} has no {' or '.join(wanted)}")
