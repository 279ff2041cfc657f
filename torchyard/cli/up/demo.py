"""`torchyard demo`: trains, downloads and verifies a checkpoint, on a service that it starts if none runs."""

from collections.abc import Generator
from contextlib import contextmanager
import json
from pathlib import Path
import signal
import subprocess
import sys
import time
from typing import Any

from torchyard.cli import output
from torchyard.cli.follow import Watch, exit_code
from torchyard.cli.progress import Transfer
from torchyard.cli.up import programs
from torchyard.cli.up.datadir import DataDir
from torchyard.cli.up.spawning import spawn
from torchyard.client import Client
from torchyard.client.localserver import read_server
from torchyard.contract.errors import ServerUnreachable, Unavailable
from torchyard.contract.files.views import CheckpointView
from torchyard.contract.jobs.views import JobView
from torchyard.contract.states import JobState
from torchyard.host import terminal

_START_S = 120.0
_STOP_S = 75.0
_METRIC = "val/accuracy"


def run(data_dir: Path, *, as_json: bool) -> int:
    """Returns the exit code: 0 if the downloaded weights reach the reported accuracy.

    Raises ConfigError if torchyard-server is not installed.
    """
    programs.check_installed()
    try:
        with _server(data_dir) as (client, stays):
            return _demo(client, data_dir, stays=stays, as_json=as_json)
    except KeyboardInterrupt:
        terminal.note("\nInterrupted.")
        return 130


def _demo(client: Client, data_dir: Path, *, stays: bool, as_json: bool) -> int:
    devices, kind = _devices(client)
    spec = {
        "trainer": "image-classification",
        "name": "demo-digits",
        "resources": {"devices_per_node": devices, "device": kind},
        "config": {"data": {"source": "digits"}},
    }
    _heading("Train", f"a small CNN on scikit-learn's handwritten digits, {devices} process(es) on {kind}")
    with _evaluation() as evaluation:
        job = _train(client, spec)
        if job.state != JobState.SUCCEEDED:
            terminal.note(f"The job {job.state}. Its log: {output.command()} logs {job.id}")
            return exit_code(job)
        _heading("Download", "the best checkpoint over HTTP")
        checkpoint, path = _download(client, job, data_dir)
        _heading("Verify", "load the file in a plain process and evaluate it")
        measured = _evaluate(evaluation, path)
    reported = checkpoint.metrics[_METRIC]
    equal = measured["accuracy"] == reported
    terminal.note(f"  reported   {_METRIC} {reported!r}\n  measured   {_METRIC} {measured['accuracy']!r}")
    terminal.note("  They are equal." if equal else "  error: they differ")
    _say_where(job, path, data_dir, stays=stays)
    facts = {
        "job": job.id,
        "checkpoint": checkpoint.id,
        "path": str(path),
        "reported": reported,
        "measured": measured,
        "equal": equal,
    }
    output.show(facts, [] if sys.stdout.isatty() else [str(path)], as_json=as_json)  # a terminal has it above
    return 0 if equal else 1


def _train(client: Client, spec: dict[str, Any]) -> JobView:
    job = client.submit(spec).view
    terminal.note(f"  {job.id}")
    try:
        with Watch() as watch:
            for update in client.jobs.follow(job.id, logs=False):
                watch.show(update)
                job = update if isinstance(update, JobView) else job
    except KeyboardInterrupt:
        client.jobs.cancel(job.id)
        raise
    return job


def _download(client: Client, job: JobView, data_dir: Path) -> tuple[CheckpointView, Path]:
    folder = (data_dir / "downloads").absolute()
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    checkpoint = client.jobs.checkpoint(job.id, "best")
    with Transfer() as transfer:
        path = client.jobs.download(job.id, checkpoint.id, to=folder, on_progress=transfer.show)
    terminal.note(f"  epoch {checkpoint.epoch}, step {checkpoint.step}, {terminal.size(checkpoint.size)}")
    terminal.note(f"  sha256 {checkpoint.sha256}, as listed")
    return checkpoint, path


