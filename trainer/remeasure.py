"""Measures the best checkpoint of a run again, when the run has ended: in this process alone, from its file."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
import gc
import logging
import math
from pathlib import Path
from typing import Any

import torch

from torchyard.contract.attempts.records import Manifest
from torchyard.contract.attempts.rundir import MANIFEST
from torchyard.contract.bundles.names import digest_in
from torchyard.contract.spec.spec import CheckpointPolicy
from torchyard.host.recordfiles import read_record
from torchyard.models import checkpoint
from torchyard.run import Run
from torchyard.run.accelerator import is_accelerator
from torchyard.run.afterwards import StopRequested
from trainer.data.scanning import Scan
from trainer.evaluate import measured

TOLERANCE = 1e-3
"""The relative difference of two values from which on a warning names them."""

logger = logging.getLogger(__name__)


@dataclass(frozen=True, kw_only=True)
class Saved:
    """A checkpoint of the job that may be its best."""

    name: str
    attempt: int | None
    """The attempt that saved it; None: this one."""
    step: int
    value: float
    """That of the monitored metric."""
    metrics: Mapping[str, Any]
    state: Path | None
    """Its file; None if it is not on this host."""


def remeasure(run: Run, *, policy: CheckpointPolicy, device: torch.device) -> None:
    """Evaluates the best checkpoint again, and records the metrics; a message says where they differ.

    Rank 0 calls it, without a process group. A failure is a warning among the job's messages, and no error.
    """
    try:
        run.flush()  # the last checkpoint is written by a thread
        with run.afterwards().interrupted_by_a_stop() as check:
            best = best_of(run, policy)
            if best is not None:
                _measure(run, best, device=device, on_batch=check)
    except StopRequested:
        run.message("the best checkpoint was not re-evaluated: the job was asked to stop")
    except Exception as error:  # noqa: BLE001 the run has ended well, whatever it is
        reason = (str(error) or type(error).__name__).splitlines()[0]
        run.message(f"the best checkpoint was not re-evaluated: {reason}", "warning")


def best_of(run: Run, policy: CheckpointPolicy) -> Saved | None:
    """Returns the job's best checkpoint over all attempts, the earliest of equal ones; None if nothing was measured."""
    sign = 1.0 if policy.mode == "min" else -1.0
    candidates = [*_earlier(run, policy.monitor), *_published(run, policy.monitor)]
    return min(candidates, key=lambda item: (sign * item.value, item.step), default=None)


def differences(before: Mapping[str, Any], again: Mapping[str, float]) -> list[str]:
    """Returns in words which values are not what they were."""
    both = [(key, before[key], again[key]) for key in sorted(before.keys() & again.keys())]
    return [
        f"{key} is {new:.6g}, was {old:.6g}"
        for key, old, new in both
        if isinstance(old, int | float) and not math.isclose(old, new, rel_tol=TOLERANCE, abs_tol=1e-9)
    ]


def _measure(run: Run, best: Saved, *, device: torch.device, on_batch: Callable[[], None]) -> None:
    if best.state is None:
        run.message(f"the best checkpoint was not re-evaluated: attempt {best.attempt} saved it on another host")
        return
    if is_accelerator(device):
        gc.collect()  # what is left of the training has the device's memory

    afterwards = run.afterwards()

    def on_each() -> None:
        afterwards.keep_alive()
        on_batch()

    bundle = digest_in(run.config["config"]["data"]["source"]) if run.data else None  # as the training has read it
    scan = Scan(bundle=bundle, alive=on_each)
    evaluation = measured(best.state, source=run.data, base=run.weights, device=device, on_batch=on_each, scan=scan)
    afterwards.remeasured(best.name, evaluation.metrics, attempt=best.attempt)
    shown = "  ".join(f"{key} {value:.4g}" for key, value in evaluation.metrics.items())
    logger.info("the best checkpoint (step %d), re-evaluated in one process: %s", best.step, shown)
    if changes := differences(best.metrics, evaluation.metrics):
        text = f"the best checkpoint (step {best.step}) has other values when re-evaluated in one process"
        run.message(f"{text}: {'; '.join(changes)}", "warning")


def _published(run: Run, monitor: str) -> Iterable[Saved]:
    """Yields the checkpoints of this attempt in which the metric is a number."""
    folder = run.afterwards().checkpoints
    for path in sorted(folder.iterdir()) if folder is not None else ():
        manifest = None if path.name.startswith(".") else read_record(path / MANIFEST, Manifest)
        if manifest is not None and (value := _finite(manifest.metrics.get(monitor))) is not None:
            yield Saved(
                name=path.name,
                attempt=None,
                step=manifest.step,
                value=value,
                metrics=manifest.metrics,
                state=checkpoint.state_in(path),
            )


def _earlier(run: Run, monitor: str) -> Iterable[Saved]:
    """Yields the best checkpoint of earlier attempts, which the worker has named."""
    known = run.config.get("best")
    value = None if known is None else _finite(known["metrics"].get(monitor))
    if known is not None and value is not None:
        state = None if known["folder"] is None else checkpoint.state_in(Path(known["folder"]))
        yield Saved(
            name=known["name"],
            attempt=known["attempt"],
            step=known["step"],
            value=value,
            metrics=known["metrics"],
            state=state,
        )


def _finite(value: object) -> float | None:
    return float(value) if isinstance(value, int | float) and math.isfinite(value) else None
