"""longhaul demo on small made-up activations: the table, the picture, the settings."""

import os
import unittest
import xml.etree.ElementTree as xml

from program import ProgramTest, qkv, write_safetensors


class Demo(ProgramTest):
    def test_table_picture_and_json(self):
        tensors = {}
        for layer in (2, 9):
            tensors.update(
                qkv(1024, heads_q=2, heads_kv=1, dtype="BF16", prefix=f"layer.{layer}.", query_scale=4.0, run=64)
            )
        os.makedirs(self.path("data"))
        write_safetensors(
            self.path("data/a.safetensors"),
            tensors,
            {"model": "Toy", "weights": "drawn at random", "text": "Noise"},
        )
        text = self.fine(
            "demo",
            "--data",
            self.path("data"),
            "--out",
            self.path("out"),
            "--repeat",
            "1",
            "--json",
            self.path("demo.json"),
        )
        for words in [
            "Toy, weights drawn at random, reading Noise, 1024 tokens; layers 2 and 9",
            "PREFILL",
            "DECODE",
            "published order",
            "lambda",
            "none",
            "0.001",
            "0.3",
        ]:
            self.assertIn(words, text)
        demo = self.read_json("demo.json")
        for phase in ("prefill", "decode"):
            rows = demo[phase]["rows"]
            self.assertEqual([row["lambda"] for row in rows], ["none", 0, 0.001, 0.003, 0.01, 0.03, 0.1, 0.3])
            self.assertEqual(rows[1]["output_error"], 0)
            sparsity = [row["sparsity"] for row in rows[1:]]
            self.assertEqual(sparsity, sorted(sparsity))
            self.assertGreater(sparsity[-1], sparsity[0])
            for row in rows[2:]:
                self.assertLess(row["dropped_mass"], 1)
        root = xml.parse(demo["picture"]).getroot()
        self.assertTrue(root.tag.endswith("svg"))
        self.assertIn(demo["picture"], text)

    def test_bad_data(self):
        self.fails(1, "nowhere", "demo", "--data", self.path("nowhere"))
        os.makedirs(self.path("empty"))
        self.fails(1, "no .safetensors", "demo", "--data", self.path("empty"))
        write_safetensors(self.path("plain.safetensors"), qkv(64))
        self.fails(1, "layer.0.query", "demo", "--data", self.path("plain.safetensors"))
        write_safetensors(
            self.path("unlike.safetensors"), {**qkv(1024, prefix="layer.0."), **qkv(512, prefix="layer.1.")}
        )
        self.fails(1, "must agree", "demo", "--data", self.path("unlike.safetensors"))
        for name, values in {"sinks": [0.0] * 4, "lambda": [0.1] * 4}.items():
            more = {f"layer.0.{name}": ("F32", [1, 4] if name == "lambda" else [4], values)}
            write_safetensors(self.path("more.safetensors"), {**qkv(64, prefix="layer.0."), **more})
            self.fails(1, f"layer.0.{name}", "demo", "--data", self.path("more.safetensors"))
        write_safetensors(self.path("short.safetensors"), qkv(100, prefix="layer.0."))
        self.fails(1, "100 tokens", "demo", "--data", self.path("short.safetensors"))

    def test_a_folder_that_cannot_be_made(self):
        self.fails(1, "--out: cannot make the folder '/dev/null/x': Not a directory", "demo", "--out", "/dev/null/x")


if __name__ == "__main__":
    unittest.main()
