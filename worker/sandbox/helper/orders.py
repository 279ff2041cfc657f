"""Reads what an attempt shall run, and opens its folders. All of it lies where the service's user may write.

So nothing is believed: no link is followed, each folder must be the service's own, and no path of the plan is used.
"""

from contextlib import ExitStack
from dataclasses import dataclass, replace
import os
from pathlib import Path
import re
import stat

from torchyard.contract.attempts.records import LaunchPlan
from torchyard.contract.attempts.rundir import WORK
from torchyard.contract.errors import DataError
from torchyard.host.identity import boot_id
from torchyard.host.untrusted import RECORD_LIMIT, folder_inside, open_inside
from worker.host.datafolders import UNPACKED
from worker.sandbox import shared
from worker.sandbox.helper.config import Config
from worker.sandbox.helper.gpus import device_nodes
from worker.sandbox.strict.protocol import Refusal, Start

_TEMPORARY = re.compile(r"torchyard-[0-9a-f]{10}-[0-9a-f]{10}")


@dataclass(frozen=True, kw_only=True)
class Folder:
    """An open folder of the data directory."""

    path: Path
    """Where the attempt sees it."""
    descriptor: int
    """Belongs to the stack that was given to `read_order`."""


@dataclass(frozen=True, kw_only=True)
class Order:
    """An attempt to start."""

    plan: LaunchPlan
    owner: str
    control: Folder
    """Where the ranks look for a stop request, and ask for secrets."""
    input: Folder
    """Read-only."""
    job: Folder
    """Writable, as are the next three."""
    work: Folder | None
    """The working folder of the job, if it has one: found by the job's id alone."""
    home: Folder
    temporary: Folder
    bundles: list[Folder]
    """Read-only."""
    devices: list[str]
    """The nodes of the job's GPUs."""

    @property
    def key(self) -> str:
        return f"{self.plan.job_id}.{self.plan.attempt}"


def read_order(config: Config, start: Start, stack: ExitStack) -> Order:
    """Reads the plan in the run directory, and opens the folders until `stack` is closed.

    Raises Refusal and OSError.
    """
    run = ("runs", start.job_id, str(start.attempt))
    plan = _read_plan(config, *run)
    if (plan.job_id, plan.attempt) != (start.job_id, start.attempt):
        raise Refusal("the plan in the run directory belongs to another attempt")
    if plan.sandbox is None or plan.sandbox.strict is None:
        raise Refusal("the plan asks for no strict isolation")
    if any("\0" in text for text in (*plan.argv, *plan.env, *plan.env.values(), plan.cwd)) or not plan.argv:
        raise Refusal("the plan's command or environment is none")
    if any(not name or "=" in name for name in plan.env):
        raise Refusal("the plan names a variable that is none")
    owner, temporary = plan.sandbox.strict.owner, Path(plan.sandbox.temporary).name
    if _TEMPORARY.fullmatch(temporary) is None:
        raise Refusal("the plan's temporary folder is none of the worker's")

    def opened(*parts: str) -> Folder:
        return _open(config, stack, *parts)

    return Order(
        plan=plan,
        owner=owner,
        control=opened(*run, "ctl"),
        input=opened(*run, "input"),
        job=opened(*run, "job"),
        work=opened(*run[:-1], WORK) if _exists(config, *run[:-1], WORK) else None,
        home=opened("caches", owner),
        temporary=replace(opened("tmp", temporary), path=shared.TEMPORARY),
        bundles=[opened(UNPACKED, owner, sha256, boot_id()) for sha256 in plan.sandbox.strict.bundles],
        devices=device_nodes([uuid for uuid in plan.env.get("CUDA_VISIBLE_DEVICES", "").split(",") if uuid]),
    )


def _read_plan(config: Config, *run: str) -> LaunchPlan:
    try:
        file = open_inside(config.data_dir, *run, "ctl", "plan.json")
    except DataError as error:
        raise Refusal(error.message) from None
    if file is None:
        raise Refusal("there is no such run directory with a plan")
    with file:
        if os.fstat(file.fileno()).st_uid != config.service[0]:
            raise Refusal("the plan is not the service's own file")
        try:
            return LaunchPlan.from_json(file.read(RECORD_LIMIT))
        except ValueError as error:
            raise Refusal(f"the plan cannot be read: {error}") from None


def _exists(config: Config, *parts: str) -> bool:
    """Returns whether anything has this name, be it a link, which is refused then."""
    try:
        with folder_inside(config.data_dir, *parts[:-1]) as parent:
            os.stat(parts[-1], dir_fd=parent, follow_symlinks=False)
    except FileNotFoundError:
        return False
    return True


def _open(config: Config, stack: ExitStack, *parts: str) -> Folder:
    path = config.data_dir.joinpath(*parts)
    try:
        descriptor = stack.enter_context(folder_inside(config.data_dir, *parts))
    except OSError as error:
        raise Refusal(f"{path} is missing or behind a link: {error.strerror}") from None
    status = os.fstat(descriptor)
    if status.st_uid != config.service[0] or not stat.S_ISDIR(status.st_mode):
        raise Refusal(f"{path} is not the service's own folder")
    return Folder(path=path, descriptor=descriptor)
