"""What is read of an environment, and what is not run."""

import os
from pathlib import Path
import shutil

import pytest

from tests.approved import Approved
from tests.venvs import make_venv
from tests.worker.environments.fixture import MINOR, make_conda
from torchyard.contract.errors import ConfigError
from worker.environments.environment import difference, read


def test_a_conda_environment_tells_its_python_torch_and_cuda(tmp_path: Path) -> None:
    found = read(make_conda(tmp_path / "ml"))
    assert (found.kind, found.python, found.torch, found.cuda) == ("conda", "3.10.13", "2.1.2", "12.1")
    assert (found.packages, found.bases, found.obstacle) == (3, (), "")
    assert found.readable == (tmp_path / "ml",)
    assert found.interpreter == tmp_path / "ml" / "bin" / "python"


def test_a_venv_tells_its_python_and_the_installation_from_which_it_was_made(tmp_path: Path) -> None:
    found = read(make_venv(tmp_path / "own"))
    assert found.kind == "venv"
    assert found.python.startswith(f"{MINOR}.")
    assert found.torch == ""
    assert found.obstacle == "it has no torch"
    assert all((base / "lib" / f"python{MINOR}" / "os.py").is_file() for base in found.bases)
    assert {base / "lib" for base in found.bases} <= {*found.readable}


def test_a_venv_that_uv_has_made_says_its_version_otherwise(tmp_path: Path) -> None:
    settings = make_venv(tmp_path / "own") / "pyvenv.cfg"
    lines = [line for line in settings.read_text().splitlines() if not line.startswith("version")]
    settings.write_text("\n".join([*lines, f"version_info = {MINOR}.99.final.0"]))
    assert read(tmp_path / "own").python == f"{MINOR}.99"


def test_torch_is_found_where_a_file_of_the_environment_adds_a_folder(tmp_path: Path) -> None:
    venv, other = make_venv(tmp_path / "own"), tmp_path / "other"
    (other / "torch").mkdir(parents=True)
    (other / "torch" / "version.py").write_text("__version__ = '2.5.1+cpu'\ncuda = None\n")
    (other / "torch-2.5.1.dist-info").mkdir()
    (venv / "lib" / f"python{MINOR}" / "site-packages" / "other.pth").write_text(f"import sys\n{other}\n/nowhere\n")
    found = read(venv)
    assert (found.torch, found.cuda, found.packages) == ("2.5.1+cpu", "", 1)


def test_another_version_of_any_package_is_another_digest(tmp_path: Path) -> None:
    before = read(make_conda(tmp_path / "ml")).report()
    assert read(tmp_path / "ml").report() == before
    (tmp_path / "ml" / "conda-meta" / "numpy-1.26-py310_0.json").unlink()
    now = read(make_conda(tmp_path / "ml", numpy="2.0")).report()
    assert now.digest != before.digest
    assert difference(before, now) == "its packages are others: 3 before, 3 now"
    shutil.rmtree(tmp_path / "ml")
    last = read(make_conda(tmp_path / "ml", torch="2.2.0", cuda=None, python="3.11.1")).report()
    assert difference(now, last) == "Python 3.10.13 became 3.11.1, torch 2.1.2 became 2.2.0, CUDA 12.1 became none"
    assert difference(last, last) == ""


@pytest.mark.parametrize(
    ("torch", "obstacle"),
    [(None, "it has no torch"), ("2.0.1", "its torch 2.0.1 is too old"), ("2.1.0a0", ""), ("2.15.0+cu130", "")],
)
def test_ranks_need_a_torch_that_can_be_held_to_loopback(tmp_path: Path, torch: str | None, obstacle: str) -> None:
    assert read(make_conda(tmp_path / "ml", torch=torch)).obstacle.partition(":")[0] == obstacle


def test_what_is_no_environment_is_refused(tmp_path: Path, approved: Approved) -> None:
    def refused(folder: Path) -> str:
        with pytest.raises(ConfigError) as error:
            read(folder)
        return error.value.message.replace(str(tmp_path), "TMP")

    (tmp_path / "empty").mkdir()
    assert refused(tmp_path / "empty") == approved("empty")
    assert refused(make_conda(tmp_path / "old", python="3.9.18")) == approved("old")
    headless = make_conda(tmp_path / "headless")
    (headless / "bin" / "python").unlink()
    assert refused(headless) == approved("headless")
    silent = make_conda(tmp_path / "silent")
    (silent / "conda-meta" / "python-3.10.13-h955ad1f_0_cpython.json").unlink()
    assert refused(silent) == approved("silent")


