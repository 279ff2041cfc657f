"""No regular expression over text of others takes steps by more than the length of the text.

Every expression of the source is found, and matched against texts of which one is twice as long as the other.
"""

from collections.abc import Iterator
import fnmatch
import math
import re
import sys

import pytest

from tests.security.expressions import PACKAGES, ROOT, expressions, of_the_page
from tests.security.steps import Attack, Matcher, TooManyError

MOST_STEPS = 30_000
"""For the longer text. What needs more has failed."""
FEW_STEPS = 0.25
"""For each pair of characters of the shorter text: what needs no more for its double has no need of a second text."""
SIZE, SURE = 32, 64
"""Lengths of the shorter text. In one of `SIZE`, repeats of at most 20 look as if they grew too fast."""
MOST_TIMES = 2.6
"""As many steps a text of twice the length may take. Repeats of at most 20 make it a little more than 2."""

OF_OURS = {
    "worker/engines/local/warm/memory.py:_MAPPING": "lines of /proc/self/smaps, in which `.` matches to the end",
    r"web/src/charts/labels.ts:\.?0+e": "a number that the page has written",
}
"""Expressions that see no text of others, or only where they harm nobody, and take more steps."""
MADE_AT_RUN_TIME = {
    "api/advice/missing.py:_names": "an escaped path",
    "api/parameters/paging.py:media_after": "two numbers, and the key of a metric",
    "store/queries/log_patterns.py:plain": "an escaped text",
    "torchyard/cli/follow.py:_is_in_log": "two numbers between what is known",
    "torchyard/client/references.py:_last_number": "an escaped name, and a number",
    "torchyard/contract/arguments.py:_assigned": "an escaped name",
    "torchyard/contract/codec.py:matching": "its callers' expressions are found, too",
    "torchyard/contract/logmetrics.py:_checked": "a job's own, which is only compiled here",
    "worker/attempts/files/matching.py:match": "a glob",
    "worker/engines/local/supervisor/ranks.py:has_signal": "the name of a signal mask, in /proc/PID/status",
}
"""Expressions that are not known before a call, and why they are harmless."""
LINEAR_ENGINES = dict.fromkeys(("store/queries/log_patterns.py", "store/queries/log_metrics.py"), "re2")
"""Where another engine than `re` is used. Its time is linear, whatever the expression."""
GLOBS = {
    *("trainer/weights/initial.py", "torchyard/models/exporting/placing.py"),
    *("worker/attempts/files/matching.py", "worker/attempts/capture/layouts.py"),
}
"""Where `fnmatch` is used. The patterns of exports and layouts are our own, with few stars."""


@pytest.fixture(autouse=True)
def deep_recursion() -> Iterator[None]:
    """The matcher calls itself for each repetition."""
    before = sys.getrecursionlimit()
    sys.setrecursionlimit(10_000)
    yield
    sys.setrecursionlimit(before)


def test_every_expression_takes_steps_by_the_length_of_the_text() -> None:
    known = (*(item for item in expressions() if not item.by_pydantic), *of_the_page())
    distinct = {(item.source, item.flags, item.anywhere): item for item in known if item.place not in OF_OURS}
    found = {
        item.place: worst_attack(Matcher(item.source, item.flags, anywhere=item.anywhere))
        for item in distinct.values()
        if item.source is not None
    }
    assert {place: attack for place, attack in found.items() if attack is not None} == {}
    assert {"api/http/compression.py:_WEIGHT", "torchyard/host/terminal.py:_CONTROL"} <= found.keys()


@pytest.mark.parametrize(
    ("source", "flags"),
    [
        (r"\s*(x-)?gzip\s*(;\s*q=(0\.[0-9]*[1-9][0-9]*|1(\.0*)?)\s*)?", re.IGNORECASE),
        (r"(?m)^# /// script$\s(?P<content>(^#(| .*)$\s)+)^# ///$", 0),
        (r"(a|a)*", 0),
        (r"(a+)+b", 0),
        (r"[a-z]*[a-m]*0", 0),
        (r"x.*y", re.DOTALL),
        (r"(\w+\s?)*!", 0),
    ],
)
def test_expressions_that_take_more_are_found(source: str, flags: int) -> None:
    assert worst_attack(Matcher(source, flags, anywhere="///" in source or "x.*" in source)) is not None


@pytest.mark.parametrize("pattern", ["*a*a*a*a*b", "*" * 12 + "b", "[!b]*[a-z]*?*c", "?*?*?*!"])
def test_a_glob_takes_steps_by_the_length_of_the_name(pattern: str) -> None:
    """It never goes back over a `*`, so that a job's `config.checkpoints` hold the worker no longer than its files."""
    assert worst_attack(Matcher(fnmatch.translate(pattern), 0, anywhere=False)) is None


def test_no_expression_escapes_the_search() -> None:
    unknown = {item.place for item in expressions() if item.source is None and not item.by_pydantic}
    assert unknown <= MADE_AT_RUN_TIME.keys()
    for package in PACKAGES:
        for path in (ROOT / package).rglob("*.py"):
            text, name = path.read_text(), str(path.relative_to(ROOT))
            assert not re.search(r"^\s*(from re import|import re as|import regex|import re2? as)", text, re.MULTILINE)
            assert "import re2" not in text or LINEAR_ENGINES.get(name) == "re2"
            assert "fnmatch" not in text or name in GLOBS
            assert "regex_engine" not in text, "pydantic's own engine is linear, and Python's is not"


def worst_attack(matcher: Matcher) -> tuple[Attack, float, float] | None:
    """Returns a text, and the steps that it takes and that one of twice the length takes, if they grow too fast."""
    return attack_of(matcher, SURE) if attack_of(matcher, SIZE) is not None else None


def attack_of(matcher: Matcher, size: int) -> tuple[Attack, float, float] | None:
    for attack in matcher.attacks():
        long = steps(matcher, attack.of(2 * size))
        if long <= FEW_STEPS * 2 * size * size:
            continue
        short = steps(matcher, attack.of(size))
        if long == math.inf or long > MOST_TIMES * short:
            return attack, short, long
    return None


def steps(matcher: Matcher, text: str) -> float:
    try:
        return matcher.steps(text, most=MOST_STEPS)
    except TooManyError:
        return math.inf
