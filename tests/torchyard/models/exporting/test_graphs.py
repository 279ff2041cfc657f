"""Graphs, written in each format, read again and compared."""

from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

from tests.approved import Approved
from torchyard.contract.errors import ExportError
from torchyard.contract.recipes import Normalization
from torchyard.models import vision
from torchyard.models.exporting import onnxfiles, programs
from torchyard.models.exporting.graphs import Graph, Pictures, Trial, compare
from torchyard.models.normalization import Normalizer

CPU = torch.device("cpu")
METADATA = {"torchyard": "{}"}
WRITTEN = {"torch-export": programs, "onnx": onnxfiles}


def pictures(model: nn.Module, *, channels: int, taken: int, side: int) -> Graph:
    normalize = Normalizer(Normalization(mean=[0.4], std=[0.3]), channels=taken, device=CPU)
    module = Pictures(model, normalize).eval()
    inputs = [(torch.rand(count, channels, side, side),) for count in (1, 3)]
    return Graph(module, {"pixels": {0: "batch"}}, [Trial([], each, module(*each).detach()) for each in inputs])


def small_cnn() -> Graph:
    return pictures(vision.SmallCNN(channels=1, classes=3), channels=1, taken=1, side=8)


def grey_squeezenet() -> Graph:
    """Its final pooling has no fixed size, and it takes three channels."""
    model = vision.build("squeezenet1_1", channels=1, height=32, width=32, classes=3)
    return pictures(model, channels=1, taken=3, side=32)


@pytest.mark.thorough
def test_a_file_of_onnx_has_a_version_that_older_runtimes_read() -> None:
    import onnx

    written = onnx.load_from_string(onnxfiles.content(small_cnn(), METADATA))
    assert (written.ir_version, [one.version for one in written.opset_import if not one.domain]) == (9, [20])
    onnx.checker.check_model(written)


@pytest.mark.thorough
@pytest.mark.parametrize("to", WRITTEN)
def test_what_is_read_again_computes_what_the_model_does(tmp_path: Path, to: str) -> None:
    torch.manual_seed(5)
    graph = grey_squeezenet()
    (tmp_path / "it").write_bytes(WRITTEN[to].content(graph, METADATA))
    run = WRITTEN[to].opened(tmp_path / "it")
    assert compare(run, graph.trials) < 1e-5
    wrong = [Trial([], trial.inputs, trial.expected + 1e-4) for trial in graph.trials]
    with pytest.raises(ExportError, match=r"does not compute what the model does: logits differ by"):
        compare(run, wrong)


class Branching(nn.Module):
    """It decides by the values of its inputs, as no graph can."""

    def forward(self, pixels: Tensor) -> Tensor:
        return pixels.flatten(1) if pixels.sum() > 0 else -pixels.flatten(1)


@pytest.mark.parametrize("to", ["torch-export", pytest.param("onnx", marks=pytest.mark.thorough)])
def test_a_model_that_has_no_graph_is_refused_in_a_line(to: str) -> None:
    with pytest.raises(ExportError, match=r"^the model cannot be exported: .*") as caught:
        WRITTEN[to].content(pictures(Branching(), channels=1, taken=1, side=8), METADATA)
    assert "\n" not in caught.value.message


def test_logits_that_are_nan_or_of_another_shape_are_refused(approved: Approved) -> None:
    (trial, _) = small_cnn().trials
    with pytest.raises(ExportError, match="NaN or infinite"):
        compare(lambda _: trial.expected, [Trial([], trial.inputs, trial.expected * torch.nan)])
    with pytest.raises(ExportError, match="differ by nan"):
        compare(lambda _: trial.expected * torch.nan, [trial])
    with pytest.raises(ExportError) as raised:
        compare(lambda _: trial.expected[:, :2], [trial])
    assert str(raised.value) == approved("message")


def test_a_model_beyond_the_limit_of_onnx_is_refused(monkeypatch: pytest.MonkeyPatch, approved: Approved) -> None:
    monkeypatch.setattr(onnxfiles, "LARGEST", 1000)
    with pytest.raises(ExportError) as raised:
        onnxfiles.content(small_cnn(), METADATA)
    assert str(raised.value) == approved("message")
