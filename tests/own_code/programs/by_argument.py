"""Reads the data whose folder its argument names, as most programs do."""

import argparse
import os
from pathlib import Path

parser = argparse.ArgumentParser()
parser.add_argument("--data", type=Path, required=True)
parser.add_argument("--out", type=Path)
options = parser.parse_args()
files = sorted(path for path in options.data.rglob("*.txt"))
print("read", [f"{path.relative_to(options.data)}={path.read_text()}" for path in files], flush=True)
if "DATA" in os.environ:
    print("there", sorted(os.listdir(os.environ["DATA"])), flush=True)
if options.out is not None:
    options.out.mkdir(parents=True, exist_ok=True)
    (options.out / "result.txt").write_text("done")
