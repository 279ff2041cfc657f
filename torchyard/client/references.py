"""Finds what a person names: an id, a name, or a short id."""

from collections.abc import Mapping, Sequence, Set
from contextlib import aclosing
import re
from typing import Any, TypeVar, cast

from torchyard.client.calls import files as files_calls
from torchyard.client.calls import jobs as calls
from torchyard.client.calls.call import LONGEST_PAGE, Call, Spec, segment
from torchyard.client.connection import Connection
from torchyard.client.matching import query_of
from torchyard.client.shortids import MOST_LISTED, digits_of, is_named, is_whole, only_id
from torchyard.contract.bundles.names import bundle_url
from torchyard.contract.bundles.views import BundleView
from torchyard.contract.errors import NotFound
from torchyard.contract.files.views import CheckpointView
from torchyard.contract.jobs.views import JobView
from torchyard.contract.spec.initial import MODEL, is_exact
from torchyard.contract.states import shown_state
from torchyard.contract.sweeps.views import SweepSummary, SweepView
from torchyard.contract.wire.view import Page

S = TypeVar("S", bound=Spec)

DATA = "data:"
"""Begins the name of data that was pushed by it."""

_MOST_READ = 1000
"""Of jobs whose names contain another one."""
_LONGEST_STEM = 90
"""Characters of a name before its number: a name has at most 100."""


async def find_job(connection: Connection, ref: str) -> JobView:
    """Returns the job with the id `ref`, else the newest job of that name, else the only one with that short id.

    Raises NotFound, and Conflict if several have it.
    """
    if ref.startswith("job_"):
        try:
            return await connection.answer(calls.get(ref))
        except NotFound:
            pass  # a job may have such a name
    for archived in (None, True):  # an archived job only where no other is meant
        named = (await connection.answer(calls.jobs(query_of({"name": ref, "archived": archived}), limit=1))).data
        job_id = named[0].id if named else only_id(ref, await _jobs_named(connection, ref, archived=archived))
        if job_id is not None:
            return await connection.answer(calls.get(job_id))
    raise NotFound(f"there is no job with the id or name {ref!r}")


async def find_checkpoint(connection: Connection, job_id: str, ref: str | None) -> CheckpointView:
    """Returns the checkpoint `ref` of a job; without it, the best, else the latest.

    Raises NotFound, and Conflict if `ref` is the short id of several.
    """
    try:
        return await _checkpoint_found(connection, job_id, ref)
    except NotFound:
        if await _first_checkpoints(connection, job_id):
            raise
    raise NotFound(without_checkpoints(job_id, ref))


async def best_of_sweep(connection: Connection, sweep: SweepView) -> tuple[str, str]:
    """Returns the ids of the job and of the checkpoint of the best trial: the checkpoint that has the sweep's metric,
    else the only one of the trial.

    Raises NotFound, which says what to do.
    """
    best = sweep.best
    if best is None:
        raise NotFound(f"no trial of {sweep.name} has reported {sweep.monitor} yet")
    said = f"trial {best.trial} of {sweep.name} is the best, and"
    if best.job_id is None:
        raise NotFound(f"{said} its job was deleted")
    if best.checkpoint_id is not None:
        return best.job_id, best.checkpoint_id
    found = await _first_checkpoints(connection, best.job_id)
    if not found:
        raise NotFound(f"{said} {without_checkpoints(best.job_id)}")
    if len(found) > 1:
        raise NotFound(
            f"{said} none of its checkpoints has {sweep.monitor}: choose one of `torchyard checkpoints {best.job_id}`,"
            f" or take the newest, {best.job_id}/latest"
        )
    return best.job_id, found[0].id


def without_checkpoints(job_id: str, ref: str | None = None) -> str:
    """Says that a job has saved no checkpoint, and how files become some. `ref`: what was asked for, maybe a file."""
    file = ref if ref is not None and "." in ref else None
    stored = f"; `torchyard keep {job_id} '{file}'` stores this file while its host has it" if file else ""
    return (
        f"job {job_id} has saved no checkpoint: `torchyard run --checkpoints '{file or 'model.pt'}' PROGRAM` makes"
        f" checkpoints of files that it writes{stored}"
    )


