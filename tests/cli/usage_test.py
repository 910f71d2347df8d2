"""Help, exit statuses and one-sentence errors of every command."""

import json
import os
import subprocess
import unittest

from program import PROGRAM, ProgramTest, qkv, run, write_safetensors

COMMANDS = [["info"], ["demo"], ["attend"], ["calibrate"], ["bench", "attention"], ["verify"], ["report"]]


class Usage(ProgramTest):
    def test_help_of_every_command_has_examples_and_json(self):
        listing = self.fine("--help")
        for command in COMMANDS:
            self.assertIn(command[0], listing)
            text = self.fine(*command, "--help")
            self.assertIn("Examples:", text)
            self.assertIn("Usage: longhaul " + " ".join(command) + " [OPTIONS]", text)
            self.assertIn("--json", text)

    def test_version(self):
        self.assertRegex(self.fine("--version"), r"\Alonghaul \d+\.\d+\.\d+\n\Z")

    def test_no_command_shows_the_help_and_is_wrong_usage(self):
        result = run()
        self.assertEqual(result.returncode, 2)
        self.assertIn("Usage: longhaul", result.stderr)

    def test_unknown_command_and_option(self):
        self.fails(2, "frobnicate", "frobnicate")
        for command in COMMANDS:
            self.fails(2, "--frobnicate|required", *command, "--frobnicate")

    def test_a_missing_topic_of_bench(self):
        self.fails(2, "topic", "bench")

    def test_values_outside_their_range(self):
        write_safetensors(self.path("in.safetensors"), qkv(8))
        files = ["--qkv", self.path("in.safetensors"), "--out", self.path("out.safetensors")]
        for option, value in [
            ("--lambda", "1.5"),
            ("--lambda", "-0.1"),
            ("--lambda", "nan"),
            ("--lambda", "abc"),
            ("--phase", "training"),
            ("--rule", "min"),
            ("--window-left", "-2"),
            ("--soft-cap", "-1"),
            ("--threads", "-1"),
            ("--threads", "1e3"),
            ("--scale-factor", "-3"),
            ("--softmax-scale", "-1"),
            ("--kv-layout", "dhn"),
            ("--order", "random"),
            ("--layer", "1"),
        ]:
            self.fails(2, option, "attend", *files, option, value)
        self.fails(2, "--scale-factor|--lambda", "attend", *files, "--lambda", "0.1", "--scale-factor", "3")
        self.fails(2, "--causal|--full", "attend", *files, "--causal", "--full")
        self.fails(2, "multiple of --heads-kv", "bench", "attention", "--heads-q", "3", "--heads-kv", "2")
        self.fails(2, "--sparsity", "bench", "attention", "--sparsity", "1.5")
        self.fails(2, "--isa", "verify", "--isa", "sse")
        self.fails(2, "--seed: -1 is not a whole number from 0 up", "verify", "--seed", "-1")
        self.fails(2, "--repeat: 0 is not a whole number from 1 to 1000", "demo", "--repeat", "0")
        self.fails(1, "case is 99999, but there are cases 0 to", "verify", "--case", "99999")

    def test_options_that_need_the_oracle(self):
        write_safetensors(self.path("in.safetensors"), qkv(8))
        files = ["--qkv", self.path("in.safetensors"), "--out", self.path("out.safetensors")]
        for option in [
            ("--order", "ascending"),
            ("--group-rows", "64"),
            ("--block-keys", "128"),
            ("--tile-keys", "128"),
            ("--one-part",),
        ]:
            self.fails(2, "needs --reference", "attend", *files, *option)


class Info(ProgramTest):
    def test_shows_machine_kernels_and_settings(self):
        text = self.fine("info", "--json", self.path("info.json"))
        for word in ["longhaul", "CUDA", "cores", "prefill", "decode", "LONGHAUL_THREADS", "LONGHAUL_ISA"]:
            self.assertIn(word, text)
        info = self.read_json("info.json")
        self.assertIn(info["isa"], info["usable_isas"])
        self.assertEqual(info["kernels"]["decode"]["group_rows"], 0)
        self.assertEqual(info["unknown_settings"], [])
        # Without a GPU the reason is there; with one, what it is.
        self.assertEqual(info["why_no_gpu"] == "", len(info["gpus"]) > 0)
        self.assertEqual(info["build"]["cuda_kernels"], info["build"]["cuda_toolkit"] != "")

    def test_a_setting_in_the_environment(self):
        self.fine("info", "--json", self.path("info.json"), env={"LONGHAUL_ISA": "portable", "LONGHAUL_THREADS": "1"})
        info = self.read_json("info.json")
        self.assertEqual((info["isa"], info["threads"]), ("portable", "1"))
        self.assertTrue(
            all(s["from_environment"] for s in info["settings"] if s["name"] in ("LONGHAUL_ISA", "LONGHAUL_THREADS"))
        )

    def test_a_wrong_setting_is_named_and_fails(self):
        result = run("info", env={"LONGHAUL_THREADS": "many"})
        self.assertEqual(result.returncode, 1)
        self.assertIn("LONGHAUL_THREADS is 'many'", result.stdout)

    def test_an_unknown_setting_is_named(self):
        self.assertIn("LONGHAUL_TREADS is set", self.fine("info", env={"LONGHAUL_TREADS": "2"}))

    def test_json_to_standard_output(self):
        result = run("info", "--json", "-")
        self.assertEqual(result.returncode, 0)
        self.assertIn("version", json.loads(result.stdout))


class Output(ProgramTest):
    def test_a_full_disk_is_reported(self):
        with open("/dev/full", "w", encoding="utf-8") as full:
            result = subprocess.run([PROGRAM, "info"], stdout=full, stderr=subprocess.PIPE, text=True, check=False)
        self.assertEqual(result.returncode, 1)
        self.assertIn("No space left on device", result.stderr)

    def test_a_closed_pipe_is_reported(self):
        reader, writer = os.pipe()
        os.close(reader)
        result = subprocess.run([PROGRAM, "info"], stdout=writer, stderr=subprocess.PIPE, text=True, check=False)
        os.close(writer)
        self.assertEqual(result.returncode, 1)
        self.assertIn("Broken pipe", result.stderr)

    def test_a_json_path_that_cannot_be_written(self):
        self.fails(1, "--json", "info", "--json", self.path("no/such/folder/info.json"))
        self.fails(1, "--json", "info", "--json", self.folder)


if __name__ == "__main__":
    unittest.main()
