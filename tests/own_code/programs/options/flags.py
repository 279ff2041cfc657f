"""Says with which settings it ran."""

import json

from parser import parsed

print("ran", json.dumps(vars(parsed())))
