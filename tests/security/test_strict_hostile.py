"""What the helper of strict isolation refuses: it trusts neither its clients nor what the service's user wrote."""

from collections.abc import Callable, Generator
from dataclasses import replace
import json
import os
from pathlib import Path
import signal
import socket
import subprocess
import sys
from typing import Any

import pytest

from tests.rows import each_row
from tests.security import strict_host
from tests.security.strict_host import SERVICE, StrictAttempt, StrictHost
from torchyard.contract.attempts.records import LaunchPlan, Sandbox, Strict
from torchyard.contract.states import EndReason
from torchyard.host.identity import identity_of
from torchyard.host.recordfiles import read_record, write_record
from worker.host import process

ASKS = """
import socket, sys
for request in sys.argv[2:]:
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as c:
        try:
            c.connect(sys.argv[1])
            c.send(request.encode())
            print(c.recv(65536).decode() or '{"kind": "closed"}')
        except OSError:
            print('{"kind": "no connection"}')
"""
ASKS_FOR_THE_LEVEL = """
import json, os, sys
from torchyard.contract.errors import ConfigError
from worker.sandbox.levels import Isolation, level_of
from worker.settings import Settings
plain = dict(os.environ)
for changes in json.loads(sys.argv[1]):
    os.environ.clear()
    os.environ.update(plain | changes)
    try:
        print(level_of(Isolation.STRICT, needs=Settings.load().helper_needs).level)
    except ConfigError as error:
        print(error)
"""
READS = """
for path in {paths}:
    try:
        print(open(path).read())
    except OSError as error:
        print(type(error).__name__, flush=True)
"""
WAITS = "import os, signal\nopen('ready', 'w')\nwhile True: signal.pause()"

pytestmark = pytest.mark.usefixtures("strict_isolation")


@pytest.fixture(scope="module")
def host() -> Generator[StrictHost]:
    with strict_host.strict_host() as host:
        yield host


def ask(host: StrictHost, request: Any, *, uid: int = SERVICE) -> dict[str, Any]:
    """Returns the first answer to a request of that user, whose end then ends the attempt."""
    (answer,) = ask_each(host, request, uid=uid)
    return answer


def ask_each(host: StrictHost, *requests: Any, uid: int = SERVICE) -> list[dict[str, Any]]:
    """Does so for several requests, one after the other."""
    command = ["setpriv", f"--reuid={uid}", f"--regid={uid}", "--clear-groups", "/usr/bin/python3", "-ISc", ASKS]
    texts = [request if isinstance(request, str) else json.dumps(request) for request in requests]
    found = subprocess.run([*command, str(host.socket), *texts], capture_output=True, check=True, text=True)
    return [json.loads(line) for line in found.stdout.splitlines()]


def start_of(attempt: StrictAttempt) -> dict[str, Any]:
    return {"kind": "start", "job_id": attempt.job_id, "attempt": 1}


def plan_of(attempt: StrictAttempt) -> LaunchPlan:
    found = read_record(attempt.run.launch, LaunchPlan)
    assert found is not None
    return found


def rewrite(written: StrictAttempt, **changes: Any) -> None:
    """Changes the plan, as a worker that was taken over can."""
    write_record(written.run.launch, replace(plan_of(written), **changes))
    written.host.give_to_service()


def with_sandbox(attempt: StrictAttempt, **changes: Any) -> Sandbox:
    sandbox = plan_of(attempt).sandbox
    assert sandbox is not None
    return replace(sandbox, **changes)


def test_a_prepared_attempt_is_started(host: StrictHost) -> None:
    """So that what the other tests see refused is refused for what they changed."""
    assert ask(host, start_of(host.prepared("")))["kind"] == "started"


@pytest.mark.parametrize("uid", [0, 65534, strict_host.FIRST_UID])
def test_another_user_gets_no_answer(host: StrictHost, uid: int) -> None:
    answer = ask(host, {"kind": "status"}, uid=uid)
    assert answer["kind"] == ("refused" if uid == 0 else "no connection"), answer


@each_row(
    "request_",
    [
        "",
        "no JSON",
        "[]",
        {"kind": "mount"},
        {"kind": "start"},
        {"kind": "start", "job_id": "../../etc", "attempt": 1},
        {"kind": "start", "job_id": "job_00000000-0000-4000-8000-000000000000/..", "attempt": 1},
        {"kind": "start", "job_id": "job_00000000-0000-4000-8000-000000000000", "attempt": "../1"},
        {"kind": "start", "job_id": "job_00000000-0000-4000-8000-000000000000", "attempt": -1},
        {"kind": "start", "job_id": "job_00000000-0000-4000-8000-000000000000", "attempt": 1},
    ],
)
def test_a_malformed_request_is_refused(host: StrictHost, request_: Any) -> None:
    refused, status = ask_each(host, request_, {"kind": "status"})
    assert refused["kind"] in {"refused", "closed"}
    assert status["kind"] == "capabilities"


