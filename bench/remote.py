"""A worker on another machine beside a local one, over a link of 1 Gbit/s with HTTPS: `python -m bench.remote`.

Needs root and curl. The other machine is made of namespaces and sees none of the service's files. The link has no
delay of its own.
"""

from collections.abc import Generator, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
import shutil
import socket
import ssl
import sys
import threading
import time
from typing import Any

import httpx2
from sqlalchemy import create_engine

from bench import relay, table
from bench.service import LIMITS, processor_s, scratch, script, wait_for
from bench.table import Row
from tests.hosts.lab import Box, Lab, missing
from tests.hosts.service import LabService, serving
from tests.worker.stand_in import TorchrunStandIn
from torchyard.client import Client, joining
from torchyard.contract.team.codes import parse_code
from torchyard.host import tls
from torchyard.host.joined import Joined
from worker.daemon import Daemon
from worker.devices.inventory import Device, Inventory
from worker.engines.local.engine import LocalEngine
from worker.remote.service import RemoteService
from worker.settings import Settings

REPEATS = 5
_DIRECT = "the service's own worker"
_FIRST_STEP = """
import time, torch
model = torch.nn.Linear(8, 1)
model(torch.randn(4, 8)).sum().backward()
print(time.time(), flush=True)
"""
_BYTES = 1 << 30
_UPLOADS = 3
_CHECKPOINTS = f"""
import os, pathlib, time, torchyard
run = torchyard.init()
here = pathlib.Path(__file__).parent
def write(file):
    for _ in range({_BYTES >> 24}):
        file.write(os.urandom(1 << 24))
for number in range(1, {_UPLOADS} + 1):
    while not (here / f"save-{{number}}").exists():
        time.sleep(0.005)
    run.save_checkpoint({{}}, step=number, files={{"state.pt": write}})
    (here / f"new-{{number}}").write_text(str(time.time()))
    (here / f"new-{{number}}").rename(here / f"saved-{{number}}")
"""
_CURL = ("curl", "-sk", "-H", "Expect:", "-o", "/dev/null", "-w", "%{time_total}", "-T")
_IDLE, _IDLE_S, _SETTLE_S = 64, 40.0, 15.0


def measure() -> Iterator[Row]:
    if (reason := missing()) is not None or shutil.which("curl") is None:
        sys.exit(reason or "curl is not installed")
    with scratch() as folder, Lab(folder / "l") as lab, serving(lab, env=LIMITS) as service, service.client as client:
        box, code = lab.box(), folder / "l" / "code"
        code.mkdir()
        service.join(box, f"--allow-path={code}:rw")
        places = {box.name: code, service.own_worker(): service.code}
        yield from _starts(client, places)
        yield from _relayed(service, client, places)
        yield from _uploaded(service, client, lab, box, code)
        box.kill()
        yield from _idle(service, client, folder)


def _starts(client: Client, places: dict[str, Path]) -> Iterator[Row]:
    def seconds(worker: str, code: Path) -> float:
        began = time.time()
        job = client.submit(_on(worker, script(code / "step", _FIRST_STEP)))
        client.wait(job.id)
        (line,) = (line.text for line in client.jobs.logs(job.id) if line.stream == "stdout")
        return float(line) - began

    found: list[list[float]] = [[], []]
    for repeat in range(REPEATS + 1):
        for times, (worker, code) in zip(found, places.items(), strict=True):
            if (taken := seconds(worker, code)) and repeat:
                times.append(taken)
    yield Row("POST to the first step on a remote worker", "s", found[0], _DIRECT, found[1], at_most=0.25)


def _relayed(service: LabService, client: Client, places: dict[str, Path]) -> Iterator[Row]:
    stored = create_engine(service.database)
    found: list[list[float]] = [[], []]
    for rates, (worker, folder) in zip(found, places.items(), strict=True):
        code = folder / "relay"
        job_id = client.submit(_on(worker, script(code, relay.SCRIPT))).id
        wait_for(lambda job_id=job_id: client.get(job_id).state == "running", "the job to run", pause=0.1)
        for repeat in range(relay.REPEATS):
            lines = relay.metric_lines(first=repeat * relay.POINTS, keys=1)
            rates.append(relay.POINTS / relay.relay_s(stored, code, lines, job_id=job_id))
        (code / "end").touch()
        client.wait(job_id)
    stored.dispose()
    yield Row("lines relayed by a remote worker, SQLite", "/s", found[0], _DIRECT, found[1], at_least=20_000)