async def find_named_checkpoint(connection: Connection, text: str) -> tuple[JobView, CheckpointView]:
    """Returns what `JOB`, `JOB/REF` or `SWEEP/best` names, and its job: without a REF the best, else the latest.

    Raises as `find_job`, `find_checkpoint` and `best_of_sweep` do.
    """
    name, _, ref = text.partition("/")
    try:
        job = await find_job(connection, name)
    except NotFound:
        if ref != "best":
            raise
        sweep_id = await _sweep_instead(connection, name)
        sweep = await connection.answer(Call(SweepView, "GET", f"/v1/sweeps/{segment(sweep_id)}"))
        job_id, ref = await best_of_sweep(connection, sweep)
        job = await connection.answer(calls.get(job_id))
    return job, await find_checkpoint(connection, job.id, ref or None)


async def find_data(connection: Connection, name: str) -> BundleView:
    """Returns one's complete bundle of that name. Raises NotFound."""
    async for found in connection.pages(files_calls.bundle_named(name), limit=1):
        return found
    raise NotFound(f"you have no data named {name}; to upload a folder: torchyard data push DIR --name {name}")


async def with_ids(connection: Connection, specs: Sequence[S]) -> list[S]:
    """Returns the specs with the id in place of the name of a job in each `init_from`, such as `digits/best`, of a job
    alone with that of its best checkpoint, else its latest, with the
    bundle in place of the name of data in each mount, such as `data:mnist`, and with the id in place of a short id in
    each `after`, whose names the server knows.

    With `best`, where there is no such job, the name may be that of a sweep.
    Raises as `find_job`, `find_checkpoint` and `find_data` do.
    """
    found: dict[str, str] = {}
    names = {spec.get("name") for spec in specs if isinstance(spec, Mapping)}
    exact = [await _with_data(connection, await _with_id(connection, spec, found), found) for spec in specs]
    return [await _with_awaited(connection, spec, names) for spec in exact]


async def sweep_id_of(connection: Connection, ref: str) -> str:
    """Returns the id of the newest sweep of the name `ref`, else the only one with that short id.

    Raises NotFound, and Conflict if several have it.
    """
    short: dict[str, str] = {}
    params = {"limit": LONGEST_PAGE, "name": None if ref.startswith("swp_") or digits_of(ref) else ref}
    async with aclosing(connection.pages(Call(Page[SweepSummary], "GET", "/v1/sweeps", params))) as sweeps:
        async for sweep in sweeps:
            if sweep.name == ref:
                return sweep.id
            if sweep.id == ref or is_named(sweep.id, ref):
                short[sweep.id] = f"{sweep.name}, {sweep.state}"
    found = only_id(ref, short)
    if found is None:
        raise NotFound(f"there is no sweep with the id or name {ref!r}")
    return found


async def free_name(connection: Connection, name: str) -> str:
    """Returns `name`, or if a job has it, `name-2`, `name-3`, …: the first after that of the newest such job."""
    stem, number, found = name[:_LONGEST_STEM], 1, name
    while (await connection.answer(calls.jobs(query_of({"name": found}), limit=1))).data:
        number = 1 + (number if number > 1 else await _last_number(connection, stem))
        found = f"{stem}-{number}"
    return found


async def _last_number(connection: Connection, stem: str) -> int:
    """Returns the number of the newest job with a name such as `stem-3`; 1 where none has a number."""
    numbered = re.compile(rf"{re.escape(stem)}-([1-9][0-9]{{0,5}})")
    async with aclosing(connection.pages(calls.jobs(query_of({"q": f"{stem}-"})), limit=_MOST_READ)) as jobs:
        async for job in jobs:
            if match := numbered.fullmatch(job.name):
                return int(match[1])
    return 1


async def _with_id(connection: Connection, spec: S, found: dict[str, str]) -> S:
    named = spec.get("init_from") if isinstance(spec, Mapping) else None
    if not isinstance(named, str) or named.startswith((MODEL, "$")) or is_exact(named):
        return spec  # what is wrong with it, the server says
    if named not in found:
        found[named] = await _exact(connection, named)
    return cast("S", {**cast("Mapping[str, Any]", spec), "init_from": found[named]})


