"""Which pool a job starts in, and whether that has what the job asks for."""

from collections.abc import Collection, Iterator, Mapping
from datetime import timedelta

from torchyard.contract.cluster.devices import PoolReport
from torchyard.contract.cluster.fitting import is_named
from torchyard.contract.errors import FieldError, InvalidSpec
from torchyard.contract.spec.resources import Resources, SlurmOptions
from torchyard.contract.spec.spec import Spec
from torchyard.contract.wire.units import format_duration
from torchyard.contract.wire.wording import listed, suggestion

_KINDS = {"cuda": "GPUs", "cpu": "CPU slots"}


def needs_pool(spec: Spec) -> bool:
    """Returns whether the spec asks for a pool, or for what only a pool has."""
    return spec.resources.pool is not None or spec.resources.nodes > 1 or spec.slurm is not None


def resolved(spec: Spec, owner: str, pools: Mapping[str, PoolReport]) -> Spec:
    """Returns the spec with the name of its pool, and with what that decides: the kind of devices, and a time limit.

    A default time limit is cut to the pool's longest. `pools`: those that are known, by name. Raises InvalidSpec,
    naming each field with which the pool starts no job of the owner.
    """
    if not needs_pool(spec):
        return spec
    name = spec.resources.pool or _only_pool(spec, pools)
    pool = pools.get(name)
    if pool is None:
        raise _invalid(FieldError("resources.pool", _unknown(name, pools)))
    device = pool.kind if spec.resources.device == "auto" else spec.resources.device
    resources = spec.resources.model_copy(update={"pool": name, "device": device})
    found = spec.model_copy(update={"resources": resources, "time_limit": _time_limit(spec, pool)})
    errors = tuple(refusals(found, owner, pool))
    if errors:
        raise _invalid(*errors)
    return found


def refusals(spec: Spec, owner: str, pool: PoolReport) -> Iterator[FieldError]:
    """Yields what keeps a job of the owner from starting in its pool, by field."""
    name = str(spec.resources.pool)
    if spec.launcher == "warm":
        yield FieldError(
            "launcher", f"must be auto or torchrun in pool {name}: nodes of a cluster have no warm process"
        )
    yield from _wrong_devices(spec.resources, name, pool)
    if pool.nodes.count or pool.obstacle is None:  # otherwise nothing is known of its nodes
        yield from _too_large(spec.resources, name, pool)
    longest = _longest(pool)
    if longest is not None and spec.time_limit > longest:
        yield FieldError("time_limit", f"must be at most {format_duration(longest)} in pool {name}")
    yield from not_allowed(spec.slurm or SlurmOptions(), owner, pool)


def not_allowed(wanted: SlurmOptions, owner: str, pool: PoolReport) -> Iterator[FieldError]:
    """Yields what the pool's operator does not allow the owner, by field."""
    rules = pool.rules
    own = [rules.account_of[owner]] if owner in rules.account_of else []
    for field, value, allowed in (
        ("account", wanted.account, [*rules.accounts, *own]),
        ("qos", wanted.qos, rules.qos),
        ("constraint", wanted.constraint, rules.constraints),
        ("reservation", wanted.reservation, rules.reservations),
    ):
        if value is not None and value not in allowed:
            choice = f"must be {listed(sorted({*allowed}))}" if allowed else "must be left out"
            yield FieldError(f"slurm.{field}", f"{choice} in pool {pool.partition}: its operator allows no other")


def _only_pool(spec: Spec, pools: Collection[str]) -> str:
    if spec.resources.nodes == 1:
        raise _invalid(FieldError("slurm", "is only for a job in a pool: name that as resources.pool"))
    if not pools:
        raise _invalid(FieldError("resources.nodes", "must be 1: one job spans one host where there is no pool"))
    if len(pools) > 1:
        message = f"must be named for a job over several nodes: {listed(sorted(pools))}"
        raise _invalid(FieldError("resources.pool", message))
    return next(iter(pools))


def _wrong_devices(resources: Resources, name: str, pool: PoolReport) -> Iterator[FieldError]:
    if resources.device != pool.kind:
        field = "resources.device" if resources.gpu is None else "resources.gpu"
        yield FieldError(field, f"pool {name} has {_KINDS[pool.kind]} only")
    elif resources.gpu is not None and pool.nodes.count and not _has_any(pool, resources.gpu):
        there = f"has {', '.join(sorted(pool.nodes.gpus))}" if pool.nodes.gpus else "does not name its GPUs"
        yield FieldError("resources.gpu", f"pool {name} has no {' or '.join(resources.gpu)}: it {there}")
    if resources.min_memory_gb is not None:
        message = f"pool {name} does not say how much memory a GPU has: name GPUs as resources.gpu instead"
        yield FieldError("resources.min_memory_gb", message)


def _has_any(pool: PoolReport, names: Collection[str]) -> bool:
    return any(is_named(there, wanted) for there in pool.nodes.gpus for wanted in names)


def _too_large(resources: Resources, name: str, pool: PoolReport) -> Iterator[FieldError]:
    nodes = pool.nodes
    for field, wanted, there, what in (
        ("nodes", resources.nodes, nodes.count, "nodes"),
        ("devices_per_node", resources.devices_per_node, nodes.devices, f"{_KINDS[pool.kind]} a node"),
        ("cpus", resources.cpus, nodes.cpus, "CPUs a node"),
        ("memory_gb", resources.memory_gb, nodes.memory_gb, "GiB of memory a node"),
    ):
        if wanted is not None and there is not None and wanted > there:
            yield FieldError(f"resources.{field}", f"must be at most {there:g}: pool {name} has {there:g} {what}")


def _time_limit(spec: Spec, pool: PoolReport) -> timedelta:
    longest = _longest(pool)
    if longest is None or "time_limit" in spec.model_fields_set:
        return spec.time_limit
    return min(spec.time_limit, longest)


def _longest(pool: PoolReport) -> timedelta | None:
    return None if pool.max_time_s is None else timedelta(seconds=pool.max_time_s)


def _unknown(name: str, pools: Collection[str]) -> str:
    return f"there is no pool {name}; {suggestion(name, sorted(pools))}" if pools else "there is no pool"


def _invalid(*errors: FieldError) -> InvalidSpec:
    return InvalidSpec("the job spec is not valid", errors=errors)
