"""A service with a team of three and 300 jobs, to try its page: `python -m bench.team`.

It starts a service of its own and keeps it until Ctrl-C. With `--url` and `--token`, an administrator's, it fills a
running one instead. The jobs are real: most run a program that computes nothing, two the recipe for images. There are
sweeps, labels, notes, stars and media; some jobs fail, some run on, some wait. The members log in with the tokens that
are printed.
"""

import argparse
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
import shutil
import signal
import sys
import time
from typing import Any

from bench import team_program
from bench.service import scratch, up
from torchyard.client import Client
from torchyard.client.packing.bundle import pack
from torchyard.contract.states import JobState
from torchyard.contract.team.roles import Role

JOBS = 300
SLOTS = 4
TEAM = {"ada": Role.ADMIN, "ben": Role.MEMBER, "cleo": Role.VIEWER}
MODELS, SITES = ("unet", "segformer", "vgg16"), ("bridge", "tunnel", "dam")
RATES, BATCHES, OPTIMIZERS = (0.0003, 0.001, 0.003, 0.01, 0.03), (8, 16, 32, 64), ("adamw", "sgd")
SEARCHED = 60
"""Trials of the random search."""
DIGITS = 2
RUNNING = SLOTS - 1
WAITING = (2, 2, SLOTS, SLOTS + 4)
"""The devices that jobs wait for."""
_UNFINISHED = RUNNING + len(WAITING) + 1
"""Those that do not end by themselves, and one that is cancelled."""
STARRED = 12

_TEAMS = {"visibility": "team"}

Spec = dict[str, Any]


def fill(url: str, token: str, folder: Path) -> dict[str, str]:
    """Makes the team and its jobs. Returns the members' tokens, once all jobs have ended that will."""
    with Client(url, token) as admin:
        for name, role in TEAM.items():
            admin.users.add(name, role=role)
        tokens = {name: admin.tokens.make(name="bench", user=name).token for name in TEAM}
    with Client(url, tokens["ada"]) as ada, Client(url, tokens["ben"]) as ben:
        codes = {member: _uploaded(member, folder) for member in (ada, ben)}
        trials = _search(ada, codes[ada]) + _repeat(ben, codes[ben])
        single = JOBS - trials - _UNFINISHED
        for member, parity in ((ada, 0), (ben, 1)):
            member.jobs.submit_batch([_single(n, codes[member]) for n in range(parity, single, 2)])
        _wait_for_the_end_of(JOBS - _UNFINISHED, ada)
        _leave_unfinished(ben, codes[ben])
        _remark(ada, ben)
    return tokens


def _uploaded(member: Client, folder: Path) -> str:
    """Uploads the program as the member's own, and returns its address."""
    folder.mkdir(exist_ok=True)
    shutil.copyfile(team_program.__file__, folder / "train.py")
    with pack(folder) as bundle:
        member.bundles.upload(bundle)
        return bundle.url


def _search(member: Client, code: str) -> int:
    """Submits a grid and a random search. Returns how many trials they have."""
    grid = {"args.lr": [*RATES], "args.batch": [*BATCHES], "args.optimizer": [*OPTIMIZERS]}
    chance = grid | {"args.lr": {"min": 1e-4, "max": 0.1, "log": True}}
    job = _job("cracks", code, labels={"model": "unet", "site": "bridge"})
    member.sweeps.create(_TEAMS | {"name": "unet-grid", "parameters": grid, "job": job})
    search = {"name": "unet-search", "method": "random", "trials": SEARCHED, "parameters": chance, "job": job}
    member.sweeps.create(_TEAMS | search)
    return len(RATES) * len(BATCHES) * len(OPTIMIZERS) + SEARCHED


def _repeat(member: Client, code: str) -> int:
    """Submits a sweep over seeds for each model. Returns how many trials they have."""
    for model in MODELS:
        job = _job("cracks", code, labels={"model": model, "site": "tunnel"})
        spec = {"name": f"{model}-seeds", "parameters": {"args.seed": "0..9"}, "job": job}
        member.sweeps.create(_TEAMS | spec)
    return 10 * len(MODELS)


