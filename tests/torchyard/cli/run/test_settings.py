"""Where the settings of `torchyard run` come from, and what is said of wrong ones."""

from collections.abc import Callable
import json
from pathlib import Path
import re
from subprocess import PIPE, CompletedProcess, run
import sys
import tomllib
from typing import Annotated, Any

from pydantic import ConfigDict, Field, TypeAdapter
import pytest

from tests.approved import Approved
from tests.torchyard.cli.invocation import environment, run_in_process
from torchyard.cli.run.keys import KEYS
from torchyard.cli.run.settings import Settings, read_settings
from torchyard.contract.attempts.rundir import Env
from torchyard.contract.spec.labels import Labels
from torchyard.contract.spec.resources import GpuName, SlurmFeatures
from torchyard.contract.spec.spec import JobName, Priority
from torchyard.contract.team.roles import Visibility

USER = """
[run]
name = "of-the-user"
devices = 8
priority = 5
env = {A = "user", B = "user"}
"""


def test_a_flag_goes_before_the_environment_and_that_before_both_files(tmp_path: Path) -> None:
    _user_file(tmp_path).write_text(USER)
    (tmp_path / "torchyard.toml").write_text('[run]\ndevices = 4\nname = "of-the-project"\nmax_size = "1GiB"\n')
    found = _config(tmp_path, TORCHYARD_RUN_DEVICES="2", TORCHYARD_RUN_DETACH="true")
    user = str(_user_file(tmp_path))
    assert {name: (item["value"], item["origin"]) for name, item in found.items() if item["value"] is not None} == {
        "devices": (2, "TORCHYARD_RUN_DEVICES"),
        "nodes": (1, "default"),
        "name": ("of-the-project", "torchyard.toml"),
        "priority": (5, user),
        "env.A": ("user", user),
        "env.B": ("user", user),
        "max_size": (1 << 30, "torchyard.toml"),
        "include": ([], "default"),
        "checkpoints": ([], "default"),
        "keep": ([], "default"),
        "metrics": ([], "default"),
        "after": ([], "default"),
        "max_restarts": (2, "default"),
        "detach": (True, "TORCHYARD_RUN_DETACH"),
    }


def test_flags_go_before_all(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    settings = _in(
        tmp_path, monkeypatch, {"devices": 1, "env": {"A": "flag"}, "name": None}, TORCHYARD_RUN_ENV="A=1 B=2"
    )
    assert (settings["devices"], settings["env"]) == (1, {"A": "flag", "B": "2"})
    assert settings.all()["devices"].origin == "--devices"


def test_what_is_asked_of_the_host_comes_from_everywhere(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "torchyard.toml").write_text('[run]\ngpu = ["H100"]\ncpus = 4\n')
    settings = _in(
        tmp_path, monkeypatch, {"cpus": 0.5}, TORCHYARD_RUN_GPU="A100-80GB 'RTX 4090'", TORCHYARD_RUN_MEMORY_GB="1.5"
    )
    assert (settings["cpus"], settings["gpu"], settings["memory_gb"]) == (0.5, ["A100-80GB", "RTX 4090"], 1.5)


def test_a_variable_is_a_text_or_a_secret_as_the_stronger_place_says(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "torchyard.toml").write_text('[run]\nsecrets = {KEY = "MINE", OTHER = "OTHER"}\n')
    settings = _in(tmp_path, monkeypatch, {"env": {"KEY": "plain"}})
    assert (settings["env"], settings["secrets"]) == ({"KEY": "plain"}, {"OTHER": "OTHER"})
    settings = _in(tmp_path, monkeypatch, {}, TORCHYARD_RUN_ENV="OTHER='two words'")
    assert (settings["env"], settings["secrets"]) == ({"OTHER": "two words"}, {"KEY": "MINE"})


@pytest.mark.parametrize(
    "text",
    [
        "[run]\ndevcies = 2",
        "devices = 2",
        "run = 2",
        '[run]\ndevices = "2"',
        "[run]\ncpus = 0",
        "[run]\nmemory_gb = nan",
        '[run]\nprofile = "5"',
        '[run]\nprofile = "5:101"',
        "[run]\ngpu = []",
        '[run]\ngpu = "H100"',
        "[run]\ndevices = true",
        "[run]\nenv = {A = 1}",
        '[run]\ntime_limit = "soon"',
        '[run]\nmax_size = "0"',
        '[run]\nlauncher = "slurm"',
        "[run]\nmounts = {data = 1}",
        '[run]\nmounts = {"../data" = "file:///data"}',
        '[run]\nenv = {A = "1"}\nsecrets = {A = "B"}',
        "[run",
        "\udcff",
    ],
)
def test_a_wrong_file_is_named_with_the_key_and_what_is_allowed(tmp_path: Path, text: str, approved: Approved) -> None:
    (tmp_path / "torchyard.toml").write_bytes(text.encode(errors="surrogateescape"))
    done = _run(tmp_path, "run", "--config")
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr == approved.of_row("errors")


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("TORCHYARD_RUN_DEVICES", "two"),
        ("TORCHYARD_RUN_ENV", "A"),
        ("TORCHYARD_RUN_DETACH", "perhaps"),
        ("TORCHYARD_RUN_DEVICE", "2"),
    ],
)
def test_a_wrong_variable_is_named(tmp_path: Path, name: str, value: str, approved: Approved) -> None:
    done = _run(tmp_path, "run", "--config", **{name: value})
    assert done.returncode == 1
    assert done.stderr == approved.of_row("errors")


def test_the_run_directory_of_a_job_is_no_setting(tmp_path: Path) -> None:
    assert _run(tmp_path, "run", "--config", TORCHYARD_RUN_DIR="/somewhere").returncode == 0


