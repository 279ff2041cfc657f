"""`auto_batch` approves what fits with all that a step of the run holds, and nothing more."""

from pathlib import Path
from typing import Any

import pytest

from tests.device.runs import train

HELD: dict[str, dict[str, Any]] = {
    "adamw": {},
    "sgd": {"optimizer": {"name": "sgd", "lr": 0.01, "clip_grad_norm": 1.0}},
    "rmsprop": {"optimizer": {"name": "rmsprop", "lr": 0.001}},
    "ema": {"ema": {}},
    "lookahead": {"optimizer": {"lookahead": {"every_steps": 2}}},
    "buckets": {"distributed": {"gradient_as_bucket_view": False}},
    "powersgd": {"distributed": {"comm_hook": "powersgd"}},
    "local_sgd": {"distributed": {"strategy": "local_sgd", "local_sgd": {"warmup_steps": 2, "period": 3}}},
}
BATCH = 128


def config(held: str, *, auto_batch: bool) -> dict[str, Any]:
    # PowerSGD starts at step 11, and ranks that train alone first meet at step 5: all else is held in step 2.
    late = held in {"powersgd", "local_sgd"}
    steps = {"epochs": 2, "max_steps": 12} if late else {"epochs": 1, "max_steps": 3}
    sizes = {**steps, "per_device_batch_size": BATCH, "auto_batch": auto_batch}
    return {"training": sizes, **HELD[held]}


@pytest.mark.thorough
@pytest.mark.parametrize("held", HELD)
def test_a_batch_is_approved_if_its_run_fits(tmp_path: Path, library: Path, held: str) -> None:
    _, free = train(tmp_path / "free", library, config(held, auto_batch=False))
    needed = max(outcome.peaks[outcome.device] for outcome in free)

    def chosen(name: str, memory: int) -> set[int]:
        _, outcomes = train(tmp_path / name, library, config(held, auto_batch=True), memory=memory)
        return {outcome.micro_batch for outcome in outcomes}

    (less,) = chosen("short", needed * 99 // 100)  # the whole run fits
    assert less in {BATCH // 2, BATCH // 4}
    assert chosen("enough", needed * 108 // 100) == {BATCH}
