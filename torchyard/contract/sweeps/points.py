"""The job spec of a sweep's trial: that of the sweep, with the values of a point."""

from collections.abc import Iterator, Mapping, Sequence
import json
import math
import random
from typing import Any

from pydantic import JsonValue
from pydantic_core import to_json

from torchyard.contract.errors import FieldError, InvalidSpec
from torchyard.contract.recipes import Recipe
from torchyard.contract.spec.maximums import Maximums, within
from torchyard.contract.spec.spec import MOST_SPEC_BYTES, MOST_SPEC_VALUES, Spec, parse_spec
from torchyard.contract.sweeps.arguments import ARGUMENT, Style, style_of, with_argument
from torchyard.contract.sweeps.spec import (
    ADAPTIVE,
    MOST_SWEEP_BYTES,
    Point,
    Range,
    SweepExtension,
    SweepSpec,
    Values,
    grid_point,
    parse_sweep,
)
from torchyard.contract.team.roles import Visibility
from torchyard.contract.wire.text import unstorable
from torchyard.contract.wire.units import format_duration

_THE_SAME = {
    **dict.fromkeys(("checkpoint", "checkpoint.monitor", "checkpoint.mode"), "all trials are ranked by one metric"),
    "trainer": "all trials have one trainer",
    "visibility": "all trials have that of the sweep",
    "name": "trials have the name of the sweep and their numbers",
}
"""Keys that no point may have, and why."""
_MOST_SPECS_BYTES = 256 << 20
"""The most bytes of the job specs of all trials together."""
_MOST_POINTS_BYTES = 16 << 20
"""The most bytes of the points of all trials together: whoever ranks them, or chooses the next one, reads all."""
_MOST_NAME = 94
"""Characters of the sweep's name in those of its jobs."""


def spec_of(sweep: SweepSpec, number: int, point: Point) -> Spec:
    """Returns the job spec of a trial. Raises InvalidSpec, whose errors name the fields of the sweep."""
    raw: dict[str, JsonValue] = {**sweep.job, "name": f"{sweep.name[:_MOST_NAME]}-{number}"}
    labels = raw.get("labels", {})
    if sweep.labels and isinstance(labels, dict):
        raw["labels"] = {**sweep.labels, **labels}
    for key, value in point.items():
        if key in _THE_SAME:
            raise _wrong(FieldError(_field(sweep, number, key), f"cannot vary: {_THE_SAME[key]}"))
        try:
            _set(raw, key, value, sweep.styles)
        except ValueError as error:
            raise _wrong(FieldError(_field(sweep, number, key), str(error))) from None
    try:
        found = parse_spec(raw)
    except InvalidSpec as error:
        raise _wrong(*(_placed(sweep, number, point, each) for each in error.errors)) from None
    if (short := _too_short(sweep, found)) is not None:
        raise _wrong(_placed(sweep, number, point, short))
    return found


def resolved(sweep: SweepSpec, *, visibility: Visibility, maximums: Maximums) -> tuple[SweepSpec, Spec]:
    """Returns the sweep with what ranks its trials and who may read them, and the job spec of trial 0.

    `visibility`: the default. `maximums`: of a job. Raises InvalidSpec.
    """
    _check_keys(sweep)
    check_sizes(sweep)
    job = dict(sweep.job)
    ranking = {"monitor": sweep.monitor, "mode": sweep.mode}
    policy = {**_policy(job), **{key: value for key, value in ranking.items() if value is not None}}
    if policy:
        job["checkpoint"] = policy
    of_job = job.get("visibility")
    if of_job is not None and sweep.visibility not in (None, of_job):
        raise _wrong(FieldError("visibility", f"is {sweep.visibility} here, and {of_job} in the job spec"))
    known = sweep.model_copy(update={"job": job, "styles": _styles(sweep)})
    first = spec_of(known, 0, next(checked_points(known)))
    limited = within(first, maximums)
    for key in ("stop_grace", "idle_timeout"):
        value = getattr(limited, key)
        if value != getattr(first, key):
            job[key] = format_duration(value)
    found = {
        "monitor": first.checkpoint.monitor,
        "mode": first.checkpoint.mode,
        "visibility": sweep.visibility or first.visibility or visibility,
    }
    return known.model_copy(update=found), limited


