"""How a model is named: NAME or OWNER/NAME, with @VERSION behind it for one version of it; and export formats."""

from dataclasses import dataclass
import re
from typing import Literal, Self, get_args

from torchyard.contract.errors import InvalidRequest
from torchyard.contract.wire.wording import allowing

NAME_WORDS = "1 to 100 letters, digits, `.`, `_` and `-`, of which the first is a letter or a digit"
MODEL_NAME = allowing(r"^[A-Za-z0-9][A-Za-z0-9._-]{0,99}$", NAME_WORDS)
MODEL_REF = r"([A-Za-z0-9][A-Za-z0-9._@-]{0,63}/)?[A-Za-z0-9][A-Za-z0-9._-]{0,99}(@[1-9][0-9]{0,8})?"
"""The pattern of a model, and of a version of it, as a pattern's part."""
MOST_VERSIONS = 10_000
"""The most versions that all models of one owner have together."""

Format = Literal["torch-export", "onnx", "safetensors", "hf"]
FORMATS: tuple[Format, ...] = get_args(Format)
ENDINGS: dict[Format, str] = {"torch-export": ".pt2", "onnx": ".onnx", "safetensors": ".safetensors", "hf": "-hf"}
"""What follows the name of a checkpoint in that of its export. `hf` is a folder."""

_REF = re.compile(rf"(?=({MODEL_REF})\Z)((?P<owner>[^/]+)/)?(?P<name>[^/@]+)(@(?P<version>[0-9]+))?")


@dataclass(frozen=True)
class ModelRef:
    """A model, or one version of it. `owner` None: the caller. `version` None: the newest."""

    owner: str | None
    name: str
    version: int | None = None

    @classmethod
    def parse(cls, text: str) -> Self:
        """Returns what `text` names: NAME, NAME@3, OWNER/NAME or OWNER/NAME@3. Raises InvalidRequest."""
        match = _REF.match(text)
        if match is None:
            raise InvalidRequest(
                f"{text[:200]!r} names no model: write NAME, NAME@3, OWNER/NAME or OWNER/NAME@3, where a name has"
                f" {NAME_WORDS}"
            )
        version = match["version"]
        return cls(match["owner"], match["name"], None if version is None else int(version))

    def __str__(self) -> str:
        owner = "" if self.owner is None else f"{self.owner}/"
        return f"{owner}{self.name}" if self.version is None else f"{owner}{self.name}@{self.version}"
