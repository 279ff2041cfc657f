"""The job spec: what it accepts, what it refuses and by which name, and that a resolved spec is a spec."""

from collections.abc import Iterator, Mapping
from datetime import timedelta
import json
import operator
import re
from typing import Any

from hypothesis import given
from hypothesis import strategies as st
import pytest

from torchyard.contract.bundles import bundle_url, bundles_of
from torchyard.contract.durations import format_duration, parse_duration
from torchyard.contract.errors import InvalidSpec
from torchyard.contract.recipes import REGISTRY, ImageClassification
from torchyard.contract.spec import CONFIGS, SPEC, RecipeSpec, ScriptSpec, parse_spec, with_grace_within

IMAGES: dict[str, Any] = {"trainer": "image-classification"}
MASKS: dict[str, Any] = {"trainer": "segmentation", "config": {"data": {"source": "file:///pictures"}}}
TEXTS: dict[str, Any] = {"trainer": "text-classification", "config": {"data": {"source": "file:///texts"}}}
RECIPES = {spec["trainer"]: spec for spec in (IMAGES, MASKS, TEXTS)}
SCRIPT: dict[str, Any] = {"trainer": "script", "config": {"code": "file:///code"}}

every_recipe = pytest.mark.parametrize("recipe", RECIPES.values(), ids=RECIPES)


def deep(levels: int) -> Any:
    value: Any = 1
    for _ in range(levels):
        value = [value]
    return value


def put(spec: dict[str, Any], path: str, value: Any) -> dict[str, Any]:
    """A copy of `spec` with `value` at the dotted `path`."""
    head, _, rest = path.partition(".")
    return spec | {head: put(spec.get(head, {}), rest, value) if rest else value}


def put_all(spec: dict[str, Any], values: Mapping[str, Any]) -> dict[str, Any]:
    for path, value in values.items():
        spec = put(spec, path, value)
    return spec


def refused(raw: object) -> dict[str, str]:
    """The refusal of `raw`: each field with its message."""
    with pytest.raises(InvalidSpec) as caught:
        parse_spec(raw)
    assert caught.value.errors
    return {error.field: error.message for error in caught.value.errors}


def test_a_stop_grace_above_the_services_maximum_is_refused_and_a_default_is_cut() -> None:
    hour = timedelta(hours=1)
    for spec in (IMAGES, SCRIPT | {"stop_grace": "60m"}, SCRIPT | {"stop_grace": "0s"}):
        assert with_grace_within(parse_spec(spec), hour) == parse_spec(spec)
    for grace in ("61m", "3650d"):
        with pytest.raises(InvalidSpec) as caught:
            with_grace_within(parse_spec(SCRIPT | {"stop_grace": grace}), hour)
        (found,) = caught.value.errors
        assert found.field == "stop_grace"
        assert "at most 1h" in found.message
        assert "TORCHYARD_MAX_STOP_GRACE" in found.message
    cut = with_grace_within(parse_spec(SCRIPT), timedelta(seconds=10))
    assert cut == parse_spec(SCRIPT | {"stop_grace": "10s"})


def test_the_smallest_specs_are_valid() -> None:
    images = parse_spec(IMAGES)
    assert isinstance(images, RecipeSpec)
    assert isinstance(images.config, ImageClassification)
    assert images == parse_spec(IMAGES | {"config": {"data": {"source": "digits"}}})
    assert (images.name, images.priority, images.max_restarts) == ("image-classification", 0, 2)
    assert (images.time_limit, images.stop_grace) == (timedelta(hours=24), timedelta(seconds=30))
    assert [parse_spec(spec).name for spec in (MASKS, TEXTS)] == ["segmentation", "text-classification"]
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


