"""Weights from files and servers: matching tensors are copied, and failures are reported."""

from collections.abc import Callable, Generator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
import hashlib
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
import io
from pathlib import Path
import socket
from threading import Thread
from typing import Any

import pytest
from safetensors.torch import save_file
import torch
from torch import Tensor, nn

from torchyard.contract.errors import ConfigError, DataError
from trainer.models.weights import file_state, fill, is_published, torchvision_state

TENSORS = {"weight": torch.arange(6.0).reshape(3, 2), "bias": torch.ones(3)}


class Server(ThreadingHTTPServer):
    """Serves one file and counts the requests."""

    def __init__(self, content: bytes) -> None:
        super().__init__(("127.0.0.1", 0), partial(_Handler, content))
        self.asked: list[str] = []

    def url(self, path: str) -> str:
        return f"http://127.0.0.1:{self.server_port}/{path}"


class _Handler(BaseHTTPRequestHandler):
    def __init__(self, content: bytes, *arguments: Any) -> None:
        self._content = content
        super().__init__(*arguments)

    def do_GET(self) -> None:
        assert isinstance(self.server, Server)
        self.server.asked.append(self.path)
        self.send_response(404 if "absent" in self.path else 200)
        self.send_header("Content-Length", str(len(self._content)))
        self.end_headers()
        self.wfile.write(self._content)

    def log_message(self, format: str, *args: object) -> None:
        pass


@pytest.fixture
def content() -> bytes:
    buffer = io.BytesIO()
    torch.save(TENSORS, buffer)
    return buffer.getvalue()


@pytest.fixture
def server(content: bytes) -> Generator[Server]:
    with Server(content) as server:
        thread = Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        yield server
        server.shutdown()
        thread.join()


@pytest.fixture
def published(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Callable[[str], dict[str, Tensor]]:
    """Returns `torchvision_state` of a model whose weights are at a URL, on a host with an empty $TORCH_HOME."""
    from torchvision.models import _api  # pyright: ignore[reportPrivateUsage]
    from torchvision.transforms import functional

    def state(url: str) -> dict[str, Tensor]:
        class TinyWeights(_api.WeightsEnum):
            DEFAULT = _api.Weights(url=url, transforms=functional.to_tensor, meta={})

        def tiny(*, weights: TinyWeights | None = None) -> nn.Module:
            raise AssertionError(weights)

        monkeypatch.setitem(_api.BUILTIN_MODELS, "tiny", tiny)
        return torchvision_state("tiny", "DEFAULT")

    monkeypatch.setenv("TORCH_HOME", str(tmp_path))
    return state


def test_published_weights_are_downloaded_once_per_host(
    server: Server, content: bytes, published: Callable[[str], dict[str, Tensor]]
) -> None:
    url = server.url(f"tiny-{hashlib.sha256(content).hexdigest()[:8]}.pth")
    with ThreadPoolExecutor(4) as ranks:  # a file lock: it works between threads as between processes
        for tensors in ranks.map(published, [url] * 4):
            assert torch.equal(tensors["weight"], TENSORS["weight"])
    assert len(server.asked) == 1


def _wrong_digest(server: Server) -> str:
    return server.url("tiny-00000000.pth")


def _absent(server: Server) -> str:
    return server.url("absent-00000000.pth")


def _closed(_: Server) -> str:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return f"http://127.0.0.1:{free.getsockname()[1]}/tiny-00000000.pth"


@pytest.mark.parametrize(
    ("url", "message"),
    [
        (_wrong_digest, "invalid hash value"),
        (_absent, "HTTP Error 404"),
        (_closed, "refused"),
    ],
)
def test_a_download_that_fails_is_a_data_error_with_the_address(
    tmp_path: Path,
    server: Server,
    published: Callable[[str], dict[str, Tensor]],
    *,
    url: Callable[[Server], str],
    message: str,
) -> None:
    address = url(server)
    with pytest.raises(DataError, match=message) as caught:
        published(address)
    assert address in caught.value.message
    assert [path.suffix for path in tmp_path.rglob("*") if path.is_file()] == [".lock"]


def test_a_folder_that_cannot_be_written_is_a_data_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, published: Callable[[str], dict[str, Tensor]]
) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setenv("TORCH_HOME", str(tmp_path / "file"))
    with pytest.raises(DataError, match="Not a directory"):
        published("http://127.0.0.1/tiny-00000000.pth")


