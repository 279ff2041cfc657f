"""Reads ./data, and writes beside it."""

from pathlib import Path

print("read", sorted(path.read_text() for path in Path("data").glob("*.txt")), flush=True)
Path("results").mkdir(exist_ok=True)
Path("results/seen.txt").write_text("seen")
