"""Many short jobs, beside plain Python processes of the same script: `python -m bench.batch`."""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
import subprocess
import sys
import time

from bench import table
from bench.service import scratch, script, up, wait_for
from bench.table import Row
from torchyard.client import Client
from torchyard.contract.states import JobState

REPEATS = 5
JOBS = 100
SLOTS = 2
_WARM_UP = 4
"""Jobs before the first measured one."""


def measure() -> Iterator[Row]:
    ours: list[float] = []
    theirs: list[float] = []
    with scratch() as folder, up(folder, slots=SLOTS) as service, service.client() as client:
        wait_for(client.workers.list, "the worker, which may start after the API")
        code = folder / "code"
        _through_service(client, code, jobs=_WARM_UP)
        for _ in range(REPEATS):
            ours.append(_through_service(client, code, jobs=JOBS))
            theirs.append(_plain_python(code / "train.py", times=JOBS))
    yield Row(
        f"{JOBS} one-device scripts that do nothing, {SLOTS} slots",
        "s",
        ours,
        peer=f"python, {SLOTS} at a time",
        theirs=theirs,
        at_most=4,
    )


def _through_service(client: Client, code: Path, *, jobs: int) -> float:
    """Returns the seconds from the first POST until the client knows that all jobs have succeeded."""
    spec = script(code, "")
    began = time.monotonic()
    submitted = [client.submit(spec).id for _ in range(jobs)]
    for job_id in submitted:
        job = client.wait(job_id)
        assert job.state is JobState.SUCCEEDED, job.status_reason
    return time.monotonic() - began


def _plain_python(program: Path, *, times: int) -> float:
    def run(_: int) -> None:
        subprocess.run([sys.executable, program], check=True)

    began = time.monotonic()
    with ThreadPoolExecutor(SLOTS) as pool:
        list(pool.map(run, range(times)))
    return time.monotonic() - began


if __name__ == "__main__":
    table.main(measure)
