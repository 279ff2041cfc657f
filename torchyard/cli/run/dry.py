"""Prints what `run` would do, and sends nothing."""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING, Any

from torchyard.cli import output
from torchyard.cli.run.spec import checked, packed_program, plan
from torchyard.cli.sweeps.argv import argv, print_trials
from torchyard.contract.sweeps.spec import parse_sweep
from torchyard.host import terminal

if TYPE_CHECKING:
    from pathlib import Path

    from torchyard.cli.run.program import Program
    from torchyard.cli.run.settings import Settings


def print_plan(
    program: Program, settings: Settings, folder: Path, sweep: dict[str, Any] | None, *, as_json: bool
) -> None:
    """Prints what would be sent and run, and the arguments of the job or of each trial. Raises as `run` does."""
    with packed_program(program, settings, folder, offline=True) as packed:
        spec = checked(packed.spec)
        lines = plan(spec, program, packed.code, server="")
    for line in lines:
        terminal.note(line)
    if sweep is not None:
        whole = {**sweep, "name": spec.name, "job": spec.model_dump(mode="json")}
        print_trials(parse_sweep(whole), as_json=as_json)
    else:
        words = argv(spec)
        output.show({"argv": words}, [terminal.plain(shlex.join(words))], as_json=as_json)
    terminal.note("Dry run: nothing was sent.")
