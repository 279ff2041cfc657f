"""Commands that drain workers and list the queue, and the table of workers."""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING, Annotated

import typer

from torchyard.cli import estimates, output, prompt, stopping
from torchyard.cli.arguments import Json, WorkersArgument, connect
from torchyard.cli.choosing import Yes
from torchyard.host import terminal

if TYPE_CHECKING:
    from collections.abc import Sequence

    from torchyard.contract.cluster.views import DeviceView, PoolView, WorkerView
    from torchyard.contract.queue.views import QueueEntry, StopView

_KINDS = {"cuda": "GPUs", "cpu": "CPU slots"}


def drain(
    workers: WorkersArgument,
    *,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Print which jobs would stop, and the work lost. Stop nothing.")
    ] = False,
    yes: Yes = False,
    as_json: Json = False,
) -> None:
    """Drain workers: requeue their jobs, and start no new ones.

    Running jobs get time to save a checkpoint. `undrain` ends it.
    """
    if dry_run or not yes:
        prices = _prices_of_drain(workers)
        lines = [line for name, price in prices for line in _drain_lines(name, price, all_of_them=dry_run)]
        if dry_run:
            return output.show([price for _, price in prices], lines, as_json=as_json)
        if lines:
            prompt.confirm(f"drain {', '.join(name for name, _ in prices)}?", lines)
    return _set_drain(workers, drain=True, as_json=as_json)


def undrain(workers: WorkersArgument, *, as_json: Json = False) -> None:
    """Undrain workers: let them start jobs again."""
    _set_drain(workers, drain=False, as_json=as_json)


def queue(*, as_json: Json = False) -> None:
    """List queued jobs, the next to start first.

    Shows when each is expected to start, and why it waits.
    """
    with connect() as client:
        found = [*client.queue()]
    headers = ("POSITION", "ID", "NAME", output.OWNER, "STARTS", "REASON", "PRIORITY", "AGE")
    output.show(
        found, output.table(headers, [_entry(item) for item in found]), nothing="The queue is empty.", as_json=as_json
    )


def worker_lines(workers: Sequence[WorkerView], *, indent: str = "") -> list[str]:
    """Returns the lines of a table of devices, then what is kept for whom, then a table of pools.

    A worker without devices has a line.
    """
    rows = [row for worker in workers if worker.pool is None for row in _devices(worker)]
    headers = (
        "WORKER",
        "STATE",
        "DEVICE",
        "JOB",
        output.OWNER,
        "UTIL",
        "MEMORY",
        "NAME",
        "STARTS",
        "ISOLATION",
        "SEEN",
    )
    devices = output.table(headers, rows, indent=indent) if rows else []
    parts = (devices, [indent + line for line in kept_lines(workers)], pool_lines(workers, indent=indent))
    return [line for part in parts for line in part]


def pool_lines(workers: Sequence[WorkerView], *, indent: str = "") -> list[str]:
    """Returns the lines of a table of pools, none without any, and then why no job starts in one of them now."""
    pools = [(worker, worker.pool) for worker in workers if worker.pool is not None]
    if not pools:
        return []
    headers = ("POOL", "STATE", "PARTITION", "NODES", "DEVICES", "LIMIT", "WAITING", "RUNNING", "SEEN")
    lines = output.table(headers, [_pool(worker, pool) for worker, pool in pools], indent=indent)
    return [
        *lines,
        *(f"{indent}{worker.name}: {terminal.plain(pool.obstacle)}" for worker, pool in pools if pool.obstacle),
    ]


def kept_lines(workers: Sequence[WorkerView]) -> list[str]:
    """Returns a line for each place that is kept for a waiting job."""
    return [
        f"{worker.name}: {_KINDS[one.kind]} reserved for {terminal.plain(one.name or f'a job of {one.owner}')}"
        for worker in workers
        for one in worker.kept
    ]


def _prices_of_drain(names: list[str]) -> list[tuple[str, StopView]]:
    """Returns the name of each worker, and what its drain would cost."""
    with connect() as client:
        known = client.workers.list()
        chosen = [named(known, name) for name in names]
        return [(worker.name, client.workers.price_of_drain(worker.id)) for worker in chosen]


def _drain_lines(name: str, price: StopView, *, all_of_them: bool) -> list[str]:
    """Returns what the drain of a worker costs; of one without jobs that run only with `all_of_them`."""
    first, *rest = stopping.price_lines(price) or ([price.message] if all_of_them else [""])
    return [f"{name}  {first}", *rest] if first else []


