"""The configuration of `image-classification`."""

from typing import Annotated, Literal

from pydantic import Field

from torchyard.contract.recipes.entry import RecipeEntry
from torchyard.contract.recipes.pictures import CLASS_WEIGHTS, ClassWeights, ImageDataConfig, ImageModelConfig
from torchyard.contract.recipes.training import Recipe
from torchyard.contract.wire.schema import Schema


class ClassificationLoss(Schema):
    name: Literal["cross_entropy"] = Field(default="cross_entropy", description="loss: the mean over the samples")
    label_smoothing: Annotated[float, Field(ge=0, lt=1)] = Field(
        default=0.0, description="fraction of each target that is spread over all classes"
    )
    class_weights: ClassWeights = CLASS_WEIGHTS
    mixup: Annotated[float, Field(ge=0, le=100)] = Field(
        default=0.0, description="mixup (arXiv 1710.09412): the α of Beta(α, α); 0: none"
    )


class ImageClassification(Recipe):
    """Classifies images with a small CNN or a torchvision model. Data: class folders, an `.npz` file or `digits`."""

    model: ImageModelConfig = ImageModelConfig()  # pyright: ignore[reportIncompatibleVariableOverride] it is frozen
    data: ImageDataConfig = ImageDataConfig()  # pyright: ignore[reportIncompatibleVariableOverride] it is frozen
    loss: ClassificationLoss = ClassificationLoss()


RECIPE = RecipeEntry(
    name="image-classification",
    config=ImageClassification,
    measures=frozenset({"train/accuracy", "val/accuracy", "val/accuracy_top5"}),
)
