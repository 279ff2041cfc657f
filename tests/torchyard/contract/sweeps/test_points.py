"""What a sweep varies: the values that a key takes, how many trials there are, and their job specs."""

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest

from controller.sweeps.proposals import points_of
from tests.approved import Approved
from torchyard.contract.errors import InvalidSpec
from torchyard.contract.recipes import Script
from torchyard.contract.spec.maximums import Maximums
from torchyard.contract.sweeps.points import checked_points, extended, resolved, spec_of
from torchyard.contract.sweeps.spec import MOST_POINTS, Point, SweepExtension, SweepSpec, parse_sweep

ANY = Maximums()
RECIPE = {"trainer": "image-classification"}
SCRIPT = {"trainer": "script", "config": {"code": "file:///code", "args": ["--lr", "1", "in.csv", "--fast", "--n=2"]}}

LR = "config.optimizer.lr"
WRONG: dict[str, tuple[dict[str, Any], str]] = {
    "too many points": ({LR: {"min": 0, "max": 1, "step": 0.001}, "config.training.seed": "1..1000"}, ""),
    "an unknown key": ({"config.optimizer.lrr": [1]}, "parameters.config.optimizer.lrr"),
    "a wrong value": ({LR: [0.1, -1]}, f"parameters.{LR}"),
    "an unknown key in the middle": ({"config.training.epoch.s": [1]}, "parameters.config.training.epoch.s"),
    "what ranks the trials": ({"checkpoint.monitor": ["a"]}, "parameters.checkpoint.monitor"),
    "a part of what varies": ({"config.optimizer": [{}], LR: [1]}, f"parameters.{LR}"),
    "an option of a recipe": ({"args.lr": [1]}, "parameters.args.lr"),
    "a variable of the service": ({"env.RANK": ["1"]}, "parameters.env.RANK"),
}
"""Parameters of a recipe that cannot be, and the field that the error names."""


def sweep(job: dict[str, Any] = RECIPE, **spec: Any) -> SweepSpec:
    return parse_sweep({"job": job, **spec})


def halved(job: dict[str, Any], **spec: Any) -> SweepSpec:
    return sweep(job, method="asha", trials=9, **spec)


def all_points(spec: SweepSpec) -> list[dict[str, Any]]:
    return points_of(spec, first=0, count=spec.size + 1)


def refusal(spec: SweepSpec | Callable[[], SweepSpec]) -> tuple[str, str]:
    """Returns the first error of a sweep, or of what makes it: its field and its message."""
    with pytest.raises(InvalidSpec) as raised:
        known, _ = resolved(spec if isinstance(spec, SweepSpec) else spec(), visibility="private", maximums=ANY)
        for number, point in enumerate(checked_points(known)):
            spec_of(known, number, point)
    return raised.value.errors[0].field, raised.value.errors[0].message


def options(value: Any, name: str = "lr") -> list[str]:
    """Returns the arguments of a script when an option varies."""
    config = spec_of(sweep(SCRIPT, parameters={f"args.{name}": [value]}), 0, {f"args.{name}": value}).config
    assert isinstance(config, Script)
    return config.args


def test_the_last_key_of_a_grid_varies_fastest() -> None:
    found = all_points(sweep(parameters={"a": [1, 2], "b": "1..2", "c": [None]}))
    assert [tuple(point.values()) for point in found] == [(1, 1, None), (1, 2, None), (2, 1, None), (2, 2, None)]
    assert list(found[0]) == ["a", "b", "c"]


@pytest.mark.parametrize(
    ("values", "numbers"),
    [
        ("1..3", [1, 2, 3]),
        ("-1..1", [-1, 0, 1]),
        ({"min": 0, "max": 1, "step": 0.25}, [0.0, 0.25, 0.5, 0.75, 1.0]),
        ({"min": 0.1, "max": 0.35, "step": 0.1}, [0.1, 0.2, 0.3]),
        ({"min": 2, "max": 8, "step": 3, "integer": True}, [2, 5, 8]),
    ],
)
def test_a_range_of_a_grid_has_its_numbers(values: Any, numbers: list[float]) -> None:
    assert [point["a"] for point in all_points(sweep(parameters={"a": values}))] == numbers


