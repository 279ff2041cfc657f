"""Advises on a missing file that was left out of the upload, and on a module that lies in a folder of the code."""

from collections.abc import Sequence
import re
import shlex

from api.advice import output
from api.advice.facts import Facts, shown
from torchyard.contract.wire.text import headline

_NOT_FOUND = re.compile(
    r"FileNotFoundError|no such file or directory|not found|does not exist|cannot (?:find|open)", re.IGNORECASE
)
_MOST_TEXT = 4000
"""Characters of an error that are searched for a path, at most."""


def left_out(facts: Facts) -> str | None:
    """Returns what the program misses of what was left out: a file, or the folder of several. None if nothing."""
    if facts.script is None or facts.failure is None or not facts.script.left_out:
        return None
    line = output.decisive_line(facts.failure, facts.lines)
    last = (facts.failure.traceback or "").rstrip().rpartition("\n")[2]
    said = (headline(facts.failure.message), last, "" if line is None else line.text)
    texts = [text[:_MOST_TEXT] for text in said if _NOT_FOUND.search(text[:_MOST_TEXT])]
    named = [path for path in facts.script.left_out if any(_names(text, path) for text in texts)]
    longest = max(named, key=len, default=None)
    return longest if longest is None else _with_its_folder(longest, facts.script.left_out)


def steps(path: str) -> list[str]:
    """Says how the program gets what was left out at a path."""
    what = f"Files of {shown(path)} were" if path.endswith("/") else f"{shown(path)} was"
    name = shlex.quote(shown(path.rstrip("/")))
    return [
        f"{what} left out of the upload: `torchyard run --include {name} PROGRAM` has it packed, whatever git ignores.",
        "Or send large data once: `torchyard data push DIR`, then `torchyard run --mount NAME=URL PROGRAM`.",
    ]


def folder_of(module: str, paths: Sequence[str]) -> str | None:
    """Returns the folder below the root of the code in which a module lies, the nearest one; None if in none."""
    path = f"/{module.replace('.', '/')}/"
    files = (f"{each.removesuffix('.py')}/" for each in paths if each.endswith(".py"))
    folders = [file[: file.rindex(path)] for file in files if path in file]
    return min(filter(None, folders), key=lambda folder: (folder.count("/"), folder), default=None)


def steps_for_folder(module: str, folder: str, facts: Facts) -> list[str]:
    """Says how the program finds a module that lies in a folder of the code."""
    before = facts.job.spec.env.get("PYTHONPATH")
    there = f"{before}:{folder}" if isinstance(before, str) and before else folder
    option = shlex.quote(shown(f"PYTHONPATH={there}"))
    return [
        f"{shown(module)} lies in {shown(folder)}/ of the code, which is not on Python's path:"
        f" `torchyard run --env {option} PROGRAM` has it found.",
        f"Or run the program from that folder: `cd {shlex.quote(shown(folder))}` before `torchyard run`, if it needs"
        " nothing above it.",
    ]


def _with_its_folder(path: str, left_out: Sequence[str]) -> str:
    """Returns the path, or its folder where that lacks more: the program would miss the next file then."""
    folder = path[: path.rfind("/") + 1]
    more = folder and any(other != path and other.startswith(folder) for other in left_out)
    return folder if more and not path.endswith("/") else path


def _names(text: str, path: str) -> bool:
    """Whether a text has the path, or one below it, as a whole: alone or after the folder of the code."""
    return re.search(rf"(?<![\w.-]){re.escape(path.rstrip('/'))}(?![\w.-])", text) is not None
