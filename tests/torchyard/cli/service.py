"""The API for tests of commands that need no worker, and the commands of its users."""

from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from subprocess import CompletedProcess

from api import website
from tests.api.service import TOKEN
from tests.api.serving import api_thread
from tests.databases import SQLiteDatabases
from tests.servers import redis_server
from tests.torchyard.cli.invocation import environment, run_in_process
from torchyard.client import Client
from torchyard.contract.team.roles import Role


class Team:
    """The users of a service without a worker. `admin` is the bootstrap administrator."""

    def __init__(self, url: str, *, database_url: str) -> None:
        self.url = url
        self.database_url = database_url
        self.tokens = {"admin": TOKEN}

    def add(self, name: str, role: Role = Role.MEMBER) -> str:
        """Adds a user with a token. Returns the name."""
        with Client(self.url, TOKEN) as client:
            client.users.add(name, role=role)
            self.tokens[name] = client.tokens.make(user=name).token
        return name

    def run(self, name: str, *arguments: str, stdin: str = "", cwd: Path | None = None) -> CompletedProcess[str]:
        """Runs a command as the user."""
        return run_in_process(arguments, environment(self.url, self.tokens[name]), stdin=stdin, cwd=cwd)


@contextmanager
def serving_team(
    folder: Path, databases: SQLiteDatabases, *, page_folder: Path = website.BUILT, tls: bool = False
) -> Generator[Team]:
    with (
        databases.migrated() as database,
        redis_server(folder) as redis,
        api_thread(folder, database, redis, page_folder=page_folder, tls=tls) as url,
    ):
        yield Team(url, database_url=database)
