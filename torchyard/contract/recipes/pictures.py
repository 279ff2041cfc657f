"""The configuration that the recipes for pictures share."""

from typing import Annotated, Any, Literal, Self

from pydantic import Field, model_validator

from torchyard.contract.recipes.training import DataConfig, ModelConfig, Seed
from torchyard.contract.wire.schema import BUNDLE_PATTERN, Schema
from torchyard.contract.wire.text import LONGEST_URL
from torchyard.contract.wire.wording import allowing

TIMM, HF = "timm/", "hf/"
"""The beginnings of names of models of timm and transformers."""
HF_PICTURES = (
    "beit",
    "convnext",
    "convnextv2",
    "mobilenet_v2",
    "regnet",
    "resnet",
    "swin",
    "swinv2",
    "vit",
)
"""The types of transformers' models for `hf/TYPE` in image classification."""
_NAME = allowing(
    rf"^((timm/)?[A-Za-z0-9_]{{1,100}}|hf/({'|'.join(HF_PICTURES)}))$",
    f"1 to 100 letters, digits and `_`, `timm/` before them, or `hf/` and one of {', '.join(HF_PICTURES)}",
)
Name = Annotated[str, Field(pattern=_NAME)]
_OPTIONS = (
    *("hidden_size", "num_hidden_layers", "num_attention_heads", "intermediate_size", "hidden_dim"),
    *("embedding_size", "hidden_sizes", "depths", "embed_dim", "num_heads", "patch_size", "window_size"),
)
_OPTION = allowing(f"^({'|'.join(_OPTIONS)})$", f"one of {', '.join(_OPTIONS)}")
_Positive = Annotated[int, Field(ge=1, le=65_536)]
ModelOptions = Annotated[
    dict[
        Annotated[str, Field(pattern=_OPTION)],
        _Positive | Annotated[list[_Positive], Field(min_length=1, max_length=16)],
    ],
    Field(max_length=len(_OPTIONS), json_schema_extra={"additionalProperties": False}),
]
OPTIONS: Any = Field(
    default={},
    exclude_if=lambda options: not options,
    description="`hf/TYPE` only: values that replace the type's default configuration, such as `{hidden_size: 192, "
    "num_hidden_layers: 6}`",
)
_SOURCE = allowing(
    rf"^(digits|{BUNDLE_PATTERN}|file:///.+)$",
    "digits, bundle:sha256:… or file:///… (`torchyard data push DIR` uploads a folder)",
)
Source = Annotated[str, Field(pattern=_SOURCE, max_length=LONGEST_URL)]
_WEIGHTS = allowing(
    r"^(none|file:///.+|[A-Za-z0-9_.]{1,100})$", "none, file:///…, or the name of torchvision weights such as DEFAULT"
)
Weights = Annotated[str, Field(pattern=_WEIGHTS, max_length=LONGEST_URL)]
Channels = Annotated[list[float], Field(min_length=1, max_length=4)]
MOST_AUGMENTATIONS = 32
"""The most random changes of a picture."""
Augmentation = Literal["hflip", "vflip", "rotate90", "crop", "color"]
Workers = Annotated[int, Field(ge=0, le=64)] | Literal["auto"]
Resize = Literal["crop", "squash"]
Cache = Annotated[
    Literal["auto", "none"],
    Field(
        description="`auto`: cache decoded pictures on the worker for the next epochs and the owner's next jobs, as"
        " far as there is room; `none`: decode them in each epoch",
    ),
]
Init = Literal["default", "xavier", "kaiming"]
ClassWeights = (
    Literal["none", "auto"]
    | Annotated[list[Annotated[float, Field(ge=0, le=1e6)]], Field(min_length=2, max_length=10_000)]
)
CLASS_WEIGHTS: Any = Field(
    default="none",
    description="weight of each class in training, or `auto`: training samples / (number of classes × samples of "
    "the class), which gives all classes the same total weight",
)
Patterns = Annotated[list[Annotated[str, Field(min_length=1, max_length=200)]], Field(max_length=100)]


class Normalization(Schema):
    """Mean and standard deviation of each channel, for pixels scaled to 0…1."""

    mean: Channels = Field(description="mean of each channel")
    std: Channels = Field(description="standard deviation of each channel, above 0")

    @model_validator(mode="after")
    def _same_length(self) -> Self:
        if len(self.mean) != len(self.std) or min(self.std) <= 0:
            raise ValueError("mean and std need the same number of channels, and every std must be above 0")
        return self


class PictureModelConfig(ModelConfig):
    weights: Weights = Field(
        default="none",
        description="initial weights. `none`: random; `file:///…`: a .safetensors or .pt file inside an allowed "
        "folder; else the name of torchvision weights, such as `DEFAULT` or `IMAGENET1K_V1`, which the "
        "worker downloads",
    )
    init: Init = Field(
        default="default", description="initialization of layers that `weights` does not fill; `default`: PyTorch's"
    )
    freeze: Patterns = Field(
        default=[], description="parameters to freeze: names, prefixes of names, or patterns with *"
    )


class ImageModelConfig(PictureModelConfig):
    name: Name = Field(
        default="small_cnn",
        description="`small_cnn`; a torchvision classification model, such as `resnet18`; `timm/NAME`: a timm "
        "model, if timm is installed; or `hf/TYPE`: a model type of transformers, such as `hf/vit`",
    )
    options: ModelOptions = OPTIONS

    @model_validator(mode="after")
    def _library_has_no_published_weights(self) -> Self:
        if self.name.startswith((TIMM, HF)) and self.weights != "none" and not self.weights.startswith("file:///"):
            raise ValueError(f"{self.name} takes no published weights {self.weights}: use none or a file:// URL")
        if self.options and not self.name.startswith(HF):
            raise ValueError(f"options are those of {HF}TYPE, and {self.name} has none")
        return self


class ImageDataConfig(DataConfig):
    source: Source = Field(
        default="digits",
        description="`digits`, `bundle:sha256:…`, or `file:///…` inside an allowed folder: class folders, an `.npz`"
        " file, or shards",
    )
    val_fraction: Annotated[float, Field(gt=0, lt=1)] = Field(
        default=0.15, description="fraction for validation, if the source has no validation split"
    )
    split_seed: Seed = Field(default=0, description="seed of that split")
    image_size: Annotated[int, Field(ge=8, le=2048)] | None = Field(
        default=None, description="width and height in pixels; null: the size of the source"
    )
    resize: Resize = Field(
        default="crop",
        description="how to resize: `crop` keeps the aspect ratio and cuts the longer side (published weights use "
        "their own evaluation transform); `squash` changes the aspect ratio",
    )
    normalize: Literal["auto", "none", "imagenet"] | Normalization = Field(
        default="auto",
        description="mean and standard deviation: `auto`: of the training images; `imagenet`: of ImageNet, as for "
        "torchvision's weights",
    )
    augment: list[Augmentation] = Field(
        default=[],
        max_length=MOST_AUGMENTATIONS,
        description="random augmentations of training pictures, in this order: flips, quarter turns, a random crop "
        "resized to the picture's size, and color jitter",
    )
    workers: Workers = Field(
        default="auto", description="data loader processes per rank; `auto` is 0 for data in memory"
    )
    cache: Cache = "auto"
