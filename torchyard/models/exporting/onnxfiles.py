"""The format `onnx`: one file that onnxruntime, Triton, TensorRT and OpenVINO run."""

from collections.abc import Mapping
import importlib.util
from pathlib import Path

import torch
from torch import Tensor

from torchyard.contract.errors import ExportError
from torchyard.models.exporting.graphs import OUTPUT, Graph, Run, Trial, quiet, reason

LARGEST = (1 << 31) - (1 << 20)
"""Bytes of weights in one file: protobuf has no message of 2 GiB."""
_OPSET, _IR = 20, 9
"""Up to this opset a file of this version holds all: runtimes of 2023 read it, not what torch writes."""
PACKAGES = ("onnx", "onnxscript", "onnxruntime")


def require_packages() -> None:
    """Raises ExportError if what writes or checks the file is not installed."""
    if missing := [name for name in PACKAGES if importlib.util.find_spec(name) is None]:
        raise ExportError(f"ONNX needs {' and '.join(missing)}: pip install 'torchyard[onnx]'")


def content(graph: Graph, metadata: Mapping[str, str]) -> bytes:
    """Returns a file with the graph, and `metadata` as its metadata_props. Raises ExportError."""
    weights = [*graph.module.parameters(), *graph.module.buffers()]
    if sum(tensor.nbytes for tensor in weights) > LARGEST:
        raise ExportError("the weights have more than 2 GiB, which no ONNX file can hold: export it as torch-export")
    program = graph.traced()
    with quiet(), torch.no_grad():
        try:
            converted = torch.onnx.export(
                program, dynamo=True, verbose=False, output_names=[OUTPUT], dynamic_shapes=dict(graph.axes)
            )
        except Exception as error:
            raise ExportError(f"the model cannot be written as ONNX: {reason(error)}") from error
    assert converted is not None, "it is only None where it writes the file itself"
    converted.model.metadata_props.update(metadata)
    if converted.model.opset_imports[""] <= _OPSET:
        converted.model.ir_version = _IR
    return converted.model_proto.SerializeToString()


def opened(path: Path) -> Run:
    """Returns the graph in the file as a function, which onnxruntime runs."""
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3
    session = onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])
    names = [given.name for given in session.get_inputs()]

    def run(trial: Trial) -> Tensor:
        given = {name: tensor.numpy() for name, tensor in zip(names, trial.inputs, strict=True)}
        return torch.from_numpy(session.run([OUTPUT], given)[0])

    return run
