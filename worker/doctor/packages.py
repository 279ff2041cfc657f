"""Checks whether jobs may have packages of their own."""

from torchyard.contract.durations import format_duration
from worker.doctor.findings import Finding, failed, ok
from worker.packages import rules
from worker.sandbox import levels
from worker.sandbox.levels import Isolation
from worker.settings import Settings

_INSTALL = "install the versions of requirements.lock, which has uv"


def check_packages(settings: Settings) -> Finding:
    """Starts nothing, and asks no index."""
    found = settings.package_rules(levels.OFF)
    if not found.allowed:
        return ok("packages", "jobs get no packages of their own: TORCHYARD_PACKAGES is forbid")
    if settings.isolation is Isolation.STRICT:
        return ok("packages", "jobs get no packages of their own: isolation is strict")
    version = rules.version("uv")
    if not version:
        return failed("packages", "uv is not installed, so jobs get no packages of their own", _INSTALL)
    limit = format_duration(found.timeout)
    return ok("packages", f"jobs may have packages of their own: uv {version}, from {found.shown_index}, in {limit}")