@every_recipe
def test_every_technique_is_an_option_of_every_recipe(recipe: dict[str, Any]) -> None:
    resolved = parse_spec(put_all(recipe, TECHNIQUES)).model_dump(mode="json")
    for path, value in TECHNIQUES.items():
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
        *("CUDA_VISIBLE_DEVICES", "CUDA_DEVICE_ORDER", "PYTHONPATH", "PYTHONHOME", "PYTHONUNBUFFERED"),
    ],
)
def test_a_variable_that_the_service_sets_is_refused(name: str) -> None:
    assert refused(SCRIPT | {"env": {name: "1"}}) == {"env": f"{name} is set by the service and cannot be chosen"}


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
        message = f"{name} cannot be set for a recipe, only for a script: docs/training.md lists the others"
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
        (MASKS, "config.data.normalize", {"mean": [0.5, 0.5], "std": [1.0, 1.0]}),
        (MASKS, "config.loss.pos_weight", 0),
        (MASKS, "config.loss.dice", -1),
        (MASKS, "config.loss.name", "cross_entropy"),
        (MASKS, "config.loss.mixup", 0.2),
        (MASKS, "config.evaluation.threshold", 1),
        (TEXTS, "config.model.weights", "roberta-base"),
        (TEXTS, "config.model.dropout", 1),
        (TEXTS, "config.data.max_length", 513),
        (TEXTS, "config.data.vocabulary", 256),
        (TEXTS, "config.data.augment", ["hflip"]),
    ],
)
def test_bad_configuration_of_the_other_recipes_is_refused_by_name(
    recipe: dict[str, Any], path: str, value: Any
) -> None:
    assert all(path.startswith(field) or field.startswith(f"{path}.") for field in refused(put(recipe, path, value)))


@pytest.mark.parametrize("recipe", [MASKS, TEXTS], ids=["masks", "texts"])
def test_a_recipe_without_built_in_data_needs_a_source(recipe: dict[str, Any]) -> None:
    assert list(refused({"trainer": recipe["trainer"]})) == ["config"]
    assert list(refused(recipe | {"config": {}})) == ["config.data"]
    assert list(refused(recipe | {"config": {"data": {}}})) == ["config.data.source"]


@pytest.mark.parametrize(
    ("path", "value"),
    [
        ("config.code", None),
        ("config.code", "file://"),
        ("config.code", "code"),
        ("config.code", "file:///a\n"),
        ("config.code", "bundle:sha256:" + "0" * 63),
        ("config.code", "bundle:sha256:" + "A" * 64),
        ("config.code", "bundle:md5:" + "0" * 64),
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
        ("config.requirements", "-r.txt"),
        ("config.requirements", ""),
        ("config.requirements", "/requirements.txt"),
        ("config.checkpoints", ["/out/*.pt"]),
        ("config.checkpoints", ["out/../../*.pt"]),
        ("config.checkpoints", [""]),
        ("config.mounts", {"a/b": "file:///data"}),
        ("config.mounts", {"..": "file:///data"}),
        ("config.mounts", {"a" * 65: "file:///data"}),
        ("config.mounts", {"": "file:///data"}),
        ("config.mounts", {"data": "/data"}),
        ("config.mounts", {"data": "digits"}),
        ("config.mounts", {f"m{number}": "file:///data" for number in range(33)}),
        ("config.git", {"commit": "HEAD"}),
        ("config.git", {"commit": "a" * 40, "diff": "é" * 32_769}),
        ("config.git", {"commit": "a" * 40, "branch": "b" * 501}),
        ("config.model", {}),
    ],
)
def test_bad_configuration_of_a_script_is_refused_by_name(path: str, value: Any) -> None:
    assert all(field == path or field.startswith(f"{path}.") for field in refused(put(SCRIPT, path, value)))


def test_an_entrypoint_stays_inside_the_code() -> None:
    assert refused(put(SCRIPT, "config.entrypoint", "a/../../b.py")) == {
        "config": "entrypoint must be inside the code folder"
    }


@pytest.mark.parametrize("requirements", ["requirements.txt", "deploy/pyproject.toml", "script"])
def test_requirements_are_files_of_the_code_or_the_metadata_of_the_entrypoint(requirements: str) -> None:
    spec = parse_spec(put(SCRIPT, "config.requirements", requirements))
    assert spec.model_dump(mode="json")["config"]["requirements"] == requirements


def test_requirements_stay_inside_the_code_and_only_an_entrypoint_has_metadata() -> None:
    assert refused(put(SCRIPT, "config.requirements", "a/../../b.txt")) == {
        "config": "requirements must be inside the code folder"
    }
    assert refused(put_all(SCRIPT, {"config.module": "train", "config.requirements": "script"})) == {
        "config": "requirements: script is the metadata of an entrypoint: give one, or name a file"
    }


