"""Whether there is what a job asks for by name: GPUs, and a worker."""

from sqlalchemy import select
from sqlalchemy.orm import Session

from store.cluster.workers import is_alive
from store.tables import Worker
from torchyard.contract.cluster.devices import DeviceReport
from torchyard.contract.cluster.fitting import is_named
from torchyard.contract.errors import FieldError, InvalidSpec
from torchyard.contract.spec.resources import Resources

_MOST_SHOWN = 20


def check(session: Session, resources: Resources) -> None:
    """Raises InvalidSpec if a job names GPUs that no live worker has, or a worker that was never there.

    Without a live worker nothing is known of the GPUs that there will be, so any name is accepted. A pool has its own
    check.
    """
    _check_worker(session, resources.worker)
    if resources.gpu is None or resources.pool is not None:
        return
    offered = session.scalars(select(Worker.devices).where(is_alive(), Worker.pool.is_(None))).all()
    reports = (DeviceReport.from_dict(device) for devices in offered for device in devices)
    names = sorted({report.name for report in reports if report.kind == "cuda"})
    if not offered or any(is_named(name, wanted) for name in names for wanted in resources.gpu):
        return
    there = f"the workers have {', '.join(names)}" if names else "the workers have no GPU"
    message = f"no worker has {' or '.join(resources.gpu)}: {there}"
    raise InvalidSpec("the job spec is not valid", errors=(FieldError("resources.gpu", message),))


def _check_worker(session: Session, name: str | None) -> None:
    if name is None:
        return
    names = sorted(session.scalars(select(Worker.name).where(Worker.pool.is_(None)).distinct()))
    if name in names:
        return
    shown = ", ".join(names[:_MOST_SHOWN]) or "none"
    more = f" and {len(names) - _MOST_SHOWN} more" if len(names) > _MOST_SHOWN else ""
    message = f"there is no worker {name}: the workers are {shown}{more}"
    raise InvalidSpec("the job spec is not valid", errors=(FieldError("resources.worker", message),))
