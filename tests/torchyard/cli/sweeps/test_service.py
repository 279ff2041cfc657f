"""The commands of sweeps against the service itself, which makes no trials here."""

import json

from tests.torchyard.cli.answered import is_clean_error
from tests.torchyard.cli.service import Team
from torchyard.contract.team.roles import Role

FILE = """
name: lr
parameters: {lr: [0.1, 0.01], seed: 1..3}
max_parallel: 2
job: {trainer: image-classification, config: {data: {source: digits}}}
"""


def test_a_sweep_is_submitted_shown_and_ended(team: Team) -> None:
    ada = team.add("ada")
    dry = team.run(ada, "submit", "-", "--dry-run", "--json", stdin=FILE)
    assert json.loads(dry.stdout)["points"] == 6, dry.stderr
    made = team.run(ada, "submit", "-", stdin=FILE)
    assert made.returncode == 0, made.stderr
    sweep_id = made.stdout.strip()
    shown = team.run(ada, "sweep", "show", "lr").stdout.splitlines()
    assert f"id         {sweep_id}" in shown and "trials     0 of 6 finished: 6 waiting" in shown
    assert team.run(ada, "sweep", "ls").stdout.splitlines()[1].startswith(f"{sweep_id}  lr    running")
    assert team.run(ada, "sweep", "pause", "lr").stdout.startswith(f"{sweep_id}  paused, 0 of 6 finished")
    assert team.run(ada, "sweep", "resume", sweep_id[:20]).stdout.startswith(f"{sweep_id}  running")
    changed = team.run(ada, "sweep", "extend", "lr", "--max-parallel", "3", "--json")
    assert json.loads(changed.stdout)["max_parallel"] == 3
    assert team.run(ada, "ps", "--sweep", "lr", "--json").stdout == "[]\n"
    best = team.run(ada, "sweep", "best", "lr")
    assert best.returncode == 1 and "no trial of lr has reported val/loss yet" in best.stderr


def test_what_the_service_refuses_is_told_in_a_few_lines(team: Team) -> None:
    bob, eve = team.add("bob"), team.add("eve", Role.VIEWER)
    team.run(bob, "submit", "-", "--name", "bobs", stdin=FILE)
    for who, arguments, text, said in (
        (bob, ("submit", "-"), FILE.replace("lr: [", "config.optimizer.lrr: ["), "did you mean `lr`?"),
        (bob, ("submit", "-"), FILE.replace("0.01", "-1"), "config.optimizer.lr"),
        (bob, ("sweep", "extend", "bobs", "--trials", "3"), "", "trials"),
        (bob, ("sweep", "rm", "bobs", "--yes"), "", "cancel"),
        (bob, ("sweep", "promote", "bobs", "0"), "", "has no trial 0"),
        (eve, ("sweep", "show", "bobs"), "", "there is no sweep with the id or name 'bobs'"),
        (eve, ("submit", "-"), FILE, "needs the scope jobs:write"),
    ):
        done = team.run(who, *arguments, stdin=text)
        assert done.returncode == 1 and said in done.stderr, (arguments, done.stderr)
        assert is_clean_error(done)
