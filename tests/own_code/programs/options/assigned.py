"""Takes KEY=VALUE, and ends as Hydra ends a program: it shows the error itself, and exits with code 1."""

import sys
import traceback

settings = dict(word.split("=", 1) for word in sys.argv[1:])
print("ran", settings)
try:
    raise ValueError(f"lr {settings['lr']} is too high")
except ValueError:
    print(f"Error executing job with overrides: {sys.argv[1:]}", file=sys.stderr)
    traceback.print_exc()
    print("\nSet the environment variable HYDRA_FULL_ERROR=1 for a complete stack trace.", file=sys.stderr)
    sys.exit(1)
