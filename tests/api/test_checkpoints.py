"""Checkpoints over HTTP: the list, the aliases, and the files."""

import base64
from dataclasses import replace
from email.parser import BytesParser
from email.policy import HTTP
import hashlib
from io import BytesIO
import tarfile
from typing import Any
from urllib.parse import quote

import pytest
from sqlalchemy import update

from store.tables import Checkpoint
from tests.api.service import ApiFixture, both_databases, sha256
from tests.api.test_problems import assert_problem
from tests.archives import archive_of, digest_of
from tests.rows import each_row
from torchyard.contract.files import archives
from torchyard.contract.files.paths import MOST_FILES

STATE = bytes(range(256)) * 4_000
WEIGHTS = b"weights"


@pytest.fixture
def path(service: ApiFixture) -> str:
    """A job with the checkpoints of two epochs, the first one better, and a checkpoint between epochs."""
    job_id = service.submit(name="crack-unet")["id"]
    first = {"state.pt": STATE, "model.safetensors": WEIGHTS, "overlays/a.png": b"png"}
    new = [
        service.new_checkpoint(step=10, epoch=1, files=first, val_loss=0.25),
        service.new_checkpoint(step=15, files={"state.pt": b"between"}, val_loss=float("nan")),
        service.new_checkpoint(step=20, epoch=2, files={"state.pt": b"later"}, val_loss=0.5),
    ]
    service.record(service.start(job_id), checkpoints=new)
    return f"/v1/jobs/{job_id}/checkpoints"


def test_checkpoints_are_listed_newest_first_with_their_aliases(service: ApiFixture, path: str) -> None:
    listed = service.get(path)["data"]
    assert [(item["step"], item["epoch"], item["aliases"]) for item in listed] == [
        (20, 2, ["latest", "epoch-2", "step-20"]),
        (15, None, ["step-15"]),
        (10, 1, ["best", "epoch-1", "step-10"]),
    ]
    first = listed[-1]
    assert (first["size"], first["sha256"], first["attempt"]) == (len(STATE), sha256(STATE), 1)
    assert first["files"][1] == {"path": "model.safetensors", "size": 7, "sha256": sha256(WEIGHTS)}
    assert [item["metrics"] for item in listed] == [{"val/loss": 0.5}, {"val/loss": "NaN"}, {"val/loss": 0.25}]


def test_pages_of_checkpoints_join_into_the_whole(service: ApiFixture, path: str) -> None:
    whole = service.get(path)["data"]
    page = service.get(path, limit=2)
    assert (page["data"], page["has_more"]) == (whole[:2], True)
    rest = service.get(path, limit=2, after=page["next"])
    assert (rest["data"], rest["has_more"], rest["next"]) == (whole[2:], False, None)


def test_each_alias_finds_its_checkpoint(service: ApiFixture, path: str) -> None:
    for item in service.get(path)["data"]:
        for ref in (item["id"], *item["aliases"]):
            assert service.get(f"{path}/{ref}") == item


@each_row("ref", ["epoch-3", "step-11", "worst", "epoch-", "epoch-" + "9" * 30, "ckpt_" + "0" * 32, "%00"])
def test_an_unknown_alias_is_not_found(service: ApiFixture, path: str, ref: str) -> None:
    for part in ("", "/download", "/files/state.pt"):
        assert_problem(service.client.get(f"{path}/{ref}{part}"), 404, "not_found")


def test_checkpoints_beyond_the_limits_are_deleted(service: ApiFixture) -> None:
    job_id = service.submit(checkpoint={"keep_last": 1})["id"]
    path, claim = f"/v1/jobs/{job_id}/checkpoints", service.start(job_id)

    def save(epoch: int, loss: float) -> None:
        files = {"state.pt": f"epoch {epoch}".encode()}
        service.record(claim, checkpoints=[service.new_checkpoint(step=epoch, epoch=epoch, files=files, val_loss=loss)])

    save(1, 0.5)
    save(2, 0.6)
    removed = service.get(path, limit=1)["next"]
    save(3, 0.7)
    listed = service.get(path)["data"]
    assert [(item["epoch"], item["aliases"][0]) for item in listed] == [(3, "latest"), (1, "best")]
    assert service.get(path, after=removed)["data"] == listed[1:]
    for ref in (removed, "epoch-2", "step-2"):
        for part in ("", "/download", "/files/state.pt"):
            answer = service.client.get(f"{path}/{ref}{part}")
            assert_problem(answer, 404, "not_found")
            assert "no longer: it was removed for newer and better ones" in answer.json()["detail"]
    assert service.client.get(f"{path}/best/download").content == b"epoch 1"
    assert service.get(f"/v1/jobs/{job_id}")["best"]["checkpoint_id"] == listed[1]["id"]
    events = service.get(f"/v1/jobs/{job_id}/events")["data"]
    assert [event["data"]["epoch"] for event in events if event["type"] == "checkpoint"] == [1, 2, 3]


