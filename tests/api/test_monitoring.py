"""`/metrics`: the service's metrics for Prometheus."""

from datetime import UTC, datetime, timedelta
from pathlib import Path
import re

from prometheus_client.parser import text_string_to_metric_families
from sqlalchemy import insert
from starlette.testclient import TestClient

from store.cluster import stats, workers
from store.db.database import Database, now_us
from store.ids import new_id
from store.output.facts import MetricPoint
from store.tables import Calibration, ForecastLease
from tests.api.service import ApiFixture, both_databases
from tests.databases import quick_on_sqlite
from tests.store.fixture import recorded_statements
from torchyard.contract.cluster.devices import StartsReport
from torchyard.contract.states import EndReason, JobState

Figures = dict[tuple[str, frozenset[tuple[str, str]]], float]


def figures(service: ApiFixture) -> Figures:
    answer = service.client.get("/metrics")
    assert answer.status_code == 200
    assert answer.headers["Content-Type"] == "text/plain; version=0.0.4; charset=utf-8"
    families = text_string_to_metric_families(answer.text)
    samples = [sample for family in families for sample in family.samples]
    found = {(sample.name, frozenset(sample.labels.items())): sample.value for sample in samples}
    assert len(found) == len(samples), "two samples have the same labels"
    return found


def value(found: Figures, name: str, **labels: str) -> float | None:
    return found.get((name, frozenset(labels.items())))


def requests(found: Figures, method: str, route: str, status: int) -> float | None:
    name = "torchyard_http_request_duration_seconds_count"
    return value(found, name, method=method, route=route, status=str(status))


def test_requests_are_counted_by_the_template_of_their_route(service: ApiFixture) -> None:
    job_id = service.submit()["id"]
    for _ in range(3):
        service.get(f"/v1/jobs/{job_id}")
    service.client.get("/v1/jobs/nonsense")
    service.client.get("/v1/jobs", params={"limit": 0})
    service.client.put(f"/v1/jobs/{job_id}/cancel")
    service.client.get("/no/such/path")
    service.client.request("TRACE", "/no/such/path")
    TestClient(service.app).get("/metrics")
    found = figures(service)
    assert requests(found, "POST", "/v1/jobs", 201) == 1
    assert requests(found, "GET", "/v1/jobs/{job_id}", 200) == 3
    assert requests(found, "GET", "/v1/jobs/{job_id}", 404) == 1
    assert requests(found, "GET", "/v1/jobs", 422) == 1
    assert requests(found, "PUT", "/v1/jobs/{job_id}/cancel", 405) == 1
    assert requests(found, "GET", "", 404) == 1
    assert requests(found, "other", "", 404) == 1
    assert requests(found, "GET", "/metrics", 401) == 1
    assert job_id not in str(found)


def test_an_internal_error_is_counted_too(service: ApiFixture) -> None:
    def broken() -> None:
        raise RuntimeError

    service.app.add_api_route("/broken", broken)
    service.client.get("/broken")
    assert requests(figures(service), "GET", "", 500) == 1


def test_two_services_in_a_process_do_not_share_metrics(service: ApiFixture, tmp_path: Path, redis_url: str) -> None:
    service.submit()
    other = ApiFixture(tmp_path, service.database, redis_url)
    assert requests(figures(other), "POST", "/v1/jobs", 201) is None
    other.queue.close()


@quick_on_sqlite
def test_jobs_and_points_are_counted(service: ApiFixture) -> None:
    ended, running = service.submit()["id"], service.submit()["id"]
    service.submit()
    service.end(service.start(ended), reason=EndReason.COMPLETED)
    points = [MetricPoint("train/loss", step, 0.5, step) for step in range(7)]
    service.record(service.start(running), points=points)
    found = figures(service)
    states = {state: value(found, "torchyard_jobs", state=state) for state in JobState}
    assert states == dict.fromkeys(JobState, 0) | {"succeeded": 1, "running": 1, "queued": 1}
    assert value(found, "torchyard_queue_depth") == 1
    assert value(found, "torchyard_stored_bytes", kind="files") == 7 * 24
    assert (value(found, "torchyard_stored_bytes", kind="written") or 0) > 100


def test_a_scrape_reads_no_job_and_no_series(service: ApiFixture) -> None:
    service.record(service.start(service.submit()["id"]), points=[MetricPoint("train/loss", 1, 0.5, 1)])
    with recorded_statements(service.database) as statements, service.database.read() as session:
        stats.collect(session)
    assert [each for each in statements if "job_counts" in each] != []
    assert [each for each in statements if re.search(r"FROM (series|point_chunks)|GROUP BY jobs", each)] == []


