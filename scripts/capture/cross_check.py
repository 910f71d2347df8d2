#!/usr/bin/env python3
"""The kernels and the oracle against the torch emulation of the skip rule, on captured activations.

    cross_check.py data/activations.safetensors.xz --lib build-release/liblonghaul.so \\
        --emulation bench/results/any/orders_emulation.json --json bench/results/any/orders_kernel.json

Exits 1 where they disagree. Writes the sparsity the prefill kernel counts at an output error of 0.01 and 0.03.
"""

import argparse
import json
import sys
from pathlib import Path

import result_file
import safetensors_file
import skip_emulation
import skip_orders
import torch
from skip_emulation import ASCENDING, NEWEST_FIRST, Case, Curve

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "bench"))
import longhaul_ctypes

LAMBDAS = tuple(10 ** (-4 + 0.25 * i) for i in range(17))
CHECKED = (0.001, 0.01, 0.1)
# Blocks within float32 rounding of the threshold may fall either way: far fewer than one in a thousand.
SPARSITY_TOLERANCE, ERROR_TOLERANCE = 1e-3, 0.02
ORACLE_TOKENS = 2048


def stacked(heads, index):
    return torch.stack([head[index] for head in heads], 1).contiguous()


def kernel_run(lib, query, key, value, scale, lambda_):
    """(output as float, counters by head) of the prefill kernel; one KV head for each query head."""
    output, counters = torch.empty_like(query), torch.zeros(query.shape[1], 4, dtype=torch.int64)
    lib.prefill(query, key, value, output, softmax_scale=scale, lambda_=lambda_, counters=counters)
    return output.float(), counters.double()


def kernel_curves(lib, heads, lambdas):
    """A Curve for each head, from the kernel's own counters and outputs; float32 inputs, so that small errors show."""
    query, key, value = (stacked(heads, index).float() for index in (2, 3, 4))
    scale = heads[0][5]
    dense, counters = kernel_run(lib, query, key, value, scale, None)
    runs = [kernel_run(lib, query, key, value, scale, value_) for value_ in lambdas]
    energy = dense.double().square().sum((0, 2))
    skipped = torch.stack([run[1][:, 1] for run in runs], 1)
    error = torch.stack([(run[0] - dense).double().square().sum((0, 2)) for run in runs], 1)
    return [Curve(float(counters[h, 0]), skipped[h], error[h], float(energy[h])) for h in range(len(heads))]


def report(what, difference, limit):
    agrees = bool(difference <= limit)
    print(
        "{:<64} {:.2e}, at most {:.0e}: {}".format(what, difference, limit, "agrees" if agrees else "DISAGREES"),
        flush=True,
    )
    return agrees


def check_kernel(lib, heads):
    """The kernel against the emulation in the kernel's geometry."""
    geometry = lib.geometry(
        "prefill", *(stacked(heads[:1], i) for i in (2, 3, 4)), torch.empty_like(stacked(heads[:1], 2))
    )
    case = Case(NEWEST_FIRST, geometry.group_rows, geometry.block_keys, geometry.tile_keys)
    ours = kernel_curves(lib, heads, CHECKED)
    fine = True
    for head, curve in zip(heads, ours, strict=True):
        expected = skip_emulation.curves(*head[2:5], head[5], [case], CHECKED)[case]
        name = f"kernel {case}, layer {head[0]} head {head[1]}"
        fine &= report(name + ": sparsity", float((curve.sparsity - expected.sparsity).abs().max()), SPARSITY_TOLERANCE)
        apart = (curve.relative_error - expected.relative_error).abs() / expected.relative_error.clamp(min=1e-6)
        fine &= report(name + ": output error, relative", float(apart.max()), ERROR_TOLERANCE)
    return fine


def check_oracle(lib, heads):
    """The oracle against the emulation, on the first tokens of one head a layer."""
    fine = True
    for case in (Case(ASCENDING, 128, 128, 128), Case(ASCENDING, 64, 128, 128), Case(NEWEST_FIRST, 64, 16, 64)):
        for head in heads[::3]:
            query, key, value = (x[:ORACLE_TOKENS].contiguous() for x in head[2:5])
            expected = skip_emulation.curves(query, key, value, head[5], [case], CHECKED)[case]
            options = {
                "softmax_scale": head[5],
                "order": case.order,
                "geometry": (case.tile_keys, case.block_keys, case.group_rows),
            }
            tensors = [x[:, None].contiguous() for x in (query, key, value)]
            dense = torch.from_numpy(lib.reference("prefill", *tensors, **options)["output"])
            for i, lambda_ in enumerate(CHECKED):
                output = torch.from_numpy(lib.reference("prefill", *tensors, lambda_=lambda_, **options)["output"])
                error = float((output - dense).norm() / dense.norm())
                want = float(expected.relative_error[i])
                name = f"oracle {case}, layer {head[0]}, lambda {lambda_:g}: output error"
                fine &= report(name, abs(error - want) / max(want, 1e-6), ERROR_TOLERANCE)
    return fine


def order_rows(lib, heads, published):
    curves = [skip_orders.normalized(curve) for curve in kernel_curves(lib, heads, LAMBDAS)]
    total, rows = skip_orders.pooled(curves), []
    for error in (0.01, 0.03):
        value = total.sparsity_at(error)
        print(f"prefill kernel, sparsity at a relative output error of {error:g}: {value:.3f}")
        row = {"id": f"attn.cpu.order.e{str(error)[2:]}", "value": value, "unit": "sparsity", "n": len(curves)}
        rival = published.get(f"emulation.order.ascending.128x128.all.e{str(error)[2:]}")
        if rival:
            row |= {"rival": "ascending, 128 x 128, emulated, same data", "rival_value": rival, "ratio": value / rival}
        rows.append(row)
    return rows, {"lambdas": LAMBDAS, "sparsity": total.sparsity.tolist(), "error": total.relative_error.tolist()}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("activations")
    parser.add_argument("--lib", required=True)
    parser.add_argument("--json", help="result file to write")
    parser.add_argument("--emulation", help="result file of skip_orders.py: what the published order reaches")
    parser.add_argument("--no-kernel-check", action="store_true", help="leave out the slow emulation of all heads")
    arguments = parser.parse_args()
    lib = longhaul_ctypes.load(arguments.lib)
    tensors, metadata = safetensors_file.decode(safetensors_file.unpack(arguments.activations))
    heads = list(skip_orders.heads_of(tensors, metadata))
    published = {}
    if arguments.emulation:
        published = {row["id"]: row["value"] for row in json.loads(Path(arguments.emulation).read_text())["rows"]}
    with torch.inference_mode():
        rows, curve = order_rows(lib, heads, published)
        fine = check_oracle(lib, heads)
        if not arguments.no_kernel_check:
            fine &= check_kernel(lib, heads)
    if arguments.json:
        result_file.write(
            arguments.json,
            "scripts/capture/cross_check.py",
            "sparsity counted by the prefill kernel, float32 inputs; relative rms error, heads weighted alike",
            {"isa": lib.isa},
            metadata,
            rows,
            curve=curve,
        )
    return 0 if fine else 1


if __name__ == "__main__":
    sys.exit(main())
