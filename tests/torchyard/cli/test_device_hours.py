"""`torchyard usage`: who had how many device-hours, as a table, CSV and JSON."""

from contextlib import closing
import json
from pathlib import Path

import pytest

from store.db.database import Database
from store.tables import DeviceDay, Usage
from tests.approved import Approved
from tests.torchyard.cli.service import Team

HOUR = 3_600_000_000


def had(team: Team, owner: str, label: str = "", *, day: int, kind: str = "cuda", **us: int) -> None:
    figures = {"held_us": 0, "measured_us": 0, "busy_us": 0, "idle_us": 0} | us
    with closing(Database(team.database_url)) as database, database.write() as session:
        session.add(DeviceDay(owner=owner, label=label, day=day, kind=kind, **figures))
        session.merge(Usage(owner=owner, kind=kind, used_s=0.0, at=0))


def test_usage_is_a_table_a_file_and_json(team: Team, tmp_path: Path, approved: Approved) -> None:
    nothing = team.run("admin", "usage", "--owner", "ada")
    assert (nothing.returncode, nothing.stdout, nothing.stderr) == (0, "", approved("stderr"))
    had(team, "ada", day=1, held_us=1500 * HOUR, measured_us=HOUR, busy_us=HOUR // 2, idle_us=HOUR)
    had(team, "ada", "run==1", day=1, held_us=HOUR)
    had(team, "ada", "tiny==1", day=1, held_us=HOUR // 100)
    had(team, "bob", day=1, kind="cpu", held_us=HOUR)
    table = team.run("admin", "usage").stdout.splitlines()
    assert table[0].split("  ")[0] == "USER"
    assert [line.split() for line in table[1:]] == [["ada", "0.0", "1,500.0", "0.0"], ["bob", "0.0", "0.0", "0.0"]]
    by_label = team.run("admin", "usage", "--by", "label").stdout.splitlines()
    assert by_label[1].split()[:3] == ["run==1", "0.0", "1.0"], "one owner needs no column"
    assert by_label[2].split()[:3] == ["tiny==1", "0.0", "<0.1"], "little is not nothing"
    (row,) = json.loads(team.run("admin", "usage", "--owner", "ada", "--json").stdout)
    assert (row["owner"], row["total"]["gpu_hours"], row["days"]) == ("ada", 1500.0, [])
    header = "day,owner,label,gpu_hours,cpu_slot_hours,gpu_utilization,idle_gpu_hours\n"
    assert team.run("admin", "usage", "--csv", "-").stdout == header
    written = team.run("admin", "usage", "--csv", "usage.csv", cwd=tmp_path)
    assert (written.stdout, written.stderr) == ("", approved("wrote days rows"))
    assert (tmp_path / "usage.csv").read_text() == header


@pytest.mark.parametrize("arguments", [["--csv", "-", "--json"], ["--days", "0"], ["--by", "job"]])
def test_wrong_arguments_are_refused(team: Team, arguments: list[str]) -> None:
    assert team.run("admin", "usage", *arguments).returncode == 2


def test_another_users_labels_are_refused(team: Team) -> None:
    team.add("eve")
    refused = team.run("eve", "usage", "--by", "label", "--owner", "ada")
    assert (refused.returncode, "only administrators" in refused.stderr) == (1, True)
