"""Whether jobs would start warm: a warm process is started for that, and ended."""

from collections.abc import Mapping
import time

from worker.doctor.findings import Finding, ok, warning
from worker.engines.local.warm.keeper import NotWarm, WarmProcess

_READY_S = 120.0


def look(env: Mapping[str, str]) -> Finding:
    """`env` is what a job inherits."""
    warm = WarmProcess(env)
    began = time.monotonic()
    warm.open()
    try:
        warm.modules(wait_s=_READY_S)
    except NotWarm as error:
        return warning("starts", f"jobs start by torchrun, which takes seconds: {error}", "look at what it says above")
    finally:
        warm.close()
    return ok("starts", f"jobs start warm: the warm process was ready after {time.monotonic() - began:.1f} s")
