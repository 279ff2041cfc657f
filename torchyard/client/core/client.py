"""The operations of a client, all together."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any

from torchyard.client.calls import jobs as calls
from torchyard.client.calls.call import Spec
from torchyard.client.core.bundles import BundlesCore
from torchyard.client.core.cluster import ClusterCore
from torchyard.client.core.job import AsyncJob, JobCore
from torchyard.client.core.launching import Mounts, arguments, program_of, script_spec, upload_code
from torchyard.client.core.models import ModelsCore
from torchyard.client.core.notifications import NotificationsCore
from torchyard.client.core.schedules import SchedulesCore
from torchyard.client.core.sweeps import SweepsCore
from torchyard.client.core.team import TeamCore
from torchyard.client.discovery import Server
from torchyard.client.naming import turn
from torchyard.client.packing import MAX_SIZE
from torchyard.client.references import find_job, free_name, with_ids
from torchyard.client.transport import Transport
from torchyard.contract.jobs.submissions import BatchView, SpecView
from torchyard.contract.spec.spec import JobSpec


class ClientCore(JobCore, ModelsCore, ClusterCore, TeamCore):
    """The operations of a client."""

    def __init__(self, server: Server, transport: Transport, *, patience: float) -> None:
        super().__init__(server, transport, patience=patience)
        self._turns = transport
        self.bundles = BundlesCore(self._connection)
        self.sweeps = SweepsCore(self._connection, transport)
        self.schedules = SchedulesCore(self._connection)
        self.notifications = NotificationsCore(self._connection)

    async def submit(
        self, spec: Spec, *, idempotency_key: str | None = None, forecast: bool = False, numbered: bool = False
    ) -> AsyncJob:
        """Submits a job, once even if the connection breaks, and returns a `Job`, of an AsyncClient an `AsyncJob`. If
        the server knows the key, it is the job of the first call with that key. The `init_from` of a spec that is a
        dict may have the name of a job in place of its id, `digits/best`, or where no job has it, that of a sweep; its
        mounts may be data by its name, `data:mnist`.

        `forecast`: the job's `view.waits_for` says when it is expected to start, and what would start it at once. It
        takes a moment longer, and is None if the server makes too many forecasts now, or knew the key.
        `numbered`: if a job has the spec's name, the new one gets `name-2`, `name-3`, …; two of one host get two names.
        """
        (exact,) = await with_ids(self._connection, [spec])
        if numbered:
            async with turn(self._turns):
                named = await self._with_free_name(exact)
                return await self.submit(named, idempotency_key=idempotency_key, forecast=forecast)
        call = calls.submit(exact, key=idempotency_key, forecast=forecast)
        return AsyncJob(self, await self._connection.answer(call))

    async def submit_batch(
        self, specs: Sequence[Spec], *, atomic: bool = False, idempotency_key: str | None = None
    ) -> BatchView:
        """Submits up to 10,000 jobs, each once even if the connection breaks. Returns for each its id or its error.

        `atomic`: all jobs, at most 500, or none. Raises the error of the first that is wrong, then. If the server knows
        the key, it submits what it has not submitted yet of the same jobs.
        """
        exact = await with_ids(self._connection, specs)
        return await self._connection.answer(calls.submit_batch(exact, atomic=atomic, key=idempotency_key))

    async def run(
        self,
        program: str = "train.py",
        *,
        args: Sequence[object] = (),
        module: bool = False,
        folder: str | Path = ".",
        devices: int = 1,
        nodes: int = 1,
        pool: str | None = None,
        name: str | None = None,
        mounts: Mounts = MappingProxyType({}),
        checkpoints: Sequence[str] = (),
        keep: Sequence[str] = (),
        requirements: str | None = None,
        python: str | None = None,
        include: Sequence[str] = (),
        max_size: int = MAX_SIZE,
        idempotency_key: str | None = None,
        **spec: Any,
    ) -> AsyncJob:
        """Packs `folder`, uploads what the server does not have of it, and submits a job that runs `program` of it.

        It runs on one host, or on `nodes` machines of a `pool` with so many `devices` each.

        `program` is a file of the folder that ends in `.py`, a module if `module`, else a command. `include` are paths
        and patterns of files that git ignores and the program needs; a warning says what else git leaves out. `mounts`
        are more folders, packed whole, `data:NAME`, or URLs, which the program finds at `$TORCHYARD_MOUNTS/NAME`, or at
        a path of its folder, such as `./data`. `checkpoints` are patterns of files that become checkpoints, `keep`
        those of files and folders that are stored by their paths. `python` is the name or the path of an environment
        that a worker offers. `max_size` is in bytes, for each folder. `spec` has further keys of a job spec: `env`,
        `time_limit`, `resources`, …. Without `name` it has the folder's name, and the next free number where a job has
        that, unless there is an `idempotency_key`, as a repeated call must be the same. Returns what `submit` does.
        Raises ConfigError, InvalidBundle, TooLarge, InvalidSpec, and QuotaExceeded.
        """
        needed = program if program.endswith(".py") and not module else None
        resources = {"devices_per_node": devices, "nodes": nodes, **({} if pool is None else {"pool": pool})}
        wanted = script_spec(name=name, folder=folder, resources=resources, more=spec)
        code = await upload_code(
            self.bundles,
            folder,
            needed=needed,
            mounts=mounts,
            requirements=requirements,
            max_size=max_size,
            include=include,
        )
        config = {
            **program_of(program, module=module),
            **code,
            "python": python,
            "args": arguments(args),
            "checkpoints": [*checkpoints],
        }
        if idempotency_key is not None:  # a repeated call is the same, whatever else lies in the folder by then
            del config["left_out"]
        wanted["config"] = {key: value for key, value in config.items() if value}
        if keep:
            wanted["keep"] = [*keep]
        numbered = name is None and idempotency_key is None
        return await self.submit(wanted, idempotency_key=idempotency_key, numbered=numbered)

    async def validate(self, spec: Spec) -> JobSpec:
        """Returns the spec with every default filled in; nothing is stored. Raises InvalidSpec, naming each field."""
        (exact,) = await with_ids(self._connection, [spec])
        return (await self._connection.answer(calls.validate(exact))).spec

    async def forecast(self, spec: Spec) -> SpecView:
        """Returns what `validate` does in `spec`, and in `waits_for` what would become of the job if it were submitted
        now: whether it would start at once, else when, and what would start it at once. Nothing is stored.

        Raises InvalidSpec, also for secrets, GPUs and targets that are not there, and TooManyRequests.
        """
        (exact,) = await with_ids(self._connection, [spec])
        return await self._connection.answer(calls.validate(exact, forecast=True))

    async def exact_init_from(self, text: str) -> str:
        """Returns an `init_from` with ids in place of the name of a job or a sweep, such as `digits/best`.

        Raises NotFound, and Conflict if a short id is that of several.
        """
        (exact,) = await with_ids(self._connection, [{"init_from": text}])
        return exact["init_from"]

    async def get(self, ref: str) -> AsyncJob:
        """Returns the job with the id `ref`, else the newest job of that name, else the only one with that short id:
        the last digits of it, four at least. It is a `Job`, of an AsyncClient an `AsyncJob`.

        Raises NotFound, and Conflict if several have it.
        """
        return AsyncJob(self, await find_job(self._connection, ref))

    async def free_name(self, name: str) -> str:
        """Returns `name`, or if a job has it, `name-2`, `name-3`, …: the first after that of the newest such job."""
        return await free_name(self._connection, name)

    async def _with_free_name(self, spec: Spec) -> Spec:
        if isinstance(spec, Mapping):
            return {**spec, "name": await self.free_name(str(spec["name"]))}
        return spec.model_copy(update={"name": await self.free_name(getattr(spec, "name"))})  # noqa: B009
