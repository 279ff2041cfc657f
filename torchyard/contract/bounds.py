"""What the fields of a job spec may hold: patterns, limits and defaults, without the models that check them.

The command line reads its options with these before it needs a model, and models take long to import.
"""

from torchyard.contract.wire.wording import allowing

JOB_NAME = "1 to 100 letters, digits, `.`, `_` and `-`, of which the first is a letter or a digit"
JOB_NAME_PATTERN = allowing(r"^[A-Za-z0-9][A-Za-z0-9._-]{0,99}$", JOB_NAME)
MOST_PRIORITY = 100
"""The least one is as far below 0."""
DEFAULT_RESTARTS = 2
"""How often a job runs again after a failure, if it does not say otherwise."""
MOST_RESTARTS = 1000

MOST_NODES = 10_000
MOST_DEVICES = 1024
"""Of a node."""
MOST_CPUS = 10_000
"""Of a host."""
MOST_MEMORY_GB = 1_000_000
"""Of a host, in GiB."""
GPU_NAME = allowing(
    r"^[A-Za-z0-9][A-Za-z0-9 ._/()+-]{0,99}$",
    "1 to 100 letters, digits, spaces and characters of `._/()+-`, of which the first is a letter or a digit",
)
MOST_GPU_NAMES = 16
POOL_NAME = allowing(
    r"^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$",
    "1 to 64 letters, digits, `.`, `_` and `-`, of which the first is a letter or a digit",
)
WORKER_NAME = allowing(
    r"^[A-Za-z0-9][A-Za-z0-9._-]{0,254}$",
    "1 to 255 letters, digits, `.`, `_` and `-`, of which the first is a letter or a digit",
)
SLURM_WORD = allowing(
    r"^[A-Za-z0-9_][A-Za-z0-9._@-]{0,99}$",
    "1 to 100 letters, digits, `.`, `_`, `@` and `-`, of which the first is a letter, a digit or `_`",
)
SLURM_FEATURES = allowing(
    r"^[A-Za-z0-9_(\[][A-Za-z0-9._@&|*()\[\]-]{0,199}$",
    "1 to 200 letters, digits and characters of `._@-&|*()[]`, of which the first is no `.`, `@`, `-`, `&`, `|` or `*`",
)

VARIABLE_NAME = allowing(
    r"^[A-Za-z_][A-Za-z0-9_]{0,99}$", "1 to 100 letters, digits and `_`, of which the first is no digit"
)
LABEL_KEY = allowing(
    r"^[A-Za-z0-9][A-Za-z0-9._/-]{0,62}$",
    "1 to 63 letters, digits, `.`, `_`, `/` and `-`, of which the first is a letter or a digit",
)
MOST_LABELS = 32
"""The most labels of a job."""
LONGEST_LABEL = 200
"""Characters of a label's value."""
MOST_AFTER = 32
"""The most jobs for which one job waits."""
MOST_METRIC_PATTERNS = 8
"""Expressions of one job by which metrics are read from its lines."""
MOST_KEEP = 32
"""Patterns of `keep`, at most, and paths of one request to keep."""

PYTHON = allowing(
    r"^(/[^\x00-\x1f]{1,999}|[A-Za-z0-9_][A-Za-z0-9_.+-]{0,99})$",
    "an absolute path of an environment or of its Python, or the name of one: letters, digits and `_.+-`",
)
"""Names an environment of the worker's host."""
MOST_CHECKPOINT_PATTERNS = 16
MOST_LEFT_OUT = 20
"""Paths of the submitter's folder that are kept of those that were left out of the code."""
MOST_DIFF_BYTES = 65_536
"""Bytes of the diff that is kept of a repository, as UTF-8."""
MOUNT_PLACE = allowing(
    r"^[^\x00-\x1f\x7f/][^\x00-\x1f\x7f]*$",
    "a name of 1 to 64 letters, digits, `_` and `-`, or a path of the working folder, such as ./data",
)
LONGEST_MOUNT_PLACE = 500
