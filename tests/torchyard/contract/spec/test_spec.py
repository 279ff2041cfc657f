"""The job spec: what it accepts, and what it refuses by which name."""

from collections.abc import Iterator
from datetime import timedelta
import re
from typing import Any

from hypothesis import given
from hypothesis import strategies as st
import pytest

from tests.approved import Approved
from tests.torchyard.contract.specs import (
    IMAGES,
    MASKS,
    SCRIPT,
    TEXTS,
    WORDS,
    deep,
    every_recipe,
    put,
    put_all,
    refused,
)
from torchyard.contract.recipes import REGISTRY, ImageClassification
from torchyard.contract.spec.spec import CONFIGS, SPEC, RecipeSpec, ScriptSpec, parse_spec
from torchyard.contract.wire.units import format_duration, parse_duration


def test_the_smallest_specs_are_valid() -> None:
    images = parse_spec(IMAGES)
    assert isinstance(images, RecipeSpec)
    assert isinstance(images.config, ImageClassification)
    assert images == parse_spec(IMAGES | {"config": {"data": {"source": "digits"}}})
    assert (images.name, images.priority, images.max_restarts) == ("image-classification", 0, 2)
    assert (images.time_limit, images.stop_grace) == (timedelta(hours=24), timedelta(seconds=30))
    others = [parse_spec(spec).name for spec in (MASKS, TEXTS, WORDS)]
    assert others == ["segmentation", "text-classification", "causal-lm"]
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
            "env": {"OMP_NUM_THREADS": "2", "TZ": ""},
            "config": {"data": {"source": "file:///data/x", "workers": 4, "normalize": {"mean": [0.5], "std": [1]}}},
        }
    )
    resolved = spec.model_dump(mode="json")
    assert resolved["checkpoint"]["every_epochs"] is None
    assert resolved["time_limit"] == "7d"
    assert resolved["resources"]["min_memory_gb"] == 1.0
    assert resolved["env"] == {"OMP_NUM_THREADS": "2", "TZ": ""}
    assert resolved["config"]["data"]["normalize"] == {"mean": [0.5], "std": [1.0]}


TECHNIQUES: dict[str, Any] = {
    "checkpoint": {"every_steps": 10, "keep_last": 3, "keep_best": 2},
    "config.model": {"weights": "file:///weights", "init": "kaiming", "freeze": ["encoder", "*.bias"]},
    "config.training": {
        "max_steps": 100,
        "gradient_accumulation_steps": 4,
        "deterministic": True,
        "precision": "bf16",
        "channels_last": True,
        "compile": True,
        "auto_batch": True,
    },
    "config.optimizer": {
        "name": "sgd",
        "nesterov": True,
        "clip_grad_norm": 1,
        "lookahead": {"every_steps": 5, "alpha": 0.5},
        "lr_scaling": "sqrt",
    },
    "config.lr_scheduler": {"name": "plateau", "warmup_steps": 10, "patience": 0},
    "config.ema": {"decay": 0.99, "ramp": 0, "device": "cpu"},
    "config.early_stopping": {"patience": 3, "min_delta": 0.01},
    "config.distributed": {"sync_batchnorm": True, "find_unused_parameters": True, "comm_hook": "powersgd"},
}


BASE = {"weights": "file:///weights", "method": "full", "freeze": ["model.embed", "*.bias"]}
"""A base has no initialization of its own: all of its weights are there."""


@every_recipe
def test_every_technique_is_an_option_of_every_recipe(recipe: dict[str, Any]) -> None:
    techniques = TECHNIQUES | ({"config.model": BASE} if recipe is WORDS else {})
    resolved = parse_spec(put_all(recipe, techniques)).model_dump(mode="json")
    for path, value in techniques.items():
        section = resolved
        for key in path.split("."):
            section = section[key]
        assert {key: section[key] for key in value} == value


@every_recipe
@pytest.mark.parametrize("strategy", ["ddp", "local_sgd", "fsdp"])
def test_every_strategy_is_an_option_of_every_recipe(recipe: dict[str, Any], strategy: str) -> None:
    assert "strategy" in str(parse_spec(put(recipe, "config.distributed.strategy", strategy)))