def test_a_download_has_a_name_and_a_digest(service: ApiFixture, path: str) -> None:
    answer = service.client.get(f"{path}/best/download")
    assert answer.status_code == 200
    assert answer.content == STATE
    digest = base64.b64encode(hashlib.sha256(STATE).digest()).decode()
    expected = {
        "content-type": "application/octet-stream",
        "content-length": str(len(STATE)),
        "content-disposition": 'attachment; filename="crack-unet-epoch-1.pt"',
        "etag": f'"{sha256(STATE)}"',
        "repr-digest": f"sha-256=:{digest}:",
        "accept-ranges": "bytes",
    }
    assert {name: answer.headers[name] for name in expected} == expected
    head = service.client.head(f"{path}/best/download")
    assert (head.status_code, head.content) == (200, b"")
    assert {name: head.headers[name] for name in expected} == expected


def test_a_checkpoint_inside_an_epoch_is_named_by_its_step(service: ApiFixture, path: str) -> None:
    answer = service.client.get(f"{path}/step-15/download")
    assert answer.headers["content-disposition"] == 'attachment; filename="crack-unet-step-15.pt"'


@each_row(
    ("asked", "start", "end"),
    [("bytes=0-9", 0, 10), ("bytes=1000000-", 1_000_000, 1_024_000), ("bytes=-5", 1_023_995, 1_024_000)],
)
def test_a_range_is_answered_with_that_part(service: ApiFixture, path: str, asked: str, start: int, end: int) -> None:
    answer = service.client.get(f"{path}/best/download", headers={"Range": asked})
    assert answer.status_code == 206
    assert answer.content == STATE[start:end]
    assert answer.headers["content-range"] == f"bytes {start}-{end - 1}/{len(STATE)}"
    assert answer.headers["etag"] == f'"{sha256(STATE)}"'


def test_if_range_continues_a_download_only_if_the_file_is_the_same(service: ApiFixture, path: str) -> None:
    headers = {"Range": "bytes=500000-", "If-Range": f'"{sha256(STATE)}"'}
    assert service.client.get(f"{path}/best/download", headers=headers).content == STATE[500_000:]
    other = service.client.get(f"{path}/latest/download", headers={**headers, "Range": "bytes=2-"})
    assert (other.status_code, other.content) == (200, b"later")


def test_a_range_beyond_the_end_is_a_problem_and_a_malformed_one_is_ignored(service: ApiFixture, path: str) -> None:
    beyond = service.client.get(f"{path}/latest/download", headers={"Range": "bytes=5-"})
    assert_problem(beyond, 416, "range_not_satisfiable")
    assert beyond.headers["content-range"] == "bytes */5"
    for asked in ("bytes=x-y", "bytes=3-1", "lines=1-2", "bytes", "bytes=", "bytes=" + "0-1," * 200):
        answer = service.client.get(f"{path}/latest/download", headers={"Range": asked})
        assert (answer.status_code, answer.content) == (200, b"later"), asked


def test_several_ranges_are_sent_as_parts_in_their_order(service: ApiFixture, path: str) -> None:
    answer = service.client.get(f"{path}/best/download", headers={"Range": "bytes=-2, 5000000-, 0-1,4-4"})
    assert answer.status_code == 206
    assert answer.headers["content-length"] == str(len(answer.content))
    message = BytesParser(policy=HTTP).parsebytes(
        f"Content-Type: {answer.headers['content-type']}\r\n\r\n".encode() + answer.content
    )
    assert message.get_content_type() == "multipart/byteranges"
    parts = [(part["content-range"], part.get_payload(decode=True)) for part in message.iter_parts()]
    assert parts == [
        ("bytes 1023998-1023999/1024000", STATE[-2:]),
        ("bytes 0-1/1024000", STATE[:2]),
        ("bytes 4-4/1024000", STATE[4:5]),
    ]


