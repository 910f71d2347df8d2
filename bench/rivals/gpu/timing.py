"""Interleaved timing on a GPU in two regimes, and rows of a result file.

burst: a pause before each sample, so that the card is cool and its clock high. sustained: heated for a second, then no
pauses, so that the card runs at the clock its power limit allows. Every round runs every competitor, in an order that
rotates; ratios are medians over the rounds of the ratio within a round.
"""

import statistics
import time

REGIMES = ("burst", "sustained")
PAUSE_S, HEAT_S = 0.3, 1.0


def interleave(calls, rounds, sample, pause=0.0, sleep=time.sleep):
    """name -> seconds of every round; sample(call) times one call. The first round is not counted."""
    names, times = list(calls), {name: [] for name in calls}
    for r in range(rounds + 1):
        for name in names[r % len(names) :] + names[: r % len(names)]:
            if pause:
                sleep(pause)
            seconds = sample(calls[name])
            if r > 0:
                times[name].append(seconds)
    return times


def spread(seconds):
    """(p90 - p10) / median."""
    if len(seconds) < 2:
        return 0.0
    cuts = statistics.quantiles(seconds, n=10, method="inclusive")
    return (cuts[8] - cuts[0]) / statistics.median(seconds)


def paired_ratio(slow, fast):
    """Median over the rounds of slow / fast: a drift of the clock cancels."""
    return statistics.median(a / b for a, b in zip(slow, fast, strict=True))


def best_rival(times, ours):
    """Name of the competitor with the least median, ours left out; None where there is none."""
    rivals = {name: statistics.median(t) for name, t in times.items() if name not in ours}
    return min(rivals, key=rivals.get) if rivals else None


def rate_row(ident, times, ours, flops, regime):
    """Ours in TFLOP/s beside the best rival, whose rates are all in the row."""
    best = best_rival(times, (ours,))
    rate = {name: flops / statistics.median(t) / 1e12 for name, t in times.items()}
    return {
        "id": ident,
        "value": rate[ours],
        "unit": "TFLOP/s",
        "rival": best or "none ran",
        "rival_value": rate[best] if best else None,
        "ratio": paired_ratio(times[best], times[ours]) if best else None,
        "n": len(times[ours]),
        "spread": spread(times[ours]),
        "regime": regime,
        "rivals": {name: value for name, value in rate.items() if name != ours},
    }


def speedup_row(ident, slow, fast, reference, reference_name, regime, **more):
    """`fast` over `slow`; ratio: the share of `reference` that is reached."""
    value = paired_ratio(slow, fast)
    return {
        "id": ident,
        "value": value,
        "unit": "x own dense",
        "rival": reference_name,
        "rival_value": reference,
        "ratio": value / reference,
        "n": len(fast),
        "spread": spread(fast),
        "regime": regime,
        **more,
    }


class Gpu:
    """Times calls with events. A spin on the device before each hides what the host needs to queue it."""

    def __init__(self, torch):
        self.torch = torch
        self.host = {}

    def _host_seconds(self, call):
        if id(call) not in self.host:
            costs = []
            for _ in range(4):
                self.torch.cuda.synchronize()
                begin = time.perf_counter()
                call()
                costs.append(time.perf_counter() - begin)
            self.host[id(call)] = min(costs)
        return self.host[id(call)]

    def seconds(self, call):
        begin, end = (self.torch.cuda.Event(enable_timing=True) for _ in range(2))
        self.torch.cuda._sleep(int((2 * self._host_seconds(call) + 1e-4) * 2e9))  # cycles at 2 GHz
        begin.record()
        call()
        end.record()
        end.synchronize()
        return begin.elapsed_time(end) / 1e3

    def heat(self, calls):
        end = time.time() + HEAT_S
        while time.time() < end:
            for call in calls.values():
                call()
            self.torch.cuda.synchronize()

    def time(self, calls, regime, rounds):
        self.host = {}  # by id, which a call of another case may have had
        for call in calls.values():
            self._host_seconds(call)
        if regime == "sustained":
            self.heat(calls)
        return interleave(calls, rounds, self.seconds, PAUSE_S if regime == "burst" else 0.0)
