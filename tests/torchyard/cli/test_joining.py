"""Codes, by which laptops log in and machines join: the line that is printed, and who takes it."""

from base64 import b64encode
from collections.abc import Generator
from pathlib import Path
import re
import shlex
from subprocess import CompletedProcess
from typing import Any
from urllib.parse import urlsplit

import httpx2
import pytest

from store.worker.records import HostOffer
from tests.api.service import TOKEN
from tests.databases import SQLiteDatabases
from tests.rows import each_row
from tests.torchyard.cli.invocation import environment, run_in_process
from tests.torchyard.cli.service import Team, serving_team
from tests.torchyard.client.answers import NOW
from tests.torchyard.client.fake_server import Answer, serving
from tests.tunnels import tunnel
from torchyard.client import Client, joining
from torchyard.contract.errors import ConfigError, InvalidRequest, NotAuthorized, ServerUnreachable
from torchyard.contract.team.codes import JoinCode, parse_code
from torchyard.host import trust
from worker.remote.service import RemoteService

SECRET = "s" * 32
WHEEL = {"name": "torchyard-0.1.0-py3-none-any.whl", "sha256": "0" * 64, "size": 1}
MADE = {"code": f"worker.ca.{SECRET}", "expires_at": NOW, "url": "https://box-a:8000", "wheel": WHEEL}


@pytest.fixture(scope="module")
def secured(tmp_path_factory: pytest.TempPathFactory, sqlite: SQLiteDatabases) -> Generator[Team]:
    """A service that speaks HTTPS with a certificate of its own."""
    folder = tmp_path_factory.mktemp("secured")
    with serving_team(folder, sqlite, tls=True) as team:
        yield team


@pytest.fixture(scope="module")
def certificate(secured: Team) -> str:
    return trust.fetch_certificate(secured.url)


@pytest.fixture
def admin(secured: Team, certificate: str, tmp_path: Path) -> dict[str, str]:
    """The environment of who may make codes."""
    trusted = tmp_path / "trusted.pem"
    trusted.write_text(certificate)
    return {**environment(secured.url, TOKEN), "SSL_CERT_FILE": str(trusted)}


def line_of(done: CompletedProcess[str]) -> list[str]:
    """Returns the words of the one line that was printed, as a shell reads them."""
    assert done.returncode == 0, done.stderr
    assert re.fullmatch(r"[A-Za-z0-9 ./:=#_'\[\]-]+\n", done.stdout), "one line, and nothing that a shell runs"
    return shlex.split(done.stdout)


def test_a_laptop_logs_in_by_a_code_and_knows_the_certificate(
    secured: Team, admin: dict[str, str], tmp_path: Path
) -> None:
    assert run_in_process(["users", "add", "alice"], admin).returncode == 0
    words = line_of(run_in_process(["users", "code", "alice", "--url", secured.url], admin))
    laptop = {**environment(None, ""), "XDG_CONFIG_HOME": str(tmp_path / "config")}
    arguments = words[words.index("login") :]
    done = run_in_process(arguments, laptop)
    assert (done.returncode, done.stdout) == (0, ""), done.stderr
    assert "as alice (member)" in done.stderr
    assert run_in_process(["whoami"], laptop).stdout.startswith("name       alice\n")
    again = run_in_process(arguments, laptop)
    assert again.returncode == 4 and "the code was used" in again.stderr
    assert run_in_process(["whoami"], laptop).returncode == 0, "the earlier login stays"


def test_a_code_is_sent_to_its_own_service_alone(secured: Team, certificate: str) -> None:
    code = JoinCode("user", trust.fingerprint(certificate), SECRET)
    with pytest.raises(NotAuthorized, match="this service has not made the code"):
        joining.redeem(secured.url, code, kind="user")
    other = JoinCode("user", "0" * 64, SECRET)
    with pytest.raises(ConfigError, match="Nothing was sent"):
        joining.redeem(secured.url, other, kind="user")
    with pytest.raises(ConfigError, match="a code for a user"):
        joining.redeem(secured.url, code, kind="worker")