def checked_points(sweep: SweepSpec) -> Iterator[Point]:
    """Yields the points whose specs say whether all are right, first that of trial 0.

    All points of a method that knows them; else the least and the greatest, and each value with the first of others.
    """
    if sweep.method == "list":
        yield from sweep.points
    elif sweep.method == "array":
        yield {}
    elif sweep.method in ADAPTIVE or sweep.method == "random":
        yield from _corners(sweep)
    else:
        yield from (grid_point(sweep.parameters, number) for number in range(sweep.size))


def extended(sweep: SweepSpec, more: SweepExtension) -> SweepSpec:
    """Returns the sweep with what is added. Raises InvalidSpec for what it cannot have."""
    changes: dict[str, Any] = {}
    if more.trials is not None:
        if sweep.trials is None:
            raise _wrong(FieldError("trials", f"a sweep of {sweep.method} has no trials to add to"))
        changes["trials"] = sweep.trials + more.trials
    if more.points is not None:
        if sweep.method != "list":
            raise _wrong(FieldError("points", f"a sweep of {sweep.method} has no points to add to"))
        changes["points"] = [*sweep.points, *more.points]
    if "max_parallel" in more.model_fields_set:
        changes["max_parallel"] = more.max_parallel
    found = parse_sweep({**sweep.model_dump(mode="json"), **changes})
    check_sizes(found)
    if more.points is not None and (size := len(to_json(found))) > MOST_SWEEP_BYTES:
        raise _wrong(FieldError("points", f"the sweep would have {size} bytes, and has at most {MOST_SWEEP_BYTES}"))
    return found


def added_points(before: SweepSpec, after: SweepSpec) -> Iterator[tuple[int, Point]]:
    """Yields the numbers and points that were added to a list."""
    for number in range(len(before.points), len(after.points)):
        yield number, after.points[number]


def check_sizes(sweep: SweepSpec) -> None:
    """Raises InvalidSpec for a job spec, points or all specs together that are too large."""
    size = len(to_json(sweep.job))
    if size > MOST_SPEC_BYTES:
        raise _wrong(FieldError("job", f"has {size} bytes, and a job spec at most {MOST_SPEC_BYTES}"))
    if (wrong := unstorable(sweep.job, most_values=MOST_SPEC_VALUES)) is not None:
        path, said = wrong
        raise _wrong(FieldError(f"job.{path}" if path else "job", said))
    varied = max((len(to_json(point)) for point in sweep.points), default=0)
    varied += sum(_largest(values) for values in sweep.parameters.values())
    if varied * sweep.size > _MOST_POINTS_BYTES:
        whole = f"{sweep.size} points of up to {varied} bytes"
        raise _wrong(FieldError("", f"there are {whole}, and all together have at most {_MOST_POINTS_BYTES}"))
    largest = size + varied
    count = max(sweep.size, sweep.listed)  # so many are made, or checked
    if largest * count > _MOST_SPECS_BYTES:
        whole = f"{count} job specs of up to {largest} bytes"
        raise _wrong(FieldError("", f"there are {whole}, and all together have at most {_MOST_SPECS_BYTES}"))


def _check_keys(sweep: SweepSpec) -> None:
    """Raises InvalidSpec if two keys of a point set the same place of the spec."""
    keys = sweep.keys
    inner = [(key, other) for key in keys for other in keys if key.startswith(f"{other}.")]
    if inner:
        key, other = inner[0]
        raise _wrong(FieldError(_field(sweep, 0, key), f"is a part of {other}, which varies too"))


def _styles(sweep: SweepSpec) -> dict[str, Style]:
    """Returns how each argument that varies is written: a stored sweep says it of all of them."""
    config = sweep.job.get("config")
    args = config.get("args") if isinstance(config, dict) else None
    known = args if isinstance(args, list) else []
    return {key: sweep.styles.get(key) or style_of(key, known) for key in sweep.keys if key.startswith(ARGUMENT)}


def _largest(values: Sequence[JsonValue] | Range) -> int:
    return 0 if isinstance(values, Range) else max(len(to_json(value)) for value in values)


def _policy(job: Mapping[str, JsonValue]) -> Mapping[str, JsonValue]:
    try:
        return _object(job, "checkpoint", key="checkpoint.monitor")
    except ValueError as error:
        raise _wrong(FieldError("job.checkpoint", str(error))) from None


def _corners(sweep: SweepSpec) -> Iterator[Point]:
    ends = {key: _ends(values) for key, values in sweep.parameters.items()}
    first = {key: values[0] for key, values in ends.items()}
    yield first
    yield {key: values[-1] for key, values in ends.items()}
    for key, values in ends.items():
        yield from ({**first, key: value} for value in values[1:])