@pytest.mark.parametrize(
    "program",
    [
        {"module": "train", "entrypoint": "train.py"},
        {"module": "train", "command": "accelerate"},
        {"module": None},
        {"entrypoint": None},
        {"module": "../train"},
        {"module": "pkg..train"},
        {"module": "-c"},
        {"module": "a-b"},
        {"command": "/bin/sh"},
        {"command": "../run.sh"},
        {"command": "a/../../run.sh"},
        {"command": "-c"},
        {"command": "a b"},
        {"command": ""},
    ],
)
def test_a_script_has_one_program_inside_its_code(program: dict[str, Any]) -> None:
    assert set(refused(put_all(SCRIPT, {f"config.{key}": value for key, value in program.items()}))) <= {
        "config",
        *(f"config.{key}" for key in program),
    }


@pytest.mark.parametrize(
    "program", [{"module": "pkg.train"}, {"command": "accelerate"}, {"command": "./run.sh"}, {"entrypoint": "a/b.py"}]
)
def test_a_program_is_an_entrypoint_a_module_or_a_command(program: dict[str, str]) -> None:
    spec = parse_spec(put_all(SCRIPT, {f"config.{key}": value for key, value in program.items()}))
    assert spec.model_dump(mode="json")["config"] == {"code": "file:///code", "args": []} | program


def test_a_resolved_script_of_the_older_form_has_no_new_keys() -> None:
    assert parse_spec(SCRIPT).model_dump(mode="json")["config"] == {
        "code": "file:///code",
        "entrypoint": "train.py",
        "args": [],
    }


def test_a_spec_names_its_bundles_by_field() -> None:
    code, weights, pictures = (bundle_url(digit * 64) for digit in "012")
    mounts = {"weights": weights, "data": "file:///data"}
    script = parse_spec(put_all(SCRIPT, {"config.code": code, "config.mounts": mounts}))
    assert bundles_of(script) == {"config.code": "0" * 64, "config.mounts.weights": "1" * 64}
    assert bundles_of(parse_spec(SCRIPT)) == bundles_of(parse_spec(IMAGES)) == {}
    for recipe in (IMAGES, MASKS, TEXTS):
        assert bundles_of(parse_spec(put(recipe, "config.data.source", pictures))) == {"config.data.source": "2" * 64}


def test_a_spec_keeps_where_its_code_comes_from() -> None:
    git = {"commit": "a" * 40, "branch": "main", "dirty": True, "diff": "+é" * 20_000}
    spec = parse_spec(put(SCRIPT, "config.git", git))
    assert spec.model_dump(mode="json")["config"]["git"] == git


def test_a_path_has_four_thousand_characters_at_most() -> None:
    longest = "file:///" + "é" * 4000
    spec = parse_spec(SCRIPT | {"config": {"code": longest}})
    assert isinstance(spec, ScriptSpec)
    assert spec.config.code == longest
    with pytest.raises(InvalidSpec) as refused:
        parse_spec(SCRIPT | {"config": {"code": longest + "é"}})
    assert [error.field for error in refused.value.errors] == ["config.code"]


def test_a_script_needs_its_code() -> None:
    assert list(refused({"trainer": "script"})) == ["config"]
    assert list(refused({"trainer": "script", "config": {}})) == ["config.code"]


@pytest.mark.parametrize("raw", [None, 7, "trainer: script", [], [IMAGES], True])
def test_what_is_no_object_is_refused(raw: object) -> None:
    assert list(refused(raw)) == [""]


@pytest.mark.parametrize("trainer", [None, "", "detection", "Script", 7, ["script"], {"script": 1}])
def test_an_unknown_trainer_is_refused(trainer: object) -> None:
    expected = {"trainer": "must be one of image-classification, segmentation, text-classification, script"}
    assert refused({}) == expected
    assert refused({"trainer": trainer})["trainer"].removesuffix(": did you mean script?") == expected["trainer"]


def test_every_wrong_field_is_named_at_once() -> None:
    wrong = put(put(put(IMAGES, "priority", 1000), "config.training.epochs", 0), "config.loss.weight", 1)
    assert set(refused(wrong)) == {"priority", "config.training.epochs", "config.loss.weight"}