@contextmanager
def _evaluation() -> Generator[subprocess.Popen[str]]:
    """Starts a process outside the service that imports torch while the job trains, then waits for a path."""
    command = programs.argv("trainer.evaluate", "-")
    pipe = subprocess.PIPE
    with subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=pipe, text=True) as process:
        try:
            yield process
        finally:
            process.kill()


def _evaluate(evaluation: subprocess.Popen[str], path: Path) -> dict[str, Any]:
    measured, errors = evaluation.communicate(f"{path}\n")
    if evaluation.returncode != 0:
        raise Unavailable(f"{path} cannot be evaluated:\n{errors.strip()}")
    return json.loads(measured)


def _devices(client: Client) -> tuple[int, str]:
    """Returns how many devices the demo asks for, and of which kind: two, or one if there is only one."""
    deadline = time.monotonic() + _START_S
    while True:
        offered = [device for worker in client.workers.list() if worker.state == "ready" for device in worker.devices]
        kinds = {kind: sum(device.kind == kind for device in offered) for kind in ("cuda", "cpu")}
        for kind in ("cuda", "cpu"):
            if kinds[kind] >= 2:
                return 2, kind
        if offered:
            return 1, "cuda" if kinds["cuda"] else "cpu"
        if time.monotonic() > deadline:
            raise Unavailable(f"no worker offers a device after {_START_S:g} s")
        time.sleep(0.05)


@contextmanager
def _server(data_dir: Path) -> Generator[tuple[Client, bool]]:
    """Yields a client of the service that runs on `data_dir`, and whether that stays. Starts a service if none runs."""
    running = _running(data_dir)
    if running is not None:
        terminal.note(f"Using the server at {running.server.url}")
        with running:
            yield running, True
        return
    _heading("Start", f"database, queue, API and worker for this demo, in {data_dir}")
    data = DataDir(data_dir.absolute())
    data.create()
    log = data.logs / "up.log"
    with log.open("wb") as errors:
        command = programs.argv("torchyard.cli", "up", "--port", "0", "--data-dir", str(data.root), "--json")
        process = spawn(command, stdout=subprocess.PIPE, stderr=errors)
    with process:
        try:
            with _connect(process, log) as client:
                terminal.note(f"  {client.server.url}")
                yield client, False
        finally:
            _stop(process)


def _running(data_dir: Path) -> Client | None:
    try:
        if (server := read_server(data_dir)) is None:
            return None
        client = Client(server.url, server.token, certificate=server.certificate)
        client.ready()
    except ServerUnreachable:
        return None  # the file of one that was killed, perhaps
    return client


def _connect(process: subprocess.Popen[bytes], log: Path) -> Client:
    assert process.stdout is not None
    line = process.stdout.readline()
    if not line:
        raise Unavailable(f"the service did not start:\n{log.read_text(errors='replace').strip()}")
    server = json.loads(line)
    return Client(server["url"], server["token"])


def _stop(process: subprocess.Popen[bytes]) -> None:
    terminal.note("\nStopping the service …")
    try:
        process.send_signal(signal.SIGINT)
        process.wait(_STOP_S)
    except KeyboardInterrupt:
        process.send_signal(signal.SIGINT)  # its second: it kills
        process.wait()
        raise


def _say_where(job: JobView, path: Path, data_dir: Path, *, stays: bool) -> None:
    command = output.command()
    _heading("Where", "everything is")
    terminal.note(
        f"  checkpoint  {path}\n  data        {data_dir.absolute()}\n  logs        {data_dir.absolute() / 'logs'}"
    )
    _heading("Next", "" if stays else "the demo's service stops now; its data stays")
    lines = [] if stays else [(f"{command} up", "keep the service running")]
    lines += [
        (f"{command} ps", "list jobs"),
        (f"{command} show {job.name}", "this job, its metrics and checkpoints"),
        (f"{command} logs {job.name} --tail 20", "its output"),
        (f"{command} run train.py", "a program of your own"),
    ]
    width = max(len(line) for line, _ in lines)
    for line, what in lines:
        terminal.note(f"  {line:<{width}}  {terminal.paint(what, '2', sys.stderr)}")


def _heading(title: str, text: str) -> None:
    terminal.note(f"\n{terminal.paint(title, '1', sys.stderr)}  {terminal.paint(text, '2', sys.stderr)}".rstrip())
