"""The device of a rank."""

from pathlib import Path

import pytest
import torch

from torchyard.contract.attempts.rundir import Env
from torchyard.run.accelerator import own_device

pytestmark = pytest.mark.skipif(torch.accelerator.is_available(), reason="this machine has an accelerator")


def test_a_rank_whose_gpu_torch_cannot_use_says_so_and_does_not_train_on_the_cpu(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv(Env.RUN_DIR, str(tmp_path))
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "GPU-1d25b99f")
    with pytest.raises(RuntimeError, match=r"this job has a GPU that PyTorch cannot use: .*(NVIDIA driver|CUDA)"):
        own_device(0)


@pytest.mark.parametrize("visible", ["", None])
def test_a_rank_without_a_gpu_computes_on_the_cpu(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, visible: str | None
) -> None:
    monkeypatch.setenv(Env.RUN_DIR, str(tmp_path))
    if visible is None:
        monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    else:
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
    assert own_device(0) == torch.device("cpu")


def test_ranks_share_the_devices_if_fewer_are_visible(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.accelerator, "is_available", lambda: True)
    monkeypatch.setattr(torch.accelerator, "current_accelerator", lambda: torch.device("cuda"))
    monkeypatch.setattr(torch.accelerator, "device_count", lambda: 2)
    assert [own_device(rank).index for rank in range(4)] == [0, 1, 0, 1]


def test_a_script_outside_the_service_computes_on_the_cpu_whatever_is_visible(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(Env.RUN_DIR, raising=False)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0")
    assert own_device(0) == torch.device("cpu")
