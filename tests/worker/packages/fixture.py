"""Installations from an index of the test, each for an attempt without a database."""

from dataclasses import dataclass, field
from datetime import timedelta
import functools
import os
from pathlib import Path
import subprocess

from tests.worker.attempt import wait_for
from tests.worker.packages.index import Index
from torchyard.contract.attempts.rundir import RunDir
from torchyard.contract.cluster.devices import IsolationReport
from torchyard.contract.recipes import Script
from worker.host import process
from worker.packages import reading, requirements
from worker.packages.cache import PackageCache
from worker.packages.installation import Installation, Installed, NotInstalled
from worker.packages.rules import PackageRules
from worker.sandbox import levels

OWNER = "usr_anna"
PROJECT = """[project]
name = "mine"
version = "0"
requires-python = ">=3.11"
dependencies = ["alpha"]
"""
LOCKED = """version = 1
revision = 3
requires-python = ">=3.11"

[[package]]
name = "alpha"
version = "1.0"
source = {{ registry = "{url}" }}
wheels = [
    {{ url = "{host}/files/alpha-1.0-py3-none-any.whl", hash = "sha256:{digest}" }},
]

[[package]]
name = "mine"
version = "0"
source = {{ virtual = "." }}
dependencies = [
    {{ name = "alpha" }},
]

[package.metadata]
requires-dist = [{{ name = "alpha" }}]
"""


@functools.cache
def isolation_of_this_host() -> IsolationReport:
    return levels.level_of(levels.Isolation.AUTO)


@dataclass
class Packages:
    folder: Path
    index: Index
    timeout: timedelta = timedelta(minutes=5)
    builds: bool = True
    read_seconds: int = 30
    own_index: bool = True
    """Whether the operator has chosen the index."""
    isolation: IsolationReport = field(default_factory=isolation_of_this_host)
    installations: list[Installation] = field(default_factory=list[Installation])
    before: frozenset[process.ProcessIdentity] = field(
        default_factory=lambda: frozenset(process.descendants(os.getpid()))
    )

    def installers(self) -> list[process.ProcessIdentity]:
        """Returns the processes below this one that install packages."""
        return [item for item in process.descendants(os.getpid()) if item not in self.before]

    @property
    def cache(self) -> PackageCache:
        rules = PackageRules(
            index=self.index.url if self.own_index else "",
            timeout=self.timeout,
            isolation=self.isolation,
            builds=self.builds,
            read_seconds=self.read_seconds,
        )
        return PackageCache(self.folder / "environments", rules)

    def begin(self, text: str, *, name: str = "requirements.txt", owner: str = OWNER) -> Installation:
        """Begins to install what a file with this text says."""
        return self.begin_in(*self._written(text, name), owner=owner)

    def read(self, text: str, *, name: str = "requirements.txt") -> None:
        """Reads a file with this text, as the process does that a worker starts. Raises what the owner is told."""
        self.read_in(*self._written(text, name))

    def read_in(self, code: Path, config: Script) -> None:
        order = requirements.order_of(code, config, self.cache.rules)
        assert order is not None
        reading.read(order)

    def _written(self, text: str, name: str) -> tuple[Path, Script]:
        code = self.folder / f"code-{len(self.installations)}"
        code.mkdir(exist_ok=True)
        (code / name).write_text(text)
        entrypoint = name if name.endswith(".py") else None
        program = {"entrypoint": entrypoint} if entrypoint else {"module": "train"}
        wanted = "script" if entrypoint else name
        return code, Script.model_validate({"code": "file:///code", "requirements": wanted} | program)

    def begin_in(self, code: Path, config: Script, *, owner: str = OWNER) -> Installation:
        order = requirements.order_of(code, config, self.cache.rules)
        assert order is not None
        run = RunDir(self.folder / f"run-{len(self.installations)}")
        run.create()
        self.installations.append(Installation(self.cache, order, owner=owner, run=run))
        return self.installations[-1]

    def begin_locked(self, digest: str, *, project: str = "", lock: str = "") -> Installation:
        """Begins to install the project that has locked alpha 1.0, with more at the end of its files."""
        return self.begin_in(*self.locked(digest, project=project, lock=lock))

    def locked(self, digest: str, *, project: str = "", lock: str = "") -> tuple[Path, Script]:
        """Writes the project that has locked alpha 1.0, with more at the end of its files."""
        code = self.folder / f"code-{len(self.installations)}"
        code.mkdir()
        (code / "pyproject.toml").write_text(PROJECT + project)
        host = self.index.url.removesuffix("/simple")
        (code / "uv.lock").write_text(LOCKED.format(url=self.index.url, host=host, digest=digest) + lock)
        config = Script.model_validate({"code": "file:///code", "module": "train", "requirements": "pyproject.toml"})
        return code, config

    def reach_index(self, installation: Installation) -> None:
        """Polls until the installation has begun to download a file, of which the index keeps the half."""

        def reached() -> bool:
            assert installation.poll() is None
            return self.index.reached.is_set()

        wait_for(reached, "the download")

    def install(self, text: str, *, name: str = "requirements.txt", owner: str = OWNER) -> Installed | NotInstalled:
        return self.finish(self.begin(text, name=name, owner=owner))

    def finish(self, installation: Installation) -> Installed | NotInstalled:
        """Polls until the installation has ended, and closes it."""
        found: list[Installed | NotInstalled] = []

        def ended() -> bool:
            result = installation.poll()
            found.extend([] if result is None else [result])
            return bool(found)

        try:
            wait_for(ended, "the end of the installation")
        finally:
            installation.close()
        return found[0]

    def installed(self, text: str, *, name: str = "requirements.txt", owner: str = OWNER) -> Installed:
        found = self.install(text, name=name, owner=owner)
        assert isinstance(found, Installed), found
        return found

    def log(self, number: int = -1) -> str:
        """Returns what the set-up of an installation has said."""
        number = range(len(self.installations))[number]
        return RunDir(self.folder / f"run-{number}").log("setup", "stderr").read_text()

    def environments(self) -> list[Path]:
        """Returns what is in the folders of environments: tries, and marks of those that are whole."""
        return sorted(path for path in self.cache.root.glob("*/[0-9a-f]*/*"))

    def close(self) -> None:
        self.index.released.set()
        for installation in self.installations:
            installation.close()


def run_python(environment: Path, code: str) -> str:
    """Returns what the code prints in an environment."""
    command = [str(environment / "bin" / "python"), "-P", "-c", code]
    return subprocess.run(command, capture_output=True, text=True, check=True, env={"PATH": ""}).stdout
