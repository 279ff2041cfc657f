"""Labelled texts and their two splits."""

from collections.abc import Iterable
from dataclasses import dataclass
import hashlib
from itertools import groupby
import json
from pathlib import Path

import torch
from torch import Tensor

from torchyard.contract.errors import DataError
from torchyard.contract.recipes import TextDataConfig
from trainer.data.identity import Identity
from trainer.data.images import split_indices
from trainer.data.splits import TRAIN, VALIDATION, left_out, split_names
from trainer.data.textfiles import Sample, Tell, class_files, named_by_suffix, read_classes, read_table


@dataclass(frozen=True)
class Texts:
    """One split: texts, and the index of each one's class (int64)."""

    texts: list[str]
    labels: Tensor


@dataclass(frozen=True)
class TextData:
    """A source of texts with its two splits."""

    train: Texts
    val: Texts
    classes: list[str]
    identity: Identity
    """Its digest is that of all texts and labels in their order."""
    split_hash: str
    """The digest of which texts train and which are held out."""
    notes: list[str]
    """What is to be said once about the files: a guessed encoding, blank texts that are left out."""


def load_texts(path: Path, config: TextDataConfig) -> TextData:
    """Loads a folder with a file per class, `train/` and `val/` with such files, or one CSV or JSON-lines file.

    A class file has a text a line. The class is its stem, or its suffix if all stems are equal. A table has `text` and
    `label`. Blank texts are left out, repeated ones stay. Files are UTF-8; a file without any is read as cp1252. A
    source without its own split is split by the configuration's seed, with the same share of each class. Raises
    DataError.
    """
    notes: list[str] = []
    splits = _splits(path, notes.append)
    train, val = _split_folders(*splits, notes.append) if splits else (_read(path, notes.append), None)
    samples = [*train, *(val or [])]
    classes = _classes(path, train)
    index = {name: number for number, name in enumerate(classes)}
    labels = torch.tensor([index[sample.label] for sample in samples])
    held_out = torch.arange(len(samples)) >= len(train)
    if val is None:
        held_out[split_indices(labels, fraction=config.val_fraction, seed=config.split_seed)[1]] = True
    if not held_out.any():
        raise DataError(f"{path}: there is no text for validation")
    digest = _hash(samples)
    return TextData(
        train=_part(samples, labels, ~held_out),
        val=_part(samples, labels, held_out),
        classes=classes,
        identity=Identity(digest=digest, root=path, digests=_digests(path, samples)),
        split_hash=hashlib.sha256(digest.encode() + held_out.numpy().tobytes()).hexdigest(),
        notes=notes,
    )


def _splits(path: Path, tell: Tell) -> tuple[Path, Path] | None:
    """Returns the folders for training and for validation; None: there are none. Raises DataError for one of them."""
    try:
        folders = sorted(folder.name for folder in path.iterdir() if folder.is_dir()) if path.is_dir() else []
    except OSError as error:
        raise DataError(f"{path} cannot be read: {error.strerror}") from error
    splits = split_names(folders, path)
    if splits is not None:
        for note in left_out(folders, path):
            tell(note)
        return path / splits[0], path / splits[1]
    for name in folders:
        if name.casefold() in {TRAIN, *VALIDATION}:
            other = path / ("val" if name.casefold() == TRAIN else "train")
            raise DataError(f"there is no {other}: a source with its own split has train/ and val/")
    return None


def _split_folders(training: Path, validation: Path, tell: Tell) -> tuple[list[Sample], list[Sample]]:
    train = class_files(training)
    val = class_files(validation, by_suffix=named_by_suffix(list(train.values())))
    for name, file in val.items():
        if name not in train:
            raise DataError(f"{file}: the class {name} is not in {training}")
    return read_classes(train, tell), read_classes(val, tell)


def _read(path: Path, tell: Tell) -> list[Sample]:
    return read_classes(class_files(path), tell) if path.is_dir() else read_table(path, tell)


def _classes(path: Path, samples: list[Sample]) -> list[str]:
    """Returns the names of the classes, sorted as numbers if all are numbers."""
    names = {sample.label for sample in samples}
    if len(names) < 2:
        raise DataError(f"{path}: there is only the class {min(names)}; at least two are needed")
    are_numbers = all(name.isdecimal() for name in names)
    return sorted(names, key=lambda name: (int(name) if are_numbers else 0, name))


def _part(samples: list[Sample], labels: Tensor, chosen: Tensor) -> Texts:
    return Texts([samples[index].text for index in chosen.nonzero().flatten().tolist()], labels[chosen])


def _digests(root: Path, samples: list[Sample]) -> dict[str, str]:
    """Returns the digest of each file by its name below `root`."""
    by_file = groupby(samples, key=lambda sample: sample.file)
    return {file.relative_to(root).as_posix(): _hash(found) for file, found in by_file}


def _hash(samples: Iterable[Sample]) -> str:
    digest = hashlib.sha256()
    for sample in samples:
        digest.update(json.dumps([sample.label, sample.text]).encode())
    return digest.hexdigest()
