"""Reads the logs of an attempt: of its set-up, of its ranks and of its launchers, one for each node."""

from collections.abc import Sequence
import os
from pathlib import Path

from store.worker.records import Batch, NewLines
from torchyard.contract.attempts.rundir import RunDir
from worker.attempts.output.lines import Line, LineReader, as_text
from worker.attempts.output.logged import LoggedMetrics
from worker.attempts.output.order import Marks, merged
from worker.attempts.output.warnings import warn
from worker.packages.installation import LOG

_STREAMS = ("stdout", "stderr")
_MAX_LINE = 16_384
"""Bytes of a log line that are stored."""
_MAX_UNFINISHED = 1000
"""Bytes that are shown of a line without an end."""


class LogReader:
    """Reads the logs below `job`, the part of the run directory that the job may write."""

    def __init__(self, job: Path, *, world_size: int, nodes: int = 1, metrics: Sequence[str] = ()) -> None:
        self.unfinished: dict[tuple[int | None, str], str] = {}
        """By rank and stream: the newest text of the line that has no end so far. It is in no batch."""
        self._reader = LineReader(job)
        self._metrics = LoggedMetrics(metrics)
        self._folder = str(job)
        self._marks = {rank: Marks(job, f"rank-{rank}") for rank in range(world_size)}
        ranks = ((f"rank-{rank}", rank) for rank in range(world_size))
        launchers = ((RunDir.of_job(job).of_node(node).launcher, None) for node in range(nodes))
        self._sources: tuple[tuple[str, int | None], ...] = ((LOG, None), *ranks, *launchers)
        """The logs that it reads, with their ranks. The set-up and the launchers have none."""

    def read(self, batch: Batch, offsets: dict[str, int], *, final: bool) -> None:
        """Adds the next lines of each log to the batch, and moves its offset behind them. Raises OSError."""
        for source, rank in self._sources:
            before = (offsets.get(f"{source}.stdout", 0), offsets.get(f"{source}.stderr", 0))
            by_stream = {
                stream: self._read(f"{source}.{stream}", rank, stream, batch, offsets, final=final)
                for stream in self._by_age(source)
            }
            marks = self._marks[rank].read(before) if rank is not None and all(by_stream.values()) else []
            streams = _STREAMS if marks else [*by_stream]
            for number, run in merged([by_stream[stream] for stream in streams], marks):
                lines = [as_text(line, cut) for line, cut, _ in run]
                batch.lines.append(NewLines(rank=rank, stream=streams[number], lines=lines))

    def _read(
        self, name: str, rank: int | None, stream: str, batch: Batch, offsets: dict[str, int], *, final: bool
    ) -> Sequence[Line]:
        offset = offsets.get(name, 0)
        part = self._reader.read("logs", name, offset=offset, keep=_MAX_LINE, final=final, overwrites=True)
        for text in part.warnings:
            warn(batch, text)
        if part.offset != offset:
            offsets[name] = part.offset
        if part.unfinished is not None:
            text, cut, _ = part.unfinished
            left = max(0, len(text) - _MAX_UNFINISHED)
            self.unfinished[rank, stream] = as_text(text[: len(text) - left], cut + left)
        if rank == 0:
            self._metrics.read([line for line, _, _ in part.lines], batch, offsets)
        return part.lines

    def _by_age(self, source: str) -> Sequence[str]:
        """Returns the streams: the one that was written last comes last, as far as a clock tells."""
        at = [self._written_at(f"{source}.{stream}") for stream in _STREAMS]
        return _STREAMS if at[0] <= at[1] else [*reversed(_STREAMS)]

    def _written_at(self, name: str) -> int:
        try:
            return os.lstat(f"{self._folder}/logs/{name}").st_mtime_ns
        except OSError:
            return 0
