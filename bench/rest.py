"""Memory and CPU of an idle service, and CPU of each running job: `python -m bench.rest`.

Memory is the proportional set size (PSS), which counts shared memory once.
"""

from collections.abc import Iterable, Iterator
from pathlib import Path
import re
import time

from bench import table
from bench.peers import inserts
from bench.service import Service, scratch, script, up, wait_for
from bench.table import Row
from tests.chaos.job_processes import warm_process_of
from torchyard.client import Client
from torchyard.contract.attempts.records import ProcessIdentity
from torchyard.contract.attempts.rundir import RunDir
from torchyard.contract.states import JobState
from torchyard.host.recordfiles import read_record

SETTLE_S = 5.0
WATCH_S = 30.0
JOBS = 2
_PEER = "FastAPI, one insert"
_SLEEPER = "import time\nprint('sleeps')\ntime.sleep(3600)"


def measure() -> Iterator[Row]:
    with scratch() as folder, up(folder) as service, inserts.running(f"sqlite:///{folder / 'peer.db'}") as peer:
        time.sleep(SETTLE_S)
        worker = service.pids["worker"]
        busy, peer_busy, idle = _shares(service.pids.values(), [peer.pid], [worker])
        memory = {name: pss_mib(pid) for name, pid in service.pids.items()}
        yield Row(
            "memory of the idle service",
            "MiB",
            [sum(memory.values())],
            peer=_PEER,
            theirs=[pss_mib(peer.pid)],
            at_most=175,
        )
        for name, size in memory.items():
            yield Row(f"– {name}", "MiB", [size])
        with_warm = sum(memory.values()) + pss_mib(_warm_process(service))
        yield Row("– with the warm process", "MiB", [with_warm], at_most=680)
        yield Row("CPU of the idle service", "% of a core", [busy], peer=_PEER, theirs=[peer_busy], at_most=1.0)
        with service.client() as client:
            supervisors = _running(service, client, folder / "code")
            time.sleep(SETTLE_S)
            working, supervising = _shares([worker], supervisors)
        each = (working - idle) / JOBS
        yield Row("CPU of the worker for each silent running job", "% of a core", [each], at_most=0.3)
        yield Row("– of its supervisor", "% of a core", [supervising / JOBS])


def _warm_process(service: Service) -> int:
    """Returns the warm process's pid once it is ready."""

    def is_warm() -> bool:
        with service.client() as client:
            return all(worker.starts is not None and worker.starts.mode == "warm" for worker in client.workers.list())

    wait_for(is_warm, "the warm process", pause=0.1)
    return wait_for(lambda: warm_process_of(service.pids["worker"]), "the warm process")


def pss_mib(pid: int) -> float:
    found = re.search(r"^Pss: +(\d+) kB", Path(f"/proc/{pid}/smaps_rollup").read_text(), re.MULTILINE)
    assert found is not None
    return int(found[1]) / 1024


def _running(service: Service, client: Client, code: Path) -> list[int]:
    """Starts jobs that sleep, and returns the pids of their supervisors."""
    jobs = [client.submit(script(code, _SLEEPER)).id for _ in range(JOBS)]
    wait_for(lambda: all(client.get(job).state == JobState.RUNNING for job in jobs), "the jobs to run", pause=0.1)
    runs = [RunDir(service.data / "runs" / job / "1") for job in jobs]
    found = [read_record(run.supervisor, ProcessIdentity) for run in runs]
    return [supervisor.pid for supervisor in found if supervisor is not None]


def _shares(*groups: Iterable[int]) -> list[float]:
    """Returns the share of a core that each group of processes uses, in percent."""
    pids = [list(group) for group in groups]
    before = [cpu_ns(group) for group in pids]
    began = time.monotonic()
    time.sleep(WATCH_S)
    share = 100 / 1e9 / (time.monotonic() - began)
    return [(cpu_ns(group) - earlier) * share for group, earlier in zip(pids, before, strict=True)]


def cpu_ns(pids: Iterable[int]) -> int:
    """Returns the processor time of all live threads, in nanoseconds. Idle processes end no thread."""
    threads = (thread for pid in pids for thread in Path(f"/proc/{pid}/task").iterdir())
    return sum(int((thread / "schedstat").read_text().split()[0]) for thread in threads)


if __name__ == "__main__":
    table.main(measure)
