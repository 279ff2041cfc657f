"""Checks how jobs would be isolated."""

from pathlib import Path

from torchyard.contract.errors import ConfigError
from worker.doctor.findings import Finding, failed, ok, warning
from worker.sandbox import levels, threads
from worker.sandbox.levels import Isolation
from worker.sandbox.strict.requirements import HelperNeeds

_DEVICES = Path("/dev")
_ADVICE = "docs/operating/isolation.md says what this means, and how to allow it"


def check_isolation(isolation: Isolation, needs: HelperNeeds | None = None) -> Finding:
    """Forks a child, so no other thread may run."""
    try:
        level = levels.level_of(isolation, needs=needs)
    except ConfigError as error:
        return failed("isolation", error.message, _ADVICE)
    if (
        level.level in {"basic", "landlock"}
        and level.filtered
        and any(_DEVICES.glob("nvidia*"))
        and not threads.is_allowed()
    ):
        problem = "jobs with GPUs cannot use CUDA: what runs this worker lets no filter of system calls ask a process"
        return warning("isolation", problem, "run the worker outside of that container, or with strict isolation")
    fact = levels.describe(level)
    return warning("isolation", fact, _ADVICE) if level.lacks else ok("isolation", fact)
