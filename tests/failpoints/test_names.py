"""The registry of failpoints: every name is in the source and tested, and each action works."""

import ast
from collections.abc import Iterator
import errno
from functools import cache
from pathlib import Path
import re
import signal
import subprocess
import sys
from typing import get_args

import pytest

from tests.controller import test_schedules
from tests.failpoints import (
    test_attempts,
    test_bundles,
    test_dependencies,
    test_estimates,
    test_folders,
    test_identity,
    test_idle,
    test_notifying,
    test_processes,
    test_requests,
    test_reservations,
    test_sweeping,
    test_sweeps,
)
from tests.worker import test_hanging
from torchyard.contract.attempts.records import Manifest
from torchyard.contract.errors import InvalidSpec
from torchyard.contract.jobs.requests import JobAction
from torchyard.contract.spec.spec import parse_spec
from torchyard.host import failpoints
from torchyard.run.publishing import publish
from worker.engines.local.environment import inherited

ROOT = Path(__file__).parent.parent.parent
COUNTED = """
import sys
from torchyard.host.failpoints import failpoint
for time in range(3):
    print(time, flush=True)
    failpoint("blob.rename")
"""


PROGRAMS = ("torchyard", "store", "api", "controller", "worker", "trainer")
WITH_TRANSACTIONS = ("store", "api", "controller", "worker")
OF_INTEREST = re.compile(r"\b(failpoint|translated|_?write)\(|\bpurpose=")


def calls(packages: tuple[str, ...] = PROGRAMS) -> list[ast.Call]:
    """Returns every call in those files of the packages that have a failpoint or a transaction."""
    return [call for package in packages for call in calls_of(package)]


@cache
def calls_of(package: str) -> list[ast.Call]:
    texts = (path.read_text() for path in (ROOT / package).rglob("*.py"))
    trees = (ast.parse(text) for text in texts if OF_INTEREST.search(text))
    return [node for tree in trees for node in ast.walk(tree) if isinstance(node, ast.Call)]


def called(*names: str) -> Iterator[ast.expr | None]:
    """Yields the first argument of each call of a function or method with one of `names`."""
    for call in calls():
        name = call.func.attr if isinstance(call.func, ast.Attribute) else getattr(call.func, "id", "")
        if name in names:
            yield call.args[0] if call.args else None


def literals(*names: str) -> set[str]:
    return {str(item.value) for item in called(*names) if isinstance(item, ast.Constant)}


def purposes() -> set[str]:
    """Returns the purposes that are passed as keyword arguments."""
    words = [word.value for call in calls() for word in call.keywords if word.arg == "purpose"]
    either = [part for word in words if isinstance(word, ast.IfExp) for part in (word.body, word.orelse)]
    return {str(item.value) for item in (*words, *either) if isinstance(item, ast.Constant)}


def actions() -> set[str]:
    """Returns the actions on jobs, if there is a transaction whose purpose is its `action`."""
    purposes = (item.id for item in called("write") if isinstance(item, ast.Name))
    return set(get_args(JobAction)) if "action" in purposes else set()


def pattern(item: ast.expr | None) -> str:
    """Returns a pattern of the values of a literal or an f-string."""
    match item:
        case ast.Constant(value):
            return re.escape(str(value))
        case ast.JoinedStr(values):
            return "".join(pattern(value) if isinstance(value, ast.Constant) else "[a-z_]+" for value in values)
        case _:
            raise AssertionError("a failpoint has a name that can be read")


def test_registered_names_are_those_in_the_source() -> None:
    found = [pattern(item) for item in called("failpoint")]
    assert [name for name in failpoints.NAMES if not any(re.fullmatch(one, name) for one in found)] == []
    assert [one for one in found if not any(re.fullmatch(one, name) for name in failpoints.NAMES)] == []
    assert literals("translated") == set(failpoints.PUSHES)
    commits = (literals("write", "_write") | purposes() | actions()) & set(failpoints.COMMITS)
    assert commits == set(failpoints.COMMITS) - {"other"}  # the database's default


