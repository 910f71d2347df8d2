#!/usr/bin/env python3
"""Tests of the capture and of the skip emulation: no downloads, a random model of a few thousand parameters.

Run in an environment with requirements.txt: python test_capture.py
"""

import contextlib
import gzip
import io
import struct
import tempfile
import unittest
import zlib
from pathlib import Path

import capture_activations
import recorder
import safetensors_file
import skip_emulation
import torch
import transformers
from r_lazydata import RDataError, read_variable
from skip_emulation import ASCENDING, NEWEST_FIRST, Case


def tiny_model():
    torch.manual_seed(1)
    config = transformers.LlamaConfig(
        vocab_size=97,
        hidden_size=48,
        intermediate_size=64,
        num_hidden_layers=3,
        num_attention_heads=6,
        num_key_value_heads=2,
        head_dim=16,
        max_position_embeddings=512,
    )
    return transformers.LlamaForCausalLM(config).base_model.eval()


def attention(record, head):
    """Plain causal attention of one recorded query head, in double precision."""
    group = record["query"].shape[1] // record["key"].shape[1]
    query, key, value = (
        record["query"][:, head].double(),
        record["key"][:, head // group].double(),
        record["value"][:, head // group].double(),
    )
    scores = query @ key.T * record["scale"]
    mask = torch.ones_like(scores, dtype=torch.bool).tril()
    return scores.masked_fill(~mask, float("-inf")).softmax(1) @ value


class Recorder(unittest.TestCase):
    def test_recorded_tensors_reproduce_the_attention_of_the_model(self):
        records = recorder.capture(tiny_model(), list(range(1, 90)), {0: None, 2: [1]}, keep_outputs=True)
        self.assertEqual(tuple(records[0]["query"].shape), (89, 6, 16))
        self.assertEqual(tuple(records[2]["query"].shape), (89, 3, 16))
        self.assertEqual(tuple(records[2]["key"].shape), (89, 1, 16))
        for record in records.values():
            for head in range(record["query"].shape[1]):
                expected = record["output"][:, head].double()
                error = (attention(record, head) - expected).norm() / expected.norm()
                self.assertLess(error, 0.01)  # bf16 storage: 2^-9 an element

    def test_position_encoding_is_in_the_record(self):
        # The same token everywhere: the first layer's keys differ by position only if rotation is included.
        record = recorder.capture(tiny_model(), [5] * 40, {0: None})[0]
        self.assertGreater((record["key"][0] - record["key"][7]).abs().max(), 0.01)
        self.assertTrue(torch.equal(record["value"][0], record["value"][7]))

    def test_the_model_computes_what_it_did_before(self):
        model, ids = tiny_model(), torch.tensor([[3, 1, 4, 1, 5, 9, 2, 6]])
        with torch.inference_mode():
            before = model(input_ids=ids).last_hidden_state
            recorder.capture(model, ids[0].tolist(), {1: None})
            self.assertTrue(torch.equal(before, model(input_ids=ids).last_hidden_state))


class CommandLine(unittest.TestCase):
    def run_main(self, *arguments):
        errors = io.StringIO()
        with contextlib.redirect_stderr(errors), contextlib.redirect_stdout(io.StringIO()):
            try:
                status = capture_activations.main(list(arguments))
            except SystemExit as stop:
                status = stop.code
        return status, errors.getvalue()

    def saved_model(self, folder):
        from tokenizers import Tokenizer, models, pre_tokenizers

        model = transformers.LlamaForCausalLM(tiny_model().config)
        model.save_pretrained(folder)
        words = {f"word{i}": i for i in range(96)} | {"?": 96}
        tokenizer = Tokenizer(models.WordLevel(words, unk_token="?"))
        tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
        transformers.PreTrainedTokenizerFast(tokenizer_object=tokenizer, unk_token="?").save_pretrained(folder)
        (folder / "text.txt").write_text(" ".join(f"word{i * 7 % 96}" for i in range(50)))

    def test_own_model_and_text_twice_give_the_same_file(self):
        with tempfile.TemporaryDirectory() as name:
            folder = Path(name)
            self.saved_model(folder)
            common = ["--model", name, "--text", name + "/text.txt", "--tokens", "48"]
            out = str(folder / "a.safetensors.xz")
            status, errors = self.run_main(*common, "--layers", "0,2", "--kv-heads", "1,0", "--out", out)
            self.assertEqual(status, 0, errors)
            tensors, metadata = safetensors_file.decode(safetensors_file.unpack(out))
            self.assertEqual(list(tensors)[:3], ["layer.0.query", "layer.0.key", "layer.0.value"])
            self.assertEqual(tuple(tensors["layer.2.query"].shape), (48, 3, 16))
            self.assertEqual(metadata["kv_heads"], "1;0")
            self.assertEqual(self.run_main(*common, "--layers", "0,2", "--kv-heads", "1,0", "--check", out)[0], 0)
            self.assertEqual(self.run_main(*common, "--layers", "0,2", "--kv-heads", "0,0", "--check", out)[0], 1)

            self.assert_one_sentence(*common, "--layers", "0,3", "--out", out, says="--layers has 3")
            self.assert_one_sentence(*common, "--layers", "0,x", "--out", out, says="'0,x'")
            self.assert_one_sentence(*common, "--layers", "0", "--kv-heads", "2", "--out", out, says="--kv-heads has 2")
            self.assert_one_sentence(*common[:-1], "51", "--out", out, says="the text has only 50")
            self.assert_one_sentence(*common, "--max-mb", "0.001", "--out", out, says="--max-mb allows 0.001")
            self.assert_one_sentence("--model", name + "/no", "--out", out, says="does not exist")
            self.assert_one_sentence("--model", name, "--text", name + "/no", "--out", out, says="--text")

    def assert_one_sentence(self, *arguments, says):
        status, errors = self.run_main(*arguments)
        lines = [line for line in errors.splitlines() if "error:" in line]
        self.assertEqual((status, len(lines)), (1, 1), errors)
        self.assertIn(says, lines[0])

    def test_wrong_usage_is_status_two(self):
        self.assertEqual(self.run_main()[0], 2)
        self.assertEqual(self.run_main("--out", "x", "--tokens", "0")[0], 2)


class SafetensorsFile(unittest.TestCase):
    def test_round_trip_and_agreement_with_the_usual_reader(self):
        import safetensors.torch

        tensors = {"b": torch.randn(3, 2, 5).to(torch.bfloat16), "a": torch.randn(7)}
        data = safetensors_file.encode(tensors, {"x": 1})
        theirs = safetensors.torch.load(data)
        ours, metadata = safetensors_file.decode(data)
        self.assertEqual(metadata, {"x": "1"})
        for name, tensor in tensors.items():
            self.assertTrue(torch.equal(tensor, ours[name]))
            self.assertTrue(torch.equal(tensor, theirs[name]))


class RLazyData(unittest.TestCase):
    def write(self, folder, lines, kind=b""):
        def chars(text):
            return struct.pack(">ii", 0x40009, len(text)) + text

        item = struct.pack(">ii", 16, len(lines)) + b"".join(chars(line) for line in lines)
        data = b"X\n" + struct.pack(">iii", 2, 0, 0) + item
        body = zlib.compress(data) if not kind else data
        record = struct.pack(">I", len(data)) + kind + body

        def named(names, values):
            pairs = struct.pack(">ii", 0x402, 1) + chars(b"names") + struct.pack(">ii", 16, len(names))
            pairs += b"".join(chars(name) for name in names) + struct.pack(">i", 254)
            return struct.pack(">ii", 0x213, len(values)) + b"".join(values) + pairs

        place = struct.pack(">iiii", 13, 2, 3, len(record))
        index = b"X\n" + struct.pack(">iii", 2, 0, 0) + named([b"variables"], [named([b"book"], [place])])
        (folder / "Rdata.rdx").write_bytes(gzip.compress(index))
        (folder / "Rdata.rdb").write_bytes(b"xyz" + record)

    def test_reads_strings_and_names_mistakes(self):
        with tempfile.TemporaryDirectory() as name:
            folder = Path(name)
            for kind in (b"", b"0"):
                self.write(folder, [b"one", b"", "dré".encode()], kind)
                self.assertEqual(read_variable(folder, "book"), ["one", "", "dré"])
            with self.assertRaisesRegex(RDataError, "has no variable 'other', it has book"):
                read_variable(folder, "other")
            (folder / "Rdata.rdb").write_bytes(b"xyz\0\0")
            with self.assertRaises(RDataError):
                read_variable(folder, "book")


def direct(query, key, value, scale, case, log_lambda):
    """The rule key by key, tile by tile: slow, and written apart from the emulation."""
    rows = len(query)
    scores = query @ key.T * scale
    seen = torch.ones(rows, rows, dtype=torch.bool).tril()
    masked, kept = scores.masked_fill(~seen, float("-inf")), seen.clone()
    for first in range(0, rows, case.group_rows):
        group = range(first, first + case.group_rows)
        last_tile = (first + case.group_rows - 1) // case.tile_keys
        tiles = range(last_tile, -1, -1) if case.order == NEWEST_FIRST else range(last_tile + 1)
        reference = {row: float("-inf") for row in group}
        for position, tile in enumerate(tiles):
            keys = range(tile * case.tile_keys, min((tile + 1) * case.tile_keys, rows))
            for row in group:
                reference[row] = max(reference[row], masked[row, keys.start : keys.stop].max().item())
            for block in range(keys.start, keys.stop, case.block_keys):
                end = block + case.block_keys
                voters = [row for row in group if seen[row, block]]
                skip = all(masked[row, block:end].max().item() - reference[row] < log_lambda for row in voters)
                if skip and position > 0:
                    kept[group.start : group.stop, block:end] = False
    dense = masked.softmax(1) @ value
    output = scores.masked_fill(~kept, float("-inf")).softmax(1) @ value
    skipped = float((seen & ~kept).sum() / seen.sum())
    return skipped, float((output - dense).norm() / dense.norm())


class Emulation(unittest.TestCase):
    def test_agrees_with_the_rule_written_out(self):
        torch.manual_seed(2)
        size = torch.where(torch.rand(16, 1) < 0.3, 3.0, 0.1).repeat_interleave(16, 0)  # heavy blocks of 16 keys
        query, key, value = 3 * torch.randn(256, 8), size * torch.randn(256, 8), torch.randn(256, 4)
        cases = [
            Case(order, rows, block, tile)
            for order in (NEWEST_FIRST, ASCENDING)
            for rows, block, tile in ((128, 128, 128), (64, 16, 64), (16, 16, 32), (64, 64, 64))
        ]
        lambdas = (0.003, 0.05, 0.4)
        results = skip_emulation.curves(query, key, value, 0.5, cases, lambdas)
        skipped_something = 0
        for case in cases:
            for i, limit in enumerate(lambdas):
                log_lambda = float(torch.tensor(limit).log())
                sparsity, error = direct(query, key, value, 0.5, case, log_lambda)
                self.assertAlmostEqual(float(results[case].sparsity[i]), sparsity, 6, str(case))
                self.assertAlmostEqual(float(results[case].relative_error[i]), error, 4, str(case))
                skipped_something += sparsity > 0
        self.assertGreater(skipped_something, 12)

    def test_sparsity_at_an_error_is_interpolated(self):
        curve = skip_emulation.Curve(100.0, torch.tensor([10.0, 30.0]), torch.tensor([1e-4, 1e-2]), 1.0)
        self.assertAlmostEqual(curve.sparsity_at(10**-1.5), 0.2, 5)
        self.assertIsNone(curve.sparsity_at(0.5))


if __name__ == "__main__":
    unittest.main()
