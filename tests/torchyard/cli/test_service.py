"""Every command against a whole service of real processes."""

import asyncio
from collections.abc import Generator
import csv
import hashlib
import io
import json
import os
from pathlib import Path
import re
import signal
from subprocess import CompletedProcess
from typing import Any

import pytest
import yaml

from tests.approved import Approved
from tests.e2e.service import Service, until
from tests.torchyard.cli.invocation import environment, run_in_process, start_process
from tests.torchyard.cli.proxy import breaking_proxy
from tests.torchyard.cli.terminal import in_terminal
from torchyard.client import AsyncClient
from torchyard.contract.files.views import CheckpointView
from torchyard.contract.jobs.views import JobView
from torchyard.contract.states import JobState

DIGITS = """
trainer: image-classification
name: numerals
labels: {team: bridges}
config: {data: {source: digits}, training: {epochs: 2, per_device_batch_size: 512}}
"""
FAILS = "import os\nprint('about to fail', flush=True)\nraise ValueError('the data is blue')\n"
PRINTS = """
import pathlib, time
for number in range(300):
    print(f"line {number}", flush=True)
    while number >= 150 and not pathlib.Path(__file__).with_name("gate").exists():
        time.sleep(0.01)
"""


pytestmark = pytest.mark.parametrize("databases", ["sqlite"], ids=[pytest.HIDDEN_PARAM], indirect=True, scope="session")


@pytest.fixture(scope="module")
def service(shared_service: Service) -> Service:
    """The service of tests/e2e, on SQLite."""
    return shared_service


@pytest.fixture(scope="module")
def trained(service: Service) -> JobView:
    """A job of the built-in trainer that has succeeded."""
    done = _run(service, "submit", "-", "--follow", stdin=DIGITS)
    assert done.returncode == 0, done.stderr
    assert "epoch 2/2" in done.stdout
    assert "succeeded" in done.stderr.splitlines()[-1]
    assert "val/accuracy" in done.stderr
    return service.client.get("numerals").view


@pytest.fixture(scope="module")
def failed(service: Service) -> JobView:
    job = service.submit_script("fails", FAILS, max_restarts=0)
    return service.wait(job.id, JobState.FAILED)


@pytest.fixture
def waiting(service: Service) -> Generator[JobView]:
    """A job that no worker can start."""
    job = service.submit_script("large", "", resources={"devices_per_node": 999})
    yield until(lambda: _with_reason(service.client.get(job.id).view), what="the scheduler has looked at it")
    service.client.jobs.cancel(job.id)


def test_validate_prints_a_spec_that_is_itself_valid(service: Service) -> None:
    first = _run(service, "validate", "-", stdin=DIGITS)
    assert yaml.safe_load(first.stdout)["config"]["training"]["epochs"] == 2
    assert _run(service, "validate", "-", stdin=first.stdout).stdout == first.stdout
    assert json.loads(_run(service, "validate", "-", "--json", stdin=DIGITS).stdout) == yaml.safe_load(first.stdout)
    wrong = _run(service, "validate", "-", stdin=DIGITS.replace("epochs: 2", "epochs: none"))
    assert (wrong.returncode, wrong.stdout) == (1, "")
    assert "config.training.epochs: " in wrong.stderr


def test_validate_fills_in_every_recipe_of_a_file(service: Service, tmp_path: Path) -> None:
    for recipe, model in (("segmentation", "unet_small"), ("text-classification", "tiny")):
        file = tmp_path / f"{recipe}.yaml"
        file.write_text(f"{{trainer: {recipe}, config: {{data: {{source: 'file:///data'}}}}}}")
        spec = yaml.safe_load(_run(service, "validate", str(file)).stdout)
        assert (spec["name"], spec["config"]["model"]["name"]) == (recipe, model)
        file.write_text(f"{{trainer: {recipe}}}")
        wrong = _run(service, "validate", str(file))
        assert (wrong.returncode, wrong.stdout) == (1, "")
        assert "config: is missing" in wrong.stderr


