"""The job spec: what it accepts, what it refuses and by which name, and that a resolved spec is a spec."""

from datetime import timedelta
import json
from typing import Any

from hypothesis import given
from hypothesis import strategies as st
import pytest

from torchyard.errors import InvalidSpec
from torchyard.recipes import METRICS
from torchyard.schema import format_duration, parse_duration
from torchyard.spec import CONFIGS, SPEC, ImageClassificationSpec, ScriptSpec, parse_spec

IMAGES: dict[str, Any] = {"trainer": "image-classification"}
SCRIPT: dict[str, Any] = {"trainer": "script", "config": {"code": "file:///code"}}


def deep(levels: int) -> Any:
    value: Any = 1
    for _ in range(levels):
        value = [value]
    return value


def put(spec: dict[str, Any], path: str, value: Any) -> dict[str, Any]:
    """A copy of `spec` with `value` at the dotted `path`."""
    head, _, rest = path.partition(".")
    return spec | {head: put(spec.get(head, {}), rest, value) if rest else value}


def refused(raw: object) -> dict[str, str]:
    """The refusal of `raw`: each field with its message."""
    with pytest.raises(InvalidSpec) as caught:
        parse_spec(raw)
    assert caught.value.errors
    return {error.field: error.message for error in caught.value.errors}


def test_the_smallest_specs_are_valid() -> None:
    images = parse_spec(IMAGES)
    assert isinstance(images, ImageClassificationSpec)
    assert images == parse_spec(IMAGES | {"config": {"data": {"source": "digits"}}})
    assert (images.name, images.priority, images.max_restarts) == ("image-classification", 0, 2)
    assert (images.time_limit, images.stop_grace) == (timedelta(hours=24), timedelta(seconds=30))
    script = parse_spec(SCRIPT)
    assert isinstance(script, ScriptSpec)
    assert (script.name, script.config.entrypoint, script.config.args) == ("script", "train.py", [])


def test_a_full_spec_is_taken_as_it_is_written() -> None:
    spec = parse_spec(
        IMAGES
        | {
            "name": "digits.v2-a_b",
            "resources": {"nodes": 1, "devices_per_node": 2, "device": "cpu", "min_memory_gb": 1},
            "checkpoint": {"every_epochs": None, "every_steps": 10, "monitor": "val/accuracy", "mode": "max"},
            "priority": -100,
            "max_restarts": 0,
            "time_limit": "7d",
            "stall_timeout": "90s",
            "stop_grace": "0s",
            "labels": {"team/a": "☃"},
            "env": {"OMP_NUM_THREADS": "2", "_x": ""},
            "config": {"data": {"source": "file:///data/x", "workers": 4, "normalize": {"mean": [0.5], "std": [1]}}},
        }
    )
    resolved = spec.model_dump(mode="json")
    assert resolved["checkpoint"]["every_epochs"] is None
    assert resolved["time_limit"] == "7d"
    assert resolved["resources"]["min_memory_gb"] == 1.0
    assert resolved["env"] == {"OMP_NUM_THREADS": "2", "_x": ""}
    assert resolved["config"]["data"]["normalize"] == {"mean": [0.5], "std": [1.0]}


