"""`torchyard predict`: from files, texts and jobs, for people and programs."""

from collections.abc import Callable
import hashlib
import json
from pathlib import Path
from subprocess import CompletedProcess
import threading
from typing import Any

import numpy as np
from PIL import Image
import pytest
import torch

from tests.approved import Approved
from tests.archives import archive_of
from tests.torchyard.cli.invocation import environment, run_in_process
from tests.torchyard.cli.terminal import in_terminal
from tests.torchyard.client.answers import JOB, NOW, job, serve_folder
from tests.torchyard.client.fake_server import TOKEN, Answer, FakeServer
from tests.torchyard.contract.specs import SCRIPT
from tests.torchyard.models.test_loading import digits, films, walls
from tests.torchyard.states import parts
import torchyard
from torchyard.cli import cached

Predict = Callable[..., CompletedProcess[str]]


@pytest.fixture(scope="module")
def states(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """The checkpoint of each recipe."""
    folder = tmp_path_factory.mktemp("states")
    for make in (digits, walls, films):
        torch.save(make(), folder / f"{make.__name__}.pt")
    return {make.__name__: folder / f"{make.__name__}.pt" for make in (digits, walls, films)}


@pytest.fixture
def predict(tmp_path: Path) -> Predict:
    """Runs the command on the CPU, without a server unless one is given."""

    def run(*arguments: object, server: FakeServer | None = None, stdin: str = "") -> CompletedProcess[str]:
        env = environment(server.url if server else None, TOKEN) | {"XDG_CACHE_HOME": str(tmp_path / "cache")}
        return run_in_process(["predict", *map(str, arguments), "--device", "cpu"], env, stdin=stdin, cwd=tmp_path)

    return run


def lines(done: CompletedProcess[str]) -> list[dict[str, Any]]:
    assert done.returncode == 0, done.stderr
    return [json.loads(line) for line in done.stdout.splitlines()]


def picture(path: Path, size: tuple[int, int] = (40, 30)) -> Path:
    path.parent.mkdir(exist_ok=True)
    values = np.random.default_rng(0).integers(256, size=(*size[::-1], 3)).astype(np.uint8)
    Image.fromarray(values).save(path)
    return path


def test_classes_of_pictures_are_lines_of_json_or_a_table(
    tmp_path: Path, predict: Predict, states: dict[str, Path]
) -> None:
    for name in ("a.png", "b.png"):
        picture(tmp_path / "in" / name)
    found = lines(predict(states["digits"], "in", "in/a.png", "--json", "--batch-size", 2))
    assert [row["source"] for row in found] == ["in/a.png", "in/b.png", "in/a.png"]
    expected = torchyard.load(states["digits"], device="cpu").predict(tmp_path / "in" / "a.png")
    assert {**found[2], "source": expected.source} == expected.as_dict()
    heading, first, *_ = predict(states["digits"], "in").stdout.splitlines()
    assert heading.split() == ["LABEL", "PROBABILITY", "SOURCE"]
    assert first.split() == [expected.label, f"{expected.probability:.4f}", "in/a.png"]


def test_masks_and_overlays_are_written(tmp_path: Path, predict: Predict, states: dict[str, Path]) -> None:
    for name in ("a/1.png", "b/1.jpg"):
        picture(tmp_path / name)
    found = lines(predict(states["walls"], "a", "b", "-o", "out", "--json"))
    assert [(row["mask"], row["overlay"]) for row in found] == [
        ("out/1.mask.png", "out/1.overlay.png"),
        ("out/1-2.mask.png", "out/1-2.overlay.png"),
    ]
    expected = torchyard.load(states["walls"], device="cpu").predict(tmp_path / "a" / "1.png")
    with Image.open(tmp_path / "out" / "1.mask.png") as mask:
        assert np.array_equal(np.asarray(mask), expected.mask * 255)
    with Image.open(tmp_path / "out" / "1.overlay.png") as overlay:
        assert (overlay.size, overlay.mode) == ((40, 30), "RGB")
    heading, row, _ = predict(states["walls"], "a", "b", "-o", "out").stdout.splitlines()
    assert heading.split() == ["bad", "good", "MASK", "PICTURE"]
    assert row.split()[2:] == ["out/1.mask.png", "a/1.png"]
    assert heading.split() != predict(states["walls"], "a").stdout.splitlines()[0].split()


def test_texts_come_from_options_files_and_stdin(tmp_path: Path, predict: Predict, states: dict[str, Path]) -> None:
    (tmp_path / "texts.txt").write_text("a dull film\n\nfine\n")
    done = predict(states["films"], "texts.txt", "-", "--text", "first", "--text", "second", "--json", stdin="last\n\n")
    found = lines(done)
    assert [row["source"] for row in found] == ["first", "second", "a dull film", "fine", "last"]
    assert all(row["probabilities"][row["label"]] == row["probability"] for row in found)


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        (["digits"], 2),
        (["digits", "--text", "a"], 2),
        (["digits", "-"], 2),
        (["digits", "a.png", "-o", "out"], 2),
        (["digits", "absent.png"], 1),
        (["digits", "notes.txt"], 1),
        (["digits", "empty"], 1),
        (["digits", "a.png", "--device", "nonsense"], 1),
        (["films", "a.png"], 1),
        (["films", "empty.txt"], 1),
        (["films", "absent.txt"], 1),
        (["films", "--text", " "], 1),
    ],
)
def test_what_cannot_be_predicted_is_one_line(
    tmp_path: Path, states: dict[str, Path], arguments: list[str], code: int, approved: Approved
) -> None:
    picture(tmp_path / "a.png")
    (tmp_path / "notes.txt").write_text("no picture")
    (tmp_path / "empty.txt").write_text("\n")
    (tmp_path / "empty").mkdir()
    name, *rest = arguments
    done = run_in_process(["predict", str(states[name]), *rest], environment(None, ""), cwd=tmp_path)
    assert (done.returncode, done.stdout) == (code, ""), done.stderr
    assert done.stderr.replace("\n│ ", " ") == approved.of_row("replace")
    assert code == 2 or len(done.stderr.splitlines()) == 1