def test_ranges_larger_than_the_file_are_answered_with_the_file(service: ApiFixture, path: str) -> None:
    for asked in ("bytes=0-,1-", "bytes=" + ",".join(f"{start}-{start}" for start in range(100))):
        answer = service.client.get(f"{path}/latest/download", headers={"Range": asked})
        assert (answer.status_code, answer.content) == (200, b"later")


def test_a_range_is_ignored_except_in_get(service: ApiFixture, path: str) -> None:
    head = service.client.head(f"{path}/best/download", headers={"Range": "bytes=0-9"})
    assert (head.status_code, head.headers["content-length"]) == (200, str(len(STATE)))


@each_row(
    ("setting", "header", "value"),
    [
        ("x-accel-redirect:/protected-blobs", "x-accel-redirect", "/protected-blobs/{folder}/{name}"),
        ("x-accel-redirect:/protected-blobs/", "x-accel-redirect", "/protected-blobs/{folder}/{name}"),
        ("x-sendfile", "x-sendfile", "{blobs}/{folder}/{name}"),
    ],
)
def test_a_proxy_gets_the_path_of_the_file(
    service: ApiFixture, path: str, setting: str, header: str, value: str
) -> None:
    settings = service.settings.model_copy(update={"sendfile": setting})
    service.app.state.services = replace(service.app.state.services, settings=settings)
    name = sha256(STATE)
    for headers in ({}, {"Range": "bytes=0-9"}):
        answer = service.client.get(f"{path}/best/download", headers=headers)
        assert (answer.status_code, answer.content) == (200, b"")
        assert answer.headers[header] == value.format(folder=name[:2], name=name, blobs=service.settings.blobs)
        assert answer.headers["content-disposition"] == 'attachment; filename="crack-unet-epoch-1.pt"'
    held = service.client.get(f"{path}/best/download", headers={"If-None-Match": f'"{name}"'})
    assert (held.status_code, header in held.headers) == (304, False)
    resumed = service.client.get(f"{path}/best/download", headers={"Range": "bytes=9-", "If-Range": f'"{name}"'})
    assert (resumed.status_code, resumed.content, header in resumed.headers) == (206, STATE[9:], False)


def test_a_caller_that_has_the_file_gets_304(service: ApiFixture, path: str) -> None:
    etag = f'"{sha256(STATE)}"'
    for held in (etag, f'"other", W/{etag}', "*"):
        answer = service.client.get(f"{path}/best/download", headers={"If-None-Match": held})
        assert (answer.status_code, answer.content, answer.headers["etag"]) == (304, b"", etag)
    assert service.client.get(f"{path}/best/download", headers={"If-None-Match": '"other"'}).status_code == 200


def test_any_listed_file_can_be_downloaded(service: ApiFixture, path: str) -> None:
    answer = service.client.get(f"{path}/epoch-1/files/model.safetensors")
    assert answer.content == WEIGHTS
    assert answer.headers["content-disposition"] == 'attachment; filename="crack-unet-epoch-1-model.safetensors"'
    assert service.client.get(f"{path}/epoch-1/files/overlays/a.png").content == b"png"
    head = service.client.head(f"{path}/epoch-1/files/overlays/a.png")
    assert (head.status_code, head.headers["content-length"]) == (200, "3")


