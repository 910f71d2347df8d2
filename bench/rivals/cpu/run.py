#!/usr/bin/env python3
"""PyTorch's CPU attention beside ours, in one interleaved run: same inputs, dtype, threads and processors.

run.py --lib build-release/liblonghaul.so --peak /tmp/peak --threads 2 --json bench/results/MACHINE/rivals_cpu.json
run.py ... --cases prefill.bf16 decode.bf16
run.py ... --cases prefill.bf16 --no-amx --merge
"""

import argparse
import os
import sys
from pathlib import Path

if "--no-amx" in sys.argv:  # read when torch loads
    os.environ.update(MKL_ENABLE_INSTRUCTIONS="AVX512", ONEDNN_MAX_CPU_ISA="AVX512_CORE_BF16")

import inputs
import measure
import torch
from rival_attention import PLAIN, Rival, choose_rival

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))
import longhaul_ctypes

NO_AMX = "--no-amx" in sys.argv
RIVAL = "PyTorch {} scaled_dot_product_attention".format(torch.__version__.split("+")[0])
if NO_AMX:
    RIVAL += ", AMX off"
REGIME = "interleaved, sustained"
SETS = 2  # inputs used in turn, each larger than the last cache level in decode
TOLERANCE = {torch.bfloat16: 0.02, torch.float32: 1e-4}


def output_of(data):
    return torch.empty_like(data.query)


WORKSPACE = [torch.empty(0, dtype=torch.uint8)]


def shared_workspace(size):
    """One workspace for all calls, as an engine has: where it lies in memory moves a call's time by several percent."""
    if WORKSPACE[-1].numel() < size:
        buffer = torch.empty(size + 64, dtype=torch.uint8)
        begin = -buffer.data_ptr() % 64
        WORKSPACE.append(buffer[begin : begin + size])  # earlier ones stay alive for the calls that hold them
    return WORKSPACE[-1]


class Ours:
    """Prepared calls of the library over several inputs, used in turn."""

    def __init__(self, lib, phase, sets, threads, counters=False, **options):
        heads = inputs.HEADS_Q if phase == "prefill" else inputs.HEADS_KV
        self.counters = torch.zeros(heads, 4, dtype=torch.int64) if counters else None
        self.outputs = [output_of(data) for data in sets]
        self.calls = []
        for data, out in zip(sets, self.outputs, strict=True):
            shape = data.shape
            lengths = {
                "cu_seqlens_q": torch.arange(shape.batch + 1, dtype=torch.int32) * shape.queries,
                "cu_seqlens_kv": torch.arange(shape.batch + 1, dtype=torch.int32) * shape.length,
            }
            if counters:
                options["counters"] = self.counters
            tensors = (data.query, data.key, data.value, out)
            given = {"threads": threads, **lengths, **options}
            space = shared_workspace(lib.workspace_bytes(phase, *tensors, **given))
            given |= {"workspace": space.data_ptr(), "workspace_bytes": space.numel()}
            self.calls.append(lib.prepare(phase, *tensors, **given))

    def __call__(self, r):
        self.calls[r % len(self.calls)]()

    def sparsity(self):
        self.counters.zero_()
        for call in self.calls:
            call()
        return float(self.counters[:, 1].sum() / self.counters[:, 0].sum())


def check_equal(ours, rival, data, dtype):
    """Both must compute the same thing before their times are compared."""
    ours(0)
    expected = rival(0).float().reshape(data.bhtd("query", True).shape).transpose(1, 2).reshape(data.query.shape)
    error = float((ours.outputs[0].float() - expected).norm() / expected.norm())
    if not error <= TOLERANCE[dtype]:
        raise SystemExit(f"run.py: the outputs differ by {error:.3g} relative, at most {TOLERANCE[dtype]:g} is allowed")
    return error


def row(id_, value, unit, rival, rival_value, ratio, seconds, **more):
    result = {
        "id": id_,
        "value": value,
        "unit": unit,
        "rival": rival,
        "rival_value": rival_value,
        "ratio": ratio,
        "n": len(seconds),
        "spread": measure.spread(seconds),
        "regime": REGIME,
        "median_s": measure.median(seconds),
        **more,
    }
    print(
        "  {:<44} {:9.3f} {:<10} {:<26} {:9.3f}  ratio {:.3f}  spread {:.3f}".format(
            id_, value, unit, rival[:26], rival_value, ratio, result["spread"]
        ),
        flush=True,
    )
    return result


def dense_case(context, id_, shape, dtype):
    """Ours against the rival, and both against the machine's ceiling."""
    id_ += ".no_amx" if NO_AMX else ""
    sets = [inputs.random_inputs(shape, dtype, seed) for seed in range(SETS)]
    name, variants = choose_rival(sets[0])
    ours, rival = Ours(context.lib, shape.phase, sets, context.threads), Rival(sets, name)
    error = check_equal(ours, rival, sets[0], dtype)
    bodies = {"ours": ours, "rival": rival}
    if name != PLAIN:
        bodies["plain"] = Rival(sets, PLAIN)
    context.peak.sample()
    times = measure.interleave(bodies, context.repeat)
    context.peak.sample()

    prefill = shape.phase == "prefill"
    unit, size = ("GFLOP/s", shape.flops / 1e9) if prefill else ("GB/s", shape.kv_bytes(dtype) / 1e9)
    value, rival_value = (size / measure.median(times[side]) for side in ("ours", "rival"))
    more = {"threads": context.threads, "isa": context.lib.isa}
    plain = times.get("plain", times["rival"])
    rows = [
        row(
            id_,
            value,
            unit,
            RIVAL,
            rival_value,
            measure.paired_ratio(times["rival"], times["ours"]),
            times["ours"],
            rival_spread=measure.spread(times["rival"]),
            rival_variant=name,
            output_difference=error,
            plain_value=size / measure.median(plain),
            plain_ratio=measure.paired_ratio(plain, times["ours"]),
            rival_variants_ms={key: 1e3 * seconds for key, seconds in variants.items()},
            **more,
        )
    ]
    ceilings = {".bandwidth": ["read_gbps"]}
    if prefill:
        vectors = ["fma_avx2_gflops", "fma_avx512_gflops"]
        ceilings = {".peak": vectors}
        if dtype == torch.bfloat16:
            ceilings = {".peak": [*vectors, "dpbf16_gflops"], ".peak_amx": ["amx_bf16_gflops"]}
    for suffix, names in ceilings.items():
        ceiling_name, ceiling = context.peak.best(*names)
        if ceiling:
            share = {"rival_share": rival_value / ceiling, **more}
            rows.append(row(id_ + suffix, value, unit, ceiling_name, ceiling, value / ceiling, times["ours"], **share))
    return rows


