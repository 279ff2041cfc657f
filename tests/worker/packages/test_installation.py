"""Environments that uv makes from an index of the test, in the sandbox."""

from dataclasses import replace
from datetime import timedelta
import hashlib
import importlib.util
from pathlib import Path
import signal
import subprocess
import sys

import pytest

from tests.disks import mounted
from tests.worker.attempt import wait_for
from tests.worker.packages.fixture import Packages, run_python
from tests.worker.packages.index import BROKEN_BUILD, Index
from torchyard.contract.states import EndReason
from worker.host import process
from worker.host.untrusted import remove_inside
from worker.packages.installation import Installed, NotInstalled

METADATA = """# /// script
# dependencies = ["alpha"]
# ///
"""
STARTS = """
import subprocess
def build_wheel(folder, *_):
    null = subprocess.DEVNULL
    left = subprocess.Popen(["sleep", "600"], stdin=null, stdout=null, stderr=null, start_new_session={session})
    raise SystemExit(f"started {{left.pid}}")
"""
WRITES = """
import os, pathlib
def build_wheel(folder, *_):
    for place in {places!r}:
        try:
            (pathlib.Path(place) / "poison").write_text("x")
        except OSError as error:
            continue
        raise SystemExit("wrote " + place)
    secrets = ", ".join(name for name in os.environ if name.startswith("TORCHYARD"))
    raise SystemExit(f"nothing was written; secrets: {{secrets}}; No space left on device")
"""


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("requirements.txt", "alpha==1.0\n"),
        pytest.param("train.py", METADATA, marks=pytest.mark.thorough),
    ],
)
def test_packages_are_installed_beside_the_workers(packages: Packages, index: Index, name: str, text: str) -> None:
    index.add("beta")
    index.add("alpha", needs="Requires-Dist: torch>=99\nRequires-Dist: beta\nRequires-Dist: torchyard\n")
    found = packages.installed(text, name=name)
    assert not found.was_there
    shows = "import alpha, beta, sys, torchyard; import importlib.util as u; print(alpha.version, sys.prefix)"
    shown = run_python(found.environment, f"{shows}; print(u.find_spec('torch').origin)").split()
    assert shown == ["1.0", str(found.environment), _origin_of_torch()]
    tool = subprocess.run([found.environment / "bin" / "alpha-tool"], capture_output=True, text=True, check=True)
    assert tool.stdout == "alpha 1.0\n"
    assert "+ alpha==1.0" in packages.log()


@pytest.mark.thorough
def test_a_lock_is_installed_as_it_is(packages: Packages, index: Index) -> None:
    digest = index.add("alpha")
    index.add("alpha", "2.0")
    found = packages.finish(packages.begin_locked(digest))
    assert isinstance(found, Installed), found
    assert run_python(found.environment, "import alpha; print(alpha.version)") == "1.0\n"


def test_torch_is_installed_if_it_is_required_itself_and_a_second_start_installs_nothing(
    packages: Packages, index: Index
) -> None:
    index.add("torch", "99.0")
    first = packages.installed("Torch==99.0\n")
    assert run_python(first.environment, "import torch; print(torch.version)") == "99.0\n"
    asked = list(index.asked)
    assert packages.installed("Torch==99.0\n") == Installed(first.environment, was_there=True)
    assert index.asked == asked


def test_what_cannot_be_resolved_fails_with_the_resolvers_words(packages: Packages, index: Index) -> None:
    index.add("alpha")
    found = packages.install("alpha>=2\n")
    assert isinstance(found, NotInstalled)
    assert found.reason is EndReason.LAUNCH_FAILED
    assert "you require alpha>=2" in " ".join(found.message.split()), found.message
    assert found.message.splitlines()[-1] in packages.log()
    assert packages.environments() == []


@pytest.mark.thorough
def test_a_build_that_fails_is_shown(packages: Packages, index: Index) -> None:
    index.add_source("gamma", build=BROKEN_BUILD)
    found = packages.install("gamma\n")
    assert isinstance(found, NotInstalled)
    assert found.reason is EndReason.LAUNCH_FAILED
    assert "command 'gcc' failed: No such file or directory" in found.message
    assert packages.environments() == []


@pytest.mark.parametrize("locked", [True, pytest.param(False, marks=pytest.mark.thorough)])
def test_a_file_with_another_hash_is_refused(packages: Packages, index: Index, locked: bool) -> None:
    index.add("alpha")
    wrong = hashlib.sha256(b"").hexdigest()
    required = packages.begin_locked(wrong) if locked else packages.begin(f"alpha==1.0 --hash=sha256:{wrong}\n")
    found = packages.finish(required)
    assert isinstance(found, NotInstalled)
    assert found.reason is EndReason.LAUNCH_FAILED
    assert "Hash mismatch" in found.message


def test_two_at_once_install_once(packages: Packages, index: Index) -> None:
    index.add("alpha")
    index.released.clear()
    first, second = packages.begin("alpha\n"), packages.begin("alpha\n")
    packages.reach_index(first)
    assert second.poll() is None
    index.released.set()
    made, found = packages.finish(first), packages.finish(second)
    assert isinstance(made, Installed)
    assert found == Installed(made.environment, was_there=True)
    assert index.downloads() == ["alpha-1.0-py3-none-any.whl"]


