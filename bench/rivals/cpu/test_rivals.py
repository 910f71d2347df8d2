#!/usr/bin/env python3
"""Tests of the rival run that time nothing: .venv-rivals/bin/python bench/rivals/cpu/test_rivals.py"""

import json
import math
import tempfile
import unittest
from pathlib import Path

import inputs
import measure
import torch


def block_maxima(data, request, head):
    """Largest score of every query and block of keys, all keys seen, in natural units."""
    query = data.query.view(data.shape.batch, -1, inputs.HEADS_Q, inputs.DIM)[request, :, head].float()
    key = data.key.view(data.shape.batch, -1, inputs.HEADS_KV, inputs.DIM)[request, :, head // inputs.GROUP].float()
    return (query @ key.T / math.sqrt(inputs.DIM)).view(len(query), -1, inputs.BLOCK).amax(2)


class BlockyInputs(unittest.TestCase):
    def test_prefill_has_the_asked_share_of_heavy_blocks_by_row_group_and_head(self):
        data = inputs.blocky_inputs(inputs.Shape("prefill", 1, 2048), torch.bfloat16, 0.75, 3)
        patterns = []
        for head in (0, 1):
            heavy = block_maxima(data, 0, head) > inputs.MARGIN / 2
            groups = heavy.view(-1, inputs.BLOCK, heavy.shape[1])
            self.assertTrue(torch.equal(groups.all(1), groups.any(1)), "the rows of a group agree")
            self.assertAlmostEqual(float(heavy.float().mean()), 0.25, delta=0.03)
            own = torch.arange(len(groups))
            self.assertTrue(groups[own, 0, own].all(), "the newest block is heavy")
            patterns.append(groups[:, 0])
        self.assertGreater(float((patterns[0] != patterns[1]).float().mean()), 0.25, "heads differ")
        self.assertGreater(float((patterns[0][5] != patterns[0][6]).float().mean()), 0.2, "row groups differ")

    def test_decode_heads_of_a_kv_head_agree(self):
        data = inputs.blocky_inputs(inputs.Shape("decode", 2, 4096), torch.bfloat16, 0.5, 4)
        for request in (0, 1):
            heavy = [block_maxima(data, request, head)[0] > inputs.MARGIN / 2 for head in range(inputs.HEADS_Q)]
            self.assertAlmostEqual(float(heavy[0].float().mean()), 0.5, delta=0.12)
            self.assertTrue(torch.equal(heavy[0], heavy[3]))
            self.assertFalse(torch.equal(heavy[0], heavy[4]))
            self.assertTrue(heavy[0][-1] and heavy[4][-1])

    def test_light_blocks_lie_below_the_threshold_by_far(self):
        data = inputs.blocky_inputs(inputs.Shape("prefill", 1, 1024), torch.bfloat16, 0.9, 5)
        maxima = block_maxima(data, 0, 2)
        light = maxima[maxima < inputs.MARGIN / 2]
        self.assertLess(float(light.max()), inputs.MARGIN + math.log(inputs.LAMBDA))

    def test_work_is_counted_exactly(self):
        self.assertEqual(inputs.Shape("prefill", 1, 3).flops, 4 * 8 * 6 * 128)
        self.assertEqual(inputs.Shape("decode", 2, 5).flops, 4 * 2 * 8 * 5 * 128)
        self.assertEqual(inputs.Shape("decode", 8, 32768).kv_bytes(torch.bfloat16), 2 * 8 * 32768 * 2 * 128 * 2)


class Measure(unittest.TestCase):
    def test_every_round_runs_everyone_and_the_order_rotates(self):
        order = []
        bodies = {name: (lambda r, name=name: order.append((r, name))) for name in "abc"}
        times = measure.interleave(bodies, 3, pause=0)
        self.assertEqual([len(seconds) for seconds in times.values()], [3, 3, 3])
        self.assertEqual([name for r, name in order if r == 1], list("bca"))
        self.assertEqual(len(order), 12)

    def test_statistics(self):
        seconds = [float(x) for x in range(1, 12)]
        self.assertAlmostEqual(measure.spread(seconds), 8 / 6)
        self.assertEqual(measure.paired_ratio([2, 8, 6], [1, 2, 3]), 2)

    def test_merge_keeps_rows_of_other_ids(self):
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "machine" / "rows.json"
            measure.write_results(path, {}, "first", [{"id": "a", "value": 1}, {"id": "b", "value": 1}], merge=False)
            measure.write_results(path, {}, "second", [{"id": "b", "value": 2}], merge=True)
            rows = json.loads(path.read_text())["rows"]
            self.assertEqual([(row["id"], row["value"]) for row in rows], [("a", 1), ("b", 2)])


if __name__ == "__main__":
    unittest.main()
