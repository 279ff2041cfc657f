"""The settings of a worker: `TORCHYARD_*` variables, with defaults for one laptop."""

from dataclasses import dataclass
from datetime import timedelta
import os
from pathlib import Path
import re
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BeforeValidator, Field

from store import settings
from store.output.facts import TrimLimits
from store.output.settings import OutputSettings, Size
from store.settings import AbsolutePath
from torchyard.contract.attempts.rundir import SHARD_ABOVE
from torchyard.contract.cluster.devices import IsolationReport
from torchyard.contract.spec.environment import is_reserved
from torchyard.contract.wire.units import parse_duration
from torchyard.contract.wire.wording import allowing
from torchyard.host.datadir import format_allowed_paths, parse_allowed_paths
from worker.cluster_settings import ClusterSettings
from worker.environments.offered import Environments
from worker.environments.offered import parse as parse_environments
from worker.host import job_variables
from worker.host.capacity import Capacity
from worker.packages.rules import PackageRules
from worker.sandbox.levels import Isolation, protects
from worker.sandbox.strict.requirements import HelperNeeds


@dataclass(frozen=True, kw_only=True)
class Retention:
    """What is kept, and for how long. None keeps everything."""

    finished_jobs: TrimLimits
    """What is kept of a finished job in the database."""
    runs: timedelta | None = None
    """How long run directories are kept after the end of their attempt."""
    run_bytes: int | None = None
    """Bytes of all run directories and working folders of this host."""
    folders: timedelta | None = None
    """How long a working folder is kept after the end of its job."""
    unused_bundles: timedelta | None = None
    """How long a bundle that no job names is kept after its last use."""
    cache_bytes: int | None = None
    """Bytes of all owners' caches on this host."""


def _age(value: Any) -> timedelta | None:
    return None if value in {None, ""} else parse_duration(value)


def _size(value: Any) -> Any:
    return None if value == "" else value


def _umask(value: Any) -> Any:
    if not isinstance(value, str):
        return value
    if re.fullmatch("0?[0-7]{0,3}", value) is None:
        raise ValueError(f"{value!r} is not a umask: write octal digits such as 022")
    return int(value, 8) if value else None


def _absolute(folders: str) -> str:
    return format_allowed_paths({path.absolute(): rw for path, rw in parse_allowed_paths(folders).items()})


def _job_variables(names: str) -> str:
    for name in (found := job_variables.names_in(names)):
        if is_reserved(name):
            raise ValueError(f"{name} is set by the service, or is a setting of it: no job gets it")
    return ",".join(found)


def _absolute_folders(folders: str) -> str:
    return os.pathsep.join(str(path.absolute()) for path in parse_environments(folders))


Age = Annotated[timedelta | None, BeforeValidator(_age)]
"""A duration such as `30d`. Empty: keep for ever."""
Share = Annotated[Annotated[float, Field(gt=0, le=1_000_000, allow_inf_nan=False)] | None, BeforeValidator(_size)]
"""A number of CPUs, or of GiB. Empty: those that there are."""
Umask = Annotated[int | None, BeforeValidator(_umask)]
"""Octal digits such as `022`."""