@pytest.mark.thorough
def test_nothing_is_left_of_an_installation_that_is_ended(packages: Packages, index: Index) -> None:
    index.add("alpha")
    index.released.clear()
    installation = packages.begin("alpha\n")
    packages.reach_index(installation)
    installation.close()
    assert packages.installers() == []
    assert packages.environments() == []
    index.released.set()
    assert not packages.installed("alpha\n").was_there


@pytest.mark.parametrize("whole", [pytest.param(False, marks=pytest.mark.thorough), True])
def test_what_a_killed_installation_left_does_not_count(packages: Packages, index: Index, whole: bool) -> None:
    index.add("alpha")
    index.released.clear()
    killed = packages.begin("alpha\n")
    packages.reach_index(killed)
    for item in packages.installers():
        process.send(item, signal.SIGKILL)
    wait_for(lambda: packages.installers() == [], "the end of all processes")
    left = packages.environments()
    assert len(left) == 1
    if whole:  # as if the worker was killed before the mark
        (left[0] / "venv").mkdir(exist_ok=True)
    packages.finish(killed)
    left[0].mkdir()
    index.released.set()
    found = packages.installed("alpha\n")
    assert not found.was_there
    assert not left[0].exists()
    assert run_python(found.environment, "import alpha; print(alpha.version)") == "1.0\n"


@pytest.mark.thorough
def test_a_full_disk_passes(packages: Packages, index: Index, tmp_path: Path) -> None:
    index.add("alpha", files={"alpha_data.py": "x" * 120_000_000})
    root = tmp_path / "environments"
    root.mkdir()
    with mounted(root, kibibytes=100_000):
        installation = packages.begin("alpha\n")
        with pytest.raises(OSError, match="No space left"):
            packages.finish(installation)
        assert packages.environments() == []
        index.add("alpha")
        assert isinstance(packages.install("alpha\n"), Installed)
        remove_inside(tmp_path, "environments")


@pytest.mark.thorough  # the quick run has such words in the test of what a build may write
@pytest.mark.parametrize("words", ["No space left on device", "error sending request: operation timed out"])
def test_words_of_a_build_are_no_evidence(packages: Packages, index: Index, words: str) -> None:
    index.add_source("gamma", build=f"def build_wheel(*_):\n    raise SystemExit({words!r})\n")
    found = packages.install("gamma\n")
    assert isinstance(found, NotInstalled)
    assert found.reason is EndReason.LAUNCH_FAILED
    assert words in found.message


@pytest.mark.thorough
def test_an_index_that_does_not_answer_passes(packages: Packages, index: Index) -> None:
    index.status = 503
    found = packages.install("alpha\n")
    assert isinstance(found, NotInstalled)
    assert found.reason is EndReason.WORKER_LOST
    assert found.message.startswith("the packages cannot be downloaded now:\n")


def test_an_installation_has_a_time_limit(packages: Packages, index: Index) -> None:
    index.add("alpha")
    index.released.clear()
    packages.timeout = timedelta(seconds=1)
    found = packages.install("alpha\n")
    assert isinstance(found, NotInstalled)
    assert found.reason is EndReason.LAUNCH_FAILED
    assert found.message.startswith("the packages were not installed within 1s (TORCHYARD_SETUP_TIMEOUT)")
    assert packages.installers() == []


def test_owners_share_nothing_and_code_that_builds_a_package_writes_nothing_of_others(
    packages: Packages, index: Index, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TORCHYARD_SECRET_KEY", "secret")
    index.add("alpha")
    own, others = packages.installed("alpha\n"), packages.installed("alpha\n", owner="usr_b")
    assert own.environment != others.environment
    assert index.downloads() == ["alpha-1.0-py3-none-any.whl"] * 2
    places = [tmp_path, own.environment, own.environment.parent, own.environment.parent.parent, others.environment]
    places += [packages.cache.root, packages.cache.downloads(owner="usr_b"), Path.home(), Path(sys.prefix)]
    index.add_source("gamma", build=WRITES.format(places=[str(place) for place in places]))
    found = packages.install("gamma\n")
    assert isinstance(found, NotInstalled)
    assert found.reason is EndReason.LAUNCH_FAILED, "words of a build are no evidence of a full disk"
    assert "nothing was written; secrets: ; No space left on device" in found.message


@pytest.mark.parametrize("session", [pytest.param(False, marks=pytest.mark.thorough), True])
def test_nothing_that_a_build_starts_outlives_it(packages: Packages, index: Index, session: bool) -> None:
    packages.isolation = replace(packages.isolation, own_mounts=False, own_pids=False)
    index.add_source("gamma", build=STARTS.format(session=session))
    found = packages.install("gamma\n")
    assert isinstance(found, NotInstalled)
    pid = int(found.message.rpartition("started ")[2].split()[0])
    left = process.identity(pid)
    if left is not None:
        process.send(left, signal.SIGKILL)
    assert left is None


def _origin_of_torch() -> str:
    spec = importlib.util.find_spec("torch")
    assert spec is not None
    return str(spec.origin)