@pytest.mark.parametrize(
    "spec",
    [
        {"parameters": {"a": "1..1000", "b": "1..1000"}},
        {"parameters": {f"k{n}": "1..999999999999999" for n in range(50)}},
        {"parameters": {"a": {"min": -1e308, "max": 1e308, "step": 1}}},
        {"parameters": {"a": {"min": 0, "max": 1e308, "step": 5e-324}}},
        {"parameters": {"a": {"min": 0, "max": 1, "log": True, "step": 1}}},
        {"parameters": {"a": {"min": 2, "max": 1}}},
        {"parameters": {"a": []}},
        {"parameters": {"a": "one..two"}},
        {"method": "random", "parameters": {"a": [1]}, "trials": 1_000_000},
        {"method": "list", "points": [{"a": 1}, {"b": 1}]},
        {"method": "list"},
        {"method": "list", "points": [{f"labels.k{n}": "a" for n in range(51)}]},
        {"method": "random", "trials": 1, "parameters": {"a": [*range(6000)], "b": [*range(6000)]}},
        {"method": "array", "trials": 2, "parameters": {"a": [1]}},
        {"parameters": {"a": [1]}, "trials": 2},
        {},
    ],
)
def test_what_is_no_sweep_is_refused_before_points_are_made(spec: dict[str, Any], approved: Approved) -> None:
    with pytest.raises(InvalidSpec) as raised:
        sweep(**spec)
    assert raised.value.errors[0].message == approved.of_row("message")


def test_of_many_wrong_points_little_is_said() -> None:
    """A message for each wrong key of each point would take half a second of all that others ask for."""
    wrong = [{f"{place}{key}": 1 for key in range(20)} for place in range(1000)]
    with pytest.raises(InvalidSpec) as raised:
        sweep(method="list", points=wrong)
    assert {error.field.split(".")[1] for error in raised.value.errors} == {"0"}
    with pytest.raises(InvalidSpec) as raised:
        sweep(method="list", points=[{f"{key}": 1 for key in range(20_000)}])
    assert [error.field for error in raised.value.errors] == ["points.0"]


def test_a_job_spec_of_too_many_values_is_not_copied_for_each_key() -> None:
    args = ["a"] * 20_000
    job = {"trainer": "script", "config": {"code": "file:///code", "args": args}}
    found = refusal(sweep(job, method="list", points=[{f"args.x{n}": 1 for n in range(50)}]))
    assert found == ("job.config.args", "there are more than 10000 keys and values")


def test_values_that_are_checked_count_as_job_specs() -> None:
    """Of random points each value is checked in a job spec, however few trials there are."""
    job = {**SCRIPT, "env": {f"X{n}": "x" * 30_000 for n in range(8)}}
    spec = sweep(job, method="random", trials=1, parameters={"args.x": [*range(5000)]})
    field, message = refusal(spec)
    assert field == "" and message.startswith("there are 5000 job specs of up to ")


def test_all_points_together_are_bounded() -> None:
    """Whoever ranks the trials reads all their points."""
    values = {"args.x": ["x" * 9000, "y"], "args.y": {"min": 0, "max": 1}}  # numbers of a range are not counted
    spec = sweep(SCRIPT, method="random", trials=2000, parameters=values)
    assert refusal(spec) == ("", "there are 2000 points of up to 9002 bytes, and all together have at most 16777216")


@pytest.mark.parametrize(
    "spec",
    [
        {"parameters": {"args.x": [10**5000]}},
        {"parameters": {"args.x": [{"a": [-(2**63) - 1]}]}},
        {"method": "list", "points": [{"args.x": 2**63}]},
        {"parameters": {"priority": [1]}, "job": {**SCRIPT, "priority": 10**5000}},
    ],
)
def test_a_number_that_no_database_stores_is_refused(spec: dict[str, Any], approved: Approved) -> None:
    with pytest.raises(InvalidSpec) as raised:
        parse_sweep({"job": SCRIPT, **spec})
    assert raised.value.errors[0].message == approved("message")


@pytest.mark.parametrize(("parameters", "field"), WRONG.values(), ids=WRONG)
def test_what_cannot_vary_is_named(parameters: dict[str, Any], field: str, approved: Approved) -> None:
    assert refusal(lambda: sweep(parameters=parameters)) == (field, approved.of_row("message"))