def skip_case(context, phase, shape, sparsities):
    """Speed-up over own dense at known sparsities, the cost of lambda 0 and of the counters."""
    rows, dtype = [], torch.bfloat16
    for target in sparsities:
        sets = [inputs.blocky_inputs(shape, dtype, target, seed) for seed in range(SETS)]
        dense = Ours(context.lib, phase, sets, context.threads)
        skip = Ours(context.lib, phase, sets, context.threads, counters=True, lambda_=inputs.LAMBDA)
        bodies = {"dense": dense, "skip": skip}
        if target == sparsities[0]:
            bodies["lambda0"] = Ours(context.lib, phase, sets, context.threads, lambda_=0.0)
            bodies["counters"] = Ours(context.lib, phase, sets, context.threads, counters=True)
        sparsity = skip.sparsity()
        times = measure.interleave(bodies, context.repeat)
        difference = float(
            (skip.outputs[0].float() - dense.outputs[0].float()).norm() / dense.outputs[0].float().norm()
        )
        more = {
            "threads": context.threads,
            "isa": context.lib.isa,
            "output_error": difference,
            "data": "heavy blocks of 16 keys at random places, independent by head and 16 rows (decode: by KV head)",
        }
        ideal, speedup = 1 / (1 - sparsity / 2), measure.paired_ratio(times["dense"], times["skip"])
        rows.append(
            row(
                f"attn.cpu.{phase}.skip.s{100 * target:.0f}",
                speedup,
                "x dense",
                "ideal 1/(1 - s/2)",
                ideal,
                speedup / ideal,
                times["skip"],
                sparsity=sparsity,
                **{"lambda": inputs.LAMBDA},
                **more,
            )
        )
        for name in ("lambda0", "counters"):
            if name in bodies:
                share = measure.paired_ratio(times["dense"], times[name])
                rows.append(
                    row(f"attn.cpu.{phase}.{name}", share, "x dense", "own dense", 1.0, share, times[name], **more)
                )
    return rows


PREFILL, DECODE = inputs.Shape("prefill", 1, 8192), inputs.Shape("decode", 8, 32768)
SPARSITIES = (0.25, 0.5, 0.75, 0.9)
CASES = {
    "prefill.bf16": lambda c: dense_case(c, "attn.cpu.prefill.bf16.8k", PREFILL, torch.bfloat16),
    "prefill.fp32": lambda c: dense_case(c, "attn.cpu.prefill.fp32.8k", PREFILL, torch.float32),
    "decode.bf16": lambda c: dense_case(c, "attn.cpu.decode.bf16.b8.32k", DECODE, torch.bfloat16),
    "prefill.skip": lambda c: skip_case(c, "prefill", PREFILL, SPARSITIES),
    "decode.skip": lambda c: skip_case(c, "decode", DECODE, SPARSITIES),
}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--lib", required=True, help="liblonghaul.so, built for release")
    parser.add_argument("--peak", help="the built peak.cc; without it no ceiling rows")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--repeat", type=int, default=20, help="rounds counted (default: 20)")
    parser.add_argument("--cases", nargs="+", choices=CASES, default=list(CASES))
    parser.add_argument("--no-amx", action="store_true", help="keep PyTorch to vectors; ids end in .no_amx")
    parser.add_argument("--json", required=True, help="result file to write")
    parser.add_argument("--merge", action="store_true", help="keep the rows of other ids that the file already holds")
    context = parser.parse_args()

    cpus = measure.pin(context.threads)
    torch.set_num_threads(context.threads)
    context.lib, context.peak = longhaul_ctypes.load(context.lib), measure.Peak(context.peak, context.threads)
    name, flags = measure.cpu_name()
    machine = {
        "cpu": name,
        "features": flags,
        "processors": cpus,
        "threads": context.threads,
        "isa": context.lib.isa,
        "torch": torch.__version__,
        "torch_capability": torch.backends.cpu.get_cpu_capability(),
        "longhaul": context.lib.version,
    }
    print(f"{name}, {RIVAL}, threads {context.threads} on processors {cpus}, ours {context.lib.isa}")
    rows = []
    with torch.inference_mode():
        for case in context.cases:
            print(case, flush=True)
            rows += CASES[case](context)
            command = "bench/rivals/cpu/run.py --threads {} --repeat {} --cases {}".format(
                context.threads, context.repeat, " ".join(context.cases)
            )
            command += " --no-amx" if context.no_amx else ""
            measure.write_results(context.json, machine, command, rows, context.merge)
    return 0


if __name__ == "__main__":
    sys.exit(main())