def _ends(values: Sequence[JsonValue] | Range) -> Sequence[JsonValue]:
    if not isinstance(values, Range):
        return values
    return [round(value) if values.integer else value for value in (values.min, values.max)]


def _set(raw: dict[str, JsonValue], key: str, value: JsonValue, styles: Mapping[str, Style]) -> None:
    """Sets the value at its place; what it changes is copied. Raises ValueError if there is no such place."""
    if key.startswith(ARGUMENT):
        if raw.get("trainer") != "script":
            raise ValueError("is an option of a script, and the trainer is none")
        config = raw["config"] = dict(_object(raw, "config", key=key))
        args = config.get("args", [])
        if not isinstance(args, list):
            raise ValueError("config.args is not a list")
        ends = config.get("command") is None  # after the name of a command, `--` may stand before its own options
        config["args"] = with_argument(args, key, value, style=styles.get(key), ends=ends)
        return
    *path, last = key.split(".")
    place = raw
    for name in path:
        inner = dict(_object(place, name, key=key))
        place[name] = inner
        place = inner
    place[last] = value


def _object(place: Mapping[str, JsonValue], name: str, *, key: str) -> Mapping[str, JsonValue]:
    found = place.get(name)
    if found is None:
        return {}
    if not isinstance(found, dict):
        raise ValueError(f"{name} is not an object, so there is no {key}")
    return found


def _too_short(sweep: SweepSpec, job: Spec) -> FieldError | None:
    """Returns what is wrong with a job that ends before the last rung: it would be compared with longer ones there.

    The length of a script is not known, nor how many steps an epoch has.
    """
    if sweep.halving is None or not isinstance(job.config, Recipe):
        return None
    training, last, unit = job.config.training, sweep.halving.max, sweep.halving.unit
    name, length = ("epochs", training.epochs) if unit == "epochs" else ("max_steps", training.max_steps)
    if length is None or length >= last:
        return None
    to_do = f"set it to {last} or more, or halving.max to {length} at most"
    return FieldError(f"config.training.{name}", f"is {length}, and halving.max is {last} {unit}: {to_do}")


def _placed(sweep: SweepSpec, number: int, point: Point, error: FieldError) -> FieldError:
    """Returns the error of a trial's spec at the key of the sweep that caused it, or at the job spec."""
    for key in point:
        place = "config.args" if key.startswith(ARGUMENT) else key
        if error.field == place or error.field.startswith(f"{place}.") or place.startswith(f"{error.field}."):
            return FieldError(_field(sweep, number, key), f"{error.message} (at {_shown(point)})")
    return FieldError(f"job.{error.field}" if error.field else "job", error.message)


def _field(sweep: SweepSpec, number: int, key: str) -> str:
    return f"points.{number}.{key}" if sweep.method == "list" else f"parameters.{key}"


def _shown(point: Point) -> str:
    """Returns a point in one line."""
    text = ", ".join(f"{key}={json.dumps(value)}" for key, value in point.items())
    return text if len(text) <= 200 else f"{text[:199]}…"


def _wrong(*errors: FieldError) -> InvalidSpec:
    return InvalidSpec("the sweep is not valid", errors=errors)


def known_point(spec: SweepSpec, number: int) -> Point | None:
    """Returns the point of a trial; None if it depends on the results of others."""
    if spec.method in ADAPTIVE:
        return None
    if spec.method == "list":
        return dict(spec.points[number])
    if spec.method == "random":
        return drawn_point(spec, number)
    return {} if spec.method == "array" else grid_point(spec.parameters, number)


def drawn_point(spec: SweepSpec, number: int) -> Point:
    """Returns a point of random values, by the seed and the number."""
    chance = random.Random(f"{spec.seed}:{number}")  # noqa: S311 - not a secret
    return {key: _any_of(values, chance) for key, values in spec.parameters.items()}


def _any_of(values: Values, chance: random.Random) -> JsonValue:
    if not isinstance(values, Range):
        return chance.choice(values)
    if (size := values.size) is not None and not values.log:
        return values.number(chance.randrange(size))
    if not values.log:
        return chance.uniform(values.min, values.max)
    low, high = (values.min - 0.5, values.max + 0.5) if values.integer else (values.min, values.max)
    found = math.exp(chance.uniform(math.log(low), math.log(high)))
    return round(min(max(found, values.min), values.max)) if values.integer else min(max(found, low), high)
