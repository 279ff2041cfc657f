"""The files of a working folder that are not stored, of which a message tells, by the folder at the top."""

from dataclasses import dataclass, field
import shlex

from torchyard.contract.wire.text import printable
from torchyard.host import terminal
from worker.host.mask import Mask

_MOST_NAMED = 10
_MOST_GROUPS = 1000
"""Beyond them, what is not kept is counted together."""
_LONGEST = 100
"""Characters of a name that are shown."""
REST = "the rest"
BEGINS = "not kept: "
"""Begins the message."""
STILL = ", still on "
"""Begins what it says of the host."""


@dataclass
class _Group:
    files: int = 0
    size: int = 0
    whys: dict[str, None] = field(default_factory=dict[str, None])


class NotKept:
    """`mask`: hides the values of secrets in names."""

    def __init__(self, mask: Mask) -> None:
        self._mask = mask
        self._groups: dict[str, _Group] = {}
        self._cut: str | None = None

    def add(self, path: str, *, size: int, why: str = "") -> None:
        """Notes a file. `why`: if there is another reason than that there is no room for it."""
        top, below, _ = path.partition("/")
        name = top + below
        if name not in self._groups and len(self._groups) >= _MOST_GROUPS:
            name = REST
        group = self._groups.setdefault(name, _Group())
        group.files += 1
        group.size += size
        if why and len(group.whys) < _MOST_NAMED:
            group.whys[why] = None

    def cut(self, why: str) -> None:
        """Notes that not all files were looked at."""
        self._cut = why

    def message(self, hint: str) -> str | None:
        """Returns the message, or None if all is kept. `hint`: what to do, in front of the names of the folders."""
        groups = sorted(self._groups.items(), key=lambda item: (-item[1].size, item[0]))
        named = [self._describe(name, group) for name, group in groups[:_MOST_NAMED]]
        if len(groups) > _MOST_NAMED:
            more = groups[_MOST_NAMED:]
            size = terminal.size(sum(group.size for _, group in more))
            named.append(f"and {len(more)} more ({size})")
        if self._cut is not None:
            named.append(f"{REST} ({self._cut})")
        if not named:
            return None
        paths = [shlex.quote(name) for name, _ in groups[:_MOST_NAMED] if name != REST and self._shown(name) == name]
        return f"{BEGINS}{', '.join(named)}" + (" ".join([hint, *paths]) if hint and paths else "")

    def _describe(self, name: str, group: _Group) -> str:
        files = f"{group.files} file{'' if group.files == 1 else 's'}, " if name.endswith("/") or name == REST else ""
        return f"{self._shown(name)} ({', '.join([files + terminal.size(group.size), *group.whys])})"

    def _shown(self, name: str) -> str:
        return printable(self._mask.text(name))[:_LONGEST]