@every_recipe
def test_what_is_monitored_is_what_the_recipe_measures(recipe: dict[str, Any]) -> None:
    measured = REGISTRY[recipe["trainer"]].metrics
    evaluated = ", ".join(sorted(key for key in measured if key.startswith("val/")))
    stopping = put(recipe, "config.early_stopping", {})
    plateau = put(recipe, "config.lr_scheduler.name", "plateau")
    unknown = put(recipe, "checkpoint.monitor", "val/speed")
    assert refused(unknown) == {"": f"checkpoint.monitor must be one of {', '.join(sorted(measured))}"}
    assert refused(put(stopping, "config.early_stopping.monitor", "train/loss")) == {
        "": f"config.early_stopping.monitor must be one of {evaluated}"
    }
    assert refused(put(plateau, "checkpoint.monitor", "train/loss")) == {
        "": f"with lr_scheduler plateau, checkpoint.monitor must be one of {evaluated}"
    }
    for key in measured:
        parse_spec(put(recipe, "checkpoint.monitor", key))


def test_a_script_monitors_what_it_likes() -> None:
    assert parse_spec(put(SCRIPT, "checkpoint.monitor", "my/own metric")).checkpoint.monitor == "my/own metric"


@every_recipe
@pytest.mark.parametrize(
    ("chosen", "message"),
    [
        ({"optimizer": {"name": "sgd", "nesterov": True, "momentum": 0}}, "nesterov needs a momentum above 0"),
        ({"optimizer": {"name": "rmsprop", "fused": True}}, "no fused rmsprop"),
        (
            {"distributed": {"strategy": "fsdp", "static_graph": True}},
            "static_graph can be used with strategy ddp only",
        ),
        (
            {"distributed": {"strategy": "local_sgd", "comm_hook": "bf16"}},
            "comm_hook can be used with strategy ddp only",
        ),
        (
            {"distributed": {"strategy": "fsdp", "find_unused_parameters": True}},
            "find_unused_parameters can be used with strategy ddp only",
        ),
        ({"distributed": {"static_graph": True, "find_unused_parameters": True}}, "finds unused parameters itself"),
        (
            {"distributed": {"static_graph": True, "comm_hook": "powersgd"}},
            "cannot be combined with static_graph, which rebuilds the buckets",
        ),
        ({"distributed": {"static_graph": True}, "training": {"gradient_accumulation_steps": 2}}, "no_sync"),
        ({"distributed": {"static_graph": True}, "training": {"auto_batch": True}}, "which may accumulate"),
        ({"distributed": {"strategy": "fsdp"}, "training": {"precision": "fp16"}}, "use bf16 or fp32"),
        ({"distributed": {"strategy": "fsdp"}, "ema": {"device": "cpu"}}, "ema.device cpu cannot be combined"),
        ({"distributed": {"strategy": "fsdp"}, "training": {"compile": True}}, "compile cannot be combined with fsdp"),
        ({"distributed": {"strategy": "fsdp"}, "training": {"auto_batch": True}}, "auto_batch cannot be combined"),
        ({"distributed": {"strategy": "fsdp"}, "optimizer": {"name": "sgd", "fused": True}}, "optimizer.fused sgd"),
        (
            {"distributed": {"strategy": "local_sgd"}, "training": {"precision": "fp16"}},
            "the ranks would skip different steps",
        ),
        ({"distributed": {"strategy": "local_sgd", "sync_batchnorm": True}}, "sync_batchnorm cannot be combined with"),
    ],
)
def test_options_that_exclude_each_other_are_refused(
    recipe: dict[str, Any], chosen: dict[str, Any], message: str
) -> None:
    combined = put_all(recipe, {f"config.{section}": values for section, values in chosen.items()})
    ((field, said),) = refused(combined).items()
    assert message in said
    assert field in {"config", *(f"config.{section}" for section in chosen)}


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
            "mounts": st.dictionaries(st.from_regex(r"[A-Za-z0-9_-]{1,64}", fullmatch=True), _URLS, max_size=3),
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


@given(
    _COMMON,
    st.one_of(
        [
            st.tuples(st.just(trainer), config)
            for trainer, config in zip(
                CONFIGS, (_OF_IMAGES, _OF_MASKS, _OF_TEXTS, _SCRIPTS | _SCRIPTS_OF_BUNDLES), strict=True
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