class Settings(OutputSettings, ClusterSettings):
    """Where the data is, which devices a worker offers, and what it keeps. Extends `store.settings.Settings`."""

    api_url: Annotated[
        str, Field(pattern=allowing(r"^(https?://[^\s/?#@]+)?$", "an address such as https://HOST:PORT"))
    ] = ""
    """Where this worker reaches the API. Empty: at port 8000 of this host."""
    api_certificate: AbsolutePath | None = None
    """The file with the only certificate that the API may have there, as PEM. Empty: one of an authority."""
    cpu_slots: Annotated[int, Field(ge=0, le=4096)] | None = None
    held_gpus: Literal["refuse", "leave"] = "refuse"
    """What it does where another worker of the host holds a GPU. `leave`: it starts, and offers the others."""
    job_cpus: Share = None
    """CPUs that jobs may request together. Empty: those that the worker may use."""
    job_memory_gb: Share = None
    """GiB of memory that jobs may request together. Empty: what the worker may use."""
    allow_paths: Annotated[str, AfterValidator(_absolute)] = ""
    """Folders below which a job may name `file://` data and code, separated by `:`. One with `:rw` may be written."""
    job_variables: Annotated[str, AfterValidator(_job_variables)] = ""
    """Names of variables of the worker, separated by `,`, that all jobs and builds get."""
    environments: Annotated[str, AfterValidator(_absolute_folders)] = ""
    """Environments that jobs may name, and folders of such, separated by `:`."""
    isolation: Isolation = Isolation.AUTO
    """What keeps jobs away from the service and from each other."""
    helper: AbsolutePath = Path("/run/torchyard/helper.sock")
    """The socket of the helper of strict isolation."""
    umask: Umask = None
    """The umask of jobs. Empty: the one with which the worker was started."""
    launcher: Literal["auto", "torchrun"] = "auto"
    """`torchrun`: keep no warm process, and start every job with torchrun."""
    shard_above: Size = SHARD_ABOVE
    """Bytes of a training's state in shards above which each rank writes its own part of a checkpoint. Empty: none."""
    keep_logs: Age = None
    """How long logs are kept after the end of their job."""
    keep_logs_bytes: Size = None
    """Bytes of logs that are kept of each finished job."""
    keep_events: Age = None
    """How long events are kept after the end of their job. State changes are kept for ever."""
    keep_events_bytes: Size = None
    """Bytes of events that are kept of each finished job, besides its state changes."""
    keep_runs: Age = None
    """How long run directories are kept after the end of their attempt."""
    keep_runs_bytes: Size = None
    """Bytes of all run directories and working folders of this host."""
    folder_retention: Age = timedelta(hours=24)
    """How long the working folder of a script is kept after the end of its job, if the disk has room."""
    bundle_ttl: Age = timedelta(days=30)
    """How long a bundle that no job names is kept after its last use."""
    max_caches_bytes: Size = 20_000_000_000
    """Bytes of all owners' caches on this host."""
    namespaces: Literal["allow", "forbid"] = "forbid"
    """Whether jobs may make user namespaces, as sandboxes of browsers and containers without root do."""
    packages: Literal["allow", "wheels", "forbid"] = "allow"
    """Whether jobs may have packages of their own installed. `wheels`: none that would have to be built."""
    package_index: Annotated[
        str, Field(pattern=allowing(r"^(https?://\S+)?$", "an address that begins with http:// or https://"))
    ] = ""
    """The URL of the package index, if not that of the job or PyPI."""
    setup_timeout: settings.Period = timedelta(minutes=10)
    """How long the installation of a job's packages may take."""

    @property
    def runs(self) -> Path:
        return self.home / "runs"

    @property
    def temporary(self) -> Path | None:
        """The folder of the attempts' temporary folders, if not the system's: where the helper looks for them."""
        return self.root / "tmp" if self.isolation is Isolation.STRICT else None

    @property
    def capacity(self) -> Capacity:
        return Capacity(self.job_cpus, self.job_memory_gb)

    @property
    def helper_needs(self) -> HelperNeeds:
        """What strict isolation needs of the helper."""
        return HelperNeeds(
            helper=self.helper,
            data_dir=self.root,
            readable=self.allowed,
            writable=self.writable,
            environments=parse_environments(self.environments),
        )

    def offered_environments(self, isolation: IsolationReport) -> Environments:
        """Returns the environments that jobs of this worker, with that isolation, may name."""
        return Environments(
            roots=parse_environments(self.environments),
            allowed=self.allowed,
            writable=self.writable,
            data_dir=self.root,
            protects=protects(isolation),
        )

    @property
    def retention(self) -> Retention:
        return Retention(
            finished_jobs=TrimLimits(
                logs=self.keep_logs,
                log_bytes=self.keep_logs_bytes,
                events=self.keep_events,
                event_bytes=self.keep_events_bytes,
            ),
            runs=self.keep_runs,
            run_bytes=self.keep_runs_bytes,
            folders=self.folder_retention,
            unused_bundles=self.bundle_ttl,
            cache_bytes=self.max_caches_bytes,
        )

    def package_rules(self, isolation: IsolationReport) -> PackageRules:
        """Returns how this worker, with that isolation, installs packages of jobs."""
        return PackageRules(
            allowed=self.packages != "forbid",
            builds=self.packages != "wheels",
            index=self.package_index,
            timeout=self.setup_timeout,
            isolation=isolation,
        )

    @property
    def allowed(self) -> tuple[Path, ...]:
        """All folders of `allow_paths`."""
        return tuple(parse_allowed_paths(self.allow_paths))

    @property
    def writable(self) -> tuple[Path, ...]:
        """Those of `allow_paths` that jobs may write."""
        return tuple(path for path, writable in parse_allowed_paths(self.allow_paths).items() if writable)
