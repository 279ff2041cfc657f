"""The CPU time of short commands: `python -m bench.cli`.

Each command is a process of its own, against a real service with a job that has ended. Two peers take turns with it: a
Python that does nothing, and one that imports typer and httpx2.
"""

from collections.abc import Iterator, Mapping, Sequence
import os
import resource
import subprocess
import sys

from bench import table
from bench.service import Service, scratch, script, up, wait_for
from bench.table import Row

REPEATS = 15
_JOBS = 20
_PEER = "import typer, httpx2"
_NOTHING = "python -c pass"
_MOST = {"ps": 1.2, "show": 1.2, "logs": 1.2, "ps --json": 1.2, "show --json": 1.2, "--version": 0.6}
_COMPLETION_S = 0.1
_COMPLETION = "the names of jobs after `torchyard show` and Tab"
_COMPLETING = {"_TORCHYARD_COMPLETE": "complete_bash", "COMP_WORDS": "torchyard show ", "COMP_CWORD": "2"}
_PROGRAM = "for number in range(100):\n    print(number)\n"


def measure() -> Iterator[Row]:
    with scratch() as folder, up(folder) as service, service.client() as client:
        wait_for(client.workers.list, "the worker, which may start after the API")
        jobs = [client.submit(script(folder / "code" / "one", _PROGRAM)) for _ in range(_JOBS)]
        for job in jobs:
            client.wait(job.id)
        yield from _rows(service, jobs[0].id)


def _rows(service: Service, job_id: str) -> Iterator[Row]:
    commands = {
        "ps": ("ps",),
        "show": ("show", job_id),
        "logs": ("logs", job_id),
        "--version": ("--version",),
        "ps --json": ("ps", "--json"),
        "show --json": ("show", job_id, "--json"),
        "--help": ("--help",),
    }
    own = {name: ("-P", "-m", "torchyard", *words) for name, words in commands.items()}
    programs = {**own, _COMPLETION: ("-P", "-m", "torchyard"), _PEER: ("-c", _PEER), _NOTHING: ("-c", "pass")}
    env = {**os.environ, "TORCHYARD_URL": service.url, "TORCHYARD_TOKEN": service.token}
    env.pop("PYTHONDONTWRITEBYTECODE", None)
    found: dict[str, list[float]] = {name: [] for name in programs}
    for repeat in range(REPEATS + 1):
        for name, words in programs.items():
            more = _COMPLETING if name == _COMPLETION else {}
            seconds = _processor_s([sys.executable, *words], {**env, **more})
            if repeat:  # the first one compiles what it imports
                found[name].append(seconds)
    for name in own:
        what = f"CPU time of `torchyard {name}`"
        most = _MOST.get(name)
        yield Row(what, "s", found[name], peer=_PEER, theirs=found[_PEER], ratio_at_most=most)
        yield Row(f"– {name}, beside an empty Python", "s", found[name], peer=_NOTHING, theirs=found[_NOTHING])
    what = f"CPU time of {_COMPLETION}"
    yield Row(what, "s", found[_COMPLETION], peer=_NOTHING, theirs=found[_NOTHING], at_most=_COMPLETION_S)


def _processor_s(command: Sequence[str], env: Mapping[str, str]) -> float:
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run(command, env=env, check=True, stdout=subprocess.DEVNULL)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


if __name__ == "__main__":
    table.main(measure)
