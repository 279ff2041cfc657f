"""The whole service on one machine: `torchyard up` starts it, restarts what dies, and stops it."""

from collections.abc import Callable, Mapping
import contextlib
from dataclasses import dataclass, field
import math
import os
from pathlib import Path
import shutil
import signal
import time
from types import FrameType

from torchyard.cli.up import address, programs, redis_server
from torchyard.cli.up.child import Child
from torchyard.cli.up.datadir import DataDir, last_lines
from torchyard.cli.up.environment import MAIL, environ, worker_variables
from torchyard.cli.up.forked import Forked, Starter
from torchyard.cli.up.held import say_who_holds_gpus
from torchyard.contract.errors import ConfigError, Conflict, Unavailable
from torchyard.host import inspection, tls
from torchyard.host.datadir import check_allowed_paths, make_files_private, redis_url
from torchyard.host.listening import check_token
from torchyard.host.privatefile import write_private

_START = 60.0
_WORKER_STOP, _API_STOP, _CONTROLLER_STOP, _REDIS_STOP = 50.0, 4.0, 1.0, 4.0
"""Seconds that each program may take to stop. The sum is less than a minute."""
_START_POLL_S, _RUN_POLL_S = 0.02, 0.2
"""Seconds between two checks of the programs: while they start, and while they run."""


@dataclass(frozen=True)
class Options:
    """The options of `torchyard up`. Without an address of a database or a Redis, the embedded one is used."""

    host: str
    port: int
    data_dir: Path
    cpu_slots: int | None = None
    allow_paths: Mapping[Path, bool] = field(default_factory=dict[Path, bool])
    """Folders below which jobs may name files, and whether they may write each of them."""
    database: str | None = None
    redis: str | None = None
    encrypts: bool = False
    """It speaks HTTPS, with `tls_files`, or else with a certificate of its own."""
    tls_files: tls.Tls | None = None
    idle_limit_s: float | None = None
    """It ends after so long without a job and without a request."""


