"""Logging in to a real service, and choosing among several."""

import json
import os
from pathlib import Path
import stat
from subprocess import CompletedProcess

import pytest

from tests.api.service import TOKEN
from tests.approved import Approved
from tests.servers import free_port
from tests.torchyard.cli.invocation import environment, run_in_process
from tests.torchyard.cli.service import Team
from tests.torchyard.cli.terminal import in_terminal


def test_a_login_is_stored_for_its_owner_alone(team: Team, tmp_path: Path) -> None:
    before = os.umask(0)
    try:
        done = _run(tmp_path, "login", team.url, "--token-stdin", stdin=f"{TOKEN}\n")
    finally:
        os.umask(before)
    assert (done.returncode, done.stdout) == (0, "")
    assert "as admin (admin)" in done.stderr and TOKEN not in done.stderr
    assert stat.S_IMODE(_file(tmp_path).stat().st_mode) == 0o600
    assert stat.S_IMODE(_file(tmp_path).parent.stat().st_mode) == 0o700
    assert _run(tmp_path, "ps").returncode == 0


def test_the_token_is_asked_for_without_an_echo(team: Team, tmp_path: Path) -> None:
    code, screen = in_terminal(["login", team.url], _environment(tmp_path), answer=f"{TOKEN}\n", shown="Token: ")
    assert code == 0 and "as admin" in screen
    assert TOKEN not in screen
    assert _run(tmp_path, "whoami").returncode == 0


def test_an_interrupted_prompt_stores_nothing(team: Team, tmp_path: Path) -> None:
    code, _ = in_terminal(["login", team.url], _environment(tmp_path), answer="\x03", shown="Token: ")
    assert code == 130
    assert not _file(tmp_path).exists()


def test_without_a_terminal_the_option_for_stdin_is_named(team: Team, tmp_path: Path, approved: Approved) -> None:
    done = _run(tmp_path, "login", team.url, stdin=TOKEN)
    assert done.returncode == 2 and "--token-stdin" in done.stderr
    empty = _run(tmp_path, "login", team.url, "--token-stdin", stdin="\n")
    assert empty.returncode == 2 and empty.stderr == approved("errors")
    assert not _file(tmp_path).exists()


def test_a_wrong_token_or_address_stores_nothing_and_keeps_the_earlier_login(team: Team, tmp_path: Path) -> None:
    _login(tmp_path, team, "admin")
    stored = _file(tmp_path).read_bytes()
    wrong = _run(tmp_path, "login", team.url, "--token-stdin", stdin="wrong-token")
    assert wrong.returncode == 4 and "wrong-token" not in wrong.stderr
    unreachable = _run(tmp_path, "login", f"http://127.0.0.1:{free_port()}", "--token-stdin", stdin=TOKEN)
    assert unreachable.returncode == 1 and "cannot be reached" in unreachable.stderr
    no_address = _run(tmp_path, "login", "rack", "--token-stdin", stdin=TOKEN)
    assert no_address.returncode == 1 and "write http://HOST:PORT" in no_address.stderr
    assert _file(tmp_path).read_bytes() == stored


def test_one_of_several_logins_is_used(team: Team, tmp_path: Path, approved: Approved) -> None:
    _login(tmp_path, team, team.add("ada"))
    _login(tmp_path, team, team.add("ben"))
    assert _who(tmp_path) == "ben"
    assert _who(tmp_path, TORCHYARD_SERVER="ada") == "ada"
    listed = _run(tmp_path, "servers", "--use", "ada").stdout.splitlines()
    assert [line.split() for line in listed[1:]] == [["ada", team.url, "yes"], ["ben", team.url]]
    assert _who(tmp_path) == "ada"
    assert _run(tmp_path, "servers", "--use", "eve").stderr == approved("errors")
    shown = json.loads(_run(tmp_path, "servers", "--json").stdout)
    assert shown == [{"name": name, "url": team.url, "in_use": name == "ada"} for name in ("ada", "ben")]


def test_a_forgotten_login_is_not_replaced_by_another(team: Team, tmp_path: Path) -> None:
    for name in ("cleo", "dan", "eva"):
        _login(tmp_path, team, team.add(name))
    assert "Logged out of dan." in _run(tmp_path, "logout", TORCHYARD_SERVER="dan").stderr
    assert _who(tmp_path) == "eva"
    assert _run(tmp_path, "logout").returncode == 0
    stored = _file(tmp_path).read_text()
    assert team.tokens["cleo"] in stored and not any(team.tokens[name] in stored for name in ("dan", "eva"))
    assert "no server is known" in _run(tmp_path, "whoami").stderr
    assert "no server is in use" in _run(tmp_path, "logout").stderr
    assert _run(tmp_path, "logout", "cleo").returncode == 0
    assert "No logins" in _run(tmp_path, "servers").stderr


def test_a_login_file_that_others_can_read_is_neither_used_nor_changed(team: Team, tmp_path: Path) -> None:
    _login(tmp_path, team, "admin")
    _file(tmp_path).chmod(0o644)
    stored = _file(tmp_path).read_bytes()
    for arguments in (["ps"], ["servers"], ["login", team.url, "--token-stdin"]):
        done = _run(tmp_path, *arguments, stdin=TOKEN)
        assert done.returncode == 1 and f"chmod 600 {_file(tmp_path)}" in done.stderr
    assert _file(tmp_path).read_bytes() == stored


def test_whoami_shows_the_role_the_scopes_and_the_expiry(team: Team, tmp_path: Path) -> None:
    _login(tmp_path, team, team.add("gus"))
    shown = dict(line.split(maxsplit=1) for line in _run(tmp_path, "whoami").stdout.splitlines())
    assert (shown["name"], shown["role"], shown["server"]) == ("gus", "member", team.url)
    assert "jobs:write" in shown["scopes"] and "users" not in shown["scopes"]
    assert shown["token"].startswith("tok_") and " UTC (in " in shown["expires"]
    told = json.loads(_run(tmp_path, "whoami", "--json").stdout)
    assert (told["name"], told["token_id"], told["url"]) == ("gus", shown["token"], team.url)
    assert told["expires_at"] is not None
    assert "the service's own" in team.run("admin", "whoami").stdout


@pytest.mark.parametrize("variable", ["TORCHYARD_URL", "TORCHYARD_SERVER"])
def test_a_variable_that_goes_before_the_login_is_named(team: Team, tmp_path: Path, variable: str) -> None:
    done = _run(tmp_path, "login", team.url, "--token-stdin", "--json", stdin=TOKEN, **{variable: "other"})
    assert json.loads(done.stdout)["name"] == "admin"
    assert f"{variable} is set" in done.stderr


def _login(folder: Path, team: Team, name: str) -> None:
    """Logs in as the user, with their name as the name of the login."""
    done = _run(folder, "login", team.url, "--name", name, "--token-stdin", stdin=team.tokens[name])
    assert done.returncode == 0, done.stderr


def _who(folder: Path, **variables: str) -> str:
    return json.loads(_run(folder, "whoami", "--json", **variables).stdout)["name"]


def _run(folder: Path, *arguments: str, stdin: str = "", **variables: str) -> CompletedProcess[str]:
    return run_in_process(arguments, _environment(folder) | variables, stdin=stdin, cwd=folder)


def _environment(folder: Path) -> dict[str, str]:
    return environment(None, "") | {"XDG_CONFIG_HOME": str(folder)}


def _file(folder: Path) -> Path:
    return folder / "torchyard" / "login.json"
