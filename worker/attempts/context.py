"""What the parts of one attempt share."""

from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import timedelta
import os
from pathlib import Path
import threading
from typing import Self

from store.worker.protocol import Verbs
from store.worker.records import DEFAULTS, Claim, OutputLimits
from torchyard.contract.attempts.rundir import SHARD_ABOVE, RunDir
from torchyard.contract.cluster.devices import IsolationReport, PoolReport
from torchyard.contract.wire.units import LONGEST_STOP_GRACE
from worker.attempts.instructions import Instructions
from worker.attempts.notices import Notices
from worker.attempts.records import AttemptRecords
from worker.bundles.cache import BundleCache
from worker.devices.health import Health
from worker.engines.base import Engine
from worker.environments.offered import Environments
from worker.host import job_variables
from worker.host.attempt_key import AttemptKey
from worker.host.datafolders import ENVIRONMENTS, UNPACKED
from worker.packages.cache import PackageCache
from worker.packages.rules import PackageRules
from worker.reaches.meeting import ServiceAddress
from worker.settings import Settings


@dataclass(frozen=True)
class WorkerContext:
    """What all attempts of one worker share."""

    store: Verbs
    engine: Engine
    runs: Path
    """The folder of all run directories."""
    allowed: tuple[Path, ...]
    """The folders below which a job may name files."""
    health: Health
    """Reads the state of the GPUs from the driver: when an attempt begins, and when it claims that a GPU failed."""
    attempt_ended: threading.Event
    """Set whenever a runner is done: devices or a job may be free."""
    limits: OutputLimits = DEFAULTS
    """How much of one attempt's output is stored."""
    environments: Environments = field(default_factory=Environments, kw_only=True)
    """The environments of this host that jobs may name."""
    package_rules: PackageRules = field(default_factory=PackageRules)
    """How jobs get packages of their own."""
    max_stop_grace: timedelta = LONGEST_STOP_GRACE
    """The longest grace of a stop, whatever the job's spec says."""
    pool: Callable[[], PoolReport] | None = None
    """What the pool offers that this worker serves. None: its host's devices."""
    shard_above: int | None = SHARD_ABOVE
    """Bytes of a state in shards above which each rank writes its own part of a checkpoint. None: none does."""

    service: ServiceAddress = field(default_factory=ServiceAddress, kw_only=True)
    """Where the ends of reaches meet."""

    folder_lasts: timedelta | None = None
    """How long the working folder of a job is there after its end. None: for ever."""

    @classmethod
    def of(
        cls,
        settings: Settings,
        engine: Engine,
        store: Verbs,
        *,
        health: Health | None,
        isolation: IsolationReport,
        pool: Callable[[], PoolReport] | None,
        service: ServiceAddress,
    ) -> Self:
        """Returns what a worker with these settings shares."""
        return cls(
            store,
            engine,
            settings.runs,
            settings.allowed,
            health or Health(),
            threading.Event(),
            settings.output_limits,
            settings.package_rules(isolation),
            settings.max_stop_grace,
            pool,
            settings.shard_above,
            settings.folder_retention,
            environments=settings.offered_environments(isolation),
            service=service,
        )

    @property
    def bundles(self) -> BundleCache:
        root = self.runs.parent.absolute() / UNPACKED
        return BundleCache(root, self.store.blobs, shared=self.pool is not None)

    @property
    def packages(self) -> PackageCache:
        root = self.runs.parent.absolute() / ENVIRONMENTS
        return PackageCache(root, self.package_rules, shared=self.pool is not None)


@dataclass(frozen=True)
class AttemptContext:
    """What all parts of one attempt share."""

    worker: WorkerContext
    key: AttemptKey
    run: RunDir
    records: AttemptRecords
    notices: Notices
    instructions: Instructions

    @classmethod
    def of(cls, worker: WorkerContext, claim: Claim, instructions: Instructions) -> "AttemptContext":
        records = AttemptRecords(
            worker.store,
            claim,
            leaving=instructions.leaving,
            waits=instructions.note_wait,
            limits=worker.limits,
            masked=frozenset(job_variables.given(os.environ).values()),
        )
        return cls(
            worker,
            AttemptKey(claim.job_id, claim.number),
            RunDir(worker.runs / claim.job_id / str(claim.number)),
            records,
            Notices(records),
            instructions,
        )
