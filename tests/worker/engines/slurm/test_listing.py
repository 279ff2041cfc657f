"""What squeue prints, and when a job is surely absent."""

from collections.abc import Callable, Generator
import threading
from typing import Protocol

import pytest

from tests.worker.attempt import wait_for
from worker.engines.slurm.commands import NoAnswer
from worker.engines.slurm.listing import Listings, parse

NAME = "ty-0123456789ab-" + "0" * 32 + "-1-17"
LINE = f"7|RUNNING|None|1795718781|n[1-2]|{NAME}"


def test_a_line_is_a_job() -> None:
    job = parse(LINE + "\n")[NAME]
    assert (job.id, job.state, job.nodes, job.expected_start) == ("7", "RUNNING", "n[1-2]", 1795718781_000_000)
    assert parse(f"8|PENDING|Resources|N/A||{NAME}")[NAME].expected_start is None


def test_lines_of_another_form_are_skipped() -> None:
    strange = [
        "",
        "7",
        "7|RUNNING|None|N/A|n1",
        "7|RUNNING|None|N/A|n1|a name with spaces",
        "7|RUNNING|a|b|c|d|e",
        "\x00\xff" * 100,
        "7|running|None|N/A|n1|lower",
        "x" * 10_000_000,
        f"7|RUNNING|{'r' * 5000}|N/A|n1|{NAME}",
        "7|RUNNING|None|N/A|n1|" + "a" * 500,
        f"7; rm|RUNNING|None|N/A|n1|{NAME}",
        f"7|RUNNING|None|N/A|n1|{NAME}é",
    ]
    assert parse("\n".join(strange)) == {}
    assert list(parse("\n".join([*strange, LINE, *strange]))) == [NAME]


def test_of_two_jobs_with_one_name_the_one_that_may_run_counts() -> None:
    states = ["COMPLETED", "RUNNING", "PENDING", "FAILED"]
    for order in (states, states[::-1]):
        text = "\n".join(f"{number}|{state}|None|N/A||{NAME}" for number, state in enumerate(order))
        assert parse(text)[NAME].state == "RUNNING"


class Answers:
    """Answers each question of a `Listings` as the test says, and counts them."""

    def __init__(self) -> None:
        self.text: str | None = ""
        self.asked = 0

    def ask(self) -> str:
        self.asked += 1
        if self.text is None:
            raise NoAnswer("no controller")
        return self.text


class Asking(Protocol):
    def __call__(self, ask: Callable[[], str], *, every_s: float, apart_s: float) -> Listings: ...


@pytest.fixture
def asking() -> Generator[Asking]:
    """Makes listings, which ask until the test has ended."""
    made: list[Listings] = []

    def make(ask: Callable[[], str], *, every_s: float, apart_s: float) -> Listings:
        made.append(Listings(ask, every_s=every_s, apart_s=apart_s))
        return made[-1]

    yield make
    for listings in made:
        listings.close()


def ask_again(listings: Listings, answers: Answers, times: int = 2) -> None:
    until = answers.asked + times
    wait_for(lambda: listings.refresh(wait_s=1) is not None and answers.asked >= until, "answers")


def test_a_name_is_absent_after_two_complete_lists_that_are_far_enough_apart(asking: Asking) -> None:
    answers = Answers()
    near, far = asking(answers.ask, every_s=60, apart_s=3600), asking(answers.ask, every_s=60, apart_s=0.01)
    for listings in (near, far):
        listings.track(NAME)
        ask_again(listings, answers, 4)
    assert far.absent(NAME)
    assert not near.absent(NAME)


def test_one_list_that_has_the_name_starts_the_count_anew(asking: Asking) -> None:
    answers = Answers()
    listings = asking(answers.ask, every_s=60, apart_s=0.01)
    listings.track(NAME)
    ask_again(listings, answers, 4)
    answers.text = LINE
    ask_again(listings, answers)
    assert not listings.absent(NAME)
    assert listings.job(NAME) is not None


def test_what_was_listed_before_a_name_was_tracked_says_nothing(asking: Asking) -> None:
    answers = Answers()
    listings = asking(answers.ask, every_s=60, apart_s=0.01)
    listings.track(NAME)
    ask_again(listings, answers, 4)
    listings.track(NAME)  # as after a submission
    assert not listings.absent(NAME)


def test_a_failure_is_no_list(asking: Asking) -> None:
    answers = Answers()
    answers.text = None
    listings = asking(answers.ask, every_s=0.01, apart_s=0.01)
    listings.track(NAME)
    assert listings.refresh(wait_s=5) is None
    wait_for(lambda: answers.asked > 5, "more questions")
    assert not listings.absent(NAME)
    assert listings.problem == "no controller"
    answers.text = ""
    wait_for(lambda: listings.refresh(wait_s=1) is not None, "a list")
    wait_for(lambda: listings.problem is None, "an answer that counts")  # pyrefly: ignore[unnecessary-comparison] it changes


def test_a_list_that_is_asked_for_begins_afterwards(asking: Asking) -> None:
    begun, goes_on = threading.Event(), threading.Event()
    texts = iter(["", LINE])

    def ask() -> str:
        text = next(texts, LINE)
        begun.set()
        goes_on.wait(60)
        return text

    listings = asking(ask, every_s=60, apart_s=60)
    listings.track(NAME)
    begun.wait(60)  # the first question is asked, and what it answers is older
    found: list[object] = []
    asker = threading.Thread(target=lambda: found.append(listings.refresh(wait_s=60)))
    asker.start()
    goes_on.set()
    asker.join()
    assert listings.job(NAME) is not None
    assert found != [None]


def test_listings_that_are_closed_ask_no_more(asking: Asking) -> None:
    answers = Answers()
    listings = asking(answers.ask, every_s=0.01, apart_s=60)
    listings.track(NAME)
    wait_for(lambda: answers.asked > 2, "questions")
    listings.close()
    threads = {thread for thread in threading.enumerate() if thread.name == "listings of Slurm"}
    wait_for(lambda: not any(thread.is_alive() for thread in threads), "the end of the thread")
