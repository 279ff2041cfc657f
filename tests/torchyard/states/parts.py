"""Writes states in parts, as ranks do."""

from collections.abc import Mapping, Sequence
import hashlib
import io
from pathlib import Path
from typing import Any

from torch import Tensor

from torchyard.contract.attempts.records import ManifestFile
from torchyard.contract.attempts.rundir import INDEX_FILE
from torchyard.states.stateindex import Shard, describe, index_of
from torchyard.states.tensorfile import write_tensors


def files_of(states: Sequence[Mapping[str, Any]]) -> dict[str, bytes]:
    """Returns the files of a checkpoint by name. `states`: what each rank has of its state."""
    contents: dict[str, bytes] = {}
    rows: list[dict[str, list[int]]] = []
    for number, state in enumerate(states):
        tensors = describe(state).tensors
        shards = {name: item for name, item in tensors.items() if isinstance(item, Shard)}
        mine = {name: item.local for name, item in shards.items() if len(item.local)}
        if number == 0:
            mine |= {name: item for name, item in tensors.items() if not isinstance(item, Shard)}
        content = io.BytesIO()
        write_tensors(mine, content)
        contents[f"state-{number}.safetensors"] = content.getvalue()
        rows.append({name: [item.first, item.first + len(item.local)] for name, item in shards.items() if name in mine})
    listed = [
        ManifestFile(path=name, size=len(content), sha256=hashlib.sha256(content).hexdigest())
        for name, content in contents.items()
    ]
    return {**contents, INDEX_FILE: index_of(describe(states[0]), files=listed, rows=rows)}


def divided(tree: Any, rank: int, ranks: int) -> Any:
    """Returns what a rank has of a state of which the rows of every tensor are divided."""
    if isinstance(tree, Tensor) and tree.ndim:
        most = -(-len(tree) // ranks)
        return Shard(tree[rank * most : (rank + 1) * most], tuple(tree.shape), rank * most)
    if isinstance(tree, dict):
        return {key: divided(value, rank, ranks) for key, value in tree.items()}
    return tree


def write(folder: Path, state: Mapping[str, Any], *, ranks: int = 2) -> Path:
    """Writes a state in parts of so many ranks. Returns its folder."""
    folder.mkdir()
    for name, content in files_of([divided(dict(state), rank, ranks) for rank in range(ranks)]).items():
        (folder / name).write_bytes(content)
    return folder
