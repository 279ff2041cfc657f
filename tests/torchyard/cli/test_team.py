"""The commands of a team against a real service: users, tokens, sharing and the audit."""

import json
from subprocess import CompletedProcess
from typing import Any

import pytest

from tests.torchyard.cli.invocation import environment, run_in_process
from tests.torchyard.cli.service import Team
from torchyard.contract.team.roles import Role

SPEC = "{trainer: image-classification, config: {data: {source: digits}}}"


def test_users_are_added_listed_and_given_a_role(team: Team) -> None:
    added = team.run("admin", "users", "add", "ada", "--role", "viewer")
    for said in (
        "torchyard tokens add --user ada",
        f"torchyard login {team.url} ",
        "only from this machine",
        "`up --host ADDRESS`",
    ):
        assert said in added.stderr
    assert (added.returncode, added.stdout) == (0, "ada  viewer  enabled\n")
    assert "tokens add --user ada" in added.stderr
    assert team.run("admin", "users", "role", "ada", "operator").stdout == "ada  operator  enabled\n"
    heading, *rows = [line.split() for line in team.run("admin", "users", "ls").stdout.splitlines()]
    assert heading == ["NAME", "ROLE", "STATE", "ADDED"]
    assert ["ada", "operator", "enabled"] in [row[:3] for row in rows]
    listed = _json(team.run("admin", "users", "ls", "--json"))
    assert {"admin": "admin", "ada": "operator"}.items() <= {user["name"]: user["role"] for user in listed}.items()
    again = team.run("admin", "users", "add", "ada")
    assert again.returncode == 1 and "the name ada is or was used" in again.stderr


@pytest.mark.parametrize(("choice", "state"), [("keep", "queued"), ("cancel", "cancelled")])
def test_a_disabled_users_token_ends_and_their_jobs_are_kept_or_cancelled(team: Team, choice: str, state: str) -> None:
    name = team.add(f"ben-{choice}")
    job = team.run(name, "submit", "-", stdin=SPEC).stdout.strip()
    disabled = team.run("admin", "users", "disable", name, "--jobs", choice)
    assert disabled.stdout.startswith(f"{name}  member  disabled ")
    assert team.run(name, "ps").returncode == 4
    assert _json(team.run("admin", "show", job, "--json"))["state"] == state
    assert team.run("admin", "users", "enable", name).stdout == f"{name}  member  enabled\n"
    assert team.run(name, "ps").returncode == 0


def test_an_operator_kills_a_private_job_of_others_and_nobody_else_does(team: Team) -> None:
    owner, other, operator = (team.add(f"{word}-of-killed") for word in ("owner", "other", "operator"))
    assert team.run("admin", "users", "role", operator, "operator").returncode == 0
    job = team.run(owner, "submit", "-", stdin=SPEC).stdout.strip()
    refused = team.run(other, "cancel", job, "--now")
    assert refused.returncode != 0 and "there is no job" in refused.stderr
    assert team.run(operator, "cancel", job).returncode != 0, "only by force"
    assert _json(team.run(owner, "show", job, "--json"))["state"] == "queued"
    killed = team.run(operator, "cancel", job, "--now")
    assert (killed.returncode, killed.stdout) == (0, f"{job}  cancelled\n"), killed.stderr
    (shown,) = _json(team.run(operator, "cancel", job, "--now", "--json"))
    assert (shown["id"], shown["state"]) == (job, "cancelled")
    assert "config" not in json.dumps(shown)
    assert _json(team.run(owner, "show", job, "--json"))["state"] == "cancelled"


def test_no_job_is_killed_in_place_of_another_by_its_name(team: Team) -> None:
    """A job had only to be followed by one that has its id as a name: the operator's command killed that one."""
    owner, operator = team.add("owner-of-shield"), team.add("operator-of-shield")
    assert team.run("admin", "users", "role", operator, "operator").returncode == 0
    job = team.run(owner, "submit", "-", stdin=SPEC).stdout.strip()
    shields: list[str] = []
    for visibility in ("private", "team"):
        spec = SPEC.replace("{", f"{{name: {job}, visibility: {visibility}, ", 1)
        shields.append(team.run(owner, "submit", "-", stdin=spec).stdout.strip())
    assert team.run(operator, "cancel", job, "--now").stdout == f"{job}  cancelled\n"
    for shield in shields:
        assert _json(team.run(owner, "show", shield, "--json"))["state"] == "queued"
    private = team.run(owner, "submit", "-", stdin=SPEC.replace("{", "{name: hidden-name, ", 1)).stdout.strip()
    assert team.run(operator, "cancel", "hidden-name", "--now").returncode != 0, "names of others stand for nothing"
    assert _json(team.run(owner, "show", private, "--json"))["state"] == "queued"


