"""`python -m tests.given TEXT` executes TEXT as a program. Tests run it as a fork of the fork server."""

import sys

exec(compile(sys.argv[1], "given", "exec"), {"__name__": "__main__"})