@every_recipe
def test_a_section_in_part_keeps_the_recipes_defaults_for_the_rest(recipe: dict[str, Any]) -> None:
    sections = [name for name, value in recipe_config(recipe).items() if isinstance(value, dict)]
    assert len(sections) >= 7
    for section in sections:
        own = recipe.get("config", {}).get(section, {})
        assert recipe_config(put(recipe, f"config.{section}", own)) == recipe_config(recipe)


def recipe_config(spec: dict[str, Any]) -> dict[str, Any]:
    return parse_spec(spec).model_dump(mode="json")["config"]


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
    ("launcher", "slurm"),
    ("launcher", None),
    ("preemptible", 0),
    ("preemptible", "no"),
    ("resources", 2),
    ("resources", None),
    ("resources", []),
    ("resources.nodes", 0),
    ("resources.nodes", 10_001),
    ("resources.pool", ""),
    ("resources.pool", "-gpu"),
    ("resources.pool", "a,b"),
    ("slurm.account", "-A"),
    ("slurm.qos", "high low"),
    ("slurm.constraint", "-a"),
    ("slurm.constraint", "a b"),
    ("slurm.reservation", "x\n"),
    ("slurm.partition", "gpu"),
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
    ("resources.cpus", 0),
    ("resources.cpus", -1),
    ("resources.cpus", 1e9),
    ("resources.cpus", float("nan")),
    ("resources.cpus", "4"),
    ("resources.memory_gb", 0),
    ("resources.memory_gb", float("inf")),
    ("resources.memory_gb", 1e7),
    ("resources.memory_gb", False),
    ("resources.gpu", []),
    ("resources.gpu", "H100"),
    ("resources.gpu", ["H100"] * 17),
    ("profile.start", 0),
    ("profile.start", 2**31),
    ("profile.steps", 0),
    ("profile.steps", 101),
    ("profile", "20:5"),
    ("checkpoint.every_epochs", 0),
    ("checkpoint.every_steps", 2**31),
    ("checkpoint.keep_last", 0),
    ("checkpoint.keep_best", 0),
    ("checkpoint.keep_best", None),
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
    ("labels", {f"k{number}": "b" * 200 for number in range(21)}),
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
@pytest.mark.parametrize("base", [IMAGES, SCRIPT], ids=["images", "script"])  # what all trainers share
def test_bad_values_are_refused_by_name(base: dict[str, Any], path: str, value: Any) -> None:
    assert all(field == path or field.startswith(f"{path}.") for field in refused(put(base, path, value)))


@pytest.mark.parametrize(
    "name",
    [
        *("TORCHYARD_JOB_ID", "TORCHYARD_", "TORCHELASTIC_RUN_ID", "LD_PRELOAD", "LD_LIBRARY_PATH", "MASTER_ADDR"),
        *("MASTER_PORT", "RANK", "LOCAL_RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE", "GROUP_RANK", "ROLE_RANK"),
        *("CUDA_VISIBLE_DEVICES", "CUDA_DEVICE_ORDER", "PYTHONHOME", "PYTHONUNBUFFERED"),
    ],
)
def test_a_variable_that_the_service_sets_is_refused(name: str, approved: Approved) -> None:
    assert refused(SCRIPT | {"env": {name: "1"}}) == {"env": approved("env", name=name)}


@pytest.mark.parametrize("value", ["/usr/lib", "..", "lib/../..", "", "lib:", "lib:/etc", {"secret": "A"}])
def test_pythonpath_names_folders_of_the_code_alone(value: Any) -> None:
    (message,) = refused(SCRIPT | {"env": {"PYTHONPATH": value}}).values()
    assert message.startswith("PYTHONPATH may name folders of the code")
    assert parse_spec(SCRIPT | {"env": {"PYTHONPATH": ".:src/lib"}}).plain_env == {"PYTHONPATH": ".:src/lib"}
    assert "cannot be set for a recipe" in refused(IMAGES | {"env": {"PYTHONPATH": "."}})["env"]


