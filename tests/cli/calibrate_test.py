"""longhaul calibrate on small made-up captures: its tables and files, and that settings give what they promise."""

import os
import unittest

from program import ProgramTest, qkv, write_safetensors


class Calibrate(ProgramTest):
    def setUp(self):
        super().setUp()
        self.capture = self.path("capture.safetensors")
        tensors = {}
        for layer in (0, 3):
            tensors.update(qkv(1024, heads_q=2, heads_kv=1, prefix=f"layer.{layer}.", query_scale=4.0, run=64))
        write_safetensors(self.capture, tensors)

    def test_both_phases_and_all_files(self):
        files = {name: self.path(name) for name in ("own.yaml", "trtllm.yaml", "checkpoint.json", "result.json")}
        text = self.fine(
            *("calibrate", "--qkv", self.capture, "--target", "0.5", "--name", "toy"),
            *("--out", files["own.yaml"], "--trtllm", files["trtllm.yaml"]),
            *("--checkpoint", files["checkpoint.json"], "--json", files["result.json"]),
        )
        for words in ("prefill", "decode", "layer 3 head 1", "TensorRT-LLM", "not fitted"):
            self.assertIn(words, text)
        self.assertIn("skip_softmax", self.read("trtllm.yaml"))
        self.assertIn("toy", self.read("own.yaml"))
        self.assertIn("sparse_attention_config", self.read_json("checkpoint.json"))
        result = self.read_json("result.json")
        for phase in ("prefill", "decode"):
            rows = result[phase]["held_out"]
            self.assertTrue(rows)
            # The shortest of these texts has too few blocks for a law to hold.
            for row in rows:
                if row["context_length"] > 700 and row["target"] == 0.5:
                    self.assertAlmostEqual(row["achieved"], 0.5, delta=0.2)
            self.assertEqual(result["tensorrt_llm"][phase]["order"], "ascending")
        self.assertEqual(result["tensorrt_llm"]["prefill"]["geometry"]["group_rows"], 64)

    def test_the_settings_reach_the_target_in_attend(self):
        self.fine(
            "calibrate", "--qkv", self.capture, "--phase", "prefill", "--target", "0.4", "--out", self.path("own.yaml")
        )
        self.fine(
            *("attend", "--qkv", self.capture, "--prefix", "layer.3.", "--out", self.path("out.safetensors")),
            *("--config", self.path("own.yaml"), "--json", self.path("r.json")),
        )
        self.assertAlmostEqual(self.read_json("r.json")["sparsity"], 0.4, delta=0.08)

    def test_held_out_files(self):
        write_safetensors(self.path("other.safetensors"), qkv(768, heads_q=2, heads_kv=1, query_scale=4.0, run=64))
        self.fine(
            *("calibrate", "--qkv", self.capture, "--held-out", self.path("other.safetensors")),
            *("--phase", "decode", "--rule", "sum", "--json", self.path("r.json")),
        )
        result = self.read_json("r.json")["decode"]
        self.assertEqual(result["rule"], "sum")
        self.assertTrue(all("other" in row["sample"] for row in result["held_out"]))

    def test_settings_by_layer_need_the_layer(self):
        self.fine(
            *("calibrate", "--qkv", self.capture, "--phase", "prefill", "--granularity", "layer"),
            *("--out", self.path("own.yaml")),
        )
        attend = ["attend", "--qkv", self.capture, "--prefix", "layer.3.", "--out", self.path("out.safetensors")]
        self.fails(1, "--layer", *attend, "--config", self.path("own.yaml"))
        self.fine(*attend, "--config", self.path("own.yaml"), "--layer", "3")

    def test_the_lambda_and_softmax_scale_of_the_file(self):
        tensors = qkv(512, heads_q=2, heads_kv=1, query_scale=4.0)
        capture = [
            "calibrate",
            "--phase",
            "prefill",
            "--qkv",
            self.path("a.safetensors"),
            "--json",
            self.path("r.json"),
        ]
        write_safetensors(self.path("a.safetensors"), tensors)
        self.assertNotIn("lambda in", self.fine(*capture))
        plain = self.read_json("r.json")["prefill"]
        write_safetensors(self.path("a.safetensors"), {**tensors, "lambda": ("F32", [1, 2], [0.1, 0.1])})
        text = self.fine(*capture)
        self.assertIn("note: the lambda in a.safetensors is not used, since calibration measures many of its own", text)
        self.assertEqual(self.read_json("r.json")["prefill"], plain)
        write_safetensors(self.path("a.safetensors"), tensors, {"softmax_scale": "0.0625"})
        self.fine(*capture)
        self.assertNotEqual(self.read_json("r.json")["prefill"], plain)
        write_safetensors(self.path("a.safetensors"), tensors, {"softmax_scale": "0.0625,0.125"})
        self.fails(1, "one number for each of its 1 layers", *capture)

    def test_wrong_usage(self):
        self.fails(1, "Python package", "calibrate", "--model", "gpt2")
        self.fails(2, "--qkv", "calibrate")
        self.fails(2, "--target", "calibrate", "--qkv", self.capture, "--target", "1.5")
        self.fails(1, "nowhere", "calibrate", "--qkv", self.path("nowhere"))
        self.fails(1, "--out", "calibrate", "--qkv", self.capture, "--out", self.path("no/such/x.yaml"))
        write_safetensors(self.path("chunk.safetensors"), qkv(tokens=16, kv_tokens=64))
        self.fails(1, "capture", "calibrate", "--qkv", self.path("chunk.safetensors"))
        os.remove(self.capture)
        self.fails(1, "capture.safetensors", "calibrate", "--qkv", self.capture)


if __name__ == "__main__":
    unittest.main()
