"""What a job asks for of its hosts."""

from tests.approved import Approved
from tests.torchyard.contract.specs import SCRIPT, refused
from torchyard.contract.spec.resources import Resources
from torchyard.contract.spec.spec import parse_spec


def test_names_of_gpus_ask_for_gpus(approved: Approved) -> None:
    named = parse_spec(SCRIPT | {"resources": {"gpu": ["H100", "A100-80GB"]}})
    assert (named.resources.gpu, named.resources.device) == (("H100", "A100-80GB"), "cuda")
    assert parse_spec(named.model_dump(mode="json")) == named
    assert parse_spec(SCRIPT | {"resources": {"gpu": ["H100"], "device": "cuda"}}).resources.device == "cuda"
    with_slots = SCRIPT | {"resources": {"gpu": ["H100"], "device": "cpu"}}
    assert refused(with_slots) == {"resources": approved("resources")}
    for wrong in ("", "-", "H100\n", "é", "x" * 101, 100):
        assert refused(SCRIPT | {"resources": {"gpu": ["A100", wrong]}}).keys() == {"resources.gpu.1"}


def test_what_is_not_asked_of_the_host_is_not_written() -> None:
    written = parse_spec(SCRIPT).model_dump(mode="json")["resources"]
    assert written.keys() == {"nodes", "devices_per_node", "device", "min_memory_gb"}, "older workers read it"
    asked = {"cpus": 0.5, "memory_gb": 32, "gpu": ["H100"]}
    assert parse_spec(SCRIPT | {"resources": asked}).model_dump(mode="json")["resources"].items() >= asked.items()


def test_a_request_is_described_in_words(approved: Approved) -> None:
    assert Resources().described == "1 device"
    asked = Resources(device="cpu", devices_per_node=2, cpus=0.5, memory_gb=32)
    assert asked.described == approved("described")
    assert Resources(cpus=1).described == "1 device and 1 CPU"
    named = Resources.model_validate({"gpu": ["H100", "A100-80GB"], "min_memory_gb": 40.5})
    assert named.described == approved("gpu or gb")
    several = Resources(nodes=2, devices_per_node=4, device="cuda", cpus=8, memory_gb=32)
    assert several.described == approved("nodes gpus cpus")
    assert (several.total_devices, Resources(nodes=3, device="cpu").described) == (8, approved("nodes cpu slot"))


def test_what_is_asked_of_a_cluster_is_written_only_where_it_is_asked() -> None:
    written = parse_spec(SCRIPT).model_dump(mode="json")
    assert "slurm" not in written and "pool" not in written["resources"], "older programs read it"
    asked = SCRIPT | {"resources": {"nodes": 2, "pool": "gpu.a-1"}, "slurm": {"constraint": "[a100*4&(ib|nvlink)]"}}
    spec = parse_spec(asked)
    assert (spec.resources.pool, spec.slurm is not None) == ("gpu.a-1", True)
    assert parse_spec(spec.model_dump(mode="json")) == spec
