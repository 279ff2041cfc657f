"""The commands of sweeps against a server that answers as documented."""

import json
from pathlib import Path
from typing import Any

import pytest

from tests.approved import Approved
from tests.torchyard.cli.answered import environment_of, is_clean_error, run
from tests.torchyard.cli.terminal import in_terminal
from tests.torchyard.client.answers import DATA, JOB, NOW, job, page, serve_checkpoint
from tests.torchyard.client.fake_server import Answer, FakeServer, problem
from tests.torchyard.client.test_sweeps import ID, OF_ONE, PATH, sent, sweep, trial
from torchyard.cli import completion
from torchyard.cli.sweeps import follow

RECIPE = {"trainer": "image-classification"}
FILE = "name: lr\nparameters: {lr: [0.1, 0.01], seed: 1..3}\njob: {trainer: image-classification}\n"
BEST = {"trial": 1, "job_id": "job_1", "value": 0.25, "point": {"config.optimizer.lr": 0.01}, "checkpoint_id": "ckpt_1"}
ENDED = sweep(state="finished", finished_at=NOW, trials={"total": 3, "succeeded": 2, "failed": 1}, best=BEST)
TRIALS = [
    trial(1, state="succeeded", value=0.25, rank=1, step=90),
    trial(0, state="succeeded", value=0.5, rank=2, step=90),
    trial(2, state="failed", error="CUDA out of memory", job_id=None),
]


@pytest.fixture(autouse=True)
def answers(server: FakeServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(follow, "_REFRESH_S", 0)
    server.on(PATH, page([ENDED]))
    server.on(OF_ONE, ENDED)
    server.on(f"{OF_ONE}/trials", page(TRIALS))


def test_the_sweep_of_a_file_is_submitted_with_whole_keys(server: FakeServer, tmp_path: Path) -> None:
    server.on(PATH, Answer(sweep(), 201))
    (tmp_path / "sweep.yaml").write_text(FILE)
    done = run(server, "submit", "sweep.yaml", "--max-parallel", "2", cwd=tmp_path)
    assert (done.returncode, done.stdout) == (0, f"{ID}\n"), done.stderr
    assert sent(server) == {
        "name": "lr",
        "parameters": {"config.optimizer.lr": [0.1, 0.01], "config.training.seed": "1..3"},
        "max_parallel": 2,
        "job": RECIPE,
    }
    assert done.stderr.splitlines()[:3] == [
        "lr         0.1, 0.01",
        "seed       1 to 3",
        "trials     6 of grid, 2 at once",
    ]
    assert f"sweep show {ID} -f" in done.stderr
    assert json.loads(run(server, "submit", "--json", "-", stdin=FILE).stdout)["id"] == ID


def test_the_keys_of_points_are_completed_too(server: FakeServer) -> None:
    server.on(PATH, Answer(sweep(), 201))
    text = json.dumps({"method": "list", "points": [{"lr": 1}, {"config.optimizer.lr": 2}], "job": RECIPE})
    assert run(server, "submit", "-", stdin=text).returncode == 0
    assert sent(server)["points"] == [{"config.optimizer.lr": 1}, {"config.optimizer.lr": 2}]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("trainer: script\nparameters: {lr: [1]}", "is a job spec, not a sweep: put it under the key `job`"),
        ("parameters: {lr: [1]}\njob: {}", "is no sweep"),
        ("parameters: {args.a: 1..1000, args.b: 1..1000}\njob: {trainer: script}", "1000000 points, and at most 10000"),
        ("parameters: {lerning: [1]}\njob: {trainer: image-classification}", "unknown key lerning"),
        ("[]", "not a job spec"),
    ],
)
def test_what_is_wrong_in_a_file_is_said_before_anything_is_sent(server: FakeServer, text: str, said: str) -> None:
    if said == "is no sweep":  # only the service knows what is wrong with a short key without a trainer
        server.on(PATH, problem("invalid_spec", 422, errors=[{"field": "job", "message": "is no sweep"}]))
    done = run(server, "submit", "-", stdin=text)
    assert done.returncode in {1, 2} and said in done.stderr, done.stderr
    assert is_clean_error(done) or said == "is no sweep"
    assert len(server.requests) == (said == "is no sweep")


