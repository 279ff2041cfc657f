"""Leaves to `make test-thorough` on which database a test is repeated.

A test that can run on both databases runs on one of them in `make test`: a sixteenth of them on PostgreSQL, by their
names, so that both are sent what many tests send. The others run on SQLite, the cheaper one, and so do its further
parameters. Tests of what the databases do in different ways run on both, those of a whole service on SQLite.
"""

from collections.abc import Sequence
from zlib import crc32

import pytest

ON_BOTH = (
    "api/test_idempotency.py",
    "migrations/test_looking.py",
    "migrations/test_migrations.py",
    "security/test_masked.py",
    "security/test_requests.py",
    "store/test_backup.py",
    "store/test_database.py",
    "store/test_engine.py",
    "store/test_list_orders.py",
    "store/test_lock_order.py",
    "store/test_log_search.py",
    "store/test_prepared.py",
    "store/test_retrying_together.py",
    "store/test_searches.py",
    "store/test_submitting_together.py",
)
"""Locks, plans, orders, searches, dumps, errors of a server, random histories: they differ between databases."""
ON_SQLITE = ("e2e/", "own_code/")
"""They share a service for each database, which costs seconds of a processor: the chaos run covers more."""


def leave_out(items: Sequence[pytest.Item]) -> None:
    """Marks tests as thorough that are repeated on another database."""
    quick = {item.nodeid: item for item in items if item.get_closest_marker("thorough") is None}
    seen: set[str] = set()
    for name, on_sqlite in quick.items():
        on_postgresql = quick.get(name.replace("[sqlite", "[postgresql"))
        if on_postgresql is None or on_postgresql is on_sqlite:
            continue
        test = name.partition("[")[0]
        file = name.removeprefix("tests/")
        if test in seen or file.startswith(ON_SQLITE):
            on_postgresql.add_marker(pytest.mark.thorough)
        elif not file.startswith(ON_BOTH):
            repeat = on_postgresql if crc32(test.encode()) % 16 else on_sqlite
            repeat.add_marker(pytest.mark.thorough)
        seen.add(test)
