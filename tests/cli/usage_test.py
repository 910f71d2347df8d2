"""Help, exit statuses and one-sentence errors of every command."""

import json
import unittest

from program import ProgramTest, qkv, run, write_safetensors

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

    def test_whole_numbers_outside_their_range(self):
        write_safetensors(self.path("in.safetensors"), qkv(8))
        attend = ["attend", "--qkv", self.path("in.safetensors"), "--out", self.path("out.safetensors")]
        calibrate = ["calibrate", "--qkv", self.path("in.safetensors")]
        bench, no_limit = ["bench", "attention"], 2**63 - 1
        for command, option, low, high in [
            (attend, "--threads", 0, 1024),
            (attend, "--window-left", -1, no_limit),
            (attend, "--layer", 0, 1 << 20),
            (attend, "--group-rows", 0, 1 << 20),
            (attend, "--block-keys", 1, 1 << 20),
            (attend, "--tile-keys", 1, 1 << 20),
            (calibrate, "--threads", 0, 1024),
            (bench, "--length", 1, 1 << 24),
            (bench, "--batch", 1, 1 << 16),
            (bench, "--query-tokens", 0, 1 << 24),
            (bench, "--heads-q", 1, 1024),
            (bench, "--heads-kv", 1, 1024),
            (bench, "--page-size", 0, 256),
            (bench, "--threads", 0, 1024),
            (bench, "--repeat", 1, 10000),
            (["demo"], "--threads", 0, 1024),
            (["demo"], "--repeat", 1, 1000),
            (["verify"], "--seed", 0, no_limit),
            (["verify"], "--case", 0, 1 << 20),
        ]:
            # Beyond the range, beyond 32 and 64 bits where a careless reading would come round to an allowed value.
            for value in (low - 1, high + 1, (1 << 64) + low + 1, -(1 << 64) + low + 1, (1 << 80), "1.5", "0x1", "1 "):
                with self.subTest(option=option, value=value):
                    limit = "up" if high == no_limit and (value == low - 1 or isinstance(value, str)) else f"to {high}"
                    self.fails(
                        2, f"{option}: {value} is not a whole number from {low} {limit}", *command, option, value
                    )
        for value in ((1 << 64) + 64, (1 << 32) + 64):
            self.fails(2, f"--head-size: {value} is not a whole number from 64 to 256", *bench, "--head-size", value)
        self.fails(2, "--head-size: 100 not in {64,128,256}", *bench, "--head-size", 100)
        # Leading zeros do not make a number octal.
        self.fails(1, "case is 10000, but there are cases 0 to", "verify", "--case", "010000")

    def test_what_the_bench_on_a_cuda_device_refuses_before_it_makes_data(self):
        bench = ["bench", "attention", "--device", "cuda"]
        decode = [*bench, "--phase", "decode"]
        for command in (bench, decode):
            for options, what in [
                (["--threads", "2"], "--threads does not go with --device cuda"),
                (["--dtype", "float32"], "--dtype float32 does not go with --device cuda"),
                (["--kv-dtype", "float8_e4m3"], "--kv-dtype float8_e4m3 does not go with --device cuda"),
                (["--kv-dtype", "float16"], "--kv-dtype float16 must be --dtype bfloat16"),
                (["--head-size", "256"], "--head-size 256 does not go with --device cuda"),
                (["--data", "captured", "--length", "4096"], "--length does not go with --data captured"),
            ]:
                self.fails(2, what, *command, *options)
        self.fails(2, "--batch does not go with --data captured", *bench, "--data", "captured", "--batch", "2")
        self.fails(2, "--query-tokens 17 does not go with --phase decode", *decode, "--query-tokens", "17")
        # 64 query and 4 KV heads unless said otherwise.
        self.fails(2, "5 query tokens and 16 query heads a KV head are 80 rows", *decode, "--query-tokens", "5")
        self.fails(2, "128 rows", *decode, "--heads-q", "128", "--heads-kv", "1")

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
        for phase in ("prefill", "decode"):
            self.assertEqual(f"{phase} on CUDA" in text, info["build"]["cuda_kernels"])
            self.assertEqual(f"{phase}_on_cuda" in info["kernels"], info["build"]["cuda_kernels"])

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


if __name__ == "__main__":
    unittest.main()
