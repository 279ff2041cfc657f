"""Reads what a job's code requires: `python -P -m worker.packages.reading ORDER`, a `ReadOrder` as JSON.

Who wrote the files may be hostile, and parsers are slow on purpose-made text. So this process may read the code folder
alone, where the kernel has Landlock, and has a limit of processor time and of memory. It prints a `ReadReport`, and
then the bytes of the files for uv.
"""

from collections.abc import Mapping
from dataclasses import replace
import errno
import os
import posixpath
import resource
import signal
import sys

from torchyard.contract.errors import ConfigError, DataError
from torchyard.host.parent import end_with_parent
from worker.packages.code import Code
from worker.packages.lines import Lines
from worker.packages.metadata import (
    dependencies,
    locked,
    metadata_of,
    require_one_index,
    require_registries,
    require_wheels,
    required_by,
    required_python,
    toml,
)
from worker.packages.order import (
    CONSTRAINTS,
    LOCK,
    MAX_LOCK_BYTES,
    MAX_REPORT_BYTES,
    MAX_TEXT_BYTES,
    PYPROJECT,
    REQUIREMENTS,
    SCRIPT,
    Kind,
    ReadOrder,
    ReadReport,
)
from worker.packages.provided import Wishes
from worker.sandbox import landlock, privileges

MEMORY_BYTES = 1 << 30
_MOST_WORDS = 2_000


def main() -> None:
    """Raises OSError if this process cannot be confined."""
    order = ReadOrder.from_json(sys.argv[1])
    end_with_parent(signal.SIGKILL)  # a worker that is killed leaves nobody who reads
    _confine(order)
    files: Mapping[str, bytes] = {}
    try:
        report, files = read(order)
    except (DataError, ConfigError) as error:
        problem = "data" if isinstance(error, DataError) else "config"
        report = ReadReport(problem=problem, message=error.message[:_MOST_WORDS])
    except OSError as error:
        report = ReadReport(error=error.errno or errno.EIO)
    except RecursionError:
        report = ReadReport(problem="data", message=f"{order.name} is nested too deeply to be read")
    except (MemoryError, SystemError):  # Python raises the second where there is no memory for the first
        report = ReadReport(problem="data", message=f"{order.name} needs more than 1 GiB of memory to be read")
    with open(1, "wb", closefd=False) as answer:
        answer.writelines([report.to_json().encode(), b"\n", *files.values()])


def read(order: ReadOrder) -> tuple[ReadReport, Mapping[str, bytes]]:
    """Returns what the code requires, and its files for uv. Raises DataError, ConfigError and OSError."""
    reads = {"requirements": _requirements, "lock": _project, "script": _script}
    report, texts = reads[order.kind](order, Code(order.code))
    files = {name: text.encode() for name, text in texts.items()}
    sizes = {name: len(content) for name, content in files.items()}
    return replace(report, sizes=sizes), files


def _requirements(order: ReadOrder, code: Code) -> tuple[ReadReport, dict[str, str]]:
    lines = Lines(code.text, own_index=order.own_index, builds=order.builds, versions=order.versions)
    lines.add_file(order.name)
    for name in lines.projects:
        _note_project(lines, posixpath.join(name.partition("[")[0], PYPROJECT), order, code)
    return _flat(lines)


def _flat(lines: Lines) -> tuple[ReadReport, dict[str, str]]:
    files = {REQUIREMENTS: "".join(lines.requirements)}
    if lines.constraints:
        files[CONSTRAINTS] = "".join(lines.constraints)
    return replace(_report("requirements", lines.wishes), projects=[*lines.projects]), files


def _note_project(lines: Lines, name: str, order: ReadOrder, code: Code) -> None:
    """Notes what a project of the code asks for, where it says so. Raises DataError and ConfigError."""
    if not code.has(name):
        return
    table = toml(code.text(name, MAX_TEXT_BYTES), name)
    required_python(table, name, order.python, project=True)
    if order.own_index:
        require_one_index(table, name)
    for line in required_by(table, name, own_index=order.own_index):
        lines.wishes.note(line)


def _report(kind: Kind, wishes: Wishes) -> ReadReport:
    decision = wishes.decide()
    return ReadReport(kind=kind, own_torch=decision.own_torch, provided=[*decision.names], notes=[*decision.notes])


def _project(order: ReadOrder, code: Code) -> tuple[ReadReport, dict[str, str]]:
    lock = os.path.join(os.path.dirname(order.name), LOCK)  # noqa: PTH118, PTH120 a name in the code folder, no path
    if not code.has(lock):
        lines = Lines(code.text, own_index=order.own_index, builds=order.builds, versions=order.versions)
        lines.add_project(posixpath.dirname(order.name) or ".", "", order.name)
        _note_project(lines, posixpath.normpath(order.name), order, code)
        return _flat(lines)
    project, text = code.text(order.name, MAX_TEXT_BYTES), code.text(lock, MAX_LOCK_BYTES)
    table = toml(text, lock)
    required_python(toml(project, order.name), order.name, order.python, project=True)
    if order.own_index:
        require_one_index(toml(project, order.name), order.name)
        require_registries(table, lock)
    wishes = Wishes(order.versions)
    for line in locked(table):
        wishes.note(line)
    return _report("lock", wishes), {PYPROJECT: project, LOCK: text}


def _script(order: ReadOrder, code: Code) -> tuple[ReadReport, dict[str, str]]:
    block, table = metadata_of(code.text(order.name, MAX_LOCK_BYTES), order.name)
    wanted = dependencies(table, order.name)
    lines = Lines(code.text, own_index=order.own_index, builds=order.builds, versions=order.versions)
    required_python(table, order.name, order.python, project=False)
    if order.own_index:
        require_one_index(table, order.name, strict=True)
    if not order.builds:
        require_wheels(table, order.name)
    for item in wanted:
        lines.add_requirement(item, order.name)
    if order.own_index:
        return _flat(lines)
    return _report("script", lines.wishes), {SCRIPT: block}


def _confine(order: ReadOrder) -> None:
    most = MAX_TEXT_BYTES + MAX_LOCK_BYTES + MAX_REPORT_BYTES
    privileges.drop()
    privileges.limit_resources()
    resource.setrlimit(resource.RLIMIT_CPU, (order.seconds, order.seconds + 1))  # SIGXCPU, which says why, comes first
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY_BYTES, MEMORY_BYTES))
    resource.setrlimit(resource.RLIMIT_FSIZE, (most, most))
    if landlock.abi():
        landlock.restrict([(order.code, landlock.READ)])


if __name__ == "__main__":
    main()
