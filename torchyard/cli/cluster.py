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
    headers = ("POSITION", "ID", "NAME", "PRIORITY", "AGE", "WHY")
    for line in output.table(headers, [_entry(item) for item in found], spare="ID"):
        output.write(line)
    return None


def worker_lines(workers: Sequence[WorkerView], *, indent: str = "") -> list[str]:
    """A table of devices; a worker that offers none has a line too."""
    rows = [row for worker in workers for row in _devices(worker)]
    headers = ("WORKER", "STATE", "DEVICE", "HELD BY", "UTIL", "MEMORY", "NAME", "SEEN")
    return output.table(headers, rows, indent=indent)


def _devices(worker: WorkerView) -> list[tuple[str, ...]]:
    devices = [_device(device) for device in worker.devices] or [("none", "", "", "", "")]
    return [(worker.name, worker.state, *device, output.ago(worker.seen_at)) for device in devices]


def _device(device: DeviceView) -> tuple[str, ...]:
    held = device.job_id or device.blocked or "free"
    utilization = "" if device.utilization is None else f"{device.utilization:.0%}"
    return (f"{device.kind} {device.index}", held, utilization, _memory(device), device.name)


def _memory(device: DeviceView) -> str:
    if device.memory_bytes is None:
        return ""
    total = output.size(device.memory_bytes)
    return total if device.memory_used_bytes is None else f"{output.size(device.memory_used_bytes)} of {total}"


def _entry(entry: QueueEntry) -> tuple[str, ...]:
    age, why = output.age(entry.created_at), entry.reason.message
    return (str(entry.position), entry.job_id, entry.name, str(entry.priority), age, why)
