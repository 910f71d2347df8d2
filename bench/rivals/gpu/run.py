#!/usr/bin/env python3
"""Times Longhaul's prefill on a Hopper GPU beside the published kernels, interleaved in one run.

    python3 bench/rivals/gpu/run.py --lib build-cuda/liblonghaul.so --json bench/results/h200/prefill.json

README.md beside this says what is measured, and how a rival is installed.
"""

import argparse
import datetime
import json
import math
import pathlib
import runpy
import subprocess
import sys

HERE = pathlib.Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parents[1])]

import timing  # noqa: E402
from competitors import Competitors, NotForThisCase  # noqa: E402

LIMIT = 0.02  # relative root mean square of an output's difference from float32
CASES = (
    "causal.16k",
    "causal.64k",
    "full.16k",
    "full.64k",
    "paged.16k",
    "chunk2048.131k",
    "lambda0.16k",
    "heavy",
    "hot",
)
SPARSITIES = (0.25, 0.5, 0.75, 0.9)


def options_of(arguments):
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--lib", required=True, help="liblonghaul.so with the GPU kernels")
    parser.add_argument("--json", help="file for the rows; without it they are only printed")
    parser.add_argument("--cases", nargs="+", default=list(CASES), choices=CASES, metavar="CASE", help=", ".join(CASES))
    parser.add_argument(
        "--rivals",
        nargs="*",
        choices=("fa4", "fa3", "cudnn", "fmha_v2"),
        help="these, and an error where one is missing",
    )
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


