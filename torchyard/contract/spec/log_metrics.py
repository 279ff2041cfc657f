"""Which metrics are read from the lines that a job writes: expressions in RE2's syntax."""

import re
from typing import Annotated

from pydantic import AfterValidator, Field

from torchyard.contract.bounds import MOST_METRIC_PATTERNS
from torchyard.contract.wire.schema import Schema
from torchyard.contract.wire.text import METRIC_KEY_LENGTH

MOST_METRIC_PATTERN = 500
"""Characters of one of them."""
VALUE, STEP, KEY = "value", "step", "key"
"""The named groups of an expression: the number, and if it has them, the step and the metric's key."""

_NOT_RE2 = re.compile(r"(?<!\\)\(\?(?:[=!>(#]|<[=!]|P=)|(?<!\\)\\[1-9]")
_ATOM = re.compile(r"\\.|\[\^?\]?(?:\\.|[^\]\\])*(?:\]|\\?\Z)", re.DOTALL)
"""An escape, or a class of characters: what is in them repeats nothing."""
_POSSESSIVE = re.compile(r"(?:[*+?]|\{[0-9]*(?:,[0-9]*)?\})\+")
_NAME_PARTS = re.compile(
    r"\\.|\[\^?\]?(?:\\.|[^\]\\])*(?:\]|\Z)|\((?:\\.|[^()\\])*\)|\(\?(?:P<\w*>|[a-zA-Z]*:)"
    r"|(?P<word>[A-Za-z_](?:[A-Za-z0-9_/.\-]|\\[./\-])*)(?P<repeated>[*?{])?",
    re.DOTALL,
)
"""An escape, a class, a whole group or the beginning of one, which name nothing; or a word.

What repeats a word's last letter makes it one that need not be there.
"""


def key_of(pattern: str) -> str:
    """Returns the key of an expression without a group `key`: the last word before its value, else `metric`."""
    before = pattern.partition(f"(?P<{VALUE}>")[0]
    found = [part for part in _NAME_PARTS.finditer(before) if part["word"]]
    words = [(part["word"][:-1] if part["repeated"] else part["word"]).replace("\\", "") for part in found]
    keys = [key for word in words if (key := word[:METRIC_KEY_LENGTH].rstrip("/.-"))]
    return keys[-1] if keys else "metric"


def _checked(pattern: str) -> str:
    if _NOT_RE2.search(pattern):
        raise ValueError("looks around, or refers to a group: RE2 has neither")
    if _POSSESSIVE.search(_ATOM.sub("x", pattern)):
        raise ValueError("has a possessive quantifier, such as a++: RE2 has none, and needs none. Write a+")
    try:
        groups = re.compile(pattern).groupindex
    except (re.error, OverflowError, RecursionError) as error:
        raise ValueError(f"is not a regular expression: {error}") from None
    if VALUE not in groups:
        raise ValueError(f"has no group (?P<{VALUE}>…), which is the number: 'loss=(?P<{VALUE}>[0-9.e+-]+)'")
    return pattern


MetricPattern = Annotated[str, Field(min_length=1, max_length=MOST_METRIC_PATTERN), AfterValidator(_checked)]


class LogMetrics(Schema):
    """Metrics to read from the output of rank 0."""

    patterns: Annotated[list[MetricPattern], Field(max_length=MOST_METRIC_PATTERNS)] = Field(
        default=[],
        description="regular expressions (RE2 syntax) with a group `value`: the number. Optional groups: `step` "
        "(default: the count of matching lines) and `key`: the name of the metric (default: the last "
        "word before the value)",
    )
