"""Which devices suit a request, by the names that NVIDIA's driver gives them, and what a host has left."""

import pytest

from torchyard.contract.cluster.devices import DeviceReport
from torchyard.contract.cluster.fitting import fits_beside, is_named, suitable
from torchyard.contract.spec.resources import Resources

A100, A100_40, H100 = "NVIDIA A100-SXM4-80GB", "NVIDIA A100-PCIE-40GB", "NVIDIA H100 80GB HBM3"
OTHERS = ("NVIDIA A10", "NVIDIA GeForce RTX 4090", "Tesla V100-SXM2-32GB", "NVIDIA RTX A6000", "NVIDIA GH200 480GB")
ALL = (A100, A100_40, H100, *OTHERS)


@pytest.mark.parametrize(
    ("wanted", "names"),
    [
        ("A100-80GB", [A100]),
        ("a100 80gb", [A100]),
        ("A100", [A100, A100_40]),
        ("H100", [H100]),
        ("H100-80GB", [H100]),
        (A100, [A100]),
        ("A10", ["NVIDIA A10"]),
        ("RTX 4090", ["NVIDIA GeForce RTX 4090"]),
        ("V100", ["Tesla V100-SXM2-32GB"]),
        ("A6000", ["NVIDIA RTX A6000"]),
        ("H200", []),
        ("80", []),
    ],
)
def test_a_name_is_that_of_the_gpus_that_have_all_its_words(wanted: str, names: list[str]) -> None:
    assert [name for name in ALL if is_named(name, wanted)] == names


def test_any_of_the_names_will_do_and_memory_is_asked_beside_them() -> None:
    gpus = [
        DeviceReport(
            index=index, uuid=f"GPU-{index}", name=name, kind="cuda", memory_bytes=(40 if "40" in name else 80) << 30
        )
        for index, name in enumerate((A100, A100_40, H100))
    ]
    slot = DeviceReport(index=0, uuid="cpu-0", name="CPU slot", kind="cpu")

    def found(**wanted: object) -> list[int]:
        return [device.index for device in suitable(Resources.model_validate(wanted), [*gpus, slot])]

    assert found(gpu=["H100", "A100-40GB"]) == [1, 2]
    assert found(gpu=["A100"], min_memory_gb=79) == [0]
    assert found(gpu=["H100", "B200"]) == [2]
    assert found() == [0, 1, 2]
    assert suitable(Resources.model_validate({"gpu": ["slot"]}), [slot]) == []


def test_a_host_has_what_others_do_not_hold() -> None:
    assert fits_beside(None, [100.0], None)
    assert fits_beside(4, [], 4)
    assert not fits_beside(4.1, [], 4)
    assert fits_beside(1.5, [2, None, 0.5], 4)
    assert not fits_beside(1.6, [2, None, 0.5], 4)
    assert not fits_beside(0.1, [], None), "it is not known what the host has"
    assert fits_beside(0.1, [0.1] * 9, 1), "sums of parts are not exact"
    assert not fits_beside(0.1, [0.1] * 10, 1)
