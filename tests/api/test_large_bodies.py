"""Large bodies are parsed by another process, with the same outcome, while this one answers others."""

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from functools import partial
import inspect
import json
from pathlib import Path
import signal
import threading
from typing import Any

import pytest

from api.limits.turns import Turns
from api.parsing import parser as parsing
from api.parsing import process
from api.parsing.parser import LARGE_BYTES, Parser
from tests.api.raw import wait_until
from tests.api.service import SPEC, ApiFixture
from tests.processes import Children
from torchyard.contract.errors import TooLarge, TorchyardError, Unavailable
from torchyard.contract.sweeps.spec import MOST_KEYS, SweepExtension, parse_sweep
from torchyard.contract.wire.schema import parse_request, parsed_json
from torchyard.host import confined

SCRIPT = {"trainer": "script", "config": {"code": "file:///x", "args": []}}
PAD = "x" * LARGE_BYTES
POINTS = [{"args.lr": 1e22, "args.name": f"ä{number}", "labels.x": None} for number in range(3000)]
MORE: dict[str, Any] = {"points": [{"args.name": "x" * 1000} for _ in range(100)], "max_parallel": 2}
"""What is added to a sweep has few values, which may be long."""
SWEEPS: list[dict[str, Any]] = [
    {"method": "list", "points": POINTS, "job": SCRIPT},
    {"parameters": {"args.a": [PAD, 1, 1.0, True, [None]], "args.b": "1..5"}, "labels": {"a": "b"}, "job": SCRIPT},
    {"method": "tpe", "trials": 3, "parameters": {"args.a": {"min": 0.1, "max": 2}}, "job": {**SCRIPT, "notes": PAD}},
]
WRONG: list[Any] = [
    {"method": "list", "points": [{f"labels.key{number}": "x" for number in range(10_000)}], "job": SCRIPT},
    {"method": "list", "points": [*POINTS, {"args.lr": 1}], "job": SCRIPT},
    {**SWEEPS[1], "unknown": 1},
    {**SWEEPS[1], "seed": 2**70},
    {**SWEEPS[1], "name": "\0"},
    [PAD],
    PAD,
]


@pytest.fixture(autouse=True)
def children() -> Children:
    return Children(process.__name__)


@pytest.fixture
def parser() -> Iterator[Parser]:
    with closing(Parser()) as made:
        yield made


def _bytes(sent: object) -> bytes:
    return json.dumps(sent).encode()


def _outcome(parse: Callable[[], object]) -> object:
    try:
        return parse()
    except TorchyardError as error:
        return type(error), error.message, error.errors


def test_a_large_body_is_what_it_is_when_it_is_parsed_here(parser: Parser, children: Children) -> None:
    for sent in SWEEPS:
        here, there = parse_sweep(sent), parser.sweep(_bytes(sent))
        assert there == here
        assert there.model_dump_json() == here.model_dump_json()
        assert there.model_fields_set == here.model_fields_set
    here, there = parse_request(SweepExtension, MORE), parser.extension(_bytes(MORE))
    assert (there, there.model_fields_set) == (here, here.model_fields_set)
    for of_parser, parse in ((parser.sweep, _sweep), (parser.extension, _extension)):
        for sent in (*map(_bytes, WRONG), _bytes(WRONG[0])[:-1], b'{"name": NaN, "x": "' + PAD.encode() + b'"}'):
            assert len(sent) >= LARGE_BYTES
            found = _outcome(partial(of_parser, sent))
            assert isinstance(found, tuple)
            assert found == _outcome(partial(parse, sent))
    assert len(children.running()) == 1


def _sweep(body: bytes) -> object:
    return parse_sweep(parsed_json(body))


def _extension(body: bytes) -> object:
    return parse_request(SweepExtension, parsed_json(body))


def test_the_jobs_of_a_large_batch_are_those_of_a_small_one_and_nothing_large_is_parsed_here(
    parser: Parser, children: Children, monkeypatch: pytest.MonkeyPatch
) -> None:
    jobs = [SPEC, 7, None, {"a": [1e22, -0.0, 10**30, "ä"]}]
    small = parser.batch(_bytes({"jobs": jobs, "atomic": True}))
    assert children.running() == []
    large = parser.batch(_bytes({"jobs": [*jobs, PAD], "atomic": True}))
    assert [json.loads(job) for job in small.jobs] == jobs
    assert [*small.jobs, _bytes(PAD)] == large.jobs
    assert small.atomic is large.atomic is True

    with pytest.raises(TorchyardError) as too_large:
        parser.sweep(_bytes({"method": "array", "trials": 1, "job": {**SCRIPT, "notes": PAD * 5}}))
    assert [error.field for error in too_large.value.errors] == ["job"]

    def refused(_: object) -> None:
        raise AssertionError("it is parsed here")

    monkeypatch.setattr(parsing, "parsed_json", refused)
    monkeypatch.setattr(process, "batch_parts", refused)
    assert len(parser.sweep(_bytes(SWEEPS[0])).points) == len(POINTS)
    assert parser.extension(_bytes(MORE)).size == len(MORE["points"])
    assert len(parser.batch(_bytes({"jobs": [SPEC, PAD]})).jobs) == 2