def test_validate_fills_in_a_language_model_and_says_what_is_wrong(service: Service) -> None:
    given: dict[str, Any] = {
        "trainer": "causal-lm",
        "config": {"model": {"weights": "file:///base"}, "data": {"source": "file:///a.jsonl"}},
    }
    spec = yaml.safe_load(_run(service, "validate", "-", stdin=yaml.safe_dump(given)).stdout)
    assert spec["config"]["model"]["lora"] == {"rank": 16, "alpha": 32.0, "dropout": 0.0, "targets": "all-linear"}
    given["config"]["model"] = {"weights": "meta-llama/Llama-3.2-1B", "lora": {"targets": "q_proj"}}
    wrong = _run(service, "validate", "-", stdin=yaml.safe_dump(given))
    assert (wrong.returncode, wrong.stdout) == (1, "")
    assert "config.model.weights: must be bundle:sha256:… or file:///…" in wrong.stderr
    assert "config.model.lora.targets: must be all-linear or a list" in wrong.stderr


def test_ps_filters_jobs(service: Service, trained: JobView, failed: JobView) -> None:
    def listed(*options: str) -> set[str]:
        return {job["id"] for job in json.loads(_run(service, "ps", "--json", *options).stdout)}

    assert {trained.id, failed.id} <= listed("--all")
    assert listed("--name", "numerals", "--state", "succeeded", "--since", "1h") >= {trained.id}
    assert failed.id not in listed("--label", "team=bridges", "--all")
    assert listed("--since", "2199-01-01T00:00:00Z") == set()
    lines = _run(service, "ps", "--name", "fails").stdout.splitlines()
    assert lines[0].split()[:3] == ["ID", "NAME", "STATE"]
    assert lines[1].split()[:3] == [failed.id, "fails", "failed"]
    assert "  ValueError: the data is blue  " in lines[1]
    for misuse in (["--watch"], ["--label", "team"], ["--since", "yesterday"], ["--state", "odd"]):
        assert _run(service, "ps", *misuse).returncode == 2


def test_why_explains_what_a_queued_job_waits_for(service: Service, waiting: JobView) -> None:
    shown = _run(service, "why", waiting.id).stdout
    assert shown.startswith("large is queued: needs 999 devices; the largest worker (")
    assert "requests   999 devices on one worker, at priority 0" in shown
    assert "position   1 in the queue" in shown
    assert shown.count("  free  ") == len(service.client.workers.list()[0].devices)
    assert json.loads(_run(service, "why", "large", "--json").stdout)["job"]["id"] == waiting.id
    entry = _run(service, "queue").stdout.splitlines()[1]
    assert entry.split()[:3] == ["1", waiting.id, "large"] and "needs 999 devices" in entry
    assert [item["job_id"] for item in json.loads(_run(service, "queue", "--json").stdout)] == [waiting.id]


def test_why_explains_how_a_job_failed_and_what_to_do(service: Service, failed: JobView) -> None:
    shown = _run(service, "why", failed.id).stdout
    assert shown.startswith("fails failed: ValueError: the data is blue")
    assert "ended      user_error, rank 0, exit code 1; attempts: 1" in shown
    assert shown.count("Traceback (most recent call last)") == 1
    assert shown.index("next ") < shown.index("retry ") < shown.index("Traceback"), "the answer comes first"
    assert "cause      Raised in train.py, line 3." in shown
    assert "evidence   ValueError: the data is blue (line " in shown
    assert "evidence   train.py, line 3: raise ValueError('the data is blue') (line " in shown
    assert "next       Correct train.py, line 3, then submit it again." in shown
    assert f"logs {failed.id} --rank 0" in shown and f"retry {failed.id}" in shown


def test_why_says_which_argument_was_wrong_in_the_programs_own_words(service: Service) -> None:
    program = "import argparse\nparser = argparse.ArgumentParser(prog='train.py')\nparser.parse_args(['--lrr'])\n"
    job = service.submit_script("wrong-argument", program, max_restarts=0)
    service.wait(job.id, JobState.FAILED)
    shown = _run(service, "why", job.id).stdout
    assert shown.startswith("wrong-argument failed: rank 0: train.py: error: unrecognized arguments: --lrr")
    assert "next       Correct the arguments of the program (config.args), then submit it again." in shown
    assert "line 3" not in shown and "Traceback" not in shown
    assert "run it again, with its working folder, if the host still has it (no checkpoint)" in shown


