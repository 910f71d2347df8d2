#!/usr/bin/env python3
"""Sparsity and error at fixed lambdas for every layer and KV head of a full capture, to choose a representative sample.

    capture_activations.py --layers all --kv-heads all --max-mb 1000 --out all.safetensors
    survey_layers.py all.safetensors --json survey.json
"""

import argparse
import json
import sys

import torch

import safetensors_file
import skip_emulation

LAMBDAS = (0.003, 0.01, 0.03, 0.1)
CASE = skip_emulation.Case(skip_emulation.NEWEST_FIRST, 64, 16, 64)


def survey(tensors, scales, layers, every):
    rows = []
    for layer in layers:
        query, key, value = (tensors["layer.%d.%s" % (layer, name)] for name in ("query", "key", "value"))
        group = query.shape[1] // key.shape[1]
        for head in range(key.shape[1]):
            total = None
            for member in range(head * group, (head + 1) * group):
                curve = skip_emulation.curves(query[:, member], key[:, head], value[:, head], scales[layer], [CASE], LAMBDAS, every)[CASE]
                total = curve if total is None else total + curve
            rows.append({"layer": layer, "kv_head": head, "sparsity": total.sparsity.tolist(), "error": total.relative_error.tolist()})
            print("layer %2d head %d  s" % (layer, head), " ".join("%.3f" % s for s in rows[-1]["sparsity"]),
                  " error", " ".join("%.4f" % e for e in rows[-1]["error"]), flush=True)
    return rows


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("capture")
    parser.add_argument("--json", required=True)
    parser.add_argument("--layers", help="layer indices with commas between them (default: all in the file)")
    parser.add_argument("--every", type=int, default=16, help="use every n-th chunk of 128 rows (default: 16)")
    arguments = parser.parse_args()
    tensors, metadata = safetensors_file.decode(safetensors_file.unpack(arguments.capture))
    scales = dict(zip(map(int, metadata["layers"].split(",")), map(float, metadata["softmax_scale"].split(","))))
    layers = [int(layer) for layer in arguments.layers.split(",")] if arguments.layers else sorted(scales)
    with torch.inference_mode():
        rows = survey(tensors, scales, layers, arguments.every)
    with open(arguments.json, "w", encoding="utf-8") as file:
        json.dump({"case": str(CASE), "lambdas": LAMBDAS, "metadata": metadata, "rows": rows}, file)
    return 0


if __name__ == "__main__":
    sys.exit(main())
