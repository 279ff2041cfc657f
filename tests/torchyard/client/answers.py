"""Answers of a Torchyard server, for the fake one."""

from collections.abc import Mapping
import hashlib
import json
from typing import Any
from urllib.parse import quote

from tests.archives import archive_of, digest_of
from tests.torchyard.client.fake_server import Answer, FakeServer

NOW = "2026-01-02T03:04:05Z"
JOB = "/v1/jobs/job_1"
DATA = b"the bytes of a state" * 1000
SHA256 = hashlib.sha256(DATA).hexdigest()


def serve_checkpoint(
    server: FakeServer, sent: bytes, headers: dict[str, str] | None = None, *, status: int = 200
) -> None:
    file = {"path": "state.pt", "size": len(DATA), "sha256": SHA256}
    listed = {"id": "ckpt_1", "epoch": 3, "step": 9, "attempt": 1, "metrics": {}, "files": [file], "aliases": ["best"]}
    size = {"size": file["size"], "sha256": file["sha256"], "created_at": NOW}
    for ref in ("best", "ckpt_1"):
        server.on(f"{JOB}/checkpoints/{ref}", {**listed, **size})
    server.on(f"{JOB}/checkpoints/ckpt_1/download", Answer(sent, status, headers or {}))


def serve_folder(server: FakeServer, files: Mapping[str, bytes], *sent: Answer, **changes: Any) -> dict[str, Any]:
    """Serves a checkpoint of these files, whose download is `sent`, or the tar of them. Returns its view."""
    listed = [
        {"path": path, "size": len(content), "sha256": hashlib.sha256(content).hexdigest()}
        for path, content in files.items()
    ]
    whole = archive_of(files)
    view = {"id": "ckpt_1", "epoch": None, "step": 9, "attempt": 1, "metrics": {}, "files": listed, "aliases": ["best"]}
    view |= {"size": len(whole), "sha256": digest_of(files), "created_at": NOW, "source": "captured"}
    view |= {"folder": {"path": "", "files": len(files)}, **changes}
    for ref in ("best", "ckpt_1"):
        server.on(f"{JOB}/checkpoints/{ref}", view)
    named = {"Content-Disposition": 'attachment; filename="mine-step-9.tar"'}
    server.on(f"{JOB}/checkpoints/ckpt_1/download", *(sent or [Answer(whole, 200, named)]))
    for path, content in files.items():
        server.on(f"{JOB}/checkpoints/ckpt_1/files/{quote(path)}", Answer(content))
    return view


def job(**changes: Any) -> dict[str, Any]:
    plain: dict[str, Any] = {
        "id": "job_1",
        "name": "a",
        "trainer": "image-classification",
        "state": "queued",
        "status_reason": {"code": "queued", "message": "waits", "since": NOW},
        "spec": {"trainer": "image-classification"},
        "owner": "admin",
        "priority": 0,
        "labels": {},
        "attempt": 0,
        "progress": {},
        "metrics": {},
        "devices": [],
        "created_at": NOW,
        "version": 1,
    }
    return {**plain, **changes}


def page(data: list[Any], *, more: bool = False, next: str | None = None) -> dict[str, Any]:
    return {"data": data, "has_more": more, "next": next}


def event(seq: int, to: str) -> dict[str, Any]:
    data = {"from": "queued", "to": to, "reason": {"code": "a_code", "message": "a reason"}}
    return {"seq": seq, "time": NOW, "type": "state", "attempt": 1, "data": data}


def line(number: int) -> dict[str, Any]:
    return {"line": number, "time": NOW, "attempt": 1, "rank": 0, "stream": "stdout", "text": f"text {number}"}


def log_page(lines: list[dict[str, Any]], *, more: bool = False) -> dict[str, Any]:
    return {**page(lines, more=more), "total": max((found["line"] for found in lines), default=0)}


def live(text: str) -> dict[str, Any]:
    """A line without an end."""
    return {"job_id": "job_1", "attempt": 1, "rank": 0, "stream": "stdout", "text": text}


def sse(*items: tuple[str, int | None, Any]) -> Answer:
    """Returns a stream's answer, which ends after the last item (kind, position, data). None: it has no position."""
    text = ": heartbeat\n\n" + "".join(
        ("" if position is None else f"id: {position}\n") + f"event: {kind}\ndata: {json.dumps(data)}\n\n"
        for kind, position, data in items
    )
    return Answer(text.encode(), headers={"Content-Type": "text/event-stream"})


def point(key: str, step: int, value: float | str = 1.0) -> dict[str, Any]:
    return {"key": key, "step": step, "value": value, "time": NOW, "attempt": 1}


def metrics(**series: list[int]) -> dict[str, Any]:
    return {
        "data": [
            {"key": key, "points": [{"step": step, "value": 1.0, "time": NOW, "attempt": 1} for step in steps]}
            for key, steps in series.items()
        ],
        "max_points": 1500,
    }


def stacks(*ranks: tuple[str | None, str | None]) -> dict[str, Any]:
    """The stacks of a running job: the text or the note of each rank."""
    views = [{"rank": rank, "text": text, "note": note} for rank, (text, note) in enumerate(ranks)]
    return {"attempt": 1, "requested_at": NOW, "taken_at": NOW, "ranks": views}
