"""`python -m bench.costs` measures the CPU time and memory of each request, upload and file at its limit.

`--write` writes docs/reference/costs.md, in which tests look for each operation, reader and limit.
"""

import argparse
from collections.abc import Iterator
import json
from pathlib import Path
import sys
from urllib.request import urlopen

from bench.costs import accepted, cases, large_rows
from bench.costs.largest import Document
from bench.costs.operations import MOST_S, Cost, measure
from bench.costs.page import PAGE, written
from bench.service import Service, scratch, script, up

_WRITES = """
import torchyard
run = torchyard.init()
for step in range(1, 21):
    run.log({f"key/{number:04}": float(step) for number in range(900)}, step=step)
for number in range(20_000):
    print("line", number, "x" * 200)
run.save_checkpoint({"state": 1}, step=20, metrics={"val/loss": 1.0})
"""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--write", action="store_true", help=f"write {PAGE.name}")
    chosen = parser.parse_args()
    with scratch() as folder, up(folder) as service:
        costs = [*_measure(service, folder)]
    others = [*cases.measure()]
    dear = [cost for cost in costs if cost.processor_s > MOST_S]
    for cost in costs:
        print(f"{cost.operation:28} {cost.sent:>9} {cost.status} {cost.processor_s:7.3f} s {cost.memory_mib:7.1f} MiB")
    for other in others:
        print(f"{other.what:67} {other.processor_s:7.3f} s {other.memory_mib:7.1f} MiB")
    if chosen.write:
        PAGE.write_text(written(costs, others))
    sys.exit(f"more than {MOST_S} s: {', '.join(cost.operation for cost in dear)}" if dear else 0)


def _measure(service: Service, folder: Path) -> Iterator[Cost]:
    with urlopen(f"{service.url}/openapi.json", timeout=120) as answer:
        document = Document(json.load(answer))
    yield from measure(service, document, _filled(service, folder), accepted=accepted.bodies())


def _filled(service: Service, folder: Path) -> dict[str, str]:
    """Stores a job that has written as much as it may of each kind, and what else paths name."""
    spec = script(folder / "code" / "writes", _WRITES)
    with service.client() as client:
        job = client.submit(spec)
        client.wait(job.id)
        sweep = client.sweeps.create(accepted.small_sweep({**spec, "resources": accepted.WAITING}))
        large_rows.fill(service)
        client.users.add("bob")
        worker = next(iter(client.workers.list()))
    names = {"name": "bob", "owner": "admin", "role": "member", "ref": "latest", "number": "1", "version": "1"}
    ids = {"job_id": job.id, "sweep_id": sweep.id, "worker_id": worker.id, "sha256": "0" * 64}
    missing = {
        name: f"{prefix}_{'0' * 32}"
        for name, prefix in (
            ("reach_id", "rch"),
            ("schedule_id", "sch"),
            ("media_id", "med"),
            ("session_id", "ses"),
            ("target_id", "ntf"),
            ("token_id", "tok"),
        )
    }
    return {**names, **ids, **missing, "path": "state.pt", "part": "image"}


if __name__ == "__main__":
    main()
