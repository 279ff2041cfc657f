"""Named places where a test breaks a program: before and after each commit, push, fsync, rename and report.

Off, except in a program that is started with `TORCHYARD_FAILPOINTS`, which only tests set:

    store.claim.after=kill;record.exit.rename=delay:0.5@2

An action is `kill` (SIGKILL of its own process), `stop` (SIGSTOP, until somebody continues it), `delay:SECONDS` (of the
thread alone), `hang` (of the thread alone, until `arm` is called again) or `error:ENOSPC` (OSError, with any name in
`errno`). With `@N` it happens only at the Nth time, else every time. `log=PATH` appends the name of each
failpoint that acts to a file, so that a test knows that it did.
"""

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass
import errno
from functools import partial
import os
import signal
import threading
import time

VARIABLE = "TORCHYARD_FAILPOINTS"

COMMITS = (
    *("submit", "change", "cancel", "pause", "resume", "stacks", "reach", "delete", "upload", "bundle", "model"),
    *("team", "drain", "register", "heartbeat", "renew", "rescue"),
    *("claim", "reserve", "preempt", "idle", "group_jobs", "reason"),
    *("mark_prepared", "mark_launched", "mark_running", "store_batch", "store_stacks", "end"),
    *("collect", "forget_garbage", "trim_log", "trim_events", "trim_samples", "delete_tombstones"),
    *("fan_out", "claim_messages", "message_result", "clean_messages"),
    *("add_up_counts", "join_points", "identify", "sweep", "other"),
    *("sweeps", "run_schedule", "make_trials", "ask_trials", "dependencies"),
    *("estimates", "score"),
)
"""What a transaction is for, by `store.db.database.Database.write`."""
PUSHES = ("announce", "rebuild")
"""What is said to Redis, by `store.queue.Queue` and `store.queue.line.upkeep.Upkeep`."""
RECORDS = ("worker", "config", "plan", "supervisor", "stop", "exit", "ranks", "errors", "manifest", "work")
"""Records by their files, or by the folder of numbered ones, by `torchyard.contract.attempts.rundir.write_record`."""

NAMES = frozenset(
    [
        *(f"store.{commit}.{side}" for commit in COMMITS for side in ("before", "after")),
        *(f"queue.{push}.{side}" for push in PUSHES for side in ("before", "after")),
        *(f"record.{record}.{step}" for record in RECORDS for step in ("fsync", "rename", "renamed")),
        *(f"checkpoint.{step}" for step in ("fsync", "manifest", "rename", "renamed")),
        *(f"blob.{step}" for step in ("fsync", "rename", "renamed")),
        *(f"events.append.{side}" for side in ("before", "after")),
        *(f"launch.start.{side}" for side in ("before", "after")),
        *(f"supervisor.launch.{side}" for side in ("before", "after")),
        *(f"bundle.{step}" for step in ("unpack", "rename", "renamed")),
        *(f"folder.{step}" for step in ("copy", "rename", "renamed")),
        "supervisor.ended",
        "driver.read",
        "output.read",
        *(f"disk.{use}" for use in ("space", "removal")),
    ]
)
"""Every failpoint. `fsync` and `rename` are before the call. `renamed`: the new name exists, and is not yet synced."""


@dataclass(frozen=True)
class _Plan:
    action: Callable[[], object]
    hit: int | None


_plans: dict[str, _Plan] = {}
_log = ""
_hits: Counter[str] = Counter()
_lock = threading.Lock()
_released = threading.Event()
"""Set by the next `arm`."""


def failpoint(name: str) -> None:
    """Does what the environment asks for at this place: nothing, except in a test."""
    if _plans:
        _reach(name)


def arm(environ: Mapping[str, str] = os.environ) -> None:
    """Reads the variable, as importing this module does. Raises ValueError for an unknown failpoint or action."""
    global _log, _released  # noqa: PLW0603 read once, when the program starts
    _released.set()
    _released = threading.Event()
    _plans.clear()
    _hits.clear()
    asked = [item.partition("=") for item in environ.get(VARIABLE, "").split(";") if item]
    _log = next((what for name, _, what in asked if name == "log"), "")
    for name, _, what in asked:
        if name == "log":
            continue
        if name not in NAMES:
            raise ValueError(f"{VARIABLE}: there is no failpoint {name!r}")
        action, _, hit = what.partition("@")
        _plans[name] = _Plan(_action(action), int(hit) if hit else None)


def _reach(name: str) -> None:
    plan = _plans.get(name)
    if plan is None:
        return
    with _lock:
        _hits[name] += 1
        due = plan.hit is None or plan.hit == _hits[name]
    if not due:
        return
    if _log:
        with open(_log, "a", encoding="utf-8") as file:  # noqa: PTH123 a string, as nothing is prepared before it is on
            file.write(f"{name}\n")
    plan.action()


def _action(text: str) -> Callable[[], object]:
    kind, _, argument = text.partition(":")
    match kind:
        case "kill":
            return lambda: os.kill(os.getpid(), signal.SIGKILL)
        case "stop":
            return lambda: os.kill(os.getpid(), signal.SIGSTOP)
        case "delay":
            return partial(time.sleep, float(argument))
        case "hang":
            return _released.wait
        case "error" if argument in errno.errorcode.values():
            return partial(_fail, getattr(errno, argument))
        case _:
            raise ValueError(f"{VARIABLE}: there is no action {text!r}")


def _fail(number: int) -> None:
    raise OSError(number, os.strerror(number))


arm()
