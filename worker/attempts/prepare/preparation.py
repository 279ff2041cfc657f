"""Prepares an attempt from its job's spec: the run directory, the checkpoint to resume from, and the plan."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import timedelta
import logging
import os
from pathlib import Path
from types import MappingProxyType
from typing import Annotated, Any

from store.worker.records import AttemptFacts, CheckpointFacts, EarlierAttempt, Inherited
from torchyard.contract.attempts.expansion import expanded
from torchyard.contract.attempts.rundir import PYTHONPATH, SHARD_ABOVE, Env, RunDir
from torchyard.contract.bundles.names import bundles_of
from torchyard.contract.errors import ConfigError
from torchyard.contract.spec.spec import ScriptSpec, Spec, parse_spec
from torchyard.contract.states import EndReason
from torchyard.contract.wire.codec import Record, between
from torchyard.host.recordfiles import write_record
from worker.attempts.context import AttemptContext
from worker.attempts.prepare import code, named_environment, restoring
from worker.attempts.prepare.best import BestBringer, BestSoFar
from worker.attempts.prepare.clusters import request_of
from worker.attempts.prepare.restoring import Stored
from worker.attempts.prepare.saved import SavedFiles
from worker.attempts.prepare.torn import TornFiles
from worker.attempts.prepare.workfolder import WorkFolder
from worker.curves import brought
from worker.engines.base import AttemptPlan, ClusterRequest, Handle, NamedEnvironment
from worker.environments.environment import Environment
from worker.host import rundirs, workfolders
from worker.host.attempt_key import AttemptKey
from worker.host.untrusted import remove_checked

LEAST_TIME = timedelta(seconds=1)
"""What an attempt gets if nothing is left of the job's time limit."""

logger = logging.getLogger(__name__)


@dataclass(frozen=True, kw_only=True)
class _Config(Record):
    trainer: str
    config: dict[str, Any]
    checkpoint: dict[str, Any]
    mode: str = "train"
    memory_shortages: Annotated[int, between(0, 2**31 - 1)]
    """The attempts that ended out of memory since the checkpoint to resume from was saved."""
    best: BestSoFar | None = None
    """The best checkpoint of earlier attempts, for a recipe that measures it again at its end."""


class NotWanted(Exception):
    """Something is wanted of the attempt before it starts: `lifecycle` decides anew."""


class StillRuns(Exception):
    """A process of an earlier attempt of the job cannot be ended. The text says which one."""


