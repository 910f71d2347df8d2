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
            self.fine(
                "bench", "attention", "--device", "cuda", "--length", "1024", "--repeat", "2", "--sparsity", "0.5"
            )
        else:
            self.fails(1, "CUDA", "verify", "--device", "cuda")
            self.fails(1, "CUDA", "bench", "attention", "--device", "cuda", "--length", "256")
        self.fails(2, "--device cuda measures prefill", "bench", "attention", "--device", "cuda", "--phase", "decode")
        self.fails(2, "--device cuda", "bench", "attention", "--data", "heavy")
        self.fails(2, "--isa", "verify", "--device", "cuda", "--isa", "avx2")


if __name__ == "__main__":
    unittest.main()
