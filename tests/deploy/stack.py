"""The services of docker-compose.yml as processes of this host, with their own commands, variables and health checks.

Replaced is what containers have of their own: the network's names and ports, and the folders of the volumes.
"""

from collections.abc import Mapping, Sequence
import os
from pathlib import Path
import re
import signal
import subprocess
from typing import Any

from compose_spec import parse_duration

from tests.deploy.compose import image_health, load, substituted
from tests.e2e.service import until

_PORTS = re.compile(r"\b(5432|6379|8000)\b")
_STOPPED_AFTER = "10s"
"""What Compose grants where `stop_grace_period` is absent."""


class Stack:
    """`ports` maps the file's ports to free ones; `programs` are folders of programs that the images contain."""

    def __init__(
        self, folder: Path, variables: Mapping[str, str], *, ports: Mapping[int, int], programs: Sequence[Path]
    ) -> None:
        self._folder = folder
        self._services: dict[str, dict[str, Any]] = load(variables)["services"]
        self._ports = ports
        self._path = os.pathsep.join([*map(str, programs), os.environ["PATH"]])
        self._processes: dict[str, subprocess.Popen[bytes]] = {}

    def environment(self, name: str) -> dict[str, str]:
        return self._local(name, self._services[name].get("environment", {}))

    def run(self, name: str) -> subprocess.CompletedProcess[str]:
        """Runs a service that ends by itself."""
        argv = self._local(name, self._services[name]["command"])
        return subprocess.run(
            argv, env=self._environ(name), cwd=self._folder, capture_output=True, text=True, check=False
        )

    def start(self, name: str) -> None:
        """Starts a service; it is healthy when this returns."""
        self._mount(name)
        argv = self._local(name, self._services[name]["command"])
        with (self._folder / f"{name}.log").open("ab") as log:
            self._processes[name] = subprocess.Popen(
                argv,
                env=self._environ(name),
                cwd=self._folder,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        until(lambda: self.healthy(name), what=f"{name} is healthy", context=lambda: self.log(name))

    def healthy(self, name: str) -> bool:
        """Whether the declared health check passes. A service that was started must still run."""
        process = self._processes.get(name)
        assert process is None or process.poll() is None, self.log(name)
        check = self._services[name].get("healthcheck", {})
        kind, *rest = self._local(name, check.get("test") or image_health())
        argv = rest if kind == "CMD" else ["/bin/sh", "-c", *rest]
        done = subprocess.run(argv, env=self._environ(name), cwd=self._folder, capture_output=True, check=False)
        return done.returncode == 0

    def stop(self, name: str) -> int:
        """Stops a service by its declared signal within its grace period, and returns its exit code."""
        service, process = self._services[name], self._processes.pop(name)
        process.send_signal(signal.Signals[service.get("stop_signal", "SIGTERM")])
        try:
            return process.wait(parse_duration(service.get("stop_grace_period", _STOPPED_AFTER)))
        finally:
            process.kill()
            process.wait()

    def stop_all(self) -> list[int]:
        """Stops the running services in reverse order."""
        return [self.stop(name) for name in reversed([*self._processes])]

    def log(self, name: str) -> str:
        return (self._folder / f"{name}.log").read_text(errors="replace")[-4000:]

    def _environ(self, name: str) -> dict[str, str]:
        return {"PATH": self._path, "HOME": str(self._folder / name), **self.environment(name)}

    def _mount(self, name: str) -> None:
        """Links the named volumes into the service's folder, outer before inner; a bound folder keeps its path."""
        root = self._folder / name
        for volume in self._services[name].get("volumes", ()):
            source, target, *_ = volume.split(":")
            if source.startswith("/"):
                assert source == target
                continue
            held, place = self._folder / "volumes" / source, root / target.lstrip("/")
            held.mkdir(parents=True, exist_ok=True)
            place.parent.mkdir(parents=True, exist_ok=True)
            if not place.is_symlink():
                place.symlink_to(held)

    def _local(self, name: str, node: Any) -> Any:
        def change(text: str) -> str:
            text = re.sub(r"@(postgres|redis):", "@127.0.0.1:", text).replace("0.0.0.0", "127.0.0.1")
            text = _PORTS.sub(lambda found: str(self._ports[int(found[0])]), text)
            return re.sub(r"(?<![\w/.-])/data\b", str(self._folder / name / "data"), text)

        return substituted(node, change)