def test_why_shows_how_much_memory_was_free_when_there_was_too_little(service: Service, approved: Approved) -> None:
    job = service.submit_script("greedy", "bytearray(1 << 60)\n", max_restarts=0)
    service.wait(job.id, JobState.FAILED)
    advice = json.loads(_run(service, "why", job.id, "--json").stdout)["advice"]
    assert advice["headline"] == approved("headline")
    found = {item["kind"]: item for item in advice["evidence"]}
    assert re.fullmatch(r"[0-9.]+ [MG]iB of [0-9.]+ [MG]iB of the host was free", found["memory"]["text"])
    assert (found["rank"]["text"], found["log"]["rank"]) == (approved("text"), 0)
    assert advice["steps"] == ["Take smaller batches."]


def test_workers_lists_each_device(service: Service) -> None:
    heading, *devices = _run(service, "workers", "ls").stdout.splitlines()
    assert heading.startswith("WORKER")
    [worker] = json.loads(_run(service, "workers", "ls", "--json").stdout)
    assert [device["kind"] in line for device, line in zip(worker["devices"], devices, strict=True)]


def test_metrics_prints_a_table_a_curve_csv_or_json(service: Service, trained: JobView) -> None:
    heading, *rows = _run(service, "metrics", "numerals").stdout.splitlines()
    assert heading.split() == ["METRIC", "LAST", "STEP", "MIN", "MAX", "SOURCE"]
    assert {row.split()[0] for row in rows} == set(trained.metrics)
    points = [*csv.DictReader(io.StringIO(_run(service, "metrics", "numerals", "-k", "val/accuracy", "--csv").stdout))]
    assert [point["key"] for point in points] == ["val/accuracy"] * 2
    assert float(points[-1]["value"]) == trained.metrics["val/accuracy"]
    view = json.loads(_run(service, "metrics", "numerals", "--key", "val/loss", "--json").stdout)
    assert [series["key"] for series in view["data"]] == ["val/loss"]
    plot = _run(service, "metrics", "numerals", "-k", "train/loss", "--plot", env={"COLUMNS": "60"}).stdout
    assert "train/loss" in plot and "┤" in plot and "\x1b" not in plot
    assert max(len(line) for line in plot.splitlines()) == 60
    assert "This job has" in _run(service, "metrics", "numerals", "-k", "other").stderr
    assert _run(service, "metrics", "numerals", "--plot", "--json").returncode == 2


def test_logs_since_starts_at_a_time(service: Service, trained: JobView) -> None:
    every = _run(service, "logs", trained.id).stdout
    assert _run(service, "logs", trained.id, "--since", "1d").stdout == every
    lines = [*service.client.jobs.logs(trained.id)]
    late = [line for line in lines if line.time >= lines[-1].time]
    shown = _run(service, "logs", trained.id, "--since", lines[-1].time.isoformat(), "--json").stdout
    assert [json.loads(line)["line"] for line in shown.splitlines()] == [line.line for line in late]
    done = _run(service, "logs", trained.id, "--since", "2199-01-01T00:00:00Z")
    assert (done.stdout, done.stderr) == ("", "No output.\n")


def test_checkpoints_are_listed_with_their_aliases(service: Service, trained: JobView) -> None:
    heading, newest, oldest = _run(service, "checkpoints", "numerals").stdout.splitlines()
    assert heading.split()[:3] == ["CHECKPOINT", "STEP", "METRICS"]
    assert "latest" in newest and "epoch-1" in oldest
    assert [item["epoch"] for item in json.loads(_run(service, "checkpoints", "numerals", "--json").stdout)] == [2, 1]
    assert trained.id in _run(service, "show", "numerals").stdout


