"""Commands about what there is to train on, and who waits for it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from torchyard.cli import output
from torchyard.cli.arguments import Json, connect

if TYPE_CHECKING:
    from collections.abc import Sequence

    from torchyard.views import DeviceView, QueueEntry, WorkerView


def workers(*, as_json: Json = False) -> None:
    """List workers and their devices, and what holds each."""
    with connect() as client:
        found = client.workers()
    if as_json:
        return output.write_json(found)
    for line in worker_lines(found):
        output.write(line)
    if not found:
        output.note(f"No workers. {output.command()} up starts one beside the service.")
    return None


def queue(*, as_json: Json = False) -> None:
    """List the queued jobs in the order in which they are to start, each with what it waits for."""
    with connect() as client:
        found = [*client.queue()]
    if as_json:
        return output.write_json(found)
    if not found:
        return output.note("Nothing waits.")
    for line in output.table(("POSITION", "ID", "NAME", "PRIORITY", "QUEUED", "WHY"), [_entry(item) for item in found]):
        output.write(line)
    return None


def worker_lines(workers: Sequence[WorkerView], *, indent: str = "") -> list[str]:
    """A table of devices; a worker that offers none has a line too."""
    rows = [row for worker in workers for row in _devices(worker)]
    headers = ("WORKER", "STATE", "SEEN", "DEVICE", "NAME", "UTIL", "MEMORY", "HELD BY")
    return output.table(headers, rows, indent=indent)


def _devices(worker: WorkerView) -> list[tuple[str, ...]]:
    where = (worker.name, worker.state, output.ago(worker.seen_at))
    if not worker.devices:
        return [(*where, "none", "", "", "", "")]
    return [(*where, *_device(device)) for device in worker.devices]


def _device(device: DeviceView) -> tuple[str, ...]:
    used, total = device.memory_used_bytes, device.memory_bytes
    memory = (
        "" if total is None else output.size(total) if used is None else f"{output.size(used)}/{output.size(total)}"
    )
    utilization = "" if device.utilization is None else f"{device.utilization:.0%}"
    held = device.job_id or device.blocked or "free"
    return (f"{device.kind} {device.index}", device.name, utilization, memory, held)


def _entry(entry: QueueEntry) -> tuple[str, ...]:
    waiting = output.ago(entry.created_at)
    return (str(entry.position), entry.job_id, entry.name, str(entry.priority), waiting, entry.reason.message)
