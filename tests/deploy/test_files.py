"""The deployment files are valid, contain no default secret, and match what they deploy."""

from pathlib import Path
import re
import shutil
import stat
import subprocess
import sys
from typing import Any

from compose_spec import PyCompose
from dotenv import dotenv_values
import pytest
import yaml

import api.settings
import controller.settings
from tests.deploy.compose import ROOT, TEXT, MissingVariableError, load
import worker.settings

_DIGEST = r"@sha256:[0-9a-f]{64}$"
SECRETS = ("TORCHYARD_TOKEN", "TORCHYARD_SECRET_KEY", "POSTGRES_PASSWORD", "REDIS_PASSWORD")


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """The files of the project that `make env` needs."""
    return _copy_to(tmp_path)


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A checkout after `make env`."""
    checkout = _copy_to(tmp_path_factory.mktemp("checkout"))
    assert _make_env(checkout).returncode == 0
    return checkout


@pytest.fixture(scope="module")
def variables(made: Path) -> dict[str, str]:
    return _variables(made)


@pytest.fixture(scope="module")
def config(variables: dict[str, str]) -> dict[str, Any]:
    return load(variables)


def test_make_env_writes_new_secrets_that_only_the_owner_reads(made: Path, checkout: Path) -> None:
    assert stat.S_IMODE((made / ".env").stat().st_mode) == 0o600
    assert _make_env(checkout).returncode == 0
    secrets = [_variables(folder)[name] for folder in (made, checkout) for name in SECRETS]
    assert len(set(secrets)) == len(secrets)
    # They go into URLs and command lines: nothing to quote, no leading dash.
    assert all(re.fullmatch("[0-9a-f]{64}", secret) for secret in secrets)


def test_make_env_keeps_an_existing_file(checkout: Path) -> None:
    (checkout / ".env").write_text("TORCHYARD_TOKEN=mine\n")
    done = _make_env(checkout)
    assert done.returncode != 0
    assert ".env exists" in done.stderr and "Traceback" not in done.stderr
    assert (checkout / ".env").read_text() == "TORCHYARD_TOKEN=mine\n"


def test_secrets_stay_out_of_git_and_out_of_the_image() -> None:
    assert "/.env" in (ROOT / ".gitignore").read_text().splitlines()
    ignored, *kept = [line for line in (ROOT / ".dockerignore").read_text().splitlines() if not line.startswith("#")]
    assert ignored == "*"
    assert {line.removeprefix("!") for line in kept if line.startswith("!")} == {*_copied()}


def test_the_image_has_each_file_to_which_the_docs_link() -> None:
    pages = [page for folder in ("", "operating", "reference") for page in (ROOT / "docs" / folder).glob("*.md")]
    linked = {
        (page.parent / target).resolve().relative_to(ROOT).as_posix()
        for page in pages
        for target in re.findall(r"\]\((?![a-z]+:|#)([^)#\s]+)", page.read_text())
    }
    absent = [path for path in linked if not any(f"{path}/".startswith(f"{copied}/") for copied in _copied())]
    assert absent == []
    assert {"CONTRIBUTING.md", "docs/concepts.md"} <= linked


@pytest.mark.parametrize("name", [*SECRETS, "TORCHYARD_ALLOW_PATHS"])
@pytest.mark.parametrize("value", [None, ""])
def test_without_its_env_file_compose_says_what_to_do(variables: dict[str, str], name: str, value: str | None) -> None:
    given = {key: text for key, text in variables.items() if key != name}
    with pytest.raises(MissingVariableError, match="run `make env` first"):
        load(given if value is None else {**given, name: value})


def test_compose_passes_the_launcher_of_the_operator(variables: dict[str, str]) -> None:
    config = load({**variables, "TORCHYARD_LAUNCHER": "torchrun"})
    for name in ("worker-cpu", "worker-gpu"):
        assert config["services"][name]["environment"]["TORCHYARD_LAUNCHER"] == "torchrun"


def test_the_compose_file_follows_the_specification(config: dict[str, Any]) -> None:
    text = yaml.safe_dump(config)
    PyCompose.from_yaml(text).validate()
    with pytest.raises(ValueError, match="readonly"):
        PyCompose.from_yaml(text.replace("read_only", "readonly"))


def test_the_files_that_compose_names_exist(config: dict[str, Any]) -> None:
    services = config["services"]
    for service in services.values():
        assert {*service.get("depends_on", ())} <= {*services}
        named = {volume.split(":")[0] for volume in service.get("volumes", ()) if not volume.startswith("/")}
        assert named <= {*config["volumes"]}
    for name in ("worker-cpu", "worker-gpu", "controller", "api"):
        assert services[name]["depends_on"]["migrate"]["condition"] == "service_completed_successfully"
    assert [name for name, service in services.items() if "ports" in service] == ["api"]
    assert services["api"]["ports"] == ["127.0.0.1:8000:8000"]


def test_the_variables_that_compose_sets_are_settings(config: dict[str, Any]) -> None:
    programs = (api.settings.Settings, controller.settings.Settings, worker.settings.Settings)
    fields = {name: field for program in programs for name, field in program.model_fields.items()}
    known = {f"TORCHYARD_{field.upper()}" for field in fields}
    named = set(re.findall(r"\bTORCHYARD_[A-Z_]+\b", TEXT))
    assert named <= known
    for service in config["services"].values():
        assert {name for name in service.get("environment", ()) if name.startswith("TORCHYARD_")} <= known


@pytest.mark.parametrize("name", ["worker-cpu", "worker-gpu"])
def test_a_worker_in_a_container_has_the_defaults_of_any_other(config: dict[str, Any], name: str) -> None:
    environment = config["services"][name]["environment"]
    fields = worker.settings.Settings.model_fields
    given = {field: environment.get(f"TORCHYARD_{field.upper()}") for field in fields}
    chosen = ("keep_", "max_", "bundle_", "package", "setup_")
    wanted = {field: value for field, value in given.items() if field.startswith(chosen)}
    assert None not in wanted.values(), wanted
    settings = worker.settings.Settings.model_validate(wanted)
    assert {field: getattr(settings, field) for field in wanted} == {field: fields[field].default for field in wanted}


def test_every_container_has_no_more_rights_than_it_needs(config: dict[str, Any]) -> None:
    for name, service in config["services"].items():
        assert service["cap_drop"] == ["ALL"] and "cap_add" not in service, name
        assert service["security_opt"] == ["no-new-privileges:true"], name
        assert service.get("read_only") or name.startswith("worker-"), name
        assert service.get("user", "") != "root" and not service.get("privileged"), name
        assert service["logging"]["options"]["max-size"], name


def test_every_container_has_limits_and_every_image_a_digest(config: dict[str, Any]) -> None:
    for name, service in config["services"].items():
        assert re.fullmatch(r"[1-9]\d*[mg]", service["mem_limit"]), name
        assert service["pids_limit"] > 0, name
        built = (service.get("build"), service["image"]) == (".", "torchyard")
        assert built or re.search(_DIGEST, service["image"]), name
    text = (ROOT / "Dockerfile").read_text()
    bases = re.findall(r"^FROM (\S+)", text, re.MULTILINE)
    assert bases and all(re.search(_DIGEST, base) for base in bases)
    assert "syntax=" not in text  # it would name one more image


def test_only_the_blobs_are_shared(config: dict[str, Any]) -> None:
    targets = {
        (volume.split(":")[0], name)
        for name, service in config["services"].items()
        for volume in service.get("volumes", ())
        if not volume.startswith("/")
    }
    shared = {volume for volume, _ in targets if len([name for other, name in targets if other == volume]) > 1}
    assert shared == {"blobs"}


def test_hadolint_finds_nothing_in_the_dockerfile() -> None:
    hadolint = Path(sys.executable).with_name("hadolint")
    done = _run([str(hadolint), "--disable-ignore-pragma", "Dockerfile"], cwd=ROOT)
    assert (done.returncode, done.stdout) == (0, "")


def test_the_image_that_runs_has_the_compiler_that_torch_compile_looks_for() -> None:
    last = (ROOT / "Dockerfile").read_text().split("\nFROM ")[-1]
    installed = re.findall(r"apt-get install [^&]*", last)
    assert any(re.search(r"\sg\+\+=\S", line) for line in installed)
    assert "CXX" not in last  # another one than `trainer.compilation` finds


def test_the_dockerfile_copies_every_installed_package() -> None:
    packages = {path.parent.name for path in ROOT.glob("*/__init__.py")} - {"tests", "bench"}
    assert {*packages, "pyproject.toml", "README.md", "deploy/server"} <= {*_copied()}


def _copy_to(folder: Path) -> Path:
    shutil.copy(ROOT / "Makefile", folder)
    shutil.copytree(ROOT / "deploy", folder / "deploy")
    return folder


def _copied() -> list[str]:
    """Returns the paths that the Dockerfile copies from the project."""
    lines = re.findall(r"^COPY (?!--from)(.+)$", (ROOT / "Dockerfile").read_text(), re.MULTILINE)
    copied = [source for line in lines for source in line.split()[:-1]]
    assert all((ROOT / name).exists() for name in copied)
    return copied


def _make_env(checkout: Path) -> subprocess.CompletedProcess[str]:
    return _run(["make", "env"], cwd=checkout)


def _run(argv: list[str], *, cwd: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(argv, cwd=cwd, capture_output=True, text=True, check=False)


def _variables(checkout: Path) -> dict[str, str]:
    """Parses the file as Compose and a shell do."""
    return {name: value or "" for name, value in dotenv_values(checkout / ".env").items()}
