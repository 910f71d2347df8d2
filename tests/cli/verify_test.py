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


if __name__ == "__main__":
    unittest.main()
