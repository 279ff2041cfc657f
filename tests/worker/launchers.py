"""Programs that are started by others, for tests of a stop: what trains, and stand-ins for what starts it."""

TRAINS = """
import os, pathlib, signal, sys, time
root = pathlib.Path(os.environ["TORCHYARD_RUN_DIR"])
rank = os.environ.get("LOCAL_RANK", "0")
def save(*_):
    (root / f"told-{rank}").touch()
    while not (root / "go").exists(): time.sleep(0.01)
    time.sleep(0.5)
    (root / f"saved-{rank}").touch()
    sys.exit(0)
signal.signal(signal.SIGTERM, save)
(root / f"ready-{rank}").touch()
while True: time.sleep(0.05)
"""
"""Saves at SIGTERM, once the test lets it: longer than the end of an attempt takes."""
POLLS = """
import os, pathlib, time, torchyard
root = pathlib.Path(os.environ["TORCHYARD_RUN_DIR"])
run = torchyard.init()
(root / "ready-0").touch()
while not run.should_stop(): time.sleep(0.01)
(root / "told-0").touch()
while not (root / "go").exists(): time.sleep(0.01)
(root / "saved-0").touch()
"""
STARTS_ONE = """
import subprocess, sys
subprocess.run([sys.executable, "train.py"], check=True)
"""
"""Has no handler, so SIGTERM would end it at once."""
ENDS_ITS_RANKS = """
import os, signal, subprocess, sys
ranks = [subprocess.Popen(sys.argv[1:], env=os.environ | {"LOCAL_RANK": str(rank)}) for rank in range(2)]
def end(*_):
    for rank in ranks: rank.kill()
    sys.exit(1)
signal.signal(signal.SIGTERM, end)
for rank in ranks: rank.wait()
"""
"""A launcher with a handler, which gives its ranks no time."""
FORWARDS_AND_ENDS = """
import signal, subprocess, sys
train = subprocess.Popen([sys.executable, "train.py"])
def end(*_):
    train.terminate()
    sys.exit(0)
signal.signal(signal.SIGTERM, end)
train.wait()
"""
"""Tells its program to stop, and does not wait for it."""
HAS_WORKERS = """
import os, pathlib, signal, sys, time, multiprocessing
root = pathlib.Path(os.environ["TORCHYARD_RUN_DIR"])
def work(name):
    signal.signal(signal.SIGTERM, lambda *_: (root / f"disturbed-{name}").touch())
    (root / f"working-{name}").touch()
    while not (root / "done").exists(): time.sleep(0.01)
def save(*_):
    (root / "told-0").touch()
    while not (root / "go").exists(): time.sleep(0.01)
    (root / "done").touch()
    for worker in workers: worker.join()
    (root / "saved-0").touch()
    sys.exit(0)
if __name__ == "__main__":
    methods = ("fork", "spawn", "forkserver")
    workers = [multiprocessing.get_context(method).Process(target=work, args=(method,)) for method in methods]
    for worker in workers: worker.start()
    while len(list(root.glob("working-*"))) < 3: time.sleep(0.01)
    signal.signal(signal.SIGTERM, save)
    (root / "ready-0").touch()
    while True: time.sleep(0.05)
"""
"""Needs its processes until it has saved."""
TRAINS_IN_WORKERS = """
import os, pathlib, signal, sys, time, multiprocessing
root = pathlib.Path(os.environ["TORCHYARD_RUN_DIR"])
def train():
    signal.signal(signal.SIGTERM, lambda *_: (root / "disturbed").touch())
    (root / "ready-0").touch()
    while not (root.parent / "ctl" / "shown" / "stop.json").exists(): time.sleep(0.01)
    (root / "told-0").touch()
    while not (root / "go").exists(): time.sleep(0.01)
    time.sleep(0.5)
    (root / "saved-0").touch()
if __name__ == "__main__":
    worker = multiprocessing.get_context("spawn").Process(target=train)
    worker.start()
    worker.join()
"""
"""Has no handler itself. What it has spawned sees the stop by itself."""
LOADS_DATA = """
import os, pathlib, time
from torch.utils.data import DataLoader
root = pathlib.Path(os.environ["TORCHYARD_RUN_DIR"])
class Items:
    def __len__(self): return 10**9
    def __getitem__(self, index): return index
for _ in DataLoader(Items(), num_workers=2):
    (root / "ready-0").touch()
    time.sleep(0.01)
"""
"""Has no handler itself. The processes of its data loader have one in C."""
HAS_A_HELPER = """
import os, pathlib, subprocess, time
root = pathlib.Path(os.environ["TORCHYARD_RUN_DIR"])
program = "$SIG{TERM} = sub { open(my $file, '>', $ARGV[0]) }; open(my $file, '>', $ARGV[1]); while (1) { sleep(1) }"
subprocess.Popen(["perl", "-e", program, str(root / "disturbed"), str(root / "ready-0")])
while True: time.sleep(1)
"""
"""Has no handler itself. What it has started, as wandb starts its service, has one."""
