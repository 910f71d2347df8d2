#!/usr/bin/env python3
"""Writes the seed corpora under fuzz/corpus: valid files of every form, and files that lie in each known way."""

import json
import pathlib
import struct

ROOT = pathlib.Path(__file__).parent / "corpus"


def save(target, name, data):
    folder = ROOT / target
    folder.mkdir(parents=True, exist_ok=True)
    (folder / name).write_bytes(data if isinstance(data, bytes) else data.encode())


def tensors(header, data_bytes=0, length=None, pad=True):
    text = header if isinstance(header, str) else json.dumps(header)
    if pad:
        text += " " * (-len(text) % 8)
    return struct.pack("<Q", len(text) if length is None else length) + text.encode() + bytes(range(256))[:data_bytes]


def entry(dtype, shape, begin, end):
    return {"dtype": dtype, "shape": shape, "data_offsets": [begin, end]}


def safetensors():
    def add(name, *args, **kwargs):
        save("safetensors", name, tensors(*args, **kwargs))

    add("empty_object", {})
    add("one_f32", {"query": entry("F32", [2, 1], 0, 8)}, 8)
    add(
        "all_dtypes",
        {
            "__metadata__": {"model": "m", "layers": "4"},
            "i64": entry("I64", [1], 0, 8),
            "f32": entry("F32", [1, 1], 8, 12),
            "i32": entry("I32", [1], 12, 16),
            "bf16": entry("BF16", [1, 1, 2], 16, 20),
            "f16": entry("F16", [2], 20, 24),
            "fp8": entry("F8_E4M3", [1, 1, 1, 3], 24, 27),
            "u8": entry("U8", [2], 27, 29),
            "none": entry("F32", [0, 7], 29, 29),
        },
        29,
    )
    add("unsupported_dtype", {"x": entry("F64", [1], 0, 8)}, 8)
    add("scalar", {"x": entry("F32", [], 0, 4)}, 4)
    add("rank5", {"x": entry("U8", [1, 1, 1, 1, 1], 0, 1)}, 1)
    add("overlap", {"x": entry("U8", [2], 0, 2), "y": entry("U8", [2], 1, 3)}, 3)
    add("hole", {"x": entry("U8", [1], 1, 2)}, 2)
    add("trailing", {"x": entry("U8", [1], 0, 1)}, 5)
    add("shape_overflow", {"x": entry("F32", [1 << 32, 1 << 32], 0, 0)})
    add("negative", {"x": entry("U8", [-1], 0, 1)}, 1)
    add("huge_offsets", {"x": entry("U8", [1], 2**64 - 1, 2**64 - 1)}, 1)
    add("misaligned", '{"x":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}} ', 4, pad=False)
    add(
        "twice",
        '{"x":{"dtype":"U8","shape":[1],"data_offsets":[0,1]},"x":{"dtype":"U8","shape":[1],"data_offsets":[0,1]}}',
        1,
    )
    add("deep", '{"x":' + "[" * 60 + "]" * 60 + "}")
    add("header_too_long", {}, length=1 << 20)
    add("header_length_absurd", {}, length=2**63)
    add("header_length_zero", "", pad=False)
    save("safetensors", "three_bytes", b"\1\0\0")
    add("broken_utf8", '{"\\ud800": 1}')


def trtllm_yaml():
    head = "sparse_attention_config:\n  algorithm: skip_softmax\n"
    cases = {
        "scalar": "  threshold_scale_factor: 1000.0\n",
        "map": "  threshold_scale_factor:\n    prefill: 587.18\n    decode: 16.52\n",
        "target": "  target_sparsity: {prefill: 0.5, decode: 0.3}\n  disabled_until_timestep: 0.8\n",
        "negative": "  threshold_scale_factor: -1\n",
        "nan": "  threshold_scale_factor: .nan\n",
        "string": "  threshold_scale_factor: '5'\n",
        "unknown": "  treshold: 1\n",
        "twice": "  target_sparsity: 0.5\n  target_sparsity: 0.6\n",
        "block_scalar": "  threshold_scale_factor: |\n    5\n",
        "quoted_escapes": '  "target\\x5fsparsity": 0.5\n',
        "tab": "\tthreshold_scale_factor: 1\n",
    }
    for name, body in cases.items():
        save("trtllm_yaml", name, head + body)
    save("trtllm_yaml", "engine_keys", "kv_cache_config:\n  dtype: fp8\nmax_batch_size: 8\n" + head)
    save("trtllm_yaml", "alias", "a: &x {b: 1}\nc: *x\n")
    save("trtllm_yaml", "merge", "a: &x {b: 1}\nc:\n  <<: *x\n")
    save("trtllm_yaml", "bomb", "a: &a [x,x]\nb: &b [*a,*a]\nc: &c [*b,*b]\n")
    save("trtllm_yaml", "tag", "a: !!python/object:os.system x\n")
    save("trtllm_yaml", "two_documents", head + "---\n" + head)
    save("trtllm_yaml", "complex_key", "? [1, 2]\n: 3\n")
    save("trtllm_yaml", "deep_flow", "a: " + "[" * 200 + "]" * 200)
    save("trtllm_yaml", "deep_block", "- " * 300)
    save("trtllm_yaml", "empty", "")
    save("trtllm_yaml", "directive", "%YAML 1.2\n---\n" + head)


