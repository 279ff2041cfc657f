"""The in-job context: what it writes, what it survives, and how ranks agree to stop."""

from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager
import hashlib
import math
import os
from pathlib import Path
import shutil
import signal
import subprocess
import sys
import threading
from typing import Any

import numpy as np
import pytest
from safetensors.torch import load_file
import torch

from tests.approved import Approved
from tests.disks import mounted
import torchyard
from torchyard.contract.attempts.events import CheckpointSaved, Message, Metric, Packages, Progress, parse_line
from torchyard.contract.attempts.records import Manifest, StopRequest
from torchyard.contract.attempts.rundir import Env, RunDir
from torchyard.contract.states import EndReason
from torchyard.host.recordfiles import read_record, write_record
from torchyard.run import Run


@pytest.fixture
def folder(tmp_path: Path) -> RunDir:
    run = RunDir(tmp_path / "run")
    run.create()
    return run


def context(folder: RunDir, **environ: str) -> Run:
    return Run({Env.RUN_DIR: str(folder.job), **environ})


def lines(folder: RunDir) -> list[Any]:
    raw = folder.events.read_text()
    assert raw.endswith("\n")
    return [line for line in map(parse_line, raw.splitlines()) if not isinstance(line, Packages)]


def test_importing_it_costs_no_torch() -> None:
    code = "import sys, torchyard; print(sorted({'torch', 'pydantic', 'numpy'} & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-P", "-c", code], check=True, capture_output=True, text=True)
    assert done.stdout == "[]\n"
    with pytest.raises(AttributeError):
        _ = torchyard.absent


