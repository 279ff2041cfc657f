"""The commands and the programs of docs/reference/notifications.md, and `notifications test`, with a real receiver."""

from collections.abc import Generator
from contextlib import closing, contextmanager
import os
from pathlib import Path
import re
import subprocess
import sys
import threading

import pytest

from controller.notifications.deliver import Deliveries, FanOut
from controller.settings import Settings
from store.store import Store
from tests.controller.notifications.receivers import answering, join_senders, receiver
from tests.databases import SQLiteDatabases
from tests.e2e.documented import blocks, environment_in, run_blocks, running_by
from tests.e2e.service import until
from tests.servers import free_port
from tests.torchyard.cli.service import Team, serving_team

DOCUMENT = (Path(__file__).parents[2] / "docs" / "reference" / "notifications.md").read_text()


@pytest.mark.thorough
def test_the_commands_of_the_document_do_what_it_says(tmp_path: Path) -> None:
    port, receiving = free_port(), free_port()
    add, *steps = [block.replace("https://example.com/torchyard", f"http://127.0.0.1:{receiving}/torchyard")
                   for block in blocks(DOCUMENT, "sh")]  # fmt: skip
    [program], [spec] = blocks(DOCUMENT, "python"), blocks(DOCUMENT, "yaml")
    (tmp_path / "receiver.py").write_text(program.replace("8765", str(receiving)))
    (tmp_path / "digits.yaml").write_text(spec)
    environment = environment_in(tmp_path) | {"TORCHYARD_NOTIFY_ALLOW": f"127.0.0.1/32:{receiving}"}
    with running_by(f"torchyard up --port {port}", tmp_path, environment):
        found = re.search(r"^secret  (whsec_\S+)$", run_blocks([add], tmp_path, environment), re.MULTILINE)
        assert found is not None
        with _documented_receiver(tmp_path, secret=found[1]) as said:
            told = run_blocks(steps, tmp_path, environment)
            run_blocks(["torchyard submit digits.yaml && torchyard wait digits"], tmp_path, environment)
            until(lambda: "job.succeeded job digits succeeded" in said.read_text(), what="the receiver is told")
    assert "delivered" in told
    kinds = [line.split()[0] for line in said.read_text().splitlines()]
    assert kinds == ["test", "job.started", "job.succeeded"]


@contextmanager
def _documented_receiver(folder: Path, *, secret: str) -> Generator[Path]:
    """Runs the receiver of the document. Yields the file of what it prints."""
    output = folder / "received"
    environment = {**os.environ, "WEBHOOK_SECRET": secret}
    with output.open("wb") as log:
        running = subprocess.Popen([sys.executable, folder / "receiver.py"], env=environment, stdout=log)
    try:
        yield output
    finally:
        running.kill()
        running.wait()


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("team")


@pytest.fixture(scope="module")
def team(folder: Path, sqlite: SQLiteDatabases) -> Generator[Team]:
    with serving_team(folder, sqlite) as team:
        yield team


@contextmanager
def _sending(team: Team, folder: Path, *, port: int) -> Generator[None]:
    """Does the duties of notifications as a controller beside the API does."""
    settings = Settings(data_dir=folder, database_url=team.database_url, notify_allow=f"127.0.0.1/32:{port}")
    ends = threading.Event()
    with closing(Store.of(settings, program="torchyard-controller")) as store:
        deliveries = Deliveries(store, settings)

        def serve() -> None:
            while not ends.wait(0.02):
                FanOut(store).run()
                deliveries.run()

        thread = threading.Thread(target=serve)
        thread.start()
        try:
            yield
        finally:
            ends.set()
            thread.join()
            join_senders()


@pytest.mark.parametrize(
    ("status", "code", "says"),
    [("204 No Content", 0, "delivered"), ("302 Found", 1, "answered 302, a redirect"), ("500 Oops", 1, "answered 500")],
)
def test_a_test_says_whether_a_message_arrived(team: Team, folder: Path, status: str, code: int, says: str) -> None:
    with receiver(answering(status)) as found, _sending(team, folder, port=found.port):
        assert team.run("admin", "notifications", "add", "hook", found.url("/secret-path")).returncode == 0
        done = team.run("admin", "notifications", "test", "hook")
        listed = team.run("admin", "notifications", "ls")
        team.run("admin", "notifications", "rm", "hook")
    assert (done.returncode, len(found.requests)) == (code, 1)
    assert says in done.stdout + done.stderr
    assert "secret-path" not in done.stdout + done.stderr + listed.stdout


def test_a_test_says_that_an_address_inside_is_not_allowed(team: Team, folder: Path) -> None:
    with receiver() as found, _sending(team, folder, port=1):
        team.run("admin", "notifications", "add", "inside", found.url())
        done = team.run("admin", "notifications", "test", "inside")
    assert (done.returncode, found.requests) == (1, [])
    assert f"port {found.port} is not allowed" in done.stderr
