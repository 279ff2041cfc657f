"""Finds the training programs of an attempt that is asked to stop: those that have a handler of SIGTERM.

A job may start its program by a shell, torchrun, uv, or a program that waits for another one. SIGTERM would end these
at once, and all below them with it: so they come last.
"""

from collections.abc import Collection, Iterable
from dataclasses import dataclass, field
from typing import Literal

from torchyard.contract.attempts.records import ProcessIdentity
from worker.engines.local.supervisor.commands import Commands
from worker.host.proctable import Process, read_table

_Kind = Literal["program", "child", "loader", "helper"]
"""`child`: of multiprocessing. `loader`: of data. `helper`: what a library of Python has started, such as wandb's."""


@dataclass(frozen=True)
class Stoppable:
    """The processes to stop, as one look at the process table has them."""

    programs: list[ProcessIdentity] = field(default_factory=list[ProcessIdentity])
    """Those to be asked to stop: of each branch the topmost that has a handler, or a rank with none below it."""
    children: list[ProcessIdentity] = field(default_factory=list[ProcessIdentity])
    """Children of multiprocessing with a handler. They may save something, and must get no signal."""
    launchers: list[ProcessIdentity] = field(default_factory=list[ProcessIdentity])
    """Ranks that come last."""

    def waited_for(self) -> set[ProcessIdentity]:
        return {*self.programs, *self.children}


class Programs:
    """The programs of ranks and below them, with those whose parents have ended since the first look."""

    def __init__(self) -> None:
        self._kinds: dict[ProcessIdentity, _Kind] = {}
        """Of all processes that were seen below a rank and run."""

    def look(self, ranks: Iterable[ProcessIdentity]) -> Stoppable:
        table, stoppable = read_table(), Stoppable()
        roots = [rank for rank in ranks if _runs(rank, table)]
        self._kinds = {item: kind for item, kind in self._kinds.items() if _runs(item, table)}
        tree = _Tree(table)
        self._note_below([*roots, *self._kinds], tree)
        known = {item.pid for item in (*roots, *self._kinds)}
        for root in roots:
            _add(stoppable, root, self._find(tree.children(root.pid), tree), tree.commands)
        orphans = [table[item.pid] for item in self._kinds if table[item.pid].parent not in known]
        left = self._find(orphans, tree)
        stoppable.programs.extend(left.programs)
        stoppable.children.extend(left.children)
        return stoppable

    def _note_below(self, processes: Collection[ProcessIdentity], tree: "_Tree") -> None:
        """Notes of what kind all are that run below these. A process that loses its parent stays what it is."""
        pending, seen = [item.pid for item in processes], set[int]()
        while pending:
            parent = pending.pop()
            for child in tree.children(parent):
                if child.pid not in seen:
                    seen.add(child.pid)
                    pending.append(child.pid)
                    self._kinds[child.identity] = _kind(child.pid, parent, tree.commands)

    def _find(self, processes: Iterable[Process], tree: "_Tree") -> Stoppable:
        """Returns the topmost that have a handler, of these processes and what is below them."""
        stoppable, pending = Stoppable(), [*processes]
        while pending:
            item = pending.pop()
            kind = self._kinds[item.identity]
            if kind == "loader":
                continue
            if tree.commands.launches(item.pid) or not tree.commands.handles_sigterm(item.pid):
                pending.extend(tree.children(item.pid))
            elif kind == "program":
                stoppable.programs.append(item.identity)
            elif kind == "child":
                stoppable.children.append(item.identity)
        return stoppable


class _Tree:
    """The processes of one look, by their parents."""

    def __init__(self, table: dict[int, Process]) -> None:
        self.commands = Commands()
        self._children: dict[int, list[Process]] = {}
        for process in table.values():
            if process.running:
                self._children.setdefault(process.parent, []).append(process)

    def children(self, pid: int) -> list[Process]:
        return self._children.get(pid, [])


def _add(stoppable: Stoppable, rank: ProcessIdentity, below: Stoppable, commands: Commands) -> None:
    """Adds a rank and what is below it. A rank with a handler tells those below it by itself, as in a terminal."""
    launches = commands.launches(rank.pid)
    if not launches and (commands.handles_sigterm(rank.pid) or not below.waited_for()):
        stoppable.programs.append(rank)
        return
    stoppable.launchers.append(rank)
    stoppable.programs.extend(below.programs)
    stoppable.children.extend(below.children)


def _kind(pid: int, parent: int, commands: Commands) -> _Kind:
    if commands.loads_data(pid):
        return "loader"
    if commands.launches(pid):
        return "program"
    if commands.is_child_of_multiprocessing(pid, parent):
        return "child"
    return "helper" if commands.is_python(parent) and not commands.is_python(pid) else "program"


def _runs(process: ProcessIdentity, table: dict[int, Process]) -> bool:
    entry = table.get(process.pid)
    return entry is not None and entry.running and entry.start_time == process.start_time
