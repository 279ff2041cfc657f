"""What a heartbeat of a remote worker stores, and how many statements it takes."""

from store.cluster import device_history
from store.cluster.facts import Use
from store.db.database import Database
from store.worker.records import HostOffer
from store.worker.serving import ServedWorker
from tests.store.fixture import StoreFixture, recorded_statements, store_on
from torchyard.contract.cluster.devices import DeviceReport, StartsReport

SLOT = DeviceReport(index=0, uuid="cpu-0", name="CPU slot", kind="cpu", utilization=0.25)
COLD = StartsReport(mode="cold")
_MOST = 14
"""Statements: each of 64 idle workers sends a heartbeat every ten seconds."""


def test_two_samples_of_one_heartbeat_are_kept_each_in_its_slot_by_few_statements(database: Database) -> None:
    db, store = StoreFixture(database), store_on(database)
    worker = ServedWorker(store, db.worker("box"))
    worker.register("box", HostOffer([SLOT]))
    worker.beat([(60.0, [SLOT])], starts=COLD, attempts=())
    with recorded_statements(database) as statements:
        worker.beat([(5.0, [SLOT]), (0.0, [SLOT])], starts=COLD, attempts=())
    merges = [statement for statement in statements if "device_samples.begins >=" in statement]
    assert len(statements) - 3 * len(merges) <= _MOST, statements
    history = db.read(lambda session: device_history.read(session, worker.worker_id, begins=None, ends=None, most=1000))
    assert [*history.slots.values()] == [{"cpu-0": Use(0.25, 0.25, None, None)}] * 3
    newest = [*history.slots][-2:]
    assert newest[1] - newest[0] == history.resolution == 5