async def _with_data(connection: Connection, spec: S, found: dict[str, str]) -> S:
    config = spec.get("config") if isinstance(spec, Mapping) else None
    mounts = cast("Mapping[str, Any]", config).get("mounts") if isinstance(config, Mapping) else None
    if not isinstance(mounts, Mapping):
        return spec
    exact = dict(cast("Mapping[str, Any]", mounts))
    for place, source in exact.items():
        if isinstance(source, str) and source.startswith(DATA):
            if source not in found:
                found[source] = bundle_url((await find_data(connection, source.removeprefix(DATA))).sha256)
            exact[place] = found[source]
    if exact == mounts:
        return spec
    config = {**cast("Mapping[str, Any]", config), "mounts": exact}
    return cast("S", {**cast("Mapping[str, Any]", spec), "config": config})


async def _with_awaited(connection: Connection, spec: S, names: Set[Any]) -> S:
    """Replaces the short ids in `after` that are no names of jobs submitted together."""
    after = spec.get("after") if isinstance(spec, Mapping) else None
    if not isinstance(after, list):
        return spec
    exact = [await _awaited(connection, each, names) for each in cast("list[Any]", after)]
    return spec if exact == after else cast("S", {**cast("Mapping[str, Any]", spec), "after": exact})


async def _awaited(connection: Connection, item: Any, names: Set[Any]) -> Any:
    ref = cast("Mapping[str, Any]", item).get("job") if isinstance(item, Mapping) else None
    if not isinstance(ref, str) or ref in names or is_whole(ref) or digits_of(ref) is None:
        return item
    if (await connection.answer(calls.jobs(query_of({"name": ref}), limit=1))).data:
        return item
    job_id = only_id(ref, await _jobs_named(connection, ref, archived=None))
    return item if job_id is None else {**cast("Mapping[str, Any]", item), "job": job_id}


async def _exact(connection: Connection, named: str) -> str:
    name, _, ref = named.partition("/")
    if not ref:
        job, checkpoint = await find_named_checkpoint(connection, named)
        return f"{job.id}/{checkpoint.id}"
    try:
        job_id = (await find_job(connection, name)).id
    except NotFound:
        if ref != "best":
            raise
        return f"{await _sweep_instead(connection, name)}/best"
    exact = f"{job_id}/{ref}"
    return exact if is_exact(exact) else f"{job_id}/{(await find_checkpoint(connection, job_id, ref)).id}"


async def _sweep_instead(connection: Connection, name: str) -> str:
    try:
        return await sweep_id_of(connection, name)
    except NotFound:
        raise NotFound(f"there is no job and no sweep with the id or name {name!r}") from None


async def _checkpoint_found(connection: Connection, job_id: str, ref: str | None) -> CheckpointView:
    try:
        return await connection.answer(files_calls.checkpoint(job_id, ref or "best"))
    except NotFound:
        found = "latest" if ref is None else await _checkpoint_named(connection, job_id, ref)
        if found is None:
            raise
    return await connection.answer(files_calls.checkpoint(job_id, found))


async def _first_checkpoints(connection: Connection, job_id: str) -> list[CheckpointView]:
    """Returns the newest two checkpoints of a job: enough to know whether it has one, or several."""
    return [item async for item in connection.pages(files_calls.checkpoints(job_id), limit=2)]


async def _checkpoint_named(connection: Connection, job_id: str, ref: str) -> str | None:
    if digits_of(ref) is None:
        return None
    found = [item async for item in connection.pages(files_calls.checkpoints(job_id))]
    return only_id(ref, {item.id: f"step {item.step}" for item in found})


async def _jobs_named(connection: Connection, ref: str, *, archived: bool | None) -> Mapping[str, str]:
    """Returns the newest jobs that have the short id `ref`: no more than it takes to list them."""
    found: dict[str, str] = {}
    if (digits := digits_of(ref)) is None:
        return found
    async with aclosing(connection.pages(calls.jobs(query_of({"q": digits, "archived": archived})))) as jobs:
        async for job in jobs:
            if is_named(job.id, ref):
                found[job.id] = f"{job.name}, {shown_state(job.state, job.status_reason.code)}"
            if len(found) > MOST_LISTED:
                break
    return found