def test_a_sweep_takes_what_goes_for_its_job_and_no_option_that_says_what_varies(server: FakeServer) -> None:
    server.on(PATH, Answer(sweep(), 201))
    assert run(server, "submit", "-", "--name", "mine", "--visibility", "team", stdin=FILE).returncode == 0
    assert (sent(server)["name"], sent(server)["job"]) == ("mine", {**RECIPE, "visibility": "team"})
    count = len(server.requests)
    for arguments, said in (
        (["--trials", "3"], "is already a sweep: omit --trials"),
        (["--sweep", "lr=1,2"], "is already a sweep: omit --sweep"),
    ):
        done = run(server, "submit", "-", *arguments, stdin=FILE)
        assert done.returncode == 2 and said in done.stderr, done.stderr
    done = run(server, "submit", "-", stdin=f"{FILE}\n---\n{FILE}")
    assert done.returncode == 2 and "submit a sweep alone" in done.stderr, done.stderr
    assert len(server.requests) == count


@pytest.mark.parametrize("word", ["sweep.yaml", "submit", "-"])
def test_sweep_takes_no_file_and_says_what_does(server: FakeServer, word: str) -> None:
    done = run(server, "sweep", word)
    assert (done.returncode, server.requests) == (2, [])
    assert word == "-" or "`submit FILE`" in done.stderr


def test_a_dry_run_submits_nothing(server: FakeServer) -> None:
    server.on(f"{PATH}/validate", {"spec": ENDED["spec"], "points": 6})
    done = run(server, "submit", "--dry-run", "-", stdin=FILE)
    assert (done.returncode, done.stdout) == (0, "") and done.stderr.endswith("Dry run: nothing was submitted.\n")
    assert json.loads(run(server, "submit", "--dry-run", "--json", "-", stdin=FILE).stdout)["points"] == 6
    assert {request.path for request in server.requests} == {f"{PATH}/validate"}


@pytest.mark.parametrize(("state", "code"), [("finished", 0), ("failed", 1), ("cancelled", 3)])
def test_following_says_how_trials_end_and_prints_the_ranking(
    server: FakeServer, state: str, code: int, approved: Approved
) -> None:
    reason = {"code": state, "message": "that is it", "since": NOW}
    server.on(PATH, Answer(sweep(trials={"total": 3, "running": 2, "waiting": 1}), 201))
    server.on(
        OF_ONE,
        sweep(trials={"total": 3, "succeeded": 2, "running": 1}),
        {**ENDED, "state": state} | {"status_reason": reason},
    )
    server.on(f"{OF_ONE}/trials", page([trial(0), trial(1)]), page([*TRIALS[:2], trial(2)]), page(TRIALS))
    done = run(server, "submit", "-f", "-", stdin=FILE)
    assert done.returncode == code, done.stderr
    lines = [line[10:] for line in done.stderr.splitlines() if line[2:3] == ":"]
    assert lines == [
        approved("lines"),
        approved("trial succeeded lr"),
        approved("trial succeeded lr again"),
        approved("trial failed lr"),
        f"{state:<10} that is it",
    ]
    heading, *rows = done.stdout.splitlines()[-4:]
    assert heading.split() == ["RANK", "TRIAL", "STATE", "VALUE", "lr", "STEP", "JOB", "ERROR"]
    assert [row.split()[:3] for row in rows] == [["1", "1", "succeeded"], ["2", "0", "succeeded"], ["2", "failed", "3"]]


def test_following_a_sweep_of_which_nothing_succeeded_fails(server: FakeServer) -> None:
    server.on(OF_ONE, {**ENDED, "trials": {"total": 3, "failed": 3}})
    assert run(server, "sweep", "show", "lr", "-f").returncode == 1


