"""Counts the source files that a route's function reaches: `python -m bench.reach [TREE] [--hops NAME]`.

Prints the number of all files, and of its own: those outside `torchyard/contract` and `torchyard/host` that `GET
/v1/me` does not reach. `--hops` prints the calls of one route in order. TREE is another checkout.
"""

import argparse
from collections.abc import Mapping
from pathlib import Path

from bench.reach.follow import Reached, follow

ROOT = Path(__file__).parent.parent.parent
STARTS: Mapping[str, tuple[str, ...]] = {
    "POST /v1/jobs": ("POST /jobs",),
    "GET /v1/jobs/{id}": ("GET /jobs/{job_id}",),
    "a notification": (
        "controller.notifications:FanOut.run",
        "controller.notifications:Deliveries.run",
    ),
    "a sweep's children": ("controller.sweeps:Sweeps.run",),
}
"""Where each begins: a route by its method and path, or a function by its folder and name."""
_PLAIN = ("GET /me",)
"""What its route passes, all routes pass: it finds out who asks."""
_FOR_ALL = ("torchyard.contract.", "torchyard.host.")


def main() -> None:
    parser = argparse.ArgumentParser(prog="bench.reach")
    parser.add_argument("tree", nargs="?", type=Path, default=ROOT)
    parser.add_argument("--hops", choices=STARTS, help="print the calls of this route in order")
    asked = parser.parse_args()
    if asked.hops:
        for depth, thing in follow(asked.tree, STARTS[asked.hops]).hops:
            print(f"{'  ' * depth}{thing.module.name}:{thing.name}")
        return
    print(f"{'start':<20} {'files':>5} {'own':>5} {'functions':>9}")
    plain = follow(asked.tree, _PLAIN)
    for name, starts in STARTS.items():
        reached = follow(asked.tree, starts)
        print(f"{name:<20} {len(reached.files):>5} {len(own_files(reached, plain)):>5} {reached.functions:>9}")


def own_files(reached: Reached, plain: Reached) -> list[str]:
    """Returns the files that are reached, without those that are for all and those of the plain route."""
    passed = set(plain.files)
    return [name for name in reached.files if name not in passed and not name.startswith(_FOR_ALL)]


if __name__ == "__main__":
    main()