def test_every_transaction_has_a_purpose() -> None:
    unnamed = [
        ast.unparse(call)
        for call in calls(WITH_TRANSACTIONS)
        if isinstance(call.func, ast.Attribute) and call.func.attr == "write" and not call.args and not call.keywords
    ]
    assert unnamed == []


def test_every_failpoint_is_tested() -> None:
    tested = {
        *(point for _, point in test_requests.POINTS),
        *test_attempts.POINTS,
        *test_attempts.LOOKS,
        *test_bundles.POINTS,
        *test_dependencies.POINTS,
        *test_estimates.POINTS,
        *test_idle.POINTS,
        *test_identity.POINTS,
        *test_notifying.POINTS,
        *test_folders.POINTS,
        *test_reservations.POINTS,
        *test_schedules.POINTS,
        *test_sweeping.POINTS,
        *test_sweeps.POINTS,
        *test_processes.WORKER,
        *test_processes.STOPPING,
        *test_processes.SUPERVISOR,
        *test_processes.RANK,
        *test_processes.RAISING,
        *test_hanging.POINTS,
        test_hanging.OUTPUT,
    }
    assert tested == failpoints.NAMES - {"store.other.before", "store.other.after"}


@pytest.mark.parametrize(
    ("plan", "code", "lines"),
    [
        ("", 0, 3),
        ("blob.rename=kill", -signal.SIGKILL, 1),
        ("blob.rename=kill@3", -signal.SIGKILL, 3),
        ("blob.rename=kill@4", 0, 3),
        ("blob.renamed=kill", 0, 3),
        ("blob.rename=error:ENOSPC@2", 1, 2),
        ("blob.rename=delay:0.01;blob.fsync=kill", 0, 3),
        ("blob.nothing=kill", 1, 0),
        ("blob.rename=explode", 1, 0),
        ("blob.rename=error:ENONSENSE", 1, 0),
    ],
)
def test_the_variable_selects_actions(plan: str, code: int, lines: int) -> None:
    done = subprocess.run(
        [sys.executable, "-P", "-c", COUNTED],
        env={failpoints.VARIABLE: plan},
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, len(done.stdout.split())) == (code, lines), done.stderr


def test_an_inactive_failpoint_calls_nothing() -> None:
    calls: list[str] = []
    sys.setprofile(lambda frame, event, argument: calls.append(event))
    failpoints.failpoint("blob.rename")
    sys.setprofile(None)
    assert calls == ["call", "return", "c_call"]  # the failpoint itself, and the end of this profile


def test_a_spec_cannot_set_failpoints() -> None:
    script = {"trainer": "script", "config": {"code": "file:///code"}}
    with pytest.raises(InvalidSpec) as raised:
        parse_spec(script | {"env": {failpoints.VARIABLE: "record.exit.fsync=kill"}})
    assert [error.field for error in raised.value.errors] == ["env"]


def test_an_attempt_inherits_the_variable_only_from_its_worker() -> None:
    assert inherited({"HOME": "/", "TORCHYARD_TOKEN": "secret"}) == {"HOME": "/"}
    assert inherited({failpoints.VARIABLE: "blob.rename=kill"}) == {failpoints.VARIABLE: "blob.rename=kill"}


@pytest.mark.parametrize("point", ["checkpoint.fsync", "checkpoint.manifest", "record.manifest.fsync"])
def test_a_full_disk_leaves_nothing_of_a_checkpoint(
    tmp_path: Path, point: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(failpoints.VARIABLE, f"{point}=error:ENOSPC@1")
    failpoints.arm()
    try:
        with pytest.raises(OSError) as raised:
            publish(tmp_path, "step-1", {"state.pt": b"state"}, Manifest(step=1, files=[]))
        assert raised.value.errno == errno.ENOSPC
        assert list(tmp_path.iterdir()) == []
        publish(tmp_path, "step-1", {"state.pt": b"state"}, Manifest(step=1, files=[]))
        assert (tmp_path / "step-1" / "manifest.json").exists()
    finally:
        monkeypatch.undo()
        failpoints.arm()