def _link_run(attempt: StrictAttempt) -> None:
    real = attempt.run.root.with_name("real")
    attempt.run.root.rename(real)
    attempt.run.root.symlink_to(real)


def _link_job(attempt: StrictAttempt) -> None:
    attempt.run.job.rename(attempt.run.root / "real")
    attempt.run.job.symlink_to("/etc")


def _link_work(attempt: StrictAttempt) -> None:
    attempt.run.work.symlink_to("/root")


def _foreign_work(attempt: StrictAttempt) -> None:
    attempt.run.work.mkdir()  # of root


def _link_plan(attempt: StrictAttempt) -> None:
    attempt.run.launch.rename(attempt.run.ctl / "real.json")
    attempt.run.launch.symlink_to("real.json")


def _hard_link_plan(attempt: StrictAttempt) -> None:
    (attempt.run.ctl / "other.json").hardlink_to(attempt.run.launch)


def _foreign_plan(attempt: StrictAttempt) -> None:
    os.chown(attempt.run.launch, strict_host.FIRST_UID, SERVICE)


def _foreign_job_folder(attempt: StrictAttempt) -> None:
    os.chown(attempt.run.job, 0, 0)


def _link_home(attempt: StrictAttempt) -> None:
    attempt.own_folders.home.rename(attempt.own_folders.home.with_name("moved"))
    attempt.own_folders.home.symlink_to("/root")


def _another_attempts_plan(attempt: StrictAttempt) -> None:
    rewrite(attempt, attempt=2)


def _another_temporary_folder(attempt: StrictAttempt) -> None:
    rewrite(attempt, sandbox=with_sandbox(attempt, temporary="/tmp/../root"))


def _no_isolation(attempt: StrictAttempt) -> None:
    rewrite(attempt, sandbox=None)


def _options_in_the_environment(attempt: StrictAttempt) -> None:
    rewrite(attempt, env={"PATH": "/usr/bin\0--bind\0/\0/"})


def _options_in_the_folder(attempt: StrictAttempt) -> None:
    rewrite(attempt, cwd="/\0--bind\0/\0/")


def _a_gpu_that_is_not_here(attempt: StrictAttempt) -> None:
    rewrite(attempt, env={"CUDA_VISIBLE_DEVICES": "GPU-none"})


@each_row(
    ("trick", "why"),
    [
        (_link_run, "link"),
        (_link_job, "behind a link"),
        (_link_work, "behind a link"),
        (_foreign_work, "not the service's own"),
        (_link_plan, "link"),
        (_hard_link_plan, "other names"),
        (_foreign_plan, "not the service's own"),
        (_foreign_job_folder, "not the service's own"),
        (_link_home, "behind a link"),
        (_another_attempts_plan, "another attempt"),
        (_another_temporary_folder, "temporary folder"),
        (_no_isolation, "no strict isolation"),
        (_options_in_the_environment, "command or environment"),
        (_options_in_the_folder, "command or environment"),
        (_a_gpu_that_is_not_here, "no GPU GPU-none"),
    ],
)
def test_a_run_directory_with_a_trick_is_refused(
    host: StrictHost, trick: Callable[[StrictAttempt], None], why: str
) -> None:
    attempt = host.prepared("", owner=trick.__name__.strip("_"))
    trick(attempt)
    answer = ask(host, start_of(attempt))
    assert answer["kind"] == "refused"
    assert why in answer["why"]


@pytest.mark.parametrize(
    "owner",
    ["..", "", "a/b", *(pytest.param(owner, marks=pytest.mark.thorough) for owner in (".", "../runs", "/root"))],
)
def test_an_owner_is_no_path(host: StrictHost, owner: str) -> None:
    attempt = host.prepared("")
    plan = json.loads(attempt.run.launch.read_text())
    plan["sandbox"]["strict"]["owner"] = owner
    attempt.run.launch.write_text(json.dumps(plan))
    answer = ask(host, start_of(attempt))
    assert answer["kind"] == "refused"
    assert "owner" in answer["why"]