def test_outside_the_service_it_does_nothing_harmful(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    handler = signal.getsignal(signal.SIGTERM)
    run = Run({})
    run.attach()
    run.log({"loss": torch.tensor(1.0)}, step=1)
    run.progress(step=1)
    run.message("hello")
    run.card({"parameters": 1})
    run.save_checkpoint({"step": 1}, step=1, epoch=1, background=True)
    run.flush()
    run.close()
    assert run.resume() is None
    assert not run.should_stop()
    assert not run.stop_requested
    assert (run.rank, run.local_rank, run.world_size, run.config, run.data) == (0, 0, 1, {}, None)
    assert run.device.type in {"cpu", "cuda"}
    assert signal.getsignal(signal.SIGTERM) == handler
    assert list(tmp_path.iterdir()) == []


def test_what_is_logged_is_written_in_order_with_every_kind_of_number(folder: RunDir) -> None:
    run = context(folder)
    values = {"a": math.nan, "b": math.inf, "c": -math.inf, "d": torch.tensor([2.5], requires_grad=True), "e": True}
    run.log(values, step=3)
    run.message("x" * 20_000, level="warning")
    for step in range(4, 2000):
        run.log({"a": step}, step=step)
        run.progress(step=step, total_steps=2000, epoch=1, epochs=2)
    run.log({}, step=5000)
    run.close()
    written = lines(folder)
    first, message = written[:2]
    assert isinstance(first, Metric)
    assert math.isnan(first.values.pop("a"))
    assert first.values == {"b": math.inf, "c": -math.inf, "d": 2.5, "e": 1.0}
    assert isinstance(message, Message)
    assert (message.level, len(message.text)) == ("warning", 10_000)
    assert [line.step for line in written if isinstance(line, Metric)] == list(range(3, 2000))
    progress = [line for line in written if isinstance(line, Progress)]
    assert (progress[-1].step, progress[-1].total_steps, progress[-1].epoch, progress[-1].epochs) == (1999, 2000, 1, 2)
    assert len(progress) < 50
    assert [line.time for line in written if isinstance(line, Metric)] == sorted(
        line.time for line in written if isinstance(line, Metric)
    )


def test_a_value_is_kept_as_it_was_when_it_was_logged(folder: RunDir) -> None:
    run = context(folder)
    loss = torch.ones(())
    run.log({"loss": loss}, step=1)
    loss += 1
    run.close()
    (line,) = lines(folder)
    assert line.values == {"loss": 1.0}


@pytest.mark.parametrize("value", [torch.zeros(2), "text", None, [1.0]])
def test_what_is_no_number_is_refused_at_once(folder: RunDir, value: Any) -> None:
    run = context(folder)
    with pytest.raises((TypeError, ValueError), match=rf"^loss: a (tensor|{type(value).__name__}) "):
        run.log({"loss": value}, step=1)
    with pytest.raises((TypeError, ValueError), match=r"^loss: a "):
        run.save_checkpoint({}, step=1, metrics={"loss": value})
    run.close()
    assert not folder.events.exists()


@pytest.mark.parametrize(
    "name",
    [
        "",
        "x" * 201,
        "lo\nss",
        "\ud800",
        3,
    ],
)
def test_what_is_no_name_is_refused_at_once_and_named(folder: RunDir, name: Any, approved: Approved) -> None:
    run = context(folder)
    for call in (
        lambda: run.log({name: 1.0}, step=1),
        lambda: run.save_checkpoint({}, step=1, metrics={name: 1.0}),
    ):
        with pytest.raises((TypeError, ValueError)) as caught:
            call()
        assert str(caught.value) == approved.of_row("message")
    run.close()
    assert not folder.events.exists()


@pytest.mark.parametrize("value", ["1", 1.0, None, -1, 2**63, 10**5000], ids=lambda value: f"{type(value)}"[:9])
def test_what_is_no_step_is_refused_at_once_and_named(folder: RunDir, value: Any) -> None:
    run = context(folder)
    for call in (
        lambda: run.log({"loss": 1.0}, step=value),
        lambda: run.progress(step=value),
        lambda: run.progress(step=1, epoch=value or -1),
        lambda: run.save_checkpoint({}, step=value),
    ):
        with pytest.raises((TypeError, ValueError), match=r"^(step|epoch) must be .*; got "):
            call()
    run.close()
    assert not folder.events.exists()


def test_whole_numbers_of_other_types_are_steps(folder: RunDir) -> None:
    run = context(folder)
    run.log({"loss": 1.0}, step=torch.tensor(3))  # pyright: ignore[reportArgumentType]
    run.log(dict.fromkeys(map(str, range(1000)), 1.0), step=np.int64(4))  # pyright: ignore[reportArgumentType]
    run.message("a file's name: \udc80")
    run.close()
    assert [line.step for line in lines(folder) if isinstance(line, Metric)] == [3, 4]


def test_a_call_of_many_metrics_records_them_all(folder: RunDir) -> None:
    run, many = context(folder), {f"m{number}": float(number) for number in range(2500)}
    run.log(many, step=5)
    run.close()
    found = [line for line in lines(folder) if isinstance(line, Metric)]
    assert [(line.step, len(line.values)) for line in found] == [(5, 1000), (5, 1000), (5, 500)]
    assert {key: value for line in found for key, value in line.values.items()} == many


def test_a_checkpoint_keeps_as_many_metrics_as_it_may_and_says_once_that_there_were_more(folder: RunDir) -> None:
    run, many = context(folder), {f"m{number}": 1.0 for number in range(1001)}
    for step in (1, 2):
        run.save_checkpoint({}, step=step, metrics=many)
    run.close()
    for name in ("step-00000001", "step-00000002"):
        manifest = Manifest.from_json((folder.checkpoints / name / "manifest.json").read_bytes())
        assert list(manifest.metrics) == list(many)[:1000]
    (said,) = [line.text for line in lines(folder) if isinstance(line, Message)]
    assert said == "a checkpoint has 1000 metrics; further ones are not kept in it"


@pytest.mark.parametrize("value", [np.ones(1), np.ones((1, 1), np.float32), np.array(1), torch.ones(1, 1)])
def test_the_one_number_of_an_array_is_a_number(folder: RunDir, value: Any) -> None:
    run = context(folder)
    run.log({"loss": value}, step=1)
    with pytest.raises((TypeError, ValueError), match="loss: a"):
        run.log({"loss": np.ones(2)}, step=1)
    run.close()
    (line,) = lines(folder)
    assert line.values == {"loss": 1.0}


@pytest.mark.parametrize("path", ["../x", "x\ny", "a\\b", "/".join("a" * 17)])
def test_a_file_that_a_checkpoint_cannot_have_is_named_in_words(folder: RunDir, path: str, approved: Approved) -> None:
    run = context(folder)
    with pytest.raises(ValueError) as caught:
        run.save_checkpoint({}, step=1, files={path: b""})
    assert str(caught.value) == approved.of_row("message")
    assert str(caught.value).startswith(f"path: {path!r} must be") and "[A-Z" not in str(caught.value)
    run.close()


def test_other_ranks_write_nothing(folder: RunDir) -> None:
    run = context(folder, RANK="1", WORLD_SIZE="2")
    run.log({"loss": 1.0}, step=1)
    run.message("hello")
    run.save_checkpoint({"step": 1}, step=1)
    run.close()
    assert not folder.events.exists()
    assert list(folder.checkpoints.iterdir()) == []


def test_a_failure_to_write_is_raised_by_the_next_call(folder: RunDir) -> None:
    folder.events.mkdir()
    run = context(folder)
    with pytest.raises(IsADirectoryError):
        for step in range(1, 2000):
            run.log({"loss": 1.0}, step=step)
    with pytest.raises(IsADirectoryError):
        run.save_checkpoint({"step": 1}, step=1)


def test_a_checkpoint_is_whole_and_resumes(folder: RunDir) -> None:
    run = context(folder)
    weights = {"weight": torch.arange(6.0).reshape(2, 3), "bias": torch.ones(3)}
    weights["tied"] = weights["weight"]
    run.log({"loss": 1.0}, step=7)
    run.save_checkpoint(
        {"step": 7, "model": weights},
        step=7,
        epoch=2,
        metrics={"val/loss": torch.tensor(0.5), "val/odd": math.nan},
        files={"tokenizer/vocab.txt": b"a b c", "notes.txt": lambda file: file.write(b"hello")},
        weights=weights,
    )
    run.save_checkpoint({"step": 8}, step=8, epoch=3, end_of_epoch=False)
    assert sorted(path.name for path in folder.checkpoints.iterdir()) == ["epoch-0002", "step-00000008"]
    saved = folder.checkpoints / "epoch-0002"
    manifest = read_record(saved / "manifest.json", Manifest)
    assert manifest is not None
    assert [file.path for file in manifest.files] == [
        "state.pt",
        "model.safetensors",
        "tokenizer/vocab.txt",
        "notes.txt",
    ]
    for file in manifest.files:
        data = (saved / file.path).read_bytes()
        assert (file.size, file.sha256) == (len(data), hashlib.sha256(data).hexdigest())
    assert math.isnan(manifest.metrics.pop("val/odd"))
    assert (manifest.step, manifest.epoch, manifest.metrics) == (7, 2, {"val/loss": 0.5})
    kinds = [(type(line), getattr(line, "name", None)) for line in lines(folder)]
    assert kinds[:2] == [(Metric, None), (CheckpointSaved, "epoch-0002")]
    assert kinds[-1] == (CheckpointSaved, "step-00000008")
    run.close()

    again = context(folder, RANK="1", WORLD_SIZE="2", **{Env.RESUME_FROM: str(saved)})
    state = again.resume()
    assert state is not None
    assert state["step"] == 7
    assert torch.equal(state["model"]["tied"], weights["weight"])


def test_a_resumed_state_takes_memory_only_where_it_is_used(folder: RunDir) -> None:
    run = context(folder)
    run.save_checkpoint({"own": [torch.ones(2**23), torch.full((2**23,), 2.0)]}, step=1)
    run.close()
    saved = folder.checkpoints / "step-00000001"
    content = (saved / "state.pt").read_bytes()

    again = context(folder, RANK="1", WORLD_SIZE="2", **{Env.RESUME_FROM: str(saved)})
    before = _own_memory()
    state = again.resume()
    assert state is not None
    state["own"][1][:1000] += 1.0
    assert _own_memory() - before < 2**24
    assert (saved / "state.pt").read_bytes() == content
    shutil.rmtree(saved)
    assert state["own"][1][999:1001].tolist() == [3.0, 2.0]


def _own_memory() -> int:
    """Returns the bytes of this process that no file backs."""
    status = Path("/proc/self/status").read_text()
    return int(status.split("RssAnon:")[1].split()[0]) * 1024


@pytest.mark.parametrize("background", [True, False])
def test_a_state_that_is_unfit_is_not_published_and_the_job_is_told(
    folder: RunDir, background: bool, approved: Approved
) -> None:
    def unfit(state: Mapping[str, Any]) -> str | None:
        assert state["model"].device.type == "cpu"
        return None if state["model"].isfinite().all() else "it is not finite"

    run = context(folder)
    weight = torch.zeros(3)
    for step, value in ((1, 1.0), (2, math.nan), (3, 3.0)):
        weight.fill_(value)
        run.save_checkpoint({"model": weight}, step=step, unfit=unfit, background=background)
    weight.fill_(math.inf)
    run.close()
    assert sorted(path.name for path in folder.checkpoints.iterdir()) == ["step-00000001", "step-00000003"]
    told = [line for line in lines(folder) if isinstance(line, Message)]
    assert [(line.level, line.text) for line in told] == [("warning", approved("text"))]


def test_what_a_script_saves_is_not_judged(folder: RunDir) -> None:
    run = context(folder)
    run.save_checkpoint({"model": torch.tensor([math.nan])}, step=1)
    run.close()
    state = torch.load(folder.checkpoints / "step-00000001" / "state.pt", weights_only=True)
    assert math.isnan(state["model"].item())


@pytest.mark.parametrize("path", ["../escape", "/absolute", "a//b", ""])
def test_a_file_name_that_leads_elsewhere_is_refused(folder: RunDir, path: str) -> None:
    run = context(folder)
    with pytest.raises(ValueError, match="path"):
        run.save_checkpoint({"step": 1}, step=1, files={path: b"x"})
    run.close()
    assert list(folder.checkpoints.iterdir()) == []
    assert not (folder.root / "escape").exists()


def test_a_save_that_fails_leaves_earlier_checkpoints_and_nothing_of_its_own(folder: RunDir) -> None:
    def fail(file: Any) -> None:
        file.write(b"half")
        raise OSError(28, "No space left on device")

    run = context(folder)
    run.save_checkpoint({"step": 1}, step=1)
    before = (folder.checkpoints / "step-00000001" / "state.pt").read_bytes()
    with pytest.raises(OSError, match="No space left"):
        run.save_checkpoint({"step": 2}, step=2, files={"half": fail})
    assert [path.name for path in folder.checkpoints.iterdir()] == ["step-00000001"]
    assert (folder.checkpoints / "step-00000001" / "state.pt").read_bytes() == before
    run.save_checkpoint({"step": 2}, step=2)
    run.close()
    assert [line.name for line in lines(folder)] == ["step-00000001", "step-00000002"]


@pytest.mark.parametrize("background", [False, True])
def test_a_second_save_of_a_step_or_epoch_is_a_checkpoint_of_its_own(folder: RunDir, *, background: bool) -> None:
    run = context(folder)
    for value in (1, 2, 3):
        run.save_checkpoint({"value": value}, step=7, background=background)
        run.save_checkpoint({"value": 10 * value}, step=7, epoch=2, background=background)
        if value == 2:
            run.flush()
            shutil.rmtree(folder.checkpoints / "step-00000007")  # the service has removed its copy
    run.close()
    names = [line.name for line in lines(folder) if isinstance(line, CheckpointSaved)]
    assert len({*names}) == 6
    assert names[:2] == ["step-00000007", "epoch-0002"]
    assert [name.rpartition("-")[0] for name in names[2:]] == ["step-00000007", "epoch-0002"] * 2
    kept = [torch.load(folder.checkpoints / name / "state.pt")["value"] for name in names[1:]]
    assert kept == [10, 2, 20, 3, 30]


def test_a_later_process_of_an_attempt_leaves_the_checkpoints_of_the_first(folder: RunDir) -> None:
    for value in (1, 2):
        run = context(folder)
        run.save_checkpoint({"value": value}, step=7)
        run.close()
    assert len([*folder.checkpoints.iterdir()]) == 2
    assert torch.load(folder.checkpoints / "step-00000007" / "state.pt")["value"] == 1


class Gate:
    """Finds a state fit to be written once the gate is open."""

    def __init__(self) -> None:
        self.open = threading.Event()

    def __call__(self, _: Mapping[str, Any]) -> None:
        assert self.open.wait(60)


@contextmanager
def opening_soon(gate: Gate) -> Generator[None]:
    """Opens the gate while the block waits for it."""
    timer = threading.Timer(0.05, gate.open.set)
    timer.start()
    yield
    timer.join()


def test_a_checkpoint_in_the_background_is_the_state_as_it_was(folder: RunDir) -> None:
    run, gate = context(folder), Gate()
    weights = {"weight": torch.arange(6.0).reshape(2, 3)}
    groups = [{"lr": 0.1}]
    state = {"model": weights, "tied": weights["weight"], "groups": groups}
    run.log({"loss": 1.0}, step=7)
    run.save_checkpoint(state, step=7, epoch=1, weights=weights, card={"shape": (3, 2)}, background=True, unfit=gate)
    assert [path.name for path in folder.checkpoints.iterdir() if not path.name.startswith(".")] == []
    weights["weight"] += 1
    groups[0]["lr"] = 0.2
    gate.open.set()
    run.flush()
    saved = folder.checkpoints / "epoch-0001"
    loaded = torch.load(saved / "state.pt", weights_only=True)
    assert torch.equal(loaded["model"]["weight"], torch.arange(6.0).reshape(2, 3))
    assert loaded["tied"].data_ptr() == loaded["model"]["weight"].data_ptr()
    assert loaded["groups"] == [{"lr": 0.1}]
    assert torch.equal(load_file(saved / "model.safetensors")["weight"], loaded["tied"])
    manifest = read_record(saved / "manifest.json", Manifest)
    assert manifest is not None
    assert manifest.card == {"shape": [3, 2]}
    assert [type(line) for line in lines(folder)] == [Metric, CheckpointSaved]
    run.save_checkpoint(loaded, step=8, epoch=2, weights=loaded["model"])
    run.close()
    for name in ("state.pt", "model.safetensors"):
        again = folder.checkpoints / "epoch-0002" / name
        assert again.stat().st_size == (saved / name).stat().st_size


def test_a_second_checkpoint_waits_for_the_first_and_close_for_both(folder: RunDir) -> None:
    run, gate = context(folder), Gate()
    run.save_checkpoint({}, step=1, background=True, unfit=gate)
    with opening_soon(gate):
        run.save_checkpoint({}, step=2, background=True, unfit=gate)
        assert (folder.checkpoints / "step-00000001").exists()
    run.close()
    assert [line.name for line in lines(folder)] == ["step-00000001", "step-00000002"]


@pytest.mark.parametrize(
    "call", ["log", "progress", "message", "card", "should_stop", "save_checkpoint", "flush", "close"]
)
def test_a_save_in_the_background_that_fails_is_raised_once_by_the_next_call(folder: RunDir, call: str) -> None:
    def fail(file: Any) -> None:
        file.write(b"half")
        raise OSError(5, "Input/output error")

    run = context(folder)
    run.save_checkpoint({"step": 1}, step=1)
    run.save_checkpoint({"step": 2}, step=2, files={"half": fail}, background=True)
    calls: dict[str, Callable[[], object]] = {
        "log": lambda: run.log({"loss": 1.0}, step=2),
        "progress": lambda: run.progress(step=2),
        "message": lambda: run.message("hello"),
        "card": lambda: run.card({}),
        "should_stop": run.should_stop,
        "save_checkpoint": lambda: run.save_checkpoint({"step": 3}, step=3, background=True),
        "flush": run.flush,
        "close": run.close,
    }
    with pytest.raises(OSError, match="Input/output error"):
        while True:
            calls[call]()
    calls[call]()
    assert run.resume() is None
    run.close()
    kept = ["step-00000001", "step-00000003"] if call == "save_checkpoint" else ["step-00000001"]
    assert sorted(path.name for path in folder.checkpoints.iterdir()) == kept
    assert [line.name for line in lines(folder) if isinstance(line, CheckpointSaved)] == kept


def test_metrics_wait_for_a_full_disk_and_the_program_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, approved: Approved
) -> None:
    monkeypatch.setattr("torchyard.run.context.FULL_DISK_S", 0.0)
    folder = RunDir(tmp_path / "small")
    folder.root.mkdir()
    with mounted(folder.root, kibibytes=256):
        folder.create()
        run = context(folder)
        run.log({"train/loss": 0.0}, step=0)
        run.flush()
        ballast = folder.root / "ballast"
        with ballast.open("wb", buffering=0) as file, pytest.raises(OSError, match="No space left"):
            while True:
                file.write(bytes(4096))
        for step in range(1, 1201):  # more than one write takes
            run.log({"train/loss": 0.5}, step=step)
        with pytest.raises(OSError) as raised:
            run.flush()
        assert str(raised.value) == approved("message")
        ballast.unlink()
        run.log({"train/loss": 0.5}, step=1201)
        run.close()
        assert [line.step for line in lines(folder)] == list(range(1202))