class Service:
    """Runs Redis, the API, a worker and a controller as child processes. `say` is called with what the user is told."""

    def __init__(self, options: Options, *, say: Callable[[str], None]) -> None:
        self.data = DataDir(options.data_dir.absolute())
        self._options = options
        self._say = say
        self._children: list[Child] = []
        self._starter: Starter | None = None
        self._migration: Forked | None = None
        self._migration_log = self.data.logs / "migrations.log"
        self._signals = 0
        self._tls = options.tls_files or (tls.own(self.data.root) if options.encrypts else None)
        self._umask = 0
        """The operator's umask, which the jobs get."""

    def check(self) -> None:
        """Raises what `run` does before it starts a program: ConfigError and Conflict. Changes nothing."""
        programs.check_installed()
        self._check_options()
        self.data.check_free()
        address.free_port(self._options.host, self._options.port)

    @property
    def certificate_file(self) -> Path | None:
        """The file of `certificate`."""
        return None if self._tls is None else self._tls.certificate

    @property
    def certificate(self) -> str | None:
        """The certificate of the service that runs, None if it does not speak HTTPS. Raises ConfigError."""
        return None if self._tls is None else self._tls.text()

    def run(self, on_ready: Callable[[str, str], None]) -> None:
        """Serves until SIGINT, SIGTERM or SIGHUP. A second signal kills. `on_ready` is called with URL and token.

        Raises ConfigError if torchyard-server is not installed or an option cannot be used, Conflict if the data
        directory or the port is taken, Unavailable if a part does not come up.
        """
        programs.check_installed()
        inspection.forbid()
        self._check_options()
        self._umask = make_files_private()
        self._create_data_dir()
        with self.data.lock() as keep:
            for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
                if number != signal.SIGHUP or signal.getsignal(number) != signal.SIG_IGN:  # nohup stays nohup
                    signal.signal(number, self._on_signal)
            try:
                self._serve(keep, on_ready)
            except _StopRequested:
                self._say("Stopping. Running jobs get time to save, and return to the queue. Ctrl-C again kills.")
            finally:
                self._stop()

    def _check_options(self) -> None:
        check_allowed_paths(self.data.root, self._options.allow_paths)
        if self._options.tls_files is not None:
            self._options.tls_files.check()
        self.data.check_own()
        if self.data.token_file.exists():  # a new token is long enough
            check_token(self.data.token(), host=self._options.host, source=str(self.data.token_file))

    def _create_data_dir(self) -> None:
        try:
            self.data.create()
        except OSError as error:
            raise ConfigError(f"the data directory cannot be made: {error}") from None

    def _serve(self, keep: int, on_ready: Callable[[str, str], None]) -> None:
        starter = self._open_starter()
        say_who_holds_gpus(self._say)
        host, port = self._options.host, self._port()
        scheme = "http" if self._tls is None else "https"
        url, token = f"{scheme}://{address.authority(address.connectable(host), port)}", self.data.token()
        redis = self._options.redis or self._start_redis(keep)
        api, worker = self._api_environment(redis, port=port, token=token), self._worker_environment(redis, url=url)
        # The API starts meanwhile, and answers 503 until the migration is done.
        self._start_migration(starter, keep)
        self._add("api", programs.argv("api"), env=api, keep=keep, starter=starter)
        self._wait_until(self._migrated, what="the database is not migrated", within=math.inf)
        self._add("worker", programs.argv("worker"), env=worker, keep=keep, starter=starter)
        self._wait_until(self._all_forked, what="the programs were not started")
        self._wait_until(lambda: self._is_ready(url), what="the service is not ready")
        self.data.keep_port(port)
        self._publish(url, token)
        on_ready(url, token)
        # Nobody waits for what it does, so it starts when the others have.
        env = self._controller_environment(redis)
        self._add("controller", programs.argv("controller"), env=env, keep=keep, starter=starter)
        from torchyard.cli.up.idle import Idleness  # HTTP is loaded while nothing waits for the service

        idle_limit = self._options.idle_limit_s
        idleness = (
            None if idle_limit is None else Idleness(url, token, certificate=self.certificate, limit_s=idle_limit)
        )
        while idleness is None or not idleness.is_over():
            self._check_signals()
            if self._restart_dead() or self._last_was_forked():
                self._publish(url, token)
            time.sleep(_RUN_POLL_S)
        self._say("Stopping: the service was not used.")

    def _is_ready(self, url: str) -> bool:
        if self._tls is not None and not self._tls.certificate.exists():  # the API makes its own
            return False
        return address.ready(url, self.certificate)

    def _port(self) -> int:
        """Returns the port to listen on. Of any free one, it is that of the last service here, so that logins hold."""
        host, wanted = self._options.host, self._options.port
        if wanted == 0 and (last := self.data.last_port()):
            with contextlib.suppress(Conflict, ConfigError):
                return address.free_port(host, last)
        return address.free_port(host, wanted)

    def _api_environment(self, redis: str, *, port: int, token: str) -> dict[str, str]:
        return {
            **self._settings(redis),
            "TORCHYARD_TOKEN": token,
            "TORCHYARD_HOST": self._options.host,
            "TORCHYARD_PORT": str(port),
            **self._tls_settings(),
        }

    def _tls_settings(self) -> dict[str, str]:
        if self._tls is None:
            return {}
        if self._options.tls_files is None:
            return {"TORCHYARD_TLS": "1"}
        return {"TORCHYARD_TLS_CERTIFICATE": str(self._tls.certificate), "TORCHYARD_TLS_KEY": str(self._tls.key)}

    def _worker_environment(self, redis: str, *, url: str) -> dict[str, str]:
        options = self._options
        own = worker_variables(cpu_slots=options.cpu_slots, allow_paths=options.allow_paths, umask=self._umask)
        return {**self._settings(redis), **own, **self._api_address(url)}

    def _api_address(self, url: str) -> dict[str, str]:
        """Returns where a worker of this host reaches the API."""
        known = {"TORCHYARD_API_URL": url}
        return known if self._tls is None else {**known, "TORCHYARD_API_CERTIFICATE": str(self._tls.certificate)}

    def _controller_environment(self, redis: str) -> dict[str, str]:
        """It alone gets the password of the mail server."""
        mail = {name: os.environ[name] for name in (MAIL,) if name in os.environ}
        return {**self._settings(redis), **mail}

    def _settings(self, redis: str) -> dict[str, str]:
        """Returns the variables of a program that serves."""
        return {**environ(settings=True), **self._database(), "TORCHYARD_REDIS_URL": redis}

    def _database(self) -> dict[str, str]:
        """Returns the settings that all programs of ours need."""
        return {
            "TORCHYARD_DATA_DIR": str(self.data.root),
            "TORCHYARD_DATABASE_URL": self._options.database or f"sqlite:///{self.data.root / 'torchyard.db'}",
        }

    def _start_redis(self, keep: int) -> str:
        folder = self.data.redis
        write_private(redis_server.users_file(folder), redis_server.users(self.data.redis_password()))
        path = redis_server.socket_in(folder)
        command = redis_server.argv(redis_server.find_binary(), folder=folder, socket_path=path)
        self._add("redis", command, env=environ(), keep=keep)
        return redis_url(folder, socket=path)

    def _start_migration(self, starter: Starter, keep: int) -> None:
        env = {**environ(), **self._database()}
        with self._migration_log.open("wb") as output:
            self._migration = starter.start("migrations", env=env, log=output.fileno(), keep=keep)

    def _migrated(self) -> bool:
        assert self._migration is not None
        code = self._migration.poll()
        if code:
            log = self._migration_log
            raise Unavailable(f"the database cannot be migrated (exit code {code}), see {log}\n{last_lines(log)}")
        return code == 0

    def _open_starter(self) -> Starter:
        env = {**environ(), "TORCHYARD_DATA_DIR": str(self.data.root)}  # nothing secret: its forks inherit it
        self._starter = Starter(("migrations", "api", "worker", "controller"), env=env, log=self.data.logs / "api.log")
        return self._starter

    def _close_starter(self) -> None:
        if self._starter is not None:
            self._starter.close()
            self._starter = None

    def _last_was_forked(self) -> bool:
        """Closes the starter after its last fork. Returns whether it has done so."""
        if self._starter is None or not self._all_forked():
            return False
        self._close_starter()
        return True

    def _all_forked(self) -> bool:
        return all(child.pid is not None for child in self._children)

    def _add(
        self, name: str, argv: list[str], *, env: dict[str, str], keep: int, starter: Starter | None = None
    ) -> None:
        child = Child(name, argv, env=env, log=self.data.logs / f"{name}.log", keep=keep)
        self._children.append(child)
        child.start(starter)

    def _wait_until(self, condition: Callable[[], bool], *, what: str, within: float = _START) -> None:
        """Waits for the condition. Raises Unavailable if a child dies or `within` seconds pass."""
        deadline = time.monotonic() + within
        while not condition():
            self._check_signals()
            for child in self._children:
                if (how := child.died()) is not None:
                    raise Unavailable(f"{child.name} {how}, see {child.log}\n{last_lines(child.log)}")
            if time.monotonic() > deadline:
                raise Unavailable(f"{what} after {within:g} s, see {self.data.logs}")
            time.sleep(_START_POLL_S)

    def _restart_dead(self) -> bool:
        started = False
        for child in self._children:
            if (how := child.died()) is not None:
                why = f"\n  {error}" if (error := child.last_error()) is not None else ""
                self._say(f"{child.name} {how}; restarting in {child.pause:g} s. Its log: {child.log}{why}")
            if child.due:
                child.start()
                started = True
        return started

    def _publish(self, url: str, token: str) -> None:
        processes = {child.name: child.pid for child in self._children if child.pid is not None}
        self.data.publish(url=url, token=token, certificate=self.certificate, processes=processes)

    def _check_signals(self) -> None:
        if self._signals:
            raise _StopRequested

    def _on_signal(self, _number: int, _frame: FrameType | None) -> None:
        self._signals += 1
        if self._signals == 1:
            return
        for child in self._children:
            child.kill()
        self._remove_files()
        os._exit(1)

    def _stop(self) -> None:
        """Stops the worker first, while it can still use the API and Redis, and Redis last.

        The controller ends meanwhile: it may be killed at any moment.
        """
        self._close_starter()
        if self._migration is not None and self._migration.poll() is None:
            self._migration.send_signal(signal.SIGKILL)  # a migration is one transaction
            self._migration.wait()
        limits = {
            "worker": (signal.SIGINT, _WORKER_STOP),
            "api": (signal.SIGTERM, _API_STOP),
            "controller": (signal.SIGTERM, _CONTROLLER_STOP),
            "redis": (signal.SIGTERM, _REDIS_STOP),
        }
        by_name = {child.name: child for child in self._children}
        if "controller" in by_name:
            by_name["controller"].ask_to_stop()
        for name, (number, within) in limits.items():
            if name in by_name and not by_name[name].stop(number, within=within):
                self._say(f"{name} did not stop within {within:g} s and was killed. Its log: {by_name[name].log}")
        self._remove_files()

    def _remove_files(self) -> None:
        self.data.server_file.unlink(missing_ok=True)
        path = redis_server.socket_in(self.data.redis)
        if path.parent != self.data.redis:
            shutil.rmtree(path.parent, ignore_errors=True)


class _StopRequested(Exception):
    """A signal has asked the service to stop."""
