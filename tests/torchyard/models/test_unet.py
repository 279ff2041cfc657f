"""The U-Nets: shapes, gradients, and the names that published weights have."""

import pytest
import torch
from torch import Tensor, nn
from torchvision.models import get_model

from torchyard.models import unet

LARGE = {"unet_resnet101", "unet_vgg16"}
NAMES = [pytest.param(name, marks=pytest.mark.thorough) if name in LARGE else name for name in unet.ENCODERS]


@pytest.fixture(scope="module", params=["unet_small", *NAMES])
def model(request: pytest.FixtureRequest) -> nn.Module:
    torch.manual_seed(0)
    return unet.build(request.param)


def pictures(count: int = 2) -> Tensor:
    return torch.randn(count, 3, 32, 64, generator=torch.Generator().manual_seed(1))


def test_there_is_one_logit_for_each_pixel_and_every_parameter_gets_a_gradient(model: nn.Module) -> None:
    logits = model.train()(pictures())
    assert logits.shape == (2, 1, 32, 64)
    assert 0.05 < logits.std() < 5  # the signal neither vanishes nor explodes
    logits.square().mean().backward()
    for name, parameter in model.named_parameters():
        assert parameter.grad is not None, name
        assert parameter.grad.isfinite().all(), name
        assert parameter.grad.any(), name


def test_evaluation_depends_on_the_picture_alone(model: nn.Module) -> None:
    inputs = pictures()
    with torch.no_grad():
        first = model.eval()(inputs)
        assert torch.equal(first, model(inputs))
        assert torch.allclose(first[1:], model(inputs[1:]), atol=1e-4)


def test_only_norms_differ_between_training_and_evaluation(model: nn.Module) -> None:
    normed = any(isinstance(layer, nn.BatchNorm2d) for layer in model.modules())
    assert normed != isinstance(model, unet.UNet16)
    if not normed:
        inputs = pictures(1)
        with torch.no_grad():
            assert torch.equal(model.train()(inputs), model.eval()(inputs))


@pytest.mark.parametrize("name", NAMES)
def test_an_encoder_has_the_names_and_shapes_of_torchvisions_weights(name: str) -> None:
    with torch.device("meta"):
        encoder, published = unet.build(name).encoder, get_model(unet.ENCODERS[name], weights=None)
    expected = {
        key: value.shape for key, value in published.state_dict().items() if not key.startswith(("fc.", "classifier."))
    }
    assert {key: value.shape for key, value in encoder.state_dict().items()} == expected
