"""The command `envs`: the environments of workers in which jobs may run."""

from __future__ import annotations

from typing import TYPE_CHECKING

from torchyard.cli import output
from torchyard.cli.arguments import Json, connect
from torchyard.host import terminal

if TYPE_CHECKING:
    from torchyard.contract.cluster.devices import EnvironmentReport


def envs(*, as_json: Json = False) -> None:
    """List the Python environments that workers offer.

    `run --python NAME` runs a program in one of them.
    """
    with connect() as client:
        found = client.workers.list()
    rows = [(worker.name, each) for worker in found if worker.starts for each in worker.starts.environments]
    headers = ("WORKER", "NAME", "PYTHON", "TORCH", "CUDA", "PACKAGES", "PATH")
    named = [(name, each, terminal.plain(each.obstacle)) for name, each in rows if each.obstacle]
    output.show(
        [{"worker": name, **each.to_dict()} for name, each in rows],
        output.table(headers, [(name, *_cells(each)) for name, each in rows]),
        nothing="No worker offers an environment. Operators set TORCHYARD_ENVIRONMENTS.",
        notes=(f"{name}: {terminal.plain(each.name)}: {obstacle}" for name, each, obstacle in named),
        as_json=as_json,
    )


def _cells(each: EnvironmentReport) -> tuple[str, ...]:
    return each.name, each.python, each.torch or "none", each.cuda, str(each.packages), each.path
