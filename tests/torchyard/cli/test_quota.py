"""The commands of quotas against a real service."""

import json
from subprocess import CompletedProcess
from typing import Any

import pytest

from tests.approved import Approved
from tests.torchyard.cli.service import Team

SPEC = "{trainer: image-classification, config: {data: {source: digits}}}"


def test_a_users_limit_replaces_the_roles_until_it_is_cleared(team: Team, approved: Approved) -> None:
    team.add("ada")
    assert team.run("admin", "quotas", "set", "--role", "member", "queued=7", "devices=4").returncode == 0
    assert team.run("admin", "quotas", "set", "ada", "devices=unlimited", "stored_bytes=200GiB").returncode == 0
    shown = _table(team.run("ada", "quotas", "show"))
    assert shown == {
        "devices": ["unlimited", "0"],
        "running": ["unlimited", "0"],
        "queued": ["7", "0"],
        "priority": ["unlimited"],
        "stored_bytes": ["200.0", "GiB", "0", "B"],
        "share": ["100"],
    }
    listed = {
        (item["kind"], item["name"]): item["limits"] for item in _json(team.run("admin", "quotas", "ls", "--json"))
    }
    assert listed["user", "ada"] == {"devices": None, "stored_bytes": 200 * 2**30}
    assert team.run("admin", "quotas", "ls").stdout == approved("output")
    assert team.run("admin", "quotas", "rm", "ada", "devices").returncode == 0
    assert _table(team.run("admin", "quotas", "show", "ada"))["devices"] == ["4", "0"]
    assert team.run("admin", "quotas", "rm", "ada").returncode == 0
    assert team.run("admin", "quotas", "rm", "--role", "member").returncode == 0
    assert {use["limit"] for use in _json(team.run("ada", "quotas", "show", "--json"))["uses"]} == {None, 100}


def test_a_users_share_is_set_and_shown(team: Team, approved: Approved) -> None:
    team.add("dan")
    done = team.run("admin", "quotas", "set", "dan", "share=200")
    assert (done.returncode, done.stderr) == (0, approved("stderr"))
    assert _table(team.run("dan", "quotas", "show"))["share"] == ["200"]
    assert team.run("admin", "quotas", "set", "dan", "share=0").returncode == 1
    assert team.run("admin", "quotas", "rm", "dan", "share").returncode == 0
    assert _table(team.run("dan", "quotas", "show"))["share"] == ["100"]


def test_a_submission_over_the_quota_is_refused(team: Team) -> None:
    team.add("ben")
    team.run("admin", "quotas", "set", "ben", "queued=1")
    assert team.run("ben", "submit", "-", stdin=SPEC).returncode == 0
    refused = team.run("ben", "submit", "-", stdin=SPEC)
    assert (refused.returncode, refused.stdout) == (1, "")
    assert "ben has 1 queued or paused jobs" in refused.stderr


def test_only_administrators_set_quotas(team: Team) -> None:
    team.add("cleo")
    for arguments in (["set", "cleo", "devices=9"], ["rm", "cleo"], ["ls"], ["show", "admin"]):
        assert team.run("cleo", "quotas", *arguments).returncode == 1
    unknown = team.run("admin", "quotas", "set", "nobody", "devices=4")
    assert unknown.returncode == 1 and "nobody" in unknown.stderr


@pytest.mark.parametrize(
    "arguments",
    [
        ["ada", "gpus=4"],
        ["ada", "devices=many"],
        ["ada", "share=unlimited"],
        ["ada", "devices=4GiB"],
        ["ada", "stored_bytes=4GX"],
        ["ada"],
        ["devices=4"],
    ],
)
def test_what_is_not_a_limit_is_named(team: Team, arguments: list[str], approved: Approved) -> None:
    done = team.run("admin", "quotas", "set", *arguments)
    assert done.returncode == 2 and done.stderr == approved.of_row("errors")


def _table(done: CompletedProcess[str]) -> dict[str, list[str]]:
    assert done.returncode == 0, done.stderr
    rows = [line.split() for line in done.stdout.splitlines()[1:]]
    return {row[0]: row[1:] for row in rows}


def _json(done: CompletedProcess[str]) -> Any:
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)
