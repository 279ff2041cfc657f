"""What a sweep asks for: a job spec, what varies of it, and how many trials there are.

A point has a value for each key that varies. Trial `number`, from 0, is the job with the point of that number.
"""

from collections.abc import Mapping, Sequence
from enum import StrEnum
import math
import re
from typing import Annotated, Any, Literal, Self, TypeAlias

from pydantic import BeforeValidator, Field, JsonValue, ValidationError, model_validator

from torchyard.contract.bounds import MOST_LABELS
from torchyard.contract.errors import FieldError, InvalidSpec
from torchyard.contract.spec.spec import JobName, Labels
from torchyard.contract.sweeps.arguments import ARGUMENT, Style
from torchyard.contract.team.roles import Visibility
from torchyard.contract.wire.findings import field_errors
from torchyard.contract.wire.schema import BOUND_IN_BYTES, UNSET, Count, MetricKey, Schema
from torchyard.contract.wire.text import unstorable
from torchyard.contract.wire.wording import allowing

MOST_POINTS = 10_000
"""The most trials of a sweep."""
MOST_SHOWN_POINT_BYTES = 2048
"""Of a trial's point as JSON, in a list: a longer one is left out there."""
MOST_SWEEP_BYTES = 1 << 20
"""The most bytes of a sweep's spec that is submitted."""
MOST_KEYS = 50
"""The most keys that vary."""
_MOST_VALUES = 200_000
"""The most keys and values in a sweep's spec."""
_SPAN = re.compile(r"(-?[0-9]{1,15})\.\.(-?[0-9]{1,15})")

Method = Literal["grid", "random", "list", "array", "tpe", "asha"]
ADAPTIVE: frozenset[str] = frozenset({"tpe", "asha"})
"""Methods whose next point depends on the results so far."""
PARALLEL = 4
"""The trials of an adaptive method that run or wait at once, if the spec does not say."""
Point: TypeAlias = dict[str, JsonValue]
"""A value for each key that varies."""
Key = Annotated[
    str,
    Field(
        pattern=allowing(
            r"^[A-Za-z_][A-Za-z0-9_./@+-]{0,199}$", "a path into the job spec, such as config.optimizer.lr"
        )
    ),
]


class SweepState(StrEnum):
    """The state of a sweep."""  # only store.sweeps.sweeps writes it

    RUNNING = "running"  # trials are made while there are points and room
    PAUSED = "paused"  # none is made; those that waited or ran are paused
    CANCELLING = "cancelling"  # none is made; those that wait or run are being cancelled
    FINISHED = "finished"  # all trials have ended
    CANCELLED = "cancelled"
    FAILED = "failed"  # it was stopped: too many trials failed

    @property
    def ended(self) -> bool:
        """Whether nothing happens any more by itself."""
        return self in {SweepState.FINISHED, SweepState.CANCELLED, SweepState.FAILED}


class Range(Schema):
    """Numbers from `min` to `max`, inclusive."""

    min: float
    max: float
    log: bool = Field(default=False, description="sample on a logarithmic scale")
    step: Annotated[float, Field(gt=0)] | None = Field(default=None, description="use only min, min + step, …")
    integer: bool = Field(default=False, description="whole numbers only")

    @model_validator(mode="after")
    def _is_range(self) -> Self:
        if self.max < self.min:
            raise ValueError(f"max {self.max:g} is below min {self.min:g}")
        if math.isinf(self.max - self.min):
            raise ValueError("min and max are too far apart")
        if self.log and self.min <= 0:
            raise ValueError("with log, min must be above 0")
        if self.log and self.step is not None:
            raise ValueError("log and step cannot be combined")
        if self.integer and not all(value.is_integer() for value in (self.min, self.max, self.step or 1.0)):
            raise ValueError("with integer, min, max and step must be whole numbers")
        return self

    @property
    def size(self) -> int | None:
        """How many numbers it has; None if any number between is one."""
        step = self.step or (1.0 if self.integer else None)
        if step is None:
            return None
        return math.floor(min((self.max - self.min) / step + 1e-9, 1e15)) + 1

    def number(self, index: int) -> int | float:
        """Returns one of the numbers of a range that has a size."""
        value = self.min + index * (self.step or 1.0)
        return round(value) if self.integer else float(f"{value:.12g}")


def _span(value: Any) -> Any:
    """Returns the range that `1..5` writes."""
    if value == []:
        raise ValueError("must have at least 1 value")
    if not isinstance(value, str):
        return value
    span = _SPAN.fullmatch(value)
    if span is None:
        raise ValueError("must be a list of values, {min, max}, or a text such as 1..5")
    return {"min": float(span[1]), "max": float(span[2]), "integer": True}


_Listed = Annotated[list[JsonValue], Field(max_length=MOST_POINTS)]
_Written = Annotated[str, Field(max_length=100)]
Values = Annotated[_Listed | Range, BeforeValidator(_span, json_schema_input_type=_Listed | Range | _Written)]
"""What one key takes: one of a list, or a number of a range, which may be written `1..5`."""


