#!/usr/bin/env python3
"""Sparsity and error at fixed lambdas for every layer and KV head of a full capture, to choose a representative sample.

    capture_activations.py --layers all --kv-heads all --max-mb 1000 --out all.safetensors
    survey_layers.py all.safetensors --json survey.json

The layers are cut into four depths. In each, the most typical KV head is chosen: the one nearest to the depth's medians
of sparsity and of log error at all lambdas, in units of the quartile distance.
"""

import argparse
import itertools
import json
import math
import statistics
import sys

import safetensors_file
import skip_emulation
import torch

LAMBDAS = (0.003, 0.01, 0.03, 0.1)
CASE = skip_emulation.Case(skip_emulation.NEWEST_FIRST, 64, 16, 64)


def survey(tensors, scales, layers, every):
    rows = []
    for layer in layers:
        query, key, value = (tensors[f"layer.{layer}.{name}"] for name in ("query", "key", "value"))
        group = query.shape[1] // key.shape[1]
        for head in range(key.shape[1]):
            total = None
            for member in range(head * group, (head + 1) * group):
                curve = skip_emulation.curves(
                    query[:, member], key[:, head], value[:, head], scales[layer], [CASE], LAMBDAS, every
                )[CASE]
                total = curve if total is None else total + curve
            rows.append(
                {
                    "layer": layer,
                    "kv_head": head,
                    "sparsity": total.sparsity.tolist(),
                    "error": total.relative_error.tolist(),
                }
            )
            print(
                f"layer {layer:2} head {head}  s",
                " ".join(f"{s:.3f}" for s in rows[-1]["sparsity"]),
                " error",
                " ".join(f"{e:.4f}" for e in rows[-1]["error"]),
                flush=True,
            )
    return rows


def features(row):
    return row["sparsity"] + [math.log(max(error, 1e-5)) for error in row["error"]]


def most_typical(rows):
    columns = list(zip(*map(features, rows), strict=True))
    medians = [statistics.median(column) for column in columns]
    quartiles = [statistics.quantiles(column, n=4) for column in columns]
    widths = [q[2] - q[0] or 1.0 for q in quartiles]

    def distance(row):
        return sum(((x - m) / w) ** 2 for x, m, w in zip(features(row), medians, widths, strict=True))

    return min(rows, key=distance)


def choose(rows, depths=4):
    layers = sorted({row["layer"] for row in rows})
    bounds = [math.ceil(i * len(layers) / depths) for i in range(depths + 1)]
    parts = [set(layers[begin:end]) for begin, end in itertools.pairwise(bounds)]
    return [most_typical([row for row in rows if row["layer"] in part]) for part in parts if part]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("capture")
    parser.add_argument("--json", required=True)
    parser.add_argument("--layers", help="layer indices with commas between them (default: all in the file)")
    parser.add_argument("--every", type=int, default=16, help="use every n-th chunk of 128 rows (default: 16)")
    arguments = parser.parse_args()
    tensors, metadata = safetensors_file.decode(safetensors_file.unpack(arguments.capture))
    captured, scales = metadata["layers"].split(","), metadata["softmax_scale"].split(",")
    scales = dict(zip(map(int, captured), map(float, scales), strict=True))
    layers = [int(layer) for layer in arguments.layers.split(",")] if arguments.layers else sorted(scales)
    with torch.inference_mode():
        rows = survey(tensors, scales, layers, arguments.every)
    for row in choose(rows) if len(rows) >= 16 else []:
        print("typical: layer {}, KV head {}".format(row["layer"], row["kv_head"]))
    with open(arguments.json, "w", encoding="utf-8") as file:
        json.dump({"case": str(CASE), "lambdas": LAMBDAS, "metadata": metadata, "rows": rows}, file)
    return 0


if __name__ == "__main__":
    sys.exit(main())
