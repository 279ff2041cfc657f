"""What a worker asks before it removes folders of its host, and tells of their sizes."""

from collections.abc import Collection, Mapping
from typing import Any

from store.attempts import folders, removal
from store.store import Store
from store.worker.records import KnownJob


class HostFolders:
    """The direct driver of `store.worker.protocol.Folders`."""

    def __init__(self, store: Store, worker_id: str, *, remote: bool = False) -> None:
        """`remote`: whether the worker is told of jobs alone of which it has or had an attempt."""
        self._store = store
        self._worker_id = worker_id
        self._asking = worker_id if remote else None

    def find_known(self, job_ids: Collection[str]) -> dict[str, KnownJob]:
        with self._store.read() as session:
            return removal.find_known_jobs(session, job_ids, asking=self._asking)

    def list_deleted(self, job_ids: Collection[str]) -> list[str]:
        with self._store.read() as session:
            return removal.list_deleted_among(session, job_ids)

    def list_active_owners(self) -> set[str]:
        with self._store.read() as session:
            return removal.list_active_owners(session, asking=self._asking)

    def list_active_specs(self, owner: str) -> list[Mapping[str, Any]]:
        with self._store.read() as session:
            return removal.list_active_specs(session, owner=owner, asking=self._asking)

    def store_sizes(self, sizes: Mapping[str, int]) -> None:
        with self._store.read() as session:
            known = sizes if self._asking is None else removal.find_known_jobs(session, sizes, asking=self._asking)
            own = {job_id: size for job_id, size in sizes.items() if job_id in known}
            if folders.read_sizes(session, self._worker_id) == own:
                return
        with self._store.write("heartbeat") as session:
            folders.replace_sizes(session, self._worker_id, own)
