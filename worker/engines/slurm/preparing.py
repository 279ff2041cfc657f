"""Prepares one node for its part of an attempt."""

from collections.abc import Mapping
import os
from pathlib import Path
import re
import socket
import time

from torchyard.contract.attempts.records import NodePart
from torchyard.contract.attempts.rundir import RunDir
from torchyard.contract.cluster.devices import DeviceReport, IsolationReport
from torchyard.contract.errors import ConfigError
from torchyard.contract.wire.version import own_version
from torchyard.host.datadir import enter_empty_folder
from torchyard.host.recordfiles import write_record
from torchyard.host.untrusted import read_untrusted
from worker.devices import inventory
from worker.devices.inventory import Nvml
from worker.engines.local.confinement import Confinement
from worker.engines.local.environment import inherited
from worker.engines.local.launch_plans import launch_plan
from worker.engines.local.launchers.base import Launcher
from worker.engines.local.launchers.command import CommandLauncher
from worker.engines.local.launchers.torchrun import TorchrunLauncher
from worker.engines.slurm import addresses, sealing
from worker.engines.slurm.cluster_plans import attempt_plan
from worker.engines.slurm.records import ClusterFiles, ClusterPlan, NodeFacts, SealedSecrets
from worker.host.attempt_key import AttemptKey
from worker.sandbox import levels
from worker.sandbox.levels import Isolation
from worker.sandbox.writable import WritableFolders

_GPUS, _NUMBERS = "SLURM_STEP_GPUS", re.compile(r"[0-9]{1,4}(,[0-9]{1,4})*")
_HIDDEN_S = 90.0
_POLL_S = 0.5


class Preparation:
    """Of one node. `run`: with the node's own control files. `key`: that of the attempt."""

    def __init__(self, run: RunDir, plan: ClusterPlan, number: int, *, key: bytes) -> None:
        self.ranks = range(number * plan.devices_per_node, (number + 1) * plan.devices_per_node)
        """The node's ranks."""
        self._run = run
        self._plan = plan
        self._number = number
        self._key = key
        self._listener: socket.socket | None = None
        self._facts: NodeFacts | None = None
        self._address = ""
        self._secrets: dict[str, str] = {}
        self._own_folders = WritableFolders(Path(plan.rules.root))

    def facts(self, address: str) -> NodeFacts:
        """Returns what the node is. `address`: its own, by which it reaches the coordinator."""
        self._address = address
        isolation, problem, devices, interface, port = levels.OFF, None, list[DeviceReport](), "", 0
        may_pass = False
        try:
            isolation = _isolation(Isolation(self._plan.rules.isolation))
            devices = devices_of(self._plan)
            self._check_disk()
            enter_empty_folder(Path(self._plan.rules.root))
            self._secrets = self._read_secrets()
            if self._plan.nodes > 1:
                interface = addresses.interface_of(address)
                port = self._listen() if self._number == 0 else 0
        except (ConfigError, OSError) as error:
            problem, may_pass = str(error), isinstance(error, OSError)
        self._facts = NodeFacts(
            node=self._number,
            host=host_name(),
            version=own_version(),
            uid=os.getuid(),
            devices=devices,
            isolation=isolation,
            interface=interface,
            port=port,
            problem=problem,
            may_pass=may_pass,
        )
        return self._facts

    def part(self, *, master: str, port: object) -> NodePart | None:
        """Returns the node's part of the attempt; None if there is but one node. Raises ValueError."""
        assert self._facts is not None
        if self._plan.nodes == 1:
            return None
        return NodePart(
            nodes=self._plan.nodes,
            rank=self._number,
            first_rank=self.ranks.start,
            ranks=len(self.ranks),
            interface=self._facts.interface,
            address=self._address,
            master=master,
            port=port if isinstance(port, int) else 0,
        )

    def write(self, part: NodePart | None) -> Mapping[str, str]:
        """Writes what the supervisor starts. Returns the secrets of its ranks. Raises OSError and ConfigError."""
        assert self._facts is not None
        secrets = self._secrets
        rules = self._plan.rules
        confinement = Confinement(
            isolation=self._facts.isolation,
            own_folders=self._own_folders,
            readable=[*map(Path, rules.readable)],
            writable=[*map(Path, rules.writable)],
            namespaces=rules.namespaces,
        )
        devices = [device.uuid for device in self._facts.devices]
        plan = attempt_plan(self._plan, secrets=secrets)
        written = launch_plan(
            plan,
            run=self._run,
            launcher=_launcher(plan.is_command),
            slots=len(devices),
            devices=devices,
            node=part,
            umask=rules.umask,
            environ={**inherited(os.environ), **self._plan.environ},
            confinement=confinement,
        )
        write_record(self._run.launch, written)
        return secrets

    def take_listener(self) -> socket.socket | None:
        """Returns the socket at which all ranks meet, on node 0 of several. The caller closes it."""
        listener, self._listener = self._listener, None
        return listener

    def clean_up(self) -> None:
        """Removes what the attempt has left outside its run directory."""
        self._own_folders.remove_temporary(AttemptKey(self._plan.job_id, self._plan.attempt))

    def _listen(self) -> int:
        self._listener = socket.create_server((self._address, 0), backlog=1024)
        return self._listener.getsockname()[1]

    def _check_disk(self) -> None:
        """Raises OSError if the node cannot write its part of the run directory."""
        self._run.ctl.mkdir(mode=0o700, parents=True, exist_ok=True)
        token = self._run.ctl / f"token-{socket.gethostname()}"
        token.touch(mode=0o600)
        token.unlink()

    def _read_secrets(self) -> dict[str, str]:
        """Reads the secrets, which the file system may still hide."""
        path = ClusterFiles(RunDir(self._run.root)).secrets(sealing.start_of(self._key))
        deadline = time.monotonic() + _HIDDEN_S
        while (sealed := read_untrusted(path, SealedSecrets)) is None:
            if time.monotonic() > deadline:
                raise ConfigError(f"{path} cannot be read")
            time.sleep(_POLL_S)
        return sealing.unseal(sealed.content, key=self._key, name=self._plan.name)


