"""The memory of a warm process: its small pages become huge ones, and keep what is in them."""

import os
import subprocess
import sys

import pytest

JOIN = """
import ctypes, mmap, os, re
from worker.engines.local.warm import memory

area = mmap.mmap(-1, 32 << 20, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
for place in range(0, len(area), 4096):
    area[place : place + 8] = place.to_bytes(8, "big")
start = ctypes.addressof(ctypes.c_char.from_buffer(area))

def huge():
    with open("/proc/self/smaps_rollup") as file:
        return int(re.search(r"AnonHugePages: +(\\d+) kB", file.read())[1]) << 10

before = huge()
tried = {address for address in memory.join_pages() if start <= address < start + len(area)}
child = os.fork()
kept = all(area[place : place + 8] == place.to_bytes(8, "big") for place in range(0, len(area), 4096))
if not child:
    area[:8] = b"of child"
    os._exit(0 if kept else 1)
_, status = os.waitpid(child, 0)
print(len(tried), huge() - before, kept and status == 0 and area[:8] == bytes(8))
"""


def test_small_pages_are_joined_and_keep_their_content_and_children_have_their_own() -> None:
    done = subprocess.run([sys.executable, "-P", "-c", JOIN], capture_output=True, text=True, check=True)
    tried, joined, kept = done.stdout.split()
    assert int(tried) >= 15  # of 16, as the area may begin inside one
    assert kept == "True"
    if tuple(map(int, os.uname().release.split(".")[:2])) < (6, 1):
        pytest.skip("this kernel joins no pages on request")
    assert int(joined) >= 2 << 20  # how many more depends on what the machine has free
