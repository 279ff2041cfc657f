"""The points that Optuna's TPE sampler proposes, by a study that is made from the rows, in memory, and forgotten."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
import hashlib
import json
import math
from typing import Any

import optuna
from optuna.distributions import BaseDistribution, CategoricalDistribution, FloatDistribution, IntDistribution
from optuna.trial import FrozenTrial, TrialState
from pydantic import JsonValue

from store.sweeps.facts import TrialFacts
from torchyard.contract.states import JobState
from torchyard.contract.sweeps.spec import MOST_POINTS, Point, Range, SweepSpec, Values, grid_point

_MOST_TRIES = 10
"""How often a point is drawn again that is tried already: its training would measure the same once more."""

_MOST_COST = 1_000_000
"""The values of lists, times the trials by which a point is chosen, at most: about two seconds of a processor."""
_KEY_COST = 50
"""For how many values a key counts beside its own."""
_LEAST_COUNTED = 50

optuna.logging.set_verbosity(optuna.logging.WARNING)


def sample(spec: SweepSpec, trials: Sequence[TrialFacts], *, count: int) -> Iterator[Point]:
    """Yields the next points. The same for the same arguments, and whether they are asked for together or in turn."""
    space = _Space({key: _Axis(values) for key, values in spec.parameters.items()})
    study = optuna.create_study(direction="maximize" if spec.mode == "max" else "minimize")
    for trial in _counted(spec, trials):
        study.add_trial(_known(space, trial))
    tried = {_written(trial.point) for trial in trials}
    for number in range(len(trials), len(trials) + count):
        drawn = (_draw(space, study, seed=_seed(spec, number, attempt)) for attempt in range(_MOST_TRIES))
        point = next((point for point in drawn if _written(point) not in tried), None)
        point = point or _untried(spec, tried, seed=_seed(spec, number, _MOST_TRIES))
        point = point or _draw(space, study, seed=_seed(spec, number, 0))
        study.add_trial(space.trial(point, TrialState.RUNNING))
        tried.add(_written(point))
        yield point


def _counted(spec: SweepSpec, trials: Sequence[TrialFacts]) -> Sequence[TrialFacts]:
    """Returns the trials by which the next point is chosen, by number: the best and the newest of very many.

    What a point costs rises with the trials times the keys, and with the trials times the values in lists.
    """
    most = max(_MOST_COST // (_KEY_COST * len(spec.parameters) + spec.listed), _LEAST_COUNTED)
    if len(trials) <= most:
        return trials
    sign = -1 if spec.mode == "max" else 1
    values = {trial.number: sign * trial.value for trial in trials if trial.value is not None and trial.has_value}
    numbers = {*sorted(values, key=lambda number: values[number])[: most // 4]}
    others = [trial.number for trial in trials if trial.number not in numbers]
    numbers.update(others[len(numbers) - most :])
    return [trial for trial in trials if trial.number in numbers]


@dataclass(frozen=True)
class _Axis:
    """What one key takes, as Optuna draws it: of a list the index in it, as its values may be of any kinds."""

    values: Values

    @cached_property
    def distribution(self) -> BaseDistribution:
        values = self.values
        if not isinstance(values, Range):
            return CategoricalDistribution(range(len(values)))
        # With a step, the largest number may be less than `max`, and Optuna warns.
        last = values.max if values.size is None else values.number(values.size - 1)
        if values.integer:
            return IntDistribution(round(values.min), round(last), log=values.log, step=round(values.step or 1))
        return FloatDistribution(values.min, last, log=values.log, step=values.step)

    def drawn(self, value: JsonValue) -> Any:
        """Returns what Optuna draws for a value of a point."""
        return value if isinstance(self.values, Range) else self._indexes[_written(value)]

    def value(self, drawn: Any) -> JsonValue:
        """Returns the value of a point for what Optuna has drawn."""
        values = self.values
        if not isinstance(values, Range):
            return values[drawn]
        return drawn if values.step is None else values.number(round((drawn - values.min) / values.step))

    @cached_property
    def _indexes(self) -> dict[str, int]:
        assert not isinstance(self.values, Range)
        return {_written(value): index for index, value in enumerate(self.values)}


@dataclass(frozen=True)
class _Space:
    axes: Mapping[str, _Axis]

    @cached_property
    def distributions(self) -> dict[str, BaseDistribution]:
        return {key: axis.distribution for key, axis in self.axes.items()}

    def trial(self, point: Point, state: TrialState, **known: Any) -> FrozenTrial:
        params = {key: axis.drawn(point[key]) for key, axis in self.axes.items()}
        return optuna.trial.create_trial(params=params, distributions=self.distributions, state=state, **known)


def _draw(space: _Space, study: optuna.Study, *, seed: int) -> Point:
    study.sampler = optuna.samplers.TPESampler(seed=seed, constant_liar=True)
    asked = study.ask(space.distributions)
    point = {key: axis.value(asked.params[key]) for key, axis in space.axes.items()}
    study.tell(asked, state=TrialState.FAIL)  # which the sampler forgets: what becomes a trial is added as such
    return point


def _untried(spec: SweepSpec, tried: set[str], *, seed: int) -> Point | None:
    """Returns any point that is not tried, of those that can be counted."""
    sizes = (values.size or 0 if isinstance(values, Range) else len(values) for values in spec.parameters.values())
    size = math.prod(sizes)
    indexes = range(size if size <= MOST_POINTS else 0)
    points = (grid_point(spec.parameters, (seed + index) % size) for index in indexes)
    return next((point for point in points if _written(point) not in tried), None)


def _known(space: _Space, trial: TrialFacts) -> FrozenTrial:
    """Returns what Optuna knows of a trial.

    Done with a value, it is complete. One that stopped before its end, or has come to a rung, is pruned with its newest
    value: the further it came, the more that counts. One that has ended without a value is worse than all others, so
    that the sampler avoids what made it fail. It keeps away from those that run, too.
    """
    if trial.state is JobState.SUCCEEDED and _is_number(trial.value):
        return space.trial(trial.point, TrialState.COMPLETE, value=trial.value)
    values = {rung.at: rung.value for rung in trial.rungs if _is_number(rung.value)}
    if trial.state.terminal and not values and _is_number(trial.value):
        values = {trial.step: trial.value}
    if values or trial.rungs or trial.state.terminal:
        return space.trial(trial.point, TrialState.PRUNED, intermediate_values=values)
    return space.trial(trial.point, TrialState.RUNNING)


def _seed(spec: SweepSpec, number: int, attempt: int) -> int:
    digest = hashlib.sha256(f"{spec.seed}:{number}:{attempt}".encode()).digest()
    return int.from_bytes(digest[:4], "big")


def _is_number(value: float | None) -> bool:
    return value is not None and not math.isnan(value)


def _written(value: JsonValue) -> str:
    """Returns text that tells 1, 1.0 and true from each other."""
    return json.dumps(value, sort_keys=True)