ANYWHERE: list[tuple[str, Any]] = [
    ("colour", "red"),
    ("resources.gpus", 2),
    ("checkpoint.every", 1),
    ("name", ""),
    ("name", "-a"),
    ("name", "a b"),
    ("name", "a\n"),
    ("name", "ü"),
    ("name", "a" * 101),
    ("name", 7),
    ("name", None),
    ("name", "a\0"),
    ("name", "\ud800"),
    ("priority", 101),
    ("priority", -101),
    ("priority", True),
    ("priority", 1.0),
    ("priority", "1"),
    ("priority", 10**400),
    ("priority", float("nan")),
    ("max_restarts", -1),
    ("max_restarts", 1001),
    ("max_restarts", False),
    ("max_restarts", None),
    ("preemptible", True),
    ("preemptible", 0),
    ("preemptible", "no"),
    ("resources", 2),
    ("resources", None),
    ("resources", []),
    ("resources.nodes", 0),
    ("resources.nodes", 2),
    ("resources.devices_per_node", 0),
    ("resources.devices_per_node", -1),
    ("resources.devices_per_node", 1025),
    ("resources.devices_per_node", True),
    ("resources.devices_per_node", 1.5),
    ("resources.devices_per_node", "2"),
    ("resources.device", "tpu"),
    ("resources.min_memory_gb", 0),
    ("resources.min_memory_gb", float("inf")),
    ("resources.min_memory_gb", float("nan")),
    ("resources.min_memory_gb", True),
    ("checkpoint.every_epochs", 0),
    ("checkpoint.every_steps", 2**31),
    ("checkpoint.keep_last", 3),
    ("checkpoint.keep_best", 2),
    ("checkpoint.mode", "least"),
    ("checkpoint.monitor", ""),
    ("checkpoint.monitor", "a\tb"),
    ("time_limit", "0s"),
    ("time_limit", "24"),
    ("time_limit", "24 h"),
    ("time_limit", "1h30m"),
    ("time_limit", "-1h"),
    ("time_limit", "1.5h"),
    ("time_limit", "١h"),
    ("time_limit", "h"),
    ("time_limit", ""),
    ("time_limit", 86400),
    ("time_limit", None),
    ("time_limit", "3651d"),
    ("time_limit", "999999999d"),
    ("time_limit", "9999999999s"),
    ("stall_timeout", "0m"),
    ("stop_grace", "-1s"),
    ("labels", ["a"]),
    ("labels", {"": "a"}),
    ("labels", {"a b": "a"}),
    ("labels", {"a": 1}),
    ("labels", {"a": "b" * 201}),
    ("labels", {f"k{number}": "" for number in range(33)}),
    ("env", {"": "a"}),
    ("env", {"1A": "a"}),
    ("env", {"A=B": "a"}),
    ("env", {"A\n": "a"}),
    ("env", {"A": 1}),
    ("env", {"A": "b" * 32_769}),
    ("env", {"A": "\0"}),
    ("env", {f"K{number}": "" for number in range(257)}),
]


@pytest.mark.parametrize(("path", "value"), ANYWHERE)
@pytest.mark.parametrize("base", [IMAGES, SCRIPT], ids=["images", "script"])
def test_bad_values_are_refused_by_name(base: dict[str, Any], path: str, value: Any) -> None:
    assert all(field == path or field.startswith(f"{path}.") for field in refused(put(base, path, value)))


@pytest.mark.parametrize(
    "name",
    [
        *("TORCHYARD_JOB_ID", "TORCHYARD_", "TORCHELASTIC_RUN_ID", "LD_PRELOAD", "LD_LIBRARY_PATH", "MASTER_ADDR"),
        *("MASTER_PORT", "RANK", "LOCAL_RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE", "GROUP_RANK", "ROLE_RANK"),
        *("CUDA_VISIBLE_DEVICES", "CUDA_DEVICE_ORDER", "PYTHONPATH", "PYTHONHOME", "PYTHONUNBUFFERED"),
    ],
)
def test_a_variable_that_the_service_sets_is_refused(name: str) -> None:
    assert refused(SCRIPT | {"env": {name: "1"}}) == {"env": f"{name} is set by the service and cannot be chosen"}


@pytest.mark.parametrize("name", ["RANKS", "MY_RANK", "OMP_NUM_THREADS", "NCCL_DEBUG", "HF_HOME", "rank"])
def test_a_variable_of_the_users_own_is_not(name: str) -> None:
    assert parse_spec(SCRIPT | {"env": {name: "1"}}).env == {name: "1"}


