"""Checks whether jobs may have packages of their own, and which variables of the worker they get."""

import os

from torchyard.contract.wire.units import format_duration
from worker.doctor.findings import Finding, failed, ok
from worker.host import job_variables
from worker.packages import rules
from worker.sandbox import levels
from worker.sandbox.levels import Isolation
from worker.settings import Settings

_INSTALL = "install the versions of requirements.lock, which has uv"


def check_variables(settings: Settings) -> Finding:
    """Tells the names alone: a value may have a password."""
    names = job_variables.names_in(settings.job_variables)
    missing = [name for name in names if name not in job_variables.given({**os.environ, job_variables.VARIABLE: name})]
    if missing:
        return failed(
            "variables",
            f"TORCHYARD_JOB_VARIABLES names {', '.join(missing)}, which the worker's environment does not have",
            "set it for the worker, or leave it out of the list",
        )
    return ok("variables", f"every job can read {', '.join(names)}" if names else "jobs get no variables of the worker")


def check_packages(settings: Settings) -> Finding:
    """Starts nothing, and asks no index."""
    allowed = settings.package_rules(levels.OFF)
    if not allowed.allowed:
        return ok("packages", "jobs get no packages of their own: TORCHYARD_PACKAGES is forbid")
    if settings.isolation is Isolation.STRICT:
        return ok("packages", "jobs get no packages of their own: isolation is strict")
    version = rules.version("uv")
    if not version:
        return failed("packages", "uv is not installed, so jobs get no packages of their own", _INSTALL)
    limit = format_duration(allowed.timeout)
    return ok("packages", f"jobs may have packages of their own: uv {version}, from {allowed.shown_index}, in {limit}")
