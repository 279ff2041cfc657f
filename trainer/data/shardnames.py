"""What the names of files in shards say: the split and the class of a picture, or which mask belongs to it.

Names are those of a folder (`train/cat/1.jpg`, `images/1.jpg`), or those of WebDataset, where the files of a sample
differ in what follows the first point: `1.jpg` and `1.cls`, `1.jpg` and `1.png`.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from torchyard.contract.errors import DataError
from trainer.data.shards import Shards, split_of
from trainer.data.splits import split_names
from trainer.data.tars import InShard, read_file

CLASS = "cls"
PICTURES = frozenset({"jpg", "jpeg", "png", "webp", "bmp", "ppm", "pgm", "tif", "tiff", "gif"})
MASKS = ("mask.", "seg.")
"""What a mask's name has before its kind, where the picture is of the same kind."""
_LONGEST_CLASS = 200


@dataclass(frozen=True)
class Labelled:
    """Pictures and the position of each one's class, those for training first."""

    names: list[str]
    files: list[InShard]
    classes: list[str]
    labels: list[int]
    train: int | None
    """How many are for training. None: the source has no split of its own."""


@dataclass(frozen=True)
class Paired:
    """Pictures and their masks, those for training first."""

    names: list[str]
    files: list[tuple[InShard, InShard]]
    train: int | None


def labelled(shards: Shards) -> Labelled:
    """Returns the pictures in shards, in the order in which a folder of them would be read. Raises DataError."""
    named, has_split = _named(shards)
    of_samples = any(name.endswith(f".{CLASS}") for name in named)
    by_name = _sample_classes(named) if of_samples else _folder_classes(named, depth=2 if has_split else 1)
    if not by_name:
        raise DataError(f"{shards.root}: no file in its shards lies in the folder of a class, or beside a KEY.{CLASS}")
    names = {label for name, (label, _) in by_name.items() if not has_split or _trains(name)}
    are_numbers = of_samples and all(name.isdecimal() for name in names)
    classes = sorted(names, key=lambda name: (int(name) if are_numbers else 0, name))
    if len(classes) < 2:
        raise DataError(f"{shards.root} has {len(classes)} classes; at least two are needed")
    position = {name: index for index, name in enumerate(classes)}
    for label, file in by_name.values():
        if label not in position:
            raise DataError(f"{file}: the class {label} is not in the training split")
    order = sorted(by_name, key=lambda name: (has_split and not _trains(name), position[by_name[name][0]], name))
    return Labelled(
        names=order,
        files=[by_name[name][1] for name in order],
        classes=classes,
        labels=[position[by_name[name][0]] for name in order],
        train=sum(map(_trains, order)) if has_split else None,
    )


def paired(shards: Shards) -> Paired:
    """Returns the pictures and masks in shards, in the order of their names. Raises DataError."""
    named, has_split = _named(shards)
    in_folders = any(name.split("/")[-2:-1] == ["images"] for name in named)
    pairs = _folder_pairs(named) if in_folders else _sample_pairs(named)
    order = sorted(pairs, key=lambda name: (has_split and not _trains(name), name))
    train = sum(map(_trains, order)) if has_split else None
    return Paired(names=order, files=[pairs[name] for name in order], train=train)


def _named(shards: Shards) -> tuple[dict[str, InShard], bool]:
    """Returns the files by their names, and whether these begin with their split. Raises DataError.

    The split is in a file's name or in that of its tar. Where both splits are there, other files belong to neither.
    """
    words = [split_of(shard) for shard in shards.names]
    own = split_names({word for word in words if word is not None}, shards.root)
    canonical = {own[0]: "train", own[1]: "val"} if own else {}
    seen: dict[str, int] = {}
    named: dict[str, InShard] = {}
    for entry in shards.index.entries:
        word = words[entry.shard]
        split = canonical.get(word) if word is not None else None
        name = entry.name if split is None else f"{split}/{entry.name.removeprefix(f'{word}/')}"
        if name in seen:
            raise DataError(
                f"{name} is in {shards.names[seen[name]]} and in {shards.names[entry.shard]}: {shards.root}"
            )
        seen[name], named[name] = entry.shard, shards.file(entry)
    inside = split_names({name.partition("/")[0] for name in named if "/" in name}, shards.root)
    if inside is None:
        return named, False
    prefixes = {inside[0]: "train", inside[1]: "val"}
    parts = ((name.partition("/"), file) for name, file in named.items())
    return {f"{prefixes[word]}/{rest}": file for (word, _, rest), file in parts if word in prefixes}, True


