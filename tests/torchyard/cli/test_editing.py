"""`edit`, `star`, `archive`, and commands on all jobs that a filter finds, against a real service without a worker."""

from collections.abc import Generator
from contextlib import closing
import json
from pathlib import Path
import re
import sys
from typing import Any

import pytest

from store.attempts import folders
from store.db.database import Database
from tests.approved import Approved
from tests.databases import SQLiteDatabases
from tests.store.fixture import StoreFixture
from tests.torchyard.cli.answered import is_clean_error
from tests.torchyard.cli.invocation import environment, run_in_process
from tests.torchyard.cli.service import Team, serving_team
from torchyard.client import Client

SPEC: dict[str, Any] = {"trainer": "image-classification", "name": "digits"}
HOSTILE = "# seen\x9b2J"


@pytest.fixture(scope="module")
def shared_team(tmp_path_factory: pytest.TempPathFactory, sqlite: SQLiteDatabases) -> Generator[Team]:
    with serving_team(tmp_path_factory.mktemp("team"), sqlite) as team:
        yield team


@pytest.fixture
def team(shared_team: Team, request: pytest.FixtureRequest) -> Team:
    """The service, with a new user `ada` for each test."""
    name = f"ada-{abs(hash(request.node.name))}"
    shared_team.add(name)
    shared_team.tokens["ada"] = shared_team.tokens[name]
    return shared_team


def submit(team: Team, **spec: Any) -> str:
    with Client(team.url, team.tokens["ada"]) as client:
        return client.submit({**SPEC, **spec}).id


def job(team: Team, job_id: str) -> dict[str, Any]:
    return json.loads(team.run("ada", "show", job_id, "--json").stdout)


def listed(team: Team, *options: str) -> list[str]:
    done = team.run("ada", "ps", "--json", *options)
    assert done.returncode == 0, done.stderr
    return [each["name"] for each in json.loads(done.stdout)]


def test_edit_changes_what_is_given_and_leaves_the_rest(team: Team) -> None:
    job_id = submit(team, labels={"a": "1", "b": "2"})
    options = [
        "--name",
        "renamed",
        "--set-label",
        "a=3",
        "--remove-label",
        "b",
        "--priority",
        "-4",
        "--notes",
        "it *diverged*",
    ]
    done = team.run("ada", "edit", job_id, *options)
    assert (done.returncode, done.stdout) == (0, f"{job_id}  renamed  a=3\n"), done.stderr
    edited = job(team, job_id)
    found = [edited[key] for key in ("name", "labels", "priority", "notes")]
    assert found == ["renamed", {"a": "3"}, -4, "it *diverged*"]
    assert listed(team, "--search", "DIVERGED") == ["renamed"]
    shown = team.run("ada", "show", job_id).stdout
    assert "notes\n  it *diverged*\n" in shown
    assert team.run("ada", "edit", job_id, "--notes", "", "--json").returncode == 0
    assert job(team, job_id)["notes"] == ""


def test_notes_come_from_a_file_or_stdin(team: Team, tmp_path: Path) -> None:
    job_id = submit(team)
    (tmp_path / "notes.md").write_bytes(b"# one\r\n\ttwo\n")
    assert team.run("ada", "edit", job_id, "--notes-file", "notes.md", cwd=tmp_path).returncode == 0
    assert job(team, job_id)["notes"] == "# one\n\ttwo\n"
    assert team.run("ada", "edit", job_id, "--notes-file", "-", stdin="three").returncode == 0
    assert job(team, job_id)["notes"] == "three"
    for content, said in (
        (b"\xff\xfe", "is not text in UTF-8"),
        (b"\x1b[2J", "U+001B"),
        (b"x" * 100_000, "at most 65536"),
    ):
        (tmp_path / "notes.md").write_bytes(content)
        done = team.run("ada", "edit", job_id, "--notes-file", "notes.md", cwd=tmp_path)
        assert done.returncode in {1, 2} and said in done.stderr
        assert is_clean_error(done)
    assert job(team, job_id)["notes"] == "three"