def test_an_attempt_that_runs_is_not_started_twice_and_gets_known_signals_to_its_own_processes_alone(
    host: StrictHost,
) -> None:
    attempt, other = host.attempt(WAITS), host.attempt(WAITS, owner="bob")
    attempt.wait_for_file("ready")
    other.wait_for_file("ready")
    assert ask(host, start_of(attempt))["why"] == "this attempt runs already"
    targets = {
        "pytest": process.identity(os.getpid()),
        "another": other.processes()[-1],
        "its own": attempt.processes()[-1],
    }
    asked = {
        (name, number): {**start_of(attempt), "kind": "signal", "process": target.to_dict(), "number": int(number)}
        for name, target in targets.items()
        if target is not None
        for number in (signal.SIGTERM, signal.SIGKILL, signal.SIGSTOP)
    }
    answers = dict(zip(asked, ask_each(host, *asked.values()), strict=True))
    assert {key for key, answer in answers.items() if answer["kind"] != "refused"} == {("its own", signal.SIGTERM)}
    assert len(answers) == 9
    assert process.is_alive(other.init)
    other.stop(grace=0)
    attempt.report()
    other.report()


def test_a_signal_for_an_attempt_that_does_not_run_is_refused(host: StrictHost) -> None:
    me = identity_of(os.getpid())
    assert me is not None
    request = {**start_of(host.prepared("")), "kind": "signal", "process": me.to_dict(), "number": int(signal.SIGTERM)}
    assert ask(host, request)["why"] == "this attempt does not run"


def test_owners_beyond_the_last_uid_are_refused() -> None:
    with strict_host.strict_host() as host:
        for number in range(4):
            assert ask(host, start_of(host.prepared("", owner=f"user-{number}")))["kind"] == "started"
        assert "uids" in ask(host, start_of(host.prepared("", owner="one-more")))["why"]
        assert ask(host, start_of(host.prepared("", owner="user-0")))["kind"] == "started"


def test_a_client_that_says_nothing_keeps_nobody_waiting(host: StrictHost) -> None:
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as silent:
        silent.connect(str(host.socket))
        assert ask(host, {"kind": "status"})["kind"] == "capabilities"


def test_a_job_is_shown_no_path_of_the_plan_and_reads_only_what_the_service_may_read(
    host: StrictHost, tmp_path: Path
) -> None:
    """The service's user cannot read root's files through the helper: mounts have only its own rights."""
    (tmp_path / "key").write_text("key")
    attempt = host.prepared("")
    roots = attempt.run.input / "root"
    roots.write_text("key")
    roots.chmod(0o600)
    (host.code / f"{attempt.job_id}.py").write_text(READS.format(paths=[str(tmp_path / "key"), str(roots)]))
    sandbox = with_sandbox(attempt, readable=[str(tmp_path), "/"], writable=["/"], devices=["/dev/vda"])
    rewrite(attempt, sandbox=sandbox)
    os.chown(roots, 0, 0)
    attempt.start()
    assert attempt.report().reason is EndReason.COMPLETED, host.logs()
    assert attempt.log("rank-0").split() == ["FileNotFoundError", "PermissionError"]


def test_the_worker_is_told_what_its_helper_does_not_allow_and_that_there_is_none(host: StrictHost) -> None:
    """It then ends with the error, as after each other one of its settings (`worker/test_settings.py`)."""
    own = {"TORCHYARD_HELPER": str(host.socket), "TORCHYARD_DATA_DIR": str(host.data)}
    changes = [
        {"TORCHYARD_ALLOW_PATHS": str(host.code)},
        {"TORCHYARD_ALLOW_PATHS": "/usr/share"},
        {"TORCHYARD_ALLOW_PATHS": f"{host.code}:rw"},
        {"TORCHYARD_DATA_DIR": str(host.stage)},
        {"TORCHYARD_HELPER": "/nowhere"},
    ]
    asked = json.dumps([own | change for change in changes])
    fits, *said = host.run_as_service(sys.executable, "-P", "-c", ASKS_FOR_THE_LEVEL, asked).splitlines()
    assert fits == "strict"
    parts = (
        *("give it --allow-path /usr/share", f"--allow-path {host.code}:rw"),
        *("serves the data directory", "cannot be reached"),
    )
    for line, part in zip(said, parts, strict=True):
        assert part in line


def test_a_plan_may_name_another_helper_but_this_one_serves_its_own_data(host: StrictHost) -> None:
    attempt = host.prepared("")
    strict = Strict(helper="/nowhere", owner="ada")
    rewrite(attempt, sandbox=with_sandbox(attempt, strict=strict))
    assert ask(host, start_of(attempt))["kind"] == "started"
