"""Writes docs/reference/costs.md from measured costs and from the limits in the code."""

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
"""Folders all of whose limits are on the page."""
SHOWN_BY = {
    "attempts/events": "log call with 1,000 metrics",
    "attempts/expansion": "validate_spec",
    "bounds": "job spec of 256 KiB",
    "bundles/mounting": "validate_spec",
    "bundles/names": "upload of 1,000,000 files",
    "bundles/parts": "find_parts",
    "bundles/shards": "shard index of 100,000 files",
    "bundles/tar": "upload of 1,000,000 files",
    "files/archives": "part of a tar download of 10,000 files",
    "files/paths": "file list of a checkpoint of 10,000 files",
    "jobs/columns": "list_jobs",
    "jobs/notes": "change_job",
    "jobs/requests": "submit_batch",
    "media/kinds": "image of 8 MiB of empty segments",
    "media/picture": "image of 8 MiB of empty segments",
    "models/names": "list_model_versions",
    "notifications/kinds": "list_targets",
    "notifications/web_address": "add_target",
    "reach/frames": "open_reach",
    "reach/orders": "open_reach",
    "reach/proof": "open_reach",
    "recipes/pictures": "validate_spec",
    "recipes/script": "validate_spec",
    "spec/environment": "mask 64 KiB of secrets in a table of 8,000 cells",
    "spec/labels": "change_job",
    "spec/log_metrics": "search 64 lines of 4 KiB by 8 metric patterns",
    "spec/spec": "job spec of 256 KiB",
    "sweeps/points": "sweep of 10,000 trials with 7 keys each",
    "sweeps/spec": "sweep of 10,000 trials with 7 keys each",
    "team/requests": "submit_batch",
    "wire/findings": "validate_spec",
    "wire/schema": "validate_spec",
    "wire/text": "job spec of 256 KiB",
    "wire/units": "validate_spec",
    "wire/view": "validate_spec",
    "wire/wording": "validate_spec",
}
"""By module of the contract: the operation or the case that measures its limits."""
_LIMIT = re.compile(r"_?(MOST|MAX|LONGEST|LARGEST|DEEPEST)(_[A-Z_]+)?|_?[A-Z_]+_BYTES")
_ROW = re.compile(r"^\| `?([^`|]+?)`? \|.*\| ([0-9.]+) \| [0-9.]+ \|$", re.MULTILINE)
_STATUS = re.compile(r"^\| `(\w+)` \| [0-9,]+ \| ([0-9]{3}) \|", re.MULTILINE)

_HEAD = f"""# Costs of the largest inputs

This page lists the cost of each request and each input at its limit: CPU seconds, and the MiB of memory by which the
process grew. `python -m bench.costs --write` measures them and writes this page. They are of its last run.

A request takes at most {MOST_S} CPU seconds of a thread that others share. Longer work is done in parts, and users take
turns after each part (`api/limits/turns.py`).

## Requests

Each request has the largest body that the OpenAPI description allows, or asks for the largest page. A status of
4xx means that the service refused it; the figures are those of the refusal.

| operation | bytes sent | status | CPU s | MiB |
| --- | --- | --- | --- | --- |
"""
_CASES = """
## What people and jobs write

| input | runs in | CPU s | MiB |
| --- | --- | --- | --- |
"""
_LIMITS = """
## Limits

`api/server/protocol.py` limits the head of a request to 32 KiB, and each line of the head to 8 KiB. Texts in paths and
headers need no other limit. `/docs/rest` of a running service has the limits of single fields.

| limit | value | file | measured by |
| --- | --- | --- | --- |
"""


@dataclass(frozen=True)
class Limit:
    """A constant that limits an input."""

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
    """Returns the status of each operation's answer."""
    return {name: int(status) for name, status in _STATUS.findall(PAGE.read_text())}


def limits_on_the_page() -> set[str]:
    """Returns the rows of limits."""
    return {line for line in PAGE.read_text().partition(_LIMITS)[2].splitlines() if line}


def row(limit: Limit) -> str:
    return f"| `{limit.name}` | {_shown(limit.value)} | `{limit.place}` | {SHOWN_BY[limit.module]} |"


def limits() -> Iterator[Limit]:
    """Yields the limits of the folders."""
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
