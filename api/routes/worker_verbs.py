"""The verbs of remote workers, `POST /v1/worker/VERB`. They are no part of the public API: workers alone send them."""

from collections import Counter
from collections.abc import Callable
from functools import partial
from typing import Any, TypeVar

from anyio import to_thread
from fastapi import Request
from pydantic import ValidationError
from starlette.concurrency import run_in_threadpool
from starlette.responses import Response

from api.auth.workers import AnyHost, RegisteredWorker, check_version
from api.openapi.routers import unguarded
from api.parameters.bodies import read_body
from api.services import ServicesDep
from store.worker import wire
from store.worker.records import Answer
from store.worker.serving import ServedWorker
from store.worker.wire import Asked, Verb
from torchyard.contract.errors import InvalidRequest, TooManyRequests
from torchyard.contract.wire.findings import field_errors

router = unguarded("worker")

A = TypeVar("A", bound=Asked)
T = TypeVar("T")

_MOST_AT_ONCE = 8
"""Requests of one worker, besides those that renew leases."""
_LARGE = 4 << 20
"""Bytes of a batch whose reading takes so long that workers take turns."""
_in_flight = Counter[str]()

_VERBS: list[tuple[Verb[Any, Any], Callable[[ServedWorker, Any], Any]]] = [
    (wire.ORDERS, lambda worker, asked: worker.read_orders()),
    (wire.OPEN, lambda worker, asked: worker.list_open()),
    (wire.READ, lambda worker, asked: worker.read(asked.claim)),
    (wire.WANTED, lambda worker, asked: worker.read_wanted(asked.claim)),
    (wire.CHANGE, lambda worker, asked: worker.change(asked.claim, asked.change)),
    (wire.SHOW, lambda worker, asked: worker.show(asked.lines)),
    (
        wire.STACKS,
        lambda worker, asked: worker.answer_stacks(
            asked.claim, Answer(requested_at=asked.requested_at, taken_at=asked.taken_at, ranks=asked.ranks)
        ),
    ),
    (
        wire.END,
        lambda worker, asked: worker.end(
            asked.claim, asked.report, requested_stops=asked.requested_stops, begun=asked.begun
        ),
    ),
    (wire.ROOM, lambda worker, asked: worker.read_room(asked.job_id)),
    (wire.SECRETS, lambda worker, asked: worker.read_secrets(asked.job_id)),
    (wire.KEEP_ORDERS, lambda worker, asked: worker.list_keep_orders(limit=asked.limit)),
    (wire.KEEP, lambda worker, asked: worker.keep_files(asked.order, asked.new, copied=asked.copied)),
    (wire.KEEP_ANSWER, lambda worker, asked: worker.answer_keep(asked.order, refused=asked.refused)),
    (wire.ATTEMPTS, lambda worker, asked: worker.history.list_attempts(asked.job_id, before=asked.before)),
    (
        wire.ENDED,
        lambda worker, asked: worker.history.count_ended(asked.claim, asked.reason, since=asked.since, why=asked.why),
    ),
    (wire.MESSAGES, lambda worker, asked: worker.history.list_messages(asked.job_id, attempt=asked.attempt)),
    (wire.CHECKPOINTS, lambda worker, asked: worker.history.list_checkpoints(asked.job_id)),
    (wire.CHECKPOINT, lambda worker, asked: worker.history.find_checkpoint(asked.job_id, asked.checkpoint_id)),
    (wire.FILES, lambda worker, asked: _files(worker, asked.job_id)),
    (wire.INITIAL, lambda worker, asked: worker.history.find_initial(asked.job_id)),
    (wire.CAPTURED, lambda worker, asked: worker.history.list_captured_names(asked.job_id)),
    (wire.PUBLISHED, lambda worker, asked: worker.history.list_published_names(asked.claim)),
    (
        wire.REMOVED,
        lambda worker, asked: worker.history.find_removed(asked.job_id, attempt=asked.attempt, names=asked.names),
    ),
    (wire.KNOWN, lambda worker, asked: worker.folders.find_known(asked.job_ids)),
    (wire.DELETED, lambda worker, asked: worker.folders.list_deleted(asked.job_ids)),
    (wire.OWNERS, lambda worker, asked: worker.folders.list_active_owners()),
    (wire.SPECS, lambda worker, asked: worker.folders.list_active_specs(asked.owner)),
    (wire.SIZES, lambda worker, asked: worker.folders.store_sizes(asked.sizes)),
]


@router.post(wire.REGISTER.path, include_in_schema=False)
async def register_worker(*, request: Request, services: ServicesDep, sender: AnyHost) -> Response:
    check_version(request)
    asked = await _read(request, wire.REGISTER)
    worker = ServedWorker(services.store, sender.worker_id)
    return await _answered(wire.REGISTER, lambda: worker.register_from(sender.boot, asked.name, asked.offer))