def test_the_origin_of_each_value_is_shown(tmp_path: Path) -> None:
    (tmp_path / "torchyard.toml").write_text("[run]\ndevices = 4\n")
    shown = [line.split() for line in _run(tmp_path, "run", "--config").stdout.splitlines()]
    assert shown[0] == ["SETTING", "VALUE", "FROM"]
    assert ["devices", "4", "torchyard.toml"] in shown
    flag = _run(tmp_path, "run", "--devices", "3", "--config").stdout.splitlines()
    assert ["devices", "3"] in [line.split()[:2] for line in flag]
    assert ["max_size", "200.0", "MiB", "default"] in shown


def test_neither_takes_a_program(tmp_path: Path) -> None:
    for option in ("--config", "--init"):
        done = _run(tmp_path, "run", option, "train.py")
        assert (done.returncode, "omit train.py" in done.stderr) == (2, True)
    assert list(tmp_path.iterdir()) == []
    assert "give a program" in _run(tmp_path, "run").stderr
    for old in ("config", "init"):
        done = _run(tmp_path, old)
        assert (done.returncode, f"`run --{old}`" in done.stderr) == (2, True)


def test_init_writes_a_file_of_comments_and_never_over_one(tmp_path: Path, approved: Approved) -> None:
    done = _run(tmp_path, "run", "--init")
    assert (done.returncode, done.stdout) == (0, "torchyard.toml\n")
    written = (tmp_path / "torchyard.toml").read_text()
    assert _config(tmp_path) == _config(tmp_path.parent / "nowhere")
    again = _run(tmp_path, "run", "--init")
    assert (again.returncode, again.stdout) == (1, "")
    assert again.stderr == approved("errors")
    assert (tmp_path / "torchyard.toml").read_text() == written
    own = [line.removeprefix("# ") for line in written.splitlines() if re.match(r"\[|# \w+ = ", line)]
    examples = tomllib.loads("\n".join(own))["run"]
    for key in KEYS:
        key.check(examples[key.name])


def _in(folder: Path, monkeypatch: pytest.MonkeyPatch, flags: dict[str, Any], **variables: str) -> Settings:
    with monkeypatch.context() as patch:
        patch.chdir(folder)
        for name, value in {"XDG_CONFIG_HOME": str(folder / "own"), **variables}.items():
            patch.setenv(name, value)
        return read_settings(flags)


def _user_file(folder: Path) -> Path:
    path = folder / "own" / "torchyard" / "config.toml"
    path.parent.mkdir(parents=True, exist_ok=True)
    return path


def _config(folder: Path, **variables: str) -> dict[str, Any]:
    return json.loads(_run(folder, "run", "--config", "--json", **variables).stdout)


def _run(folder: Path, *arguments: str, **variables: str) -> CompletedProcess[str]:
    folder.mkdir(exist_ok=True)
    own = {**environment(None, ""), "XDG_CONFIG_HOME": str(folder / "own"), **variables}
    return run_in_process(arguments, own, cwd=folder)


def test_a_program_is_read_without_pydantic_until_a_service_starts(tmp_path: Path) -> None:
    """Models, the HTTP library and the packing take longer to load than all else that is done before."""
    (tmp_path / "main.py").touch()
    (tmp_path / "torchyard.toml").write_text('[run]\ncpus = 2\ntime_limit = "1h"\nmax_size = "1GiB"\n')
    heavy = ("pydantic", "httpx2", "rich", "torchyard.client.packing.bundle")
    program = (
        "import sys\nfrom torchyard.cli import main\ntry: main()\n"
        f"finally: sys.exit(str([name for name in {heavy} if name in sys.modules]))"
    )
    words = ["run", "--name", "digits", "--devices", "2", "--env", "A=1", "--gpu", "H100", "--keep", "out/*", "main.py"]
    env = {**environment(None, ""), "XDG_CONFIG_HOME": str(tmp_path), Env.JOB_ID: "job_1"}  # a job starts no service
    done = run(
        [sys.executable, "-P", "-c", program, *words], env=env, cwd=tmp_path, stderr=PIPE, text=True, check=False
    )
    assert [line[:21] for line in done.stderr.splitlines()] == ["No server is set. Sta", "error: a job cannot s", "[]"]


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("name", JobName),
        ("priority", Priority),
        ("gpu", Annotated[list[GpuName], Field(min_length=1, max_length=16)]),
        ("constraint", SlurmFeatures),
        ("cpus", Annotated[float, Field(gt=0, le=10_000)]),
        ("labels", Labels),
        ("visibility", Visibility),
        ("preemptible", bool),
    ],
)
def test_a_setting_is_checked_as_the_field_of_a_spec(name: str, kind: Any) -> None:
    (key,) = [key for key in KEYS if key.name == name]
    model = TypeAdapter(kind, config=ConfigDict(strict=True))
    texts: list[Any] = ["", "a", "a\n", "é", "\ud800", "a" * 100, "a" * 101, "team", "1"]
    numbers: list[Any] = [True, None, 0, 1, -100, 101, 1.5, 10_001, 1e300, float("nan"), float("inf")]
    more: list[Any] = [{}, {"a": "b"}, {"a\n": "b"}, {"a": 1}, {"a": "b" * 201}, {str(n): "x" * 200 for n in range(32)}]
    for value in [*texts, *numbers, *more, [], [1], *([text] for text in texts), ["a"] * 16, ["a"] * 17]:
        assert _accepted(key.check, value) == _accepted(model.validate_python, value), value


def _accepted(check: Callable[[Any], Any], value: Any) -> Any:
    try:
        return check(value)
    except ValueError:
        return "refused"
