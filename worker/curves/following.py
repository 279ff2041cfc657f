"""Follows the files with curves of one attempt as they grow, and returns what they have as points.

This process finds the files, opens them and reads their bytes. What the bytes mean, another one finds out, which is
started when there is the first file.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
import os
from pathlib import Path
import stat
from typing import BinaryIO

from store.worker.records import MetricPoint
from torchyard.contract.errors import DataError
from torchyard.contract.wire.text import METRIC_KEY_LENGTH, storable
from torchyard.host.untrusted import open_inside
from worker.curves import keys, parsed
from worker.curves.brought import Brought
from worker.curves.budget import Budget
from worker.curves.child import Child, Failed, Parser
from worker.curves.kinds import DATABASE, EVENTS, LINES, kind_of, metric_of
from worker.curves.looking import LOOK_S, Looking
from worker.curves.parsed import MOST_RECORD, Notice, Parsed, Part
from worker.curves.snapshots import Snapshots
from worker.host.looks import Parts
from worker.host.mask import Mask

_CHUNK = 1 << 18
_CALL = 1 << 20
"""Bytes that one call reads of all files together, at most."""
_MOST_DETAIL = 200
_WAIT_S = 0.1
"""How long one call waits for the process that parses. What it has not answered, a later call takes."""
WAIT_AT_END_S = 1.0
MOST_FAILURES = 10
"""How often the process that parses may end before nothing more is read."""


@dataclass
class CurvesRead:
    """What one call has read. `offsets`: the bytes or rows of each file that are stored with it."""

    offsets: dict[str, int] = field(default_factory=dict[str, int])
    points: dict[str, list[MetricPoint]] = field(default_factory=dict[str, list[MetricPoint]])
    """By their source."""
    warnings: list[str] = field(default_factory=list[str])


@dataclass(frozen=True)
class _Asked:
    """A part of a file that is parsed. `offset`: what is stored of it. `warnings`: what to say with its points."""

    name: str
    parts: Parts
    part: Part
    offset: int
    warnings: tuple[str, ...] = ()


class CurveFiles:
    """The files with curves below `root`. `job`: as of `finding.find`.

    `brought`: those that were there before the attempt. Of these only what is not read yet is read. `since_ms`: when
    the job's folder was made. Close it in the end.
    """

    def __init__(
        self,
        root: Path,
        job: Parts = (),
        *,
        brought: Brought | None = None,
        since_ms: int = 0,
        mask: Mask | None = None,
        look_s: float = LOOK_S,
        parser: Parser | None = None,
    ) -> None:
        self._root = root
        self._brought = brought or Brought()
        self._mask = mask or Mask()
        self._looking = Looking(root, job, brought=self._brought, look_s=look_s)
        self._snapshots = Snapshots(since_ms)
        self._parser = parser or Child()
        self._asked: list[_Asked] = []
        """What is parsed, and not answered yet."""
        self._is_asked = False
        """Whether the parser was asked for it."""
        self._fruitless: dict[str, int] = {}
        """Sizes of files in which nothing whole was found behind what is stored."""
        self._given_up: set[str] = set()
        """The names of files that cannot be read any further."""
        self._suspects: dict[str, int] = {}
        """Files that are parsed alone, as the parser has failed: how often it failed with each alone."""
        self._failures = 0
        self._warned: set[str] = set()
        self._budget = Budget()
        self._has_ended = self._has_looked = self._has_asked = False
        """Whether all processes have ended, it has looked since, and the last call had anything to parse."""

    @property
    def unfinished(self) -> bool:
        """Whether files wait to be compared or parsed after all processes have ended: then `read` has more to do."""
        goes_on = self._has_asked or self._snapshots.has_more or self._looking.has_waiting or not self._has_looked
        return self._has_ended and goes_on and self._failures < MOST_FAILURES

    def read(self, offsets: Mapping[str, int], *, final: bool) -> CurvesRead:
        """Reads at most 256 KiB of each file behind its offset, 1 MiB of all, and 512 KiB of all in a second.

        What is found may come with a later call. `final`: all processes have ended, so nothing is to wait for: up to
        64 MiB are read as fast as they are asked for. Raises OSError.
        """
        new = CurvesRead()
        if self._failures >= MOST_FAILURES:
            return new
        self._has_ended = final
        if not self._asked:
            if self._looking.is_due or (final and (self._looking.has_waiting or not self._has_looked)):
                new.warnings += self._looking.look(offsets.keys())
            self._has_looked = final
            self._budget.refill(final=final)
            self._asked = self._next_parts(offsets, new, final=final)
        self._has_asked = bool(self._asked)
        if self._asked:
            try:
                self._take(final=final, new=new)
            except Failed as failure:
                self._note_failure(failure, new)
        return new

    def close(self) -> None:
        """Ends the process that parses."""
        self._parser.close()

    def _next_parts(self, offsets: Mapping[str, int], new: CurvesRead, *, final: bool) -> list[_Asked]:
        """Returns what to parse next: a database alone, or parts of other files."""
        for name, parts in self._looking.files.items():
            if not kind_of(parts).is_database or name in self._given_up:
                continue
            if (one := self._database(name, parts, self._offset(name, offsets), new, final=final)) is not None:
                return [one]
        asked: list[_Asked] = []
        end = self._budget.left - _CALL
        for name, parts in self._looking.files.items():
            offset = self._offset(name, offsets)
            if kind_of(parts).is_database or name in self._given_up or self._has_nothing_new(name, parts, offset):
                continue
            if asked and name in self._suspects:
                continue
            if self._budget.left <= 0 and final:
                self._warn("late", "more than 64 MiB of metric files were unread: some points are missing", new)
            if self._budget.left <= max(end, 0):
                break
            if (one := self._part(name, parts, offset, new)) is not None:
                asked.append(one)
                if name in self._suspects:
                    break
        return asked

    def _take(self, *, final: bool, new: CurvesRead) -> None:
        """Adds the answer of the parser to `found`, if it is there. Raises Failed."""
        if not self._is_asked:
            self._is_asked = True
            self._parser.ask(parsed.question_of([one.part for one in self._asked]))
        answer = self._parser.answer(WAIT_AT_END_S if final else _WAIT_S)
        if answer is None:
            return
        try:
            results = parsed.parsed_of(answer, [one.part for one in self._asked])
        except ValueError as error:
            self._parser.close()
            raise Failed(f"has given no answer: {error}") from None
        asked, self._asked, self._is_asked = self._asked, [], False
        for one, result in zip(asked, results, strict=True):
            self._suspects.pop(one.name, None)
            self._add(one, result, new)

    def _note_failure(self, failure: Failed, new: CurvesRead) -> None:
        """Has the same parts parsed again, each alone; one with which the parser fails twice is given up."""
        asked, self._asked, self._is_asked = self._asked, [], False
        self._failures += 1
        if self._failures >= MOST_FAILURES:
            new.warnings.append(f"the process that reads metric files {failure} again; stopped reading")
            return
        self._warn("failure", f"the process that reads metric files {failure}; restarting it", new)
        for one in asked:
            self._snapshots.forget(one.name)
            self._suspects[one.name] = self._suspects.get(one.name, 0) + (len(asked) == 1)
            if self._suspects[one.name] > 1:
                text = f"{self._shown(one.parts)} cannot be parsed: the process that does it {failure}"
                self._give_up(one.name, text, new)

    def _database(self, name: str, parts: Parts, offset: int, new: CurvesRead, *, final: bool) -> _Asked | None:
        file = self._opened(name, parts, new)
        if file is None:
            return self._snapshots.forget(name)
        with file:
            try:
                part = self._snapshots.take(name, self._path(parts), file, offset, final=final)
            except DataError as error:
                self._snapshots.forget(name)
                return self._give_up(name, f"{self._shown(parts)} {error.message}, and is not read", new)
        return None if part is None else _Asked(name, parts, part, offset)

    def _part(self, name: str, parts: Parts, offset: int, new: CurvesRead) -> _Asked | None:
        file = self._opened(name, parts, new)
        if file is None:
            return None
        with file:
            size, begin, warnings = os.fstat(file.fileno()).st_size, offset, ()
            if size < offset:
                warnings = (f"{self._shown(parts)} became shorter: reading it again from its start",)
                begin = self._brought.end_in(file)
            data = os.pread(file.fileno(), _CHUNK, begin)
        self._budget.left -= len(data)
        kind = kind_of(parts)
        metric = metric_of(parts) if kind is LINES else ""
        return _Asked(
            name, parts, Part(kind=kind.name, offset=begin, size=size, data=data, metric=metric), offset, warnings
        )

    def _add(self, asked: _Asked, result: Parsed, new: CurvesRead) -> None:
        name, parts, part = asked.name, asked.parts, asked.part
        new.warnings += asked.warnings
        if result.offset != asked.offset:
            new.offsets[name] = result.offset
            self._fruitless.pop(name, None)
        elif not kind_of(parts).is_database:
            self._fruitless[name] = part.size
        if part.kind == DATABASE.name:
            self._snapshots.note(name, result.offset, more=result.more)
        points = new.points.setdefault(kind_of(parts).source, []) if result.points else []
        for tag, step, value, written in result.points:
            key = keys.key_of(tag, parts, self._looking.folders, self._mask)
            if key is not None:
                points.append(MetricPoint(key, step, value, written))
                continue
            text = f"a tag must be text of 1 to {METRIC_KEY_LENGTH} characters, and is left out"
            self._warn("tag", f"{self._shown(parts)}: {text}: {keys.start_of(tag, self._mask)!r}", new)
        for notice in result.notices:
            self._warn_of(notice, name, parts, offset=result.offset, new=new)

    def _warn_of(self, notice: Notice, name: str, parts: Parts, *, offset: int, new: CurvesRead) -> None:
        shown, detail = self._shown(parts), storable(notice.detail)[:_MOST_DETAIL]
        match notice.topic:
            case parsed.LARGE:
                text = f"{shown} has records of more than {MOST_RECORD} bytes, which are left out"
                self._warn(f"{name} large", text, new)
            case parsed.MALFORMED:
                what = "an event" if kind_of(parts) is EVENTS else "something"
                self._warn("malformed", f"cannot read {what} of {shown}: {detail}", new)
            case parsed.STEP:
                what = "an event" if kind_of(parts) is EVENTS else "a value"
                self._warn("step", f"left out {what} of {shown} at step {detail}", new)
            case parsed.SHORTER:
                new.warnings.append(f"{shown} became shorter: reading it again from its start")
            case _:
                self._give_up(name, f"{shown} is damaged at byte {offset}, and is not read further", new)

    def _opened(self, name: str, parts: Parts, new: CurvesRead) -> BinaryIO | None:
        try:
            return open_inside(self._root, *self._looking.located(parts))
        except DataError as error:
            return self._give_up(name, f"{storable(error.message)}, and is not read", new)
        except PermissionError:
            return self._give_up(name, f"{self._shown(parts)} cannot be opened", new)

    def _has_nothing_new(self, name: str, parts: Parts, offset: int) -> bool:
        """Returns True if the file surely has nothing new."""
        try:
            status = os.lstat(self._path(parts))
        except OSError:
            return False
        return status.st_size in {offset, self._fruitless.get(name)} and stat.S_ISREG(status.st_mode)

    def _offset(self, name: str, offsets: Mapping[str, int]) -> int:
        return offsets.get(name, self._looking.starts.get(name, 0))

    def _path(self, parts: Parts) -> Path:
        return self._root.joinpath(*self._looking.located(parts))

    def _give_up(self, name: str, text: str, new: CurvesRead) -> None:
        self._given_up.add(name)
        new.warnings.append(text)

    def _shown(self, parts: Parts) -> str:
        return storable(self._mask.text("/".join(parts)))[-200:]

    def _warn(self, topic: str, text: str, new: CurvesRead) -> None:
        """Warns once about each topic."""
        if topic not in self._warned:
            self._warned.add(topic)
            new.warnings.append(text)
