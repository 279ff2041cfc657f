"""The CPU time of a worker while 200 jobs wait and nothing happens: `python -m bench.scheduling.idle`.

A real service on SQLite, with Redis. One job holds all slots, and 200 jobs of 20 owners wait, with many different
resources. The time is measured after the first replay. The next replays come minutes later. Their share is added: it
is fixed, because a replay pauses in proportion to what it took. `python -m bench.scheduling.idle TREE` also measures
the worker of another checkout, at the same time.
"""

from collections.abc import Generator, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
import sys
import time
from typing import Any

from bench import table
from bench.rest import cpu_ns
from bench.service import Service, scratch, script, up, wait_for
from bench.table import Row
from torchyard.client import Client
from torchyard.contract.states import JobState
from worker.placement.pace import UNCHANGED_REST

SLOTS = 4
OWNERS, EACH = 20, 10
SETTLE_S = 30.0
"""Long enough for all that the first passes have to store."""
WATCH_S = 90.0
REPEATS = 3
_BEFORE = "the other checkout"


def measure(before: Path | None = None) -> Iterator[Row]:
    with scratch() as folder, ExitStack() as stack:
        ours = stack.enter_context(_filled(folder / "ours"))
        services = [ours, *([stack.enter_context(_filled(folder / "before", tree=before))] if before else [])]
        _wait_for_estimates(ours)
        time.sleep(SETTLE_S)
        shares = [_shares(services) for _ in range(REPEATS)]
    own = [share[0] for share in shares]
    theirs = [share[1] for share in shares if before]
    where = f"{OWNERS * EACH} jobs wait, SQLite"
    yield Row(f"CPU of the idle worker between replays, {where}", "% of a core", own, _BEFORE if before else "", theirs)
    with_replays = [share + 100 / UNCHANGED_REST for share in own]
    yield Row(f"CPU of the idle worker, {where}", "% of a core", with_replays, at_most=1.0)


@contextmanager
def _filled(folder: Path, *, tree: Path | None = None) -> Generator[Service]:
    """Runs a service in which nothing can start: one job holds all slots, and the others wait."""
    folder.mkdir()
    with up(folder, slots=SLOTS, tree=tree) as service, service.client() as admin:
        sleeper = script(folder / "code", "import time\nwhile True: time.sleep(3600)", processes=SLOTS)
        running = admin.submit(sleeper | {"time_limit": "7d"})
        wait_for(lambda: admin.get(running.id).state == JobState.RUNNING, "the job that holds all slots", pause=0.1)
        for number in range(OWNERS):
            admin.users.add(name := f"owner-{number}")
            with Client(service.url, admin.tokens.make(name="bench", user=name).token) as owner:
                owner.jobs.submit_batch([_waiting(sleeper, number, place) for place in range(EACH)])
        yield service


def _wait_for_estimates(service: Service) -> None:
    with service.client() as client:
        last = next(client.jobs.list(state=[JobState.QUEUED])).id
        wait_for(lambda: client.get(last).view.status_reason.estimate, "the first estimates", pause=0.5)


def _waiting(spec: dict[str, Any], owner: int, place: int) -> dict[str, Any]:
    resources = {"devices_per_node": place % SLOTS + 1, "device": "cpu"}
    return spec | {"resources": resources, "time_limit": f"{(owner + place) % 5 + 1}h", "preemptible": place % 3 == 0}


def _shares(services: Sequence[Service]) -> list[float]:
    """Returns the share of a core that the worker of each service uses, in percent."""
    workers = [[service.pids["worker"]] for service in services]
    before, began = [cpu_ns(worker) for worker in workers], time.monotonic()
    time.sleep(WATCH_S)
    share = 100 / 1e9 / (time.monotonic() - began)
    return [(cpu_ns(worker) - earlier) * share for worker, earlier in zip(workers, before, strict=True)]


if __name__ == "__main__":
    table.main(partial(measure, Path(sys.argv[1]).resolve() if len(sys.argv) > 1 else None))