@router.post(wire.HEARTBEAT.path, include_in_schema=False)
async def beat_worker(*, request: Request, services: ServicesDep, sender: RegisteredWorker) -> Response:
    check_version(request)
    asked = await _read(request, wire.HEARTBEAT)
    worker = ServedWorker(services.store, sender.worker_id)
    samples = [(sample.age_s, sample.devices) for sample in asked.samples]

    def beat() -> wire.BeatAnswered:
        orders, owned = worker.beat(samples, starts=asked.starts, attempts=asked.attempts)
        return wire.BeatAnswered(orders=orders, owned=sorted(owned))

    return await _answered(wire.HEARTBEAT, beat)


@router.post(wire.CLAIMS.path, include_in_schema=False)
async def claim_jobs(*, request: Request, services: ServicesDep, sender: RegisteredWorker) -> Response:
    asked = await _read(request, wire.CLAIMS)
    worker = ServedWorker(services.store, sender.worker_id)
    look = partial(worker.look, asked.devices, running=asked.running)
    before = await run_in_threadpool(look)
    if not before.may_claim:
        return _response(wire.CLAIMS, before.found)
    # Who waits for another one's pass holds a thread, but no connection to the database.
    await to_thread.run_sync(services.passes.claim, worker.worker_id, before.devices, limiter=services.pass_threads)
    return _response(wire.CLAIMS, (await run_in_threadpool(look)).found)


@router.post(wire.APPEND.path, include_in_schema=False)
async def append_output(*, request: Request, services: ServicesDep, sender: RegisteredWorker) -> Response:
    """One batch of a worker is in memory at a time. Large ones take turns."""
    async with services.large_bodies.of(sender.worker_id):
        body = await read_body(request, most=wire.APPEND.most)
        worker = ServedWorker(services.store, sender.worker_id)

        def append() -> bytes:
            asked = _parsed(wire.APPEND, body)
            limits = services.settings.output_limits
            cut = worker.append(asked.claim, asked.batch, seq=asked.seq, limits=limits, begun=asked.begun)
            return _encoded(wire.APPEND, cut)

        if len(body) > _LARGE:
            return Response(await services.writes.begin(sender.worker_id, append), media_type="application/json")
        return Response(await run_in_threadpool(append), media_type="application/json")


def _add(verb: Verb[Any, Any], act: Callable[[ServedWorker, Any], Any]) -> None:
    async def answer(*, request: Request, services: ServicesDep, sender: RegisteredWorker) -> Response:
        if _in_flight[sender.worker_id] >= _MOST_AT_ONCE:
            raise TooManyRequests(f"worker {sender.worker_id} has {_MOST_AT_ONCE} requests open")
        _in_flight[sender.worker_id] += 1
        try:
            asked = await _read(request, verb)
            worker = ServedWorker(services.store, sender.worker_id)
            return await _answered(verb, lambda: act(worker, asked))
        finally:
            _in_flight[sender.worker_id] -= 1
            if not _in_flight[sender.worker_id]:
                del _in_flight[sender.worker_id]

    name = "worker_" + verb.name.replace("/", "_").replace("-", "_")
    router.add_api_route(verb.path, answer, methods=["POST"], name=name, include_in_schema=False)


for _verb, _act in _VERBS:
    _add(_verb, _act)


async def _read(request: Request, verb: Verb[A, Any]) -> A:
    """Raises TooLarge, and InvalidRequest for what the verb does not take."""
    return _parsed(verb, await read_body(request, most=verb.most))


def _parsed(verb: Verb[A, Any], body: bytes) -> A:
    try:
        return verb.asked.model_validate_json(body)
    except ValidationError as error:
        faults = field_errors(error, verb.asked)
        raise InvalidRequest(f"{verb.name} does not take this", errors=faults) from None
    except (ValueError, RecursionError) as error:  # a record of the contract says what is wrong
        raise InvalidRequest(f"{verb.name} does not take this: {str(error)[:500]}") from None


async def _answered(verb: Verb[Any, T], act: Callable[[], T]) -> Response:
    return Response(
        await run_in_threadpool(lambda: _encoded(verb, act())),
        media_type="application/json",
    )


def _response(verb: Verb[Any, T], answer: T) -> Response:
    return Response(_encoded(verb, answer), media_type="application/json")


def _encoded(verb: Verb[Any, T], answer: T) -> bytes:
    return verb.answered(answer=answer).model_dump_json().encode()


def _files(worker: ServedWorker, job_id: str) -> wire.FilesAnswered:
    checkpoints, artifacts = worker.history.list_files(job_id)
    return wire.FilesAnswered(checkpoints=checkpoints, artifacts=artifacts)
