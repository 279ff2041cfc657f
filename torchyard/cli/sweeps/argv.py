"""What each trial of a sweep of a program is started with, printed before anything is submitted."""

import shlex

from torchyard.cli import output
from torchyard.cli.sweeps import table
from torchyard.cli.sweeps.submitting import naming_fields
from torchyard.contract.recipes.script import Script
from torchyard.contract.spec.maximums import Maximums
from torchyard.contract.spec.spec import Spec
from torchyard.contract.sweeps.arguments import ARGUMENT
from torchyard.contract.sweeps.points import checked_points, known_point, resolved, spec_of
from torchyard.contract.sweeps.spec import ADAPTIVE, Point, SweepSpec
from torchyard.host import terminal


def print_trials(sweep: SweepSpec, *, as_json: bool) -> None:
    """Prints the number and the arguments of each trial; of points that depend on results, the outermost ones.

    Raises InvalidSpec.
    """
    with naming_fields():
        trials = _trials(sweep)
    width = len(str(len(trials)))
    output.show(
        [{"trial": number, "point": point, "argv": words} for number, point, words in trials],
        (f"{number:>{width}}  {terminal.plain(_trial_line(point, words))}" for number, point, words in trials),
        as_json=as_json,
    )


def argv(job: Spec) -> list[str]:
    """Returns the program of a script and its arguments, as its user types them; nothing of a recipe."""
    config = job.config
    if not isinstance(config, Script):
        return []
    program = ["-m", config.module] if config.module is not None else [config.command or config.entrypoint or ""]
    return [*program, *config.args]


def _trial_line(point: Point, words: list[str]) -> str:
    others = {key: value for key, value in point.items() if not key.startswith(ARGUMENT)}
    return shlex.join(words) + (f"   ({table.point_text(others)})" if others else "")


def _trials(sweep: SweepSpec) -> list[tuple[int, Point, list[str]]]:
    known, _ = resolved(sweep, visibility="private", maximums=Maximums())
    if known.method in ADAPTIVE:
        terminal.note(
            f"{known.method} chooses values from results. Trials with the smallest, largest and listed values:"
        )
        points: list[Point | None] = [*checked_points(known)]
    else:
        points = [known_point(known, number) for number in range(known.size)]
    found = ((number, point) for number, point in enumerate(points) if point is not None)
    return [(number, point, argv(spec_of(known, number, point))) for number, point in found]
