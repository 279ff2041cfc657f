"""What one attempt may store. The rest is dropped, one message says so, and the job goes on.

States, progress, checkpoints, and messages of the service are never dropped.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from store.rows.logs import NewLines

_MESSAGE_ROW_BYTES = 100
"""What a stored message takes besides its text."""


@dataclass(frozen=True)
class OutputLimits:
    """What of one attempt's output is stored. None: all."""

    log_bytes: int | None = 64 << 20
    message_bytes: int | None = 4 << 20
    artifacts: int | None = 1000
    """Files of one job."""
    artifact_bytes: int | None = 10 << 30
    """Bytes of these files."""


DEFAULTS = OutputLimits()


class OutputMeter:
    """Counts what an attempt stores, and drops what is beyond its limits.

    `log_bytes`, `message_bytes` and `cut` are columns of the attempt's row. `rest`: where its files are.
    """

    def __init__(self, limits: OutputLimits, log_bytes: int, message_bytes: int, cut: str, *, rest: str) -> None:
        self.cut = cut.split()
        """The outputs of which a part is not stored."""
        self.notices: list[str] = []
        """The messages to store: one for each output that is cut from now on."""
        self._limits = limits
        self._log_bytes = log_bytes
        self._message_bytes = message_bytes
        self._rest = rest

    @property
    def columns(self) -> tuple[int, int, str]:
        """What the attempt's row is to have: `log_bytes`, `message_bytes` and `cut`."""
        return self._log_bytes, self._message_bytes, " ".join(self.cut)

    def mark_cut(self, output: str, notice: str) -> None:
        """Notes that a part of `output` is not stored. Only the first notice about an output counts."""
        if output not in self.cut:
            self.cut.append(output)
            self.notices.append(notice)

    def take_lines(self, new: Sequence[NewLines]) -> list[NewLines]:
        """Returns the lines to store: the first ones, as many as fit."""
        return [replace(chunk, lines=self._fitting(chunk.lines)) for chunk in new]

    def takes_message(self, text: str) -> bool:
        """Returns whether a message of the job is to be stored."""
        size, limit = len(text.encode()) + _MESSAGE_ROW_BYTES, self._limits.message_bytes
        if "messages" not in self.cut and (limit is None or self._message_bytes + size <= limit):
            self._message_bytes += size
            return True
        self.mark_cut("messages", self._notice("messages", limit, "TORCHYARD_MAX_MESSAGE_BYTES"))
        return False

    def _fitting(self, lines: Sequence[str]) -> list[str]:
        if "log" in self.cut:
            return []
        limit = self._limits.log_bytes
        for place, line in enumerate(lines):
            size = len(line.encode()) + 1
            if limit is not None and self._log_bytes + size > limit:
                self.mark_cut("log", self._notice("log", limit, "TORCHYARD_MAX_LOG_BYTES"))
                return list(lines[:place])
            self._log_bytes += size
        return list(lines)

    def _notice(self, output: str, limit: int | None, setting: str) -> str:
        return (
            f"no more of this attempt's {output} is stored: the limit of {limit} bytes is reached ({setting} of the"
            f" worker); the rest is in the files of {self._rest}"
        )
