"""Facts to judge."""

from datetime import UTC, datetime, timedelta
from typing import Any

from api.advice.facts import Facts
from torchyard.contract.cluster.views import WorkerView
from torchyard.contract.jobs.views import ErrorView, JobView
from torchyard.contract.recipes import REGISTRY
from torchyard.contract.spec.spec import parse_spec
from torchyard.contract.telemetry.views import LogLine

NOW = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)
GIB = 1 << 30
JOB = "job_1"
PICTURES = "segmentation"
"""A recipe with loader processes."""
CUDA_OOM = (
    "OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has a total capacity of 79.10 GiB of which"
    " 1.20 GiB is free. Of the allocated memory 70.00 GiB is allocated by PyTorch, and 512.00 MiB is reserved by"
    " PyTorch but unallocated.: lower training.per_device_batch_size, or set training.auto_batch"
)
TRACEBACK = """\
Traceback (most recent call last):
  File "/data/runs/job_1/1/job/code/train.py", line 31, in <module>
    main()
  File "/data/runs/job_1/1/job/code/train.py", line 7, in load
    raise ValueError("the data is blue")
  File "/opt/venv/lib/python3.12/site-packages/torch/nn/modules/module.py", line 1750, in _wrapped_call_impl
    return self._call_impl(*args, **kwargs)
ValueError: the data is blue
"""


def facts(
    state: str = "running",
    *,
    trainer: str = PICTURES,
    config: dict[str, Any] | None = None,
    reason: tuple[str, str] = ("a_code", "a reason"),
    gpus: list[dict[str, Any]] | None = None,
    cpus: int | None = 16,
    silence: timedelta | None = timedelta(seconds=1),
    failure: ErrorView | None = None,
    lines: list[LogLine] | None = None,
    workers: list[WorkerView] | None = None,
    checkpoint_step: int | None = None,
    spec: dict[str, Any] | None = None,
    **job: Any,
) -> Facts:
    """Returns facts of a job; `gpus` are devices that it holds."""
    held = gpus or []
    own = [] if gpus is None else [worker(*held, cpus=cpus, job_id=JOB)]
    return Facts(
        job=JobView.model_validate(
            {
                "id": JOB,
                "name": "cracks",
                "trainer": trainer,
                "state": state,
                "status_reason": {"code": reason[0], "message": reason[1], "since": NOW},
                "owner": "ada",
                "priority": 0,
                "labels": {},
                "attempt": 1,
                "progress": {"step": 120, "total_steps": 500, "fraction": 0.24},
                "metrics": {},
                "devices": [
                    {"worker": "box-a", "index": index, "uuid": f"GPU-{index}", "name": "H100"}
                    for index in range(len(held))
                ],
                "created_at": NOW,
                "version": 1,
                "spec": parse_spec({"trainer": trainer, "config": _config(trainer, config), **(spec or {})}),
                **job,
            }
        ),
        failure=failure,
        lines=lines or [],
        workers=own if workers is None else workers,
        silence=silence,
        checkpoint_step=checkpoint_step,
    )


def worker(
    *devices: dict[str, Any],
    name: str = "box-a",
    cpus: int | None = None,
    job_id: str | None = None,
    state: str = "ready",
    memory_gb: float | None = None,
    kept: bool = False,
) -> WorkerView:
    """Returns a worker with GPUs, which the job holds if it is given. `kept`: whether they are kept for another job."""
    views: list[dict[str, Any]] = [
        {
            "index": index,
            "uuid": f"GPU-{index}",
            "name": "H100",
            "kind": "cuda",
            "memory_bytes": 80 * GIB,
            "job_id": job_id,
            **device,
        }
        for index, device in enumerate(devices)
    ]
    more = {
        "starts": {"mode": "cold", "cpus": cpus, "memory_gb": memory_gb},
        "kept": [{"kind": "cuda", "owner": "eve"}] if kept else [],
    }
    times = {"started_at": NOW, "seen_at": NOW}
    return WorkerView.model_validate(
        {"id": f"wrk_{name}", "name": name, "state": state, "devices": views, **more, **times}
    )


def failed(code: str, message: str = "", **more: Any) -> ErrorView:
    return ErrorView.model_validate({"code": code, "message": message, **more})


def log(*texts: str, rank: int | None = 0, stream: str = "stderr", first: int = 1) -> list[LogLine]:
    return [
        LogLine.model_validate(
            {"line": number, "time": NOW, "attempt": 1, "rank": rank, "stream": stream, "text": text}
        )
        for number, text in enumerate(texts, start=first)
    ]


def _config(trainer: str, config: dict[str, Any] | None) -> dict[str, Any]:
    if trainer not in REGISTRY:
        return {"code": f"bundle:sha256:{'0' * 64}", **(config or {})}
    data = {"source": "file:///data", **(config or {}).get("data", {})}
    return {**(config or {}), "data": data}