@pytest.mark.parametrize("python", ["../env", "-x", "/a/../b", "a b", "env/bin/python", ""])
def test_an_environment_is_a_name_or_an_absolute_path(python: str) -> None:
    config = SCRIPT["config"] | {"python": python}
    assert {field.partition(".")[0] for field in refused(SCRIPT | {"config": config})} == {"config"}
    for text in ("ml", "py3.12+cu", "/opt/conda/envs/ml", "/srv/env/bin/python3.10"):
        parsed = parse_spec(SCRIPT | {"config": SCRIPT["config"] | {"python": text}})
        assert parsed.model_dump(mode="json")["config"]["python"] == text


def test_an_environment_and_packages_of_its_own_exclude_each_other() -> None:
    config = SCRIPT["config"] | {"python": "ml", "requirements": "requirements.txt"}
    (message,) = refused(SCRIPT | {"config": config}).values()
    assert message.startswith("give python or requirements, not both")


def test_a_resolved_spec_names_what_was_left_out() -> None:
    resolved = parse_spec(SCRIPT).model_dump(mode="json")
    assert (resolved["launcher"], resolved["visibility"]) == ("auto", None)


@pytest.mark.parametrize(
    "name",
    [
        *("PYTHONWARNINGS", "BROWSER", "PYTHONPYCACHEPREFIX", "CXX", "GCONV_PATH", "CUDA_INJECTION64_PATH", "HOME"),
        *("NCCL_NET_PLUGIN", "NCCL_DEBUG_FILE", "OMP_TOOL_LIBRARIES", "TORCH_LOGS", "TORCH_HOME", "HF_ENDPOINT", "x"),
    ],
)
def test_a_recipe_refuses_variables_that_could_run_code(name: str) -> None:
    for value in ("1", {"secret": "S"}):
        message = f"{name} cannot be set for a recipe, only for a script: docs/reference/recipes.md lists the others"
        assert refused(IMAGES | {"env": {name: value}}) == {"env": message}


@pytest.mark.parametrize("name", ["NCCL_DEBUG", "OMP_NUM_THREADS", "PYTORCH_CUDA_ALLOC_CONF", "HF_TOKEN", "TZ"])
def test_a_recipe_takes_variables_that_tune_it(name: str) -> None:
    assert parse_spec(IMAGES | {"env": {name: "1"}}).env == {name: "1"}


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
        ("config.model.weights", "http://host/weights"),
        ("config.model.weights", "file:///"),
        ("config.model.init", "orthogonal"),
        ("config.model.freeze", "conv1"),
        ("config.model.freeze", [""]),
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
        ("config.data.normalize", "cifar"),
        ("config.data.augment", ["blur"]),
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
        ("config.training.compile", 1),
        ("config.training.gradient_accumulation_steps", 0),
        ("config.training.max_nonfinite_steps", 0),
        ("config.optimizer.name", "lion"),
        ("config.optimizer.lr", 0),
        ("config.optimizer.lr", -0.1),
        ("config.optimizer.lr", 10**400),
        ("config.optimizer.lr", float("nan")),
        ("config.optimizer.lr", "1e-3"),
        ("config.optimizer.lr", True),
        ("config.optimizer.clip_grad_norm", 0),
        ("config.optimizer.lookahead", {"k": 5}),
        ("config.optimizer.lookahead", {"alpha": 0}),
        ("config.optimizer.lr_scaling", "cubic"),
        ("config.lr_scheduler.name", "exponential"),
        ("config.lr_scheduler.gamma", 0),
        ("config.lr_scheduler.step_epochs", 0),
        ("config.lr_scheduler.warmup_epochs", -0.5),
        ("config.distributed.strategy", "ddp2"),
        ("config.distributed.comm_hook", "fp8"),
        ("config.distributed.local_sgd.period", 0),
        ("config.distributed.timeout", "soon"),
        ("config.loss.label_smoothing", 1),
        ("config.loss.mixup", -1),
        ("config.ema", {"decay": 1}),
        ("config.early_stopping", {"patience": 0}),
        ("config.logging.every_steps", 0),
    ],
)
def test_bad_configuration_of_the_image_classifier_is_refused_by_name(path: str, value: Any) -> None:
    assert all(field == path or field.startswith(f"{path}.") for field in refused(put(IMAGES, path, value)))


