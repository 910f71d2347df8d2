"""Result files of counts: the fields that CONTRIBUTING.md asks of every file in bench/results."""

import datetime
import json
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "bench" / "rivals" / "cpu"))
import measure

REGIME = "counts: the same on every machine, up to rounding"


def write(path, command, what, machine, metadata, rows, **more):
    """Nothing is timed, so no row has a spread."""
    result = {
        "date": datetime.datetime.now(datetime.timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ"),
        "commit": measure.commit(),
        "machine": {"cpu": "any: counts, not times", **machine},
        "command": command,
        "what": what,
        "input": metadata,
        "rows": [dict(row, spread=None, regime=REGIME) for row in rows],
        **more,
    }
    Path(path).write_text(json.dumps(result, indent=1) + "\n")