def test_a_browser_shows_pictures_and_nothing_else(service: ApiFixture, path: str) -> None:
    shown = service.client.get(f"{path}/epoch-1/files/overlays/a.png")
    assert shown.headers["content-type"] == "image/png"
    assert shown.headers["content-disposition"] == 'inline; filename="crack-unet-epoch-1-a.png"'
    assert shown.headers["content-security-policy"] == "default-src 'none'; sandbox"
    assert shown.headers["x-content-type-options"] == "nosniff"
    part = service.client.get(f"{path}/epoch-1/files/overlays/a.png", headers={"Range": "bytes=1-"})
    assert (part.status_code, part.content, part.headers["content-type"]) == (206, b"ng", "image/png")
    assert part.headers["content-security-policy"] == shown.headers["content-security-policy"]
    for file in ("files/model.safetensors", "files/state.pt", "download"):
        saved = service.client.get(f"{path}/epoch-1/{file}")
        assert saved.headers["content-type"] == "application/octet-stream"
        assert saved.headers["content-disposition"].startswith("attachment; ")


def test_a_file_that_is_not_listed_is_not_found(service: ApiFixture, path: str) -> None:
    outside = ("../state.pt", "%2e%2e/%2e%2e/torchyard.db", "/etc/passwd", "%00")
    for name in ("nope", "overlays", "", "state.pt/", "x" * 3000, *outside):
        code = "unknown_route" if name == "../state.pt" else "not_found"  # the client resolves it to another path
        assert_problem(service.client.get(f"{path}/epoch-1/files/{name}"), 404, code)


def test_a_file_whose_bytes_are_gone_is_not_found(service: ApiFixture, path: str) -> None:
    parts: Any = service.app.state.services
    parts.store.blobs.path(sha256(STATE)).unlink()
    assert_problem(service.client.get(f"{path}/best/download"), 404, "not_found")
    assert service.get(f"{path}/best")["sha256"] == sha256(STATE)


PARTS = {
    "tokenizer.json": b"words",
    "state.index.json": b'{"format": 1}',
    "state-00001-of-00002.safetensors": STATE,
    "state-00002-of-00002.safetensors": STATE[::-1],
}


@pytest.fixture
def in_parts(service: ApiFixture) -> str:
    """A job whose only checkpoint was written by several ranks."""
    job_id = service.submit(name="large")["id"]
    new = service.new_checkpoint(step=10, epoch=1, files=PARTS, val_loss=0.25)
    service.record(service.start(job_id), checkpoints=[new])
    return f"/v1/jobs/{job_id}/checkpoints/best"


def test_the_download_of_a_checkpoint_in_parts_is_an_archive_of_all(service: ApiFixture, in_parts: str) -> None:
    whole = archive_of(PARTS)
    listed = service.get(in_parts)
    assert (listed["size"], listed["sha256"]) == (len(whole), digest_of(PARTS))
    assert (listed["folder"], listed["files_omitted"]) == ({"path": "", "files": 4}, False)
    assert [file.keys() for file in listed["files"]] == [{"path", "size", "sha256"}] * 4
    for answer in (service.client.get(f"{in_parts}/download"), service.client.head(f"{in_parts}/download")):
        assert answer.headers["etag"] == f'"{digest_of(PARTS)}"'
        assert "repr-digest" not in answer.headers
        assert answer.headers["content-length"] == str(len(whole))
        assert answer.headers["content-disposition"] == 'attachment; filename="large-epoch-1.tar"'
        assert answer.content == (whole if answer.request.method == "GET" else b"")
    for name, content in PARTS.items():
        assert service.client.get(f"{in_parts}/files/{name}").content == content


@each_row("asked", ["0-0", "500-1600", "1000-", "-1500", "5-5,1023-1024,300000-300010"])
def test_ranges_of_an_archive_are_those_of_its_bytes(service: ApiFixture, in_parts: str, asked: str) -> None:
    whole = archive_of(PARTS)
    answer = service.client.get(f"{in_parts}/download", headers={"Range": f"bytes={asked}"})
    assert answer.status_code == 206
    if "," not in asked:
        assert answer.content == whole[slice(*_bounds(asked, len(whole)))]
        return
    document = f"Content-Type: {answer.headers['content-type']}\r\n\r\n".encode() + answer.content
    parts = BytesParser(policy=HTTP).parsebytes(document).iter_parts()
    expected = [whole[slice(*_bounds(item, len(whole)))] for item in asked.split(",")]
    assert [part.get_payload(decode=True) for part in parts] == expected


def _bounds(asked: str, size: int) -> tuple[int, int]:
    first, _, last = asked.partition("-")
    return (size - int(last), size) if not first else (int(first), int(last) + 1 if last else size)