def test_the_editor_writes_notes_and_overwrites_nobodys(team: Team, tmp_path: Path, approved: Approved) -> None:
    job_id = submit(team)
    editor = tmp_path / "editor.py"
    editor.write_text("import sys\nwith open(sys.argv[1], 'a') as file:\n    file.write('and more')\n")
    variables = environment(team.url, team.tokens["ada"]) | {"VISUAL": f"{sys.executable} -I -S {editor}"}
    for written in ("and more", "and moreand more"):
        assert run_in_process(["edit", job_id, "--editor"], variables).returncode == 0
        assert job(team, job_id)["notes"] == written
    sent = {"Authorization": f"Bearer {team.tokens['ada']}", "Content-Type": "application/json"}
    meanwhile = (
        "from urllib.request import Request, urlopen\n"
        f"urlopen(Request('{team.url}/v1/jobs/{job_id}', b'{{\"notes\": \"theirs\"}}', {sent}, method='PATCH'))\n"
    )
    editor.write_text(editor.read_text() + meanwhile)
    done = run_in_process(["edit", job_id, "--editor"], variables)
    assert (done.returncode, "have changed since you read them" in done.stderr) == (1, True)
    assert job(team, job_id)["notes"] == "theirs"
    [kept] = re.findall(r"Your text is in (\S+\.md)\.", done.stderr)
    assert Path(kept).read_text() == approved("text")
    Path(kept).unlink()
    editor.write_text("raise SystemExit(3)")
    done = run_in_process(["edit", job_id, "--editor"], variables)
    assert (done.returncode, "nothing was changed" in done.stderr) == (2, True)


def test_a_filter_chooses_the_jobs(team: Team) -> None:
    jobs = {name: submit(team, name=name, labels={"x": name[0]}) for name in ("a1", "a2", "b1")}
    assert "cancel: 2 jobs" in team.run("ada", "cancel", "--label", "x=a", "--dry-run").stdout
    refused = team.run("ada", "cancel", "--state", "queued", "--label", "x=a")
    assert (refused.returncode, "use --yes" in refused.stderr) == (2, True)
    done = team.run("ada", "cancel", "--state", "queued", "--label", "x=a", "--yes")
    assert (done.returncode, done.stdout) == (0, "cancel: 2 jobs\n"), done.stderr
    assert [job(team, jobs[name])["state"] for name in jobs] == ["cancelled", "cancelled", "queued"]
    assert team.run("ada", "archive", "--label", "x=a").stdout == "archive: 2 jobs\n"
    assert (listed(team), listed(team, "--archived")) == (["b1"], ["a2", "a1"])
    assert job(team, "a1")["archived"], "by its name, as no other job has it"
    assert team.run("ada", "archive", "a1", "--undo").stdout == "unarchive: 1 job\n"
    assert team.run("ada", "edit", "--search", "1", "--set-label", "y=z").stdout == "label: 2 jobs\n"
    assert [job(team, jobs[name])["labels"].get("y") for name in jobs] == ["z", None, "z"]
    told = json.loads(team.run("ada", "rm", "--state", "cancelled", "--yes", "--json").stdout)
    assert told == {"action": "delete", "matched": 1, "done": 1, "refused": []}
    assert (listed(team), listed(team, "--archived")) == (["b1"], ["a2"])


def test_a_dry_run_of_named_jobs_changes_nothing(team: Team) -> None:
    job_id = submit(team)
    label = ["edit", "--set-label", "a=b"]
    for command, action in ((["resume"], "resume"), (["star"], "star"), (label, "label"), (["archive"], "archive")):
        done = team.run("ada", *command, job_id, "--dry-run")
        assert (done.returncode, done.stdout) == (0, f"{action}: 1 job\n"), done.stderr
    found = job(team, job_id)
    assert (found["labels"], found["starred"], found["archived"]) == ({}, False, False)


def test_a_dry_run_of_a_removal_lists_jobs_and_their_sizes(team: Team) -> None:
    job_id = submit(team)
    team.run("ada", "cancel", job_id)
    with closing(Database(team.database_url)) as database:
        store = StoreFixture(database)
        worker = store.worker()
        store.write(lambda session: folders.replace_sizes(session, worker, {job_id: 3 << 20}))
    for chosen in ([job_id], ["--state", "cancelled"]):
        done = team.run("ada", "rm", *chosen, "--dry-run")
        line, total = done.stdout.splitlines()
        assert line.split()[:3] == [job_id, "digits", "cancelled"] and line.endswith("  3.0 MiB")
        assert total == "1 job, 3.0 MiB"
    told = json.loads(team.run("ada", "rm", job_id, "--dry-run", "--json").stdout)
    assert told == {"jobs": [{"id": job_id, "name": "digits", "bytes": 3 << 20}], "bytes": 3 << 20}
    done = team.run("ada", "rm", job_id, "--yes")
    assert (done.stdout, done.stderr) == (f"{job_id}  deleted\n", "Freed 3.0 MiB.\n")