def _single(number: int, code: str) -> Spec:
    """Returns a job of its own: every twelfth fails, every tenth shows media, the first ones train on digits."""
    if number < DIGITS:
        config = {"data": {"source": "digits"}, "training": {"epochs": 4}, "logging": {"every_steps": 1}}
        return _TEAMS | {
            "name": f"digits-{number}",
            "trainer": "image-classification",
            "config": config,
            "resources": _devices(1),
        }
    model, site = MODELS[number % 3], SITES[number // 3 % 3]
    given = {"lr": RATES[number % 5], "batch": BATCHES[number % 4], "optimizer": OPTIMIZERS[number % 2], "seed": number}
    options = [part for name, value in given.items() for part in (f"--{name}", str(value))]
    options += ["--show"] if number % 10 == 2 else []
    options += ["--fails-at", "77"] if number % 12 == 5 else []
    labels = {"model": model, "site": site, **({"paper": "figure-3"} if number % 9 == 0 else {})}
    job = _job(f"{site}-{model}-{number}", code, options, labels=labels)
    return job | {"visibility": "private"} if number % 15 == 4 else job


def _leave_unfinished(member: Client, code: str) -> None:
    """Submits what runs on, and what waits: behind it, for more devices than there are, and paused."""
    for number in range(RUNNING):
        options = ["--endless", *(["--show"] if number == 0 else [])]
        member.submit(_job(f"live-{MODELS[number % 3]}", code, options, labels={"model": MODELS[number % 3]}))
    waiting = [
        member.submit(_job(f"waits-for-{devices}", code, ["--endless"]) | {"resources": _devices(devices)})
        for devices in WAITING
    ]
    waiting[1].pause()
    member.submit(_job("given-up", code, ["--endless"])).cancel()
    member.schedules.create(_job("nightly", code) | {"schedule": "0 3 * * *"})


def _remark(ada: Client, ben: Client) -> None:
    """Adds notes, stars and a kept model, and archives and cancels a few."""
    for job in _newest(ada, owner="ada", q="bridge", limit=4):
        ada.jobs.update(
            job, notes="Thin cracks are missed at night.\n\nNext: **more** pictures with a flash, see `val/walls`."
        )
    for job in _newest(ben, owner="ben", q="tunnel-vgg16", limit=3):
        ben.jobs.update(job, notes="Baseline of the report.")
    for member in (ada, ben):
        for job in _newest(member, q="unet", limit=STARRED):
            member.jobs.star(job)
    for job in _newest(ben, owner="ben", q="dam-segformer", limit=2):
        ben.jobs.update(job, archived=True)
    (digits,) = _newest(ada, q="digits-0", limit=1)
    ada.models.add("digits", digits, "best", visibility="team")


def _job(name: str, code: str, options: Sequence[str] = (), *, labels: Mapping[str, str] | None = None) -> Spec:
    return {
        "name": name,
        "trainer": "script",
        "config": {"code": code, "args": [*options]},
        "resources": _devices(1),
        "checkpoint": {"monitor": "val/iou", "mode": "max"},
        "max_restarts": 0,
        "labels": dict(labels or {}),
        **_TEAMS,
    }


def _devices(count: int) -> Spec:
    return {"device": "cpu", "devices_per_node": count}


def _wait_for_the_end_of(jobs: int, admin: Client) -> None:
    while (ended := _ended(admin)) < jobs:
        print(f"\r{ended} of {jobs} jobs have ended ", end="", file=sys.stderr, flush=True)
        time.sleep(1)
    print(file=sys.stderr)


def _ended(admin: Client) -> int:
    return sum(count for state, count in admin.jobs.count().items() if state.terminal)


def _newest(member: Client, *, q: str, limit: int, owner: str | None = None) -> list[str]:
    """Returns the ids of the newest jobs that a search finds."""
    return [job.id for job in member.jobs.list(q=q, owner=owner, state=[JobState.SUCCEEDED], limit=limit)]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--url", help="fill the running service at this address")
    parser.add_argument("--token", help="an administrator's token of that service")
    chosen = parser.parse_args()
    if (chosen.url is None) != (chosen.token is None):
        parser.error("--url needs --token, and the other way round")
    with scratch() as folder:
        if chosen.url is not None:
            _say(chosen.url, fill(chosen.url, chosen.token, folder / "program"))
            return
        with up(folder, slots=SLOTS) as service:
            _say(service.url, fill(service.url, service.token, folder / "program"))
            print("Ctrl-C ends the service, and removes its data.", flush=True)
            _until_interrupted()


def _say(url: str, tokens: Mapping[str, str]) -> None:
    print(f"Sign in at {url} with a token of")
    for name, token in tokens.items():
        print(f"  {name}, {TEAM[name].value}: {token}", flush=True)


def _until_interrupted() -> None:
    with suppress(KeyboardInterrupt):
        signal.pause()


if __name__ == "__main__":
    main()