def checkpoint_json():
    formula = {
        "formula": "a * exp(b * target_sparsity)",
        "prefill": {"a": 7.93, "b": 8.61},
        "decode": {"a": 0.119, "b": 9.86},
    }

    def add(name, *groups, **beside):
        config = {"config_groups": {f"group_{i}": g for i, g in enumerate(groups)}, **beside}
        save("checkpoint_json", name, json.dumps({"sparse_attention_config": config}))

    skip = {"algorithm": "skip_softmax"}
    add(
        "formula",
        {
            **skip,
            "threshold_scale_factor": formula,
            "target_sparsity": {"prefill": 0.5, "decode": 0.3},
            "ignore": ["a*"],
        },
    )
    add(
        "coefficients",
        {
            **skip,
            "threshold_scale_factor": {
                "formula": "exp(log_a + b*target_sparsity)",
                "coefficients": {"log_a": 1, "b": 2},
            },
        },
    )
    add(
        "factor",
        {**skip, "threshold_scale_factor": {"prefill": 500}, "targets": ["Attn"], "disabled_until_timestep": 0.8},
    )
    fitted = {"name": "longhaul", "fitted_target_sparsity": {"prefill": [0.1, 0.9]}}
    add("fitted", {**skip, "threshold_scale_factor": formula}, producer=fitted)
    add("legacy", {"algorithm": "sparse24"}, {"algorithm": "softmax_skip", "threshold_scale_factor": 1})
    add("two_groups", skip, skip)
    add("no_group")
    add("code", {**skip, "threshold_scale_factor": {"formula": "__import__('os')", "coefficients": {"a": 1}}})
    add("negative", {**skip, "threshold_scale_factor": -1})
    save("checkpoint_json", "twice", '{"a":1,"a":2}')
    save("checkpoint_json", "deep", "[" * 500 + "]" * 500)
    save("checkpoint_json", "range", '{"a":1e999}')
    save("checkpoint_json", "nan", '{"a":NaN}')
    save("checkpoint_json", "truncated", '{"sparse_attention_config": {"config_groups": {"group_0": {"algor')
    save("checkpoint_json", "surrogate", '{"\\ud800":1}')


def longhaul_yaml():
    phase = (
        "  rule: max\n  key_test: exact\n  order: newest_first\n"
        "  geometry: {tile_keys: 64, block_keys: 16, group_rows: 16}\n"
        "  target_sparsity: 0.5\n  fitted_target_sparsity: [0.1, 0.9]\n  fitted_context_length: [2048.0, 8192.0]\n"
    )
    law = "  law: {alpha: 1.25, beta: 2.5, exponent: 0.4}\n"
    over = (
        "  overrides:\n    - {layer: 3, coefficient: 12.5, exponent: 1.0}\n"
        "    - {layer: 3, head: 1, coefficient: 0.0, exponent: 1.0}\n"
    )
    head = 'version: 1\nmodel: "m \\"x\\""\nsamples: "s"\n'
    save(
        "longhaul_yaml",
        "both",
        head + "prefill:\n" + phase + law + over + "decode:\n" + phase.replace("max", "sum") + law,
    )
    save("longhaul_yaml", "coefficient", head + "decode:\n" + phase + "  law: {coefficient: 587.18}\n")
    save("longhaul_yaml", "no_target", head + "prefill:\n" + phase.replace("  target_sparsity: 0.5\n", "") + law)
    save("longhaul_yaml", "bad_geometry", head + "prefill:\n" + phase.replace("16,", "48,") + law)
    save("longhaul_yaml", "bad_version", "version: 2\n")
    save("longhaul_yaml", "both_laws", head + "prefill:\n" + phase + "  law: {coefficient: 1, alpha: 1, beta: 2}\n")
    save("longhaul_yaml", "infinite", head + "prefill:\n" + phase + "  law: {alpha: .inf, beta: 1}\n")
    save(
        "longhaul_yaml",
        "huge_layer",
        head + "prefill:\n" + phase + law + "  overrides: [{layer: 1e30, coefficient: 1}]\n",
    )
    save("longhaul_yaml", "empty_phase", "version: 1\nprefill:\n")


def formula():
    cases = [
        "a * exp(b * target_sparsity)",
        "exp(log_a + b * target_sparsity)",
        "a/(1-target_sparsity)**b",
        "-2**-2^.5",
        "((((1))))",
        "1e308*1e308",
        "log(-1)",
        "a b",
        "sin(1)",
        "(" * 100,
        "-" * 100 + "1",
        "1" + "**1" * 100,
        "exp",
        "1..2",
        "0x10",
        "",
    ]
    for i, text in enumerate(cases):
        save("formula", f"{i:02}", text)


if __name__ == "__main__":
    for write in (safetensors, trtllm_yaml, checkpoint_json, longhaul_yaml, formula):
        write()
