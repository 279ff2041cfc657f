"""Weights from files and servers: matching tensors are copied, and failures are reported."""

from collections.abc import Callable, Generator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
import hashlib
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
import os
from pathlib import Path
from threading import Thread
from typing import Any

import pytest
from safetensors.torch import save_file
import torch
from torch import Tensor, nn
from torchvision.models import DenseNet121_Weights

from tests.approved import Approved
from tests.leftovers import as_nobody
from tests.servers import free_port
from tests.trainer.published import cache, cache_as, content_of
from torchyard.contract.errors import ConfigError, DataError
from trainer.weights import digests
from trainer.weights.files import crop_fraction, file_state, fill, torchvision_state

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
    return content_of(TENSORS)


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


def _closed(_: Server | None) -> str:
    return f"http://127.0.0.1:{free_port()}/tiny-00000000.pth"


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
    layer = "features.denseblock1.denselayer1"
    cache_as(monkeypatch, tmp_path, DenseNet121_Weights.DEFAULT, {f"{layer}.norm.1.weight": torch.zeros(2)})
    assert list(torchvision_state("densenet121", "DenseNet121_Weights.DEFAULT")) == [f"{layer}.norm1.weight"]


POISON = content_of({"weight": torch.full((3, 2), 666.0)})


def test_weights_that_another_job_changed_are_downloaded_anew(
    tmp_path: Path, server: Server, content: bytes, published: Callable[[str], dict[str, Tensor]]
) -> None:
    file = cache(tmp_path, content)
    url = server.url(file.name)
    published(url)
    assert server.asked == []
    file.write_bytes(POISON)
    with ThreadPoolExecutor(4) as ranks:
        for tensors in ranks.map(published, [url] * 4):
            assert torch.equal(tensors["weight"], TENSORS["weight"])
    assert len(server.asked) == 1
    assert file.read_bytes() == content


