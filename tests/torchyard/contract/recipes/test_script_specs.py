"""The spec of a script: its code, its program, its requirements and its bundles."""

from typing import Any

import pytest

from tests.approved import Approved
from tests.torchyard.contract.specs import IMAGES, MASKS, SCRIPT, TEXTS, WORDS, put, put_all, refused
from torchyard.contract.bundles.names import bundle_url, bundles_of
from torchyard.contract.errors import InvalidSpec
from torchyard.contract.spec.spec import ScriptSpec, parse_spec


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
        ("keep", ["/**"]),
        ("keep", ["../x"]),
        ("keep", ["a/../../x"]),
        ("keep", [""]),
        ("keep", ["./"]),
        ("keep", ["a" * 501]),
        ("keep", ["*"] * 33),
        ("keep", "results/*"),
        ("config.mounts", {"a/b": "file:///data"}),
        ("config.mounts", {"..": "file:///data"}),
        ("config.mounts", {"./data": "file:///data"}),
        ("config.mounts", {"my data": "file:///data"}),
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


@pytest.mark.parametrize(
    ("pattern", "instead"), [("/tmp/logs/*", "'from-tmp/logs/*' is kept"), ("/tmp", "'from-tmp' is kept")]
)
@pytest.mark.parametrize("key", ["keep", "config.checkpoints"])
def test_a_pattern_of_the_temporary_folder_is_refused_with_the_one_to_use(key: str, pattern: str, instead: str) -> None:
    (words,) = refused(put(SCRIPT, key, [pattern])).values()
    assert instead in words and "while the job runs, write it to the working folder" in words


def test_a_wrong_pattern_of_what_is_kept_is_named_by_its_place() -> None:
    assert refused(put(SCRIPT, "keep", ["results/*", "../x", "."])) == {
        "keep.1": "'../x' must be inside the working folder: relative, without `..`",
        "keep.2": "'.' names no file; `**` means all files that the program writes",
    }
    assert parse_spec(put(SCRIPT, "keep", ["**", "a b/[x]*"])).model_dump()["keep"] == ["**", "a b/[x]*"]
    assert "keep" not in parse_spec(SCRIPT).model_dump()
    assert refused(put(IMAGES, "keep", ["results/*"])).keys() == {"keep"}


def test_an_entrypoint_stays_inside_the_code(approved: Approved) -> None:
    assert refused(put(SCRIPT, "config.entrypoint", "a/../../b.py")) == {"config": approved("config")}


@pytest.mark.parametrize("requirements", ["requirements.txt", "deploy/pyproject.toml", "script"])
def test_requirements_are_files_of_the_code_or_the_metadata_of_the_entrypoint(requirements: str) -> None:
    spec = parse_spec(put(SCRIPT, "config.requirements", requirements))
    assert spec.model_dump(mode="json")["config"]["requirements"] == requirements


def test_requirements_stay_inside_the_code_and_only_an_entrypoint_has_metadata(approved: Approved) -> None:
    assert refused(put(SCRIPT, "config.requirements", "a/../../b.txt")) == {"config": approved("config")}
    assert refused(put_all(SCRIPT, {"config.module": "train", "config.requirements": "script"})) == {
        "config": approved("requirements script metadata")
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
    words = put_all(WORDS, {"config.data.source": pictures, "config.model.weights": weights})
    assert bundles_of(parse_spec(words)) == {"config.data.source": "2" * 64, "config.model.weights": "1" * 64}


def test_a_mount_has_a_name_or_a_path_of_the_working_folder() -> None:
    places = {"data": "data", "./data": "./data", "a/b c/": "./a/b c", ".//x/./é.d": "./x/é.d"}
    mounts = {place: f"file:///{number}" for number, place in enumerate(places)}
    spec = parse_spec(put_all(SCRIPT, {"config.code": bundle_url("0" * 64), "config.mounts": mounts}))
    assert isinstance(spec, ScriptSpec)
    assert [*spec.config.mounts] == [*places.values()]
    assert parse_spec(spec.model_dump(mode="json")) == spec


@pytest.mark.parametrize(
    "places",
    [
        *(["../data"], ["./.."], ["a/../b"], ["/data"], ["./"], ["."], [".."], ["a/\nb"], ["./a\0"]),
        *(["a/b", "./a/b"], ["./a", "./a/b"], ["./a/b/c", "./a", "./a.b"]),
        *(["./" + "a" * 256], ["./" + "é" * 128], ["a/" * 17], ["./" + "a/" * 250 + "a"], ["a b"], ["a=b"]),
    ],
)
def test_a_mount_that_leads_outside_or_into_another_one_is_refused(places: list[str]) -> None:
    mounts = dict.fromkeys(places, "file:///data")
    fields = refused(put_all(SCRIPT, {"config.code": bundle_url("0" * 64), "config.mounts": mounts}))
    assert all(field.startswith("config.mounts") for field in fields)


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
