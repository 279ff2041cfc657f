"""What a job asks for, as a key: equal requests start, or wait, for the same reasons."""

from scheduling.needs import NO_NEEDS, Needs
from torchyard.contract.spec.resources import Resources

Request = tuple[
    int, int, str, float | None, float | None, float | None, tuple[str, ...] | None, str | None, str | None, Needs
]
"""What jobs ask for, as a key: nodes, devices of all, their kind, memory each, CPUs and memory of a host, names of the
devices, the pool, the worker, and what else it needs of a host."""


def request_of(resources: Resources, needs: Needs = NO_NEEDS) -> Request:
    """Returns what a job asks for, as a key of dictionaries."""
    return (
        resources.nodes,
        resources.total_devices,
        resources.device,
        resources.min_memory_gb,
        resources.cpus,
        resources.memory_gb,
        None if resources.gpu is None else tuple(resources.gpu),
        resources.pool,
        resources.worker,
        needs,
    )