def _isolation(wanted: Isolation) -> IsolationReport:
    """Returns what isolates jobs on this node. Raises ConfigError if that is not what is wanted."""
    isolation = levels.level_of(wanted)
    if wanted is Isolation.REQUIRE and not isolation.own_mounts:
        raise ConfigError(
            "jobs would reach the socket by which this user submits jobs to Slurm: TORCHYARD_ISOLATION=require needs"
            f" mounts of their own ({'; '.join(isolation.lacks)})"
        )
    return isolation


def _launcher(is_command: bool) -> Launcher:
    return CommandLauncher() if is_command else TorchrunLauncher()


def devices_of(
    plan: ClusterPlan, *, nvml: Nvml | None = None, environ: Mapping[str, str] = os.environ
) -> list[DeviceReport]:
    """Returns the devices that Slurm has given to this node, by local rank.

    Without ConstrainDevices the driver shows all GPUs of the node. Slurm names its own by the numbers of their files.
    """
    if plan.kind == "cpu":
        mark = f"{host_name()}-{os.environ.get('SLURM_JOB_ID', '0')}"
        return [
            DeviceReport(index=index, uuid=f"cpu-{mark}-{index}", name="CPU slot", kind="cpu")
            for index in range(plan.devices_per_node)
        ]
    numbers = environ.get(_GPUS, "")
    named = (
        inventory.of_device_files([*map(int, numbers.split(","))], nvml=nvml) if _NUMBERS.fullmatch(numbers) else None
    )
    devices = named or inventory.discover(0, nvml=nvml, environ=environ)
    return devices.observe(own_pids=set())[: plan.devices_per_node]


def host_name() -> str:
    """Returns this node's name in Slurm."""
    return os.environ.get("SLURMD_NODENAME") or socket.gethostname()
