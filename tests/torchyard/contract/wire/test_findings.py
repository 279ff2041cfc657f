"""What is said about a wrong spec or request: in our words, with the place and what to do."""

from collections import Counter
from collections.abc import Callable, Iterator
import re
from typing import Any

import pytest

from tests.approved import Approved
from torchyard.contract.bundles import requests as of_bundles
from torchyard.contract.errors import FieldError, InvalidRequest, InvalidSpec
from torchyard.contract.jobs import requests as of_jobs
from torchyard.contract.jobs.requests import parse_patch
from torchyard.contract.models import requests as of_models
from torchyard.contract.spec import spec
from torchyard.contract.spec.spec import CONFIGS, parse_spec
from torchyard.contract.team import requests as of_team
from torchyard.contract.wire import findings
from torchyard.contract.wire.schema import Schema, parse_request
from torchyard.contract.wire.wording import words

CODE = f"bundle:sha256:{'0' * 64}"
RAW = re.compile(
    r"Input should|Value error|String should|Extra inputs|Field required|valid (integer|string|number|dictionary)"
    r"|not allowed here|literal|constrained|instance of|A-Za-z|[\\^$]"
)
"""Words of pydantic, expressions, and our words for what we have no words for."""
ODD: list[Any] = [
    None,
    True,
    -1,
    0,
    10**30,
    1.5,
    float("nan"),
    "",
    "x y",
    "\ud800",
    "z" * 40_000,
    [],
    [[]],
    {},
    {"a": 1},
]
REQUESTS = [
    kind
    for module in (of_bundles, of_jobs, of_models, of_team)
    for kind in vars(module).values()
    if isinstance(kind, type) and issubclass(kind, Schema)
]


def errors(raw: object) -> list[tuple[str, str]]:
    with pytest.raises(InvalidSpec) as caught:
        parse_spec(raw)
    return [(item.field, item.message) for item in caught.value.errors]


def script(**more: Any) -> dict[str, Any]:
    return {"trainer": "script", "config": {"code": CODE}, **more}


@pytest.mark.parametrize(
    ("raw", "field"),
    [
        (script(nmae="x"), "nmae"),
        (script(resources={"device_per_node": 2}), "resources.device_per_node"),
        (script(checkpoint={"every": 2}), "checkpoint.every"),
        (script(config={"code": CODE, "entrypont": "a.py"}), "config.entrypont"),
        (script(zzz=1), "zzz"),
        ({"trainer": "image-classification", "config": {"training": {"epoch": 3}}}, "config.training.epoch"),
        ({"trainer": "image-classification", "config": {"ema": {"decy": 1}}}, "config.ema.decy"),
        (script(env={"A": {"secrt": "A"}}), "env.A.secrt"),
        (script(env={"A": 3}), "env.A"),
        (script(name="../x"), "name"),
        (script(labels={"!": "x"}), "labels.!"),
        (script(checkpoint={"mode": "least"}), "checkpoint.mode"),
        (script(priority="3"), "priority"),
        (script(priority=True), "priority"),
        (script(resources={"devices_per_node": 100_000}), "resources.devices_per_node"),
        (script(labels={"a": "nul \x00"}), "labels.a"),
        ({"trainer": 7}, "trainer"),
        ({"trainer": "image-classification", "config": {"training": {"epochs": 0}}}, "config.training.epochs"),
        ({"trainer": "image-classification", "config": {"training": {"epochs": "3"}}}, "config.training.epochs"),
        ({"trainer": "image-classification", "config": {"optimizer": {"lr": -1}}}, "config.optimizer.lr"),
        (script(priority=101), "priority"),
        (script(time_limit="soon"), "time_limit"),
        (script(launcher="mpi"), "launcher"),
        ({"trainer": "script"}, "config"),
        (script(config=5), "config"),
        ({"trainer": "scrip", "config": {}}, "trainer"),
        ({}, "trainer"),
        ([], ""),
        ({"trainer": "image-classification", "config": {"data": {"workers": "six"}}}, "config.data.workers"),
        (
            {"trainer": "image-classification", "config": {"data": {"normalize": {"mean": [0.1]}}}},
            "config.data.normalize.std",
        ),
    ],
)
def test_a_wrong_key_or_value_says_where_it_is_and_what_is_allowed(raw: object, field: str, approved: Approved) -> None:
    assert [message for name, message in errors(raw) if name == field] == [approved.of_row("message")]


def test_a_request_has_the_keys_that_it_may_have() -> None:
    with pytest.raises(InvalidRequest) as caught:
        parse_patch({"lables": {}})
    assert caught.value.errors == (
        FieldError(
            "lables",
            "unknown key `lables`; did you mean `labels`? Known: name, labels, priority, visibility, notes, "
            "notes_before, archived",
        ),
    )
    with pytest.raises(InvalidRequest) as caught:
        parse_request(of_team.NewToken, {"scopes": ["reed"]})
    (error,) = caught.value.errors
    assert (error.field, error.message[:15]) == ("scopes.0", "must be one of ")


