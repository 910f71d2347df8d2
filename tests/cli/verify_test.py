"""longhaul verify: passes on the kernels as they are, shows what it compared, can run one case."""

import unittest

from program import ProgramTest


class Verify(ProgramTest):
    def test_one_instruction_set(self):
        text = self.fine("verify", "--isa", "portable", "--seed", "3", "--json", self.path("r.json"))
        result = self.read_json("r.json")
        self.assertEqual(result["isas"], ["portable"])
        self.assertEqual(result["failures"], [])
        self.assertGreater(result["comparisons"], 30)
        self.assertGreater(result["skipped_scores"], 0)
        self.assertIn("0 failed", text)

    def test_one_case(self):
        self.fine("verify", "--isa", "portable", "--case", "4", "--json", self.path("r.json"))
        self.assertEqual(self.read_json("r.json")["comparisons"], 1)

    def test_on_a_cuda_device_or_a_sentence(self):
        self.fine("info", "--json", self.path("info.json"))
        info = self.read_json("info.json")
        served = info["build"]["cuda_kernels"] and any(gpu["why_not_served"] == "" for gpu in info["gpus"])
        if served:
            self.fine("verify", "--device", "cuda", "--case", "3")
            bench = ["bench", "attention", "--device", "cuda", "--repeat", "2", "--sparsity", "0.5"]
            self.fine(*bench, "--length", "1024")
            self.fine(*bench, "--data", "captured", "--phase", "decode")
            for pages in ([], ["--page-size", "64"]):
                decode = ["--phase", "decode", "--length", "4096", "--batch", "2"]
                text = self.fine(*bench, *decode, *pages, "--json", self.path("r.json"))
                self.assertIn("TB/s", text)
                base = "attn.decode.bf16{}" + (".paged" if pages else "") + ".4k.b2"
                rows = {row["id"]: row for row in self.read_json("r.json")["rows"]}
                skip = base.format(".skip") + ".s50"
                self.assertEqual(set(rows), {base.format(""), base.format(".lambda0"), skip})
                self.assertAlmostEqual(rows[skip]["rival_value"], 1 / (1 - rows[skip]["sparsity"] / 2))
                self.assertEqual(rows[base.format(".lambda0")]["output_error"], 0)
        else:
            self.fails(1, "CUDA", "verify", "--device", "cuda")
            for phase in ("prefill", "decode"):
                self.fails(1, "CUDA", "bench", "attention", "--device", "cuda", "--phase", phase, "--length", "256")
        self.fails(2, "--device cuda", "bench", "attention", "--data", "heavy")
        self.fails(2, "--isa", "verify", "--device", "cuda", "--isa", "avx2")


if __name__ == "__main__":
    unittest.main()