@pytest.mark.parametrize(
    ("path", "value"),
    [
        ("config", None),
        ("config", []),
        ("config.momentum", 0.9),
        ("config.model.name", "../resnet"),
        ("config.model.name", ""),
        ("config.model.weights", "imagenet"),
        ("config.model.freeze", ["conv1"]),
        ("config.data.source", "file://relative"),
        ("config.data.source", "file:///"),
        ("config.data.source", "/data"),
        ("config.data.source", "http://host/x"),
        ("config.data.source", "file:///a\nb"),
        ("config.data.source", "file:///" + "a" * 4001),
        ("config.data.val_fraction", 0),
        ("config.data.val_fraction", 1),
        ("config.data.image_size", 7),
        ("config.data.image_size", 2049),
        ("config.data.normalize", {"mean": [0.5], "std": [0.5, 0.5]}),
        ("config.data.normalize", {"mean": [0.5], "std": [0.0]}),
        ("config.data.normalize", "imagenet"),
        ("config.data.workers", "many"),
        ("config.data.workers", True),
        ("config.training.epochs", 0),
        ("config.training.epochs", 10**9),
        ("config.training.epochs", True),
        ("config.training.max_steps", 0),
        ("config.training.seed", -1),
        ("config.training.seed", 2**32),
        ("config.training.deterministic", 1),
        ("config.training.precision", "fp8"),
        ("config.training.compile", True),
        ("config.optimizer.name", "lion"),
        ("config.optimizer.lr", 0),
        ("config.optimizer.lr", -0.1),
        ("config.optimizer.lr", 10**400),
        ("config.optimizer.lr", float("nan")),
        ("config.optimizer.lr", "1e-3"),
        ("config.optimizer.lr", True),
        ("config.optimizer.clip_grad_norm", 0),
        ("config.optimizer.lookahead", {"k": 5}),
        ("config.lr_scheduler.name", "plateau"),
        ("config.distributed.strategy", "fsdp"),
        ("config.distributed.timeout", "soon"),
        ("config.ema", {"decay": 0.9}),
        ("config.logging.every_steps", 0),
    ],
)
def test_bad_configuration_of_the_image_classifier_is_refused_by_name(path: str, value: Any) -> None:
    assert all(field == path or field.startswith(f"{path}.") for field in refused(put(IMAGES, path, value)))


@pytest.mark.parametrize(
    ("path", "value"),
    [
        ("config.code", None),
        ("config.code", "file://"),
        ("config.code", "code"),
        ("config.code", "file:///a\n"),
        ("config.code", "bundle:sha256:" + "0" * 64),
        ("config.entrypoint", "/train.py"),
        ("config.entrypoint", "../train.py"),
        ("config.entrypoint", "train.sh"),
        ("config.entrypoint", "-c.py"),
        ("config.entrypoint", "a b.py"),
        ("config.args", "--epochs 3"),
        ("config.args", [3]),
        ("config.args", ["a\0b"]),
        ("config.args", ["a"] * 1001),
        ("config.args", ["a" * 10_001]),
        ("config.requirements", "torch"),
        ("config.model", {}),
    ],
)
def test_bad_configuration_of_a_script_is_refused_by_name(path: str, value: Any) -> None:
    assert all(field == path or field.startswith(f"{path}.") for field in refused(put(SCRIPT, path, value)))


def test_an_entrypoint_stays_inside_the_code() -> None:
    assert refused(put(SCRIPT, "config.entrypoint", "a/../../b.py")) == {
        "config": "entrypoint must lie inside the code folder"
    }


def test_a_script_needs_its_code() -> None:
    assert list(refused({"trainer": "script"})) == ["config"]
    assert list(refused({"trainer": "script", "config": {}})) == ["config.code"]


@pytest.mark.parametrize("raw", [None, 7, "trainer: script", [], [IMAGES], True])
def test_what_is_no_object_is_refused(raw: object) -> None:
    assert list(refused(raw)) == [""]


@pytest.mark.parametrize("trainer", [None, "", "segmentation", "Script", 7, ["script"], {"script": 1}])
def test_an_unknown_trainer_is_refused(trainer: object) -> None:
    expected = {"trainer": "must be one of image-classification, script"}
    assert refused({"trainer": trainer}) == refused({}) == expected


def test_every_wrong_field_is_named_at_once() -> None:
    wrong = put(put(put(IMAGES, "priority", 1000), "config.training.epochs", 0), "config.loss.weight", 1)
    assert set(refused(wrong)) == {"priority", "config.training.epochs", "config.loss.weight"}


def test_the_monitored_metric_is_one_that_the_recipe_measures() -> None:
    (message,) = refused(put(IMAGES, "checkpoint.monitor", "val/iou")).values()
    assert "val/accuracy" in message
    for key in METRICS["image-classification"]:
        parse_spec(put(IMAGES, "checkpoint.monitor", key))
    parse_spec(put(SCRIPT, "checkpoint.monitor", "my/own metric"))