def test_unknown_keys_are_compared_and_listed_within_bounds() -> None:
    many = {f"{'n' * 20_000}{number}": 1 for number in range(1_000)}
    found = errors(script(**many))
    assert found.pop() == ("", "and 950 more")
    assert len(found) == 50
    assert "known: resources" in found[9][1]
    assert {message for _, message in found[10:]} == {"unknown key"}
    assert max(len(name) for name, _ in found) == 200


@pytest.mark.parametrize("where", ["", "labels", "env"])
def test_twice_as_many_wrong_keys_cost_no_more_words(monkeypatch: pytest.MonkeyPatch, where: str) -> None:
    """The place and the words of one cost more than reading it: 4 KB of them held a processor for 0.1 s."""
    steps: Counter[str] = Counter()
    for module, name in ((findings, "_place"), (findings, "_error"), (findings.wording, "nearest")):
        monkeypatch.setattr(module, name, counted(getattr(module, name), steps))
    found: list[Counter[str]] = []
    for count in (500, 1000):
        wrong = {f"-{number}": 0 for number in range(count)}
        errors(script(**({where: wrong} if where else wrong)))
        found.append(steps.copy())
        steps.clear()
    assert found[0] == found[1]
    assert found[0]["_place"] == 50 and found[0]["nearest"] <= 10


def counted(call: Callable[..., Any], steps: Counter[str]) -> Callable[..., Any]:
    def counting(*args: Any) -> Any:
        steps[call.__name__] += 1
        return call(*args)

    return counting


@pytest.mark.parametrize(
    "trainer",
    [
        pytest.param(name, marks=[pytest.mark.thorough] if name in {"segmentation", "text-classification"} else [])
        for name in CONFIGS
    ],
)
def test_no_wrong_value_of_a_spec_is_answered_in_words_of_a_library(trainer: str) -> None:
    config: dict[str, Any] = {"data": {"source": CODE}, "ema": {}, "early_stopping": {}}
    if trainer == "script":
        config = {"code": CODE}
    if trainer == "causal-lm":
        config["model"] = {"weights": CODE}
    valid = parse_spec({"trainer": trainer, "config": config, "env": {"TZ": "x"}, "labels": {"a": "b"}})
    whole = valid.model_dump(mode="json")
    for changed in changes(whole):
        try:
            parse_spec(changed)
        except InvalidSpec as error:
            assert_ours(error.errors)


@pytest.mark.parametrize("kind", REQUESTS, ids=lambda kind: kind.__name__)
def test_no_wrong_value_of_a_request_is_answered_in_words_of_a_library(kind: type[Schema]) -> None:
    for name in kind.model_fields:
        for value in [*ODD, *([item] for item in ODD), *({"state": item, "q": item, "label": [item]} for item in ODD)]:
            try:
                parse_request(kind, {name: value})
            except InvalidRequest as error:
                assert_ours(error.errors)


def test_every_pattern_of_the_models_has_words() -> None:
    for kind in (*REQUESTS, *CONFIGS.values(), spec.ScriptSpec):
        for pattern in patterns(kind.model_json_schema()):
            assert words({"type": "string_pattern_mismatch", "ctx": {"pattern": pattern}}).startswith("must be ")


def assert_ours(found: tuple[FieldError, ...]) -> None:
    assert found
    for error in found:
        assert RAW.search(error.message) is None, error
        assert re.search(r"literal|constrained|\[key|SecretRef|Normalization", error.field) is None, error


def changes(value: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """Yields copies in which one key, at any depth, has an odd value, is missing, or is new."""
    for path in paths(value):
        for odd in ODD:
            yield replaced(value, path, odd)
    yield value | {"odd": 1}


def paths(value: object, before: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    if isinstance(value, dict):
        for key, item in value.items():
            yield (*before, key)
            yield from paths(item, (*before, key))


def replaced(value: dict[str, Any], path: tuple[str, ...], new: object) -> dict[str, Any]:
    key, *rest = path
    return value | {key: replaced(value[key], tuple(rest), new) if rest else new}


def patterns(schema: object) -> Iterator[str]:
    """Yields the patterns of texts; those of durations are checked in code."""
    if isinstance(schema, list):
        for item in schema:
            yield from patterns(item)
    if isinstance(schema, dict):
        found = schema.get("pattern")
        if isinstance(found, str) and "smhd" not in found:
            yield found
        for item in schema.values():
            yield from patterns(item)
