#!/usr/bin/env python3
"""Sparsity at equal output error for several visit orders and voting groups, on captured activations.

    skip_orders.py data/activations.safetensors.xz --json bench/results/any/orders_emulation.json

An emulation with torch, apart from the C++ code: the two check each other (cross_check.py). Error: the relative rms of
the attention output, pooled over the heads of the file or of a layer, each weighted alike.
"""

import argparse
import sys

import result_file
import safetensors_file
import skip_emulation
import torch
from skip_emulation import ASCENDING, NEWEST_FIRST, Case, Curve

ERRORS = (0.003, 0.01, 0.03, 0.1)
LAMBDAS = tuple(10 ** (-7 + 0.25 * i) for i in range(29))
CASES = (
    Case(ASCENDING, 128, 128, 128),
    Case(ASCENDING, 64, 128, 128),
    Case(ASCENDING, 64, 64, 64),
    Case(NEWEST_FIRST, 128, 128, 128),
    Case(NEWEST_FIRST, 64, 128, 128),
    Case(NEWEST_FIRST, 64, 64, 64),
    Case(NEWEST_FIRST, 64, 16, 64),
    Case(NEWEST_FIRST, 16, 16, 64),
)


def normalized(curve):
    """The curve of one head with unit energy, so that all heads count alike."""
    return Curve(curve.visible, curve.skipped, curve.error / curve.energy, 1.0)


def heads_of(tensors, metadata):
    """(layer, query head, query, key, value, scale) of every query head in the file."""
    layers, scales = metadata["layers"].split(","), metadata["softmax_scale"].split(",")
    for layer, scale in zip(map(int, layers), map(float, scales), strict=True):
        query, key, value = (tensors[f"layer.{layer}.{name}"] for name in ("query", "key", "value"))
        group = query.shape[1] // key.shape[1]
        for head in range(query.shape[1]):
            yield layer, head, query[:, head], key[:, head // group], value[:, head // group], scale


def measure(path, every):
    tensors, metadata = safetensors_file.decode(safetensors_file.unpack(path))
    by_layer = {}
    for layer, head, query, key, value, scale in heads_of(tensors, metadata):
        result = skip_emulation.curves(query, key, value, scale, CASES, LAMBDAS, every)
        for case, curve in result.items():
            by_layer.setdefault(layer, {}).setdefault(case, []).append(normalized(curve))
        print(f"layer {layer} head {head} done", file=sys.stderr, flush=True)
    return by_layer, metadata


def pooled(curves):
    total = curves[0]
    for curve in curves[1:]:
        total += curve
    return total


def tables(by_layer):
    """(rows of a result file, whole curves): one row for each case, scope and error that was reached."""
    rows, whole = [], []
    for case in CASES:
        scopes = {"all": [curve for layer in by_layer.values() for curve in layer[case]]}
        scopes.update({f"layer{layer}": cases[case] for layer, cases in by_layer.items()})
        for scope, curves in scopes.items():
            curve = pooled(curves)
            name = f"emulation.order.{case.order}.{case.group_rows}x{case.block_keys}.{scope}"
            found = {error: curve.sparsity_at(error) for error in ERRORS}
            whole.append(
                {
                    "id": name,
                    "tile_keys": case.tile_keys,
                    "sparsity_at_error": found,
                    "lambdas": LAMBDAS,
                    "sparsity": curve.sparsity.tolist(),
                    "error": curve.relative_error.tolist(),
                }
            )
            rows += [
                {"id": f"{name}.e{str(error)[2:]}", "value": value, "unit": "sparsity", "n": len(curves)}
                for error, value in found.items()
                if value is not None
            ]
    return rows, whole


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("activations")
    parser.add_argument("--json", required=True)
    parser.add_argument("--every", type=int, default=1, help="use every n-th chunk of 128 rows (default: 1, all)")
    arguments = parser.parse_args()
    with torch.inference_mode():
        by_layer, metadata = measure(arguments.activations, arguments.every)
    rows, whole = tables(by_layer)
    print("{:<50}".format("case") + "".join(f"  s at {error:<5g}" for error in ERRORS))
    for curve in whole:
        cells = ["    --   " if s is None else f"   {s:.3f} " for s in curve["sparsity_at_error"].values()]
        print("{:<50}".format(curve["id"]) + "  ".join(cells))
    result_file.write(
        arguments.json,
        f"scripts/capture/skip_orders.py data/activations.safetensors.xz --every {arguments.every}",
        "torch emulation of causal prefill, rule max, float32; relative rms output error, heads weighted alike",
        {"torch": torch.__version__.split("+")[0]},
        metadata,
        rows,
        curves=whole,
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
