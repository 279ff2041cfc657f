"""Writes what PyTorch's flight recorder knows of this rank's collectives, for the message of a hang."""

from collections.abc import Iterator, Mapping
import json
import sys
from typing import Any

from torchyard.contract.attempts.records import Collective, RankCollectives
from torchyard.contract.attempts.rundir import RunDir
from torchyard.host.recordfiles import write_record

_RECORDERS = {"nccl": "_dump_nccl_trace_json", "others": "_dump_fr_trace_json"}
"""The functions of torch that write a recorder's entries as JSON. Others write pickles, which nobody here may read."""


def record_collectives(run: RunDir, rank: int) -> None:
    """Writes all that the recorders know, and where this rank is. Does nothing without them. Raises OSError."""
    dumps = dict(_dumps())
    if dumps:
        (run.collectives / f"{rank}.dump.json").write_text(json.dumps(dumps))
        write_record(run.collectives / f"{rank}.json", _place_of(dumps))


def _dumps() -> Iterator[tuple[str, Mapping[str, Any]]]:
    distributed = getattr(getattr(sys.modules.get("torch"), "_C", None), "_distributed_c10d", None)
    for name, function in _RECORDERS.items():
        dump = getattr(distributed, function, None)  # not in every build of torch
        known = json.loads(dump()) if dump is not None else {}
        if known.get("entries"):
            yield name, known


def _place_of(dumps: Mapping[str, Mapping[str, Any]]) -> RankCollectives:
    entries = sorted((entry for dump in dumps.values() for entry in dump["entries"]), key=_begun_at)
    ended = [entry for entry in entries if entry["retired"] or entry["state"] == "completed"]
    waiting = [entry for entry in entries if entry not in ended]
    return RankCollectives(
        waits_for=_collective(waiting[0]) if waiting else None, ended=_collective(ended[-1]) if ended else None
    )


def _begun_at(entry: Mapping[str, Any]) -> int:
    return entry["time_created_ns"]


def _collective(entry: Mapping[str, Any]) -> Collective:
    group, description = entry["process_group"]
    return Collective(
        name=entry["profiling_name"],
        number=entry["p2p_seq_id" if entry["is_p2p"] else "collective_seq_id"],
        group=description if description not in ("", "undefined") else group,
        sizes=json.dumps(entry["input_sizes"]),
    )
