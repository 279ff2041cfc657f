"""The metrics that `/metrics` shows to Prometheus: requests, this process, and the whole service."""

from collections.abc import Iterable, Sequence

from fastapi.routing import iter_route_contexts
from prometheus_client import CollectorRegistry, Histogram
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector
from starlette.routing import BaseRoute
from starlette.types import Scope

from api.processes import figures
from api.services import Services
from store.cluster import stats
from store.cluster.stats import ServiceStats
from torchyard.contract.errors import Unavailable
from torchyard.contract.states import JobState

_METHODS = frozenset({"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"})
_SECONDS = 1_000_000
"""Microseconds in a second."""


class Monitoring:
    """The metrics of a process. `registry` has all of them."""

    def __init__(self, services: Services) -> None:
        self.registry = CollectorRegistry()
        own = figures.registry_of_process(self.registry)
        self.registry.register(_Service(services))
        self._templates: dict[int, str] = {}
        self._duration = Histogram(
            "torchyard_http_request_duration_seconds",
            "Requests, and the time until their answers began.",
            ["route", "method", "status"],
            registry=own,
        )

    def know(self, routes: Sequence[BaseRoute]) -> None:
        """Takes the templates of the routes' paths: requests are counted by them."""
        contexts = iter_route_contexts(routes)
        self._templates = {id(context.original_route): context.path_format or "" for context in contexts}

    def count(self, scope: Scope, status: int, seconds: float) -> None:
        """Counts a request whose answer begins after these seconds: a stream or a download has no fixed end."""
        # The route's template and known methods only: callers must not be able to add time series.
        route = self._templates.get(id(scope.get("route")), "")
        method = scope["method"] if scope["method"] in _METHODS else "other"
        self._duration.labels(route, method, status).observe(seconds)


class _Service(Collector):
    """Metrics of the whole service, read from the database at each scrape."""

    def __init__(self, services: Services) -> None:
        self._services = services

    def collect(self) -> Iterable[Metric]:
        stats = self._stats()
        yield GaugeMetricFamily("torchyard_database_up", "1 if the database answers.", float(stats is not None))
        yield GaugeMetricFamily("torchyard_redis_up", "1 if Redis answers.", float(self._redis_answers()))
        if stats is not None:
            yield from _count_jobs(stats)
            yield from _measure_attempts(stats)
            yield from _measure_workers(stats)
            yield from _measure_controllers(stats)
            yield from _measure_estimates(stats)
            yield from _measure_starts(stats)

    def _stats(self) -> ServiceStats | None:
        try:
            with self._services.store.read() as session:
                return stats.collect(session)
        except Unavailable:
            return None

    def _redis_answers(self) -> bool:
        try:
            self._services.store.queue.ping()
        except Unavailable:
            return False
        return True


def _count_jobs(stats: ServiceStats) -> Iterable[Metric]:
    jobs = GaugeMetricFamily("torchyard_jobs", "Stored jobs.", labels=["state"])
    for state, count in stats.jobs.items():
        jobs.add_metric([state], count)
    yield jobs
    yield GaugeMetricFamily("torchyard_queue_depth", "Queued jobs.", stats.jobs[JobState.QUEUED])
    stored = GaugeMetricFamily("torchyard_stored_bytes", "Bytes that all owners have stored.", labels=["kind"])
    stored.add_metric(["files"], stats.stored.files)
    stored.add_metric(["written"], stats.stored.written)
    yield stored


def _measure_attempts(stats: ServiceStats) -> Iterable[Metric]:
    # By worker: a series of each job that ever ran would stay with who scrapes.
    labels = ["worker"]
    count = GaugeMetricFamily("torchyard_open_attempts", "Attempts that run on each worker.", labels=labels)
    age = GaugeMetricFamily(
        "torchyard_lease_age_seconds",
        "Longest time since each worker renewed the lease of one of its open attempts.",
        labels=labels,
    )
    lag = GaugeMetricFamily(
        "torchyard_relay_lag_seconds",
        "Greatest age of the oldest line of an open attempt's newest batch when it was read, of each worker.",
        labels=labels,
    )
    for attempts in stats.attempts:
        count.add_metric([attempts.worker], attempts.count)
        age.add_metric([attempts.worker], attempts.lease_age / _SECONDS)
        lag.add_metric([attempts.worker], attempts.relay_lag / _SECONDS)
    return [count, age, lag]


def _measure_controllers(stats: ServiceStats) -> Iterable[Metric]:
    if stats.controller_age is not None:
        description = "Time since a controller, which does what is due without a request, did its duties."
        yield GaugeMetricFamily("torchyard_controller_seen_age_seconds", description, stats.controller_age / _SECONDS)


def _measure_estimates(stats: ServiceStats) -> Iterable[Metric]:
    if stats.estimates_age is not None:
        description = "Time since the estimates of starts were made anew."
        yield GaugeMetricFamily("torchyard_estimates_age_seconds", description, stats.estimates_age / _SECONDS)
    held = GaugeMetricFamily(
        "torchyard_estimates_held_ratio", "Of the newest intervals, how many held: 0.8 is meant.", labels=["bucket"]
    )
    scored = CounterMetricFamily("torchyard_estimates_scored", "Estimates that came true or not.", labels=["bucket"])
    for bucket, estimates in stats.estimates.items():
        scored.add_metric([str(bucket)], estimates.scored)
        if estimates.of:
            held.add_metric([str(bucket)], estimates.held / estimates.of)
    yield from (held, scored)


def _measure_workers(stats: ServiceStats) -> Iterable[Metric]:
    age = GaugeMetricFamily(
        "torchyard_worker_seen_age_seconds", "Time since each worker was seen.", labels=["worker_id", "worker"]
    )
    devices = GaugeMetricFamily(
        "torchyard_devices",
        "Devices: free, held by a job, blocked by another process, or lost with their worker.",
        labels=["worker_id", "worker", "kind", "state"],
    )
    for worker in stats.workers:
        age.add_metric([worker.id, worker.name], worker.age / _SECONDS)
        for (kind, state), count in worker.devices.items():
            devices.add_metric([worker.id, worker.name, kind, state], count)
    return [age, devices]


def _measure_starts(stats: ServiceStats) -> Iterable[Metric]:
    labels = ["worker_id", "worker"]
    warm = GaugeMetricFamily("torchyard_worker_warm", "1 if jobs start from a warm process.", labels=labels)
    age = GaugeMetricFamily("torchyard_warm_process_age_seconds", "Time since it was started.", labels=labels)
    forks = CounterMetricFamily("torchyard_warm_process_forks", "Jobs started from warm processes.", labels=labels)
    memory = GaugeMetricFamily(
        "torchyard_warm_process_memory_bytes", "Its resident memory that is not shared with files.", labels=labels
    )
    for worker in stats.workers:
        if worker.starts is None:
            continue
        names = [worker.id, worker.name]
        warm.add_metric(names, worker.starts.mode == "warm")
        forks.add_metric(names, worker.starts.forks)
        if worker.starts.since is not None:
            age.add_metric(names, stats.now / _SECONDS - worker.starts.since.timestamp())
        if worker.starts.memory_bytes is not None:
            memory.add_metric(names, worker.starts.memory_bytes)
    return [warm, age, forks, memory]
