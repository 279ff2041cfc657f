"""A file that `submit` takes and that has a sweep."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import typer

from torchyard.cli import output
from torchyard.contract.errors import InvalidSpec
from torchyard.host import terminal

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from torchyard.cli.specs import ReadSpec
    from torchyard.client import Client

_OF_SWEEP = frozenset({"job", "parameters", "points"})
"""Keys that no job spec has."""


def is_sweep(spec: Mapping[str, Any]) -> bool:
    """Returns whether a document is a sweep, and no job spec."""
    return not _OF_SWEEP.isdisjoint(spec)


def read(found: Sequence[ReadSpec], own: Mapping[str, Any], options: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the sweep that is the only document, with `own` in place of what it has, and says what varies.

    Of the options that make a sweep, it takes `max_parallel`. Raises InvalidSpec and BadParameter.
    """
    from torchyard.cli.sweeps.submitting import announced, with_whole_keys

    if len(found) > 1:
        raise typer.BadParameter(f"there are {len(found)} documents: submit a sweep alone")
    place, spec = found[0].place, found[0].spec
    if "job" not in spec and "trainer" in spec:
        alone = f"{output.command()} submit FILE --sweep KEY=VALUES"
        raise InvalidSpec(f"{place} is a job spec, not a sweep: put it under the key `job`, or use `{alone}`")
    for name, value in options.items():
        if value and name != "max_parallel":
            raise typer.BadParameter(f"{place} is already a sweep: omit --{name.replace('_', '-')}")
    parallel = {"max_parallel": options["max_parallel"]} if options["max_parallel"] else {}
    named = {"name": own["name"]} if "name" in own else {}
    of_job = {key: value for key, value in own.items() if key != "name"}
    job = {"job": {**spec["job"], **of_job}} if of_job and isinstance(spec.get("job"), dict) else {}
    whole = with_whole_keys({**spec, **job, **named, **parallel})
    return announced(whole)


def submit(
    client: Client,
    spec: Mapping[str, Any],
    *,
    dry_run: bool,
    detach: bool,
    as_json: bool,
    idempotency_key: str | None,
) -> None:
    """Submits the sweep as `submit_sweep` does, or with `dry_run` prints the arguments of each trial."""
    from torchyard.cli.sweeps.argv import print_trials
    from torchyard.cli.sweeps.submitting import submit_sweep

    if not dry_run:
        return submit_sweep(client, spec, detach=detach, as_json=as_json, idempotency_key=idempotency_key)
    resolved = client.sweeps.validate(spec)
    if as_json:
        return output.write_json(resolved)
    if resolved.spec.job.get("trainer") == "script":
        print_trials(resolved.spec, as_json=False)
    return terminal.note("Dry run: nothing was submitted.")
