"""The largest accepted bodies of requests for which the service has limits that the description lacks."""

from collections.abc import Mapping
from typing import Any

from pydantic_core import to_json

from torchyard.contract.jobs.requests import MOST_BATCH_BYTES, MOST_JOBS
from torchyard.contract.reach.orders import MOST_BYTES
from torchyard.contract.sweeps.spec import MOST_POINTS, MOST_SWEEP_BYTES

WAITING = {"devices_per_node": 1, "device": "cuda"}
"""The worker has no such device, so these jobs wait."""
SCRIPT: dict[str, Any] = {
    "trainer": "script",
    "config": {"code": "file:///x", "entrypoint": "train.py", "args": []},
    "resources": WAITING,
}
_MOST_ADDED = 800
"""An extension of a sweep has 2,500 keys and values."""


def bodies() -> Mapping[str, bytes]:
    """Returns the bodies by the names of operations."""
    sweep = _within({"method": "list", "points": [*map(_point, range(MOST_POINTS))], "job": SCRIPT}, MOST_SWEEP_BYTES)
    batch = _within({"jobs": [*map(_job, range(MOST_JOBS))]}, MOST_BATCH_BYTES)
    more = _within({"points": [{"args.a": f"{number:01000}"} for number in range(_MOST_ADDED)]}, MOST_SWEEP_BYTES)
    reach = to_json({"kind": "program", "argv": ["-v"] * (MOST_BYTES // 10)})
    return {
        "submit_sweep": sweep,
        "validate_sweep": sweep,
        "submit_batch": batch,
        "extend_sweep": more,
        "open_reach": reach,
    }


def small_sweep(job: Mapping[str, Any]) -> dict[str, Any]:
    """Returns a sweep of a hundred trials to which points can be added."""
    return {"method": "list", "points": [{"args.a": str(number)} for number in range(100)], "job": dict(job)}


def _point(number: int) -> dict[str, int]:
    return {f"args.a{key}": number for key in range(6)}


def _job(number: int) -> dict[str, Any]:
    config = {**SCRIPT["config"], "args": [f"{place:0100}" for place in range(12)]}
    return {**SCRIPT, "name": f"job-{number:05}", "config": config}


def _within(body: Mapping[str, Any], most: int) -> bytes:
    content = to_json(body)
    assert most * 0.75 < len(content) <= most, len(content)
    return content