@quick_on_sqlite
def test_the_ages_of_leases_and_relays_are_metrics(service: ApiFixture) -> None:
    job_id = service.submit()["id"]
    claim = service.start(job_id)
    service.record(claim, lag_us=2_500_000)
    found = figures(service)
    assert value(found, "torchyard_open_attempts", worker="box-a") == 1
    assert value(found, "torchyard_relay_lag_seconds", worker="box-a") == 2.5
    age = value(found, "torchyard_lease_age_seconds", worker="box-a")
    assert age is not None
    assert 0 <= age < 30
    service.end(claim, reason=EndReason.COMPLETED)
    assert "torchyard_lease_age_seconds" not in {name for name, _ in figures(service)}


@both_databases
def test_devices_are_counted_as_free_held_blocked_or_lost(service: ApiFixture) -> None:
    service.start(service.submit()["id"])  # on one of two CPU slots
    gpus = [
        {"index": 0, "uuid": "GPU-0", "name": "GPU", "kind": "cuda", "blocked": "held by pid 4121"},
        {"index": 1, "uuid": "GPU-1", "name": "GPU", "kind": "cuda"},
    ]
    other = new_id("wrk")
    with service.database.write() as session:
        workers.register(session, other, name="box-b", devices=gpus)
    found = figures(service)

    def of(worker_id: str, worker: str, kind: str) -> dict[str, float | None]:
        labels = {"worker_id": worker_id, "worker": worker, "kind": kind}
        return {state: value(found, "torchyard_devices", state=state, **labels) for state in stats.DEVICE_STATES}

    assert of(service.worker_id, "box-a", "cpu") == {"free": 1, "held": 1, "blocked": 0, "lost": 0}
    assert of(other, "box-b", "cuda") == {"free": 1, "held": 0, "blocked": 1, "lost": 0}
    age = value(found, "torchyard_worker_seen_age_seconds", worker_id=other, worker="box-b")
    assert age is not None
    assert 0 <= age < 30


@quick_on_sqlite
def test_the_age_of_the_estimates_and_how_many_held_are_metrics(service: ApiFixture) -> None:
    found = figures(service)
    assert value(found, "torchyard_estimates_age_seconds") is None
    lease = {"id": 1, "holder": service.worker_id, "token": 1, "until": 0, "made_at": now_us() - 60_000_000}
    tracks = [{"level": 0.2, "bucket": 0, "scored": 300, "held": 150, "of": 200}]
    tracks.append({"level": 0.2, "bucket": 4, "scored": 7, "held": 0, "of": 0})
    with service.database.write() as session:
        session.execute(insert(ForecastLease).values(lease))
        session.execute(insert(Calibration), tracks)
    found = figures(service)
    assert 60 <= (value(found, "torchyard_estimates_age_seconds") or 0) < 90
    assert [value(found, "torchyard_estimates_held_ratio", bucket=bucket) for bucket in "04"] == [0.75, None]
    assert [value(found, "torchyard_estimates_scored_total", bucket=bucket) for bucket in "04"] == [300, 7]


@both_databases
def test_a_worker_shows_its_warm_process(service: ApiFixture) -> None:
    service.start(service.submit()["id"])
    began = datetime.now(UTC) - timedelta(minutes=1)
    starts = StartsReport(mode="warm", since=began, forks=7, memory_bytes=400_000_000).to_dict()
    with service.database.write() as session:
        workers.heartbeat(session, service.worker_id, devices=[], starts=starts)
    found, labels = figures(service), {"worker_id": service.worker_id, "worker": "box-a"}
    assert value(found, "torchyard_worker_warm", **labels) == 1
    assert value(found, "torchyard_warm_process_forks_total", **labels) == 7
    assert value(found, "torchyard_warm_process_memory_bytes", **labels) == 400_000_000
    assert 60 <= (value(found, "torchyard_warm_process_age_seconds", **labels) or 0) < 120


def test_the_process_has_metrics_of_its_own(service: ApiFixture) -> None:
    found = figures(service)
    assert (value(found, "process_resident_memory_bytes") or 0) > 1_000_000
    assert (value(found, "torchyard_database_up"), value(found, "torchyard_redis_up")) == (1, 1)


def test_metrics_are_answered_without_the_database_and_redis(tmp_path: Path) -> None:
    db = Database(f"sqlite:///{tmp_path}/absent/torchyard.db")
    service = ApiFixture(tmp_path, db, f"unix://{tmp_path}/absent.sock")
    with service.client:
        service.client.get("/healthz")
        found = figures(service)
    assert (value(found, "torchyard_database_up"), value(found, "torchyard_redis_up")) == (0, 0)
    assert requests(found, "GET", "/healthz", 200) == 1
    assert (value(found, "process_open_fds") or 0) > 0
    assert value(found, "torchyard_queue_depth") is None
    service.queue.close()
    db.close()
