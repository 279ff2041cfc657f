"""`python -m bench.mnist [MNIST_NPZ]` trains MNIST through the whole service.

It submits a job over REST to the server at $TORCHYARD_URL, or to a server that it starts. Then it downloads the best
checkpoint and evaluates it in one process. Exits with 1 unless this accuracy equals the reported one and is high
enough. Takes some minutes on two CPU cores.
"""

import argparse
from collections.abc import Generator
from contextlib import contextmanager
import json
import os
from pathlib import Path
import subprocess
import sys
import tempfile
import time
from typing import Any

from bench.service import up
from torchyard.client import Client, MetricView
from torchyard.contract.jobs.views import JobView
from torchyard.contract.states import JobState

TARGET = 0.985
"""The accuracy to reach on the 10,000 test digits."""
METRIC = "val/accuracy"
DATA = Path(__file__).resolve().parents[2] / "shared" / "data" / "mnist.npz"
CONFIG: dict[str, Any] = {"training": {"epochs": 3, "per_device_batch_size": 64}}


def main() -> int:
    """Returns the exit status."""
    parser = argparse.ArgumentParser(description="Train MNIST through the service and check the accuracy.")
    parser.add_argument("data", nargs="?", type=Path, default=DATA, metavar="MNIST_NPZ")
    parser.add_argument("--processes", type=int, default=2)
    arguments = parser.parse_args()
    data = arguments.data.resolve()
    if not data.is_file():
        sys.exit(f"there is no {data}: give the path of an .npz file with x_train, y_train, x_test and y_test")
    with tempfile.TemporaryDirectory(prefix="torchyard-bench-") as folder:
        with _client(Path(folder), allowed=data.parent, slots=arguments.processes) as client:
            job, seconds = train(client, data, processes=arguments.processes)
            state = client.jobs.download(job.id, "best", to=folder)
            reported = client.jobs.checkpoint(job.id, "best").metrics[METRIC]
        measured = evaluate(state)
    return report(reported=reported, measured=measured, seconds=seconds)


@contextmanager
def _client(folder: Path, *, allowed: Path, slots: int) -> Generator[Client]:
    """Yields a client of the configured server, or of a server that runs as long as the context."""
    if os.environ.get("TORCHYARD_URL"):
        with Client() as client:
            yield client
        return
    with up(folder, slots=slots, allowed=[allowed]) as service, service.client() as client:
        yield client


def train(client: Client, data: Path, *, processes: int) -> tuple[JobView, float]:
    """Returns the finished job and the seconds that it took."""
    job = client.submit(
        {
            "trainer": "image-classification",
            "name": "bench-mnist",
            "resources": {"devices_per_node": processes},
            "config": {**CONFIG, "data": {"source": data.as_uri()}},
        }
    ).view
    began = time.monotonic()
    for update in client.jobs.follow(job.id, logs=False):
        if isinstance(update, MetricView) and update.key == METRIC:
            print(f"step {update.step}: {METRIC} {update.value}", flush=True)
        job = update if isinstance(update, JobView) else job
    if job.state != JobState.SUCCEEDED:
        sys.exit(f"the job {job.state}: {job.error.message if job.error else job.status_reason.message}")
    return job, time.monotonic() - began


def evaluate(state: Path) -> float:
    """Returns the accuracy of a checkpoint, by the trainer's own program."""
    command = [sys.executable, "-P", "-m", "trainer.evaluate", str(state)]
    return json.loads(subprocess.run(command, check=True, stdout=subprocess.PIPE).stdout)["accuracy"]


def report(*, reported: float, measured: float, seconds: float) -> int:
    """Prints both accuracies. Returns the exit status."""
    print(f"service   {METRIC} {reported!r}, after {seconds:.0f} s\nplain     {METRIC} {measured!r}")
    if measured != reported:
        print("error: they differ")
        return 1
    if measured < TARGET:
        print(f"error: below {TARGET}")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