def test_a_process_that_dies_is_an_error_once(
    parser: Parser, monkeypatch: pytest.MonkeyPatch, children: Children
) -> None:
    parser.sweep(_bytes(SWEEPS[0]))
    (child,) = children.running()
    child.suspend()
    asks, send = threading.Event(), inspect.getattr_static(confined, "_send")

    def announced(*arguments: Any) -> None:
        asks.set()
        send(*arguments)

    monkeypatch.setattr(confined, "_send", announced)
    with ThreadPoolExecutor() as threads:
        waiting = threads.submit(parser.sweep, _bytes(SWEEPS[0]))
        assert asks.wait(60)
        child.kill()
        with pytest.raises(Unavailable, match="the process that reads large bodies has ended with -9: send the body"):
            waiting.result(60)
    assert len(parser.sweep(_bytes(SWEEPS[0])).points) == len(POINTS)


@pytest.mark.parametrize(
    ("answer", "kind"),
    [
        pytest.param("while True: pass", TooLarge, marks=pytest.mark.thorough),
        ("return bytes(1 << 22)", TooLarge),
        ("exit(3)", Unavailable),
    ],
)
def test_a_body_that_takes_more_than_it_may_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, answer: str, kind: type[TorchyardError]
) -> None:
    program = f"from torchyard.host.confined import serve\ndef answer(_):\n    {answer}\n"
    (tmp_path / "parses.py").write_text(f"{program}serve(lambda _: answer, memory_bytes=1 << 30)\n")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    monkeypatch.setattr(parsing, "CPU_S", 1)
    with closing(Parser("parses")) as parser, pytest.raises(kind):
        parser.sweep(_bytes(SWEEPS[0]))


def test_others_are_answered_while_a_large_body_is_parsed(service: ApiFixture, children: Children) -> None:
    service.app.state.services.settings.__dict__["max_body_bytes"] = 1 << 20
    validate = partial(service.client.post, "/v1/sweeps/validate", content=_bytes(WRONG[0]))
    with ThreadPoolExecutor() as threads:
        first = validate()
        (child,) = children.running()
        child.suspend()
        try:
            waiting = threads.submit(validate)
            for _ in range(20):
                assert service.client.get("/v1/me").status_code == 200
            assert not waiting.done()
        finally:
            child.send_signal(signal.SIGCONT)
        second = waiting.result(60)
    assert (first.status_code, second.status_code) == (422, 422)
    said = [{"field": "points.0", "message": f"has 10000 keys, and at most {MOST_KEYS} may vary"}]
    assert first.json()["errors"] == second.json()["errors"] == said


def test_small_bodies_are_parsed_while_large_ones_of_others_wait_for_their_process(
    service: ApiFixture, children: Children, monkeypatch: pytest.MonkeyPatch
) -> None:
    service.app.state.services.settings.__dict__["max_body_bytes"] = 1 << 20
    began, begin = list[str](), Turns.begin

    async def noted(turns: Turns, user: str, part: Callable[[], Any]) -> Any:
        began.append(user)
        return await begin(turns, user, part)

    headers: dict[str, dict[str, str]] = {}
    for name in ("ada", "bob", "cleo", "dora"):
        service.act_as(name)
        headers[name] = {"Authorization": str(service.client.headers["Authorization"])}
    validate = partial(service.client.post, "/v1/sweeps/validate", content=_bytes(WRONG[0]))
    with ThreadPoolExecutor() as threads:
        validate()
        (child,) = children.running()
        child.suspend()
        try:
            monkeypatch.setattr(Turns, "begin", noted)
            large = [threads.submit(validate, headers=headers[name]) for name in ("ada", "bob", "cleo")]
            wait_until(lambda: len(began) == len(large))
            answer = service.client.post(
                "/v1/jobs/validate", json={"trainer": "script", "k" * 300: 0}, headers=headers["dora"]
            )
        finally:
            child.send_signal(signal.SIGCONT)
        assert answer.status_code == 422
        assert [each.result(60).status_code for each in large] == [422] * 3
