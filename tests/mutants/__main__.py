"""Tries seeded mutants of the product against the tests: `python -m tests.mutants --help`."""

import argparse
from collections import Counter
from collections.abc import Sequence
import os
from pathlib import Path
import sys

import pytest

from tests.mutants import drawn
from tests.mutants.contexts import Recorder, read
from tests.mutants.trying import Trying

SUITES = ("tests/api", "tests/store", "tests/worker", "tests/scheduling", "tests/torchyard/contract")
"""Their tests run what is mutated."""
OTHERS = ("tests/controller", "tests/failpoints", "tests/security", "tests/torchyard", "tests/e2e", "tests/migrations")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("what", choices=["record", "draw", "try"])
    parser.add_argument("--folder", type=Path, default=Path(".mutants"), help="where lines and costs are recorded")
    parser.add_argument("--file", type=Path, default=drawn.FILE, help="the mutants")
    parser.add_argument("--each", type=int, default=40, help="mutants of an area")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--killed", action="store_true", help="try those that were killed alone")
    chosen = parser.parse_args()
    chosen.folder.mkdir(exist_ok=True)
    if chosen.what == "record":
        return _record(chosen.folder, jobs=chosen.jobs)
    if chosen.what == "draw":
        drawn.write(drawn.draw(read(chosen.folder), each=chosen.each, seed=chosen.seed), chosen.file)
        return 0
    return _try(chosen.folder, chosen.file, jobs=chosen.jobs, killed=chosen.killed)


def _record(folder: Path, *, jobs: int) -> int:
    """Runs the tests once with coverage, some folders in each of the processes."""
    folders = (*SUITES, *OTHERS)
    parts = [folders[index::jobs] for index in range(jobs)]
    pids: list[int] = []
    for index, part in enumerate(parts):
        pid = os.fork()
        if not pid:
            os._exit(_pytest(*part, plugins=[Recorder(folder, name=str(index))]))
        pids.append(pid)
    return max(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) for pid in pids)


def _try(folder: Path, file: Path, *, jobs: int, killed: bool) -> int:
    before = drawn.read(file)
    left_out = {"equivalent", "survived"} if killed else {"equivalent"}
    tried = [mutant for mutant in before if mutant.verdict not in left_out]
    trying = Trying(tried, read(folder), jobs=jobs, say=_say)
    code = _pytest("tests", plugins=[trying])
    if code or not trying.results:
        return code or 1
    after = {mutant.mutation: mutant for mutant in trying.results}
    drawn.write([after.get(mutant.mutation, mutant) for mutant in before], file)
    escaped = [
        mutant
        for mutant in before
        if mutant.verdict == "killed" and after[mutant.mutation].verdict not in {"killed", "gone"}
    ]
    _say(str(dict(Counter(mutant.verdict for mutant in trying.results))))
    for mutant in escaped:
        _say(f"not killed any more: {mutant.module}:{mutant.mutation.function}: {mutant.mutation}")
    return 1 if escaped else 0


def _say(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


def _pytest(*folders: str, plugins: Sequence[object]) -> int:
    return int(pytest.main([*folders, "-n", "0", "-q", "--timeout", "120"], plugins=list(plugins)))


if __name__ == "__main__":
    sys.exit(main())