def test_a_sweep_of_what_is_no_job_names_the_jobs_key(approved: Approved) -> None:
    varied = {LR: [0.1]}
    assert refusal(lambda: sweep({"trainer": "nothing"}, parameters=varied))[0] == "job.trainer"
    assert refusal(lambda: sweep(parameters=varied, method="random")) == ("", "random needs trials")
    assert refusal(lambda: sweep(parameters={LR: {"min": 0, "max": 1}})) == ("", approved("no step"))
    field, message = refusal(lambda: sweep(parameters=varied, monitor="val/los"))
    assert field == "job" and message == approved("message")
    private = {**RECIPE, "visibility": "private"}
    refused = refusal(lambda: sweep(private, parameters=varied, visibility="team"))
    assert refused == ("visibility", approved("other visibility"))


def test_random_points_follow_from_the_seed_and_the_number() -> None:
    varied = {"a": {"min": 1e-5, "max": 1, "log": True}, "b": {"min": 1, "max": 3, "integer": True}, "c": [True, "x"]}
    spec = sweep(method="random", trials=200, parameters=varied)
    found = all_points(spec)
    assert points_of(spec, first=150, count=50) == found[150:]
    assert all_points(spec.model_copy(update={"seed": 1})) != found
    assert {point["b"] for point in found} == {1, 2, 3}
    assert {str(point["c"]) for point in found} == {"True", "x"}
    values = [point["a"] for point in found]
    assert all(1e-5 <= value <= 1 for value in values)
    assert 60 < len([value for value in values if value < 10**-2.5]) < 140, "as many in each half of the exponents"


def test_an_option_of_a_script_is_replaced_where_it_is() -> None:
    rest = ["in.csv", "--fast", "--n=2"]
    assert options(2e-5) == ["--lr", "2e-05", *rest]
    assert options("a b") == ["--lr", "a b", *rest]
    assert options(3, "n") == ["--lr", "1", "in.csv", "--fast", "--n", "3"]
    assert options(False, "fast") == ["--lr", "1", "in.csv", "--n=2"]
    assert options(True, "fast") == ["--lr", "1", *rest]
    assert options([1, 2], "new") == ["--lr", "1", *rest, "--new", "[1, 2]"]


def test_values_reach_the_places_that_keys_name() -> None:
    spec = sweep(
        SCRIPT | {"env": {"A": "1"}}, name="n" * 100, method="array", trials=1, labels={"a": "sweep", "b": "sweep"}
    )
    point: Point = {"env.B": "2", "resources.devices_per_node": 2, "labels.b": "job", "config.checkpoints": ["*.pt"]}
    found = spec_of(spec, 12, point)
    assert found.env == {"A": "1", "B": "2"}
    assert found.resources.devices_per_node == 2
    assert found.labels == {"a": "sweep", "b": "job"}
    assert found.name == f"{'n' * 94}-12"
    assert spec.job == SCRIPT | {"env": {"A": "1"}}, "the sweep's own spec is as it was"


def test_what_a_key_cannot_set_is_named(approved: Approved) -> None:
    assert refusal(sweep(parameters={"priority.x": [1]}))[0] == "parameters.priority.x"
    assert refusal(sweep({**RECIPE, "priority": 1}, parameters={"priority.x": [1]}))[1] == approved("refusal")
    assert refusal(sweep(method="list", points=[{"priority": 1}, {"priority": 101}])) == (
        "points.1.priority",
        approved("must at most"),
    )


EPOCHS, STEPS = "config.training.epochs", "config.training.max_steps"


@pytest.mark.parametrize(
    ("training", "varied", "halving", "field"),
    [
        ({}, {}, {"max": 9}, f"job.{EPOCHS}"),
        ({"epochs": 8}, {}, {"max": 9}, f"job.{EPOCHS}"),
        ({}, {EPOCHS: [9, 5, 9]}, {"max": 9}, f"parameters.{EPOCHS}"),
        ({}, {EPOCHS: "2..20"}, {"max": 9}, f"parameters.{EPOCHS}"),
        ({"max_steps": 80}, {}, {"max": 90, "unit": "steps"}, f"job.{STEPS}"),
        ({}, {STEPS: [90, 80]}, {"max": 90, "unit": "steps"}, f"parameters.{STEPS}"),
    ],
)
def test_a_job_that_ends_before_the_last_rung_is_refused(
    training: dict[str, Any], varied: dict[str, Any], halving: dict[str, Any], field: str, approved: Approved
) -> None:
    job = RECIPE | {"config": {"training": training}}
    spec = halved(job, parameters={"priority": [1], **varied}, halving={"min": 1, **halving})
    found = refusal(spec)
    assert found[0] == field
    assert found[1] == approved.of_row("found")


