"""longhaul_ctypes against the oracle. longhaul_ctypes_test.py LIBRARY; exit status 77 without numpy."""

from __future__ import annotations

import sys
import unittest

try:
    import numpy as np
except ImportError:
    print("skipped: numpy is not installed")
    sys.exit(77)

from longhaul_ctypes import LonghaulError, Raw, load

LIBRARY = sys.argv.pop() if len(sys.argv) > 1 else None


class CtypesTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.lib = load(LIBRARY)

    def setUp(self):
        random = np.random.default_rng(7)
        self.q = random.standard_normal((5, 4, 64), np.float32)
        self.k = random.standard_normal((200, 2, 64), np.float32)
        self.v = random.standard_normal((200, 2, 64), np.float32)
        self.out = np.full_like(self.q, np.nan)

    def test_library(self):
        self.assertRegex(self.lib.version, r"^\d+\.\d+\.\d+$")
        self.assertIn(self.lib.isa, ("portable", "avx2", "avx512", "amx"))
        self.assertGreaterEqual(self.lib.default_threads, 1)

    def test_both_phases_match_the_oracle(self):
        for phase in ("prefill", "decode"):
            with self.subTest(phase):
                lse = np.empty((4, 5), np.float32)
                options = {"lambda_": 0.01, "rule": "sum", "softmax_scale": 0.5, "window_left": 150}
                getattr(self.lib, phase)(self.q, self.k, self.v, self.out, lse=lse, threads=2, **options)
                expected = self.lib.reference(phase, self.q, self.k, self.v, **options)
                # float32 sums over 64 products and at most 200 keys of values around 1
                np.testing.assert_allclose(self.out, expected["output"], rtol=0, atol=1e-5)
                np.testing.assert_allclose(lse, expected["lse"], rtol=1e-6, atol=1e-5)

    def test_bfloat16_and_raw_pointers(self):
        q, k, v = (self.lib.convert(x, "bfloat16") for x in (self.q, self.k, self.v))
        out = np.zeros(q.shape, np.uint16)
        raw = [Raw(x.ctypes.data, "bfloat16", x.shape) for x in (q, k, v, out)]
        self.lib.prefill(*raw)
        expected = self.lib.reference("prefill", q, k, v)["output"]
        # one rounding of the output (2^-9 relative) and those of the bfloat16 arithmetic before it
        np.testing.assert_allclose(self.lib.convert(out, "float32"), expected, rtol=2**-7, atol=2**-8)

    def test_a_prepared_call_repeats_and_adds_to_counters(self):
        counters = np.zeros((4, 4), np.int64)
        call = self.lib.prepare("prefill", self.q, self.k, self.v, self.out, counters=counters)
        call()
        once, first = counters.copy(), self.out.copy()
        call()
        np.testing.assert_array_equal(counters, 2 * once)
        np.testing.assert_array_equal(self.out, first)
        self.assertEqual(once[:, 0].tolist(), [5 * 200 - 10] * 4)  # causal, bottom-right aligned

    def test_a_lambda_per_head_and_the_skip_mask(self):
        lambdas = np.zeros((1, 4), np.float32)
        lambdas[0, 1] = 1.0
        shape = self.lib.skip_mask_shape("prefill", self.q, self.k, self.v, self.out)
        mask = np.full(shape, 9, np.uint8)
        self.lib.prefill(self.q, self.k, self.v, self.out, lambda_=lambdas, skip_mask=mask)
        self.assertTrue((mask[1] == 2).any())
        self.assertFalse((mask[[0, 2, 3]] == 2).any())
        geometry = self.lib.geometry("prefill", self.q, self.k, self.v, self.out)
        self.assertGreaterEqual(geometry.tile_keys, geometry.block_keys)

    def test_a_paged_cache_equals_the_ragged_one(self):
        pages = np.ascontiguousarray(np.pad(self.k, ((0, 8), (0, 0), (0, 0))).reshape(13, 16, 2, 64)[::-1])
        values = np.ascontiguousarray(np.pad(self.v, ((0, 8), (0, 0), (0, 0))).reshape(13, 16, 2, 64)[::-1])
        table = np.arange(12, -1, -1, dtype=np.int32)[None]
        paged = np.empty_like(self.out)
        lengths = np.array([200], np.int32)
        self.lib.decode(self.q, pages, values, paged, page_table=table, kv_lengths=lengths)
        self.lib.decode(self.q, self.k, self.v, self.out)
        np.testing.assert_array_equal(paged, self.out)

    def test_errors_carry_status_and_sentence(self):
        with self.assertRaisesRegex(LonghaulError, "1.5") as caught:
            self.lib.prefill(self.q, self.k, self.v, self.out, lambda_=1.5)
        self.assertEqual(caught.exception.status, "invalid_argument")
        with self.assertRaisesRegex(TypeError, "unknown option 'windw'"):
            self.lib.prefill(self.q, self.k, self.v, self.out, windw=3)
        with self.assertRaisesRegex(TypeError, "float64"):
            self.lib.prefill(self.q.astype(np.float64), self.k, self.v, self.out)

    def test_cuda_tensors_reach_the_library(self):
        """Without a device, or at an address that is no device memory: a sentence, whatever the machine has."""
        at = 1 << 20
        q, k, v, out = (Raw(at * (i + 1), "bfloat16", (8, 4, 128), device="cuda") for i in range(4))
        lengths = Raw(at * 5, "int32", (2,), device="cuda")
        options = {"cu_seqlens_q": lengths, "cu_seqlens_kv": lengths, "stream": 0}
        with self.assertRaisesRegex(LonghaulError, "CUDA") as caught:
            self.lib.prepare("prefill", q, k, v, out, workspace=at * 6, workspace_bytes=1 << 30, **options)()
        self.assertIn(caught.exception.status, ("unsupported", "invalid_argument"))
        with self.assertRaisesRegex(LonghaulError, "cu_seqlens_q is int32\\[2\\] on the CPU"):
            self.lib.geometry("prefill", q, k, v, out, cu_seqlens_q=np.zeros(2, np.int32), cu_seqlens_kv=lengths)
        with self.assertRaisesRegex(TypeError, "cu_seqlens_q must be given"):
            self.lib.prefill(q, k, v, out)

    def test_helpers(self):
        self.assertEqual(self.lib.lambda_from_scale_factor(512, 1024), (0.5, False))
        self.assertEqual(self.lib.lambda_from_scale_factor(4096, 1024), (1.0, True))
        self.assertGreater(self.lib.workspace_bytes("decode", self.q, self.k, self.v, self.out), 0)
        bits = self.lib.convert(np.array([1.0, 448.0, 1000.0], np.float32), "float8_e4m3")
        self.assertEqual(self.lib.convert(bits, "float32").tolist(), [1.0, 448.0, 448.0])


if __name__ == "__main__":
    unittest.main()
