"""The views of workers and their devices."""

from api.present.times import time
from store.cluster.facts import HolderFacts, PoolFacts, WorkerFacts, WorkerHistory
from store.team.callers import Caller, may_list
from torchyard.contract.views.cluster import (
    DeviceColumns,
    DeviceHistory,
    DeviceView,
    HistoryJobView,
    HolderView,
    KeptView,
    PoolView,
    StartsView,
    WorkerHistoryView,
    WorkerView,
)


def worker(facts: WorkerFacts, caller: Caller) -> WorkerView:
    """Returns the view of a worker, as the caller may see it."""
    seen = [DeviceView.model_validate(device) for device in facts.devices]
    return WorkerView(
        id=facts.id,
        name=facts.name,
        state="lost" if not facts.alive else "draining" if facts.draining else "ready",
        started_at=time(facts.started_at),
        seen_at=time(facts.seen_at),
        devices=[_device(device, facts.holders.get(device.uuid), caller) for device in seen],
        starts=None if facts.starts is None else StartsView.model_validate(facts.starts),
        kept=[
            KeptView(
                kind="cuda" if kept.kind == "cuda" else "cpu",
                owner=kept.owner,
                job_id=kept.job_id if may_list(caller, kept) else None,
            )
            for kept in facts.kept
        ],
        pool=None if facts.pool is None else _pool(facts.pool),
    )


def worker_history(facts: WorkerHistory) -> WorkerHistoryView:
    """Returns the history of the devices that the worker has now. Jobs are named that the caller may list."""
    return WorkerHistoryView(
        worker_id=facts.worker_id,
        resolution_seconds=facts.history.resolution,
        devices=[
            DeviceHistory(
                uuid=device.uuid,
                index=device.index,
                name=device.name,
                kind=device.kind,
                columns=_columns(facts, device.uuid),
            )
            for device in map(DeviceView.model_validate, facts.devices)
        ],
        jobs=[HistoryJobView(id=job.id, name=job.name, owner=job.owner) for job in facts.listed_jobs.values()],
    )


def _columns(facts: WorkerHistory, uuid: str) -> DeviceColumns:
    found = [(float(begins), uses[uuid]) for begins, uses in facts.history.slots.items() if uuid in uses]
    return DeviceColumns(
        time=[begins for begins, _ in found],
        utilization=[use.utilization for _, use in found],
        utilization_max=[use.utilization_max for _, use in found],
        memory_used=[use.memory_used for _, use in found],
        power_watts=[use.power_watts for _, use in found],
        job_id=[use.job_id if use.job_id in facts.listed_jobs else None for _, use in found],
    )


def _pool(facts: PoolFacts) -> PoolView:
    return PoolView.model_validate({**facts.report, "waiting": facts.waiting, "running": facts.running})


def _device(device: DeviceView, holder: HolderFacts | None, caller: Caller) -> DeviceView:
    if holder is None:
        return device
    seen = may_list(caller, holder)
    shown = HolderView(
        owner=holder.owner,
        state=holder.state,
        since=time(holder.since),
        name=holder.name if seen else None,
        guest=holder.guest,
    )
    return device.model_copy(update={"job_id": holder.job_id if seen else None, "holder": shown})
