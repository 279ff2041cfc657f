"""What the API's processes count together in Redis: each `SharedCounts` stands for a process."""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing
from pathlib import Path

import pytest

from store import shared_counts
from store.redis import names as redis_names
from store.redis.client import QueueUnavailable
from store.shared_counts import Bucket, Drawn, SharedCounts
from tests.api.raw import wait_until
from tests.servers import administered, redis_server

SERVICE = "svc_counts"
NEVER = 1e-9
"""A rate at which nothing comes back while a test runs."""


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with redis_server(tmp_path_factory.mktemp("redis")) as url:
        yield url


@pytest.fixture
def processes(url: str) -> Iterator[list[SharedCounts]]:
    with ExitStack() as stack:
        administered(url).flushall()
        yield [stack.enter_context(closing(SharedCounts(url, service=lambda: SERVICE))) for _ in range(2)]


def test_a_bucket_is_one_in_all_processes(processes: list[SharedCounts]) -> None:
    bucket = Bucket(per_second=NEVER, burst=100)

    def draw(number: int) -> Drawn:
        return processes[number % 2].draw("ada", bucket, least=1, most=3)

    with ThreadPoolExecutor(16) as pool:
        drawn = [*pool.map(draw, range(64))]
    assert sum(each.tokens for each in drawn) == pytest.approx(100)
    assert {each.tokens for each in drawn} == {3, 1, 0}
    refused = processes[0].draw("ada", bucket, least=1, most=3)
    assert (refused.tokens, refused.wait_s > 1e6) == (0, True)
    assert processes[1].draw("bob", bucket, least=1, most=3).tokens == 3


def test_tokens_come_back_with_the_time(processes: list[SharedCounts]) -> None:
    bucket = Bucket(per_second=1000, burst=10)
    assert processes[0].draw("ada", bucket, least=10, most=10).tokens == 10
    wait_until(lambda: processes[1].draw("ada", bucket, least=10, most=10).tokens == 10)


def test_more_than_a_bucket_is_given_by_a_full_one_which_then_owes_it(processes: list[SharedCounts]) -> None:
    bucket = Bucket(per_second=1, burst=10)
    assert processes[0].draw("ada", bucket, least=25, most=25).tokens == 25
    refused = processes[1].draw("ada", bucket, least=1, most=1)
    assert refused.tokens == 0
    assert 14 < refused.wait_s <= 16, "fifteen are owed, and one is asked for"
    assert processes[1].draw("ada", bucket, least=25, most=25).wait_s > 24, "it needs the whole bucket"


def test_who_draws_at_the_same_time_shares_the_rate(processes: list[SharedCounts]) -> None:
    bucket = Bucket(per_second=10, burst=1)

    def wait_of_ada() -> float:
        return processes[0].draw("ada", bucket, least=1, most=1).wait_s

    assert wait_of_ada() == 0
    assert 0 < wait_of_ada() <= 0.1
    for number in range(3):
        processes[1].draw(f"user-{number}", bucket, least=1, most=1)
    processes[0].draw("bob", Bucket(10, 1), least=1, most=1)
    assert processes[0].draw("bob", bucket, least=1, most=1).wait_s == pytest.approx(5 / 10, rel=0.5)
    for number in range(100):
        processes[1].draw(f"user-{number}", bucket, least=1, most=1)
    assert processes[0].draw("bob", bucket, least=9, most=9).wait_s <= 1, "a tenth of it is everybody's"


def test_what_all_processes_hold_is_limited_together(processes: list[SharedCounts]) -> None:
    one, two = processes
    assert one.hold("ada", held=1, most=3)
    assert two.hold("ada", held=1, most=3)
    assert two.hold("ada", held=2, most=3)
    assert not one.hold("ada", held=2, most=3)
    assert not two.hold("ada", held=3, most=3)
    assert one.hold("bob", held=3, most=3)
    two.tell({"ada": 1})
    assert one.hold("ada", held=2, most=3)
    one.tell({"ada": 0})
    assert two.hold("ada", held=3, most=3)


def test_what_a_dead_process_holds_is_freed(
    processes: list[SharedCounts], url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    one, two = processes
    assert one.hold("ada", held=1, most=1)
    assert not two.hold("ada", held=1, most=1)
    with administered(url) as redis:
        alive = redis.keys(f"{redis_names.counts(SERVICE)}process:*")
        assert all(0 < redis.pttl(key) <= 10_000 for key in alive)
    monkeypatch.setattr(shared_counts, "HELD_FOR_S", 0.001)
    one.tell({})  # its last sign of life
    wait_until(lambda: two.hold("ada", held=1, most=1))


def test_a_process_that_leaves_holds_nothing(processes: list[SharedCounts]) -> None:
    one, two = processes
    assert one.hold("ada", held=1, most=1)
    one.leave()
    assert two.hold("ada", held=1, most=1)


def test_a_redis_that_has_forgotten_everything_is_told_again(processes: list[SharedCounts], url: str) -> None:
    one, two = processes
    assert one.hold("ada", held=1, most=1)
    administered(url).flushall()
    one.tell({"ada": 1})
    assert not two.hold("ada", held=1, most=1)


def test_nothing_of_it_stays_for_ever(processes: list[SharedCounts], url: str) -> None:
    processes[0].draw("ada", Bucket(NEVER, 10), least=1, most=1)
    processes[0].hold("ada", held=1, most=1)
    with administered(url) as redis:
        stay = [key for key in redis.keys("*") if redis.pttl(key) < 0]
    assert stay == [f"{redis_names.counts(SERVICE)}users".encode()], "whose members are few"


def test_without_redis_and_before_the_service_is_known_nothing_is_counted(tmp_path: Path) -> None:
    for counts in (
        SharedCounts(f"unix://{tmp_path}/none.sock", service=lambda: SERVICE),
        SharedCounts(f"unix://{tmp_path}/none.sock", service=lambda: None),
    ):
        with closing(counts), pytest.raises(QueueUnavailable):
            counts.draw("ada", Bucket(1, 1), least=1, most=1)
        with pytest.raises(QueueUnavailable):
            counts.hold("ada", held=1, most=1)
