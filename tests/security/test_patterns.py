"""No regular expression over text of others takes steps by more than the length of the text.

Every expression of the source is found, and matched against texts of which one is twice as long as the other. Those
that have passed before are in `measured.txt`, and only the thorough run measures them again. `make approve` writes it.
"""

from collections.abc import Iterator
import fnmatch
import re
import sys

import pytest

from tests.security.expressions import PACKAGES, ROOT, expressions, of_the_page
from tests.security.growth import MEASURED, key_of, measured, worst_attack
from tests.security.steps import Matcher

OF_OURS = {
    "worker/engines/local/warm/memory.py:_MAPPING": "lines of /proc/self/smaps, in which `.` matches to the end",
    r"web/src/charts/labels.ts:\.?0+e": "a number that the page has written",
}
"""Expressions that see no text of others, or only where they harm nobody, and take more steps."""
MADE_AT_RUN_TIME = {
    "api/advice/missing.py:_names": "an escaped path",
    "api/parameters/paging.py:media_after": "two numbers, and the key of a metric",
    "store/output/log_search.py:match_text": "an escaped text",
    "torchyard/cli/follow.py:_is_in_log": "two numbers between what is known",
    "torchyard/cli/run/checks.py:check": "its callers' expressions are found, too",
    "torchyard/client/references.py:_last_number": "an escaped name, and a number",
    "torchyard/contract/sweeps/arguments.py:_assigned": "an escaped name",
    "torchyard/contract/wire/codec.py:matching": "its callers' expressions are found, too",
    "torchyard/contract/spec/log_metrics.py:_checked": "a job's own, which is only compiled here",
    "worker/attempts/files/matching.py:match": "a glob",
    "worker/engines/local/supervisor/ranks.py:has_signal": "the name of a signal mask, in /proc/PID/status",
}
"""Expressions that are not known before a call, and why they are harmless."""
LINEAR_ENGINES = dict.fromkeys(("store/output/log_search.py", "store/output/line_patterns.py"), "re2")
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


@pytest.mark.parametrize("again", [False, pytest.param(True, marks=pytest.mark.thorough)], ids=["new", "all"])
def test_every_expression_takes_steps_by_the_length_of_the_text(*, again: bool, request: pytest.FixtureRequest) -> None:
    known = (*(item for item in expressions() if not item.by_pydantic), *of_the_page())
    matchers = {
        item.place: Matcher(item.source, item.flags, anywhere=item.anywhere)
        for item in known
        if item.place not in OF_OURS and item.source is not None
    }
    assert {"api/middleware/compression.py:_WEIGHT", "torchyard/host/terminal.py:_CONTROL"} <= matchers.keys()
    keys = {key_of(matcher): place for place, matcher in matchers.items()}
    found = {place: worst_attack(matchers[place]) for key, place in keys.items() if again or key not in measured()}
    assert {place: attack for place, attack in found.items() if attack is not None} == {}
    if request.config.getoption("approve"):
        MEASURED.write_text("".join(f"{key}\n" for key in sorted(keys)))


@pytest.mark.parametrize(
    ("source", "flags"),
    [
        (r"\s*(x-)?gzip\s*(;\s*q=(0\.[0-9]*[1-9][0-9]*|1(\.0*)?)\s*)?", re.IGNORECASE),
        (r"(?m)^# /// script$\s(?P<content>(^#(| .*)$\s)+)^# ///$", 0),
        (r"(a|a)*", 0),
        (r"(a+)+b", 0),
        (r"[a-z]*[a-m]*0", 0),
        (r"x.*y", re.DOTALL),
        pytest.param(r"(\w+\s?)*!", 0, marks=pytest.mark.thorough),
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
            for line in ("from re import", "import re as", "import regex", "import re2 as"):
                assert line not in text
            assert "import re2" not in text or LINEAR_ENGINES.get(name) == "re2"
            assert "fnmatch" not in text or name in GLOBS
            assert "regex_engine" not in text, "pydantic's own engine is linear, and Python's is not"
