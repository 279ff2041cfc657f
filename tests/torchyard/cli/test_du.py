"""`torchyard du`: what one's jobs take, as a table and as JSON."""

from contextlib import closing
import json

from store.attempts import folders
from store.db.database import Database
from tests.approved import Approved
from tests.store.fixture import StoreFixture, checkpoint
from tests.torchyard.cli.service import Team


def test_du_lists_what_jobs_take_the_largest_first(team: Team, approved: Approved) -> None:
    nothing = team.run("admin", "du")
    assert (nothing.returncode, nothing.stdout, nothing.stderr) == (0, "", approved("nothing"))
    with closing(Database(team.database_url)) as database:
        store = StoreFixture(database)
        worker = store.worker()
        small, large = (store.submit(name=name, owner="admin") for name in ("small", "large"))
        store.record(store.running(small, worker), seq=0, checkpoints=[checkpoint("a", step=1)])
        store.write(lambda session: folders.replace_sizes(session, worker, {large: 3 << 20}))
    table = team.run("admin", "du")
    first, second = [line.split() for line in table.stdout.splitlines()[1:]]
    assert first[:4] == [large, "large", "3.0", "MiB"]
    assert second[:5] == [small, "small", "1", "B", "running"]
    assert table.stderr == approved("total")
    cut = team.run("admin", "du", "-n", "1")
    assert (len(cut.stdout.splitlines()), cut.stderr) == (2, approved("cut"))
    found = json.loads(team.run("admin", "du", "--json").stdout)
    assert (found["count"], found["folder_bytes"], found["jobs"][0]["job_id"]) == (2, 3 << 20, large)
