"""The service in this process, on its own database and Redis, and functions that act as a worker."""

from collections.abc import Sequence
from functools import cache, cached_property
import hashlib
from io import BytesIO
from pathlib import Path
from secrets import token_hex
from typing import Any

from fastapi import FastAPI
import pytest
from sqlalchemy import Engine, insert

from api.app import create_app
from api.settings import Settings
from scheduling.snapshot import Device, Placement
from store.attempts import append, end
from store.attempts import claim as claims
from store.attempts import state as attempts
from store.attempts.facts import Claim
from store.cluster import workers
from store.db import engine
from store.db.database import Database
from store.ids import new_id
from store.jobs import jobs
from store.output.facts import Batch, NewCheckpoint
from store.queue.announcing import Queue
from store.tables import Service
from tests import forks
from tests.api.whole_answers import WholeAnswers
from torchyard.contract.attempts.records import ExitReport, Manifest, ManifestFile
from torchyard.contract.states import Reason
from torchyard.contract.team.roles import Role

TOKEN = "the-admin-token"
SPEC: dict[str, Any] = {"trainer": "image-classification", "name": "digits"}

both_databases = pytest.mark.parametrize("databases", ["sqlite", "postgresql"], indirect=True)
"""Marks a test whose query no test of the store covers."""

_kept_engine = cache(engine.create)
"""The engine of an address. It is kept between tests, as each engine compiles its statements once."""


def _engine(address: str, *, program: str, pool: int, most: int) -> Engine:
    made = _kept_engine(address, program=program, pool=pool, most=most)
    made.dispose()  # a test that failed may have left connections to a file that is removed
    return made


@cache
def _usual_settings() -> Settings:
    """The settings of each service here but for its addresses. Made once: reading the environment takes long."""
    return Settings(
        token=TOKEN,  # pyright: ignore[reportArgumentType] - pydantic makes it a secret
        max_body_bytes=10_000,
        allowed_hosts="testserver",
        max_requests_per_second=1_000_000,
        max_streams=200,
    )


def usual_document() -> dict[str, Any]:
    """Returns the OpenAPI document. No setting changes it."""
    from tests.torchyard.client.openapi import DOCUMENT  # made by the import, so once, if workers are forks

    return DOCUMENT


forks.make_first(usual_document)


class ApiFixture:
    """An empty service. `client` sends the administrator's token; the other methods act as a worker."""

    def __init__(self, folder: Path, database: Database, redis_url: str) -> None:
        addresses = {
            "data_dir": folder,
            "database_url": database.engine.url.render_as_string(hide_password=False),
            "redis_url": redis_url,
        }
        self.settings = _usual_settings().model_copy(update=addresses)
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(engine, "create", _engine)
            self.app: FastAPI = create_app(self.settings)
        vars(self.app)["openapi"] = usual_document
        self.database = database
        self.client = WholeAnswers(self.app, headers={"Authorization": f"Bearer {TOKEN}"})
        self.worker_id = new_id("wrk")
        self._stored: dict[Claim, int] = {}
        self._tokens = {"admin": TOKEN}

    @cached_property
    def queue(self) -> Queue:
        return Queue(self.settings.redis, service=self.app.state.services.store.service)

    def begin(self) -> None:
        """Leaves what the first request of a new service leaves: its id in the database and in the folder of blobs."""
        own, store = f"svc_{token_hex(8)}", self.app.state.services.store
        store.blobs.mark(own)
        with store.database.write("identify") as session:  # the app needs this connection later, too
            session.execute(insert(Service).values(id=own, blobs=str(self.settings.blobs)))

    def act_as(self, name: str, role: Role = Role.MEMBER) -> None:
        """Makes further requests come from this user, who is added if they are new; `admin` is the administrator."""
        if name not in self._tokens:
            self.act_as("admin")
            assert self.client.post("/v1/users", json={"name": name, "role": role}).status_code == 201
            self._tokens[name] = self.client.post("/v1/tokens", json={"user": name}).json()["token"]
        self.client.headers["Authorization"] = f"Bearer {self._tokens[name]}"

    def submit(self, **spec: Any) -> dict[str, Any]:
        answer = self.client.post("/v1/jobs", json={**SPEC, **spec})
        assert answer.status_code == 201, answer.text
        return answer.json()

    def get(self, path: str, **params: Any) -> dict[str, Any]:
        answer = self.client.get(path, params=params or None)
        assert answer.status_code == 200, answer.text
        return answer.json()

    def start(self, job_id: str, *, device: str = "cpu-0") -> Claim:
        """Claims the job for a worker with two CPU slots, and sets it to running."""
        slots = [{"index": index, "uuid": f"cpu-{index}", "name": "CPU slot", "kind": "cpu"} for index in range(2)]
        held = Device(index=0, uuid=device, name="CPU slot", kind="cpu")
        with self.database.write() as session:
            workers.register(session, self.worker_id, name="box-a", devices=slots)
        with self.database.write() as session:
            claim = claims.claim(session, job_id, Placement(self.worker_id, (held,)))
            assert claim is not None
            attempts.mark_running(session, claim, reason=Reason("running", "every rank runs"))
        return claim

    def record(self, claim: Claim, **batch: Any) -> None:
        seq = self._stored.setdefault(claim, 0)
        with self.database.write() as session:
            append.record(session, claim, Batch(offsets={}, **batch), seq=seq)
        self._stored[claim] += 1

    def end(self, claim: Claim, **report: Any) -> None:
        with self.database.write() as session:
            end.end(session, claim, ExitReport(**report), requested_stops={report["reason"]})

    def new_checkpoint(
        self, *, step: int, epoch: int | None = None, files: dict[str, bytes], **metrics: float
    ) -> NewCheckpoint:
        """Returns a checkpoint whose bytes are in the blob store. `val_loss=…` is the metric `val/loss`."""
        parts = self.app.state.services
        listed = [
            ManifestFile(path=path, size=len(content), sha256=parts.store.blobs.add(BytesIO(content)).sha256)
            for path, content in files.items()
        ]
        named = {key.replace("_", "/"): value for key, value in metrics.items()}
        manifest = Manifest(step=step, epoch=epoch, end_of_epoch=epoch is not None, metrics=named, files=listed)
        return NewCheckpoint(f"step-{step}", manifest, listed)

    def queued_rows(self) -> Sequence[tuple[str, int]]:
        with self.database.read() as session:
            return jobs.queued(session)


def sha256(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()