def test_another_rank_copies_nothing(folder: RunDir) -> None:
    run = context(folder, RANK="1", WORLD_SIZE="2")
    run.save_checkpoint({"meta": torch.empty(1, device="meta")}, step=1, background=True)
    run.close()
    assert list(folder.checkpoints.iterdir()) == []


@pytest.mark.parametrize("card", [{"a": object()}, {"a": "b" * 70_000}, {"a\nb": 1}])
def test_a_card_that_cannot_be_kept_is_refused_at_once(folder: RunDir, card: dict[str, Any]) -> None:
    run = context(folder)
    with pytest.raises((TypeError, ValueError)):
        run.card(card)
    with pytest.raises((TypeError, ValueError)):
        run.save_checkpoint({}, step=1, card=card, background=True)
    run.card({"ok": (1, None)})
    run.close()
    (line,) = lines(folder)
    assert line.values == {"ok": [1, None]}


def test_a_lone_rank_stops_at_once_for_the_file(folder: RunDir) -> None:
    assert not context(folder).should_stop()
    assert not context(folder).stop_requested
    write_record(folder.stop, StopRequest(reason=EndReason.CANCELLED))
    assert context(folder).stop_requested
    assert context(folder).should_stop()


def test_sigterm_asks_to_stop_and_a_forked_child_logs_but_is_no_rank(folder: RunDir) -> None:
    code = """
import os, signal, torchyard
run = torchyard.init()
assert run is torchyard.init()
run.log({"loss": 1.0}, step=1)
child = os.fork()
if child == 0:
    assert signal.getsignal(signal.SIGTERM) == signal.SIG_DFL
    run.log({"loss": 2.0}, step=2)
    run.save_checkpoint({}, step=2)
    os._exit(0)
else:
    assert os.waitpid(child, 0)[1] == 0
    assert not run.should_stop()
    os.kill(os.getpid(), signal.SIGTERM)
    assert run.should_stop()
"""
    env = {**os.environ, Env.RUN_DIR: str(folder.job)}
    subprocess.run([sys.executable, "-P", "-c", code], check=True, env=env)
    metrics = [line.values for line in lines(folder) if isinstance(line, Metric)]
    assert sorted(metrics, key=str) == [{"loss": 1.0}, {"loss": 2.0}]
    (said,) = [line.text for line in lines(folder) if isinstance(line, Message)]
    assert said == "run.save_checkpoint saves nothing in a forked process: call it in its parent"
    assert [*folder.checkpoints.iterdir()] == []
