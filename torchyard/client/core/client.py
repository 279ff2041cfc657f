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
    """The operations of a client. `jobs` and the other attributes have more."""

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
        """Submits a job, once even if the connection breaks.

        Args:
            spec: The job spec. In a dict, `init_from` may have the name of a job or a sweep (`digits/best`), and a
                mount the name of uploaded data (`data:mnist`).
            idempotency_key: A name for this request. For 24 hours, the same spec with the same key returns the same
                job.
            forecast: Also answer when the job is expected to start (`view.waits_for`). It takes a moment longer; None
                if the service makes too many forecasts.
            numbered: If the name is taken, use `name-2`, `name-3`, ….

        Returns:
            A `Job`; an `AsyncJob` from an AsyncClient.

        Raises:
            InvalidSpec: The spec is not valid. `errors` names each field.
            QuotaExceeded: Your quota does not allow the job.
            IdempotencyMismatch: The key was used for a different spec.

        Example:
            >>> job = client.submit(spec, idempotency_key="nightly-1")
            >>> job.name, job.state.value
            ('next', 'queued')
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
        """Packs a folder, uploads its new parts, and submits a job that runs a program in it.

        Without `name`, the job has the name of the folder, with a number if that is taken. With an `idempotency_key` it
        never gets a number.

        Args:
            program: A file that ends in `.py`, a module (with `module`), or a command of the folder.
            args: Arguments of the program.
            module: Run `program` as a module, as `python -m` does.
            folder: The folder to pack. Files that git or .torchyardignore ignores are left out; a warning names them.
            devices: Devices on each node, one process each.
            nodes: Machines of `pool`.
            pool: A Slurm pool; None: one of the service's own workers.
            name: The name of the job.
            mounts: More folders to upload, `data:NAME`, or URLs. The key is a name, read at `$TORCHYARD_MOUNTS/NAME`,
                or a path in the folder, such as `./data`.
            checkpoints: Patterns of files to save as checkpoints.
            keep: Patterns of files and folders to store.
            requirements: Packages to install: the path of a requirements.txt or pyproject.toml in the folder, or
                `script`.
            python: The name or path of a Python environment of the worker.
            include: Paths and patterns of ignored files to upload anyway.
            max_size: Maximum bytes of each folder.
            idempotency_key: A name for this request, as in `submit`.
            **spec: Further keys of a job spec: `env`, `time_limit`, `resources`, ….

        Returns:
            A `Job`; an `AsyncJob` from an AsyncClient.

        Raises:
            ConfigError: An argument or the folder is not valid.
            InvalidBundle: A file cannot be packed.
            TooLarge: A folder is larger than `max_size`.
            InvalidSpec: The spec is not valid.
            QuotaExceeded: Your quota does not allow the job or the upload.

        Example:
            >>> Path("train.py").write_text("print('trained')") > 0
            True
            >>> client.run("train.py", name="own", env={"STAGE": "test"}).name
            'own'
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
        """Returns a job.

        Args:
            ref: Its id, its name (the newest job with it), or the last four or more digits of its id.

        Returns:
            A `Job`; an `AsyncJob` from an AsyncClient.

        Raises:
            NotFound: There is no such job.
            Conflict: Several jobs have these digits.

        Example:
            >>> client.get("digits").state.value
            'succeeded'
        """
        return AsyncJob(self._connection, await find_job(self._connection, ref))

    async def wait(self, job_id: str, *, timeout: float | None = None) -> JobView:  # noqa: ASYNC109 - as in Client
        """Waits until a job has ended.

        Args:
            job_id: The job's id.
            timeout: Seconds to wait; None: no limit.

        Raises:
            TimeoutError: The job has not ended in time.

        Example:
            >>> client.wait(job.id, timeout=60).state.value
            'succeeded'
        """
        return await wait_for_end(self._connection, job_id, timeout=timeout)

    async def _with_free_name(self, spec: Spec) -> Spec:
        if isinstance(spec, Mapping):
            return {**spec, "name": await free_name(self._connection, str(spec["name"]))}
        return spec.model_copy(update={"name": await free_name(self._connection, getattr(spec, "name"))})  # noqa: B009
