#!/usr/bin/env python3
"""Times Longhaul's decode on a Hopper GPU beside the published kernels, interleaved in one run.

    python3 bench/rivals/gpu/decode.py --lib build-cuda/liblonghaul.so --json bench/results/h200/decode.json

README.md beside this says what is measured, and how a rival is installed.
"""

import argparse
import datetime
import itertools
import json
import math
import pathlib
import runpy
import statistics
import sys

import run
import timing
from competitors import NotForThisCase
from decode_competitors import DecodeCompetitors
from decode_inputs import DecodeData, ideal_speedup, percent, shape_of

DENSE = ("b64.16k", "b64.64k", "b1.32k", "b1.131k", "b1.32k.h16")
LAMBDA_ZERO = {"lambda0.b64": "b64.16k", "lambda0.b1": "b1.131k"}
SKIP = {"skip.b64": "b64.64k", "skip.b1": "b1.131k"}
CASES = (*DENSE, *LAMBDA_ZERO, *SKIP, "graph48")
LAMBDA = 1e-3
LAYERS = 48
GRAPH_SPARSITIES = (0.0, 0.5, 0.7, 0.9)
PREFIX = "attn.decode.bf16."


def options_of(arguments):
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--lib", required=True, help="liblonghaul.so with the GPU kernels")
    parser.add_argument("--json", help="file for the rows; without it they are only printed")
    parser.add_argument("--cases", nargs="+", default=list(CASES), choices=CASES, metavar="CASE", help=", ".join(CASES))
    parser.add_argument("--rounds", type=int, default=20, help="samples of each competitor (20)")
    parser.add_argument("--setup", help="Python file to run first, to make libraries importable that are not installed")
    options = parser.parse_args(arguments)
    if options.rounds < 2:
        parser.error(f"--rounds is {options.rounds}, but there must be 2 or more")
    for name in ("lib", "setup"):
        path = getattr(options, name)
        if path is not None and not pathlib.Path(path).is_file():
            parser.error(f"--{name} is '{path}', which is no file")
    return options


def milliseconds_row(ident, times, reference, regime, **more):
    """Time of one call beside `reference`'s (None: beside nothing); ratio: how many times faster."""
    base = times.get(reference)
    return {
        "id": ident,
        "value": 1e3 * statistics.median(times["longhaul"]),
        "unit": "ms",
        "rival": reference or "none ran",
        "rival_value": 1e3 * statistics.median(base) if base else None,
        "ratio": timing.paired_ratio(base, times["longhaul"]) if base else None,
        "n": len(times["longhaul"]),
        "spread": timing.spread(times["longhaul"]),
        "regime": regime,
        **more,
    }


