"""Stands in for the commands of Slurm: jobs are real processes of this host, and a folder is what Slurm remembers.

`install` makes the executables. A test says what Slurm does wrong by `Slurm.fault`. Most commands end at once, so that
they import nothing of ours, and nobody's packages.
"""

from collections.abc import Callable, Generator, Mapping, Sequence
import contextlib
from dataclasses import asdict, dataclass, replace
from datetime import timedelta
import fcntl
import json
import os
from pathlib import Path
import signal
import subprocess
import sys
import time
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from torchyard.contract.attempts.records import ProcessIdentity

_ROOT = Path(__file__).parents[4]
_KILL_WAIT_S = 3.0
_POLL_S = 0.02
_COMMANDS = ("sbatch", "scontrol", "scancel", "sinfo", "srun")
_OWN_NAME = "tests.worker.engines.slurm.stand_in"
_NODE_PROGRAM = "tests.worker.engines.slurm.node_program"


_SQUEUE = """#!/bin/sh
said=$(cat {folder}/fault-squeue 2>/dev/null)
case "$said" in
    empty) exit 0 ;;
    fails*) echo "squeue: error: ${{said#fails }}" >&2; exit 1 ;;
esac
cat {folder}/jobs/*.line 2>/dev/null
exit 0
"""
"""It is asked all the time, so it is no Python program."""


@dataclass(frozen=True)
class Job:
    id: int
    name: str
    state: str
    reason: str = "None"
    nodes: str = ""
    batch: int = 0
    """The pid of its batch script."""
    runner: int = 0
    """The pid of the process that runs it."""