class Preparation:
    """Prepares one attempt."""

    def __init__(self, attempt: AttemptContext, *, check_wanted: Callable[[], None]) -> None:
        """`check_wanted` raises NotWanted if the attempt is to stop or to be left. Long steps call it."""
        self.worker = attempt.worker
        self.blobs = attempt.worker.store.blobs
        self.key = attempt.key
        self.run = attempt.run
        self.records = attempt.records
        self.notices = attempt.notices
        self.check_wanted = check_wanted

    def prepare(self, attempt: AttemptFacts) -> AttemptPlan:
        """Makes the run directory. The caller may try again after an OSError.

        Raises DataError if the data, the weights or the code are missing or not allowed, ConfigError if a secret or
        what the job starts from is missing, or the pool does not give what is asked for, InvalidSpec, NotStartedYet,
        StaleClaim, StillRuns and NotWanted.
        """
        self._move_stale_directory(attempt.started_at)
        spec = parse_spec(attempt.spec)
        spec = spec.model_copy(update={"stop_grace": min(spec.stop_grace, self.worker.max_stop_grace)})
        if self.records.secrets.problem is not None:
            raise ConfigError(self.records.secrets.problem)
        environment = named_environment.find(spec, self.worker.environments)
        cluster = request_of(spec, owner=attempt.owner, pool=self.worker.pool)
        earlier = self.records.earlier()
        self._end_earlier(earlier)
        remove_checked(self.run.root, self.run.input.name, check=self.check_wanted)  # of an earlier try
        self.run.create()
        checkpoint = self._saved.fetch_checkpoint()
        init_from = self._saved.fetch_initial() if checkpoint is None and spec.init_from is not None else None
        best = None if checkpoint is None else self._bring_best(spec, resumed=checkpoint)
        unpacked = code.prepare(
            spec,
            run=self.run,
            bundles=self.worker.bundles,
            owner=attempt.owner,
            allowed=self.worker.allowed,
            check=self.check_wanted,
        )
        if isinstance(spec, ScriptSpec):
            folder = self._folder(attempt, earlier, mounts=code.mounted(spec, self.worker.allowed, unpacked))
            if message := folder.take(unpacked.get(code.CODE)):
                self.notices.send_once(message, level="info")
        brought.remember(self.run, read=_read_by(earlier), check=self.check_wanted)
        plan = plan_of(
            spec,
            key=self.key,
            owner=attempt.owner,
            claimed_at=attempt.started_at,
            run=self.run,
            devices=tuple(attempt.devices),
            resume_from=None if checkpoint is None else self.run.resume,
            init_from=init_from,
            time_left=attempt.time_left,
            allowed=self.worker.allowed,
            secrets=self.records.secrets.values,
            unpacked=unpacked,
            cluster=cluster,
            variables=attempt.variables,
            shard_above=self.worker.shard_above,
        )
        if environment is not None:
            plan = replace(plan, named=self._enter(environment, earlier))
        self._write_config(spec, since=0 if checkpoint is None else checkpoint.attempt, best=best)
        self.run.seal()
        return plan

    def _enter(self, environment: Environment, earlier: Sequence[EarlierAttempt]) -> NamedEnvironment:
        """Has the attempt run in an environment of the host, and tells its owner what that is."""
        named, said = named_environment.enter(environment, self.run, earlier, environ=os.environ)
        self.records.set_environment(environment.report())
        for level, text in said:
            self.notices.send_once(text, level=level)
        return named

    def _write_config(self, spec: Spec, *, since: int, best: BestSoFar | None) -> None:
        resolved = spec.model_dump(mode="json", include={"trainer", "config", "checkpoint", "mode"})
        first = self.key.number == 1
        shortages = 0 if first else self.records.count_ended(EndReason.OUT_OF_MEMORY, since=since)
        write_record(self.run.config, _Config.from_dict({**resolved, "memory_shortages": shortages, "best": best}))

    def _bring_best(self, spec: Spec, *, resumed: CheckpointFacts) -> BestSoFar | None:
        bringer = BestBringer(self.run, self.blobs, self.check_wanted, self.records.with_files)
        return bringer.bring(spec, self.records.checkpoints(), resumed=resumed)

    def _folder(
        self, attempt: AttemptFacts, earlier: Sequence[EarlierAttempt], *, mounts: Mapping[str, str]
    ) -> WorkFolder:
        return WorkFolder(
            run=self.run,
            number=self.key.number,
            claimed_at=attempt.started_at,
            earlier=earlier,
            inherited=attempt.inherited,
            attempts_of=self.records.attempts_of,
            not_kept_of=self.records.not_kept_of,
            in_pool=attempt.in_pool,
            blobs=self.blobs,
            torn=TornFiles(self.run, self.blobs, self.records.checkpoints, check=self.check_wanted),
            stored=lambda: self._stored(attempt.inherited),
            mounts=mounts,
            check=self.check_wanted,
        )

    def _stored(self, inherited: Inherited | None) -> list[list[Stored]]:
        """Returns the versions of files that can be put back."""
        stored = restoring.stored_of(*self.records.files_of(self.key.job_id))
        if inherited is not None and inherited.inherits != "checkpoint":
            stored += restoring.stored_of(*self.records.files_of(inherited.job_id), of_retried=True)
        return restoring.versions_of(stored)

    def _end_earlier(self, earlier: Sequence[EarlierAttempt]) -> None:
        """Ends what is left of the attempts that may have used what this one gets. Raises StillRuns."""
        record = workfolders.record_of(self.run)
        last = max((each.number for each in earlier if each.ran), default=None)
        numbers = {last, None if record is None else record.attempt} - {None, self.key.number}
        for key in [AttemptKey(self.key.job_id, number) for number in numbers if number is not None]:
            if self.worker.engine.runs(key) and (unkillable := self._end(key)):
                raise StillRuns(f"attempt {key.number} still runs here: {unkillable}")

    def _end(self, key: AttemptKey) -> str | None:
        """Ends all processes of an attempt. Returns a message if some cannot be killed, else None."""
        return self.worker.engine.kill(Handle(key, 0))

    def _move_stale_directory(self, claimed_at: int) -> None:
        if not rundirs.is_stale(self.run, claimed_at=claimed_at):
            return
        logger.warning(
            "%s: moved the run directory %d aside: this database does not know its attempt",
            self.key.job_id,
            self.key.number,
        )
        if unkillable := self._end(self.key):
            raise OSError(unkillable)
        rundirs.move_aside(self.run)

    @property
    def _saved(self) -> SavedFiles:
        return SavedFiles(self.run, self.blobs, self.records, self.notices, self.check_wanted)


