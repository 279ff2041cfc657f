"""A minimal FastAPI service: it validates a submission and writes one row in one durable transaction. It also reads.

`python -m bench.peers.inserts DATABASE_URL` prints its port and serves on loopback until it is stopped.
"""

from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass
import socket
import sqlite3
import subprocess
import sys
import time
from typing import Any

from fastapi import FastAPI
from pydantic import BaseModel
from sqlalchemy import JSON, Column, Engine, Integer, MetaData, Table, Text, create_engine, event, insert, select
import uvicorn

_rows = Table(
    "bench_rows", MetaData(), Column("id", Integer, primary_key=True), Column("name", Text), Column("spec", JSON)
)


class Submission(BaseModel):
    name: str
    trainer: str
    config: dict[str, Any]
    resources: dict[str, Any]


@dataclass(frozen=True)
class Peer:
    address: tuple[str, int]
    pid: int
    ready_s: float
    """Seconds from its start until it answered."""


@contextmanager
def running(database: str) -> Generator[Peer]:
    """Runs the service as long as the context lasts."""
    command = [sys.executable, "-m", "bench.peers.inserts", database]
    began = time.monotonic()
    with subprocess.Popen(command, stdout=subprocess.PIPE) as process:
        try:
            assert process.stdout is not None
            port = int(process.stdout.readline())
            _await(port)
            yield Peer(("127.0.0.1", port), process.pid, time.monotonic() - began)
        finally:
            process.terminate()


def application(engine: Engine) -> FastAPI:
    app = FastAPI()

    @app.get("/healthz")
    async def is_alive() -> dict[str, str]:  # pyright: ignore[reportUnusedFunction]
        return {"status": "ok"}

    @app.get("/rows/{row_id}")
    def read(row_id: int) -> dict[str, Any]:  # pyright: ignore[reportUnusedFunction]
        with engine.connect() as connection:
            return dict(connection.execute(select(_rows).where(_rows.c.id == row_id)).mappings().one())

    @app.get("/rows")
    def list_all(limit: int) -> list[dict[str, Any]]:  # pyright: ignore[reportUnusedFunction]
        with engine.connect() as connection:
            found = connection.execute(select(_rows).order_by(_rows.c.id.desc()).limit(limit)).mappings()
            return [dict(row) for row in found]

    @app.post("/rows", status_code=201)
    def add(body: Submission) -> dict[str, Any]:  # pyright: ignore[reportUnusedFunction]
        with engine.begin() as connection:
            made = connection.execute(insert(_rows).values(name=body.name, spec=body.model_dump(mode="json")))
        assert made.inserted_primary_key is not None
        return {"id": made.inserted_primary_key[0], **body.model_dump(mode="json")}

    return app


def _await(port: int) -> None:
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        try:
            with socket.create_connection(("127.0.0.1", port), timeout=1) as connection:
                connection.sendall(b"GET /openapi.json HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
                if connection.recv(64):
                    return
        except OSError:
            time.sleep(0.02)
    sys.exit("the peer did not start")


def _durable(connection: sqlite3.Connection, record: object) -> None:
    for pragma in ("journal_mode=WAL", "synchronous=FULL"):
        connection.execute(f"PRAGMA {pragma}").close()


def _main() -> None:
    url = sys.argv[1]
    if url.startswith("sqlite"):
        engine = create_engine(url, connect_args={"timeout": 30}, pool_size=8, max_overflow=32)
        event.listen(engine, "connect", _durable)
    else:
        engine = create_engine(url, pool_size=8, max_overflow=8)
    _rows.create(engine, checkfirst=True)
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP) as listener:  # asyncio: TCP_NODELAY
        listener.bind(("127.0.0.1", 0))
        print(listener.getsockname()[1], flush=True)
        config = uvicorn.Config(application(engine), access_log=False, log_level="warning")
        uvicorn.Server(config).run(sockets=[listener])


if __name__ == "__main__":
    _main()