def test_a_code_whose_answer_is_cut_off_is_sent_again(
    secured: Team, admin: dict[str, str], certificate: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    words = line_of(run_in_process(["workers", "add", "box-cut", "--user", "alice", "--url", secured.url], admin))
    post, answers = httpx2.Client.post, list[int]()

    def cut(self: httpx2.Client, *arguments: Any, **more: Any) -> httpx2.Response:
        answers.append(post(self, *arguments, **more).status_code)
        if len(answers) == 1:
            raise httpx2.ReadError("the connection was cut")
        return post(self, *arguments, **more)

    with monkeypatch.context() as patch:
        patch.setattr(httpx2.Client, "post", cut)
        found = joining.redeem(secured.url, parse_code(words[-1]), kind="worker")
    assert answers == [200, 200]
    with Client(secured.url, TOKEN, certificate=certificate) as client:
        (worker,) = [worker for worker in client.workers.list() if worker.name == "box-cut"]
    assert (worker.id, worker.users) == (found.view.worker_id, ["alice"])


def test_a_service_that_only_a_proxy_reaches_is_joined_and_asked_by_it(
    secured: Team, admin: dict[str, str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    words = line_of(run_in_process(["workers", "add", "box-far", "--url", secured.url], admin))
    far = "https://192.0.2.1:8443"  # nobody has an address of this network
    with tunnel(urlsplit(secured.url).port or 0) as (port, asked):
        monkeypatch.setenv("HTTPS_PROXY", f"http://bob:secret@127.0.0.1:{port}")
        monkeypatch.delenv("NO_PROXY", raising=False)
        monkeypatch.delenv("no_proxy", raising=False)
        found = joining.redeem(far, parse_code(words[-1]), kind="worker")
        joined = RemoteService(
            far,
            found.view.worker_id or "",
            name="box-far",
            token=found.view.token,
            context=trust.context(found.certificate),
            boot="boot-1",
            blobs=tmp_path,
            cache_bytes=0,
        )
        assert joined.verbs.register("box-far", HostOffer([])).name == "box-far"
        joined.connection.close()
    assert {line.split()[1] for line, _ in asked} == {"192.0.2.1:8443"}
    assert {credentials for _, credentials in asked} == {f"Basic {b64encode(b'bob:secret').decode()}"}
    monkeypatch.setenv("HTTPS_PROXY", "http://127.0.0.1:1")
    with pytest.raises(ServerUnreachable, match=r"by the proxy 127\.0\.0\.1:1"):
        trust.fetch_certificate(far)


def test_a_service_of_this_machine_alone_names_no_address(secured: Team, admin: dict[str, str]) -> None:
    done = run_in_process(["workers", "add", "box-b"], admin)
    assert done.returncode == 1 and "--host 0.0.0.0 --tls" in done.stderr and done.stdout == ""
    done = run_in_process(["workers", "add", "box-b", "--url", "http://box-a:8000"], admin)
    assert done.returncode == 1 and "https://HOST:PORT" in done.stderr and done.stdout == ""


@each_row(
    "url",
    [
        "https://box-a:8000;rm -rf ~",
        "https://box-a:8000/$(id)",
        "https://box-a\n:8000",
        "https://box-a\x1b[2J",
        "https://user@box-a",
        "https://-x",
        "https://[::1%25eth0]",
        "https://",
        "http://box-a",
        "box-a",
    ],
)
def test_an_address_that_a_shell_or_a_terminal_could_change_is_refused(url: str) -> None:
    with pytest.raises(ConfigError, match="HOST:PORT"):
        joining.address_of(url)


@each_row(
    "url", ["https://box-a", "https://box-a.example.com:8000/", "https://[2001:db8::1]:8000", "https://10.0.0.2:1"]
)
def test_names_and_addresses_of_both_kinds_may_be_joined(url: str) -> None:
    assert joining.address_of(url) == url.rstrip("/")


@each_row(
    "code", ["", "worker.ca.x", f"worker.{'g' * 64}.{SECRET}", f"root.ca.{SECRET}", f"worker.ca.{SECRET};id", "ty_1"]
)
def test_what_is_no_code_is_refused_and_not_repeated(code: str) -> None:
    with pytest.raises(InvalidRequest) as raised:
        parse_code(code)
    assert not code or code not in raised.value.message


def test_a_hostile_server_puts_nothing_into_the_line() -> None:
    with serving() as server:
        environ = environment(server.url, TOKEN)
        for made in (
            {"code": f"worker.ca.{SECRET}`id`"},
            {"url": "https://box-a:8000/;id"},
            {"url": "https://box-a\x1b]0;x"},
            {"wheel": {**WHEEL, "name": "torchyard-1'; id #-py3-none-any.whl"}},
            {"wheel": {**WHEEL, "sha256": "$(id)"}},
        ):
            server.on("/v1/codes", Answer({**MADE, **made}, 201))
            done = run_in_process(["workers", "add", "box-b"], environ)
            assert (done.returncode, done.stdout) == (1, "")
            assert "\x1b" not in done.stderr
        server.on("/v1/codes", Answer({**MADE, "url": "https://[2001:db8::1]:8000"}, 201))
        words = line_of(run_in_process(["workers", "add", "box-b"], environ))
        assert words[-4:] == ["join", "https://[2001:db8::1]:8000", "--code", f"worker.ca.{SECRET}"]