class Run:
    def __init__(self, options, torch, lib):
        self.options, self.torch = options, torch
        self.gpu = timing.Gpu(torch)
        self.competitors = Competitors(torch, lib)
        self.rows = []
        self.missing = {}  # case -> rival -> why it did not run
        self.case_name = ""

    # ---- competitors of a case
    def check(self, name, data, call, output):
        """Runs the call once; its output must be near the reference on rows spread over the query."""
        call()
        self.torch.cuda.synchronize()
        count = data.shape.queries
        rows = self.torch.tensor(sorted({0, count // 3, count // 2, count - 1}), device=data.q.device)
        heads = [0, data.shape.heads - 1]
        reference = data.reference(rows, heads)
        got = output()[rows][:, heads].float()
        error = ((got - reference).norm() / reference.norm()).item()
        if not error < LIMIT:
            raise RuntimeError(f"its output differs from float32 by {error:.3g}, more than {LIMIT}")
        return call

    def rivals(self, data, **options):
        calls = {}
        for name in self.options.rivals if self.options.rivals is not None else self.competitors.RIVALS:
            try:
                calls[name] = self.check(name, data, *getattr(self.competitors, name)(data, **options))
            except NotForThisCase as reason:
                self.leave_out(name, str(reason))
            except Exception as reason:  # a rival that cannot run here must not end the run
                if self.options.rivals is not None:
                    raise SystemExit(f"run.py: --rivals names {name}, but it cannot run: {reason}") from reason
                self.leave_out(name, f"{type(reason).__name__}: {reason}")
        return calls

    def leave_out(self, name, reason):
        self.missing.setdefault(self.case_name, {})[name] = (reason.splitlines() or [""])[0]

    def each_regime(self, calls):
        for regime in timing.REGIMES:
            yield regime, self.gpu.time(calls, regime, self.options.rounds)

    def add(self, row):
        self.rows.append(row)
        value = (
            "" if row["rival_value"] is None else f"{row['rival']} {row['rival_value']:.4g}, ratio {row['ratio']:.3f}"
        )
        others = "".join(f" {k} {v:.4g}" for k, v in row.get("rivals", {}).items())
        print(f"{row['id']} {row['regime']}: {row['value']:.4g} {row['unit']} | {value} |{others}", flush=True)

    # ---- cases
    def data(self, queries, keys, causal, kind="random"):
        from inputs import Data, Shape

        return Data(self.torch, Shape(queries, keys, causal), kind)

    def dense(self, ident, data):
        calls = {"longhaul": self.check("longhaul", data, *self.competitors.longhaul(data)), **self.rivals(data)}
        for regime, times in self.each_regime(calls):
            self.add(timing.rate_row(f"attn.prefill.bf16.{ident}", times, "longhaul", data.shape.flops, regime))

    def paged(self):
        data = self.data(16384, 16384, True)
        pages = data.pages()
        ours = self.competitors.longhaul
        calls = {
            "longhaul": self.check("longhaul", data, *ours(data, pages=pages)),
            "own contiguous": self.check("longhaul", data, *ours(data)),
            **self.rivals(data, pages=pages),
        }
        for regime, times in self.each_regime(calls):
            contiguous = times.pop("own contiguous")
            row = timing.rate_row("attn.prefill.bf16.paged.16k", times, "longhaul", data.shape.flops, regime)
            share = timing.paired_ratio(contiguous, times["longhaul"])
            self.add(row | {"rival": "own contiguous", "rival_value": row["value"] / share, "ratio": share})

    def lambda_zero(self):
        data = self.data(16384, 16384, True)
        ours = self.competitors.longhaul
        dense, dense_output = ours(data)
        zero, zero_output = ours(data, 0.0)
        counters = self.torch.zeros(data.shape.heads, 4, dtype=self.torch.int64, device=data.q.device)
        counted = ours(data, 0.0, counters=counters)[0]
        self.check("longhaul", data, dense, dense_output)
        zero()
        same = bool((dense_output() == zero_output()).all())
        for regime, t in self.each_regime({"dense": dense, "zero": zero, "counted": counted}):
            self.add(
                timing.speedup_row(
                    "attn.prefill.bf16.lambda0.16k",
                    t["dense"],
                    t["zero"],
                    1.0,
                    "own dense",
                    regime,
                    identical_bits=same,
                )
            )
            self.add(
                timing.speedup_row("attn.counters", t["zero"], t["counted"], 1.0, "counters off, lambda 0", regime)
            )

    def find_lambda(self, data, target):
        """Bisection over ln(lambda)."""
        low, high = math.log(1e-30), 0.0
        for _ in range(20):
            middle = (low + high) / 2
            low, high = (middle, high) if self.competitors.sparsity(data, math.exp(middle)) < target else (low, middle)
        return math.exp((low + high) / 2)

    def skip_rows(self, data, name, thresholds, rivals_of):
        """thresholds: suffix -> lambda. rivals_of: calls beside ours, timed in the same rounds."""
        ours = self.competitors.longhaul
        dense, dense_output = ours(data)
        self.check("longhaul", data, dense, dense_output)
        base = dense_output().float()
        calls, facts = {"dense": dense, **rivals_of}, {}
        for suffix, lambda_ in thresholds.items():
            call, output = ours(data, lambda_)
            call()
            error = ((output().float() - base).norm() / base.norm()).item()
            sparsity = self.competitors.sparsity(data, lambda_)
            calls[suffix] = call
            facts[suffix] = {"lambda": lambda_, "sparsity": sparsity, "output_error": error, "data": name}
        for regime, times in self.each_regime(calls):
            for suffix, fact in facts.items():
                ideal = 1 / (1 - fact["sparsity"] / 2)
                self.add(
                    timing.speedup_row(
                        f"attn.prefill.bf16.skip.16k.{suffix}.{name}",
                        times["dense"],
                        times[suffix],
                        ideal,
                        "ideal 1/(1 - s/2)",
                        regime,
                        **fact,
                    )
                )
                beside = {k: times[k] for k in rivals_of} | {"longhaul": times[suffix]}
                if rivals_of:
                    row = timing.rate_row(
                        f"attn.prefill.bf16.effective.16k.{suffix}", beside, "longhaul", data.shape.flops, regime
                    )
                    self.add(row | fact)

    def heavy(self):
        data = self.data(16384, 16384, True, "heavy")
        thresholds = {f"s{100 * s:.0f}": self.find_lambda(data, s) for s in SPARSITIES}
        self.skip_rows(data, "heavy", thresholds, {})

    def hot(self):
        for s in SPARSITIES[1:]:
            data = self.data(16384, 16384, True, str(1 - s))
            rivals = {}
            if self.options.rivals is None or "fmha_v2" in self.options.rivals:
                try:
                    call, output = self.competitors.fmha_v2(data, lambda_=1e-3)
                    rivals["fmha_v2 lambda 0.001"] = self.check("fmha_v2", data, call, output)
                except Exception as reason:
                    if self.options.rivals is not None:
                        raise SystemExit(f"run.py: --rivals names fmha_v2, but it cannot run: {reason}") from reason
                    self.leave_out("fmha_v2", f"{type(reason).__name__}: {reason}")
            self.skip_rows(data, "hot", {f"s{100 * s:.0f}": 1e-3}, rivals)

    def case(self, name):
        self.case_name = name
        k = 1024
        match name:
            case "causal.16k" | "causal.64k" | "full.16k" | "full.64k":
                kind, length = name.split(".")
                tokens = int(length[:-1]) * k
                self.dense(name, self.data(tokens, tokens, kind == "causal"))
            case "chunk2048.131k":
                self.dense("chunk2048.131k.h64", self.data(2048, 128 * k, True))
            case "paged.16k":
                self.paged()
            case "lambda0.16k":
                self.lambda_zero()
            case "heavy":
                self.heavy()
            case "hot":
                self.hot()
        self.torch.cuda.empty_cache()


def description(torch):
    def text(*command):
        try:
            return subprocess.run(command, capture_output=True, text=True, check=True, cwd=HERE).stdout.strip()
        except (OSError, subprocess.CalledProcessError):
            return "unknown"

    machine = {
        "gpu": torch.cuda.get_device_name(),
        "driver": text("nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader"),
        "cuda": torch.version.cuda,
    }
    return text("git", "rev-parse", "--short=12", "HEAD"), machine


def main(arguments):
    options = options_of(arguments)
    if options.setup:
        runpy.run_path(options.setup)
    import longhaul_ctypes
    import torch

    if not torch.cuda.is_available():
        raise SystemExit("run.py: PyTorch finds no CUDA device, and the run needs one")
    run = Run(options, torch, longhaul_ctypes.load(options.lib))
    commit, machine = description(torch)
    result = {
        "date": datetime.date.today().isoformat(),
        "commit": commit,
        "machine": machine,
        "command": "bench/rivals/gpu/run.py --cases " + " ".join(options.cases),
    }
    for name in options.cases:
        run.case(name)
        if options.json:  # after every case: what is measured stays if the run ends early
            full = result | {"versions": run.competitors.versions, "not_run": run.missing, "rows": run.rows}
            pathlib.Path(options.json).write_text(json.dumps(full, indent=1) + "\n")
    for case, reasons in run.missing.items():
        for name, reason in reasons.items():
            print(f"not run: {case}: {name}: {reason}")


if __name__ == "__main__":
    main(sys.argv[1:])
