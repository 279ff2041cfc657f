"""The options by which `run` and `submit` make a sweep of one job."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
import re
from typing import Annotated, Any, Literal

import typer

from torchyard.cli.sweeps.values import varied

Sweep = Annotated[
    list[str] | None,
    typer.Option(
        metavar="KEY=VALUES", help="What varies: lr=1e-4,1e-3, seed=1..5, lr=1e-5..1e-1:log. Repeatable: all pairs."
    ),
]
Method = Annotated[
    Literal["grid", "random", "tpe", "asha"] | None,
    typer.Option(help="How values are chosen: all (grid), at random, by what went well, or the best go on (asha)."),
]
Trials = Annotated[int | None, typer.Option(min=1, help="Of random, tpe and asha: how many jobs.")]
Array = Annotated[
    int | None, typer.Option(metavar="N", min=1, help="N jobs that differ in TORCHYARD_TRIAL alone, from 0.")
]
MaxParallel = Annotated[int | None, typer.Option(metavar="N", min=1, help="Jobs that wait or run at once.")]
Monitor = Annotated[str | None, typer.Option(metavar="METRIC", help="The metric that ranks the jobs: val/accuracy.")]
Mode = Annotated[Literal["min", "max"] | None, typer.Option(help="Whether a low or a high value of it is good.")]
Halving = Annotated[
    str | None, typer.Option(metavar="UNIT=MIN..MAX", help="Of asha: where jobs stop, and end: epochs=1..27.")
]

_OF_SWEEP = ("method", "trials", "halving")
"""Options that are of no array."""
_HALVING = re.compile(r"(epochs|steps)=([0-9]{1,9})\.\.([0-9]{1,9})")


def sweep_of(
    job: Mapping[str, Any], *, sweep: Sequence[str] | None, array: int | None, more: Mapping[str, Any]
) -> dict[str, Any] | None:
    """Returns the sweep of a job spec; None without `sweep` and `array`. `more` has the other options by their keys.

    Raises BadParameter, for an option that does not belong there too.
    """
    given = {name: value for name, value in more.items() if value is not None}
    if array is None and not sweep:
        for name in given:
            raise typer.BadParameter(f"{_option(name)} needs --sweep KEY=VALUES, or --array N")
        return None
    named = {"name": job["name"]} if isinstance(job.get("name"), str) else {}
    if array is None:
        halving = {"halving": _halving(given["halving"])} if "halving" in given else {}
        return {**named, "method": "grid", **given, **halving, "parameters": _varied(sweep or (), job), "job": job}
    for name in [*(["sweep"] if sweep else ()), *(name for name in given if name in _OF_SWEEP)]:
        raise typer.BadParameter(f"--array and {_option(name)} cannot be combined: --array has N equal jobs")
    return {**named, **given, "method": "array", "trials": array, "job": job}


def _option(name: str) -> str:
    return f"--{name.replace('_', '-')}"


def _varied(texts: Sequence[str], job: Mapping[str, Any]) -> dict[str, Any]:
    from torchyard.cli.sweeps.keys import whole_key  # which takes long to import

    found: dict[str, Any] = {}
    for key, values in map(varied, texts):
        whole = whole_key(key, trainer=str(job.get("trainer")))
        if whole in found:
            raise typer.BadParameter(f"{key} is given twice: write all of its values in one --sweep")
        found[whole] = values
    return found


def _halving(text: str) -> dict[str, Any]:
    found = _HALVING.fullmatch(text)
    if found is None:
        raise typer.BadParameter(f"{text!r} says nothing of --halving: write epochs=1..27, or steps=100..2700")
    return {"min": int(found[2]), "max": int(found[3]), "unit": found[1]}