def test_options_that_exclude_each_other_are_refused() -> None:
    assert refused(
        put(put(IMAGES, "config.optimizer", {"name": "sgd", "momentum": 0.0}), "config.optimizer.nesterov", True)
    )
    wrong = {"distributed": {"static_graph": True}, "training": {"gradient_accumulation_steps": 2}}
    assert "no_sync" in str(refused(IMAGES | {"config": wrong}))


@pytest.mark.parametrize("key", ["labels", "env", "config", "nonsense"])
def test_absurd_nesting_is_refused(key: str) -> None:
    assert refused(SCRIPT | {key: deep(33)})
    assert refused(SCRIPT | {key: deep(100_000)})


@pytest.mark.parametrize("raw", [{"na\0me": 1}, {"config": {"args": ["ok", {"\udfff": 1}]}}, {"labels": {"a": "\0"}}])
def test_text_that_no_database_stores_is_refused_by_name(raw: dict[str, Any]) -> None:
    ((field, message),) = refused(SCRIPT | raw).items()
    assert field in {"na\ufffdme", "config.args.1.\ufffd", "labels.a"}
    assert message == "text holds a NUL or a lone surrogate"


@given(st.integers(1, 3650 * 86_400))
def test_a_duration_is_written_as_it_is_read(seconds: int) -> None:
    written = format_duration(timedelta(seconds=seconds))
    assert parse_duration(written) == timedelta(seconds=seconds)


@pytest.mark.parametrize(
    ("written", "seconds"), [("90s", 90), ("15m", 900), ("24h", 86_400), ("7d", 604_800), ("0s", 0), ("007s", 7)]
)
def test_spellings_of_a_duration(written: str, seconds: int) -> None:
    assert parse_duration(written) == timedelta(seconds=seconds)


_DURATIONS = st.builds("{}{}".format, st.integers(1, 3650), st.sampled_from("smhd"))
_NAMES = st.from_regex(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}", fullmatch=True)
_TEXTS = st.text(st.characters(blacklist_categories=["Cs"], blacklist_characters="\0"), max_size=50)
_COMMON = st.fixed_dictionaries(
    {},
    optional={
        "name": _NAMES,
        "priority": st.integers(-100, 100),
        "max_restarts": st.integers(0, 1000),
        "time_limit": _DURATIONS,
        "stall_timeout": _DURATIONS,
        "stop_grace": _DURATIONS,
        "labels": st.dictionaries(_NAMES.map(lambda name: name[:60]), _TEXTS, max_size=3),
        "env": st.dictionaries(st.from_regex(r"[a-z_][a-z0-9_]{0,20}", fullmatch=True), _TEXTS, max_size=3),
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
                "monitor": st.sampled_from(sorted(METRICS["image-classification"])),
                "mode": st.sampled_from(["min", "max"]),
            },
        ),
    },
)
_SCRIPTS = st.fixed_dictionaries(
    {"code": st.just("file:///code")}, optional={"args": st.lists(_TEXTS, max_size=3), "entrypoint": st.just("a/b.py")}
)
_IMAGES = st.fixed_dictionaries(
    {},
    optional={
        "optimizer": st.fixed_dictionaries({}, optional={"lr": st.floats(1e-9, 1000), "fused": st.booleans()}),
        "distributed": st.fixed_dictionaries({}, optional={"timeout": _DURATIONS}),
        "data": st.fixed_dictionaries({}, optional={"workers": st.just("auto") | st.integers(0, 64)}),
    },
)


@given(
    _COMMON,
    st.tuples(st.just("script"), _SCRIPTS) | st.tuples(st.just("image-classification"), _IMAGES),
)
def test_a_resolved_spec_is_a_valid_spec_that_means_the_same(common: dict[str, Any], own: tuple[str, Any]) -> None:
    spec = parse_spec(common | {"trainer": own[0], "config": own[1]})
    resolved = json.loads(json.dumps(spec.model_dump(mode="json"), allow_nan=False))
    assert parse_spec(resolved) == spec
    assert parse_spec(resolved).model_dump(mode="json") == resolved
    assert SPEC.validate_json(spec.model_dump_json()) == spec


_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
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
