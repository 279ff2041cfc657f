"""The options by which `run` and `submit` make a sweep of one job."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
import json
import re
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from torchyard.cli.sweeps.values import varied

if TYPE_CHECKING:
    from torchyard.cli.declared.options import Declared

Sweep = Annotated[
    list[str] | None,
    typer.Option(
        metavar="KEY=VALUES",
        help="Values to try: lr=1e-4,1e-3, seed=1..5, lr=1e-5..1e-1:log. Repeatable: all combinations.",
    ),
]
Method = Annotated[
    Literal["grid", "random", "tpe", "asha"] | None,
    typer.Option(
        help="How to choose values: every combination (grid), random, Bayesian (tpe) or early stopping (asha)."
    ),
]
Trials = Annotated[int | None, typer.Option(min=1, help="The number of jobs (random, tpe, asha).")]
Array = Annotated[int | None, typer.Option(metavar="N", min=1, help="Submit N jobs with TORCHYARD_TRIAL from 0.")]
MaxParallel = Annotated[int | None, typer.Option(metavar="N", min=1, help="Run at most N jobs at once.")]
Monitor = Annotated[str | None, typer.Option(metavar="METRIC", help="The metric that ranks the jobs: val/accuracy.")]
Mode = Annotated[Literal["min", "max"] | None, typer.Option(help="Whether a low (min) or high (max) value is better.")]
Halving = Annotated[
    str | None,
    typer.Option(
        metavar="UNIT=MIN..MAX", help="The resource of asha, from the first rung to the full run: epochs=1..27."
    ),
]

SweepBool = Annotated[
    list[str] | None,
    typer.Option(
        metavar="KEY=HOW",
        help="How to pass true and false: flag (--x or nothing), no-flag (--x or --no-x), value (--x "
        "true). Default: as the program declares --x. Repeatable.",
    ),
]
SweepStyle = Annotated[
    Literal["value", "equals", "hydra"] | None,
    typer.Option(help="How to pass arguments: --x VALUE, --x=VALUE, or x=VALUE (Hydra)."),
]

_OF_SWEEP = ("method", "trials", "halving", "sweep_bool", "sweep_style")
"""Options that are of no array."""
_HALVING = re.compile(r"(epochs|steps)=([0-9]{1,9})\.\.([0-9]{1,9})")


@dataclass(frozen=True)
class Asked:
    """A sweep that the options ask for."""

    spec: dict[str, Any]
    by: Mapping[str, str]
    """By keys: where the source of the program declares how they are written."""


def sweep_of(
    job: Mapping[str, Any],
    *,
    sweep: Sequence[str] | None,
    array: int | None,
    more: Mapping[str, Any],
    declared: Callable[[], Declared] | None = None,
) -> Asked | None:
    """Returns the sweep of a job spec; None without `sweep` and `array`. `more` has the other options by their keys.

    `declared`: reads what a script declares. Raises BadParameter, for an option that does not belong there too.
    """
    given = {name: value for name, value in more.items() if value}
    if array is None and not sweep:
        for name in given:
            raise typer.BadParameter(f"{_option(name)} needs --sweep KEY=VALUES, or --array N")
        return None
    named = {"name": job["name"]} if isinstance(job.get("name"), str) else {}
    if array is None:
        halving = {"halving": _halving(given["halving"])} if "halving" in given else {}
        truths, chosen = given.pop("sweep_bool", ()), given.pop("sweep_style", None)
        known = None if declared is None else declared()
        hydra = chosen == "hydra" or (chosen is None and known is not None and known.library == "hydra")
        varies = _varied(sweep or (), job, hydra=hydra)
        found = {**named, "method": "grid", **given, **halving, "parameters": varies, "job": job}
        return _written(found, known, chosen=chosen, truths=truths)
    for name in [*(["sweep"] if sweep else ()), *(name for name in given if name in _OF_SWEEP)]:
        raise typer.BadParameter(f"--array cannot be combined with {_option(name)}")
    return Asked({**named, **given, "method": "array", "trials": array, "job": job}, {})


def _option(name: str) -> str:
    return f"--{name.replace('_', '-')}"


def _varied(texts: Sequence[str], job: Mapping[str, Any], *, hydra: bool) -> dict[str, Any]:
    from torchyard.cli.sweeps.keys import ARGUMENT, whole_key  # which takes long to import

    found: dict[str, Any] = {}
    for text in texts:
        key = text.partition("=")[0]
        whole = whole_key(key, trainer=str(job.get("trainer")), hydra=hydra) if key else key
        _, values = varied(text, as_typed=whole.startswith(ARGUMENT))
        if whole in found:
            raise typer.BadParameter(f"{key} is given twice: write all of its values in one --sweep")
        found[whole] = _as_variables(values) if whole.startswith("env.") else values
    return found


def _as_variables(values: Any) -> Any:
    """Returns the values of a variable of the environment, which are texts: numbers as they are written in JSON."""
    if not isinstance(values, list):
        return values
    return [json.dumps(value) if isinstance(value, int | float) else value for value in values]


def _written(spec: dict[str, Any], declared: Declared | None, *, chosen: Any, truths: Sequence[str]) -> Asked:
    """Returns the sweep with the style of each argument, as far as it is known here."""
    from torchyard.cli.declared.options import Declared
    from torchyard.cli.sweeps.styles import styled

    job = spec["job"]
    config: dict[str, Any] = job["config"] if isinstance(job.get("config"), dict) else {}
    args: list[Any] = config["args"] if isinstance(config.get("args"), list) else []
    if job.get("trainer") != "script" or not all(isinstance(arg, str) for arg in args):
        if truths or chosen:
            raise typer.BadParameter("--sweep-bool and --sweep-style work only with scripts")
        return Asked(spec, {})
    found = styled(spec["parameters"], args, declared=declared or Declared(), chosen=chosen, truths=_truths(truths))
    job = {**job, "config": {**config, "args": found.args}} if args else job
    styles = {"styles": found.styles} if found.styles else {}
    return Asked({**spec, "parameters": found.parameters, **styles, "job": job}, found.by)


def _truths(texts: Sequence[str]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for text in texts:
        key, _, how = text.partition("=")
        if not key or how not in {"flag", "no-flag", "value"}:
            raise typer.BadParameter(
                f"{text!r} is not valid for --sweep-bool: write KEY=flag, KEY=no-flag or KEY=value"
            )
        found[f"args.{key.removeprefix('--').removeprefix('args.')}"] = how
    return found


def _halving(text: str) -> dict[str, Any]:
    found = _HALVING.fullmatch(text)
    if found is None:
        raise typer.BadParameter(f"{text!r} is not valid for --halving: write epochs=1..27, or steps=100..2700")
    return {"min": int(found[2]), "max": int(found[3]), "unit": found[1]}
