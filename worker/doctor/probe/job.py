"""Runs a probe on nodes of a cluster as one job, and collects what they have found out."""

from collections.abc import Sequence
import contextlib
from dataclasses import dataclass, replace
import secrets
import time
from typing import Literal

from torchyard.host.recordfiles import write_record
from torchyard.host.untrusted import read_tail, read_untrusted
from worker.doctor.probe.facts import NodeFacts, Outcome, ProbeFolder, ProbeRequest
from worker.engines.slurm.commands import Commands, NoAnswer, Refused, Submission
from worker.engines.slurm.listing import Job, parse

_SCRIPT = """#!/bin/sh
exec srun --ntasks-per-node=1 --export=ALL \\
  "$SLURM_TORCHYARD_PYTHON" -P -m worker.doctor.probe.node "$SLURM_TORCHYARD_PROBE"
"""
_LOOK_S, _ASK_S = 0.5, 3.0
_LOG_BYTES = 4_000


@dataclass(frozen=True)
class Patience:
    """How long the doctor waits."""

    unlisted_s: float = 100.0
    """For a job that was submitted and is not listed."""
    queued_s: float = 120.0
    """For the start of the job: its partition may be full."""
    meet_s: float = 90.0
    """For nodes to meet each other."""
    running_s: float = 180.0
    ended_s: float = 70.0
    """For files of a job that has ended: a network file system may show a new name 60 s late."""


PATIENCE = Patience()


def run_probe(
    folder: ProbeFolder,
    request: ProbeRequest,
    commands: Commands,
    *,
    options: Sequence[str],
    python: str,
    patience: Patience,
) -> Outcome:
    """Runs the job, and cancels what is left of it. `options`: further ones of sbatch. Raises OSError."""
    write_record(folder.request, request)
    name = f"ty-doctor-{secrets.token_hex(8)}"
    submission = Submission(
        options=[
            f"--job-name={name}",
            f"--nodes={request.nodes}",
            *("--ntasks-per-node=1", "--no-requeue", "--open-mode=append", "--time=5"),
            f"--output={folder.log}",
            f"--chdir={folder.root}",
            *options,
        ],
        variables={"SLURM_TORCHYARD_PYTHON": python, "SLURM_TORCHYARD_PROBE": str(folder.root)},
        script=_SCRIPT,
    )
    began, listed, outcome = time.time(), _Listed(commands, name), Outcome()
    try:
        refused = _submit(commands, submission)
        outcome = _followed(folder, request, listed, patience)
        outcome = replace(outcome, began=began, ended=time.time())
        return replace(outcome, refused=refused) if refused and not listed.seen and not outcome.facts else outcome
    except Refused as error:
        return Outcome(refused=str(error))
    finally:
        if len(outcome.facts) < request.nodes:
            _cancel(commands, name)


class _Listed:
    """What Slurm says of one job, asked for now and then."""

    def __init__(self, commands: Commands, name: str) -> None:
        self._commands = commands
        self._name = name
        self._asked_at = 0.0
        self._job: Job | None = None
        self.seen = False

    def job(self) -> Job | None:
        """Returns the job as it was listed last; None: it was not listed."""
        if time.monotonic() - self._asked_at >= _ASK_S:
            self._asked_at = time.monotonic()
            with contextlib.suppress(NoAnswer):
                self._job = parse(self._commands.list_jobs()).get(self._name)
                self.seen = self.seen or self._job is not None
        return self._job

    def phase(self) -> Literal["unlisted", "queued", "running", "ended"]:
        job = self.job()
        if job is None:
            return "ended" if self.seen else "unlisted"
        return "queued" if job.queued else "ended" if job.ended else "running"


def _submit(commands: Commands, submission: Submission) -> str | None:
    """Returns why it is not known whether the job exists, if so. Raises Refused."""
    try:
        commands.submit(submission)
    except NoAnswer as error:
        return str(error)
    return None


def _followed(folder: ProbeFolder, request: ProbeRequest, listed: _Listed, patience: Patience) -> Outcome:
    """Waits until all nodes have reported what they know, or the job has been in one phase for too long."""
    phase, since = listed.phase(), time.monotonic()
    while True:
        facts, now = _collected(folder, request), listed.phase()
        if now != phase:
            phase, since = now, time.monotonic()
        is_over = time.monotonic() - since > getattr(patience, f"{phase}_s")
        if len(facts) == request.nodes or is_over:
            job = listed.job()
            waits = job.reason if job is not None and job.queued and not facts else None
            return Outcome(facts, _log(folder), waits=waits, state=None if job is None else job.state)
        time.sleep(_LOOK_S)


def _collected(folder: ProbeFolder, request: ProbeRequest) -> list[NodeFacts]:
    there = folder.names()
    files = [folder.facts(rank) for rank in range(request.nodes)]
    reports = (read_untrusted(path, NodeFacts) for path in files if path.name in there)
    return [facts for facts in reports if facts is not None]


def _log(folder: ProbeFolder) -> str:
    return read_tail(folder.log, _LOG_BYTES).decode("utf-8", "replace")


def _cancel(commands: Commands, name: str) -> None:
    with contextlib.suppress(NoAnswer):  # then its time limit of five minutes ends it
        commands.cancel(name)
