"""One API on real connections, and workers that reach it over HTTP alone."""

from collections.abc import Generator
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
import ssl

import pytest

from store.cluster import worker_tokens
from store.db.database import Database
from store.ids import new_id
from store.queue.announcing import Queue
from tests.api.serving import api_thread
from tests.servers import free_port
from tests.store.fixture import StoreFixture, service_of
from worker.remote.service import RemoteService


@dataclass
class Remote:
    """A service, and the workers that have joined it."""

    folder: Path
    database: Database
    redis_url: str
    queue: Queue
    port: int = field(default_factory=free_port)
    _api: ExitStack = field(default_factory=ExitStack)
    _joined: list[RemoteService] = field(default_factory=list[RemoteService])

    @property
    def store(self) -> StoreFixture:
        return StoreFixture(self.database)

    def start_api(self) -> None:
        address = self.database.engine.url.render_as_string(hide_password=False)
        self._api.enter_context(api_thread(self.folder / "service", address, self.redis_url, port=self.port))

    def stop_api(self) -> None:
        self._api.close()

    def token(self, worker_id: str) -> str:
        return self.store.write(lambda session: worker_tokens.issue(session, worker_id))

    def join(self, worker_id: str | None = None, *, token: str | None = None, boot: str = "boot-1") -> RemoteService:
        """Returns the service as a worker reaches it, by a new token of its own without `token`."""
        worker_id = worker_id or new_id("wrk")
        joined = RemoteService(
            f"http://127.0.0.1:{self.port}",
            worker_id,
            name="box",
            token=token or self.token(worker_id),
            context=ssl.create_default_context(),
            boot=boot,
            blobs=self.folder / f"blobs-{len(self._joined)}",
            cache_bytes=1 << 20,
        )
        self._joined.append(joined)
        return joined

    def close(self) -> None:
        for joined in self._joined:
            joined.close()
        self.stop_api()
        self.queue.close()


@pytest.fixture
def remote(tmp_path: Path, database: Database, redis_url: str) -> Generator[Remote]:
    made = Remote(tmp_path, database, redis_url, Queue(redis_url, service=service_of(database)))
    made.start_api()
    try:
        yield made
    finally:
        made.close()
