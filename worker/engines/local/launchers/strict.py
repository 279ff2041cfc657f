"""A launch at the level `strict`: the helper starts torchrun in a sandbox, as the user of the job's owner.

The processes of the attempt are not below the supervisor, and it may not signal them: the helper does. The end of the
connection to the helper kills the attempt, so a supervisor that is killed leaves nothing.
"""

from collections.abc import Mapping, Sequence
import contextlib
from dataclasses import replace
import errno
import signal
import socket

from torchyard.contract.attempts.records import LaunchPlan, ProcessIdentity
from torchyard.contract.attempts.rundir import Env, RunDir
from torchyard.host import unix_sockets
from torchyard.host.recordfiles import write_record
from worker.engines.local.entrance import Entrance
from worker.engines.local.launchers import logtail, strictness
from worker.engines.local.launchers.command import failures_of
from worker.engines.local.launchers.secrets import SecretServer
from worker.engines.local.launchers.torchrun import parse_failures, with_rank_variables
from worker.host import process
from worker.sandbox.strict import client, protocol
from worker.sandbox.strict.protocol import Ended, Refused, Started

_CONTROL_MODE = 0o711
"""Ranks, which are of another user, find what they know the name of: the stop request and the socket."""


class StrictLaunch:
    """torchrun's agent, started by the helper. Raises OSError if it cannot be started."""

    def __init__(self, plan: LaunchPlan, run: RunDir, secrets: Mapping[str, str]) -> None:
        assert plan.sandbox is not None
        assert plan.sandbox.strict is not None
        self.exit_code: int | None = None
        """As of the protocol. None while it runs."""
        self._plan, self._run, self._strict = plan, run, plan.sandbox.strict
        for folder in (run.ctl, run.shown):
            folder.chmod(_CONTROL_MODE)
        self._secrets = SecretServer(run.secrets, secrets, is_peer=self._is_peer) if secrets else None
        self._entrance = Entrance(run)
        self._door: socket.socket | None = unix_sockets.listen(run.door_inside, kind=socket.SOCK_SEQPACKET, mode=0o666)
        """Where the door connects. It is the first, as nothing of the job runs before."""
        try:
            self._connection, self._started = self._start()
        except OSError:
            self._close_sockets()
            raise

    @property
    def last_killed(self) -> None:
        return None

    def descriptors(self) -> Sequence[int]:
        own = [self._connection.fileno()] if self.exit_code is None else []
        sockets = [each.fileno() for each in (self._secrets, self._door) if each is not None]
        return [*own, *sockets, *self._entrance.descriptors()]

    def handle_events(self) -> None:
        """Raises OSError if the helper ended before the attempt."""
        if self._secrets is not None:
            self._secrets.answer()
        if self._door is not None:
            self._take_door(self._door)
        self._entrance.let_in()
        if self.exit_code is None and process.readable([self._connection.fileno()]):
            self.exit_code = self._receive_end()

    def child_exited(self, pid: int, code: int) -> None:
        pass

    def processes(self) -> list[ProcessIdentity]:
        return strictness.processes(self._started.init)

    def send(self, target: ProcessIdentity, number: signal.Signals) -> bool:
        """Signals a process, by way of the helper. SIGKILL ends the whole attempt."""
        if number is signal.SIGKILL:
            with contextlib.suppress(OSError):  # it has ended
                self._connection.shutdown(socket.SHUT_WR)
            return True
        return client.signal_process(self._strict, target, number, job_id=self._plan.job_id, attempt=self._plan.attempt)

    def failures(self) -> list[tuple[int, int]]:
        if self._plan.launcher == "command":
            return failures_of(self.exit_code)
        return parse_failures(logtail.tail_of_stderr(self._run, "launcher"))

    def stop(self) -> None:
        self._entrance.stop()

    def close(self) -> None:
        self._connection.close()
        self._close_sockets()

    def _close_sockets(self) -> None:
        self._entrance.close()
        self._close_door()
        if self._secrets is not None:
            self._secrets.close()

    def _take_door(self, listener: socket.socket) -> None:
        """Takes the connection of the door, if it is there, and no other one."""
        try:
            connection, _ = listener.accept()
        except BlockingIOError:
            return
        self._close_door()
        if self._is_peer(*unix_sockets.peer_of(connection)):
            self._entrance.use(connection)
        else:
            connection.close()

    def _close_door(self) -> None:
        if self._door is not None:
            self._door.close()
            self._run.door_inside.unlink(missing_ok=True)
            self._door = None

    def _start(self) -> tuple[socket.socket, Started]:
        """Writes the plan that the helper reads, and has it start the attempt."""
        plan = with_rank_variables(self._plan, self._run, secrets=self._secrets is not None)
        plan = replace(plan, env={**plan.env, Env.DOOR.value: str(self._run.door_inside.absolute())})
        if self._secrets is not None:
            self._run.secrets.chmod(0o666)  # its folder and `_is_peer` say who gets an answer
        write_record(self._run.launch, plan)
        connection, started = client.start(self._strict, job_id=plan.job_id, attempt=plan.attempt)
        write_record(self._run.init, started.init)
        return connection, started

    def _receive_end(self) -> int:
        try:
            message = protocol.receive(self._connection, Ended, Refused)
        except ValueError as error:
            raise OSError(errno.EPROTO, str(error)) from None
        if message is None:
            raise OSError(errno.EIO, "the helper of strict isolation ended")
        if isinstance(message, Refused):
            raise OSError(errno.EPROTO, message.why)
        return message.exit_code

    def _is_peer(self, pid: int, uid: int) -> bool:
        return uid == self._started.uid and pid in {item.pid for item in self.processes()}
