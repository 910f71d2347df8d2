"""longhaul bench attention on small shapes, and longhaul report on results and targets made up here."""

import json
import os
import pathlib
import unittest

from program import ProgramTest

# Of every row of a result file, as CONTRIBUTING.md lists them; a row without a rival may leave out those three.
FIELDS = {"id", "value", "unit", "n", "spread", "regime"}


class CommittedResults(unittest.TestCase):
    def test_every_file_and_row_has_its_fields_and_one_kind_of_spread(self):
        root = pathlib.Path(__file__).resolve().parents[2] / "bench" / "results"
        files = sorted(root.rglob("*.json"))
        self.assertTrue(files)
        for file in files:
            result = json.loads(file.read_text())
            self.assertLessEqual({"date", "commit", "machine", "command", "rows"}, set(result), file)
            for row in result["rows"]:
                self.assertLessEqual(FIELDS, set(row), f"{file}: {row['id']}")
                self.assertIsInstance(row["spread"], (float, type(None)), f"{file}: {row['id']}")


class Bench(ProgramTest):
    def bench(self, *options):
        text = self.fine(
            "bench", "attention", "--repeat", "2", "--no-ceilings", "--json", self.path("r.json"), *options
        )
        return {row["id"]: row for row in self.read_json("r.json")["rows"]}, text

    def test_prefill_reaches_the_wanted_sparsity(self):
        rows, text = self.bench(
            "--length", "2048", "--heads-q", "2", "--heads-kv", "1", "--head-size", "64", "--sparsity", "0.3,0.7"
        )
        base = "attn.cpu.prefill.bf16.2k.h2x1.d64"
        self.assertEqual(
            set(rows), {base + ".peak", base + ".counters", base + ".lambda0", base + ".skip.s30", base + ".skip.s70"}
        )
        for target in (30, 70):
            row = rows[f"{base}.skip.s{target}"]
            self.assertAlmostEqual(row["sparsity"], target / 100, delta=0.03)
            self.assertAlmostEqual(row["ratio"], row["value"] / row["rival_value"])
            self.assertAlmostEqual(row["rival_value"], 1 / (1 - row["sparsity"] / 2))
            self.assertEqual(row["n"], 2)
        self.assertEqual(rows[base + ".lambda0"]["output_error"], 0)
        self.assertIn("speed-up", text)

    def test_decode_on_pages(self):
        rows, _ = self.bench(
            "--phase",
            "decode",
            "--length",
            "1000",
            "--batch",
            "3",
            "--page-size",
            "64",
            "--sparsity",
            "0.5",
            "--rule",
            "sum",
        )
        row = rows["attn.cpu.decode.bf16.b3.1000.page64.sum.skip.s50"]
        self.assertAlmostEqual(row["sparsity"], 0.5, delta=0.06)

    def test_the_file_says_where_and_how(self):
        self.bench("--length", "256", "--dense-only")
        result = self.read_json("r.json")
        self.assertIn("cpu", result["machine"])
        self.assertIn("commit", result)
        for row in result["rows"]:
            self.assertLessEqual(FIELDS, set(row))
            self.assertIsInstance(row["spread"], float)
            self.assertGreaterEqual(row["spread"], 0)
        self.assertIn("longhaul bench attention", result["command"])
        self.assertRegex(result["date"], r"\A\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ\Z")

    def test_ceilings_are_measured(self):
        self.fine(
            "bench", "attention", "--repeat", "1", "--length", "256", "--dense-only", "--json", self.path("r.json")
        )
        row = self.read_json("r.json")["rows"][0]
        self.assertGreater(row["rival_value"], 0.1)
        self.assertAlmostEqual(row["ratio"], row["value"] / row["rival_value"])

    def test_unsupported_types_are_refused(self):
        self.fails(2, "--dtype", "bench", "attention", "--dtype", "int8")
        self.fails(2, "--head-size", "bench", "attention", "--head-size", "100")


