"""Prepares and starts one attempt. An error that its start meets becomes an observation for `lifecycle`."""

from collections.abc import Callable
from typing import TypeVar

from store.db.tables import Attempt, Job
from torchyard.contract import disk
from torchyard.contract.errors import ConfigError, DataError, InvalidSpec
from torchyard.contract.job import EndReason
from torchyard.contract.records import ExitReport
from worker.attempts.lifecycle import Failed, Prepared, Unprepared
from worker.attempts.notices import Notices
from worker.attempts.prepare import Preparation
from worker.engines.base import Engine, Handle, Plan

T = TypeVar("T")

_TOPIC = "prepare"


class Startup:
    """Starts one attempt by `engine`. Both methods raise what the store raises."""

    def __init__(self, engine: Engine, preparation: Preparation, *, notices: Notices) -> None:
        self._engine = engine
        self._preparation = preparation
        self._notices = notices
        self._plan: Plan | None = None

    def prepare(self, row: Attempt, job: Job) -> Prepared | Unprepared | Failed:
        """Writes the run directory."""
        plan = self._try(lambda: self._preparation.prepare(job, claimed_at=row.started_at))
        if isinstance(plan, Unprepared | Failed):
            return plan
        self._plan = plan
        return Prepared()

    def start(self) -> Handle | Unprepared | Failed:
        """Has the engine start the attempt, after `prepare`."""
        plan = self._plan
        assert plan is not None
        handle = self._try(lambda: self._engine.start(plan))
        if isinstance(handle, Handle):
            self._notices.report_recovery(_TOPIC, "the attempt was prepared, and starts now")
        return handle

    def _try(self, step: Callable[[], T]) -> T | Unprepared | Failed:
        try:
            return step()
        except DataError as error:
            return _failed(EndReason.DATA_ERROR, error.message)
        except (ConfigError, InvalidSpec) as error:
            return _failed(EndReason.CONFIG_ERROR, error.message)
        except OSError as error:
            return self._refused(error)

    def _refused(self, error: OSError) -> Unprepared | Failed:
        """Waits while a disk is full. A broken disk costs no restart."""
        if error.errno in disk.SCARCE:
            self._notices.report_problem(_TOPIC, f"the attempt cannot be prepared now, and waits: {error}")
            return Unprepared(str(error))
        reason = EndReason.WORKER_LOST if error.errno in disk.PASSING else EndReason.LAUNCH_FAILED
        return _failed(reason, f"the attempt cannot be prepared: {error}")


def _failed(reason: EndReason, message: str) -> Failed:
    return Failed(ExitReport(reason=reason, message=message))
