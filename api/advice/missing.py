"""Advises on a missing file that was left out of the upload."""

import re
import shlex

from api.advice import output
from api.advice.facts import Facts, shown
from torchyard.contract.text import headline

_NOT_FOUND = re.compile(
    r"FileNotFoundError|no such file or directory|not found|does not exist|cannot (?:find|open)", re.IGNORECASE
)
_MOST_TEXT = 4000
"""Characters of an error that are searched for a path, at most."""


def left_out(facts: Facts) -> str | None:
    """Returns the path that the program did not find and that the upload left out. None if there is none."""
    if facts.script is None or facts.failure is None or not facts.script.left_out:
        return None
    line = output.decisive_line(facts.failure, facts.lines)
    last = (facts.failure.traceback or "").rstrip().rpartition("\n")[2]
    said = (headline(facts.failure.message), last, "" if line is None else line.text)
    texts = [text[:_MOST_TEXT] for text in said if _NOT_FOUND.search(text[:_MOST_TEXT])]
    named = [path for path in facts.script.left_out if any(_names(text, path) for text in texts)]
    return max(named, key=len, default=None)


def steps(path: str) -> list[str]:
    """Says how the program gets what was left out at a path."""
    what = f"Files of {shown(path)} were" if path.endswith("/") else f"{shown(path)} was"
    name = shlex.quote(shown(path.rstrip("/")))
    return [
        f"{what} left out of the upload: `torchyard run --include {name} PROGRAM` has it packed, whatever git ignores.",
        "Or send large data once: `torchyard data push DIR`, then `torchyard run --mount NAME=URL PROGRAM`.",
    ]


def _names(text: str, path: str) -> bool:
    """Whether a text has the path, or one below it, as a whole: alone or after the folder of the code."""
    return re.search(rf"(?<![\w.-]){re.escape(path.rstrip('/'))}(?![\w.-])", text) is not None