class Report(ProgramTest):
    def setUp(self):
        super().setUp()
        os.makedirs(self.path("results/a"))
        os.makedirs(self.path("results/b"))
        self.targets = self.write(
            "targets.json",
            {
                "targets": [
                    {"id": "x.fast", "description": "a", "rival": "R", "ratio": 1.5},
                    {"id": "x.slow", "description": "b", "rival": "R", "ratio": 1.5},
                    {"id": "x.value", "description": "c", "rival": "R", "value": 0.6},
                    {"id": "x.nobody", "description": "d", "rival": "R", "ratio": 1},
                ]
            },
        )

    def write(self, name, content):
        with open(self.path(name), "w", encoding="utf-8") as file:
            file.write(content if isinstance(content, str) else json.dumps(content))
        return self.path(name)

    def result(self, name, date, *rows, cpu="A"):
        self.write(
            name,
            {
                "date": date,
                "machine": {"cpu": cpu},
                "command": "c",
                "rows": [
                    {"id": i, "value": v, "unit": "u", "rival": "R", "rival_value": 2, "ratio": r, "n": 20}
                    for i, v, r in rows
                ],
            },
        )

    def states(self):
        self.fine("report", self.path("results"), "--targets", self.targets, "--json", self.path("out.json"))
        return {row["id"]: row["state"] for row in self.read_json("out.json")["results"]}

    def test_every_target_is_judged_or_said_to_be_missing(self):
        self.result("results/a/one.json", "2026-01-02", ("x.fast", 3, 1.6), ("x.slow", 2, 1.4), ("x.other", 1, None))
        self.result("results/b/two.json", "2026-01-02", ("x.value", 0.7, None))
        self.assertEqual(
            self.states(),
            {"x.fast": "met", "x.slow": "missed", "x.value": "met", "x.nobody": "not measured", "x.other": "no target"},
        )

    def test_results_without_a_target_are_counted_and_shown_on_request(self):
        self.result("results/a/one.json", "2026-01-02", ("x.fast", 3, 1.6), ("x.other", 1, None))
        report = ["report", self.path("results"), "--targets", self.targets]
        short, full = self.fine(*report), self.fine(*report, "--all")
        self.assertNotIn("x.other", short)
        self.assertIn("results without a target: 1, shown by --all", short)
        self.assertIn("x.other", full)
        self.assertNotIn("--all", full)

    def test_the_newest_row_of_a_machine_counts(self):
        self.result("results/a/new.json", "2026-02-01", ("x.fast", 3, 1.2))
        self.result("results/a/old.json", "2026-01-01", ("x.fast", 3, 1.9))
        self.assertEqual(self.states()["x.fast"], "missed")

    def test_machines_are_judged_apart(self):
        self.result("results/a/a.json", "2026-01-01", ("x.fast", 3, 1.9), cpu="A")
        self.result("results/a/b.json", "2026-02-01", ("x.fast", 3, 1.2), cpu="B")
        text = self.fine("report", self.path("results"), "--targets", self.targets)
        self.assertIn("1 met, 1 missed, 3 not measured", text)

    def test_regimes_of_a_gpu_are_judged_apart(self):
        rows = [
            {"id": "x.fast", "value": 3, "unit": "u", "rival": "R", "rival_value": 1, "ratio": ratio, "regime": regime}
            for regime, ratio in (("burst", 1.9), ("sustained", 1.2))
        ]
        content = {"date": "2026-01-01", "machine": {"gpu": "G"}, "rows": rows}
        self.write("results/a/gpu.json", json.dumps(content))
        text = self.fine("report", self.path("results"), "--targets", self.targets)
        self.assertIn("1 met, 1 missed, 3 not measured", text)
        self.assertIn("G, burst", text)

    def test_an_empty_folder_measures_nothing(self):
        text = self.fine("report", self.path("results"))  # the targets that come with the program
        self.assertIn("attn.cpu.prefill.bf16.8k", text)
        self.assertIn("0 met, 0 missed", text)

    def test_bad_folders_and_files(self):
        self.fails(1, "nowhere", "report", self.path("nowhere"))
        deep = '{"rows": ' + "[" * 200000 + "]" * 200000 + "}"
        for content in ("{", "[]", "{}", '{"rows": 3}', '{"rows": [{"value": 1}]}', deep):
            self.write("results/bad.json", content)
            self.fails(1, "bad.json", "report", self.path("results"))
        os.remove(self.path("results/bad.json"))
        self.fails(1, "results", "report", self.path("results"), "--targets", self.path("results"))
        for content in (
            "{}",
            '{"targets": [{}]}',
            '{"targets": [{"id": "x", "description": "d", "rival": "R", "ratio": "high"}]}',
        ):
            self.fails(1, "t.json", "report", self.path("results"), "--targets", self.write("t.json", content))


if __name__ == "__main__":
    unittest.main()
