"""The ledger of costs: docs/reference/costs.md, written from what was measured and from the limits in the code."""

import ast
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import timedelta
from importlib import import_module
from pathlib import Path
import re

from bench.costs.cases import CASES, CaseCost
from bench.costs.operations import MOST_S, Cost

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "reference" / "costs.md"
BOUNDED = ("torchyard/contract",)
"""Folders whose limits all stand on the page."""
SHOWN_BY = {
    "attempts/events": "a line of 1,000 metrics",
    "attempts/expansion": "validate_spec",
    "bounds": "a job spec of 256 KiB",
    "bundles/mounting": "validate_spec",
    "bundles/names": "a bundle of 1,000,000 files",
    "bundles/parts": "find_parts",
    "bundles/shards": "an index of 100,000 files in shards",
    "bundles/tar": "a bundle of 1,000,000 files",
    "files/archives": "a part of the tar of 10,000 files",
    "files/paths": "a list of the 10,000 files of a checkpoint",
    "jobs/columns": "list_jobs",
    "jobs/notes": "change_job",
    "jobs/requests": "submit_batch",
    "media/kinds": "a picture of 8 MiB of empty segments",
    "media/picture": "a picture of 8 MiB of empty segments",
    "models/names": "list_model_versions",
    "notifications/kinds": "list_targets",
    "notifications/web_address": "add_target",
    "reach/frames": "open_reach",
    "reach/orders": "open_reach",
    "reach/proof": "open_reach",
    "recipes/pictures": "validate_spec",
    "recipes/script": "validate_spec",
    "spec/environment": "8,000 cells of a table beside 64 KiB of secrets",
    "spec/labels": "change_job",
    "spec/log_metrics": "64 lines of 4 KiB, searched for metrics by 8 patterns",
    "spec/spec": "a job spec of 256 KiB",
    "sweeps/points": "10,000 points of 7 keys",
    "sweeps/spec": "10,000 points of 7 keys",
    "team/requests": "submit_batch",
    "wire/findings": "validate_spec",
    "wire/schema": "validate_spec",
    "wire/text": "a job spec of 256 KiB",
    "wire/units": "validate_spec",
    "wire/view": "validate_spec",
    "wire/wording": "validate_spec",
}
"""By a module of the contract: the operation or the case whose cost is that of its limits."""
_LIMIT = re.compile(r"_?(MOST|MAX|LONGEST|LARGEST|DEEPEST)(_[A-Z_]+)?|_?[A-Z_]+_BYTES")
_ROW = re.compile(r"^\| `?([^`|]+?)`? \|.*\| ([0-9.]+) \| [0-9.]+ \|$", re.MULTILINE)
_STATUS = re.compile(r"^\| `(\w+)` \| [0-9,]+ \| ([0-9]{3}) \|", re.MULTILINE)

_HEAD = f"""# What the largest inputs cost

Whatever a person, a job or a file can make large has a limit. This page says what each costs at its limit: seconds of a
processor, and how much larger the process became meanwhile. `python -m bench.costs --write` measures it and writes this
page; the figures are of the machine where it ran last.

A request costs the threads that others share at most {MOST_S} s of a processor. What takes longer is read in parts, and
users take turns after each part (`api/limits/turns.py`).

## Requests

Each was sent the largest body that its description admits, or asked for as much as a page may have.

| operation | bytes sent | answer | s | MiB |
| --- | --- | --- | --- | --- |
"""
_CASES = """
## What people and jobs wrote

| what | who pays | s | MiB |
| --- | --- | --- | --- |
"""
_LIMITS = """
## The limits of the contract

A head of a request has at most 32 KiB, and each line of it 8 KiB (`api/server/protocol.py`), so that texts in paths and
headers need no limit of their own. Maxima of single fields are in the [description of the API](rest.md).

| limit | value | where | whose cost shows it |
| --- | --- | --- | --- |
"""


@dataclass(frozen=True)
class Limit:
    """A constant that bounds what somebody wrote."""

    place: str
    name: str
    value: int | timedelta

    @property
    def module(self) -> str:
        return self.place.removeprefix("torchyard/contract/").removesuffix(".py").removesuffix("/__init__")


def written(requests: Sequence[Cost], others: Sequence[CaseCost]) -> str:
    """Returns the page."""
    rows = [
        f"| `{cost.operation}` | {cost.sent:,} | {cost.status} | {cost.processor_s:.3f} | {cost.memory_mib:.1f} |"
        for cost in sorted(requests, key=lambda cost: -cost.processor_s)
    ]
    payers = {case.what: case.pays for case in CASES}
    cases = [
        f"| {cost.what} | {payers[cost.what]} | {cost.processor_s:.3f} | {cost.memory_mib:.1f} |" for cost in others
    ]
    bounds = [row(limit) for limit in limits()]
    return _HEAD + "\n".join(rows) + "\n" + _CASES + "\n".join(cases) + "\n" + _LIMITS + "\n".join(bounds) + "\n"


def measured() -> dict[str, float]:
    """Returns the processor time of each operation and case on the page."""
    return {name: float(seconds) for name, seconds in _ROW.findall(PAGE.read_text())}


def statuses() -> dict[str, int]:
    """Returns with what each operation was answered."""
    return {name: int(status) for name, status in _STATUS.findall(PAGE.read_text())}


def limits_on_the_page() -> set[str]:
    """Returns the rows of limits."""
    return {line for line in PAGE.read_text().partition(_LIMITS)[2].splitlines() if line}


def row(limit: Limit) -> str:
    return f"| `{limit.name}` | {_shown(limit.value)} | `{limit.place}` | {SHOWN_BY[limit.module]} |"


def limits() -> Iterator[Limit]:
    """Yields the constants of the folders that bound something."""
    for folder in BOUNDED:
        for path in sorted((ROOT / folder).rglob("*.py")):
            place = str(path.relative_to(ROOT))
            module = import_module(place.removesuffix(".py").removesuffix("/__init__").replace("/", "."))
            for name in _constants(path):
                if isinstance(value := getattr(module, name), int | timedelta):
                    yield Limit(place, name, value)


def _constants(path: Path) -> Iterator[str]:
    for statement in ast.parse(path.read_text()).body:
        for target in statement.targets if isinstance(statement, ast.Assign) else ():
            if isinstance(target, ast.Name) and _LIMIT.fullmatch(target.id):
                yield target.id


def _shown(value: int | timedelta) -> str:
    return f"{value:,}" if isinstance(value, int) else str(value)