@pytest.mark.parametrize(
    ("recipe", "path", "value"),
    [
        *((recipe, "config.data.source", source) for recipe in (MASKS, TEXTS) for source in ("digits", "file:///")),
        (MASKS, "config.model.name", "resnet34"),
        (MASKS, "config.model", {"name": "unet_small", "weights": "DEFAULT"}),
        (MASKS, "config.data.image_size", 100),
        (MASKS, "config.data.image_size", None),
        (MASKS, "config.data.mask_threshold", 1),
        (MASKS, "config.loss.pos_weight", 0),
        (MASKS, "config.loss.dice", -1),
        (MASKS, "config.loss.mixup", 0.2),
        (MASKS, "config.evaluation.threshold", 1),
        (TEXTS, "config.model.weights", "roberta-base"),
        (TEXTS, "config.model.dropout", 1),
        (TEXTS, "config.data.max_length", 513),
        (TEXTS, "config.data.vocabulary", 256),
        (TEXTS, "config.data.augment", ["hflip"]),
        (WORDS, "config.model.weights", "none"),
        (WORDS, "config.model.weights", "meta-llama/Llama-3.2-1B"),
        (WORDS, "config.model.weights", "file:///" + "a" * 4001),
        (WORDS, "config.model.init", "xavier"),
        (WORDS, "config.model.method", "qlora"),
        (WORDS, "config.model.lora.rank", 0),
        (WORDS, "config.model.lora.rank", 10**9),
        (WORDS, "config.model.lora.alpha", 0),
        (WORDS, "config.model.lora.alpha", float("nan")),
        (WORDS, "config.model.lora.dropout", 1),
        (WORDS, "config.model.lora.targets", "q_proj"),
        (WORDS, "config.model.lora.targets", []),
        (WORDS, "config.model.lora.targets", ["x"] * 101),
        (WORDS, "config.model.lora.targets", ["x" * 201]),
        (WORDS, "config.model.attention", "flash_attention_2"),
        (WORDS, "config.data.max_length", 7),
        (WORDS, "config.data.max_length", 2**20 + 1),
        (WORDS, "config.data.too_long", "split"),
        (WORDS, "config.training.precision", "fp16"),
        (WORDS, "config.loss.chunk_tokens", 0),
        (WORDS, "config.loss.label_smoothing", 0.1),
        (WORDS, "config.evaluation.samples", 17),
        (WORDS, "config.evaluation.new_tokens", 4097),
    ],
)
def test_bad_configuration_of_the_other_recipes_is_refused_by_name(
    recipe: dict[str, Any], path: str, value: Any
) -> None:
    assert all(field == path or field.startswith(f"{path}.") for field in refused(put(recipe, path, value)))


def test_fields_that_do_not_go_together_are_refused_by_the_name_of_what_holds_them() -> None:
    two_channels = {"mean": [0.5, 0.5], "std": [1.0, 1.0]}
    assert list(refused(put(MASKS, "config.data.normalize", two_channels))) == ["config.data"]
    assert list(refused(put(MASKS, "config.loss.name", "cross_entropy"))) == ["config"]


@pytest.mark.parametrize("recipe", [MASKS, TEXTS], ids=["masks", "texts"])
def test_a_recipe_without_built_in_data_needs_a_source(recipe: dict[str, Any]) -> None:
    assert list(refused({"trainer": recipe["trainer"]})) == ["config"]
    assert list(refused(recipe | {"config": {}})) == ["config.data"]
    assert list(refused(recipe | {"config": {"data": {}}})) == ["config.data.source"]


def test_a_language_model_needs_a_base_and_data() -> None:
    assert list(refused({"trainer": "causal-lm"})) == ["config"]
    assert list(refused({"trainer": "causal-lm", "config": {}})) == ["config.model", "config.data"]
    assert list(refused(put_all(WORDS, {"config.model": {}, "config.data": {}}))) == [
        "config.model.weights",
        "config.data.source",
    ]


