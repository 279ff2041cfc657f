"""Which environments a job may name."""

from dataclasses import replace
import os
from pathlib import Path

import pytest

from tests.approved import Approved
from tests.worker.environments.fixture import make_conda
from torchyard.contract.errors import ConfigError
from worker.environments.offered import Environments


@pytest.fixture
def offered(tmp_path: Path) -> Environments:
    make_conda(tmp_path / "envs" / "ml")
    make_conda(tmp_path / "envs" / "old", torch="1.13.1")
    make_conda(tmp_path / "alone")
    (tmp_path / "envs" / "notes").mkdir()
    make_conda(tmp_path / "mine" / "project" / "env")
    return Environments(
        roots=(tmp_path / "envs", tmp_path / "alone"), allowed=(tmp_path / "mine",), data_dir=tmp_path / "data"
    )


def test_the_operators_environments_are_listed_with_what_keeps_ranks_from_them(offered: Environments) -> None:
    listed = {each.name: each.obstacle.partition(":")[0] for each in offered.reports()}
    assert listed == {"ml": "", "old": "its torch 1.13.1 is too old", "alone": ""}
    assert Environments().reports() == []


def test_an_environment_is_named_by_its_name_its_path_or_its_python(offered: Environments, tmp_path: Path) -> None:
    for text in ("ml", f"{tmp_path}/envs/ml", f"{tmp_path}/envs/ml/bin/python", f"{tmp_path}/envs/ml/bin/python3.10"):
        assert offered.find(text).path == tmp_path / "envs" / "ml"
    assert offered.find(f"{tmp_path}/mine/project/env").path == tmp_path / "mine" / "project" / "env"


def refused(offered: Environments, text: str, folder: Path) -> str:
    with pytest.raises(ConfigError) as error:
        offered.find(text)
    return error.value.message.replace(str(folder), "TMP")


def test_no_other_environment_can_be_named(offered: Environments, tmp_path: Path, approved: Approved) -> None:
    make_conda(tmp_path / "elsewhere")
    (tmp_path / "envs" / "link").symlink_to(tmp_path / "elsewhere")
    assert refused(offered, "absent", tmp_path) == approved("absent")
    assert refused(offered, f"{tmp_path}/elsewhere", tmp_path) == approved("elsewhere")
    assert "is not among the environments" in refused(offered, f"{tmp_path}/envs/link", tmp_path)
    assert "has no environment link" in refused(offered, "link", tmp_path)
    make_conda(tmp_path / "more" / "ml")
    two = replace(offered, roots=(*offered.roots, tmp_path / "more"))
    assert refused(two, "ml", tmp_path) == approved("two")


def test_an_environment_that_jobs_may_write_is_refused(
    offered: Environments, tmp_path: Path, approved: Approved
) -> None:
    open_folder = replace(offered, writable=(tmp_path / "mine",))
    assert refused(open_folder, f"{tmp_path}/mine/project/env", tmp_path) == approved("below")
    make_conda(tmp_path / "mine" / "project" / "env" / "inner")
    inside = replace(offered, writable=(tmp_path / "envs" / "ml" / "lib",))
    assert refused(inside, "ml", tmp_path) == approved("inside")
    (tmp_path / "scratch").mkdir()
    (tmp_path / "scratch" / "way").symlink_to(tmp_path / "envs")
    by_link = replace(offered, roots=(tmp_path / "scratch" / "way",), writable=(tmp_path / "scratch",))
    assert "jobs may write" in refused(by_link, "ml", tmp_path)
    data = replace(offered, data_dir=tmp_path / "envs")
    assert "the data directory" in refused(data, "ml", tmp_path)


def test_without_isolation_only_an_environment_of_somebody_else_is_safe(offered: Environments, tmp_path: Path) -> None:
    bare = replace(offered, protects=False)
    assert os.access(tmp_path / "envs" / "ml", os.W_OK)
    assert "does not keep them from it" in refused(bare, "ml", tmp_path)


def test_folders_that_are_closed_to_the_service_are_passed_over(offered: Environments, tmp_path: Path) -> None:
    (tmp_path / "envs" / "private").mkdir(mode=0)
    (tmp_path / "alone").chmod(0)
    tmp_path.chmod(0o755)
    me = os.geteuid()
    os.seteuid(65534 if me == 0 else me)
    try:
        listed = {each.name for each in offered.reports()}
    finally:
        os.seteuid(me)
        (tmp_path / "alone").chmod(0o755)
        (tmp_path / "envs" / "private").chmod(0o755)
    assert listed <= {"ml", "old"}
