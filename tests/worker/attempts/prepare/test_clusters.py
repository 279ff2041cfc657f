"""What an attempt asks of a pool, by its spec and what the operator allows when it is prepared."""

from typing import Any

import pytest

from tests.approved import Approved
from torchyard.contract.cluster.devices import PoolNodes, PoolReport, PoolRules
from torchyard.contract.errors import ConfigError
from torchyard.contract.spec.spec import Spec, parse_spec
from worker.attempts.prepare.clusters import request_of
from worker.engines.base import ClusterRequest, NotStartedYet

RULES = PoolRules(accounts=["vision"], qos=["long"], account_of={"ada": "nlp"})
NODES = PoolNodes(count=2, devices=4, gpus=["a100", "a100_80gb", "h100"])
POOL = PoolReport(partition="gpu", kind="cuda", nodes=NODES, rules=RULES)


def spec(*, slurm: dict[str, str] | None = None, **resources: Any) -> Spec:
    asked: dict[str, Any] = {"nodes": 2, "devices_per_node": 4, "pool": "gpu", **resources}
    raw = {"trainer": "script", "config": {"code": "file:///code", "entrypoint": "train.py"}, "resources": asked}
    return parse_spec(raw if slurm is None else raw | {"slurm": slurm})


def asked(found: Spec, *, owner: str = "bob", pool: PoolReport = POOL) -> ClusterRequest | None:
    return request_of(found, owner=owner, pool=lambda: pool)


def test_a_job_without_a_pool_asks_for_none() -> None:
    assert asked(spec(pool=None, nodes=1)) is None
    assert request_of(spec(pool=None, nodes=1), owner="bob", pool=None) is None


def test_a_worker_of_a_host_takes_no_job_of_a_pool(approved: Approved) -> None:
    with pytest.raises(ConfigError) as raised:
        request_of(spec(), owner="bob", pool=None)
    assert str(raised.value) == approved("message")


def test_auto_is_the_pools_kind() -> None:
    assert asked(spec()) == ClusterRequest(nodes=2, devices_per_node=4, kind="cuda")


@pytest.mark.parametrize(
    ("wanted", "found"), [(["H100"], "h100"), (["V100", "A100"], "a100"), (["A100-80GB"], "a100_80gb")]
)
def test_a_gpu_is_asked_for_as_the_operator_has_called_it(wanted: list[str], found: str) -> None:
    request = asked(spec(gpu=wanted))
    assert request is not None and request.gpu == found


def test_a_gpu_that_the_pool_has_not_is_refused_and_waited_for_while_its_nodes_are_not_known(
    approved: Approved,
) -> None:
    with pytest.raises(ConfigError) as raised:
        asked(spec(gpu=["V100"]))
    assert str(raised.value) == approved("message")
    unknown = PoolReport(
        partition="gpu", kind="cuda", nodes=PoolNodes(count=0, devices=0), obstacle="Slurm does not answer"
    )
    with pytest.raises(NotStartedYet) as raised:
        asked(spec(gpu=["V100"]), pool=unknown)
    assert str(raised.value) == approved("nodes pool gpu")


def test_an_owner_has_an_account_unless_the_job_names_one() -> None:
    accounts = [asked(spec(), owner=owner) for owner in ("ada", "bob")]
    accounts.append(asked(spec(slurm={"account": "vision"}), owner="ada"))
    assert [found and found.account for found in accounts] == ["nlp", None, "vision"]


@pytest.mark.parametrize(
    ("field", "value"),
    [("account", "nlp"), ("qos", "urgent"), ("constraint", "rack1"), ("reservation", "course")],
)
def test_what_the_operator_allows_no_more_is_refused(field: str, value: str) -> None:
    with pytest.raises(ConfigError, match=rf"slurm\.{field}: "):
        asked(spec(slurm={field: value}))
