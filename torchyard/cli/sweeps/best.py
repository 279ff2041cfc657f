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
    from torchyard.client.blocking import ask
    from torchyard.client.references import best_of_sweep

    found = sweep.best
    if found is None:
        raise NotFound(f"no trial of {sweep.name} has reported {sweep.monitor} yet: {table.counts(sweep.trials)}")
    job_id, checkpoint_id = ask(client, best_of_sweep, sweep)
    path = None
    if to is not None:
        with Transfer() as transfer:
            path = client.jobs.download(job_id, checkpoint_id, to=to, on_progress=transfer.show)
    downloaded = {} if path is None else {"path": str(path)}
    line = f"{job_id}/{checkpoint_id}" if path is None else str(path)
    told = {**found.model_dump(mode="json"), "checkpoint_id": checkpoint_id, **downloaded}
    output.show(told, [line], as_json=as_json)
    terminal.note(f"{sweep.monitor} {table.best(found)}")
