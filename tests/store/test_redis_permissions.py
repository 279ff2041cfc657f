"""What the user of Redis must be allowed to do is what `up` and the documents allow, and what lacks is named."""

from contextlib import closing
from pathlib import Path
import re

import pytest

from store.announcement import Announcement
from store.db.database import Database
from store.jobs import jobs
from store.queue.announcing import Queue, RedisForbids
from store.queue.line.line import line_of
from store.queue.line_facts import Credits
from tests import line
from tests.servers import administered, redis_server
from tests.store.fixture import StoreFixture, a_service, new_job, service_of, store_on
from torchyard.host.redis_rules import CHANNELS, COMMANDS, KEYS

DOCUMENT = Path(__file__).parents[2] / "docs" / "operating" / "databases.md"


def test_the_documents_allow_what_up_allows() -> None:
    rules = re.search(r"^user torchyard on >PASSWORD (.+)$", DOCUMENT.read_text(), re.MULTILINE)
    assert rules is not None
    assert rules[1].split() == [KEYS, "resetchannels", CHANNELS, "-@all", *(f"+{name}" for name in COMMANDS)]


def test_the_rules_of_up_are_enough(queue: Queue, database: Database) -> None:
    queue.check()
    db = StoreFixture(database)
    first = db.submit()
    line.sweep(queue, database)
    queue.announce(line.told(db.job(first)))
    store = store_on(database, queue=queue)
    with store.read() as session:
        found = line_of(session)
        (group,) = found.heads()
        assert found.successors(group, found.heads()[group], limit=1) == []
        assert found.positions(Credits(), []) == {}
        assert len(found.page(Credits(), after=None, limit=1)) == 1
        assert found.asks_redis


def test_each_rule_that_lacks_is_named(tmp_path: Path) -> None:
    everything = {KEYS, CHANNELS, *(f"+{name}" for name in COMMANDS)}
    lacking = [f"+{name}" for name in COMMANDS if name not in {"subscribe", "unsubscribe"}]
    with redis_server(tmp_path) as url, administered(url) as redis:
        for rule in (*lacking, KEYS, CHANNELS):
            allowed = ["reset", "on", ">p", "resetchannels", *(everything - {rule})]
            redis.execute_command("ACL", "SETUSER", "limited", *allowed)
            limited = f"unix://limited:p@{url.rpartition('@')[2]}"
            with closing(Queue(limited, service=a_service)) as queue, pytest.raises(RedisForbids) as caught:
                queue.check()
            assert caught.value.message.endswith(f": {rule.replace('torchyard:', f'torchyard:{a_service()}:')}")


def test_without_a_permission_jobs_are_accepted_and_the_rows_answer(
    tmp_path: Path, database: Database, caplog: pytest.LogCaptureFixture
) -> None:
    service = service_of(database)
    service()
    with redis_server(tmp_path) as url, administered(url) as redis:
        for lacking in ("evalsha", "zadd", "hget"):
            rules = [KEYS, CHANNELS, *(f"+{name}" for name in COMMANDS if name != lacking)]
            redis.execute_command("ACL", "SETUSER", "limited", "reset", "on", ">p", "resetchannels", *rules)
            with closing(Queue(f"unix://limited:p@{url.rpartition('@')[2]}", service=service)) as queue:
                store, db = store_on(database, queue=queue), StoreFixture(database)
                caplog.clear()
                with store.write("submit") as session:
                    new = new_job(session, db.spec(), owner="ada").id
                assert "`torchyard doctor` shows which" in caplog.text
                assert not store.sweep_line()
                with store.read() as session:
                    assert sum(line_of(session).buckets().values()) == len(db.read(jobs.queued))
                    assert not line_of(session).asks_redis
                assert db.place(new) is not None
                with pytest.raises(RedisForbids):
                    queue.announce(line.told(db.job(new)))
                if lacking != "evalsha":  # which all is said by: workers poll
                    queue.announce(Announcement(wakes_workers=True))