def test_a_sweep_is_shown_with_its_trials_ranked(server: FakeServer) -> None:
    done = run(server, "sweep", "show", "lr")
    assert done.returncode == 0
    lines = done.stdout.splitlines()
    assert "state      finished: trials are made" in lines
    assert "trials     3 of 3 finished: 2 succeeded, 1 failed" in lines
    assert "best       0.25 of trial 1: lr 0.01" in lines
    assert server.requests[-1].query == {"sort": ["value"], "limit": ["20"]}
    found = json.loads(run(server, "sweep", "show", ID, "--json").stdout)
    assert (found["sweep"]["id"], len(found["trials"])) == (ID, 3)
    assert server.requests[-1].query == {"sort": ["value"], "limit": ["1000"]}
    short = run(server, "sweep", "show", ID, "-n", "1")
    assert "2 more trials: " in short.stderr and "sweep show lr --all" in short.stderr


def test_a_long_point_is_not_shown_in_the_ranking(server: FakeServer) -> None:
    server.on(f"{OF_ONE}/trials", page([trial(1, point={}, point_omitted=True)]))
    [row] = [line.split() for line in run(server, "sweep", "show", ID).stdout.splitlines() if " job_1" in line]
    assert "…" in row


def test_a_sweep_without_trials_and_one_without_keys_are_shown(server: FakeServer) -> None:
    empty = sweep(
        trials={"total": 3, "waiting": 3}, method="array", spec={"method": "array", "trials": 3, "job": RECIPE}
    )
    server.on(OF_ONE, empty)
    server.on(f"{OF_ONE}/trials", page([]))
    lines = run(server, "sweep", "show", ID).stdout.splitlines()
    assert "trials     0 of 3 finished: 3 waiting" in lines and not any("RANK" in line for line in lines)
    server.on(f"{OF_ONE}/trials", page([trial(0, point={})]))
    assert run(server, "sweep", "show", ID).stdout.splitlines()[-1].split() == ["0", "running", "job_0"]


def test_keys_with_the_same_last_word_have_more_of_their_names(server: FakeServer) -> None:
    point = {"config.model.name": "cnn", "config.optimizer.name": "sgd", "args.lr": [1, 2], "env.A": None}
    spec = {"parameters": {key: [value] for key, value in point.items()}, "job": RECIPE}
    server.on(OF_ONE, sweep(spec=spec))
    server.on(f"{OF_ONE}/trials", page([trial(0, point=point, value="NaN")]))
    heading, row = run(server, "sweep", "show", ID).stdout.splitlines()[-2:]
    assert heading.split()[3:-2] == ["VALUE", "model.name", "optimizer.name", "--lr", "A"]
    assert row.split()[:-1] == ["0", "running", "NaN", "cnn", "sgd", "[1,", "2]", "null"]


def test_the_table_fits_a_terminal_of_80_columns(server: FakeServer) -> None:
    long = trial(3, point={"config.optimizer.lr": "x" * 200}, job_id=f"job_{'0' * 32}", error="why " * 50)
    server.on(f"{OF_ONE}/trials", page([*TRIALS, long]))
    code, screen = in_terminal(["sweep", "show", ID], environment_of(server))
    table = screen.replace("\r", "").rpartition("\n\n")[2].splitlines()
    assert code == 0
    assert table[0].split() == ["RANK", "TRIAL", "STATE", "VALUE", "lr", "STEP", "JOB", "ERROR"]
    assert max(len(line) for line in table if "\x1b" not in line) <= 80


def test_in_a_terminal_the_table_is_redrawn(server: FakeServer) -> None:
    code, screen = in_terminal(["sweep", "show", ID, "--follow"], environment_of(server))
    assert code == 0
    assert "████  3 of 3 finished" in screen


