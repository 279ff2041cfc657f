"""The JSON of jobs, whose views are made without a check of their values, says what checked views would say."""

from dataclasses import replace
import json
import math
from typing import Any

from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError
import pytest

from api.present import jobs
from api.present.times import time as time_of
from store.jobs.facts import BestCheckpoint, DependencyFacts, DisplayedReason, JobFacts
from store.jobs.initial_weights_facts import InitialFacts
from store.queue.estimates_facts import EstimateFacts
from store.team.callers import Caller, may_read
from torchyard.contract.jobs.views import JobSummary, JobView, StatusReason
from torchyard.contract.spec.spec import SPEC, parse_spec
from torchyard.contract.states import EndReason, JobState
from torchyard.contract.team.roles import Role

ADA, OPERATOR = Caller("ada", Role.MEMBER), Caller("oscar", Role.OPERATOR)
SCRIPT = {"trainer": "script", "config": {"code": "file:///code", "entrypoint": "train.py"}}


def _spec(label: str) -> str:
    return json.dumps({**SCRIPT, "labels": {"city": label}})


text = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)
number = st.floats() | st.sampled_from([math.nan, math.inf, -math.inf, 1.0])
finite = st.floats(allow_nan=False, allow_infinity=False)
count = st.integers(0, 2**53)
time = st.integers(0, 4 * 10**15)
of_json = st.recursive(st.none() | st.booleans() | count | finite | text, lambda inner: st.lists(inner, max_size=3))
progress = st.fixed_dictionaries(
    {"step": count}, optional={"epoch": count, "fraction": finite, "eta_seconds": finite | st.none(), "older": text}
)
error = st.fixed_dictionaries(
    {"code": st.sampled_from([reason.value for reason in EndReason]), "message": text},
    optional={"rank": count | st.none(), "exit_code": st.integers(-64, 255), "traceback": text, "older": text},
)
device = st.fixed_dictionaries({"worker": text, "index": count, "uuid": text, "name": text}, optional={"kind": text})
initial = st.builds(
    InitialFacts,
    source_job=st.none() | text,
    source_checkpoint=st.none() | text,
    model_owner=text,
    model_name=st.none() | text,
    model_version=count,
    trainer=text,
    step=count,
    epoch=st.none() | count,
    files=st.just(()),
    size=count,
)
awaited = st.builds(
    DependencyFacts,
    text,
    st.none() | text,
    st.sampled_from(("succeeded", "finished", "failed")),
    st.none() | st.sampled_from(JobState),
)
estimated = st.builds(
    EstimateFacts, st.none() | time, st.none() | time, st.none() | time, time, st.integers(0, 200), st.integers(0, 200)
)
facts = st.builds(
    JobFacts,
    id=text,
    owner=st.sampled_from(["ada", "eve"]),
    visibility=st.sampled_from(["private", "team"]),
    name=text,
    trainer=text,
    state=st.sampled_from(JobState),
    priority=st.integers(-100, 100),
    labels=st.dictionaries(text, text, max_size=3),
    retry_of=st.none() | text,
    schedule_id=st.none() | text,
    version=count,
    attempt=count,
    progress=st.none() | progress,
    devices=st.lists(device, max_size=2),
    position=count,
    created_at=time,
    started_at=st.none() | time,
    finished_at=st.none() | time,
    archived_at=st.none() | time,
    has_notes=st.booleans(),
    starred_by=st.frozensets(st.sampled_from(["ada", "eve"])),
    error=st.none() | error,
    reason=st.builds(DisplayedReason, text, text, time),
    in_line=st.none() | count,
    estimate=st.none() | estimated,
    metrics=st.dictionaries(text, number, max_size=3),
    monitor=text,
    best=st.none() | st.builds(BestCheckpoint, text, number, st.none() | count, count),
    spec=st.builds(_spec, text),
    card=st.none() | st.dictionaries(text, of_json, max_size=3).map(json.dumps),
    notes=text,
    log_lines=count,
    initial=st.none() | initial,
    after=st.lists(awaited, max_size=2),
)