def test_a_file_that_is_no_checkpoint_is_one_line(tmp_path: Path, predict: Predict, approved: Approved) -> None:
    (tmp_path / "best.pt").write_bytes(b"no checkpoint")
    done = predict("best.pt", "a.png")
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr == approved("stderr")


def test_a_terminal_gets_no_control_characters(tmp_path: Path) -> None:
    torch.save({**digits(), "classes": ["\x1b]0;title\x07bad", "\x1b[2Jgood"]}, tmp_path / "best.pt")
    picture(tmp_path / "a.png")
    code, screen = in_terminal(["predict", "best.pt", "a.png", "--device", "cpu"], environment(None, ""), cwd=tmp_path)
    assert code == 0, screen
    assert "\x1b]" not in screen and "\x1b[2J" not in screen
    assert "PROBABILITY" in screen and "a.png" in screen


def test_without_the_extra_the_command_names_it(
    tmp_path: Path, states: dict[str, Path], monkeypatch: pytest.MonkeyPatch, approved: Approved
) -> None:
    import builtins
    import sys

    real = builtins.__import__

    def absent(name: str, *arguments: Any, **options: Any) -> Any:
        if name.partition(".")[0] == "torch":
            raise ModuleNotFoundError("No module named 'torch'", name="torch")
        return real(name, *arguments, **options)

    for name in [name for name in sys.modules if name.startswith("torchyard.models")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setattr(builtins, "__import__", absent)
    done = run_in_process(["predict", str(states["digits"]), "a.png"], environment(None, ""), cwd=tmp_path)
    assert (done.returncode, done.stderr) == (1, approved("stderr"))


def serve(server: FakeServer, state: bytes, *, sent: bytes | None = None, ref: str = "best", **changes: Any) -> str:
    """Serves a checkpoint of job_1. Returns the sha256 of its state."""
    sha256 = hashlib.sha256(state).hexdigest()
    file = {"path": "state.pt", "size": len(state), "sha256": sha256, **changes}
    view = {"id": "ckpt_1", "epoch": 3, "step": 9, "attempt": 1, "metrics": {}, "files": [file], "aliases": [ref]}
    view |= {"size": file["size"], "sha256": file["sha256"], "created_at": NOW}
    server.on(JOB, job())
    server.on("/v1/jobs", {"data": [], "has_more": False, "next": None})
    for name in (ref, "ckpt_1"):
        server.on(f"{JOB}/checkpoints/{name}", view)
    for path in (f"{JOB}/checkpoints/ckpt_1/download", f"{JOB}/checkpoints/ckpt_1/files/state.pt"):
        server.on(path, Answer(state if sent is None else sent))
    return sha256


def downloads(server: FakeServer) -> int:
    return sum(request.path.endswith(("/download", "/state.pt")) for request in server.requests)


def test_a_jobs_checkpoint_is_downloaded_once(
    tmp_path: Path, predict: Predict, states: dict[str, Path], server: FakeServer
) -> None:
    picture(tmp_path / "a.png")
    sha256 = serve(server, states["digits"].read_bytes())
    expected = lines(predict(states["digits"], "a.png", "--json"))
    for name in ("job_1", "job_1/best", "job_1/ckpt_1"):
        assert lines(predict(name, "a.png", "--json", server=server)) == expected
    assert downloads(server) == 1
    folder = tmp_path / "cache" / "torchyard" / "checkpoints"
    assert folder.stat().st_mode & 0o777 == 0o700
    assert (folder / f"{sha256}.pt").stat().st_mode & 0o777 == 0o600
    (folder / f"{sha256}.pt").write_bytes(b"changed")  # by who knows whom
    assert lines(predict("job_1", "a.png", "--json", server=server)) == expected
    assert downloads(server) == 2


def test_a_jobs_checkpoint_in_parts_is_downloaded_once_and_predicts_the_same(
    tmp_path: Path, predict: Predict, states: dict[str, Path], server: FakeServer
) -> None:
    picture(tmp_path / "a.png")
    folder = parts.write(tmp_path / "parts", torch.load(states["digits"], weights_only=True))
    files = {path.name: path.read_bytes() for path in folder.iterdir()}
    serve(server, b"")
    sha256 = serve_folder(server, files, source="run")["sha256"]
    expected = lines(predict(states["digits"], "a.png", "--json"))
    for name in ("job_1", "job_1/best"):
        assert lines(predict(name, "a.png", "--json", server=server)) == expected
    assert downloads(server) == 1
    kept = tmp_path / "cache" / "torchyard" / "checkpoints" / sha256
    assert (kept.stat().st_mode & 0o777, (kept / "state.index.json").stat().st_mode & 0o777) == (0o700, 0o600)
    assert lines(predict(kept, "a.png", "--json")) == lines(predict("parts", "a.png", "--json")) == expected
    (tmp_path / "all.tar").write_bytes(archive_of(files))
    assert lines(predict("all.tar", "a.png", "--json")) == expected
    (kept / "state.index.json").write_bytes(b"changed")  # by who knows whom
    assert lines(predict("job_1", "a.png", "--json", server=server)) == expected
    assert downloads(server) == 2


def test_two_processes_at_once_download_once(
    tmp_path: Path, predict: Predict, states: dict[str, Path], server: FakeServer
) -> None:
    from torchyard.client import Client

    serve(server, states["digits"].read_bytes())
    found: list[Path] = []

    def fetch() -> None:
        with Client(server.url, TOKEN) as client:
            found.append(cached.checkpoint_of(client, "job_1"))

    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
        threads = [threading.Thread(target=fetch) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert len(found) == 4 and len({*found}) == 1
    assert found[0].read_bytes() == states["digits"].read_bytes()
    assert downloads(server) == 1


def test_a_jobs_checkpoint_is_exported(tmp_path: Path, states: dict[str, Path], server: FakeServer) -> None:
    serve(server, states["digits"].read_bytes())
    env = environment(server.url, TOKEN) | {"XDG_CACHE_HOME": str(tmp_path / "cache")}
    done = run_in_process(["export", "job_1/best", "--to", "safetensors"], env, cwd=tmp_path)
    assert (done.returncode, done.stdout) == (0, "job_1-best.safetensors\n"), done.stderr
    loaded = torchyard.load(tmp_path / "job_1-best.safetensors", device="cpu")
    assert loaded.metadata["classes"] == torchyard.load(states["digits"], device="cpu").metadata["classes"]


def test_what_a_server_sends_instead_is_not_used(
    tmp_path: Path, predict: Predict, states: dict[str, Path], server: FakeServer
) -> None:
    picture(tmp_path / "a.png")
    state = states["digits"].read_bytes()
    serve(server, state, sent=b"other" * (len(state) // 5) + b"other"[: len(state) % 5])
    done = predict("job_1", "a.png", server=server)
    assert done.returncode == 1 and "the received bytes were removed" in done.stderr
    serve(server, state, sha256="../../evil")
    done = predict("job_1", "a.png", server=server)
    assert done.returncode == 1 and done.stdout == ""
    assert not [path for path in tmp_path.rglob("*") if "evil" in path.name or path.suffix == ".pt"]


def test_a_job_that_is_no_recipe_is_refused_before_a_download(
    tmp_path: Path, predict: Predict, states: dict[str, Path], server: FakeServer, approved: Approved
) -> None:
    serve(server, states["digits"].read_bytes())
    server.on(JOB, job(trainer="script", spec=SCRIPT))
    done = predict("job_1", "a.png", server=server)
    assert (done.returncode, done.stderr) == (
        1,
        approved("stderr"),
    )
    assert downloads(server) == 0


def test_the_cache_is_bounded(
    tmp_path: Path, predict: Predict, states: dict[str, Path], server: FakeServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    picture(tmp_path / "a.png")
    contents = [states[name].read_bytes() for name in ("digits", "walls")]
    monkeypatch.setattr(cached, "MOST_BYTES", max(map(len, contents)))
    for content in contents:
        serve(server, content)
        lines(predict("job_1", "a.png", "--json", server=server))
    kept = [path.name for path in (tmp_path / "cache" / "torchyard" / "checkpoints").glob("*.pt")]
    assert kept == [f"{hashlib.sha256(contents[-1]).hexdigest()}.pt"]


def test_a_named_model_is_downloaded_once(
    tmp_path: Path, predict: Predict, states: dict[str, Path], server: FakeServer
) -> None:
    picture(tmp_path / "a.png")
    state = states["digits"].read_bytes()
    file = {"path": "state.pt", "size": len(state), "sha256": hashlib.sha256(state).hexdigest()}
    version: dict[str, Any] = {"owner": "ada", "name": "digits", "version": 3, "trainer": "image-classification"}
    version |= {"job_id": None, "checkpoint_id": None, "epoch": 1, "step": 9, "metrics": {}, "files": [file]}
    version |= {"size": file["size"], "sha256": file["sha256"], "stored_bytes": 9, "created_at": NOW}
    base = "/v1/models/ada/digits/versions/3"
    server.on(base, version)
    for path in (f"{base}/download", f"{base}/files/state.pt"):
        server.on(path, Answer(state))
    for _ in range(2):
        assert len(lines(predict("model:ada/digits@3", "a.png", "--json", server=server))) == 1
    assert downloads(server) == 1
    done = predict("model:a/b/c", "a.png", server=server)
    assert done.returncode == 1 and "names no model" in done.stderr