def _trains(name: str) -> bool:
    return name.startswith("train/")


def _folder_classes(named: Mapping[str, InShard], *, depth: int) -> dict[str, tuple[str, InShard]]:
    """Returns the class of each picture by its folder. What lies beside the folders is left out, as in a folder."""
    by_name: dict[str, tuple[str, InShard]] = {}
    for name, file in named.items():
        folders = name.split("/")[:-1]
        if len(folders) > depth:
            raise DataError(f"{file}: names must be CLASS/FILE or train/CLASS/FILE, or KEY.jpg beside KEY.{CLASS}")
        if len(folders) == depth:
            by_name[name] = folders[-1], file
    return by_name


def _sample_classes(named: Mapping[str, InShard]) -> dict[str, tuple[str, InShard]]:
    """Returns the class of each picture by the file beside it."""
    by_name: dict[str, tuple[str, InShard]] = {}
    for key, parts in _samples(named).items():
        pictures = [name for kind, name in parts.items() if kind in PICTURES]
        first = named[next(iter(parts.values()))]
        if len(pictures) != 1 or CLASS not in parts:
            raise DataError(
                f"{first}: {key} has {len(pictures)} pictures, and {'a' if CLASS in parts else 'no'} .{CLASS}"
            )
        by_name[pictures[0]] = _class(named[parts[CLASS]]), named[pictures[0]]
    return by_name


def _class(file: InShard) -> str:
    try:
        label = read_file(file, _LONGEST_CLASS + 1).decode("utf-8-sig").strip()
    except UnicodeDecodeError:
        raise DataError(f"{file} is not UTF-8, or longer than {_LONGEST_CLASS} bytes: save it as UTF-8") from None
    if not label.isprintable() or not 0 < len(label) <= _LONGEST_CLASS:
        raise DataError(
            f"{file} is not the name or the number of a class: it holds one, of at most {_LONGEST_CLASS} letters"
        )
    return label


def _folder_pairs(named: Mapping[str, InShard]) -> dict[str, tuple[InShard, InShard]]:
    """Returns the pictures and masks by their stems, with the split before them."""
    parts: dict[str, dict[str, InShard]] = {}
    for name, file in named.items():
        *above, folder, last = ["", *name.split("/")]
        if folder not in {"images", "masks"}:
            continue
        stem = "/".join([*above[1:], last.rpartition(".")[0] or last])
        if folder in (pair := parts.setdefault(stem, {})):
            raise DataError(f"{file} has the same stem as {pair[folder].name}: which one belongs to its partner?")
        pair[folder] = file
    for pair in parts.values():
        if len(pair) < 2:
            raise DataError(
                f"{next(iter(pair.values()))} has no partner in {'masks' if 'images' in pair else 'images'}/"
            )
    return {stem: (pair["images"], pair["masks"]) for stem, pair in parts.items()}


def _sample_pairs(named: Mapping[str, InShard]) -> dict[str, tuple[InShard, InShard]]:
    by_key: dict[str, tuple[InShard, InShard]] = {}
    for key, parts in _samples(named).items():
        kinds = [kind for kind in parts if kind.removeprefix(MASKS[0]).removeprefix(MASKS[1]) in PICTURES]
        masks = [kind for kind in kinds if kind.startswith(MASKS)] or [kind for kind in kinds if kind == "png"]
        pictures = [kind for kind in kinds if kind not in masks]
        if (len(pictures), len(masks)) != (1, 1):
            first = named[next(iter(parts.values()))]
            raise DataError(
                f"{first}: {key} must have one picture and one mask, as KEY.jpg and KEY.png or KEY.mask.png"
            )
        by_key[key] = named[parts[pictures[0]]], named[parts[masks[0]]]
    return by_key


def _samples(named: Mapping[str, InShard]) -> dict[str, dict[str, str]]:
    """Returns the names of each sample's files by what follows the first point."""
    samples: dict[str, dict[str, str]] = {}
    for name in named:
        folder, _, last = name.rpartition("/")
        stem, _, kind = last.partition(".")
        samples.setdefault(f"{folder}/{stem}" if folder else stem, {})[kind.lower()] = name
    return samples
