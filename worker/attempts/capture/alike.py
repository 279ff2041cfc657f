"""Says which folders have all the files of those beside them: a program writes each of them in the same way."""

from collections.abc import Sequence

from worker.attempts.capture.captured import Candidate
from worker.attempts.capture.folders import FolderMatch
from worker.host.looks import Parts


def alike(candidates: Sequence[Candidate], *, since_ns: int) -> dict[Parts, bool]:
    """Returns the folders that have each name that another one beside them has, and beside which there is one; and
    whether that one was begun when they were written.

    `since_ns`: only of those that were written later, all by one attempt: of these at most the newest is torn.
    """
    groups: dict[Parts, list[Candidate]] = {}
    for item in candidates:
        if isinstance(item.match, FolderMatch) and _begun_ns(item) > since_ns:
            groups.setdefault(item.parts[:-1], []).append(item)
    return {
        item.parts: any(item.match.status.st_mtime_ns < _begun_ns(other) for other in beside)
        for beside in groups.values()
        for item in beside
        if len(beside) > 1 and all(_names(item) >= _names(other) for other in beside)
    }


def _begun_ns(item: Candidate) -> int:
    return min(file.status.st_mtime_ns for file in item.files)


def _names(item: Candidate) -> set[Parts]:
    return {file.parts[len(item.parts) :] for file in item.files}
