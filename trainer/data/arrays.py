"""Pictures in memory: `digits`, and `.npz` files."""

from pathlib import Path
from typing import Any
import zipfile
import zlib

import numpy as np
from numpy.typing import NDArray
import torch
from torch import Tensor

from torchyard.contract.errors import DataError
from torchyard.contract.recipes import ImageDataConfig
from torchyard.models.arrays import KINDS, check_range, fitted
from trainer.data.digests import arrays_digest, split_digest
from trainer.data.digits import read_digits
from trainer.data.identity import Identity
from trainer.data.images import ImageData, InMemory, split_indices

ARRAYS = ("x_train", "y_train", "x_test", "y_test")

Array = NDArray[Any]


def load_digits(config: ImageDataConfig, *, crop_fraction: float = 1.0) -> ImageData:
    """Loads scikit-learn's 1,797 handwritten digits, split by the configuration's seed. Raises DataError."""
    pictures, labels = read_digits()
    images = torch.from_numpy(pictures).float().div(16).reshape(-1, 1, 8, 8)
    targets = torch.from_numpy(labels).long()
    train, val = split_indices(targets, fraction=config.val_fraction, seed=config.split_seed)
    images = _fitted(images, config, crop_fraction)
    return _data(
        InMemory(images[train], targets[train]),
        InMemory(images[val], targets[val]),
        [str(digit) for digit in range(10)],
        identity=Identity(digest=arrays_digest({"pictures": pictures, "labels": labels})),
        split_hash=split_digest(map(str, train.tolist()), map(str, val.tolist())),
    )


def load_npz(path: Path, config: ImageDataConfig, *, crop_fraction: float = 1.0) -> ImageData:
    """Loads an `.npz` file with x_train, y_train, x_test and y_test. Unpickles nothing. Raises DataError.

    Pictures are (samples, height, width), or have 1 or 3 channels as their last or second dimension; uint8, or floats
    of 0…1. Labels are integers or texts; the classes are those of y_train.
    """
    arrays = _read(path)
    train, val = (_pictures(path, name, arrays[name]) for name in ("x_train", "x_test"))
    if train.shape[1:] != val.shape[1:]:
        raise DataError(f"{path}: x_train has pictures of {_shape(train)}, x_test of {_shape(val)}")
    if train.dtype != val.dtype:
        raise DataError(f"{path}: x_train is {arrays['x_train'].dtype}, x_test is {arrays['x_test'].dtype}")
    classes = np.unique(_labels(path, "y_train", arrays, len(train)))
    if len(classes) < 2:
        raise DataError(f"{path}: y_train has only the class {classes[0]}; at least two are needed")
    train_labels, val_labels = (
        _index(path, name, _labels(path, name, arrays, len(pictures)), classes)
        for name, pictures in (("y_train", train), ("y_test", val))
    )
    digest = arrays_digest(arrays)
    return _data(
        InMemory(_fitted(train, config, crop_fraction), train_labels),
        InMemory(_fitted(val, config, crop_fraction), val_labels),
        [str(name) for name in classes],
        identity=Identity(digest=digest, root=path, digests={".": digest}),
        split_hash=split_digest(
            (f"x_train/{index}" for index in range(len(train))), (f"x_test/{index}" for index in range(len(val)))
        ),
    )


def _fitted(pictures: Tensor, config: ImageDataConfig, crop_fraction: float) -> Tensor:
    size = config.image_size
    if size is None:
        return pictures
    return fitted(pictures, (size, size), resize=config.resize, crop_fraction=crop_fraction)


def _read(path: Path) -> dict[str, Array]:
    try:
        with path.open("rb") as raw:
            file = np.load(raw, allow_pickle=False)
            if not isinstance(file, np.lib.npyio.NpzFile):
                raise DataError(f"{path} is not an .npz file")
            missing = [name for name in ARRAYS if name not in file]
            if missing:
                raise DataError(f"{path} has no {', '.join(missing)}; it has {', '.join(file.files) or 'nothing'}")
            return {name: file[name] for name in ARRAYS}
    except FileNotFoundError:
        raise DataError(f"there is no {path}") from None
    except ValueError as error:
        why = "what is pickled in it is not read: save numbers or texts" if "pickle" in str(error) else error
        raise DataError(f"{path} cannot be read as an .npz file of plain arrays: {why}") from error
    except (OSError, EOFError, RuntimeError, zipfile.BadZipFile, zlib.error) as error:
        raise DataError(f"{path} cannot be read as an .npz file of plain arrays: {error}") from error


def _pictures(path: Path, name: str, array: Array) -> Tensor:
    if not len(array.shape) or not len(array):
        raise DataError(f"{path}: {name} is empty")
    if array.ndim == 3:
        array = array[:, None]
    elif array.ndim == 4 and array.shape[3] in (1, 3):
        array = array.transpose(0, 3, 1, 2)
    elif array.ndim != 4 or array.shape[1] not in (1, 3):
        raise DataError(
            f"{path}: {name} has the shape {array.shape}, which is not one of pictures with 1 or 3 channels"
        )
    if 0 in array.shape:
        raise DataError(f"{path}: {name} has the shape {array.shape}: the pictures are empty")
    if array.dtype == np.uint8:
        return torch.from_numpy(np.ascontiguousarray(array))
    if array.dtype.kind == "f":
        pictures = torch.from_numpy(np.ascontiguousarray(array, dtype=np.float32))
        check_range(pictures, what=f"{path}: {name} has")
        return pictures
    raise DataError(f"{path}: {name} is {array.dtype}; {KINDS}")


def _labels(path: Path, name: str, arrays: dict[str, Array], samples: int) -> Array:
    labels = arrays[name]
    if labels.ndim == 2 and labels.shape[1] == 1:
        labels = labels[:, 0]
    if labels.ndim != 1 or labels.dtype.kind not in "iuU":
        raise DataError(f"{path}: {name} must be a row of integers or texts, not {labels.dtype} {labels.shape}")
    if len(labels) != samples:
        raise DataError(f"{path}: {name} has {len(labels)} labels for {samples} pictures")
    return labels


def _index(path: Path, name: str, labels: Array, classes: Array) -> Tensor:
    unknown = np.setdiff1d(labels, classes)
    if len(unknown):
        raise DataError(f"{path}: the class {unknown[0]} is in {name} but not in y_train")
    return torch.from_numpy(np.searchsorted(classes, labels))


def _data(train: InMemory, val: InMemory, classes: list[str], *, identity: Identity, split_hash: str) -> ImageData:
    _, channels, height, width = train.pictures.shape
    return ImageData(
        train,
        val,
        classes,
        channels=channels,
        height=height,
        width=width,
        in_memory=True,
        identity=identity,
        split_hash=split_hash,
    )


def _shape(pictures: Tensor) -> str:
    _, channels, height, width = pictures.shape
    return f"{channels}×{height}×{width}"
