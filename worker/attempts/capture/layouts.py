"""Which folders are one checkpoint, by the names of what lies in them, and what of one is still to be written.

docs/reference/program.md has this table, too.
"""

from collections.abc import Collection, Iterable, Mapping
import fnmatch
import re

_NUMBERED = re.compile(r"(checkpoint[-_]|global_step)[0-9]+")
"""Names of folders: of the Trainer and of accelerate, and of DeepSpeed."""
_OF_OWN = re.compile(r"checkpoint[-_][0-9]+")
"""Names of folders that are checkpoints of their own, also in the folder of another one: the Trainer's last model."""
_MARKS = (
    *(".metadata", "*.distcp"),  # torch.distributed.checkpoint, torchtitan
    *("trainer_state.json", "optimizer.bin", "random_states_*.pkl"),  # the Trainer, accelerate
    *("*mp_rank_*_states.pt", "zero_pp_rank_*"),  # DeepSpeed
    *("*.safetensors.index.json", "pytorch_model.bin.index.json"),  # parts of a model
)
"""Patterns of the names of files, one of which makes a folder a checkpoint."""
_WEIGHTS = frozenset(
    {
        *("model.safetensors", "pytorch_model.bin", "adapter_model.safetensors", "adapter_model.bin"),
        *("diffusion_pytorch_model.safetensors", "diffusion_pytorch_model.bin"),
    }
)
_CONFIGS = frozenset({"config.json", "adapter_config.json"})
_PART = re.compile(r"(.*)-([0-9]{5})-of-([0-9]{5})(\..*)")
_MOST_PARTS = 10_000
_NEVER_EMPTY = (".pt", ".pth", ".bin", ".ckpt", ".pkl", ".npz", ".distcp", ".safetensors")
_SEALS = (".metadata", "trainer_state.json")
"""Files that are written after all others of their folder."""


def is_checkpoint(name: str, files: Collection[str]) -> bool:
    """Returns whether the folder of this name, in which these files lie, is one checkpoint of a training."""
    if _NUMBERED.fullmatch(name) is not None or name.endswith(".ckpt"):
        return True
    return any(fnmatch.fnmatchcase(file, mark) for file in files for mark in _MARKS)


def is_model(files: Collection[str]) -> bool:
    """Returns whether the folder in which these files lie is a model, as `save_pretrained` writes it."""
    return not _WEIGHTS.isdisjoint(files) and not _CONFIGS.isdisjoint(files)


def is_of_its_own(name: str) -> bool:
    """Returns whether a folder of this name is no part of the checkpoint in whose folder it lies."""
    return _OF_OWN.fullmatch(name) is not None


def is_of_deepspeed(name: str, files: Collection[str]) -> bool:
    """Returns whether DeepSpeed wrote this folder. It writes `latest` beside it, with the name of the newest one."""
    return name.startswith("global_step") or any(fnmatch.fnmatchcase(file, "*mp_rank_*_states.pt") for file in files)


def lacking(folder: str, sizes: Mapping[str, int]) -> str | None:
    """Returns what is still to be written of a folder, by the names and sizes of the files in it; None: nothing."""
    for name, size in sizes.items():
        if not size and name.endswith(_NEVER_EMPTY):
            return f"{name} is empty"
    if ".metadata" not in sizes and any(name.endswith(".distcp") for name in sizes):
        return "there is no .metadata"
    if "training_args.bin" in sizes and is_of_its_own(folder) and "trainer_state.json" not in sizes:
        return "there is no trainer_state.json"
    if "optimizer.bin" in sizes and not any(name.startswith("random_states_") for name in sizes):
        return "there are no random_states_*.pkl"
    return _missing_part(sizes)


def is_sealed(modified_ns: Mapping[str, int]) -> bool:
    """Returns whether the file is there that is written last, by the times of all files: then all others are whole."""
    seals = [modified_ns[name] for name in _SEALS if name in modified_ns]
    return bool(seals) and max(seals) >= max(modified_ns.values())


def _missing_part(names: Iterable[str]) -> str | None:
    numbers_by_kind: dict[tuple[str, int, str], set[int]] = {}
    for name in names:
        part = _PART.fullmatch(name)
        if part is not None and 1 <= int(part[2]) <= int(part[3]) <= _MOST_PARTS:
            numbers_by_kind.setdefault((part[1], int(part[3]), part[4]), set()).add(int(part[2]))
    for (before, count, after), numbers in numbers_by_kind.items():
        if len(numbers) < count:
            first = next(number for number in range(1, count + 1) if number not in numbers)
            return f"there is no {before}-{first:05}-of-{count:05}{after}"
    return None