def test_cached_weights_need_no_network_and_get_current_names(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TORCH_HOME", str(tmp_path))
    folder = tmp_path / "hub" / "checkpoints"
    folder.mkdir(parents=True)
    torch.save({"fc.bias": torch.zeros(2)}, folder / "resnet18-f37072fd.pth")
    assert list(torchvision_state("resnet18", "ResNet18_Weights.DEFAULT")) == ["fc.bias"]
    layer = "features.denseblock1.denselayer1"
    torch.save({f"{layer}.norm.1.weight": torch.zeros(2)}, folder / "densenet121-a639ec97.pth")
    assert list(torchvision_state("densenet121", "IMAGENET1K_V1")) == [f"{layer}.norm1.weight"]


@pytest.mark.parametrize(
    ("arch", "weights", "message"),
    [
        ("resnet50", "IMAGENET1K_V3", "did you mean IMAGENET1K_V"),
        ("resnet18", "ResNet50_Weights.DEFAULT", "did you mean DEFAULT"),
        ("resnet18", "zzz", "there are IMAGENET1K_V1"),
        ("small_cnn", "DEFAULT", "no weights for small_cnn"),
    ],
)
def test_an_unknown_name_of_weights_is_a_configuration_error(arch: str, weights: str, message: str) -> None:
    with pytest.raises(ConfigError, match=r"model\.weights") as caught:
        torchvision_state(arch, weights)
    assert message in caught.value.message


@pytest.mark.parametrize(
    ("weights", "expected"),
    [("none", False), ("DEFAULT", True), ("a.B", True), ("/a/b.pt", False), ("file:///a.pt", False)],
)
def test_a_name_is_neither_none_nor_a_path(weights: str, expected: bool) -> None:
    assert is_published(weights) == expected


def _safetensors(path: Path) -> Path:
    save_file(TENSORS, path / "own weights.safetensors")
    return path / "own weights.safetensors"


def _saved(content: Any, path: Path) -> Path:
    torch.save(content, path / "weights.pt")
    return path / "weights.pt"


@pytest.mark.parametrize(
    "write",
    [
        _safetensors,
        partial(_saved, TENSORS),
        partial(_saved, {"model": TENSORS, "step": 3}),
        partial(_saved, {"state_dict": {f"module.{name}": value for name, value in TENSORS.items()}}),
    ],
)
def test_a_file_may_be_safetensors_plain_or_a_checkpoint(tmp_path: Path, write: Callable[[Path], Path]) -> None:
    path = write(tmp_path)
    for source in (str(path), path.as_uri()):
        tensors = file_state(source)
        assert tensors.keys() == TENSORS.keys()
        assert torch.equal(tensors["weight"], TENSORS["weight"])


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("absent.pt", None, "there is no"),
        ("torn.pt", b"torn", "cannot be read as weights"),
        ("torn.safetensors", b"torn", "cannot be read as weights"),
        ("list.pt", [1, 2], "holds a list"),
        ("empty.pt", {"step": 3}, "holds no tensors"),
        ("code.pt", {"model": nn.Linear(1, 1)}, "cannot be read as weights"),
    ],
)
def test_a_file_that_holds_no_weights_is_named(tmp_path: Path, name: str, content: object, message: str) -> None:
    path = tmp_path / name
    if isinstance(content, bytes):
        path.write_bytes(content)
    elif content is not None:
        torch.save(content, path)
    with pytest.raises(DataError, match=message) as caught:
        file_state(str(path))
    assert str(path) in caught.value.message


def test_matching_tensors_are_copied_and_the_rest_stays_new() -> None:
    model = nn.Sequential(nn.Linear(2, 3), nn.BatchNorm1d(3), nn.Linear(3, 5))
    before = model.get_parameter("2.weight").clone()
    tensors = {
        "0.weight": TENSORS["weight"],
        "0.bias": TENSORS["bias"].double(),
        "1.running_mean": torch.full((3,), 7.0),
        "2.weight": torch.zeros(1000, 3),
        "9.weight": torch.zeros(1),
    }
    new = fill(model, tensors, what="theirs")
    assert new == {"1.weight", "1.bias", "2.weight", "2.bias"}
    assert torch.equal(model.get_parameter("0.weight"), TENSORS["weight"])
    assert model.get_parameter("0.bias").tolist() == [1, 1, 1]
    assert model.get_buffer("1.running_mean").tolist() == [7, 7, 7]
    assert torch.equal(model.get_parameter("2.weight"), before)
    assert all(parameter.requires_grad for parameter in model.parameters())


def test_weights_of_another_model_are_a_data_error() -> None:
    with pytest.raises(DataError, match="no tensor in theirs fits the model") as caught:
        fill(nn.Linear(7, 7), TENSORS, what="theirs")
    assert "(3, 2)" in caught.value.message
    assert "(7, 7)" in caught.value.message