def _set_drain(names: list[str], *, drain: bool, as_json: bool) -> None:
    with connect() as client:
        known = client.workers.list()
        chosen = [named(known, name) for name in names]
        changed = [(client.workers.drain if drain else client.workers.undrain)(worker.id) for worker in chosen]
    output.show(changed, (_drained_line(worker, drain=drain) for worker in changed), as_json=as_json)
    if drain and not as_json:
        drained = " ".join(shlex.quote(worker.name) for worker in changed)
        terminal.note(f"To undrain: {output.command()} undrain {drained}")


def _drained_line(worker: WorkerView, *, drain: bool) -> str:
    held = len({device.job_id for device in worker.devices if device.job_id is not None})
    held += 0 if worker.pool is None else worker.pool.waiting + worker.pool.running
    stops = f"; jobs being requeued: {held}" if drain and held else ""
    return f"{worker.name}  {_state(worker)}{stops}"


def _state(worker: WorkerView) -> str:
    """Returns the state, of a worker that drains and has no job left `drained`."""
    if worker.state != "draining":
        return worker.state
    held = any(device.job_id or device.holder for device in worker.devices)
    in_pool = worker.pool is not None and worker.pool.waiting + worker.pool.running > 0
    return "draining" if held or in_pool else "drained"


def named(workers: Sequence[WorkerView], name: str) -> WorkerView:
    """Returns the worker of this id, short id or name. Raises NotFound, and Conflict if several have the name."""
    from torchyard.client.shortids import only_id
    from torchyard.contract.errors import Conflict, NotFound

    found = [worker for worker in workers if name in {worker.id, worker.name}]
    if not found:
        begun = only_id(name, {worker.id: worker.name for worker in workers})
        found = [worker for worker in workers if worker.id == begun]
    if not found:
        raise NotFound(f"no worker has the id or name {name!r}; `torchyard workers ls` lists them")
    if len(found) > 1:
        raise Conflict(f"several workers are named {name}; use an id: {', '.join(worker.id for worker in found)}")
    return found[0]


def _devices(worker: WorkerView) -> list[tuple[str, ...]]:
    devices = [_device(device) for device in worker.devices] or [("none", "", "", "", "", "")]
    starts = worker.starts.mode if worker.starts is not None else ""
    isolation = worker.starts.isolation if worker.starts is not None else None
    level = isolation.level if isolation is not None else ""
    name = f"{worker.name} (remote)" if worker.remote else worker.name
    return [(name, _state(worker), *device, starts, level, terminal.ago(worker.seen_at)) for device in devices]


def _device(device: DeviceView) -> tuple[str, ...]:
    holder = device.holder
    hidden = None if holder is None else output.private_job(holder.owner)
    held = device.job_id or hidden or device.blocked or "free"
    owner = "" if holder is None else holder.owner
    utilization = "" if device.utilization is None else f"{device.utilization:.0%}"
    return (f"{device.kind} {device.index}", held, owner, utilization, _memory(device), device.name)


def _memory(device: DeviceView) -> str:
    if device.memory_bytes is None:
        return ""
    total = terminal.size(device.memory_bytes)
    return total if device.memory_used_bytes is None else f"{terminal.size(device.memory_used_bytes)} of {total}"


def _pool(worker: WorkerView, pool: PoolView) -> tuple[str, ...]:
    limit = "" if pool.max_time_s is None else terminal.duration(pool.max_time_s)
    counts = (str(pool.nodes.count), _offer(pool), limit, str(pool.waiting), str(pool.running))
    return (worker.name, _state(worker), f"{pool.partition} ({pool.state})", *counts, terminal.ago(worker.seen_at))


def _offer(pool: PoolView) -> str:
    """Formats what each node has: `4 GPUs (a100)`."""
    noun = "GPU" if pool.kind == "cuda" else "CPU slot"
    names = f" ({', '.join(pool.nodes.gpus)})" if pool.nodes.gpus else ""
    return f"{output.count(pool.nodes.devices, noun)}{names} each"


def _entry(entry: QueueEntry) -> tuple[str, ...]:
    name = entry.name or output.private_job(entry.owner)
    age, why = terminal.age(entry.created_at), entry.reason.message if entry.reason is not None else ""
    starts = estimates.short(entry.estimate)
    return (str(entry.position), entry.job_id or "", name, entry.owner, starts, why, str(entry.priority), age)