@pytest.mark.parametrize("raw", [None, 7, "trainer: script", [], [IMAGES], True])
def test_what_is_no_object_is_refused(raw: object) -> None:
    assert list(refused(raw)) == [""]


@pytest.mark.parametrize("trainer", [None, "", "detection", "Script", 7, ["script"], {"script": 1}])
def test_an_unknown_trainer_is_refused(trainer: object) -> None:
    expected = {"trainer": "must be one of image-classification, segmentation, text-classification, causal-lm, script"}
    assert refused({}) == expected
    assert refused({"trainer": trainer})["trainer"].removesuffix("; did you mean script?") == expected["trainer"]


def test_every_wrong_field_is_named_at_once() -> None:
    wrong = put(put(put(IMAGES, "priority", 1000), "config.training.epochs", 0), "config.loss.weight", 1)
    assert set(refused(wrong)) == {"priority", "config.training.epochs", "config.loss.weight"}


@every_recipe
def test_what_is_monitored_is_what_the_recipe_measures(recipe: dict[str, Any], approved: Approved) -> None:
    spec = parse_spec(recipe)
    assert not isinstance(spec, ScriptSpec)
    measured = REGISTRY[recipe["trainer"]].metrics - spec.config.unmeasured
    evaluated = ", ".join(sorted(key for key in measured if key.startswith("val/")))
    stopping = put(recipe, "config.early_stopping", {})
    plateau = put(recipe, "config.lr_scheduler.name", "plateau")
    unknown = put(recipe, "checkpoint.monitor", "val/speed")
    assert refused(unknown) == {"": approved("text", join=", ".join(sorted(measured)))}
    assert refused(put(stopping, "config.early_stopping.monitor", "train/loss")) == {
        "": approved("config early stopping", evaluated=evaluated)
    }
    assert refused(put(plateau, "checkpoint.monitor", "train/loss")) == {
        "": approved("lr scheduler plateau", evaluated=evaluated)
    }
    for key in measured:
        parse_spec(put(recipe, "checkpoint.monitor", key))


def test_a_segmentation_monitors_what_masks_of_its_kind_have() -> None:
    several = put(MASKS, "config.data.classes", ["wall", "crack"])
    for recipe, has, other in ((MASKS, "val/recall", "val/accuracy"), (several, "val/accuracy", "val/recall")):
        parse_spec(put(recipe, "checkpoint.monitor", has))
        assert list(refused(put(recipe, "checkpoint.monitor", other))) == [""]


def test_a_script_monitors_what_it_likes() -> None:
    assert parse_spec(put(SCRIPT, "checkpoint.monitor", "my/own metric")).checkpoint.monitor == "my/own metric"


@every_recipe
@pytest.mark.parametrize(
    "chosen",
    [
        {"optimizer": {"name": "sgd", "nesterov": True, "momentum": 0}},
        {"optimizer": {"name": "rmsprop", "fused": True}},
        {"distributed": {"strategy": "fsdp", "static_graph": True}},
        {"distributed": {"strategy": "local_sgd", "comm_hook": "bf16"}},
        {"distributed": {"strategy": "fsdp", "find_unused_parameters": True}},
        {"distributed": {"static_graph": True, "find_unused_parameters": True}},
        {"distributed": {"static_graph": True, "comm_hook": "powersgd"}},
        {"distributed": {"static_graph": True}, "training": {"gradient_accumulation_steps": 2}},
        {"distributed": {"static_graph": True}, "training": {"auto_batch": True}},
        {"distributed": {"strategy": "fsdp"}, "ema": {"device": "cpu"}},
        {"distributed": {"strategy": "fsdp"}, "training": {"compile": True}},
        {"distributed": {"strategy": "fsdp"}, "training": {"auto_batch": True}},
        {"distributed": {"strategy": "fsdp"}, "optimizer": {"name": "sgd", "fused": True}},
        {"distributed": {"strategy": "local_sgd", "sync_batchnorm": True}},
    ],
)
def test_options_that_exclude_each_other_are_refused(
    recipe: dict[str, Any], chosen: dict[str, Any], approved: Approved
) -> None:
    combined = put_all(recipe, {f"config.{section}": values for section, values in chosen.items()})
    ((field, said),) = refused(combined).items()
    assert said == approved.of_row("said")
    assert field in {"config", *(f"config.{section}" for section in chosen)}