def test_a_download_continues_over_a_connection_that_breaks(service: Service, trained: JobView, tmp_path: Path) -> None:
    listed = service.client.jobs.checkpoint(trained.id)
    with breaking_proxy(service.server["url"]) as proxy:
        proxy.limit = listed.size // 3
        done = _run(service, "download", trained.id, "-o", str(tmp_path), url=proxy.url)
        assert done.returncode == 0, done.stderr
        assert proxy.broken >= 3
        assert proxy.sent < listed.size + 100_000
    assert _holds(Path(done.stdout.strip()), listed)
    assert [path.name for path in tmp_path.iterdir()] == [f"numerals-epoch-{listed.epoch}.pt"]


def test_a_stopped_download_continues_with_the_next_command(
    service: Service, trained: JobView, tmp_path: Path, approved: Approved
) -> None:
    listed, half = service.client.jobs.checkpoint(trained.id), 1_000_000
    target = tmp_path / "mine.pt"
    with breaking_proxy(service.server["url"]) as proxy:
        proxy.limit, proxy.hangs = half, True
        with start_process(["download", trained.id, "-o", str(target)], _environment(service, proxy.url)) as process:
            until(lambda: any(path.stat().st_size > half // 2 for path in tmp_path.iterdir()), what="half has arrived")
            process.program.send_signal(signal.SIGINT)
            shown = process.stderr.read()
            assert process.program.wait(120) == 130
        (kept,) = re.findall(r"([\d.]+) KiB", shown)  # by the moment of the signal
        assert half // 2 <= float(kept) * 1024 <= half
        assert shown == approved("shown", kept=kept)
        proxy.limit, already = None, proxy.sent
        done = _run(service, "download", trained.id, "-o", str(target), url=proxy.url)
        assert "Continuing after" in done.stderr
        assert proxy.sent - already < listed.size - half // 2
    assert _holds(target, listed)
    assert [*tmp_path.iterdir()] == [target]


def test_any_file_of_a_checkpoint_can_be_downloaded(service: Service, trained: JobView, tmp_path: Path) -> None:
    done = _run(service, "download", trained.id, "--file", "model.safetensors", "--latest", cwd=tmp_path)
    file = next(
        item for item in service.client.jobs.checkpoint(trained.id, "latest").files if item.path == "model.safetensors"
    )
    assert hashlib.sha256((tmp_path / done.stdout.strip()).read_bytes()).hexdigest() == file.sha256


@pytest.mark.thorough
def test_follow_loses_and_repeats_nothing_over_broken_connections_and_a_restarted_server(service: Service) -> None:
    job = service.submit_script("prints", PRINTS)
    with breaking_proxy(service.server["url"]) as proxy:
        proxy.limit = 6000
        with start_process(["logs", job.id, "-f"], _environment(service, proxy.url)) as process:
            lines = [process.stdout.readline() for _ in range(151)]
            os.kill(service.server["processes"]["api"], signal.SIGKILL)
            (service.code / "prints" / "gate").touch()
            lines += process.stdout.readlines()
            assert process.program.wait(60) == 0
        assert proxy.broken >= 5
    assert lines == [f"rank 0 | line {number}\n" for number in range(300)]


def test_both_clients_read_the_same_stream(service: Service, trained: JobView) -> None:
    async def positions(url: str) -> list[tuple[int, str]]:
        async with AsyncClient(url, service.server["token"]) as client:
            return [(item.position, item.kind) async for item in client.jobs.stream(trained.id)]

    with breaking_proxy(service.server["url"]) as proxy:
        proxy.limit = 6000
        found = asyncio.run(positions(proxy.url))
        assert proxy.broken > 0
    assert found == [(item.position, item.kind) for item in service.client.jobs.stream(trained.id)]
    assert found[-1][1] == "end" and {"state", "metric", "log", "checkpoint"} <= {kind for _, kind in found}


def test_retry_makes_a_new_job_and_follows_it(service: Service, failed: JobView) -> None:
    done = _run(service, "retry", failed.id, "-f")
    assert done.returncode == 1
    assert done.stdout.startswith("rank 0 | about to fail\n")
    again = json.loads(_run(service, "show", "fails", "--json").stdout)
    assert (again["retry_of"], again["state"]) == (failed.id, "failed")


def test_rm_asks_for_confirmation_and_removes_ended_jobs(service: Service, waiting: JobView) -> None:
    job = service.submit_script("short", "print('done')")
    service.wait(job.id, JobState.SUCCEEDED)
    assert f"cancel {waiting.id}" in _run(service, "rm", job.id, waiting.id, "--yes").stderr
    refused = _run(service, "rm", job.id)
    assert refused.returncode == 2 and "--yes" in refused.stderr
    code, screen = _in_terminal(service, "rm", job.id, answer="n\n")
    assert code == 1 and job.id in screen
    assert service.client.get(job.id).id == job.id
    code, screen = _in_terminal(service, "rm", "short", answer="y\n")
    assert code == 0 and f"{job.id}  deleted" in screen
    assert "there is no job" in _run(service, "rm", job.id, "--yes").stderr


def test_top_shows_devices_queue_and_what_ended(
    service: Service, trained: JobView, waiting: JobView, approved: Approved
) -> None:
    done = _run(service, "top", "--once")
    assert (done.returncode, done.stderr) == (0, "")
    floor, queue, ended = done.stdout.split("\n\n")
    heading, _, *devices = floor.splitlines()
    assert heading == approved("heading", count=len(devices))
    assert [line.split()[1:3] for line in devices] == [["cpu", str(index)] for index in range(len(devices))]
    assert all(line.split()[3] == "free" for line in devices), "their use may follow"
    assert queue.splitlines()[0] == "QUEUE  1 waiting"
    assert "large" in queue and "needs 999 devices" in queue
    assert ended.startswith("FINISHED TODAY  ")
    [line] = [line for line in ended.splitlines() if trained.name in line]
    assert line.split()[:2] == ["✓", "numerals"]
    again = _run(service, "top").stdout
    assert _without_seconds(again) == _without_seconds(done.stdout), "a pipe gets it once"


def _without_seconds(shown: str) -> list[str]:
    return re.sub(r"\b\d+s\b", "", shown).split()


def test_top_redraws_until_q(service: Service, trained: JobView) -> None:
    code, screen = _in_terminal(service, "top", answer="q", shown="FINISHED TODAY")
    assert code == 0
    assert "DEVICES" in screen and "numerals" in screen


def test_ps_watch_redraws_until_ctrl_c(service: Service, trained: JobView) -> None:
    code, screen = _in_terminal(service, "ps", "--watch", answer="\x03", shown="numerals")
    assert code == 0
    assert screen.count("\x1b[?1049h") == screen.count("\x1b[?1049l") == 1
    assert trained.name in screen


def test_the_shell_completes_jobs_and_stays_silent_without_a_server(service: Service, trained: JobView) -> None:
    asked = {"_TORCHYARD_COMPLETE": "complete_bash", "COMP_WORDS": "torchyard show numer", "COMP_CWORD": "2"}
    assert _run(service, env=asked).stdout.split() == ["numerals"]
    by_id = {**asked, "COMP_WORDS": f"torchyard logs {trained.id[:-2]}"}
    assert _run(service, env=by_id).stdout.split() == [trained.id]
    done = _run(service, url="http://127.0.0.1:1", env=asked)
    assert (done.stdout.strip(), done.stderr) == ("", "")


def _with_reason(job: JobView) -> JobView | None:
    return job if "needs 999 devices" in job.status_reason.message else None


def _holds(path: Path, listed: CheckpointView) -> bool:
    return hashlib.sha256(path.read_bytes()).hexdigest() == listed.sha256


def _run(
    service: Service,
    *arguments: str,
    stdin: str = "",
    url: str | None = None,
    env: dict[str, str] | None = None,
    cwd: Path | None = None,
) -> CompletedProcess[str]:
    return run_in_process(arguments, _environment(service, url) | (env or {}), stdin=stdin, cwd=cwd)


def _in_terminal(service: Service, *arguments: str, answer: str, shown: str = "?") -> tuple[int, str]:
    return in_terminal(arguments, _environment(service, None), answer=answer, shown=shown)


def _environment(service: Service, url: str | None) -> dict[str, str]:
    return environment(url or service.server["url"], service.server["token"])