def test_a_new_token_is_alone_on_stdout_and_works_until_it_is_revoked(team: Team) -> None:
    team.add("cleo")
    made = team.run("admin", "tokens", "add", "--user", "cleo", "--name", "laptop", "--scope", "jobs:read")
    token = made.stdout.strip()
    assert token.startswith("ty_") and made.stdout == f"{token}\n"
    assert token not in made.stderr and "not shown again" in made.stderr
    as_cleo = environment(team.url, token)
    me = _json(run_in_process(["whoami", "--json"], as_cleo))
    assert (me["name"], me["scopes"]) == ("cleo", ["account", "jobs:read"])
    revoked = team.run("cleo", "tokens", "rm", me["token_id"])
    assert revoked.stdout == f"{me['token_id']}  revoked\n"
    assert run_in_process(["whoami"], as_cleo).returncode == 4
    newest = team.run("cleo", "tokens", "ls").stdout.splitlines()[1]
    assert newest.split()[:3] == [me["token_id"], "laptop", "revoked"]
    assert token not in team.run("admin", "tokens", "ls", "--user", "cleo", "--json").stdout


def test_a_token_expires_when_it_was_told_to(team: Team) -> None:
    team.add("dan")
    never = team.run("admin", "tokens", "add", "--user", "dan", "--expires", "never", "--json")
    assert _json(never)["expires_at"] is None
    assert _json(team.run("dan", "tokens", "add", "--expires", "12h", "--json"))["expires_at"] is not None
    states = [line.split()[2:4] for line in team.run("dan", "tokens", "ls").stdout.splitlines()[1:3]]
    assert states[0] == ["valid", "for"] and states[1][0] == "valid" and states[1] != states[0]
    wrong = team.run("dan", "tokens", "add", "--expires", "soon")
    assert wrong.returncode == 2 and "or never" in wrong.stderr


def test_a_shared_job_can_be_read_by_others_and_a_private_one_is_only_counted(team: Team) -> None:
    for name in ("eve", "fay"):
        team.add(name)
    job = team.run("eve", "submit", "-", "--name", "hidden", "--visibility", "private", stdin=SPEC).stdout.strip()
    team.run("fay", "submit", "-", "--name", "mine", stdin=SPEC)
    seen = team.run("fay", "queue").stdout
    assert "OWNER" in seen and "a job of eve" in seen
    assert job not in seen and "hidden" not in seen
    assert team.run("fay", "show", job).returncode == 1
    assert team.run("eve", "share", job).stdout == f"{job}  team\n"
    shown = team.run("fay", "show", job).stdout
    assert "owner      eve" in shown and "visibility team" in shown
    assert job in team.run("fay", "queue").stdout
    assert {"eve", "fay"} <= {line.split()[2] for line in team.run("fay", "ps", "--all").stdout.splitlines()[1:]}
    assert job not in team.run("fay", "ps").stdout
    refused = team.run("fay", "cancel", job)
    assert refused.returncode == 1 and "belongs to eve" in refused.stderr
    assert team.run("eve", "share", job, "--private").stdout == f"{job}  private\n"
    assert team.run("fay", "show", job).returncode == 1


def test_the_audit_is_filtered_and_newest_first(team: Team) -> None:
    team.add("gus")
    job = team.run("gus", "submit", "-", stdin=SPEC).stdout.strip()
    team.run("gus", "cancel", job)
    found = _json(team.run("admin", "audit", "--who", "gus", "--json"))
    assert [(entry["action"], entry["object"]) for entry in found] == [("job.cancel", job), ("job.submit", job)]
    heading, line = team.run("admin", "audit", "--action", "job.cancel", "--object", job).stdout.splitlines()
    assert heading.split()[:5] == ["TIME", "WHO", "ACTION", "OBJECT", "OUTCOME"]
    assert line.split()[2:6] == ["gus", "job.cancel", job, "ok"]
    assert len(_json(team.run("admin", "audit", "--limit", "1", "--json"))) == 1


@pytest.mark.parametrize(
    "arguments", [["users", "ls"], ["users", "add", "x"], ["audit"], ["tokens", "add", "--user", "admin"]]
)
def test_what_only_an_administrator_may_do_is_refused_to_an_operator(team: Team, arguments: list[str]) -> None:
    if "hal" not in team.tokens:
        team.add("hal", Role.OPERATOR)
    refused = team.run("hal", *arguments)
    assert (refused.returncode, refused.stdout) == (1, "")
    assert "error: " in refused.stderr and "Traceback" not in refused.stderr


def _json(done: CompletedProcess[str]) -> Any:
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)