CAPTURED = {
    "out/epoch=1/.metadata": b"m" * 511,
    "out/epoch=1/__0_0.distcp": STATE,
    "out/epoch=1/empty": b"",
    "out/epoch=1/exactly a block": b"b" * 512,
    "out/epoch=1/Größe/a/b/c/d/e/f": b"deep",
}


@pytest.fixture
def captured(service: ApiFixture) -> str:
    """A job whose only checkpoint is a folder that its script wrote."""
    job_id = service.submit(name="mine")["id"]
    new = service.new_checkpoint(step=10, files=dict(reversed(CAPTURED.items())), val_loss=0.25)
    service.record(service.start(job_id), checkpoints=[replace(new, source="captured")])
    return f"/v1/jobs/{job_id}/checkpoints/best"


def test_a_folder_is_sent_as_a_tar_with_its_names_as_they_are(service: ApiFixture, captured: str) -> None:
    view = service.get(captured)
    whole = archive_of(CAPTURED)
    assert (view["source"], view["folder"]) == ("captured", {"path": "out/epoch=1", "files": 5})
    assert (view["size"], view["sha256"]) == (len(whole), digest_of(CAPTURED))
    answer = service.client.get(f"{captured}/download")
    assert answer.content == whole
    assert answer.headers["content-disposition"] == 'attachment; filename="mine-step-10.tar"'
    with tarfile.open(fileobj=BytesIO(answer.content)) as tar:
        assert tar.getnames() == sorted(CAPTURED, key=str.encode)
        assert {member.name: tar.extractfile(member).read() for member in tar} == CAPTURED  # type: ignore[union-attr]
    for path, content in CAPTURED.items():
        assert service.client.get(f"{captured}/files/{quote(path)}").content == content