def _uploaded(service: LabService, client: Client, lab: Lab, box: Box, code: Path) -> Iterator[Row]:
    job_id = client.submit(_on(box.name, script(code / "saves", _CHECKPOINTS))).id
    ours: list[float] = []
    theirs: list[float] = []
    sent = box.folder / "sent"
    with sent.open("wb") as file:
        file.truncate(_BYTES)
    for number in range(1, _UPLOADS + 1):
        (code / "saves" / f"save-{number}").touch()
        saved = code / "saves" / f"saved-{number}"
        wait_for(saved.exists, "the checkpoint to be saved on the box")
        wait_for(lambda number=number: len([*client.jobs.checkpoints(job_id)]) == number, "its arrival")
        ours.append(_BYTES / (1 << 20) / (time.time() - float(saved.read_text())))
        with _sink(lab.address, service) as url:
            said = box.run(
                "curl", "-sk", "-H", "Expect:", "-T", str(sent), "-o", "/dev/null", "-w", "%{time_total}", url
            )
        theirs.append(_BYTES / (1 << 20) / float(said))
    client.wait(job_id)
    yield Row("a checkpoint of 1 GiB to the service", "MiB/s", ours, "curl -T to a file", theirs, ratio_at_least=0.8)


@contextmanager
def _sink(address: str, service: LabService) -> Generator[str]:
    """The address of what writes one upload into a file, with the certificate of the service."""
    files = tls.own(service.data)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(files.certificate, files.key)
    with socket.create_server((address, 0)) as listener, (service.data.parent / "sink").open("wb") as file:

        def receive() -> None:
            plain, _ = listener.accept()
            with context.wrap_socket(plain, server_side=True) as connection:
                left = _BYTES
                head = b""
                while b"\r\n\r\n" not in head:
                    head += connection.recv(1 << 16)
                body = head.partition(b"\r\n\r\n")[2]
                while left:
                    file.write(body)
                    left -= len(body)
                    body = connection.recv(min(left, 1 << 18))
                connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")

        thread = threading.Thread(target=receive)
        thread.start()
        yield f"https://{address}:{listener.getsockname()[1]}/sent"
        thread.join()


def _idle(service: LabService, client: Client, folder: Path) -> Iterator[Row]:
    pids = [pid for name, pid in service.server["processes"].items() if name != "worker"]
    alone = _busy(pids)
    with ExitStack() as stack:
        requests = [stack.enter_context(_idle_worker(service, client, folder / f"idle-{n}", n)) for n in range(_IDLE)]
        wait_for(lambda: sum(worker.state == "ready" for worker in client.workers.list()) > _IDLE, "the idle workers")
        time.sleep(_SETTLE_S)
        before = [len(sent) for sent in requests]
        busy = _busy(pids)
        each = [10 / _IDLE_S * (len(sent) - first) for sent, first in zip(requests, before, strict=True)]
    yield Row("requests of an idle remote worker in 10 s, beside its stream", "", each, at_most=1)
    what = f"CPU of the service with {_IDLE} idle remote workers"
    yield Row(what, "% of a core", [busy], "without them", [alone], at_most=5)


def _busy(pids: Sequence[int]) -> float:
    """Returns how much of a core these processes take, in percent."""
    before, began = sum(map(processor_s, pids)), time.monotonic()
    time.sleep(_IDLE_S)
    return 100 * (sum(map(processor_s, pids)) - before) / (time.monotonic() - began)


@contextmanager
def _idle_worker(service: LabService, client: Client, root: Path, number: int) -> Generator[list[str]]:
    """Runs the daemon of a box in a thread. Yields the paths of what it asks of the service."""
    url = service.server["url"].replace("0.0.0.0", "127.0.0.1")
    found = joining.redeem(url, parse_code(client.workers.code(f"idle-{number}").code), kind="worker")
    joined = Joined(
        url=url,
        worker_id=found.view.worker_id or "",
        name=found.view.name,
        token=found.view.token,
        certificate=found.certificate,
    )
    settings = Settings(data_dir=root)
    settings.root.mkdir()
    remote, sent = RemoteService.of(joined, settings), list[str]()

    def note(request: httpx2.Request) -> None:
        sent.append(request.url.path)

    remote.connection.http.event_hooks["request"].append(note)
    slots = Inventory((Device(0, "cpu-0", "CPU slot", "cpu"),))
    daemon = Daemon(settings, LocalEngine(settings.runs, slots, launcher=TorchrunStandIn()), remote)
    thread = threading.Thread(target=daemon.serve)
    thread.start()
    try:
        yield sent
    finally:
        daemon.leave()
        thread.join()


def _on(worker: str, spec: dict[str, Any]) -> dict[str, Any]:
    return {**spec, "resources": {**spec["resources"], "worker": worker}}


if __name__ == "__main__":
    table.main(measure)
