"""What a package of a job can do to the sandbox of the job, while it is built and installed."""

from collections.abc import Generator
from pathlib import Path

import pytest

from tests.worker.attempt import Attempt, isolation
from tests.worker.packages.conftest import index, packages
from tests.worker.packages.fixture import Packages
from tests.worker.packages.index import Index
from torchyard.contract.cluster.devices import IsolationReport
from worker.packages.installation import Installed, NotInstalled

__all__ = ["index", "packages"]

HERE = isolation()
LANDLOCK = IsolationReport(level="landlock", filtered=True)
SECRET = "the admin's token"
RUNS_WHEN_INSTALLED = "import attack\n"
"""A `.pth` file: uv starts the environment's Python once all is installed, to compile it."""
BEGINS = """
import contextlib, os, sys, time
venv, outside = sys.prefix, "/proc/self/cwd"
folder = os.path.dirname(venv)
def swap(path, target=outside):
    with contextlib.suppress(OSError):
        os.rename(path, path + "-away")
    with contextlib.suppress(OSError):
        os.symlink(target, path)
packages = f"lib/python{sys.version_info[0]}.{sys.version_info[1]}/site-packages"
os.makedirs(os.path.join(folder, "work", packages), exist_ok=True)  # the installer works there, so it finds them
"""
SWAPS = {
    "the environment": "swap(venv)",
    "the environment, later": """
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        null = os.open(os.devnull, os.O_RDWR)
        for number in range(3):
            os.dup2(null, number)
        while True:
            swap(venv)
    os._exit(0)
""",
    "its parts": "swap(venv + '/bin'); swap(venv + '/lib'); swap(venv + '/pyvenv.cfg', outside + '/token')",
    "what is around it": """
cache = os.environ["UV_CACHE_DIR"]
for path in (folder + "/input", folder + "/work", *(os.path.join(cache, name) for name in os.listdir(cache)), cache):
    swap(path)
for _ in range(3):
    swap(folder)
    folder = os.path.dirname(folder)
""",
    "the mark of what is whole": """
with contextlib.suppress(OSError):
    os.makedirs(folder + "-forged")
    os.symlink(outside, folder + "-forged/venv")
with contextlib.suppress(OSError):
    boot = open("/proc/sys/kernel/random/boot_id").read().strip()
    text = '{"boot": "%s", "name": "%s-forged"}' % (boot, os.path.basename(folder))
    open(os.path.dirname(folder) + "/complete", "w").write(text)
""",
}
BREAKS_ITSELF = ("its parts", "what is around it")
"""Swaps after which the installation has failed. All others leave an environment, in which a job starts."""
STEALS = '#!/bin/sh\necho ran; cat "{secret}"; ls "{folder}"\n'

pytestmark = pytest.mark.skipif(HERE.level != "landlock", reason="this host has no Landlock")


@pytest.fixture
def secret(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Generator[Path]:
    """The token in the folder where the worker works."""
    path = tmp_path / "data" / "token"
    path.parent.mkdir()
    path.write_text(SECRET)
    monkeypatch.chdir(path.parent)
    yield path
    assert path.read_text() == SECRET


@pytest.mark.parametrize(
    ("swap", "level"),
    [
        ("the environment, later", LANDLOCK),
        *(pytest.param(swap, level, marks=pytest.mark.thorough) for swap in SWAPS for level in (HERE, LANDLOCK)),
    ],
)
def test_a_package_opens_nothing_to_its_job(
    attempt: Attempt, packages: Packages, index: Index, secret: Path, *, level: IsolationReport, swap: str
) -> None:
    packages.isolation = attempt.isolation = level
    index.add("gamma", files={"attack.py": BEGINS + SWAPS[swap], "run.pth": RUNS_WHEN_INSTALLED})
    for _ in range(2):  # the second time it may be cached
        found = packages.install("gamma\n")
        assert packages.installers() == []
        if swap in BREAKS_ITSELF:
            assert isinstance(found, NotInstalled)
            continue
        assert isinstance(found, Installed)
        said = _job_says(attempt, found.environment, secret)
        assert SECRET not in said
        assert secret.name not in said.splitlines()


def _job_says(attempt: Attempt, environment: Path, secret: Path) -> str:
    """Returns the output of a job that brings a program for the case that the environment leads to its own folder."""
    level, folder = attempt.isolation, attempt.run.root.parent
    attempt = Attempt.create(folder / f"job-{len(list(folder.glob('job-*')))}")
    attempt.isolation = level
    program = attempt.script(STEALS.format(secret=secret, folder=secret.parent), name="bin/python")
    program.chmod(0o700)
    config = {"code": f"file://{attempt.run.root}/code", "command": "bin/python"}
    attempt.start_spec({"trainer": "script", "config": config}, world_size=1, environment=environment)
    attempt.report()
    return "\n".join(path.read_text() for path in sorted(attempt.run.logs.iterdir()))