@pytest.mark.parametrize("recipe", [IMAGES, MASKS, TEXTS], ids=lambda recipe: recipe["trainer"])
@pytest.mark.parametrize("strategy", ["fsdp", "local_sgd"])
def test_fp16_is_refused_where_it_cannot_be_scaled(recipe: dict[str, Any], strategy: str, approved: Approved) -> None:
    chosen = {"config.distributed.strategy": strategy, "config.training.precision": "fp16"}
    assert refused(put_all(recipe, chosen))["config"] == approved.of_row("config")


@every_recipe
@pytest.mark.parametrize(
    ("chosen", "timeout"),
    [
        ({}, "11m"),
        ({"stall_timeout": "90s"}, "150s"),
        ({"stall_timeout": "30m", "config.distributed.timeout": "auto"}, "31m"),
        ({"stall_timeout": "3650d"}, "3650d"),
        ({"stall_timeout": "30m", "config.distributed.timeout": "10m"}, "10m"),
    ],
)
def test_the_groups_timeout_ends_after_the_stall_timeout_unless_it_is_chosen(
    recipe: dict[str, Any], chosen: dict[str, Any], timeout: str
) -> None:
    spec = parse_spec(put_all(recipe, chosen))
    resolved = spec.model_dump(mode="json")
    assert resolved["config"]["distributed"]["timeout"] == timeout
    assert parse_spec(resolved) == spec


def patterns_and_defaults(schema: Any) -> Iterator[tuple[str, str]]:
    """Of all strings in a JSON schema that have both."""
    if isinstance(schema, dict):
        if isinstance(schema.get("default"), str) and "pattern" in schema:
            yield schema["pattern"], schema["default"]
        schema = list(schema.values())
    for part in schema if isinstance(schema, list) else []:
        yield from patterns_and_defaults(part)


def test_a_default_in_a_json_schema_is_what_its_pattern_allows() -> None:
    schemas = [SPEC.json_schema(), *(config.model_json_schema() for config in CONFIGS.values())]
    found = set(patterns_and_defaults(schemas))
    assert {default for _, default in found} >= {"1d", "10m", "30s", "auto", "val/loss"}
    assert [default for pattern, default in found if not re.search(pattern, default)] == []


@pytest.mark.parametrize("key", ["labels", "env", "config", "nonsense"])
def test_absurd_nesting_is_refused(key: str) -> None:
    assert refused(SCRIPT | {key: deep(33)})
    assert refused(SCRIPT | {key: deep(100_000)})


@pytest.mark.parametrize("raw", [{"na\0me": 1}, {"config": {"args": ["ok", {"\udfff": 1}]}}, {"labels": {"a": "\0"}}])
def test_text_that_no_database_stores_is_refused_by_name(raw: dict[str, Any], approved: Approved) -> None:
    ((field, message),) = refused(SCRIPT | raw).items()
    assert field in {"na\ufffdme", "config.args.1.\ufffd", "labels.a"}
    assert message == approved("message")


@given(st.integers(1, 3650 * 86_400))
def test_a_duration_is_written_as_it_is_read(seconds: int) -> None:
    written = format_duration(timedelta(seconds=seconds))
    assert parse_duration(written) == timedelta(seconds=seconds)


@pytest.mark.parametrize(
    ("written", "seconds"), [("90s", 90), ("15m", 900), ("24h", 86_400), ("7d", 604_800), ("0s", 0), ("007s", 7)]
)
def test_spellings_of_a_duration(written: str, seconds: int) -> None:
    assert parse_duration(written) == timedelta(seconds=seconds)
