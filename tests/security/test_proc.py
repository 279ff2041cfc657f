"""No job writes anything in `/proc`, and CUDA can name its threads all the same."""

from collections.abc import Iterator
from dataclasses import replace
import json
import os
from pathlib import Path
import subprocess
import sys

import pytest

from tests.security.test_levels import BASIC, HERE, LANDLOCK, MOUNTS, needs_landlock, needs_mounts, needs_pids
from tests.worker.attempt import Attempt
from torchyard.contract.devices import IsolationReport
from torchyard.contract.job import EndReason