def plan_of(
    spec: Spec,
    *,
    key: AttemptKey,
    owner: str,
    claimed_at: int,
    run: RunDir,
    devices: tuple[str, ...],
    resume_from: Path | None,
    init_from: Path | None = None,
    time_left: timedelta,
    allowed: Sequence[Path],
    secrets: Mapping[str, str],
    unpacked: Mapping[str, Path] = MappingProxyType({}),
    cluster: ClusterRequest | None = None,
    variables: Mapping[str, str] = MappingProxyType({}),
    shard_above: int | None = SHARD_ABOVE,
) -> AttemptPlan:
    """Returns how to run `spec` on `devices`, with one rank on each, or on those that `cluster` asks for.

    Writes nothing.

    A script runs in its code folder, as it would by hand, or in its job's working folder, which has a copy of a bundle.
    A recipe runs in the part of the run directory that the job may write. `unpacked`: the bundles that the job reads,
    by field. `variables`: as of `AttemptFacts`. Raises DataError and ConfigError.
    """
    env = {**variables, **_environment(key, run, {Env.RESUME_FROM: resume_from, Env.INIT_FROM: init_from})}
    if spec.profile is not None:
        env[Env.PROFILE.value] = f"{spec.profile.start}:{spec.profile.steps}"
    is_script = isinstance(spec, ScriptSpec)
    source: Path | None = None
    if isinstance(spec, ScriptSpec):
        tree = unpacked.get(code.CODE)
        source = code.resolve(spec.config.code, allowed) if tree is None else tree.resolve()
        folder = source if tree is None else run.work.parent.resolve() / run.work.name
        if spec.config.mounts:
            env[Env.MOUNTS.value] = str(run.mounts)
        args = (expanded(text, env) for text in spec.config.args)
        program = (*code.program_of(spec, source=source, folder=folder), *args)
    else:
        folder, program = run.job, ("-m", "trainer")
        env |= code.data_of(spec, allowed, unpacked=unpacked)
        if shard_above != SHARD_ABOVE:
            env[Env.SHARD_ABOVE.value] = "" if shard_above is None else str(shard_above)
    read_in_place = unpacked.keys() - {code.CODE}
    return AttemptPlan(
        job_id=key.job_id,
        attempt=key.number,
        claimed_at=claimed_at,
        program=program,
        owner=owner,
        env=env,
        job_env=_with_whole_paths({name: expanded(value, env) for name, value in spec.plain_env.items()}, folder),
        secrets=secrets,
        cwd=folder,
        source=source,
        devices=devices,
        time_limit=max(time_left, LEAST_TIME),
        stall_timeout=spec.stall_timeout,
        stop_grace=spec.stop_grace,
        reports=not is_script,
        launcher=spec.launcher,
        cpus=spec.resources.cpus,
        memory_bytes=spec.resources.memory_bytes,
        bundles={sha256: unpacked[name] for name, sha256 in bundles_of(spec).items() if name in read_in_place},
        cluster=cluster,
    )


def _with_whole_paths(env: Mapping[str, str], folder: Path) -> dict[str, str]:
    """Returns the job's variables with PYTHONPATH as absolute paths: the program may leave the folder of its code."""
    named = env.get(PYTHONPATH)
    if named is None:
        return dict(env)
    whole = os.pathsep.join(os.path.normpath(folder / part) for part in named.split(os.pathsep))
    return {**env, PYTHONPATH: whole}


def _read_by(earlier: Sequence[EarlierAttempt]) -> dict[str, int]:
    """Returns how far files with curves were read by earlier attempts."""
    return {name: size for each in earlier for name, size in each.offsets.items() if brought.source_of(name)}


def _environment(key: AttemptKey, run: RunDir, saved: Mapping[Env, Path | None]) -> dict[str, str]:
    folders = {name.value: str(folder) for name, folder in saved.items() if folder is not None}
    return folders | {
        Env.JOB_ID.value: key.job_id,
        Env.ATTEMPT.value: str(key.number),
        Env.RUN_DIR.value: str(run.job),
        Env.CONFIG.value: str(run.config),
        Env.CHECKPOINT_DIR.value: str(run.checkpoints),
    }
