import pytest
import torch

from tests.approved import Approved
from torchyard.contract.errors import ConfigError
from torchyard.models import vision as models


@pytest.mark.parametrize(("channels", "height", "width"), [(1, 8, 8), (3, 9, 13), (1, 28, 28), (4, 33, 17)])
def test_the_small_cnn_takes_pictures_of_any_size(channels: int, height: int, width: int) -> None:
    model = models.build("small_cnn", channels=channels, height=height, width=width, classes=7)
    assert model.training
    assert model(torch.rand(2, channels, height, width)).shape == (2, 7)


@pytest.mark.parametrize("name", ["resnet18", pytest.param("vit_b_32", marks=pytest.mark.thorough), "googlenet"])
def test_a_torchvision_model_takes_three_channels_and_the_data_s_classes(name: str) -> None:
    model = models.build(name, channels=1, height=64, width=64, classes=3)
    assert model(torch.rand(2, models.channels_for(name, 1), 64, 64)).shape == (2, 3)


@pytest.mark.parametrize("name", ["resnet_18", "small_cn", "qqqqqqqq"])
def test_an_unknown_model_is_named_with_similar_names(name: str, approved: Approved) -> None:
    with pytest.raises(ConfigError, match=name) as caught:
        models.build(name, channels=1, height=8, width=8, classes=3)
    assert caught.value.message == approved.of_row("message")


@pytest.mark.parametrize(("name", "size"), [("vit_b_16", 30), ("alexnet", 8)])
def test_pictures_that_a_model_cannot_take_are_a_configuration_error(name: str, size: int, approved: Approved) -> None:
    with pytest.raises(ConfigError) as raised:
        models.build(name, channels=3, height=size, width=size, classes=3)
    assert str(raised.value) == approved.of_row("message", name=name, size=size)


@pytest.mark.thorough
def test_weights_for_pictures_of_another_size_fit_a_vision_transformer() -> None:
    tiny = models.build("vit_b_32", channels=3, height=64, width=64, classes=2)
    larger = {"encoder.pos_embedding": torch.rand(1, 17, 768)}
    scaled = models.fit_position_embeddings(tiny, larger)
    assert scaled["encoder.pos_embedding"].shape == (1, 5, 768)
    assert torch.equal(scaled["encoder.pos_embedding"][:, 0], larger["encoder.pos_embedding"][:, 0])
    assert models.fit_position_embeddings(tiny, {"heads.head.bias": torch.zeros(2)}).keys() == {"heads.head.bias"}


@pytest.mark.parametrize("published", [True, False])
def test_only_published_weights_of_googlenet_have_their_own_normalization(published: bool) -> None:
    model = models.build("googlenet", channels=3, height=32, width=32, classes=2, for_published=published)
    assert getattr(model, "transform_input") == published  # noqa: B009 torchvision does not declare it


@pytest.mark.parametrize(
    ("weights", "expected"),
    [("none", False), ("DEFAULT", True), ("a.B", True), ("/a/b.pt", False), ("file:///a.pt", False)],
)
def test_a_name_is_neither_none_nor_a_path(weights: str, expected: bool) -> None:
    assert models.is_published(weights) == expected