def _few_keys(value: Any) -> Any:
    """Raises ValueError before anything is said of each of very many keys."""
    if isinstance(value, dict) and len(value) > MOST_KEYS:
        raise ValueError(f"has {len(value)} keys, and at most {MOST_KEYS} may vary")
    return value


def _few_labels(value: Any) -> Any:
    if isinstance(value, dict) and len(value) > MOST_LABELS:
        raise ValueError(f"has {len(value)} labels: a job has at most {MOST_LABELS}")
    return value


_BYTES = Field(json_schema_extra={BOUND_IN_BYTES: MOST_SWEEP_BYTES})
_Parameters = Annotated[dict[Key, Values], Field(max_length=MOST_KEYS), BeforeValidator(_few_keys), _BYTES]
_Styles = Annotated[dict[Key, Style], Field(max_length=MOST_KEYS), BeforeValidator(_few_keys)]
_Point = Annotated[dict[Key, JsonValue], Field(max_length=MOST_KEYS), BeforeValidator(_few_keys), _BYTES]
_Points = Annotated[list[_Point], Field(max_length=MOST_POINTS, fail_fast=True)]
"""The values of each trial. What is wrong is said of the first wrong point alone: a list may have very many."""


class Halving(Schema):
    """The rungs of `asha`: `min`, `min · factor`, … up to `max`. Trials stop at a rung, and the best ones continue."""

    min: Count = Field(description="the first rung: how long each trial runs")
    max: Count = Field(description="the last rung: how long the best trials run")
    factor: Annotated[int, Field(ge=2, le=100)] = Field(
        default=3, description="one in `factor` trials continues, for `factor` times as long"
    )
    unit: Literal["epochs", "steps"] = Field(default="epochs", description="unit of `min` and `max`")

    @model_validator(mode="after")
    def _rises(self) -> Self:
        if self.max <= self.min:
            raise ValueError("max must be above min")
        return self

    @property
    def rungs(self) -> list[int]:
        """Where trials stop, and last the end of the best."""
        rungs = [self.min]
        while rungs[-1] * self.factor < self.max:
            rungs.append(rungs[-1] * self.factor)
        return [*rungs, self.max]


class SweepSpec(Schema):
    """A job spec and the parameters to vary. Each point is a trial, and each trial is a job."""

    name: JobName = Field(default="sweep", description="name of the sweep; its jobs are NAME-0, NAME-1, …")
    method: Method = Field(
        default="grid",
        description="`grid`: all combinations; `random`: random values; `tpe`: values proposed from earlier "
        "results; `asha`: TPE with early stopping at rungs; `list`: the points in `points`; `array`: "
        "the same job `trials` times",
    )
    parameters: _Parameters = Field(
        default={},
        description="the values of each parameter. The key is a path in the job spec, or `args.NAME` "
        "for the option --NAME of a script",
    )
    points: _Points = Field(
        default=[], exclude_if=lambda points: not points, description="`list`: the values of each trial"
    )
    styles: _Styles = Field(
        default={},
        exclude_if=lambda styles: not styles,
        description="how to write each argument `args.NAME`: `value`: --NAME VALUE; `equals`: --NAME=VALUE; `flag`:"
        " --NAME or nothing; `no-flag`: --NAME or --no-NAME; `words`: --NAME and each item of a list; "
        "`hydra`: NAME=VALUE; `placed`: replaces {NAME} in the other arguments",
    )
    trials: Count | None = Field(default=None, description="`random`, `tpe`, `asha`, `array`: number of trials")
    max_parallel: Count | None = Field(
        default=None,
        description="maximum number of trials that wait or run at the same time; null: no limit, but "
        "4 for `tpe` and `asha`",
    )
    monitor: MetricKey | None = Field(
        default=None, description="metric that ranks the trials; null: `checkpoint.monitor` of the job"
    )
    mode: Literal["min", "max"] | None = Field(
        default=None, description="whether a lower or a higher value is better; null: `checkpoint.mode` of the job"
    )
    seed: Annotated[int, Field(ge=0, lt=2**63)] = Field(
        default=0, description="`random`, `tpe`, `asha`: seed of the random choices"
    )
    halving: Halving | None = Field(default=None, description="`asha`: the rungs")
    max_failed: Count | None = Field(
        default=10, description="number of failed trials after which the sweep stops; null: no limit"
    )
    visibility: Visibility | None = Field(
        default=None, description="visibility of the sweep and its jobs; null: the server's default"
    )
    labels: Annotated[Labels, BeforeValidator(_few_labels)] = Field(
        default={}, description="labels of all its jobs, in addition to those of the job spec"
    )
    job: Annotated[dict[str, JsonValue], _BYTES] = Field(description="the job spec; it need not have the varied keys")

    @model_validator(mode="after")
    def _has_what_its_method_needs(self) -> Self:
        counted = self.method in {"random", "tpe", "asha", "array"}
        if counted != (self.trials is not None):
            raise ValueError(f"{self.method} needs trials" if counted else f"{self.method} has no trials: leave it out")
        for name, given, wants in (
            ("points", self.points, self.method == "list"),
            ("parameters", self.parameters, self.method not in {"list", "array"}),
            ("halving", self.halving, self.method == "asha"),
        ):
            if wants and not given:
                raise ValueError(f"{self.method} needs {name}")
            if given and not wants:
                raise ValueError(f"{self.method} has no {name}: leave it out")
        return self

    @model_validator(mode="after")
    def _a_grid_is_countable(self) -> Self:
        for key, values in self.parameters.items():
            if self.method == "grid" and isinstance(values, Range) and values.size is None:
                raise ValueError(f"parameters.{key} needs a step, integer, or a list of values in a grid")
        return self

    @model_validator(mode="after")
    def _points_have_the_same_keys(self) -> Self:
        for number, point in enumerate(self.points):
            if point.keys() != self.points[0].keys():
                raise ValueError(f"points.{number} must have the keys of the first: {', '.join(self.points[0])}")
        return self

    @model_validator(mode="after")
    def _only_arguments_that_vary_have_styles(self) -> Self:
        for key in self.styles:
            if not (key.startswith(ARGUMENT) and key in self.keys):
                raise ValueError(f"styles.{key} must be an argument, args.NAME, that varies")
        return self

    @model_validator(mode="after")
    def _not_too_many(self) -> Self:
        if (count := self.size) > MOST_POINTS:
            raise ValueError(f"there are {count} points, and at most {MOST_POINTS} are possible")
        if self.method != "grid" and (listed := self.listed) > MOST_POINTS:
            raise ValueError(f"the lists of values have {listed} items, and all together at most {MOST_POINTS}")
        return self

    @property
    def size(self) -> int:
        """How many trials there are, counted and not made."""
        if self.method == "list":
            return len(self.points)
        if self.trials is not None:
            return self.trials
        return math.prod(_size(values) for values in self.parameters.values())

    @property
    def keys(self) -> list[str]:
        """What varies."""
        return [*(self.points[0] if self.points else self.parameters)]

    @property
    def listed(self) -> int:
        """How many values all lists together have: each is checked in the job spec of a point."""
        return sum(len(values) for values in self.parameters.values() if not isinstance(values, Range))

    @property
    def parallel(self) -> int:
        """The largest number of trials that are queued, starting or running at once."""
        return parallel_of(self.method, self.max_parallel)