def test_every_range_of_a_folder_is_that_of_its_tar(service: ApiFixture, captured: str) -> None:
    whole = archive_of(CAPTURED)
    with tarfile.open(fileobj=BytesIO(whole)) as tar:
        begins = [at for member in tar for at in (member.offset_data, member.offset_data + member.size)]
    edges = sorted({0, 1, 512, len(whole) - 1024, len(whole), *begins, *(-(-at // 512) * 512 for at in begins)})
    near = sorted({at + step for at in edges for step in (-1, 0) if 0 <= at + step < len(whole)})
    for start in near:
        answer = service.client.get(f"{captured}/download", headers={"Range": f"bytes={start}-{start + 700}"})
        assert (answer.status_code, answer.content) == (206, whole[start : start + 701]), start
        assert answer.headers["content-range"] == (f"bytes {start}-{min(start + 700, len(whole) - 1)}/{len(whole)}")
    beyond = service.client.get(f"{captured}/download", headers={"Range": f"bytes={len(whole)}-"})
    assert (beyond.status_code, beyond.headers["content-range"]) == (416, f"bytes */{len(whole)}")


def test_a_folder_is_sent_anew_to_who_has_another(service: ApiFixture, captured: str) -> None:
    whole, etag = archive_of(CAPTURED), f'"{digest_of(CAPTURED)}"'
    for given, status, content in ((etag, 206, whole[5:]), ('"other"', 200, whole), (f"W/{etag}", 200, whole)):
        headers = {"Range": "bytes=5-", "If-Range": given}
        answer = service.client.get(f"{captured}/download", headers=headers)
        assert (answer.status_code, answer.content) == (status, content)
    for method in ("GET", "HEAD"):
        answer = service.client.request(method, f"{captured}/download", headers={"If-None-Match": etag})
        assert (answer.status_code, answer.content, answer.headers["etag"]) == (304, b"", etag)
    head = service.client.head(f"{captured}/download")
    assert (head.status_code, head.headers["etag"], head.headers["content-length"]) == (200, etag, str(len(whole)))
    assert head.headers["accept-ranges"] == "bytes"
    assert "repr-digest" not in head.headers


def test_a_checkpoint_of_one_file_sends_that(service: ApiFixture) -> None:
    job_id = service.submit()["id"]
    new = service.new_checkpoint(step=10, files={"out/epoch=1.ckpt": b"one"})
    service.record(service.start(job_id), checkpoints=[replace(new, source="captured")])
    path = f"/v1/jobs/{job_id}/checkpoints/latest"
    view, answer = service.get(path), service.client.get(f"{path}/download")
    assert (view["folder"], view["sha256"], answer.content) == (None, sha256(b"one"), b"one")
    assert "repr-digest" in answer.headers


def test_a_checkpoint_of_an_older_version_is_sent_as_a_tar(service: ApiFixture, in_parts: str) -> None:
    with service.database.write("test") as session:
        session.execute(update(Checkpoint).values(files_bytes=None, sent=None))
    assert service.get(in_parts)["sha256"] == digest_of(PARTS)
    assert service.client.get(f"{in_parts}/download").content == archive_of(PARTS)
    job_id = in_parts.split("/")[3]
    service.client.post("/v1/models", json={"name": "large", "from": f"{job_id}/best"}).raise_for_status()
    assert service.get("/v1/models/admin/large")["newest"]["sha256"] == digest_of(PARTS)


@both_databases
def test_a_list_leaves_out_the_files_of_a_checkpoint_with_very_many(service: ApiFixture) -> None:
    job_id = service.submit(name="mine")["id"]
    paths = [f"out/global_step10/{number:05}.bin" for number in range(MOST_FILES)]
    many = service.new_checkpoint(step=10, files={"out/global_step10/00000.bin": b"1"}, val_loss=0.5)
    [file] = many.files
    files = [replace(file, path=path) for path in paths]
    few = service.new_checkpoint(step=20, files={"out/a": b"1", "out/b": b"2"})
    service.record(
        service.start(job_id),
        checkpoints=[replace(many, files=files, source="captured"), replace(few, source="captured")],
    )
    path = f"/v1/jobs/{job_id}/checkpoints"
    answer = service.client.get(path)
    newest, listed = answer.json()["data"]
    whole = service.get(f"{path}/best")
    assert len(answer.content) < 20_000
    assert (newest["files_omitted"], [file["path"] for file in newest["files"]]) == (False, ["out/a", "out/b"])
    assert (listed["files_omitted"], whole["files_omitted"]) == (True, False)
    assert [file["path"] for file in whole["files"]] == paths
    assert {**whole, "files": [], "files_omitted": True} == listed
    assert listed["folder"] == {"path": "out/global_step10", "files": MOST_FILES}
    service.client.post("/v1/models", json={"name": "large", "from": f"{job_id}/best"}).raise_for_status()
    for kept in (
        service.get("/v1/models")["data"][0]["newest"],
        service.get("/v1/models/admin/large/versions")["data"][0],
    ):
        assert (kept["files_omitted"], kept["files"], kept["sha256"]) == (True, [], whole["sha256"])
    assert len(service.get("/v1/models/admin/large/versions/1")["files"]) == MOST_FILES
    answer = service.client.get(f"{path}/best/download", headers={"Range": "bytes=5120000-5121023"})
    assert answer.content == archives.header(paths[5000], 1) + b"1" + bytes(511)


def test_a_kept_model_in_parts_is_downloaded_as_an_archive(service: ApiFixture, in_parts: str) -> None:
    job_id = in_parts.split("/")[3]
    service.client.post("/v1/models", json={"name": "large", "from": f"{job_id}/best"}).raise_for_status()
    answer = service.client.get("/v1/models/admin/large/versions/1/download")
    assert answer.content == archive_of(PARTS)
    assert answer.headers["content-disposition"] == 'attachment; filename="large-v1.tar"'


def test_an_archive_of_which_a_part_is_gone_is_not_begun(service: ApiFixture, in_parts: str) -> None:
    service.app.state.services.store.blobs.path(sha256(STATE[::-1])).unlink()
    assert_problem(service.client.get(f"{in_parts}/download"), 404, "not_found")


def test_a_user_has_as_many_archives_sent_at_once_as_streams(
    service: ApiFixture, in_parts: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(service.app.state.services.access.open_streams, "_most", 0)
    assert_problem(service.client.get(f"{in_parts}/download"), 429, "too_many_requests")
    assert service.client.get(f"{in_parts}/files/tokenizer.json").status_code == 200
