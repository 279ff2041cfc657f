"""The operations of a client, all together."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any

from torchyard.client.calls import jobs as calls
from torchyard.client.calls.call import Spec
from torchyard.client.connection import Connection
from torchyard.client.core.bundles import BundlesCore
from torchyard.client.core.job import AsyncJob, JobCore
from torchyard.client.core.launching import Mounts, packed_job, program_of, warn_of_ignored
from torchyard.client.core.models import ModelsCore
from torchyard.client.core.notifications import NotificationsCore
from torchyard.client.core.reaches import ReachesCore
from torchyard.client.core.schedules import SchedulesCore
from torchyard.client.core.service import ServiceCore
from torchyard.client.core.sweeps import SweepsCore
from torchyard.client.core.team import QuotasCore, SavedViewsCore, SecretsCore, SessionsCore, TokensCore, UsersCore
from torchyard.client.core.workers import WorkersCore
from torchyard.client.discovery import Server
from torchyard.client.naming import turn
from torchyard.client.references import find_job, free_name, with_ids
from torchyard.client.transport import Transport
from torchyard.client.waiting import wait_for_end
from torchyard.contract.bundles.names import MAX_PACKED_BYTES
from torchyard.contract.errors import ConfigError
from torchyard.contract.jobs.views import JobView


class ClientCore(ServiceCore):
    """The operations of a client: `jobs` and other nouns have the rest."""

    def __init__(self, server: Server, transport: Transport, *, patience: float) -> None:
        super().__init__(Connection(server, transport, patience=patience))
        self.server = server
        self.jobs = JobCore(self._connection)
        self.sweeps = SweepsCore(self._connection)
        self.schedules = SchedulesCore(self._connection)
        self.models = ModelsCore(self._connection)
        self.bundles = BundlesCore(self._connection)
        self.reaches = ReachesCore(self._connection)
        self.workers = WorkersCore(self._connection)
        self.users = UsersCore(self._connection)
        self.tokens = TokensCore(self._connection)
        self.sessions = SessionsCore(self._connection)
        self.quotas = QuotasCore(self._connection)
        self.secrets = SecretsCore(self._connection)
        self.saved_views = SavedViewsCore(self._connection)
        self.notifications = NotificationsCore(self._connection)

    async def close(self) -> None:
        """Closes the connections."""
        await self._connection.close()

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
            async with turn(self._connection.sleep):
                named = await self._with_free_name(exact)
                return await self.submit(named, idempotency_key=idempotency_key, forecast=forecast)
        call = calls.submit(exact, key=idempotency_key, forecast=forecast)
        return AsyncJob(self._connection, await self._connection.answer(call))

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
        max_size: int = MAX_PACKED_BYTES,
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
        for key in ("trainer", "config"):
            if key in spec:
                raise ConfigError(f"{key} is not an argument of run: submit a whole spec instead")
        resources = {"devices_per_node": devices, "nodes": nodes, **({} if pool is None else {"pool": pool})}
        more = {"name": name, **spec, "resources": {**resources, **spec.get("resources", {})}}
        if keep:
            more["keep"] = [*keep]
        config = {
            **program_of(program, module=module),
            "args": [str(item) for item in args],
            "mounts": mounts,
            "requirements": requirements,
            "python": python,
            "checkpoints": [*checkpoints],
        }
        with packed_job(
            folder,
            config,
            more,
            needed=program if "entrypoint" in config else None,
            max_size=max_size,
            include=include,
            repeatable=idempotency_key is not None,
        ) as packed:
            warn_of_ignored(packed.code)
            (wanted,) = await with_ids(self._connection, [packed.spec])
            for bundle in (packed.code, *packed.mounts.values()):
                await self.bundles.upload(bundle)
        numbered = name is None and idempotency_key is None
        return await self.submit(wanted, idempotency_key=idempotency_key, numbered=numbered)

    async def get(self, ref: str) -> AsyncJob:
        """Returns the job with the id `ref`, else the newest job of that name, else the only one with that short id:
        the last digits of it, four at least. It is a `Job`, of an AsyncClient an `AsyncJob`.

        Raises NotFound, and Conflict if several have it.
        """
        return AsyncJob(self._connection, await find_job(self._connection, ref))

    async def wait(self, job_id: str, *, timeout: float | None = None) -> JobView:  # noqa: ASYNC109 - as in Client
        """Waits until the job has ended, and returns it. `timeout` is in seconds. Raises TimeoutError."""
        return await wait_for_end(self._connection, job_id, timeout=timeout)

    async def _with_free_name(self, spec: Spec) -> Spec:
        if isinstance(spec, Mapping):
            return {**spec, "name": await free_name(self._connection, str(spec["name"]))}
        return spec.model_copy(update={"name": await free_name(self._connection, getattr(spec, "name"))})  # noqa: B009
