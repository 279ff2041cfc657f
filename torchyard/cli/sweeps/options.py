"""The options by which `run` and `submit` make a sweep of one job."""

from __future__ import annotations

from dataclasses import dataclass
import re
from typing import Annotated, Any, Literal

import typer

from torchyard.cli.sweeps.keys import ARGUMENT, whole_key
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

_HALVING = re.compile(r"(epochs|steps)=([0-9]{1,9})\.\.([0-9]{1,9})")


@dataclass(frozen=True, kw_only=True)
class SweepOptions:
    """What was given of these options."""

    sweep: list[str] | None = None
    array: int | None = None
    method: str | None = None
    trials: int | None = None
    max_parallel: int | None = None
    monitor: str | None = None
    mode: str | None = None
    halving: str | None = None

    @property
    def given(self) -> bool:
        """Whether it is a sweep. Raises BadParameter for an option that only a sweep has."""
        if self.sweep or self.array is not None:
            return True
        for name in ("method", "trials", "max_parallel", "monitor", "mode", "halving"):
            if getattr(self, name) is not None:
                raise typer.BadParameter(f"--{name.replace('_', '-')} needs --sweep KEY=VALUES, or --array N")
        return False

    def spec_of(self, job: dict[str, Any]) -> dict[str, Any]:
        """Returns the sweep of a job spec. Raises BadParameter."""
        if self.sweep and self.array is not None:
            raise typer.BadParameter("--array and --sweep cannot be combined: --sweep 'NAME=0..99' varies a key")
        name = {"name": job["name"]} if isinstance(job.get("name"), str) else {}
        several = {"max_parallel": self.max_parallel, "monitor": self.monitor, "mode": self.mode}
        return {
            **name,
            **(self._chosen(str(job.get("trainer"))) if self.sweep else {"method": "array", "trials": self.array}),
            **{key: value for key, value in several.items() if value is not None},
            "job": job,
        }

    def _chosen(self, trainer: str) -> dict[str, Any]:
        found: dict[str, Any] = {}
        for key, values in map(varied, self.sweep or ()):
            whole = whole_key(key, trainer=trainer)
            if whole in found:
                raise typer.BadParameter(f"{key} is given twice: write all of its values in one --sweep")
            found[whole] = values
        more = {"trials": self.trials, "halving": _halving(self.halving)}
        return {
            "method": self.method or "grid",
            "parameters": found,
            **{key: value for key, value in more.items() if value is not None},
        }


def shown_key(key: str) -> str:
    """Returns a key as a person reads it: `--lr` for an argument, the last word of a path for what is in `config`."""
    if key.startswith(ARGUMENT):
        return f"--{key.removeprefix(ARGUMENT)}"
    return key.rpartition(".")[2] if key.startswith("config.") else key


def _halving(text: str | None) -> dict[str, Any] | None:
    if text is None:
        return None
    found = _HALVING.fullmatch(text)
    if found is None:
        raise typer.BadParameter(f"{text!r} says nothing of --halving: write epochs=1..27, or steps=100..2700")
    return {"min": int(found[2]), "max": int(found[3]), "unit": found[1]}
