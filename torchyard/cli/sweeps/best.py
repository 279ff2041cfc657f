"""The best checkpoint of a sweep."""

from __future__ import annotations

from typing import TYPE_CHECKING

from torchyard.cli import output
from torchyard.cli.sweeps import table
from torchyard.contract.errors import NotFound
from torchyard.host import terminal

if TYPE_CHECKING:
    from pathlib import Path

    from torchyard.client import Client
    from torchyard.contract.sweeps.views import SweepView


def best_checkpoint(client: Client, sweep: SweepView, *, to: Path | None, as_json: bool) -> None:
    """Prints the checkpoint as JOB/CHECKPOINT, or downloads it and prints the path. Raises NotFound."""
    from torchyard.cli.progress import Transfer

    found = sweep.best
    if found is None:
        raise NotFound(f"no trial of {sweep.name} has measured {sweep.monitor} so far: {table.counts(sweep.trials)}")
    if found.job_id is None or found.checkpoint_id is None:
        gone = "its job was deleted" if found.job_id is None else f"no checkpoint of it has {sweep.monitor}"
        raise NotFound(f"trial {found.trial} of {sweep.name} is the best, and {gone}")
    path = None
    if to is not None:
        with Transfer() as transfer:
            path = client.jobs.download(found.job_id, found.checkpoint_id, to=to, on_progress=transfer.show)
    downloaded = {} if path is None else {"path": str(path)}
    line = f"{found.job_id}/{found.checkpoint_id}" if path is None else str(path)
    output.show({**found.model_dump(mode="json"), **downloaded}, [line], as_json=as_json)
    terminal.note(f"{sweep.monitor} {table.best(found)}")
