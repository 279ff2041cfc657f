"""Checks whether jobs would start warm, by starting and ending a warm process."""

from collections.abc import Mapping
import time

from worker.doctor.findings import Finding, ok, warning
from worker.engines.local.warm.manager import WarmProcess, WarmProcessUnavailable

_READY_S = 120.0


def check_starts(env: Mapping[str, str]) -> Finding:
    """`env`: the variables that a job inherits."""
    warm = WarmProcess(env)
    began = time.monotonic()
    warm.open()
    try:
        warm.loaded_modules(wait_s=_READY_S)
    except WarmProcessUnavailable as error:
        return warning("starts", f"jobs start with torchrun, which takes seconds: {error}", "see the messages above")
    finally:
        warm.close()
    return ok("starts", f"jobs start warm: the warm process was ready after {time.monotonic() - began:.1f} s")
