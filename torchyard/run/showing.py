"""What a run shows besides its metrics: pictures, histograms, tables, texts and confusion matrices, at its steps."""

from collections.abc import Iterable, Sequence
from typing import Any

from torchyard.contract.media.kinds import MediaKind, MediaPart
from torchyard.run import summaries
from torchyard.run.images import mask_bytes, picture_bytes
from torchyard.run.shownlog import ShownLog


class Showing:
    """The methods of the run context for it. Every rank may call them; only rank 0 writes.

    `step`: that of the newest call of `log` or `progress`, if it is not given. What is shown again at the same key,
    step and number replaces what was there. They raise TypeError and ValueError for what cannot be shown. What is too
    large, or finds no room on the disk, is left out, and a warning says so. They wait for the device of a tensor.
    """

    _shown: ShownLog | None = None
    _newest_step: Any = 0

    def log_image(
        self,
        key: str,
        image: Any,
        *,
        step: int | None = None,
        caption: str | Sequence[str | None] | None = None,
        truth: Any = None,
        predicted: Any = None,
        classes: Sequence[Any] | None = None,
        number: int = 0,
    ) -> None:
        """Shows a picture, or a list of them, numbered from `number` on.

        A picture is the bytes of a PNG, JPEG or WebP file, its path, a picture of PIL, a figure of matplotlib, or an
        array or tensor: H x W, H x W x 3 or 3 x H x W, of whole numbers to 255 or floats from 0 to 1. `truth` and
        `predicted` are masks of it: arrays H x W of numbers of classes, 255 for none. `classes`: their names, from 0.
        For a list of pictures, `caption`, `truth` and `predicted` are lists too.
        """
        if self._shown is None:
            return
        images = list(image) if isinstance(image, (list, tuple)) else [image]
        several = isinstance(image, (list, tuple))
        columns = [_each(given, len(images), several=several) for given in (caption, truth, predicted)]
        for at, (one, says, true, guess) in enumerate(zip(images, *columns, strict=True)):
            files: dict[MediaPart, bytes] = {"image": picture_bytes(one)}
            if true is not None:
                files["truth"] = mask_bytes(true)
            if guess is not None:
                files["predicted"] = mask_bytes(guess)
            kind = MediaKind.IMAGE if len(files) == 1 else MediaKind.OVERLAY
            values: dict[str, Any] = {"caption": says, "classes": classes, "files": files}
            self._shown.add(key, kind, step=self._step(step), number=number + at, **values)

    def log_histogram(self, key: str, values: Any, *, step: int | None = None, bins: int = 64) -> None:
        """Shows how values are distributed: numbers, an array or a tensor, or `(edges, counts)`."""
        if self._shown is not None:
            data = summaries.histogram(values, bins=bins)
            self._shown.add(key, MediaKind.HISTOGRAM, step=self._step(step), data=data)

    def log_table(
        self, key: str, columns: Sequence[Any], rows: Iterable[Sequence[Any]], *, step: int | None = None
    ) -> None:
        """Shows a table of texts, numbers, booleans and None. Of a long one the first rows are kept."""
        if self._shown is not None:
            self._shown.add(key, MediaKind.TABLE, step=self._step(step), data=summaries.table(columns, rows))

    def log_text(
        self,
        key: str,
        text: str | Sequence[str],
        *,
        step: int | None = None,
        caption: str | Sequence[str | None] | None = None,
        expected: str | Sequence[str | None] | None = None,
        number: int = 0,
    ) -> None:
        """Shows a text, or a list of them, numbered from `number` on. Of a long one the beginning is kept.

        `expected`: what the text should be, such as how an example goes on; shown beside it.
        """
        if self._shown is None:
            return
        several = not isinstance(text, str)
        texts = [*text] if several else [text]
        columns = [_each(given, len(texts), several=several) for given in (caption, expected)]
        for at, (one, says, wanted) in enumerate(zip(texts, *columns, strict=True)):
            values: dict[str, Any] = {"caption": says, "data": summaries.text(one, expected=wanted)}
            self._shown.add(key, MediaKind.TEXT, step=self._step(step), number=number + at, **values)

    def log_confusion(
        self, key: str, matrix: Any, *, classes: Sequence[Any] | None = None, step: int | None = None
    ) -> None:
        """Shows how often each class (a row) was taken for each (a column). `classes`: their names."""
        if self._shown is not None:
            data = summaries.confusion(matrix, classes=classes)
            self._shown.add(key, MediaKind.CONFUSION, step=self._step(step), data=data)

    def _step(self, step: int | None) -> Any:
        return self._newest_step if step is None else step


def _each(given: Any, count: int, *, several: bool) -> Sequence[Any]:
    """Returns a value for each item. One text, or none, is for all."""
    if not several or given is None or isinstance(given, str):
        return [given] * count
    if len(given) != count:
        raise ValueError(f"there are {count} items, and {len(given)} captions, masks or expected texts")
    return given
