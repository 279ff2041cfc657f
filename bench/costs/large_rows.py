"""A thousand jobs with the largest fields that lists show."""

import json
from secrets import token_hex

from sqlalchemy import create_engine, text

from bench.costs.accepted import SCRIPT, WAITING
from bench.queue import copies
from bench.service import Service
from torchyard.contract.sweeps.spec import MOST_SHOWN_POINT_BYTES
from torchyard.contract.wire.text import MOST_SHOWN_TEXT

_NAME = "long-row"
_ROWS = 1000
"""The jobs of the largest page."""
_FAILED = "UPDATE jobs SET state = 'failed', finished_at = created_at, attempt = 1, error = :error, labels = :labels"
_OF_SWEEP = "UPDATE jobs SET sweep_id = :sweep, trial = :number WHERE id = :job"
_TRIAL = (
    "INSERT INTO sweep_trials (sweep_id, number, point, job_id, outcome, rungs)"
    " VALUES (:sweep, :number, :point, :job, 'failed', '[]')"
)
_METRICS = (
    "INSERT INTO series (job_id, key, latest, count) SELECT jobs.id, keys.key, 0.5, 1 FROM jobs,"
    " (SELECT 'train/loss' AS key UNION SELECT 'val/loss') AS keys WHERE jobs.sweep_id = :sweep AND jobs.attempt = 1"
)


def fill(service: Service) -> None:
    """Stores jobs with long labels, messages and points, and with metrics. They are the newest ones."""
    with service.client() as client:
        sweep = client.sweeps.create({"method": "array", "trials": 1, "job": {**SCRIPT, "resources": WAITING}}).id
        like = client.submit({**SCRIPT, "name": _NAME}).id
    engine = create_engine(service.database)
    error = json.dumps({"message": "m" * MOST_SHOWN_TEXT, "code": "user_error", "rank": 0, "exit_code": 1})
    with engine.begin() as connection:
        copies(connection, like, first=1, count=_ROWS, step=1)
        found = [
            *connection.scalars(
                text("SELECT id FROM jobs WHERE name = :name AND id != :like"), {"name": _NAME, "like": like}
            )
        ]
        for number, old in enumerate(found, start=1):
            job = f"job_f{old[5:]}"  # newer than all others
            connection.execute(text("UPDATE jobs SET id = :job WHERE id = :old"), {"job": job, "old": old})
            labels = json.dumps({f"k{place}": token_hex(58) for place in range(32)})
            point = json.dumps({"args.a": token_hex(MOST_SHOWN_POINT_BYTES // 2 - 16)})
            values = {"sweep": sweep, "number": number, "job": job}
            connection.execute(text(f"{_FAILED} WHERE id = :job"), {"error": error, "labels": labels, "job": job})
            connection.execute(text(_TRIAL), {**values, "point": point})
            connection.execute(text(_OF_SWEEP), values)
        connection.execute(text(_METRICS), {"sweep": sweep})
    engine.dispose()
