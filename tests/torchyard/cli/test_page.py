"""Opening the service's page."""

from collections.abc import Generator
from pathlib import Path

import httpx2
import pytest

from tests.api.pages import build_page
from tests.approved import Approved
from tests.databases import SQLiteDatabases
from tests.torchyard.cli.invocation import environment, run_in_process, run_process
from tests.torchyard.cli.service import Team, serving_team
from tests.torchyard.client.fake_server import TOKEN, problem, serving


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory, sqlite: SQLiteDatabases) -> Generator[Team]:
    folder = tmp_path_factory.mktemp("built")
    with serving_team(folder, sqlite, page_folder=build_page(folder)) as team:
        yield team


def test_the_printed_address_logs_in_once(built: Team) -> None:
    built.add("alice")
    done = built.run("alice", "open", "--print")
    assert (done.returncode, done.stderr) == (0, "")
    address, _, code = done.stdout.strip().partition("#code=")
    assert address == f"{built.url}/"
    with httpx2.Client(base_url=built.url, trust_env=False) as browser:
        assert browser.get(address).headers["content-type"].startswith("text/html")
        opened = browser.post("/v1/session", json={"code": code}).json()
        assert browser.get("/v1/me", headers={"X-CSRF-Token": opened["csrf"]}).json()["name"] == "alice"
        assert browser.post("/v1/session", json={"code": code}).status_code == 401


def test_a_browser_is_opened_where_there_is_one(built: Team, tmp_path: Path) -> None:
    browser, opened = tmp_path / "browser", tmp_path / "opened"
    browser.write_text(f'#!/bin/sh\nprintf %s "$1" > {opened}\n')
    browser.chmod(0o700)
    with_display = {**environment(built.url, built.tokens["admin"]), "BROWSER": f"{browser} %s", "DISPLAY": ":0"}
    done = run_process(["open"], with_display)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    assert opened.read_text().startswith(f"{built.url}/#code=")
    opened.unlink()
    without = {**with_display, "DISPLAY": "", "WAYLAND_DISPLAY": ""}
    assert "#code=" in run_in_process(["open"], without).stdout
    assert not opened.exists()


def test_a_service_without_the_page_says_how_to_build_it(
    tmp_path: Path, sqlite: SQLiteDatabases, approved: Approved
) -> None:
    with serving_team(tmp_path, sqlite, page_folder=tmp_path / "none") as team:
        done = team.run("admin", "open", "--print")
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr == approved("errors")


def test_on_another_machine_one_logs_in_with_a_token() -> None:
    with serving() as server:
        server.on("/v1/session/codes", problem("forbidden", 403))
        done = run_in_process(["open", "--print"], environment(server.url, TOKEN))
    assert (done.returncode, done.stdout) == (0, f"{server.url}/\n")
    assert "Log in there with a personal token" in done.stderr
