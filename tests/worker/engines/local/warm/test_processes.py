"""Ranks that start processes and threads of their own, with both launchers."""

import pytest

from tests.worker.attempt import EACH_LAUNCH, WARM_LAUNCH, Attempt
from torchyard.contract.states import EndReason

WARM = pytest.mark.parametrize("attempt", ["warm"], indirect=True)
BOTH = pytest.mark.parametrize("attempt", [pytest.param("cold", marks=pytest.mark.thorough), "warm"], indirect=True)
LOADERS = """
import torch
from torch.utils.data import DataLoader, Dataset
class Squares(Dataset):
    def __len__(self): return 8
    def __getitem__(self, index): return torch.tensor([index * index, torch.initial_seed() % 1000003])
if __name__ == "__main__":
    for method, workers in (("fork", 2), ("spawn", 1))[:METHODS]:
        loader = DataLoader(Squares(), batch_size=2, num_workers=workers, multiprocessing_context=method)
        batches = torch.cat(list(loader))
        print(method, batches[:, 0].tolist(), len(set(batches[:, 1].tolist())))
"""
POOLS = """
import multiprocessing, os, pickle
class Item:
    def __init__(self, value): self.value = value
def double(item): return Item(item.value * 2)
def parent(_): return os.getppid()
def put(queue): queue.put(Item(3))
if __name__ == "__main__":
    for method in ("fork", "spawn", "forkserver"):
        context = multiprocessing.get_context(method)
        with context.Pool(2) as pool:
            print(method, [item.value for item in pool.map(double, [Item(1), Item(2)])])
            pool.close()
            pool.join()
        queue = context.SimpleQueue()
        process = context.Process(target=put, args=[queue])
        process.start()
        found = queue.get()
        process.join()
        print(found.value, type(found) is Item, process.exitcode)
    with multiprocessing.Manager() as manager:
        print(manager.list([1, 2]))
    print(type(pickle.loads(pickle.dumps(Item(1)))) is Item)
"""
STARTS_OTHERS = """
import os, subprocess, sys
program = [sys.executable, "-c", "import sys; print(sys.argv)"]
print(subprocess.run(program, capture_output=True, text=True).stdout, end="")
print(os.system("exit 3") >> 8, os.popen("echo $RANK").read(), end="")
child = os.fork()
if child == 0:
    print("child", flush=True)
else:
    print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
    print("parent")
"""
MULTIPLIES = """
import threading, torch
print(torch.get_num_threads())
torch.set_num_threads(2)
def multiply(): print(int((torch.ones(512, 512) @ torch.ones(512, 512)).sum()))
multiply()
thread = threading.Thread(target=multiply)
thread.start()
thread.join()
layer = torch.nn.Linear(256, 256)
layer(torch.ones(256, 256)).sum().backward()
print(torch.get_num_threads(), layer.weight.grad is not None)
"""
COMPILES = """
import torch
def both(x): return torch.sin(x) + torch.cos(x)
x = torch.arange(100.0)
print(torch.allclose(torch.compile(both)(x), both(x)))
print(torch.allclose(torch.compile(both, backend="aot_eager")(x), both(x)))
"""


def _output(attempt: Attempt, text: str) -> list[str]:
    attempt.start(text)
    report = attempt.report()
    assert report.reason is EndReason.COMPLETED, report
    assert attempt.running_processes() == []
    return attempt.log("rank-0", "stdout").splitlines()


@BOTH
@pytest.mark.parametrize(
    "methods",
    [1, pytest.param(2, marks=pytest.mark.thorough)],  # a spawned worker imports torch
    ids=["fork", "fork and spawn"],
)
def test_data_loaders_work_with_each_kind_of_worker(attempt: Attempt, methods: int) -> None:
    squares = [number * number for number in range(8)]
    assert _output(attempt, f"METHODS = {methods}{LOADERS}") == [f"fork {squares} 2", f"spawn {squares} 1"][:methods]


@BOTH
def test_processes_and_pickles_of_the_scripts_own_classes_work(attempt: Attempt) -> None:
    each = [line for method in ("fork", "spawn", "forkserver") for line in (f"{method} [2, 4]", "3 True 0")]
    assert _output(attempt, POOLS) == [*each, "[1, 2]", "True"]


@WARM_LAUNCH
def test_programs_and_forks_of_a_script_work_and_a_child_may_come_to_the_end(attempt: Attempt) -> None:
    assert _output(attempt, STARTS_OTHERS) == ["['-c']", "3 0", "child", "0", "parent"]


@BOTH
def test_a_rank_computes_with_threads(attempt: Attempt) -> None:
    product = str(512**3)
    assert _output(attempt, MULTIPLIES) == ["1", product, product, "2 True"]


@pytest.mark.thorough
@EACH_LAUNCH
def test_a_rank_compiles(attempt: Attempt) -> None:
    assert _output(attempt, COMPILES) == ["True", "True"]
