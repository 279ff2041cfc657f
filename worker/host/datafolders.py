"""The names of folders in the data directory."""

UNPACKED = "unpacked"
"""The folder of unpacked bundles: `OWNER/SHA256/BOOT`."""
ENVIRONMENTS = "environments"
"""The folder of the environments of jobs with packages of their own."""