def set_home(venv: Path, home: str) -> None:
    settings = (venv / "pyvenv.cfg").read_text().splitlines()
    lines = [f"home = {home}" if line.startswith("home") else line for line in settings]
    (venv / "pyvenv.cfg").write_text("\n".join(lines))


def make_installation(folder: Path) -> Path:
    (folder / "lib" / f"python{MINOR}").mkdir(parents=True)
    (folder / "lib" / f"python{MINOR}" / "os.py").touch()
    (folder / "bin").mkdir()
    return folder


def test_a_link_in_the_installation_of_a_venv_opens_nothing_elsewhere(tmp_path: Path) -> None:
    venv, base, keys = make_venv(tmp_path / "own"), make_installation(tmp_path / "base"), tmp_path / "keys"
    keys.mkdir()
    (base / "share").symlink_to(keys)
    (base / "lib64").symlink_to("lib")
    set_home(venv, f"{base}/bin")
    found = read(venv).readable
    assert {base / "bin", base / "lib", base / "lib64"} <= {*found}
    assert base / "share" not in found


def test_a_venv_of_bin_is_one_of_what_bin_leads_to(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    usr = make_installation(tmp_path / "usr")
    resolve = os.path.realpath

    def realpath(path: Path | str) -> str:
        return f"{usr}/bin" if str(path) == "/bin" else resolve(path)

    monkeypatch.setattr(os.path, "realpath", realpath)
    set_home(make_venv(tmp_path / "own"), "/bin")
    assert usr in read(tmp_path / "own").bases
    assert Path("/") not in read(tmp_path / "own").bases


@pytest.mark.parametrize("version", ["3." + "9" * 5000, "../../x", "3", "three.ten"])
def test_a_version_that_is_none_is_refused(tmp_path: Path, version: str) -> None:
    settings = make_venv(tmp_path / "own") / "pyvenv.cfg"
    lines = [line for line in settings.read_text().splitlines() if not line.startswith("version")]
    settings.write_text("\n".join([*lines, f"version = {version}"]))
    with pytest.raises(ConfigError):
        read(tmp_path / "own")


def test_names_that_are_no_text_are_refused(tmp_path: Path) -> None:
    folder = make_conda(tmp_path / "ml")
    (folder / "lib" / "python3.10" / "site-packages" / os.fsdecode(b"\xff.dist-info")).mkdir()
    with pytest.raises(ConfigError, match="cannot be read"):
        read(folder)
    set_home(make_venv(tmp_path / "own"), "/a\0b/bin")
    with pytest.raises(ConfigError):
        read(tmp_path / "own")


def test_a_file_of_torch_that_never_says_its_version_is_read_at_once(tmp_path: Path) -> None:
    folder = make_conda(tmp_path / "ml")
    file = folder / "lib" / "python3.10" / "site-packages" / "torch" / "version.py"
    file.write_text("__version__:\n" * 80_000)
    assert read(folder).torch == ""


def test_not_all_folders_that_a_file_names_are_listed(tmp_path: Path) -> None:
    folder, named = make_conda(tmp_path / "ml"), [tmp_path / f"{number}" for number in range(60)]
    for each in named:
        (each / f"{each.name}.dist-info").mkdir(parents=True)
    (folder / "lib" / "python3.10" / "site-packages" / "all.pth").write_text("\n".join(map(str, named)))
    assert read(folder).packages == 3 + 49


@pytest.mark.parametrize("home", ["/etc", "/root/.ssh/bin", "bin", "{tmp}/bin"])
def test_a_venv_opens_no_folder_that_is_no_installation_of_its_python(tmp_path: Path, home: str) -> None:
    venv = make_venv(tmp_path / "own")
    set_home(venv, home.format(tmp=tmp_path))
    with pytest.raises(ConfigError, match=r"was made from|does not name"):
        read(venv)
