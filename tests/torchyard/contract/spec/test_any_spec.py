"""Whatever is sent is a spec or refused, and a resolved spec is a spec."""

import json
import operator
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from torchyard.contract.bundles.names import bundle_url
from torchyard.contract.errors import InvalidSpec
from torchyard.contract.spec.spec import CONFIGS, SPEC, ScriptSpec, parse_spec

_DURATIONS = st.builds("{}{}".format, st.integers(1, 3650), st.sampled_from("smhd"))
_ASCII = st.characters(max_codepoint=127)
_ANY = st.characters(exclude_categories=["Cs"])
"""What UTF-8 can write, as by default: to find that by the codec takes two seconds of a processor."""
_NAMES = st.from_regex(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}", fullmatch=True, alphabet=_ASCII)
_TEXTS = st.text(st.characters(blacklist_categories=["Cs"], blacklist_characters="\0"), max_size=50)
_COMMON = st.fixed_dictionaries(
    {},
    optional={
        "name": _NAMES,
        "priority": st.integers(-100, 100),
        "launcher": st.sampled_from(["auto", "warm", "torchrun"]),
        "max_restarts": st.integers(0, 1000),
        "time_limit": _DURATIONS,
        "stall_timeout": _DURATIONS,
        "stop_grace": _DURATIONS,
        "labels": st.dictionaries(_NAMES.map(lambda name: name[:60]), _TEXTS, max_size=3),
        "env": st.dictionaries(st.sampled_from(["OMP_NUM_THREADS", "NCCL_DEBUG", "TZ"]), _TEXTS, max_size=3),
        "resources": st.fixed_dictionaries(
            {},
            optional={
                "devices_per_node": st.integers(1, 1024),
                "device": st.sampled_from(["auto", "cuda", "cpu"]),
                "min_memory_gb": st.none() | st.floats(0.1, 1000) | st.integers(1, 1000),
            },
        ),
        "checkpoint": st.fixed_dictionaries(
            {},
            optional={
                "every_epochs": st.none() | st.integers(1, 2**31 - 1),
                "keep_last": st.none() | st.integers(1, 100),
                "monitor": st.sampled_from(["val/loss", "train/loss"]),
                "mode": st.sampled_from(["min", "max"]),
            },
        ),
    },
)
_URLS = st.sampled_from(["file:///data", bundle_url("1" * 64)])
_SCRIPTS = st.fixed_dictionaries(
    {"code": st.just("file:///code")}, optional={"args": st.lists(_TEXTS, max_size=3), "entrypoint": st.just("a/b.py")}
)
_SCRIPTS_OF_BUNDLES = st.builds(
    operator.or_,
    st.fixed_dictionaries(
        {"code": st.just(bundle_url("0" * 64))},
        optional={
            "mounts": st.dictionaries(
                st.from_regex(r"[A-Za-z0-9_-]{1,64}", fullmatch=True, alphabet=_ASCII), _URLS, max_size=3
            ),
            "git": st.none() | st.just({"commit": "a" * 40, "diff": "+1"}),
        },
    ),
    st.sampled_from([{}, {"entrypoint": "a.py"}, {"module": "a.b"}, {"command": "./run.sh"}]),
)
_RECIPE: dict[str, st.SearchStrategy[Any]] = {
    "training": st.fixed_dictionaries({}, optional={"max_steps": st.none() | st.integers(1, 100)}),
    "optimizer": st.fixed_dictionaries({}, optional={"lr": st.floats(1e-9, 1000), "fused": st.booleans()}),
    "distributed": st.fixed_dictionaries({}, optional={"timeout": _DURATIONS}),
    "ema": st.none() | st.fixed_dictionaries({}, optional={"decay": st.floats(0, 0.9999)}),
    "early_stopping": st.none() | st.fixed_dictionaries({}, optional={"min_delta": st.floats(0, 1)}),
}
_WORKERS = st.just("auto") | st.integers(0, 64)
_OF_IMAGES = st.fixed_dictionaries(
    {}, optional=_RECIPE | {"data": st.fixed_dictionaries({}, optional={"workers": _WORKERS})}
)
_OF_MASKS = st.fixed_dictionaries(
    {"data": st.fixed_dictionaries({"source": st.just("file:///x")}, optional={"workers": _WORKERS})}, optional=_RECIPE
)
_OF_TEXTS = st.fixed_dictionaries({"data": st.just({"source": "file:///x"})}, optional=_RECIPE)
_LORA = st.fixed_dictionaries(
    {}, optional={"rank": st.integers(1, 4096), "targets": st.just("all-linear") | st.just(["q_proj", "v_proj"])}
)
_OF_WORDS = st.fixed_dictionaries(
    {
        "model": st.fixed_dictionaries({"weights": _URLS}, optional={"lora": _LORA}),
        "data": st.fixed_dictionaries({"source": _URLS}, optional={"packing": st.booleans()}),
    },
    optional=_RECIPE,
)


@given(
    _COMMON,
    st.one_of(
        [
            st.tuples(st.just(trainer), config)
            for trainer, config in zip(
                CONFIGS, (_OF_IMAGES, _OF_MASKS, _OF_TEXTS, _OF_WORDS, _SCRIPTS | _SCRIPTS_OF_BUNDLES), strict=True
            )
        ]
    ),
)
def test_a_resolved_spec_is_a_valid_spec_that_means_the_same(common: dict[str, Any], own: tuple[str, Any]) -> None:
    spec = parse_spec(common | {"trainer": own[0], "config": own[1]})
    resolved = json.loads(json.dumps(spec.model_dump(mode="json"), allow_nan=False))
    assert parse_spec(resolved) == spec
    assert parse_spec(resolved).model_dump(mode="json") == resolved
    assert SPEC.validate_json(spec.model_dump_json()) == spec


_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(_ANY),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(_ANY), inner, max_size=4),
    max_leaves=12,
)
_FIELDS = st.sampled_from(sorted({*ScriptSpec.model_fields, "unknown"}))


@given(st.dictionaries(_FIELDS, _JSON, max_size=5), st.sampled_from([*CONFIGS, "none"]))
def test_whatever_is_sent_is_a_spec_or_refused(fields: dict[str, Any], trainer: str) -> None:
    try:
        spec = parse_spec(fields | {"trainer": trainer})
    except InvalidSpec as refusal:
        assert refusal.errors
        return
    assert parse_spec(spec.model_dump(mode="json")) == spec