def test_weights_that_change_after_their_check_are_loaded_as_checked(
    tmp_path: Path,
    content: bytes,
    published: Callable[[str], dict[str, Tensor]],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    file = cache(tmp_path, content)
    load = torch.load

    def change_and_load(source: Any, **options: Any) -> Any:
        file.write_bytes(POISON)
        return load(source, **options)

    monkeypatch.setattr(torch, "load", change_and_load)
    for limit in (digests.IN_MEMORY, 10):
        file.write_bytes(content)
        monkeypatch.setattr(digests, "IN_MEMORY", limit)
        assert torch.equal(published(f"http://nowhere/{file.name}")["weight"], TENSORS["weight"])
        assert file.read_bytes() == POISON


def _poison(file: Path) -> None:
    file.write_bytes(POISON)


def _link(file: Path) -> None:
    file.symlink_to("/dev/zero")


@pytest.mark.parametrize("leave", [_poison, os.mkfifo, _link])
def test_what_took_the_place_of_weights_is_replaced(
    tmp_path: Path,
    server: Server,
    content: bytes,
    published: Callable[[str], dict[str, Tensor]],
    *,
    leave: Callable[[Path], None],
) -> None:
    file = cache(tmp_path, content)
    file.unlink()
    leave(file)
    assert torch.equal(published(server.url(file.name))["weight"], TENSORS["weight"])
    assert file.read_bytes() == content
    assert not file.is_symlink()


def test_poisoned_weights_without_a_download_are_a_data_error_with_the_file(
    tmp_path: Path, published: Callable[[str], dict[str, Tensor]], content: bytes
) -> None:
    file = cache(tmp_path, content)
    file.write_bytes(POISON)
    with pytest.raises(DataError, match=f"refused>; {file} was there, but cannot be used; give the file:// URL"):
        published(_closed(None).replace("tiny-00000000.pth", file.name))


def test_a_link_in_place_of_the_lock_truncates_nothing(
    tmp_path: Path, server: Server, content: bytes, published: Callable[[str], dict[str, Tensor]]
) -> None:
    file = cache(tmp_path, content)
    file.unlink()
    (tmp_path / "precious").write_text("kept")
    file.with_name(f".{file.name}.lock").symlink_to(tmp_path / "precious")
    with pytest.raises(DataError, match="symbolic links"):
        published(server.url(file.name))
    assert (tmp_path / "precious").read_text() == "kept"


def test_weights_without_a_digest_are_refused(
    published: Callable[[str], dict[str, Tensor]], approved: Approved
) -> None:
    with pytest.raises(ConfigError) as raised:
        published("http://nowhere/tiny.pth")
    assert str(raised.value) == approved("message")


@pytest.mark.parametrize("variable", ["XDG_CACHE_HOME", "HOME"])
def test_a_read_only_torch_home_is_used_and_what_it_lacks_goes_to_the_own_cache(
    server: Server,
    content: bytes,
    published: Callable[[str], dict[str, Tensor]],
    monkeypatch: pytest.MonkeyPatch,
    *,
    variable: str,
) -> None:
    other = content_of({"weight": torch.zeros(3, 2)})
    with as_nobody() as folder:
        theirs, mine = folder / "theirs", folder / "mine"
        monkeypatch.setenv("TORCH_HOME", str(theirs))
        monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
        monkeypatch.setenv(variable, str(mine))
        file, poisoned = cache(theirs, other), cache(theirs, content)
        poisoned.write_bytes(POISON)
        for path in (file, poisoned):
            path.chmod(0o444)
        file.parent.chmod(0o555)
        assert published(server.url(file.name))["weight"].sum() == 0
        assert (server.asked, mine.exists()) == ([], False)
        for _ in range(2):
            assert torch.equal(published(server.url(poisoned.name))["weight"], TENSORS["weight"])
        assert len(server.asked) == 1
        own = mine if variable == "XDG_CACHE_HOME" else mine / ".cache"
        assert (own / "torch" / "hub" / "checkpoints" / poisoned.name).read_bytes() == content
        assert {path.name for path in file.parent.iterdir()} == {file.name, poisoned.name}


@pytest.mark.parametrize(
    ("arch", "weights", "share"),
    [("resnet18", "DEFAULT", 224 / 256), ("resnet50", "IMAGENET1K_V2", 224 / 232), ("vit_h_14", "DEFAULT", 1.0)],
)
def test_the_share_of_a_picture_that_counts_is_that_of_the_weights(arch: str, weights: str, share: float) -> None:
    assert crop_fraction(arch, weights) == pytest.approx(share)


@pytest.mark.parametrize(
    ("arch", "weights"),
    [
        ("resnet50", "IMAGENET1K_V3"),
        ("resnet18", "ResNet50_Weights.DEFAULT"),
        ("resnet18", "zzz"),
        ("small_cnn", "DEFAULT"),
    ],
)
def test_an_unknown_name_of_weights_is_a_configuration_error(arch: str, weights: str, approved: Approved) -> None:
    with pytest.raises(ConfigError, match=r"model\.weights") as caught:
        torchvision_state(arch, weights)
    assert caught.value.message == approved.of_row("message")


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
    ("name", "content"),
    [
        ("absent.pt", None),
        ("torn.pt", b"torn"),
        ("torn.safetensors", b"torn"),
        ("list.pt", [1, 2]),
        ("empty.pt", {"step": 3}),
        ("code.pt", {"model": nn.Linear(1, 1)}),
    ],
)
def test_a_file_that_holds_no_weights_is_named(tmp_path: Path, name: str, content: object, approved: Approved) -> None:
    path = tmp_path / name
    if isinstance(content, bytes):
        path.write_bytes(content)
    elif content is not None:
        torch.save(content, path)
    with pytest.raises(DataError) as caught:
        file_state(str(path))
    assert str(caught.value) == approved.of_row("message", tmp_path=tmp_path)
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


def test_weights_of_another_model_are_a_data_error(approved: Approved) -> None:
    with pytest.raises(DataError) as caught:
        fill(nn.Linear(7, 7), TENSORS, what="theirs")
    assert str(caught.value) == approved("message")
    assert "(3, 2)" in caught.value.message
    assert "(7, 7)" in caught.value.message
