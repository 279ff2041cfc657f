"""Checks how jobs would be isolated."""

from torchyard.contract.errors import ConfigError
from worker.doctor.findings import Finding, failed, ok, warning
from worker.sandbox import levels
from worker.sandbox.levels import Isolation
from worker.sandbox.strict.requirements import HelperNeeds

_ADVICE = "docs/security.md says what this means, and how a kernel or a container allows it"


def check_isolation(isolation: Isolation, needs: HelperNeeds | None = None) -> Finding:
    """Forks a child, so no other thread may run."""
    try:
        found = levels.level_of(isolation, needs=needs)
    except ConfigError as error:
        return failed("isolation", error.message, _ADVICE)
    fact = f"jobs are {levels.describe(found)}"
    return warning("isolation", fact, _ADVICE) if found.lacks else ok("isolation", fact)
