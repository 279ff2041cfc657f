"""`torchyard run` and `torchyard data push` against a real API."""

from collections.abc import Generator
import io
import json
from pathlib import Path
import shutil
import subprocess
from subprocess import CompletedProcess
import tarfile
from typing import Any

import httpx2
import pytest

from tests.approved import Approved
from tests.databases import SQLiteDatabases
from tests.torchyard.cli.invocation import environment, run_in_process
from tests.torchyard.cli.service import Team, serving_team
from tests.torchyard.cli.terminal import in_terminal

_NAMED = ([], [], ["--name", "net-7"], [], ["--idempotency-key", "a-key"], ["--name", "other"])
"""Options of runs of one folder, one after the other."""


@pytest.fixture(scope="module")
def team(tmp_path_factory: pytest.TempPathFactory, sqlite: SQLiteDatabases) -> Generator[Team]:
    with serving_team(tmp_path_factory.mktemp("team"), sqlite) as team:
        yield team


@pytest.fixture(scope="module")
def repository(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A repository with a program, whose tree is not clean."""
    folder = tmp_path_factory.mktemp("repository")
    (folder / "package").mkdir(parents=True)
    (folder / "train.py").write_text("print(1)\n")
    (folder / "package" / "train.py").write_text("print(2)\n")
    (folder / ".gitignore").write_text("*.log\n")
    begun = ["init", "--quiet", "--initial-branch", "main", "--template", ""]
    for arguments in (begun, ["add", "."], ["commit", "-qm", "first"]):
        identity = ["-c", "user.name=A", "-c", "user.email=a@example.com"]
        subprocess.run(["git", *identity, *arguments], cwd=folder, check=True)
    (folder / "train.py").write_text("print(3)\n")
    (folder / "run.log").touch()
    return folder


@pytest.fixture
def folder(repository: Path, tmp_path: Path) -> Path:
    """A copy of the repository."""
    return Path(shutil.copytree(repository, tmp_path / "my project"))


def test_the_folder_is_uploaded_and_the_job_names_it(team: Team, folder: Path) -> None:
    done = _run(team, folder, "run", "-d", "train.py", "--epochs", "3", "-d")
    assert done.returncode == 0, done.stderr
    job = _job(team, done.stdout.strip())
    config = job["spec"]["config"]
    assert (job["name"], config["entrypoint"], config["args"]) == ("my-project", "train.py", ["--epochs", "3", "-d"])
    assert _files(team, config["code"]) == {".gitignore", "train.py", "package/train.py"}


def test_run_makes_the_schedule_of_a_program(team: Team, folder: Path) -> None:
    done = _run(team, folder, "run", "--schedule", "0 2 * * *", "train.py", "--epochs", "3")
    assert done.returncode == 0, done.stderr
    assert "First run:" in done.stderr and "Each run uses the code uploaded now." in done.stderr
    made = json.loads(_run(team, folder, "schedules", "show", done.stdout.strip(), "--json").stdout)
    config = made["spec"]["config"]
    assert (made["schedule"]["cron"], config["entrypoint"], config["args"]) == (
        "0 2 * * *",
        "train.py",
        ["--epochs", "3"],
    )
    assert "train.py" in _files(team, config["code"])


def test_a_sweep_says_which_metric_ranks_where_no_pattern_finds_it(team: Team, folder: Path) -> None:
    sweep = ("run", "-d", "--sweep", "lr=0.1,1")
    done = _run(team, folder, *sweep, "train.py")
    assert done.returncode == 0 and "The metric val/loss ranks the trials. Report it" in done.stderr, done.stderr
    for named in (("--metric", r"val/loss=(?P<value>\S+)"), ("--metric", r"acc (?P<value>\S+)", "--monitor", "acc")):
        found = _run(team, folder, *sweep, *named, "train.py")
        assert found.returncode == 0 and "ranks the trials" not in found.stderr, found.stderr


def test_the_plan_says_what_will_run_and_how_to_come_back(team: Team, folder: Path) -> None:
    (folder / "photos.npz").write_bytes(bytes(11 << 20))
    done = _run(team, folder, "run", "--detach", "--devices", "2", "--env", "A=1", "train.py", "two words")
    said = done.stderr.splitlines()
    assert {"program    train.py 'two words'", "devices    2", "launcher   auto", "env        A"} <= {*said}
    assert "restarts   2 at most, if it fails after its first step; none with --max-restarts 0" in said
    assert _job(team, done.stdout.strip())["spec"]["max_restarts"] == 2
    assert "code       4 files, 11.0 MiB" in said
    assert said[0] == f"server     {team.url}"
    assert "large      photos.npz 11.0 MiB" in said
    assert said[-1].endswith(f"logs {done.stdout.strip()} -f")
    assert "\x1b" not in done.stderr + done.stdout


def test_files_with_passwords_stay_here_and_the_plan_says_so(team: Team, folder: Path) -> None:
    (folder / "package" / ".env").write_text("PASSWORD=x\n")
    done = _run(team, folder, "run", "-d", "train.py")
    left_out = ".env: it may hold passwords; a line !NAME in .torchyardignore has it packed"
    assert f"left out   package/{left_out}" in done.stderr.splitlines()
    assert "package/.env" not in _files(team, _job(team, done.stdout.strip())["spec"]["config"]["code"])
    assert f"left out   {left_out}" in _run(team, folder, "data", "push", "package").stderr.splitlines()


def test_what_git_ignores_is_told_before_the_upload_and_comes_along_if_it_is_named(
    team: Team, folder: Path, approved: Approved
) -> None:
    (folder / ".gitignore").write_text("*.bin\n/out dir/\n")
    for name in ("package/train.bin", "package/val.bin", "out dir/log"):
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_bytes(bytes(1000))
    done = _run(team, folder, "run", "-d", "train.py")
    said = done.stderr.splitlines()
    lines = [line for line in said if line.startswith("left out ")]
    assert "\n".join(lines) == approved("left out")
    assert said.index(lines[-1]) < next(number for number, line in enumerate(said) if "Uploaded" in line)
    config = _job(team, done.stdout.strip())["spec"]["config"]
    assert config["left_out"] == ["out dir/", "package/train.bin", "package/val.bin"]
    done = _run(team, folder, "run", "-d", "--include", "package", "--include", "out dir", "train.py")
    assert "left out" not in done.stderr
    config = _job(team, done.stdout.strip())["spec"]["config"]
    assert "left_out" not in config
    assert {"package/train.bin", "package/val.bin", "out dir/log"} <= _files(team, config["code"])
    wrong = _run(team, folder, "run", "-d", "--include", "pakage", "train.py")
    assert wrong.returncode == 1 and "--include pakage names no file" in wrong.stderr


def test_data_is_pushed_whole_whatever_git_ignores(team: Team, folder: Path, approved: Approved) -> None:
    (folder / "raw" / "__pycache__").mkdir(parents=True)
    (folder / "raw" / "__pycache__" / "x.pyc").touch()
    done = _run(team, folder, "data", "push", "raw")
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr == approved("empty", folder=folder)
    (folder / "raw" / "run.log").write_text("not told from data by its name")
    (folder / "raw" / ".torchyardignore").write_text("*.tmp\n")
    (folder / "raw" / "x.tmp").touch()
    done = _run(team, folder, "data", "push", "raw")
    assert _files(team, done.stdout.strip()) == {".torchyardignore", "run.log"}
    assert "\n".join(line for line in done.stderr.splitlines() if "left out" in line) == approved("left out")


def test_what_the_server_has_is_not_sent_again(team: Team, folder: Path) -> None:
    (folder / "new.py").write_text("print('only here')\n")
    first = _run(team, folder, "run", "-d", "train.py")
    assert "Uploaded " in first.stderr
    second = _run(team, folder, "run", "-d", "train.py")
    assert "Nothing was sent" in second.stderr and "Uploaded" not in second.stderr
    codes = {_job(team, done.stdout.strip())["spec"]["config"]["code"] for done in (first, second)}
    assert len(codes) == 1


def test_a_job_runs_after_others(team: Team, folder: Path) -> None:
    ids = [_run(team, folder, "run", "-d", "--name", name, "train.py").stdout.strip() for name in ("prep", "data")]
    done = _run(team, folder, "run", "-d", "--after", "prep", "--after", f"{ids[1][-12:]}:finished", "train.py")
    assert done.returncode == 0, done.stderr
    assert f"after      prep, {ids[1]} (finished)" in done.stderr.splitlines()
    job = _job(team, done.stdout.strip())
    assert [(each["job_id"], each["on"]) for each in job["after"]] == [(ids[0], "succeeded"), (ids[1], "finished")]
    wrong = _run(team, folder, "run", "-d", "--after", "nobody", "train.py")
    assert wrong.returncode == 1 and "there is no job nobody" in wrong.stderr


def test_each_option_is_a_key_of_the_spec(team: Team, folder: Path) -> None:
    _run(team, folder, "secrets", "set", "KEY", "--stdin", stdin="a secret value")
    url = _run(team, folder, "data", "push", "package").stdout.strip()
    options = {
        "--name": "cracks",
        "--devices": "3",
        "--gpu": "H100",
        "--cpus": "1.5",
        "--memory-gb": "32",
        "--env": "A=b=c",
        "--secret": "WANDB_API_KEY=KEY",
        "--mount": f"photos={url}",
        "--time-limit": "2h",
        "--priority": "-5",
        "--launcher": "torchrun",
        "--visibility": "private",
        "--max-size": "1MiB",
        "--checkpoints": "out/*.pt",
        "--max-restarts": "1",
        "--profile": "20:5",
        "--label": "team=vision",
    }
    words = [word for pair in options.items() for word in pair]
    done = _run(
        team,
        folder,
        "run",
        *words,
        "--secret",
        "KEY",
        "--mount",
        "more=file:///data",
        "--preemptible",
        "-d",
        "train.py",
    )
    assert done.returncode == 0, done.stderr
    spec = _job(team, done.stdout.strip())["spec"]
    assert (spec["name"], spec["priority"], spec["launcher"]) == ("cracks", -5, "torchrun")
    assert (spec["time_limit"], spec["visibility"]) == ("2h", "private")
    asked = {"devices_per_node": 3, "gpu": ["H100"], "cpus": 1.5, "memory_gb": 32}
    assert spec["resources"].items() >= asked.items()
    assert {"gpu        H100", "host       1.5 CPUs, 32 GiB of memory"} <= {*done.stderr.splitlines()}
    assert (spec["labels"], spec["preemptible"]) == ({"team": "vision"}, True)
    assert (spec["config"]["checkpoints"], spec["max_restarts"]) == (["out/*.pt"], 1)
    assert spec["profile"] == {"start": 20, "steps": 5}
    assert spec["env"] == {"A": "b=c", "WANDB_API_KEY": {"secret": "KEY"}, "KEY": {"secret": "KEY"}}
    assert spec["config"]["mounts"] == {"photos": url, "more": "file:///data"}


def test_settings_of_the_project_hold_where_there_is_no_flag(team: Team, folder: Path) -> None:
    (folder / "torchyard.toml").write_text('[run]\ndevices = 2\ndetach = true\nname = "of-the-file"\n')
    job = _job(team, _run(team, folder, "run", "--name", "of-the-flag", "train.py").stdout.strip())
    assert (job["name"], job["spec"]["resources"]["devices_per_node"]) == ("of-the-flag", 2)


def test_runs_of_a_folder_have_names_that_differ(team: Team, tmp_path: Path) -> None:
    folder = tmp_path / "net"
    folder.mkdir()
    (folder / "train.py").write_text("print(1)\n")
    jobs = [_job(team, _run(team, folder, "run", "-d", *given, "train.py").stdout.strip()) for given in _NAMED]
    assert [job["name"] for job in jobs] == ["net", "net-2", "net-7", "net-8", "net", "other"]


def test_a_run_with_a_key_is_submitted_once(team: Team, folder: Path) -> None:
    command = ("run", "-d", "--idempotency-key", "nightly", "train.py")
    first = _run(team, folder, *command)
    (folder / "more.log").write_text("git ignores it")
    second = _run(team, folder, *command)
    assert first.returncode == 0, first.stderr
    assert first.stdout == second.stdout


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["./package/../train.py"], {"entrypoint": "train.py"}),
        (["--", "train.py"], {"entrypoint": "train.py"}),
        (["-m", "package.train", "-m"], {"module": "package.train", "args": ["-m"]}),
        (["./go.sh"], {"command": "./go.sh"}),
        (["--", "sh", "-c", "./go.sh"], {"command": "sh", "args": ["-c", "./go.sh"]}),
        (["--", "accelerate", "launch", "--", "x"], {"command": "accelerate", "args": ["launch", "--", "x"]}),
    ],
)
def test_a_program_is_a_file_a_module_or_an_executable(
    team: Team, folder: Path, words: list[str], expected: dict[str, Any]
) -> None:
    (folder / "go.sh").write_text("#!/bin/sh\n")
    (folder / "go.sh").chmod(0o755)
    done = _run(team, folder, "run", "-d", *words)
    assert done.returncode == 0, done.stderr
    config = _job(team, done.stdout.strip())["spec"]["config"]
    found = {key: config[key] for key in ("entrypoint", "module", "command", "args") if key in config}
    assert found == {"args": [], **expected}
    assert ("accelerate comes from the worker's environment" in done.stderr) == (words[1:2] == ["accelerate"])


def test_the_commit_is_shown_and_the_diff_kept(team: Team, folder: Path) -> None:
    done = _run(team, folder, "run", "-d", "train.py")
    commit = subprocess.run(["git", "rev-parse", "HEAD"], cwd=folder, capture_output=True, text=True, check=True).stdout
    found = _job(team, done.stdout.strip())["spec"]["config"]["git"]
    assert (found["commit"], found["branch"], found["dirty"]) == (commit.strip(), "main", True)
    assert "-print(1)\n+print(3)\n" in found["diff"]
    line = f"git        {commit[:10]} main, dirty"
    assert line in done.stderr.splitlines()
    for command in ("show", "why"):
        assert line in _run(team, folder, command, done.stdout.strip()).stdout.splitlines()


def test_pushed_data_is_named_by_its_contents(team: Team, folder: Path, approved: Approved) -> None:
    done = _run(team, folder, "data", "push", "package")
    assert done.returncode == 0, done.stderr
    assert _files(team, done.stdout.strip()) == {"train.py"}
    again = _run(team, folder, "data", "push", "package", "--json")
    assert json.loads(again.stdout)["url"] == done.stdout.strip()
    assert "Nothing was sent" in again.stderr
    assert _run(team, folder, "data", "push", "nowhere").returncode == 2
    assert _run(team, folder, "data", "push", ".", "--max-size", "big").stderr == approved("errors")


def test_a_terminal_has_a_bar_and_ctrl_c_leaves_the_job_alone(team: Team, folder: Path) -> None:
    (folder / "new.bin").write_bytes(b"another file" * 1000)
    own = environment(team.url, team.tokens["admin"])
    code, screen = in_terminal(["run", "train.py"], own, answer="\x03", shown="queued for", cwd=folder)
    assert code == 130
    assert "\x1b[2Kcode " in screen
    assert "Stopped following. my-project" in screen and "continues." in screen
    [job] = _jobs(team, "--limit", "1")
    assert job["state"] == "queued"
    assert f"logs {job['id']} -f" in screen


def _job(team: Team, job_id: str) -> dict[str, Any]:
    return json.loads(team.run("admin", "show", job_id, "--json").stdout)


def _jobs(team: Team, *options: str) -> list[dict[str, Any]]:
    return json.loads(team.run("admin", "ps", "--json", *options).stdout)


def _files(team: Team, url: str) -> set[str]:
    """Returns the names of the files of an uploaded bundle."""
    address = f"{team.url}/v1/bundles/{url.removeprefix('bundle:sha256:')}/content"
    answer = httpx2.get(address, headers={"Authorization": f"Bearer {team.tokens['admin']}"})
    assert answer.status_code == 200, answer.text
    with tarfile.open(fileobj=io.BytesIO(answer.content)) as tar:
        return {*tar.getnames()}


def _run(team: Team, folder: Path, *arguments: str, stdin: str = "") -> CompletedProcess[str]:
    own = environment(team.url, team.tokens["admin"])
    return run_in_process(arguments, own, stdin=stdin, cwd=folder)
