"""What a job writes into its run directory by hand, in place of what it shows, harms nobody who looks at it."""

from collections.abc import Generator
import re

import httpx2
import pytest

from tests.e2e.service import Service
from tests.rows import each_row
from torchyard.client import Client
from torchyard.contract.jobs.views import JobView
from torchyard.contract.states import JobState
from torchyard.contract.team.roles import Role

HTML = b"<!doctype html><script>alert(document.cookie)</script>"

PROGRAM = f"""
import json, os, pathlib, struct, zlib
job = pathlib.Path(os.environ["TORCHYARD_RUN_DIR"])
media = job / "media"
media.mkdir()
log = (job / "events.jsonl").open("a")


def say(**values):
    log.write(json.dumps({{"type": "media", "time": 1, "step": 1, **values}}) + "\\n")


def show(key, content, **values):
    (media / f"{{key}}.png").write_bytes(content)
    say(key=key, kind="image", files={{"image": f"{{key}}.png"}}, **values)


def chunk(kind, content):
    return struct.pack(">I", len(content)) + kind + content + struct.pack(">I", zlib.crc32(kind + content))


def png(width, height, *chunks):
    header = chunk(b"IHDR", struct.pack(">IIBBBBB", width, height, 8, 0, 0, 0, 0))
    rows = chunk(b"IDAT", zlib.compress(b"\\0" * 72))
    return b"\\x89PNG\\r\\n\\x1a\\n" + header + b"".join(chunks) + rows + chunk(b"IEND", b"")


picture = png(8, 8)
(media / "twin").write_bytes(picture)
show("good", picture)
show("polyglot", picture + {HTML!r})
show("commented", png(8, 8, chunk(b"tEXt", b"x\\0" + {HTML!r})))
show("short", picture[:50])
show("frames", png(8, 8, chunk(b"acTL", struct.pack(">II", 10_000, 0))))
show("svg", b"<svg xmlns='http://www.w3.org/2000/svg'><script>alert(1)</script></svg>")
show("html", {HTML!r})
show("bomb", png(60_000, 60_000))
for name, make in {{
    "link": lambda path: path.symlink_to("/etc/passwd"),
    "pipe": os.mkfifo,
    "folder": pathlib.Path.mkdir,
    "other-name": lambda path: os.link(media / "twin", path),
}}.items():
    make(media / f"{{name}}.png")
    say(key=name, kind="image", files={{"image": f"{{name}}.png"}})
for name in ("../events.jsonl", "/etc/passwd", "a\\0.png", ".."):
    say(key="path", kind="image", files={{"image": name}})
for key in ("../../etc/passwd", "val/a b?c#d%2e", "__proto__", "<img src=x onerror=alert(1)>", "\\u202egnp.exe"):
    say(key=key, kind="text", data={{"text": key}})
for key in ("nul\\0", "line\\n", "k" * 201, ""):
    say(key=key, kind="text", data={{"text": "no"}})
for step in (-1, 1.5, "7", True, None, 2**63, 9, 3, 9):
    say(key="steps", kind="text", step=step, data={{"text": repr(step)}})
for text in ('{{"edges":[0,NaN],"counts":[1]}}', '{{"edges":[0,1e999],"counts":[1]}}', "[" * 9000 + "]" * 9000):
    log.write('{{"type":"media","time":1,"step":1,"key":"no","kind":"histogram","data":' + text + "}}\\n")
say(key="zero", kind="histogram", data={{"edges": [-0.0, 2**53 + 1], "counts": [-0.0]}})
say(key="no", kind="histogram", data={{"edges": [*range(100_001)], "counts": [1] * 100_000}})
say(key="no", kind="table", data={{"columns": ["c"] * 10_000, "rows": []}})
say(key="no", kind="table", data={{"columns": ["c"] * 100, "rows": [[0] * 100] * 10_000}})
say(key="no", kind="text", data={{"text": "x" * (20 << 20)}})
"""


