"""The options of `run` and `submit` that make a sweep of one job."""

import json
from pathlib import Path
from typing import Any

import pytest

from tests.approved import Approved
from tests.torchyard.cli.answered import is_clean_error, run
from tests.torchyard.client.answers import NOW, page
from tests.torchyard.client.fake_server import Answer, FakeServer
from tests.torchyard.client.test_sweeps import ID, OF_ONE, PATH, sent, sweep, trial
from torchyard.client.packing.bundle import pack

RECIPE = "trainer: image-classification\nname: digits\n"


@pytest.fixture(autouse=True)
def answers(server: FakeServer) -> None:
    server.on(PATH, Answer(sweep(), 201))


def submitted(server: FakeServer, *options: str) -> Any:
    done = run(server, "submit", "-", *options, stdin=RECIPE)
    assert (done.returncode, done.stdout) == (0, f"{ID}\n"), done.stderr
    return sent(server)


def test_a_job_spec_is_submitted_as_a_sweep(server: FakeServer) -> None:
    job = {"trainer": "image-classification", "name": "digits"}
    found = submitted(server, "--sweep", "lr=1e-3,0.1", "--sweep", "seed=1..5", "--max-parallel", "4", "--mode", "max")
    assert found == {
        "name": "digits",
        "method": "grid",
        "parameters": {"config.optimizer.lr": [0.001, 0.1], "config.training.seed": "1..5"},
        "max_parallel": 4,
        "mode": "max",
        "job": job,
    }
    found = submitted(server, "--array", "100", "--name", "all", "--monitor", "val/accuracy")
    job = {**job, "name": "all"}
    assert found == {"name": "all", "method": "array", "trials": 100, "monitor": "val/accuracy", "job": job}


def test_how_values_are_chosen_is_sent(server: FakeServer) -> None:
    varied = ("--sweep", "lr=1e-5..1e-1:log")
    tpe = submitted(server, *varied, "--method", "tpe", "--trials", "20")
    assert (tpe["method"], tpe["trials"]) == ("tpe", 20)
    assert tpe["parameters"] == {"config.optimizer.lr": {"min": 1e-5, "max": 0.1, "log": True}}
    asha = submitted(server, *varied, "--method", "asha", "--trials", "27", "--halving", "epochs=1..9")
    assert asha["halving"] == {"min": 1, "max": 9, "unit": "epochs"}


@pytest.mark.parametrize(
    "options",
    [
        ["--trials", "3"],
        ["--max-parallel", "3"],
        ["--array", "3", "--sweep", "lr=1"],
        ["--array", "3", "--method", "tpe"],
        ["--sweep", "lr=1", "--sweep", "config.optimizer.lr=2"],
        ["--sweep", "lr=1..2", "--halving", "3"],
        ["--sweep", "patience=1,2"],
        ["--sweep", "lr"],
        ["--sweep", "lr=1", "-"],
    ],
)
def test_wrong_options_are_refused_before_anything_is_sent(
    server: FakeServer, options: list[str], approved: Approved
) -> None:
    done = run(server, "submit", "-", *options, stdin=RECIPE)
    text = " ".join(done.stderr.replace("│", " ").split())
    assert done.returncode in {1, 2} and text == approved.of_row("errors")
    assert is_clean_error(done) and server.requests == []


@pytest.mark.parametrize(
    "options",
    [
        ["--sweep", "lr=1e-5..0.1"],
        ["--sweep", "lr=1", "--method", "tpe"],
        ["--sweep", "seed=1..1000000"],
    ],
)
def test_what_no_sweep_can_have_is_said_by_field(server: FakeServer, options: list[str], approved: Approved) -> None:
    done = run(server, "submit", "-", *options, stdin=RECIPE)
    assert (done.returncode, done.stderr, server.requests) == (1, approved.of_row("errors"), [])


def test_a_sweep_is_of_one_job(server: FakeServer) -> None:
    done = run(server, "submit", "-", "--sweep", "lr=1", stdin=f"{RECIPE}---\n{RECIPE}")
    assert (done.returncode, "a sweep needs one job" in done.stderr, server.requests) == (2, True, [])


def test_a_program_is_run_as_a_sweep(server: FakeServer, tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text("print('hello')\n")
    (tmp_path / "torchyard.toml").write_text("[run]\nname = 'net'\ndetach = true\n")
    _accept(server, tmp_path)
    options = ("--sweep", "lr=0.1,0.01", "--sweep", "devices=1,2", "--sweep", "env.A=x,2", "--max-size", "1MiB")
    done = run(server, "run", *options, "train.py", "--epochs", "3", cwd=tmp_path)
    assert (done.returncode, done.stdout) == (0, f"{ID}\n"), done.stderr
    found = sent(server)
    assert found["parameters"] == {
        "args.lr": [0.1, 0.01],
        "resources.devices_per_node": [1, 2],
        "env.A": ["x", "2"],
    }
    assert (found["name"], found["job"]["name"], found["job"]["config"]["args"]) == ("net", "net", ["--epochs", "3"])
    assert done.stderr.splitlines()[:4] == [
        "--lr              0.1, 0.01",
        "devices_per_node  1, 2",
        "A                 x, 2",
        "trials            8 of grid",
    ]


def test_a_wrong_sweep_of_a_program_is_refused_before_it_is_packed(server: FakeServer, tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text("print('hello')\n")
    for option in ("seed=1..1000000", "seed", "name=a,b,,"):
        done = run(server, "run", "--sweep", option, "train.py", cwd=tmp_path)
        assert (done.returncode in {1, 2}, is_clean_error(done), server.requests) == (True, True, []), option


def test_a_sweep_of_a_program_is_followed(server: FakeServer, tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text("print('hello')\n")
    _accept(server, tmp_path)
    server.on(PATH, Answer(sweep(state="failed"), 201))
    server.on(f"{OF_ONE}/trials", page([trial(0, state="failed", error="no")]))
    done = run(server, "run", "--array", "3", "train.py", cwd=tmp_path)
    assert done.returncode == 1 and "Ctrl-C stops following" in done.stderr
    assert done.stdout.splitlines()[-1].split()[:2] == ["0", "failed"]


def _accept(server: FakeServer, folder: Path) -> None:
    """Has the server say that it has the folder already."""
    with pack(folder) as bundle:
        view = {"sha256": bundle.sha256, "state": "complete", "files": 1, "size": bundle.size, "received": bundle.size}
        server.on(f"/v1/bundles/{bundle.sha256}", {**view, "created_at": NOW})


def test_a_dry_run_prints_the_arguments_of_each_trial_and_sends_nothing(server: FakeServer, tmp_path: Path) -> None:
    source = "import argparse\np = argparse.ArgumentParser()\np.add_argument('--amp', action='store_true')\n"
    (tmp_path / "train.py").write_text(source)
    options = ("--dry-run", "--sweep", "amp=true,false", "--sweep", "env.A=x,y")
    done = run(server, "run", *options, "train.py", "--amp", "in put.csv", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == [
        "0  train.py --amp 'in put.csv'   (A x)",
        "1  train.py --amp 'in put.csv'   (A y)",
        "2  train.py 'in put.csv'   (A x)",
        "3  train.py 'in put.csv'   (A y)",
    ]
    assert "--amp      true, false   (--amp or nothing: train.py, line 3)" in done.stderr.splitlines()
    assert done.stderr.endswith("Dry run: nothing was sent.\n") and server.requests == []
    done = run(server, "run", "--dry-run", "--json", "train.py", "a", cwd=tmp_path)
    assert json.loads(done.stdout) == {"argv": ["train.py", "a"]}
