"""The JSON of a job's attempts."""

from datetime import datetime
from typing import Literal

from torchyard.contract.states import EndReason
from torchyard.contract.wire.view import View


class AttemptDevice(View):
    """A device of an attempt. `index` and `name` are null if the worker no longer has the device."""

    worker: str
    index: int | None
    uuid: str
    name: str | None
    node: int = 0
    """The number of its node, from 0. Its host is among the devices of the job, if this is the newest attempt."""


class StoppedForView(View):
    """The job that preempted an attempt. `job_id` and `name` are null if you may not read it."""

    owner: str
    job_id: str | None
    name: str | None


class AttemptEnvironment(View):
    """The Python environment from `config.python` when the attempt started."""

    name: str
    path: str
    kind: Literal["venv", "conda"]
    python: str
    torch: str
    """Empty without torch. So is the next one without CUDA."""
    cuda: str
    packages: int
    digest: str
    """Of the list of its packages with their versions."""


class AttemptView(View):
    """An attempt: one run of a job on its devices."""

    number: int
    worker: str
    """The name of its worker."""
    started_at: datetime
    ended_at: datetime | None = None
    end_reason: EndReason | None = None
    detail: str | None = None
    start_step: int
    """The step from which it resumed. Points of earlier attempts beyond it are hidden by default."""
    devices: list[AttemptDevice]
    stopped_for: StoppedForView | None = None
    """Of a preempted one: for which job. Null also if that was deleted since, or a cluster has preempted it."""
    environment: AttemptEnvironment | None = None
    """None if it ran in the worker's environment."""
    duration_seconds: float | None = None
    """None as long as it runs."""