def test_a_text_of_the_server_moves_no_cursor(server: FakeServer) -> None:
    evil = "\x1b[2J\u202e\n"
    point = {evil: evil}
    spec = {"parameters": {"args.a": [evil]}, "job": RECIPE}
    reason = {"code": "x", "message": evil, "since": NOW}
    bad = sweep(name=evil, owner=evil, monitor=evil, spec=spec, status_reason=reason, best={**BEST, "point": point})
    server.on(PATH, page([bad]))
    server.on(OF_ONE, bad)
    server.on(f"{OF_ONE}/trials", page([trial(0, point=point, error=evil)]))
    for arguments in (("show", ID), ("ls",)):
        shown = run(server, "sweep", *arguments)
        assert shown.returncode == 0 and shown.stdout.count("\n") < 20
        assert "\x1b" not in shown.stdout and "\u202e" not in shown.stdout, arguments
    code, screen = in_terminal(["sweep", "best", ID], environment_of(server))
    assert (code, "\x1b[2J" in screen, "\u202e" in screen) == (0, False, False)


def test_sweeps_are_listed(server: FakeServer) -> None:
    heading, row = run(server, "sweep", "ls", "--state", "finished").stdout.splitlines()
    assert heading.split()[:5] == ["ID", "NAME", "STATE", "FINISHED", "FAILED"]
    assert row.startswith(f"{ID}  lr    finished")
    assert server.requests[-1].query == {"limit": ["100"], "owner": ["admin"], "state": ["finished"]}
    assert json.loads(run(server, "sweep", "ls", "-a", "--json").stdout)[0]["id"] == ID
    assert "owner" not in server.requests[-1].query
    server.on(PATH, page([]))
    assert "No such sweeps. Submit one: " in run(server, "sweep", "ls").stderr
    wrong = run(server, "sweep", "ls", "--state", "done")
    assert (wrong.returncode, "'done' is not a state of a sweep: it must be one of running" in wrong.stderr) == (
        2,
        True,
    )


def test_the_jobs_of_a_sweep_are_listed_and_say_so(server: FakeServer) -> None:
    of_sweep = job(sweep={"id": ID, "name": "lr", "trial": 3, "point": {"config.optimizer.lr": 0.1}})
    server.on("/v1/jobs", page([of_sweep]))
    assert run(server, "ps", "--sweep", "lr").returncode == 0
    assert server.requests[-1].query["sweep"] == [ID]
    server.on(JOB, of_sweep)
    server.on(f"{JOB}/checkpoints", page([]))
    assert f"sweep      lr ({ID}), trial 3" in run(server, "show", "job_1").stdout.splitlines()


def test_the_best_checkpoint_is_named_and_downloaded(server: FakeServer, tmp_path: Path, approved: Approved) -> None:
    done = run(server, "sweep", "best", "lr")
    assert (done.returncode, done.stdout) == (0, "job_1/ckpt_1\n")
    assert done.stderr == approved("stderr")
    assert json.loads(run(server, "sweep", "best", "lr", "--json").stdout) == BEST
    serve_checkpoint(server, DATA)
    done = run(server, "sweep", "best", "lr", "-o", "it.pt", cwd=tmp_path)
    assert (done.stdout, (tmp_path / "it.pt").read_bytes()) == ("it.pt\n", DATA)


@pytest.mark.parametrize(
    "best",
    [
        None,
        {**BEST, "job_id": None},
        {**BEST, "checkpoint_id": None},
    ],
)
def test_a_sweep_without_a_best_checkpoint_says_why(server: FakeServer, best: Any, approved: Approved) -> None:
    server.on(OF_ONE, sweep(best=best))
    server.on(f"{JOB}/checkpoints", page([]))
    done = run(server, "sweep", "best", ID)
    assert (done.returncode, done.stderr) == (1, approved.of_row("errors"))
    assert is_clean_error(done)