class DecodeRun(run.Run):
    def __init__(self, options, torch, lib):
        super().__init__(options, torch, lib)
        self.competitors = DecodeCompetitors(torch, lib)

    # ---- competitors of a case
    def copies(self, shape, cold=None):
        return [DecodeData(self.torch, shape, cold, seed) for seed in range(1, shape.copies + 1)]

    def verify(self, data, output, how):
        self.torch.cuda.synchronize()
        error = data.error(output)
        if not error < run.LIMIT:
            raise RuntimeError(f"its output {how} differs from float32 by {error:.3g}, more than {run.LIMIT}")

    def captured(self, calls, launches):
        """A graph of so many launches that go round the calls."""
        torch = self.torch
        side, graph = torch.cuda.Stream(), torch.cuda.CUDAGraph()
        torch.cuda.synchronize()
        with torch.cuda.stream(side):  # every lazy initialisation must be over before the capture
            for call in calls:
                call()
        torch.cuda.synchronize()
        with torch.cuda.graph(graph, stream=side):
            for call in itertools.islice(itertools.cycle(calls), launches):
                call()

        def replay(keep=tuple(calls)):  # the graph reads the calls' buffers
            graph.replay()

        return replay

    def checked(self, make, copies, launches):
        """What is timed, after the output of every copy was right, in a graph too: (call, output of the first copy)."""
        made = [make(data) for data in copies]
        for data, (call, output) in zip(copies, made, strict=True):
            output.fill_(math.nan)
            call()
            self.verify(data, output, "")
        if launches == 1:
            return made[0]
        replay = self.captured([call for call, _ in made], launches)
        for _, output in made:
            output.fill_(math.nan)
        replay()
        for data, (_, output) in zip(copies, made, strict=True):
            self.verify(data, output, "in a graph")
        return replay, made[0][1]

    def ours(self, copies, launches, lambda_=None, counted=None):
        return self.checked(lambda data: self.competitors.longhaul(data, lambda_, counted), copies, launches)

    def rivals(self, copies, launches):
        calls = {}
        for name in self.competitors.RIVALS:
            try:
                calls[name] = self.checked(getattr(self.competitors, name), copies, launches)[0]
            except NotForThisCase as reason:
                self.leave_out(name, str(reason))
            except Exception as reason:  # a rival that cannot run here must not end the run
                self.leave_out(name, f"{type(reason).__name__}: {reason}")
        return calls

    def each_regime(self, calls, launches=1):
        """Seconds a launch."""
        for regime, times in super().each_regime(calls):
            yield regime, {name: [t / launches for t in seconds] for name, seconds in times.items()}

    # ---- cases
    def dense(self, name):
        shape = shape_of(name)
        copies = self.copies(shape)
        calls = {"longhaul": self.ours(copies, shape.launches)[0], **self.rivals(copies, shape.launches)}
        for regime, times in self.each_regime(calls, shape.launches):
            row = timing.rate_row(PREFIX + name, times, "longhaul", shape.kv_bytes, regime)
            self.add(row | {"unit": "TB/s"})

    def lambda_zero(self, name):
        shape = shape_of(LAMBDA_ZERO[name])
        copies = self.copies(shape)
        dense, dense_output = self.ours(copies, shape.launches)
        zero, zero_output = self.ours(copies, shape.launches, 0.0)
        same = bool((dense_output == zero_output).all())
        for regime, t in self.each_regime({"dense": dense, "zero": zero}, shape.launches):
            row = (PREFIX + name, t["dense"], t["zero"], 1.0, "own dense", regime)
            self.add(timing.speedup_row(*row, identical_bits=same))

    def skipping(self, copies, launches):
        """(calls: dense, longhaul; facts of the rows) at the run's lambda."""
        dense, dense_output = self.ours(copies, launches)
        skip, output = self.ours(copies, launches, LAMBDA)
        base = dense_output.float()
        error = ((output.float() - base).norm() / base.norm()).item()
        sparsity = statistics.mean(self.competitors.sparsity(data, LAMBDA) for data in copies)
        facts = {"lambda": LAMBDA, "sparsity": sparsity, "output_error": error, "data": "blocks of 16, 12 nats"}
        return {"own dense": dense, "longhaul": skip}, facts

    def skip(self, name):
        shape = shape_of(SKIP[name])
        for share in run.SPARSITIES:
            calls, facts = self.skipping(self.copies(shape, share), shape.launches)
            ideal = ideal_speedup(facts["sparsity"])
            ident = f"{PREFIX}{name}.{percent(share)}"
            for regime, t in self.each_regime(calls, shape.launches):
                row = (ident, t["own dense"], t["longhaul"], ideal, "ideal 1/(1 - s/2)", regime)
                self.add(timing.speedup_row(*row, **facts))

    def graph(self):
        """One graph of all layers' decode at batch 1: dense beside rivals, skipping beside own dense."""
        shape = shape_of("b1.131k")
        for share in GRAPH_SPARSITIES:
            copies = self.copies(shape, share or None)
            if share:
                calls, facts = self.skipping(copies, LAYERS)
            else:
                calls, facts = {"longhaul": self.ours(copies, LAYERS)[0], **self.rivals(copies, LAYERS)}, {}
            for regime, times in self.each_regime(calls):
                best = timing.best_rival(times, ("longhaul",))
                ident = f"{PREFIX}graph48.{percent(share)}"
                self.add(milliseconds_row(ident, times, best, regime, **facts))

    def case(self, name):
        self.case_name = name
        if name in DENSE:
            self.dense(name)
        elif name in LAMBDA_ZERO:
            self.lambda_zero(name)
        elif name in SKIP:
            self.skip(name)
        else:
            self.graph()
        self.torch.cuda.empty_cache()


def main(arguments):
    options = options_of(arguments)
    options.rivals = None  # every rival that can run
    if options.setup:
        runpy.run_path(options.setup)
    import longhaul_ctypes
    import torch

    if not torch.cuda.is_available():
        raise SystemExit("decode.py: PyTorch finds no CUDA device, and the run needs one")
    decode = DecodeRun(options, torch, longhaul_ctypes.load(options.lib))
    commit, machine = run.description(torch)
    result = {
        "date": datetime.date.today().isoformat(),
        "commit": commit,
        "machine": machine,
        "command": "bench/rivals/gpu/decode.py --cases " + " ".join(options.cases),
    }
    for name in options.cases:
        try:
            decode.case(name)
        except RuntimeError as reason:  # a wrong result of ours gives no row; the other cases still run
            decode.leave_out("longhaul", f"{type(reason).__name__}: {reason}")
        if options.json:  # after every case: what is measured stays if the run ends early
            full = result | {"versions": decode.competitors.versions, "not_run": decode.missing, "rows": decode.rows}
            pathlib.Path(options.json).write_text(json.dumps(full, indent=1) + "\n")
    for case, reasons in decode.missing.items():
        for name, reason in reasons.items():
            print(f"not run: {case}: {name}: {reason}")
    return any("longhaul" in reasons for reasons in decode.missing.values())


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
