"""The docstrings of the Python client: their examples run against an API on a port, and they name each parameter."""

import asyncio
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
import time

import pytest

from store.output.facts import MetricPoint, NewLines
from tests.api.service import TOKEN, ApiFixture
from tests.api.serving import api_thread
from tests.docstrings import examples_of, run_example, unnamed_parameters
from torchyard import client as package
from torchyard.client import AsyncClient, Client, Job, LogLine
from torchyard.client.core.bundles import BundlesCore
from torchyard.client.core.client import ClientCore
from torchyard.client.core.files import FilesCore
from torchyard.client.core.job import AsyncArtifact, AsyncCheckpoint, AsyncJob, JobCore
from torchyard.client.core.jobs import JobsCore
from torchyard.client.core.models import ModelsCore
from torchyard.client.core.notifications import NotificationsCore
from torchyard.client.core.reaches import ReachesCore
from torchyard.client.core.schedules import SchedulesCore
from torchyard.client.core.service import ServiceCore
from torchyard.client.core.sweeps import SweepsCore
from torchyard.client.core.team import QuotasCore, SavedViewsCore, SecretsCore, SessionsCore, TokensCore, UsersCore
from torchyard.client.core.telemetry import TelemetryCore
from torchyard.client.core.workers import WorkersCore
from torchyard.client.series import Metrics
from torchyard.contract.states import EndReason

CORES = (
    *(ClientCore, JobsCore, JobCore, TelemetryCore, FilesCore, AsyncJob, AsyncCheckpoint, AsyncArtifact),
    *(SweepsCore, SchedulesCore, ModelsCore, BundlesCore, ReachesCore, WorkersCore, NotificationsCore, ServiceCore),
    *(UsersCore, TokensCore, SessionsCore, QuotasCore, SecretsCore, SavedViewsCore),
)
SUBMITTING = ("submit(", "run(", "retry(")
SPEC = {"trainer": "image-classification", "name": "next", "config": {"data": {"source": "digits"}}}


@pytest.fixture
def client(tmp_path: Path, service: ApiFixture, redis_url: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[Client]:
    """A client in an empty folder, whose service has one job, `digits`, which has succeeded."""
    job = service.submit(labels={"team": "bridges"})
    claim = service.start(job["id"])
    now = time.time_ns() // 1000
    points = [MetricPoint("train/loss", 1, 2.5, now), MetricPoint("train/loss", 2, 1.25, now)]
    service.record(claim, points=[*points, MetricPoint("val/loss", 2, 0.5, now)])
    service.record(claim, lines=[NewLines(0, "stdout", ["epoch 1 of 1"])])
    saved = service.new_checkpoint(step=2, epoch=1, files={"state.pt": b"state"}, val_loss=0.5)
    service.record(claim, checkpoints=[saved])
    service.end(claim, reason=EndReason.COMPLETED)
    (tmp_path / "work").mkdir()
    monkeypatch.chdir(tmp_path / "work")
    with api_thread(tmp_path, service.settings.database, redis_url) as url:
        monkeypatch.setenv("TORCHYARD_URL", url)
        monkeypatch.setenv("TORCHYARD_TOKEN", TOKEN)
        with Client() as client:
            yield client


def test_each_example_of_the_client_prints_what_it_shows(client: Client) -> None:
    imported = {"AsyncClient": AsyncClient, "Client": Client, "LogLine": LogLine, "Path": Path}
    names = {**imported, "asyncio": asyncio, "client": client, "job": client.get("digits"), "spec": SPEC}
    found = [*examples_of(package, Client, AsyncClient, *CORES, Job, Metrics)]
    assert len(found) > 60
    for example in found:
        run_example(example, {**names, "timedelta": timedelta})
        if any(word in "".join(step.source for step in example.examples) for word in SUBMITTING):
            client.jobs.act("cancel")  # the next example finds `digits` alone
            client.jobs.act("delete", state=["cancelled"])


def test_each_parameter_of_the_client_is_described() -> None:
    assert unnamed_parameters(*CORES) == []
    assert {"url", "token", "patience"} <= {*(Client.__doc__ or "").replace(":", " ").split()}
