"""Interleaved timing, the machine's description, and rows of a result file."""

import datetime
import json
import os
import platform
import statistics
import subprocess
import time
from pathlib import Path


def interleave(bodies, repeat, pause=0.03):
    """name -> seconds of every round. Every round runs every body once, in an order that rotates.

    The pause lets the other library's worker threads stop spinning; the first round is not counted.
    """
    names, times = list(bodies), {name: [] for name in bodies}
    for r in range(repeat + 1):
        for name in names[r % len(names) :] + names[: r % len(names)]:
            time.sleep(pause)
            begin = time.perf_counter()
            bodies[name](r)
            if r > 0:
                times[name].append(time.perf_counter() - begin)
    return times


def median(seconds):
    return statistics.median(seconds)


def spread(seconds):
    """(p90 - p10) / median."""
    if len(seconds) < 2:
        return 0.0
    cuts = statistics.quantiles(seconds, n=10, method="inclusive")
    return (cuts[8] - cuts[0]) / median(seconds)


def paired_ratio(slow, fast):
    """Median over the rounds of slow / fast: a drift of the clock cancels."""
    return statistics.median(a / b for a, b in zip(slow, fast, strict=True))


def pin(threads):
    """Keeps this process on `threads` processors of different cores; returns their numbers."""
    chosen, taken = [], set()
    for cpu in sorted(os.sched_getaffinity(0)):
        siblings = Path(f"/sys/devices/system/cpu/cpu{cpu}/topology/thread_siblings_list")
        core = siblings.read_text().strip() if siblings.exists() else str(cpu)
        if core not in taken:
            taken.add(core)
            chosen.append(cpu)
    if len(chosen) < threads:
        raise SystemExit(f"run.py: --threads is {threads}, but only {len(chosen)} cores are allowed")
    os.sched_setaffinity(0, chosen[:threads])
    return chosen[:threads]


def cpu_name():
    fields = {}
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        name, _, value = line.partition(":")
        fields.setdefault(name.strip(), value.strip())
    wanted = ("avx2", "avx512f", "avx512_bf16", "amx_bf16")
    flags = fields.get("flags", "").split()
    return fields.get("model name", platform.machine()), [flag for flag in wanted if flag in flags]


def commit():
    here = Path(__file__).resolve().parent
    try:
        run = subprocess.run(
            ["git", "rev-parse", "--short=12", "HEAD"], cwd=here, capture_output=True, text=True, check=True
        )
    except (OSError, subprocess.CalledProcessError):
        return "unknown"
    return run.stdout.strip()


class Peak:
    """The machine's ceilings: samples of peak.cc, taken between the cases of the same run."""

    def __init__(self, path, threads):
        self.command, self.samples = [path, "--threads", str(threads), "--repeats", "5"], []

    def sample(self):
        if self.command[0]:
            run = subprocess.run(self.command, capture_output=True, text=True, check=True)
            self.samples.append(json.loads(run.stdout))

    def best(self, *names):
        """(name, highest sample): noise only ever lowers a ceiling."""
        found = [(sample[name], name) for sample in self.samples for name in names if name in sample]
        return max(found)[::-1] if found else (None, None)


def write_results(path, machine, command, rows, merge):
    """Writes a result file; with merge, rows of other ids that it already holds are kept. A row names its command."""
    path = Path(path)
    rows = [dict(row, command=command) for row in rows]
    if merge and path.exists():
        new = {row["id"] for row in rows}
        rows = [row for row in json.loads(path.read_text())["rows"] if row["id"] not in new] + rows
    now = datetime.datetime.now(datetime.timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ")
    result = {"date": now, "commit": commit(), "machine": machine, "command": command, "rows": rows}
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(result, indent=1) + "\n")
