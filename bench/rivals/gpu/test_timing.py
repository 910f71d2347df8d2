#!/usr/bin/env python3
"""Tests of the GPU rival run that need neither a GPU nor PyTorch: python3 bench/rivals/gpu/test_timing.py"""

import io
import statistics
import unittest
from contextlib import redirect_stderr

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


class CommandLine(unittest.TestCase):
    def refusal(self, *arguments):
        text = io.StringIO()
        with redirect_stderr(text), self.assertRaises(SystemExit) as end:
            run.options_of(arguments)
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

    def test_all_cases_run_where_none_is_named(self):
        self.assertEqual(tuple(run.options_of(["--lib", __file__]).cases), run.CASES)


if __name__ == "__main__":
    unittest.main()