@dataclass(frozen=True)
class Slurm:
    """What the stand-in remembers. `folder` belongs to it alone."""

    folder: Path

    @classmethod
    def install(cls, folder: Path) -> "Slurm":
        (folder / "jobs").mkdir(parents=True)
        (folder / "bin").mkdir()
        for name in _COMMANDS:
            command = folder / "bin" / name
            arguments = f"-P -S -m {_OWN_NAME} {folder} {name}"
            command.write_text(f'#!/bin/sh\nPYTHONPATH={_ROOT} exec {sys.executable} {arguments} "$@"\n')
            command.chmod(0o755)
        squeue = folder / "bin" / "squeue"
        squeue.write_text(_SQUEUE.format(folder=folder))
        squeue.chmod(0o755)
        return cls(folder)

    def environ(self) -> dict[str, str]:
        """The variables of a daemon that uses it."""
        return {**os.environ, "PATH": f"{self.folder / 'bin'}{os.pathsep}{os.environ['PATH']}"}

    def fault(self, command: str, what: str) -> None:
        """Has a command go wrong from now on: `fails TEXT`, `loses` (sbatch), `empty` (squeue) or nothing."""
        (self.folder / f"fault-{command}").write_text(what)

    def hold(self, *, held: bool = True) -> None:
        """Leaves new jobs pending, or starts those that are."""
        if held:
            (self.folder / "held").touch()
            return
        (self.folder / "held").unlink()
        for job in self.jobs():
            if job.state == "PENDING":
                _launch(self, job)

    def jobs(self) -> list[Job]:
        found = [json.loads(path.read_text()) for path in sorted((self.folder / "jobs").glob("*.json"))]
        return [Job(**job) for job in found]

    def save(self, job: Job) -> None:
        path = self.folder / "jobs" / f"{job.id:06}.json"
        path.with_suffix(".new").write_text(json.dumps(asdict(job)))
        path.with_suffix(".new").rename(path)
        path.with_suffix(".new").write_text(f"{job.id}|{job.state}|{job.reason}|N/A|{job.nodes}|{job.name}\n")
        path.with_suffix(".new").rename(path.with_suffix(".line"))

    def change(self, job_id: int, change: Callable[[Job], Job]) -> None:
        with self.locked():
            for job in self.jobs():
                if job.id == job_id:
                    self.save(change(job))

    def forget(self) -> None:
        """Loses all that it remembers, as a controller does whose state was lost. What runs goes on."""
        for path in [*(self.folder / "jobs").glob("*.line"), *(self.folder / "jobs").glob("*.json")]:
            path.unlink()

    def submissions(self) -> list[list[str]]:
        """The arguments of each call of sbatch."""
        path = self.folder / "submissions"
        return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []

    def end(self) -> None:
        """Ends all that runs, and all that is about to: a job that has just started is in no file yet."""
        from worker.host import process

        assert process.kill_all(self._processes, timeout=timedelta(seconds=60)) == []

    def _processes(self) -> "list[ProcessIdentity]":
        """Finds commands and jobs by their arguments or variables, which name this folder, and what they started."""
        from worker.host import process

        named = [int(entry.name) for entry in os.scandir("/proc") if entry.name.isdecimal() and self._names(entry.path)]
        return [*filter(None, map(process.identity, named)), *process.descendants(*named)]

    def _names(self, path: str) -> bool:
        folder = str(self.folder).encode()
        try:
            arguments = Path(path, "cmdline").read_bytes().split(b"\0")
            variables = Path(path, "environ").read_bytes().split(b"\0")
        except OSError:  # it has ended
            return False
        return any(item.startswith(folder) for item in arguments) or b"HOME=" + folder in variables

    @contextlib.contextmanager
    def locked(self) -> Generator[None]:
        with (self.folder / "lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            yield


def main() -> None:
    slurm, command, arguments = Slurm(Path(sys.argv[1])), sys.argv[2], sys.argv[3:]
    if command == "runner":
        _run(slurm, int(arguments[0]))
        return
    fault = slurm.folder / f"fault-{command}"
    what = fault.read_text() if fault.exists() else ""
    if what.startswith("fails"):
        sys.exit(f"{command}: error: {what[6:]}")
    options = _options(arguments)
    {
        "sbatch": lambda: _sbatch(slurm, options, arguments, loses=what == "loses"),
        "scontrol": lambda: _say(f"PartitionName={arguments[2]} MaxTime=1-00:00:00 State=UP TotalNodes=2"),
        "scancel": lambda: _scancel(slurm, options),
        "sinfo": lambda: _say("n1|idle|8|16000|gpu:2\nn2|mixed|8|16000|gpu:2\nn3|down*|8|16000|gpu:2"),
        "srun": lambda: _srun(options, arguments),
    }[command]()


def _options(arguments: Sequence[str]) -> dict[str, str]:
    found: dict[str, str] = {}
    for argument in arguments:
        if not argument.startswith("--"):
            break
        name, _, value = argument[2:].partition("=")
        found[name] = value
    return found


def _sbatch(slurm: Slurm, options: Mapping[str, str], arguments: Sequence[str], *, loses: bool) -> None:
    with os.fdopen(int(options["export-file"]), "rb") as file:
        variables = dict(item.decode().split("=", 1) for item in file.read().split(b"\0") if item)
    script = sys.stdin.read()
    with (slurm.folder / "submissions").open("a") as file:
        file.write(json.dumps(list(arguments)) + "\n")
    with slurm.locked():
        number = max((job.id for job in slurm.jobs()), default=0) + 1
        job = Job(number, options["job-name"], "PENDING", "Resources")
        stored = {"options": options, "variables": variables, "script": script}
        (slurm.folder / f"job-{number}").write_text(json.dumps(stored))
        slurm.save(job)
    if not (slurm.folder / "held").exists():
        _launch(slurm, job)
    if loses:
        sys.exit("sbatch: error: Batch job submission failed: Socket timed out on send/recv operation")
    _say(number)


def _launch(slurm: Slurm, job: Job) -> None:
    """Starts the job, unless another one with its name has not ended."""
    with slurm.locked():
        others = [other for other in slurm.jobs() if other.name == job.name and other.id < job.id]
        if any(other.state in {"PENDING", "RUNNING"} for other in others):
            slurm.save(replace(job, reason="Dependency"))
            return
        slurm.save(replace(job, state="RUNNING", reason="None", nodes="n[1-2]"))
    python = [sys.executable, "-P", "-S", "-m", _OWN_NAME]
    command = ["setsid", "--fork", *python, str(slurm.folder), "runner", str(job.id)]
    env = {**os.environ, "PYTHONPATH": str(_ROOT)}
    with (slurm.folder / "runner.log").open("a") as log:
        subprocess.run(command, env=env, stdin=subprocess.DEVNULL, stdout=log, stderr=log, check=True)


def _run(slurm: Slurm, job_id: int) -> None:
    """Runs one job, as slurmd does: when its batch script ends, all that it has left is killed."""
    from worker.host import process

    process.become_subreaper()
    stored = json.loads((slurm.folder / f"job-{job_id}").read_text())
    options, script = stored["options"], slurm.folder / f"script-{job_id}"
    script.write_text(stored["script"])
    env = {
        "PATH": f"{slurm.folder / 'bin'}{os.pathsep}{os.defpath}",
        "HOME": str(slurm.folder),
        "SLURM_JOB_ID": str(job_id),
        "SLURM_JOB_NUM_NODES": options["nodes"],
        **stored["variables"],
    }
    with Path(options["output"]).open("ab") as log:
        batch = subprocess.Popen(["/bin/sh", str(script)], env=env, cwd="/", stdout=log, stderr=log)
    slurm.change(job_id, lambda job: replace(job, batch=batch.pid, runner=os.getpid()))
    code = batch.wait()
    process.kill_all(lambda: process.descendants(os.getpid()), timeout=None)
    ended = "COMPLETED" if code == 0 else "FAILED"
    slurm.change(job_id, lambda job: replace(job, state=ended if job.state == "RUNNING" else job.state))
    for job in slurm.jobs():
        if job.state == "PENDING" and job.reason == "Dependency":
            _launch(slurm, job)


def _scancel(slurm: Slurm, options: Mapping[str, str]) -> None:
    for job in slurm.jobs():
        if job.name != options["name"] or options.get("state", job.state) != job.state:
            continue
        if options.get("signal") == "USR1" and job.state == "RUNNING":
            os.kill(job.batch, signal.SIGUSR1)
        elif job.state == "PENDING":
            slurm.change(job.id, lambda job: replace(job, state="CANCELLED"))
        elif job.state == "RUNNING":
            slurm.change(job.id, lambda job: replace(job, state="CANCELLED"))
            _terminate(job)


def _terminate(job: Job) -> None:
    """Ends all processes of a job: by SIGTERM, and after a while by SIGKILL. Does not wait."""
    from worker.host import process

    if os.fork():
        return
    for number, wait_s in ((signal.SIGTERM, _KILL_WAIT_S), (signal.SIGKILL, 0.0)):
        for item in process.descendants(job.runner):
            process.send(item, number)
        deadline = time.monotonic() + wait_s
        while time.monotonic() < deadline and process.descendants(job.runner):
            time.sleep(_POLL_S)
    os._exit(0)


def _srun(options: Mapping[str, str], arguments: Sequence[str]) -> None:
    """Starts the program once for each node. All get its input; one that fails ends the others."""
    given = sys.stdin.buffer.read()
    command = [_NODE_PROGRAM if item == "worker.engines.slurm.node" else item for item in arguments[len(options) :]]
    tasks: list[subprocess.Popen[bytes]] = []
    for node in range(int(options.get("nodes", os.environ["SLURM_JOB_NUM_NODES"]))):
        env = {**os.environ, "SLURM_NODEID": str(node), "SLURMD_NODENAME": f"n{node + 1}", "PYTHONPATH": str(_ROOT)}
        with Path(options.get("output", "/dev/stdout").replace("%n", str(node))).open("ab") as log:
            tasks.append(subprocess.Popen(command, env=env, stdin=subprocess.PIPE, stdout=log, stderr=log))
        assert tasks[-1].stdin is not None
        with contextlib.suppress(BrokenPipeError), tasks[-1].stdin as stdin:
            stdin.write(given)
    while any(task.poll() is None for task in tasks):
        if any(task.poll() for task in tasks):
            for task in tasks:
                task.kill()
        time.sleep(_POLL_S)
    sys.exit(max((task.returncode for task in tasks), key=abs))


def _say(text: object) -> None:
    sys.stdout.write(f"{text}\n")


if __name__ == "__main__":
    main()
