"""Logs pictures, histograms, tables, texts and confusion matrices of a run."""

from collections.abc import Iterable, Sequence
from typing import Any

from torchyard.contract.media.kinds import MediaKind, MediaPart
from torchyard.run import summaries
from torchyard.run.images import mask_bytes, picture_bytes
from torchyard.run.shownlog import ShownLog


class Showing:
    """The methods of the run context that log media. Every rank may call them; only rank 0 writes.

    `step` defaults to the step of the last `log` or `progress`. A new item replaces one with the same key, step and
    number. An item that is too large or finds no disk space is left out, and a warning says so. The methods wait for
    the device of a tensor.
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
        """Logs a picture or a list of pictures, with or without masks.

        Args:
            key: The name of the series, such as `val/samples`.
            image: Bytes or the path of a PNG, JPEG or WebP file, a PIL image, a matplotlib figure, or an array or
                tensor of shape H × W, H × W × 3 or 3 × H × W: integers to 255, or floats from 0 to 1. Or a list of
                them.
            step: The optimizer step.
            caption: A text below the picture. For a list of pictures, a list.
            truth: The true mask: an array H × W of class numbers; 255 is none. For a list of pictures, a list.
            predicted: The predicted mask, in the same form.
            classes: Names of the classes, from number 0.
            number: The number of the first picture.

        Raises:
            TypeError: The picture has an unknown type.
            ValueError: A shape, a value or the length of a list is wrong.

        Example:
            >>> run.log_image("val/samples", np.zeros((32, 32), np.uint8), step=100, caption="black")
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
        """Logs the distribution of values.

        Args:
            key: The name of the series.
            values: Numbers, an array or a tensor of any shape, or a pair `(edges, counts)`. NaN and infinities are left
                out.
            step: The optimizer step.
            bins: The number of bins.

        Raises:
            TypeError: A value is not a number.
            ValueError: The edges or counts are not valid.

        Example:
            >>> run.log_histogram("weights", torch.randn(1000), step=100)
        """
        if self._shown is not None:
            data = summaries.histogram(values, bins=bins)
            self._shown.add(key, MediaKind.HISTOGRAM, step=self._step(step), data=data)

    def log_table(
        self, key: str, columns: Sequence[Any], rows: Iterable[Sequence[Any]], *, step: int | None = None
    ) -> None:
        """Logs a table. Of a long one, only the first rows are kept.

        Args:
            key: The name of the series.
            columns: Names of the columns.
            rows: One sequence for each row: texts, numbers, booleans or None.
            step: The optimizer step.

        Raises:
            TypeError: A value has another type.
            ValueError: A row has the wrong length.

        Example:
            >>> run.log_table("worst", ["file", "loss"], [["a.png", 2.5], ["b.png", 1.75]], step=100)
        """
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
        """Logs a text or a list of texts. Of a long one, only the beginning is kept.

        Args:
            key: The name of the series.
            text: The text or the texts.
            step: The optimizer step.
            caption: A title. For a list of texts, a list.
            expected: The text that should be there. For a list of texts, a list.
            number: The number of the first text.

        Raises:
            TypeError: A value is not a text.
            ValueError: The lists differ in length.

        Example:
            >>> run.log_text("samples", "a cat sat", expected="a cat sat down", step=100)
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
        """Logs a confusion matrix.

        Args:
            key: The name of the series.
            matrix: Counts of shape (classes, classes): a row for each true class, a column for each predicted class.
            classes: Names of the classes.
            step: The optimizer step.

        Raises:
            TypeError: A count is not a number.
            ValueError: The matrix is not square, or has another size than `classes`.

        Example:
            >>> run.log_confusion("val/confusion", [[9, 1], [2, 8]], classes=["cat", "dog"], step=100)
        """
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
