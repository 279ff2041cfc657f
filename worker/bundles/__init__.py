"""The bundles of jobs on this host: unpacked once for each owner, checked, read-only, and copied for each attempt."""