@pytest.fixture(scope="module")
def job(service: Service) -> JobView:
    return service.wait(service.submit_script("hostile", PROGRAM, max_restarts=0).id, JobState.SUCCEEDED)


@pytest.fixture
def http(service: Service) -> Generator[httpx2.Client]:
    headers = {"Authorization": f"Bearer {service.server['token']}"}
    with httpx2.Client(base_url=service.server["url"], headers=headers) as http:
        yield http


def test_what_is_a_picture_by_its_bytes_or_has_the_form_of_data_is_stored(service: Service, job: JobView) -> None:
    found = [*service.client.get(job.id).media()]
    assert sorted(item.key for item in found if item.kind == "image") == [
        *("commented", "frames", "good", "polyglot", "short"),
    ]
    texts = {item.key for item in found if item.kind == "text"}
    assert texts == {
        *("../../etc/passwd", "val/a b?c#d%2e", "__proto__", "<img src=x onerror=alert(1)>", "\u202egnp.exe", "steps"),
    }
    assert [item.step for item in found if item.key == "steps"] == [3, 9]
    (zero,) = (item for item in found if item.kind == "histogram")
    assert zero.key == "zero"
    assert not {"table", "no"} & {part for item in found for part in (item.kind, item.key)}


def test_of_what_is_left_out_messages_say_why(service: Service, job: JobView) -> None:
    said = "\n".join(event.data["text"] for event in service.client.jobs.events(job.id) if event.type == "message")
    for key, why in {
        "svg": "it is not a PNG, JPEG or WebP",
        "html": "it is not a PNG, JPEG or WebP",
        "bomb": "it has 60000 x 60000 pixels",
        "link": "media/link.png is a link",
        "pipe": "media/pipe.png is not a regular file",
        "folder": "media/folder.png is not a regular file",
        "other-name": "media/other-name.png has other names",
    }.items():
        assert f"image '{key}' of step 1 was not stored: {why}" in said
    assert "root:" not in said


@each_row("key", ["polyglot", "commented", "frames", "short"])
def test_a_picture_is_sent_as_one_and_nothing_else(
    service: Service, job: JobView, http: httpx2.Client, key: str
) -> None:
    (item,) = service.client.get(job.id).media(key)
    for headers, status in (({}, 200), ({"Range": "bytes=0-7"}, 206), ({"Accept": "text/html"}, 200)):
        answer = http.get(f"/v1/jobs/{job.id}/media/{item.id}/image", headers=headers)
        assert answer.status_code == status
        assert answer.headers["content-type"] == "image/png"
        assert answer.headers["x-content-type-options"] == "nosniff"
        assert answer.headers["content-security-policy"] == "default-src 'none'; sandbox"
        assert re.match("inline; filename=", answer.headers["content-disposition"])
        assert answer.content.startswith(b"\x89PNG\r\n\x1a\n")


def test_who_may_not_read_the_job_finds_nothing_and_after_its_deletion_nobody(
    service: Service, http: httpx2.Client
) -> None:
    admin = service.client
    job = service.wait(service.submit_script("hides", PROGRAM, max_restarts=0).id, JobState.SUCCEEDED)
    (item,) = admin.get(job.id).media("good")
    paths = [f"/v1/jobs/{job.id}/media", f"/v1/jobs/{job.id}/media/{item.id}/image"]
    admin.users.add("vera", role=Role.VIEWER)
    token = admin.tokens.make(name="looks", user="vera").token
    vera = {"Authorization": f"Bearer {token}"}

    def statuses(**headers: str) -> list[int]:
        return [http.get(path, headers=headers).status_code for path in paths]

    admin.jobs.update(job.id, visibility="private")
    assert (statuses(**vera), statuses()) == ([404, 404], [200, 200])
    admin.jobs.update(job.id, visibility="team")
    assert statuses(**vera) == [200, 200]
    admin.jobs.delete(job.id)
    assert (statuses(**vera), statuses()) == ([404, 404], [404, 404])
    with Client(url=service.server["url"], token=token) as viewer:
        assert job.id not in {each.id for each in viewer.jobs.list()}
