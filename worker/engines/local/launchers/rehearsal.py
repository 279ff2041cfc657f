"""Does once, in the warm process, what each of its forks would otherwise do anew: it fills the caches of what they use.

It matters twice: a fork also copies each page on which it changes so much as a count of references.
"""

from datetime import timedelta
import os

from torchyard.contract.attempts.records import ExitReport, LaunchPlan, Sandbox, StopRequest
from torchyard.contract.states import EndReason
from torchyard.host.identity import identity_of
from worker.engines.local.launchers import fork
from worker.engines.local.launchers.agent import AgentReport
from worker.sandbox import seccomp

_SANDBOX = Sandbox(landlock=True, own_mounts=True, readable=["/usr"], writable=[], devices=[], temporary="/tmp/x")  # noqa: S108
_PLAN = LaunchPlan(
    job_id="job_x",
    attempt=1,
    claimed_at=1,
    launcher="warm",
    argv=["train.py"],
    env={"PATH": "/usr/bin"},
    rank_env={"NAME": "value"},
    cwd="/",
    umask=0o077,
    world_size=1,
    time_limit=timedelta(hours=1),
    stall_timeout=timedelta(hours=1),
    stop_grace=timedelta(minutes=1),
    reports=False,
    sandbox=_SANDBOX,
)
"""Such records as an attempt has. What they say does not matter."""


def rehearse() -> None:
    """Call it after all imports."""
    stop = StopRequest(reason=EndReason.CANCELLED, grace=timedelta(seconds=1))
    identity = identity_of(os.getpid())
    for record in (_PLAN, stop, ExitReport(reason=EndReason.COMPLETED), AgentReport(failures=[[0, 1]]), identity):
        if record is not None:
            type(record).from_json(record.to_json())
    if seccomp.is_allowed():
        for others in (False, True):
            seccomp.program(others=others)
    fork.prepare()