@pytest.mark.parametrize(
    ("old", "new"),
    [
        (["--search", "digits", "--label", "a=b"], "--set-label"),
        (["digits", "--unlabel", "a"], "--remove-label"),
        (["--having", "a=b", "--set-label", "a=c"], "--label"),
    ],
)
def test_an_old_option_changes_nothing_and_says_the_new_one(team: Team, old: list[str], new: str) -> None:
    job_id = submit(team, labels={"a": "1"})
    done = team.run("ada", "edit", *old)
    assert (done.returncode, new in done.stderr, is_clean_error(done)) == (2, True, True), done.stderr
    assert job(team, job_id)["labels"] == {"a": "1"}


def test_a_filter_finds_nothing_of_others(team: Team) -> None:
    submit(team, visibility="team")
    team.add(bob := f"bob-{len(team.tokens)}")
    for command in (["cancel", "--yes"], ["rm", "--yes"], ["pause"], ["archive"], ["edit", "--set-label", "a=b"]):
        done = team.run(bob, *command, "--search", "digits", "--all")
        assert (done.returncode, done.stdout.endswith(": 0 jobs\n")) == (0, True), (command, done.stdout)


def test_stars_are_listed_and_removed(team: Team) -> None:
    first = submit(team, name="first")
    submit(team, name="second")
    assert team.run("ada", "star", first).stdout == "star: 1 job\n"
    assert listed(team, "--starred") == ["first"]
    assert "first *" in team.run("ada", "ps").stdout
    assert team.run("ada", "star", "--remove", "--search", "first").stdout == "unstar: 1 job\n"
    assert listed(team, "--starred") == []


def test_the_trials_of_a_sweep_are_listed_by_its_name(team: Team) -> None:
    submit(team)
    with Client(team.url, team.tokens["ada"]) as client:
        made = client.sweeps.create({"name": "lrs", "method": "list", "points": [{"priority": 1}], "job": SPEC})
    assert listed(team, "--sweep", made.name) == []
    assert team.run("ada", "ps", "--sweep", "none").returncode == 1


def test_jobs_are_grouped_by_a_label(team: Team) -> None:
    for value in ("a", "b", "b"):
        submit(team, labels={"team": value})
    team.run("ada", "cancel", submit(team))
    lines = team.run("ada", "ps", "--group-by", "label:team").stdout.splitlines()
    assert [line.split() for line in lines] == [
        ["TEAM", "JOBS", "QUEUED", "CANCELLED"],
        ["b", "2", "2"],
        ["a", "1", "1"],
        ["-", "1", "1"],
    ]
    told = json.loads(team.run("ada", "ps", "--group-by", "label:team", "--state", "queued", "--json").stdout)
    assert told[0] == {"key": "=b", "value": "b", "name": None, "counts": {"queued": 2}, "total": 2}
    assert team.run("ada", "ps", "--group-by", "team").returncode == 1


@pytest.mark.parametrize(
    "arguments",
    [
        ["cancel"],
        ["cancel", "digits", "--state", "queued"],
        ["edit", "digits", "--name", "x", "--dry-run"],
        ["cancel", "digits", "--all", "--dry-run"],
        ["rm", "--all", "--yes"],
        ["edit", "digits"],
        ["edit", "--label", "a=b"],
        ["edit", "--set-label", "a=b"],
        ["edit", "digits", "--label", "a=b"],
        ["edit", "digits", "--label", "a=b", "--name", "x"],
        ["edit", "--state", "queued", "--name", "x"],
        ["edit", "--editor", "--state", "queued"],
        ["edit", "digits", "--notes", "a", "--notes-file", "b"],
        ["star", "--label", "no-value"],
    ],
)
def test_wrong_arguments_change_nothing(team: Team, arguments: list[str]) -> None:
    submit(team)
    done = team.run("ada", *arguments)
    assert (done.returncode, is_clean_error(done)) == (2, True), done.stderr
    assert listed(team) == ["digits"]


def test_notes_do_not_control_the_terminal(team: Team) -> None:
    job_id = submit(team)
    refused = team.run("ada", "edit", job_id, "--notes", HOSTILE)
    assert (refused.returncode, "U+009B" in refused.stderr) == (1, True)
    team.run("ada", "edit", job_id, "--notes", "left\u202eright")
    assert "left" in team.run("ada", "show", job_id).stdout