@pytest.mark.parametrize(
    ("job", "halving"),
    [
        (RECIPE, {"max": 3}),
        (RECIPE, {"max": 2}),
        (RECIPE, {"max": 1000, "unit": "steps"}),
        (RECIPE | {"config": {"training": {"max_steps": 90}}}, {"max": 90, "unit": "steps"}),
        (RECIPE | {"config": {"training": {"max_steps": 5}}}, {"max": 3}),
        (SCRIPT, {"max": 1000}),
    ],
)
def test_a_job_that_may_reach_the_last_rung_is_taken(job: dict[str, Any], halving: dict[str, Any]) -> None:
    spec = halved(job, parameters={"priority": [1]}, halving={"min": 1, **halving})
    known, _ = resolved(spec, visibility="private", maximums=ANY)
    assert known.halving == spec.halving


def test_the_ranking_is_that_of_the_job_or_of_the_sweep() -> None:
    of_job, first = resolved(
        sweep({**RECIPE, "checkpoint": {"monitor": "val/accuracy", "mode": "max"}}, parameters={"priority": [1]}),
        visibility="team",
        maximums=Maximums(stop_grace=timedelta(seconds=10), idle_timeout=timedelta(hours=1)),
    )
    assert (of_job.monitor, of_job.mode, of_job.visibility) == ("val/accuracy", "max", "team")
    assert first.stop_grace == timedelta(seconds=10)
    assert first.idle_timeout == timedelta(hours=1)
    assert (of_job.job["stop_grace"], of_job.job["idle_timeout"]) == ("10s", "1h")
    own, first = resolved(sweep(monitor="train/loss", parameters={"priority": [1]}), visibility="team", maximums=ANY)
    assert (own.monitor, first.checkpoint.monitor) == ("train/loss", "train/loss")


def test_the_job_specs_of_all_trials_have_a_size() -> None:
    many = {"A": "a" * 30_000}
    field, message = refusal(sweep(SCRIPT | {"env": many}, method="array", trials=MOST_POINTS))
    assert (field, "10000 job specs of up to 30" in message) == ("", True)
    assert (
        refusal(sweep(SCRIPT | {"env": dict.fromkeys("ABCDEFGHI", "a" * 30_000)}, method="array", trials=1))[0] == "job"
    )
    values = ["a" * 1500, *range(MOST_POINTS - 1)]
    assert "job specs" in refusal(sweep(SCRIPT | {"env": {"A": "a" * 29_000}}, parameters={"args.x": values}))[1]


def test_only_what_a_method_has_can_be_added() -> None:
    listed = sweep(method="list", points=[{"priority": 1}])
    assert extended(listed, SweepExtension(points=[{"priority": 2}])).size == 2
    assert extended(sweep(method="array", trials=2), SweepExtension(trials=3)).size == 5
    for spec, more in (
        (listed, SweepExtension(trials=1)),
        (sweep(parameters={"a": [1]}), SweepExtension(points=[{"a": 2}])),
        (listed, SweepExtension(points=[{"other": 2}])),
        (sweep(method="array", trials=2), SweepExtension(trials=MOST_POINTS)),
        (sweep(SCRIPT | {"env": {"A": "a" * 30_000}}, method="array", trials=1), SweepExtension(trials=9_000)),
        (sweep(method="list", points=[{"args.x": "a" * 600_000}]), SweepExtension(points=[{"args.x": "a" * 600_000}])),
    ):
        with pytest.raises(InvalidSpec):
            extended(spec, more)


def test_of_very_many_labels_that_are_wrong_their_number_is_said() -> None:
    labels = {f"wrong key {number}": number for number in range(60_000)}
    with pytest.raises(InvalidSpec) as raised:
        parse_sweep({"method": "array", "trials": 2, "labels": labels, "job": {}})
    assert [(error.field, error.message) for error in raised.value.errors] == [
        ("labels", "has 60000 labels: a job has at most 32")
    ]
