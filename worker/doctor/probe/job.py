"""Runs a probe on nodes of a cluster as one job, and collects what they have found out."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
import secrets
import time

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

    start_s: float = 120.0
    """For the start of the job: its partition may be full."""
    meet_s: float = 90.0
    """For nodes to meet each other."""
    run_s: float = 180.0
    unlisted_s: float = 30.0
    """Until a job that was submitted is listed."""
    late_s: float = 70.0
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
    began, has_ended = time.time(), False
    try:
        commands.submit(submission)
        found = _followed(folder, request, _Listed(commands, name), patience)
        has_ended = len(found.facts) == request.nodes
        return replace(found, began=began, ended=time.time())
    except (Refused, NoAnswer) as error:
        return Outcome(refused=str(error))
    finally:
        if not has_ended:
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
        """Returns the job as it was listed last; None: it is not listed. Raises NoAnswer."""
        if time.monotonic() - self._asked_at >= _ASK_S:
            self._job = parse(self._commands.list_jobs()).get(self._name)
            self._asked_at = time.monotonic()
            self.seen = self.seen or self._job is not None
        return self._job


def _followed(folder: ProbeFolder, request: ProbeRequest, listed: _Listed, patience: Patience) -> Outcome:
    """Looks at the folder and the listing until all nodes have told what they know, or nothing more is to come."""
    began = time.monotonic()
    running_since: float | None = None
    ended_since: float | None = None
    while True:
        facts, job, now = _collected(folder, request), listed.job(), time.monotonic()
        state = None if job is None else job.state
        if len(facts) == request.nodes:
            return Outcome(facts, _log(folder), state=state)
        if job is not None and job.queued:
            if now - began > patience.start_s:
                return Outcome(waits=job.reason, state=state)
        elif job is not None and not job.ended:
            running_since = now if running_since is None else running_since
            if now - running_since > patience.run_s:
                return Outcome(facts, _log(folder), state=state)
        elif job is not None or listed.seen or now - began > patience.unlisted_s:
            ended_since = now if ended_since is None else ended_since
            if now - ended_since > patience.late_s:
                return Outcome(facts, _log(folder), state=state)
        time.sleep(_LOOK_S)


def _collected(folder: ProbeFolder, request: ProbeRequest) -> list[NodeFacts]:
    there = folder.names()
    files = [folder.facts(rank) for rank in range(request.nodes)]
    found = (read_untrusted(path, NodeFacts) for path in files if path.name in there)
    return [facts for facts in found if facts is not None]


def _log(folder: ProbeFolder) -> str:
    return read_tail(folder.log, _LOG_BYTES).decode("utf-8", "replace")


def _cancel(commands: Commands, name: str) -> None:
    try:
        commands.cancel(name)
    except NoAnswer:
        return  # its time limit of five minutes ends it
