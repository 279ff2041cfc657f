"""A sweep and a schedule beside the jobs of a chaos run: what a controller makes of them is made once."""

from collections import Counter
from contextlib import suppress
import time
from typing import Any

from torchyard.client import Client
from torchyard.contract.errors import TorchyardError
from torchyard.contract.jobs.views import JobSummary

SCRIPT = """
import torchyard

run = torchyard.init()
run.log({"val/loss": 1.0}, step=1)
"""


class Experiments:
    """Begun before the faults. `code`: where SCRIPT is, as trial.py."""

    def __init__(self, client: Client, *, code: str, trials: int) -> None:
        self._client, self._trials = client, trials
        self._job: dict[str, Any] = {
            "trainer": "script",
            "config": {"code": code, "entrypoint": "trial.py"},
            "resources": {"device": "cpu"},
            "max_restarts": 1000,
            "stall_timeout": "3m",
        }
        self._began = time.monotonic()
        self._sweep = self._schedule = ""

    def begin(self) -> None:
        """Submits the sweep and the schedule."""
        spec = {"name": "chaos-sweep", "method": "array", "trials": self._trials, "max_parallel": 1, "job": self._job}
        self._sweep = self._client.sweeps.create(spec).id
        often = {"cron": "* * * * *", "overlap": "queue"}
        self._schedule = self._client.schedules.create(self._job | {"name": "chaos-nightly", "schedule": often}).id

    def over(self) -> bool:
        """Pauses the schedule. Returns whether all that was made has ended."""
        with suppress(TorchyardError):  # the service may be away
            if self._client.schedules.pause(self._schedule).state != "paused":
                return False
            jobs = [*self._trials_made(), *self._runs()]
            finished = self._client.sweeps.get(self._sweep).state == "finished"
            return finished and all(job.state.terminal for job in jobs)
        return False

    def told(self) -> set[str]:
        """Returns the jobs whose ends are told: of trials only whom they name is told."""
        return {job.id for job in self._runs() if job.state.terminal}

    def violations(self) -> list[str]:
        """Returns a sentence for each violation."""
        made = Counter(job.sweep.trial for job in self._trials_made() if job.sweep is not None)
        wrong = [
            f"trial {number} of the sweep has {made[number]} jobs"
            for number in sorted({*range(self._trials), *made})
            if made[number] != 1 or number >= self._trials
        ]
        wrong += [f"{job.id}: is {job.state} long after all has healed" for job in self._live()]
        minutes = (time.monotonic() - self._began) // 60 + 2
        if (runs := len(self._runs())) > minutes:
            wrong.append(f"the schedule has {runs} runs after {minutes:.0f} minutes")
        return wrong

    def _trials_made(self) -> list[JobSummary]:
        return [*self._client.jobs.list(sweep=self._sweep)]

    def _runs(self) -> list[JobSummary]:
        return [*self._client.jobs.list(schedule=self._schedule)]

    def _live(self) -> list[JobSummary]:
        return [job for job in (*self._trials_made(), *self._runs()) if not job.state.terminal]