@given(facts)
def test_a_job_says_what_its_view_says(job: JobFacts) -> None:
    encoded = jobs.encoded_job(job, ADA)
    view = JobView.model_validate_json(encoded)
    _assert_same(encoded, view.model_dump_json())
    assert view.spec == SPEC.validate_python(json.loads(job.spec))


@given(st.lists(facts, max_size=3), st.sampled_from([ADA, OPERATOR]))
def test_a_list_says_what_its_rows_say(listed: list[JobFacts], caller: Caller) -> None:
    encoded = [json.loads(row) for row in jobs.encoded_summaries(listed, caller)]
    assert len(encoded) == len(listed)
    for shown, job in zip(encoded, listed, strict=True):
        _assert_same(json.dumps(shown), JobSummary.model_validate(shown).model_dump_json())
        if may_read(caller, job):
            view = json.loads(jobs.encoded_job(job, caller))
            assert shown == {key: view[key] for key in shown}
        else:
            assert not any(shown[key] for key in ("labels", "has_notes", "starred", "metrics", "best", "error"))
            assert (shown["status_reason"]["message"], shown["progress"]["step"]) == ("", 0)


@given(text, text)
def test_a_view_that_is_not_checked_is_the_view_that_pydantic_makes_of_the_same_values(code: str, message: str) -> None:
    values = {"code": code, "message": message, "position": None, "since": time_of(1), "estimate": None}
    made, known = StatusReason.model_construct(**values), StatusReason.trusted(**values)
    assert known == made
    assert (known.model_dump_json(), known.model_fields_set) == (made.model_dump_json(), made.model_fields_set)
    assert known.model_copy(update={"message": "other"}) == made.model_copy(update={"message": "other"})
    with pytest.raises(ValidationError, match="frozen"):
        setattr(known, "code", "other")  # noqa: B010 pyright knows that it is frozen


def test_numbers_that_json_has_not_are_named() -> None:
    values = {"nan": math.nan, "up": math.inf, "down": -math.inf, "one": 1.0}
    answer = json.loads(jobs.encoded_job(_job(metrics=values), ADA), parse_constant=_refuse)
    assert answer["metrics"] == {"nan": "NaN", "up": "Infinity", "down": "-Infinity", "one": 1.0}


def test_a_spec_that_an_older_version_wrote_has_all_defaults() -> None:
    spec = parse_spec(SCRIPT)
    answer = json.loads(jobs.encoded_job(_job(spec=json.dumps(SCRIPT)), ADA))
    assert answer["spec"] == spec.model_dump(mode="json")
    assert set(SCRIPT) < set(answer["spec"])


def _job(**some: Any) -> JobFacts:
    job = JobFacts(
        id="job_1",
        owner="ada",
        visibility="private",
        name="digits",
        trainer="script",
        state=JobState.RUNNING,
        priority=0,
        labels={},
        retry_of=None,
        schedule_id=None,
        version=1,
        attempt=1,
        progress=None,
        devices=[],
        position=0,
        created_at=1,
        started_at=1,
        finished_at=None,
        archived_at=None,
        has_notes=False,
        starred_by=frozenset(),
        error=None,
        reason=DisplayedReason("running", "", 1),
        in_line=None,
        metrics={},
        monitor="val/loss",
        best=None,
        spec=json.dumps(SCRIPT),
        card=None,
        notes="",
        log_lines=0,
        initial=None,
        after=(),
    )
    return replace(job, **some)


def _assert_same(encoded: bytes | str, *others: str) -> None:
    said = json.loads(encoded, parse_constant=_refuse)
    for other in others:
        assert said == json.loads(other)


def _refuse(constant: str) -> None:
    raise AssertionError(f"{constant} is not JSON")
