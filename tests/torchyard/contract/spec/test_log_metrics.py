"""Which expressions find metrics in the lines of a job."""

from typing import Any

import pytest
import re2

from torchyard.contract.errors import InvalidSpec
from torchyard.contract.spec.log_metrics import key_of
from torchyard.contract.spec.spec import ScriptSpec, parse_spec

SCRIPT: dict[str, Any] = {"trainer": "script", "config": {"code": "file:///code"}}


@pytest.mark.parametrize(
    ("pattern", "key"),
    [
        (r"loss[ =:]+(?P<value>\S+)", "loss"),
        (r"^train/loss: (?P<value>\S+)", "train/loss"),
        (r"\bval_acc=(?P<value>\S+)", "val_acc"),
        (r"losse?s? (?P<value>\S+)", "loss"),
        (r"step (?P<step>\d+) loss=(?P<value>\S+)", "loss"),
        (r"epoch \d+: train\.loss[ =]+(?P<value>\S+)", "train.loss"),
        (r"loss (?:mean|sum) \(\w+\): (?P<value>\S+)", "loss"),
        (r"(?i)(?:train|val)_loss .+(?P<value>\S+)", "_loss"),
        (r"(?P<value>[0-9.]+) it/s", "metric"),
        ("x" * 450 + r"=(?P<value>\S+)", "x" * 200),
    ],
)
def test_a_metric_is_named_by_the_last_word_before_its_value(pattern: str, key: str) -> None:
    assert key_of(pattern) == key


@pytest.mark.parametrize(
    ("pattern", "said"),
    [
        (r"loss (\S+)", "has no group"),
        (r"loss \(?P<value>\S+", "has no group"),
        (r"loss [(?P<value>]", "has no group"),
        (r"(?P<value>[", "is not a regular expression"),
        (r"loss (?=x)(?P<value>\S+)", "RE2 has neither"),
        (r"(a)\1(?P<value>\S+)", "RE2 has neither"),
        (r"a++(?P<value>\S+)", "Write a+"),
        (r"a*+(?P<value>\S+)", "Write a+"),
        (r"a?+(?P<value>\S+)", "Write a+"),
        (r"a{1,2}+(?P<value>\S+)", "Write a+"),
        (r"[^]]++(?P<value>\S+)", "Write a+"),
        (r"\\++(?P<value>\S+)", "Write a+"),
    ],
)
def test_what_cannot_find_a_number_is_refused(pattern: str, said: str) -> None:
    with pytest.raises(InvalidSpec) as raised:
        parse_spec({**SCRIPT, "metrics": {"patterns": [pattern]}})
    assert raised.value.errors[0].field == "metrics.patterns.0"
    assert said in raised.value.errors[0].message


@pytest.mark.parametrize("pattern", [r"[*+]+", r"[]*+]+", r"\++", r"a\*+", r"\\+", r"[\]?+]+", r"\}+", r"a{2}", r"a+?"])
def test_what_only_looks_possessive_is_taken_by_re2_too(pattern: str) -> None:
    whole = rf"{pattern}(?P<value>\S+)"
    re2.compile(whole)
    parse_spec({**SCRIPT, "metrics": {"patterns": [whole]}})


def test_a_job_has_few_of_them_and_says_them_only_if_it_has_some() -> None:
    pattern = r"loss (?P<value>\S+)"
    with pytest.raises(InvalidSpec):
        parse_spec({**SCRIPT, "metrics": {"patterns": [pattern] * 9}})
    found = parse_spec({**SCRIPT, "metrics": {"patterns": [pattern]}})
    assert isinstance(found, ScriptSpec) and found.model_dump(mode="json")["metrics"] == {"patterns": [pattern]}
    assert "metrics" not in parse_spec(SCRIPT).model_dump(mode="json")
