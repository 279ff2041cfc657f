"""Codes, by which laptops log in and machines join: the line that is printed, and who takes it."""

from collections.abc import Generator
from pathlib import Path
import re
import shlex
from subprocess import CompletedProcess

import pytest

from tests.api.service import TOKEN
from tests.databases import SQLiteDatabases
from tests.rows import each_row
from tests.torchyard.cli.invocation import environment, run_in_process
from tests.torchyard.cli.service import Team, serving_team
from tests.torchyard.client.answers import NOW
from tests.torchyard.client.fake_server import Answer, serving
from torchyard.client import joining
from torchyard.contract.errors import ConfigError, InvalidRequest, NotAuthorized
from torchyard.contract.team.codes import JoinCode, parse_code
from torchyard.host import trust

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