class SweepExtension(Schema):
    """Additions to a sweep. A finished sweep continues."""

    trials: Count | None = Field(default=None, description="`random`, `tpe`, `asha`, `array`: number of trials to add")
    points: Annotated[_Points, Field(min_length=1)] | None = Field(default=None, description="`list`: points to add")
    max_parallel: Count = UNSET

    @model_validator(mode="after")
    def _adds_something(self) -> Self:
        if not self.model_fields_set:
            raise ValueError("send trials, points or max_parallel")
        return self

    @property
    def size(self) -> int:
        """How many trials it adds."""
        return (self.trials or 0) + len(self.points or ())


def parse_sweep(raw: object) -> SweepSpec:
    """The sweep in `raw` (parsed JSON or YAML). Its job spec is not looked at yet. Raises InvalidSpec."""
    wrong = unstorable(raw, most_values=_MOST_VALUES)
    if wrong is not None:
        raise InvalidSpec("the sweep is not valid", errors=(FieldError(*wrong),))
    if (path := _find_huge(raw, ())) is not None:
        raise InvalidSpec("the sweep is not valid", errors=(FieldError(".".join(path), "has more than 64 bits"),))
    try:
        return SweepSpec.model_validate(raw)
    except ValidationError as error:
        raise InvalidSpec("the sweep is not valid", errors=field_errors(error, SweepSpec)) from None


def parallel_of(method: Method, max_parallel: int | None) -> int:
    """Returns how many trials wait or run at once; `max_parallel`: what the spec says."""
    return max_parallel or (PARALLEL if method in ADAPTIVE else MOST_POINTS)


def grid_point(parameters: Mapping[str, Sequence[JsonValue] | Range], number: int) -> Point:
    """Returns one point of the grid: the last key varies fastest."""
    point: Point = {}
    for key, values in reversed([*parameters.items()]):
        number, index = divmod(number, _size(values))
        point[key] = values.number(index) if isinstance(values, Range) else values[index]
    return {key: point[key] for key in parameters}


def _find_huge(value: object, path: tuple[str, ...]) -> tuple[str, ...] | None:
    """Returns the path of a whole number that no database stores; `unstorable` has looked how deep it is nested."""
    if isinstance(value, int):
        return path if not -(2**63) <= value < 2**63 else None
    parts = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    return next((huge for key, item in parts if (huge := _find_huge(item, (*path, str(key)))) is not None), None)


def _size(values: Sequence[JsonValue] | Range) -> int:
    return values.size or 0 if isinstance(values, Range) else len(values)
