#!/usr/bin/env python3
"""Tests of the GPU rival run that need neither a GPU nor PyTorch: python3 bench/rivals/gpu/test_timing.py"""

import io
import json
import statistics
import unittest
from contextlib import redirect_stderr

import decode
import decode_inputs
import run
import timing


class Timing(unittest.TestCase):
    def test_every_round_runs_everybody_in_turn_and_the_first_does_not_count(self):
        order, pauses = [], []
        calls = {name: name for name in "abc"}

        def sample(call):
            order.append(call)
            return float(len(order))

        times = timing.interleave(calls, 3, sample, 0.5, pauses.append)
        self.assertEqual("".join(order), "abcbcacababc")
        self.assertEqual(pauses, [0.5] * 12)
        self.assertEqual({name: len(t) for name, t in times.items()}, {"a": 3, "b": 3, "c": 3})
        self.assertEqual(times["a"], [6.0, 8.0, 10.0])

    def test_a_drift_of_the_clock_cancels_in_a_ratio(self):
        drift = [1.0, 1.3, 1.7, 2.5]
        self.assertAlmostEqual(timing.paired_ratio([3 * d for d in drift], [2 * d for d in drift]), 1.5)

    def test_spread_is_that_of_the_deciles(self):
        self.assertEqual(timing.spread([1.0]), 0.0)
        self.assertAlmostEqual(timing.spread([float(i) for i in range(1, 12)]), (10 - 2) / 6)

    def test_rows_name_the_best_rival_and_list_all(self):
        times = {"ours": [2.0, 2.0, 2.0], "slow": [4.0, 4.0, 4.0], "fast": [1.0, 1.0, 1.0]}
        row = timing.rate_row("x", times, "ours", 8e12, "burst")
        self.assertEqual((row["value"], row["rival"], row["rival_value"], row["ratio"]), (4.0, "fast", 8.0, 0.5))
        self.assertEqual(row["rivals"], {"slow": 2.0, "fast": 8.0})
        self.assertEqual((row["n"], row["unit"], row["regime"]), (3, "TFLOP/s", "burst"))
        alone = timing.rate_row("x", {"ours": [2.0]}, "ours", 8e12, "sustained")
        self.assertEqual((alone["rival_value"], alone["ratio"]), (None, None))

    def test_a_speedup_is_held_against_its_ideal(self):
        row = timing.speedup_row("x", [3.0, 3.0], [2.0, 2.0], 2.0, "ideal", "burst", sparsity=0.5)
        self.assertEqual((row["value"], row["ratio"], row["sparsity"]), (1.5, 0.75, 0.5))
        self.assertEqual(row["n"], len([2.0, 2.0]))
        self.assertEqual(statistics.median([3.0]) / statistics.median([2.0]), row["value"])


class Decode(unittest.TestCase):
    def test_the_bytes_are_those_of_keys_and_values_and_small_caches_are_rotated(self):
        shape = decode_inputs.shape_of("b64.16k")
        self.assertEqual((shape.batch, shape.keys, shape.heads, shape.kv_heads), (64, 16384, 64, 4))
        self.assertEqual((shape.kv_bytes, shape.copies, shape.launches), (2 * 64 * 16384 * 4 * 128 * 2, 1, 1))
        for name, heads, copies in (("b1.32k", (64, 4), 6), ("b1.131k", (64, 4), 2), ("b1.32k.h16", (16, 2), 6)):
            shape = decode_inputs.shape_of(name)
            self.assertEqual((shape.batch, shape.keys), (1, 131072 if "131k" in name else 32768))
            self.assertEqual(((shape.heads, shape.kv_heads), shape.copies), (heads, copies))
            self.assertGreater((shape.copies - 1) * shape.kv_bytes, 60e6)
            self.assertEqual((shape.launches % shape.copies, decode.LAYERS % shape.copies), (0, 0))

    def test_skipping_is_held_against_keys_read_and_values_kept(self):
        self.assertEqual([decode_inputs.ideal_speedup(s) for s in (0, 0.5, 1)], [1, 4 / 3, 2])
        self.assertEqual([decode_inputs.percent(s) for s in (0, 0.25, 0.9)], ["s00", "s25", "s90"])

    def test_a_time_beside_a_slower_one_has_a_ratio_above_one(self):
        times = {"longhaul": [0.001, 0.001], "own dense": [0.0015, 0.0015]}
        row = decode.milliseconds_row("x", times, "own dense", "burst", sparsity=0.5)
        self.assertEqual((row["value"], row["rival_value"], row["unit"]), (1.0, 1.5, "ms"))
        self.assertAlmostEqual(row["ratio"], 1.5)
        alone = decode.milliseconds_row("x", {"longhaul": [0.001, 0.001]}, None, "burst")
        self.assertEqual((alone["rival"], alone["rival_value"], alone["ratio"]), ("none ran", None, None))

    def test_every_target_of_decode_has_a_case(self):
        table = json.loads((run.HERE.parents[1] / "targets.json").read_text())["targets"]
        named = {t["id"] for t in table if t["id"].startswith(decode.PREFIX)}
        skips = {f"{name}.{decode_inputs.percent(s)}" for name in decode.SKIP for s in run.SPARSITIES}
        self.assertEqual(named, {decode.PREFIX + name for name in {*decode.DENSE, *skips}})


class CommandLine(unittest.TestCase):
    def refusal(self, *arguments, options_of=run.options_of):
        text = io.StringIO()
        with redirect_stderr(text), self.assertRaises(SystemExit) as end:
            options_of(arguments)
        self.assertEqual(end.exception.code, 2)
        return text.getvalue()

    def test_wrong_arguments_are_named_with_what_is_allowed(self):
        for arguments, words in (
            ((), ("--lib",)),
            (("--lib", "/nowhere/lib.so"), ("--lib", "/nowhere/lib.so")),
            (("--lib", __file__, "--rounds", "1"), ("--rounds", "1", "2 or more")),
            (("--lib", __file__, "--cases", "causal.17k"), ("causal.17k", "causal.16k")),
            (("--lib", __file__, "--rivals", "fa9"), ("fa9", "fa4")),
            (("--lib", __file__, "--setup", "/nowhere.py"), ("--setup", "/nowhere.py")),
        ):
            text = self.refusal(*arguments)
            for word in words:
                self.assertIn(word, text)

    def test_decode_refuses_the_same(self):
        for arguments, words in (
            ((), ("--lib",)),
            (("--lib", __file__, "--rounds", "1"), ("--rounds", "1", "2 or more")),
            (("--lib", __file__, "--cases", "b2.16k"), ("b2.16k", "b64.16k")),
            (("--lib", __file__, "--setup", "/nowhere.py"), ("--setup", "/nowhere.py")),
        ):
            text = self.refusal(*arguments, options_of=decode.options_of)
            for word in words:
                self.assertIn(word, text)
        self.assertEqual(tuple(decode.options_of(["--lib", __file__]).cases), decode.CASES)

    def test_all_cases_run_where_none_is_named(self):
        self.assertEqual(tuple(run.options_of(["--lib", __file__]).cases), run.CASES)


if __name__ == "__main__":
    unittest.main()