def test_the_best_trials_only_checkpoint_is_taken_where_none_has_the_metric(
    server: FakeServer, approved: Approved
) -> None:
    server.on(OF_ONE, sweep(best={**BEST, "checkpoint_id": None}))
    newest = {"id": "ckpt_2", "epoch": None, "step": 9, "attempt": 1, "metrics": {}, "files": []}
    newest |= {"aliases": ["latest"], "created_at": NOW, "size": 7, "sha256": "0" * 64}
    server.on(f"{JOB}/checkpoints", page([newest]))
    assert run(server, "sweep", "best", "lr").stdout == "job_1/ckpt_2\n"
    server.on("/v1/jobs", page([]))
    server.on(f"{JOB}/checkpoints", page([newest, {**newest, "id": "ckpt_1", "aliases": []}]))
    told = [run(server, *words).stderr for words in (("sweep", "best", "lr"), ("models", "add", "net", "lr/best"))]
    assert told == [approved("several")] * 2


@pytest.mark.parametrize("action", ["pause", "resume", "cancel"])
def test_a_sweep_is_changed_as_one(server: FakeServer, action: str) -> None:
    server.on(f"{OF_ONE}/{action}", Answer(sweep(state="paused"), 202))
    done = run(server, "sweep", action, "lr", ID)
    assert done.stdout == f"{ID}  paused, 1 of 3 finished: 1 succeeded, 2 running\n" * 2
    assert len(json.loads(run(server, "sweep", action, "lr", "--json").stdout)) == 1


def test_a_terminal_is_asked_before_the_jobs_of_a_sweep_stop(server: FakeServer) -> None:
    server.on(OF_ONE, sweep())
    code, screen = in_terminal(["sweep", "cancel", "lr"], environment_of(server), answer="n\n")
    assert (code, "Stop their jobs?" in screen, server.requests[-1].method) == (1, True, "GET")


def test_a_sweep_is_extended_and_a_trial_promoted(server: FakeServer) -> None:
    server.on(f"{OF_ONE}/extend", sweep())
    assert run(server, "sweep", "extend", "lr", "--trials", "5").stdout.startswith(f"{ID}  running, 1 of 3 finished")
    assert sent(server) == {"trials": 5}
    run(server, "sweep", "extend", "lr", "--point", "lr=0.1,seed=3", "--point", '{"lr": 1}', "--max-parallel", "2")
    points = [{"config.optimizer.lr": 0.1, "config.training.seed": 3}, {"config.optimizer.lr": 1}]
    assert sent(server) == {"points": points, "max_parallel": 2}
    for arguments, said in (((), "give --trials N"), (("--point", "lr"), "'lr' is not a point")):
        refused = run(server, "sweep", "extend", "lr", *arguments)
        assert (refused.returncode, said in refused.stderr) == (2, True)
    server.on(f"{OF_ONE}/trials/2/promote", Answer(trial(2, state="queued"), 202))
    assert run(server, "sweep", "promote", "lr", "2").stdout == "trial 2  queued  job_2\n"


def test_a_sweep_is_removed_once_it_was_confirmed(server: FakeServer) -> None:
    refused = run(server, "sweep", "rm", "lr")
    assert (refused.returncode, "use --yes" in refused.stderr) == (2, True)
    server.on(OF_ONE, ENDED, Answer(b"", 204))
    assert json.loads(run(server, "sweep", "rm", "lr", "--yes", "--json").stdout) == {"deleted": [ID]}
    assert (server.requests[-1].method, server.requests[-1].query) == ("DELETE", {})
    server.on(OF_ONE, ENDED, Answer(b"", 204))
    assert run(server, "sweep", "rm", "lr", "-y", "--jobs").stdout == f"{ID}  deleted\n"
    assert server.requests[-1].query == {"jobs": ["true"]}
    for option, question in (((), "Their jobs stay."), (("--jobs",), "everything those stored?")):
        server.on(OF_ONE, ENDED)
        code, screen = in_terminal(["sweep", "rm", "lr", *option], environment_of(server), answer="n\n")
        assert (code, question in screen, server.requests[-1].method) == (1, True, "GET")


def test_names_of_sweeps_are_completed(server: FakeServer, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in environment_of(server).items():
        monkeypatch.setenv(name, value)
    assert completion.sweep_names("l") == [("lr", f"finished, {ID}")]
    assert completion.sweep_names("swp_") == [(ID, "finished, lr")]
    assert completion.job_names("l") == []  # the server has no jobs
