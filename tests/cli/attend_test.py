"""longhaul attend on small tensors: results against plain Python, every flag, every kind of bad file."""

import os
import pathlib
import resource
import signal
import struct
import subprocess
import time
import unittest

from program import (
    PROGRAM,
    ProgramTest,
    dense_attention,
    normal,
    qkv,
    read_safetensors,
    run_on_terminal,
    write_safetensors,
)


class AttendTest(ProgramTest):
    def write(self, tensors, name="in.safetensors"):
        write_safetensors(self.path(name), tensors)
        return self.path(name)

    def attend(self, source, *options, out="out.safetensors"):
        """(metadata, tensors, standard output)."""
        text = self.fine("attend", "--qkv", source, "--out", self.path(out), *options)
        return *read_safetensors(self.path(out)), text


class Results(AttendTest):
    def test_dense_output_and_log_sum_exp(self):
        tensors = qkv(tokens=40, heads_q=4, heads_kv=2)
        metadata, out, _ = self.attend(self.write(tensors))
        self.assertEqual(out["output"][1], [40, 4, 64])
        self.assertEqual(out["log_sum_exp"][1], [4, 40])
        for token, head in [(0, 0), (17, 1), (39, 3)]:
            row, lse = dense_attention(tensors, token, head)
            got = out["output"][2][(token * 4 + head) * 64 :][:64]
            self.assertLess(max(abs(a - b) for a, b in zip(row, got, strict=True)), 1e-5)
            self.assertAlmostEqual(out["log_sum_exp"][2][head * 40 + token], lse, places=4)
        self.assertEqual(metadata["lambda"], "none")
        self.assertEqual(metadata["phase"], "prefill")
        self.assertEqual(sum(out["counters"][2][1::4]), 0)
        self.assertEqual(out["counters"][2][0], 40 * 41 // 2)

    def test_lambda_zero_gives_the_bits_of_dense(self):
        source = self.write(qkv(70))
        self.attend(source, out="dense.safetensors")
        self.attend(source, "--lambda", "0", out="zero.safetensors")
        dense, zero = (read_safetensors(self.path(f"{name}.safetensors"))[1] for name in ("dense", "zero"))
        self.assertEqual(dense["output"], zero["output"])

    def test_skipping_counts_and_mask_agree(self):
        _, out, text = self.attend(
            self.write(qkv(160, query_scale=4.0)), "--lambda", "0.05", "--skip-mask", "--json", self.path("r.json")
        )
        result = self.read_json("r.json")
        self.assertGreater(result["sparsity"], 0.05)
        self.assertIn(2, out["skip_mask"][2])
        visible, skipped = sum(out["counters"][2][0::4]), sum(out["counters"][2][1::4])
        self.assertAlmostEqual(result["sparsity"], skipped / visible)
        self.assertIn(f"{100 * skipped / visible:.1f} %", text)

    def test_the_oracle_agrees_and_prints_the_differences(self):
        source = self.write(qkv(160, query_scale=4.0))
        for options in [
            (),
            ("--lambda", "0.05"),
            ("--lambda", "0.05", "--rule", "sum"),
            ("--window-left", "40"),
            ("--soft-cap", "20"),
            ("--full",),
        ]:
            metadata, out, text = self.attend(
                source, *options, "--reference", "--skip-mask", "--json", self.path("r.json")
            )
            difference = self.read_json("r.json")["difference"]
            self.assertLess(difference["relative_rms"], 1e-5, options)
            self.assertTrue(difference["scores_equal"], options)
            self.assertEqual(difference["mask_blocks_differing"], 0, options)
            self.assertIn("kernel against oracle", text)
            self.assertIn("oracle", metadata["source"])
            self.assertEqual(out["dropped_mass"][1], [4, 160])

    def test_the_published_order_and_voting_group(self):
        source = self.write(qkv(512, query_scale=4.0))
        published = ["--order", "ascending", "--group-rows", "64", "--block-keys", "128", "--tile-keys", "128"]
        metadata, out, text = self.attend(source, "--lambda", "0.2", "--reference", "--skip-mask", *published)
        self.assertEqual(
            (metadata["order"], metadata["group_rows"], metadata["block_keys"]), ("ascending", "64", "128")
        )
        self.assertEqual(out["skip_mask"][1], [4, 8, 4])
        self.assertIn("visits or votes otherwise", text)

    def test_threads_do_not_change_the_bits(self):
        source = self.write(qkv(130, dtype="BF16", query_scale=4.0))
        for threads in (1, 2, 5):
            self.attend(source, "--lambda", "0.02", "--threads", threads, out=f"{threads}.safetensors")
        one, two, five = (read_safetensors(self.path(f"{n}.safetensors"))[1] for n in (1, 2, 5))
        self.assertEqual(one, two)
        self.assertEqual(one, five)


class Inputs(AttendTest):
    def test_a_ragged_batch_equals_its_requests(self):
        tensors = qkv(50)
        for dtype in ("I32", "I64"):
            batch = dict(tensors, cu_seqlens_q=(dtype, [3], [0, 20, 50]), cu_seqlens_kv=(dtype, [3], [0, 20, 50]))
            _, out, _ = self.attend(self.write(batch))
            first = {name: (t[0], [20, *t[1][1:]], t[2][: 20 * t[1][1] * t[1][2]]) for name, t in tensors.items()}
            _, alone, _ = self.attend(self.write(first))
            self.assertEqual(out["output"][2][: 20 * 4 * 64], alone["output"][2])

    def test_pages_equal_ragged_keys(self):
        tensors = qkv(tokens=3, kv_tokens=64)
        _, ragged, _ = self.attend(self.write(tensors), "--phase", "decode")
        paged = dict(tensors)
        for name in ("key", "value"):
            values, page = tensors[name][2], 16 * 2 * 64
            pages = [values[i * page : (i + 1) * page] for i in range(4)]
            paged[name] = ("F32", [4, 16, 2, 64], pages[2] + pages[0] + pages[3] + pages[1])
        paged["page_table"] = ("I32", [1, 4], [1, 3, 0, 2])
        paged["kv_lengths"] = ("I32", [1], [64])
        _, out, _ = self.attend(self.write(paged), "--phase", "decode")
        self.assertEqual(out["output"], ragged["output"])

    def test_heads_first_layout(self):
        tensors = qkv(24)

        def heads_first(tensor):
            dtype, (tokens, heads, d), values = tensor
            return (
                dtype,
                [heads, tokens, d],
                [values[(t * heads + h) * d + i] for h in range(heads) for t in range(tokens) for i in range(d)],
            )

        _, out, _ = self.attend(self.write(tensors))
        turned = {name: heads_first(tensor) for name, tensor in tensors.items()}
        _, same, _ = self.attend(self.write(turned), "--query-layout", "hnd", "--kv-layout", "hnd")
        self.assertEqual(out["output"], same["output"])

    def test_a_prefix_chooses_among_layers(self):
        both = {**qkv(16, prefix="layer.0."), **qkv(24, prefix="layer.7.")}
        _, out, _ = self.attend(self.write(both), "--prefix", "layer.7.")
        self.assertEqual(out["output"][1][0], 24)
        self.fails(
            1,
            "layer.3.query",
            "attend",
            "--qkv",
            self.path("in.safetensors"),
            "--out",
            self.path("x.safetensors"),
            "--prefix",
            "layer.3.",
        )

    def test_layers_without_a_prefix_are_listed(self):
        self.write({**qkv(16, prefix="layer.0."), **qkv(24, prefix="layer.7.")})
        files = ["--qkv", self.path("in.safetensors"), "--out", self.path("x.safetensors")]
        self.fails(
            1, "no tensor 'query', but the layers 0, 7: choose one with --prefix, as in 'layer.0.'", "attend", *files
        )

    def test_the_softmax_scale_of_the_file_is_that_of_its_layer(self):
        tensors = {**qkv(64, prefix="layer.0."), **qkv(64, prefix="layer.7.")}
        write_safetensors(self.path("in.safetensors"), tensors, {"softmax_scale": "0.5,0.25"})
        _, out, said = self.attend(self.path("in.safetensors"), "--prefix", "layer.7.")
        self.assertIn("softmax scale 0.25, from the file's metadata", said)
        _, same, _ = self.attend(self.path("in.safetensors"), "--prefix", "layer.7.", "--softmax-scale", "0.25")
        _, other, _ = self.attend(self.path("in.safetensors"), "--prefix", "layer.7.", "--softmax-scale", "0.125")
        self.assertEqual(out["output"], same["output"])
        self.assertNotEqual(out["output"], other["output"])

    def test_lambda_is_shown_as_it_was_given(self):
        _, _, said = self.attend(self.write(qkv(64)), "--lambda", "0.01", "--json", self.path("r.json"))
        self.assertIn("lambda 0.01,", said)
        self.assertEqual(self.read_json("r.json")["lambda"], 0.01)

    def test_lambda_and_sinks_from_the_file(self):
        tensors = dict(
            qkv(160, query_scale=4.0),
            sinks=("F32", [4], [0.0, 1.0, 2.0, 3.0]),
            **{"lambda": ("F32", [1, 4], [0.0, 0.1, 0.1, 0.1])},
        )
        self.attend(self.write(tensors), "--json", self.path("r.json"))
        by_head = self.read_json("r.json")["sparsity_by_head"]
        self.assertEqual(by_head[0], 0)
        self.assertGreater(min(by_head[1:]), 0)

    def test_what_a_flag_replaces_in_the_file_is_said(self):
        of_file = {"lambda": ("F32", [1, 4], [0.3] * 4)}
        write_safetensors(self.path("in.safetensors"), {**qkv(160), **of_file}, {"softmax_scale": "0.2"})
        source = self.path("in.safetensors")
        write_safetensors(self.path("plain.safetensors"), qkv(160))
        self.fine("calibrate", "--qkv", self.path("plain.safetensors"), "--phase", "prefill", "--target", "0.3",
                  "--out", self.path("own.yaml"))  # fmt: skip
        _, ours, text = self.attend(source)
        self.assertIn("note: lambda is that of the file", text)
        self.assertIn("note: softmax scale 0.2, from the file's metadata", text)
        same = ["--lambda", "0.3", "--softmax-scale", "0.2"]
        _, given, text = self.attend(self.path("plain.safetensors"), *same)
        self.assertEqual(ours["output"], given["output"])
        self.assertNotIn("note: lambda", text)
        for flag, value in [("--lambda", "0.01"), ("--scale-factor", "1.6"), ("--config", self.path("own.yaml"))]:
            flags = [flag, value, "--softmax-scale", "0.125"]
            _, replaced, text = self.attend(source, *flags, "--json", self.path("r.json"))
            self.assertIn(f"note: the file's lambda is not used, since {flag} gives another", text)
            self.assertIn("the softmax scale 0.2 in the file's metadata is not used, since --softmax-scale gives 0.125",
                          text)  # fmt: skip
            self.assertEqual(len([note for note in self.read_json("r.json")["notes"] if "not used" in note]), 2)
            _, without_file, _ = self.attend(self.path("plain.safetensors"), *flags)
            self.assertEqual(replaced["output"], without_file["output"])

    def test_a_softmax_scale_of_other_tensors_is_not_used_silently(self):
        tensors = {**qkv(16), **qkv(16, prefix="layer.0.")}
        write_safetensors(self.path("in.safetensors"), tensors, {"softmax_scale": "0.2"})
        _, _, text = self.attend(self.path("in.safetensors"))
        self.assertIn("is that of its layers, not of 'query', so it is not used", text)

    def test_a_batch_of_no_requests_with_every_form_of_threshold(self):
        empty = {name: ("BF16", [0, 2, 64], []) for name in ("query", "key", "value")}
        source = self.write({**empty, "cu_seqlens_q": ("I32", [1], [0]), "cu_seqlens_kv": ("I32", [1], [0])})
        for options in ((), ("--lambda", "0.1"), ("--scale-factor", "5")):
            _, out, _ = self.attend(source, *options)
            self.assertEqual(out["output"][1], [0, 2, 64])

    def test_a_scale_factor_is_divided_by_the_context_length(self):
        source = self.write(qkv(160, query_scale=4.0))
        _, factor, _ = self.attend(source, "--scale-factor", "8", out="a.safetensors")
        _, plain, _ = self.attend(source, "--lambda", "0.05", out="b.safetensors")
        self.assertEqual(factor["output"], plain["output"])
        text = self.fine("attend", "--qkv", source, "--out", self.path("c.safetensors"), "--scale-factor", "1000")
        self.assertIn("lambda was cut to 1", text)


class Configurations(AttendTest):
    def test_a_file_of_tensorrt_llm(self):
        source = self.write(qkv(160, query_scale=4.0))
        with open(self.path("trt.yaml"), "w", encoding="utf-8") as file:
            file.write("sparse_attention_config:\n  algorithm: skip_softmax\n  threshold_scale_factor: 8\n")
        _, out, _ = self.attend(source, "--config", self.path("trt.yaml"), out="a.safetensors")
        _, plain, _ = self.attend(source, "--scale-factor", "8", out="b.safetensors")
        self.assertEqual(out["output"], plain["output"])

    def test_a_broken_file(self):
        source = self.write(qkv(16))
        for text in ("", "sparse_attention_config: [", "version: 99\n", "{}"):
            with open(self.path("bad.yaml"), "w", encoding="utf-8") as file:
                file.write(text)
            self.fails(
                1,
                "bad.yaml",
                "attend",
                "--qkv",
                source,
                "--out",
                self.path("out.safetensors"),
                "--config",
                self.path("bad.yaml"),
            )
        self.fails(
            1,
            "none.yaml",
            "attend",
            "--qkv",
            source,
            "--out",
            self.path("out.safetensors"),
            "--config",
            self.path("none.yaml"),
        )


class BadFiles(AttendTest):
    def refuse(self, pattern, *options):
        self.fails(
            1, pattern, "attend", "--qkv", self.path("in.safetensors"), "--out", self.path("out.safetensors"), *options
        )

    def test_missing_empty_and_lying_files(self):
        self.refuse("in.safetensors")
        good = b""
        self.write(qkv(8))
        with open(self.path("in.safetensors"), "rb") as file:
            good = file.read()
        for raw in (
            b"",
            b"abc",
            struct.pack("<Q", 1 << 60) + good[8:],
            good[:-1],
            good + b"x",
            good.replace(b'"F32"', b'"F33"', 1),
        ):
            with open(self.path("in.safetensors"), "wb") as file:
                file.write(raw)
            self.refuse("in.safetensors")

    def test_tensors_that_do_not_fit(self):
        good = qkv(8)
        changes = {
            "no tensor 'value'": {"value": None},
            "query": {"query": ("F32", [8 * 4, 64], good["query"][2])},
            "key": {"key": ("BF16", [8, 2, 64], good["key"][2])},
            "heads": {
                "key": ("F32", [8, 3, 64], normal(8 * 3 * 64, 5)),
                "value": ("F32", [8, 3, 64], normal(8 * 3 * 64, 6)),
            },
            "cu_seqlens_q": {"cu_seqlens_q": ("I32", [2], [0, 9])},
            "cu_seqlens_kv": {"cu_seqlens_kv": ("I64", [2], [0, 1 << 40])},
            "sinks": {"sinks": ("F32", [3], [0.0] * 3)},
            "lambda": {"lambda": ("F32", [1, 4], [0.0, 0.1, 0.2, 1.5])},
        }
        for pattern, change in changes.items():
            tensors = {name: tensor for name, tensor in {**good, **change}.items() if tensor}
            self.write(tensors)
            self.refuse(pattern)

    def test_output_that_cannot_be_written(self):
        source = self.write(qkv(8))
        self.fails(1, "--out", "attend", "--qkv", source, "--out", self.path("no/such/out.safetensors"))
        self.fails(1, "--out", "attend", "--qkv", source, "--out", self.folder)

    def test_an_output_over_an_input_or_another_output(self):
        source = self.write(qkv(8))
        os.symlink(source, self.path("link.safetensors"))
        out = self.path("o.safetensors")
        for options in (
            ("--out", source),
            ("--out", self.path("link.safetensors")),
            ("--out", out, "--json", source),
            ("--out", out, "--json", os.path.join(self.folder, ".", "o.safetensors")),
        ):
            before = pathlib.Path(source).read_bytes()
            self.fails(1, "a file of its own", "attend", "--qkv", source, *options)
            self.assertEqual(pathlib.Path(source).read_bytes(), before)

    def test_a_file_size_limit_leaves_nothing_behind(self):
        source = self.write(qkv(160))

        def limit():
            resource.setrlimit(resource.RLIMIT_FSIZE, (8192, 8192))

        out = self.path("o.safetensors")
        self.fails(1, "o.safetensors", "attend", "--qkv", source, "--out", out, preexec_fn=limit)

    def test_decode_with_too_many_query_tokens(self):
        self.write(qkv(17))
        self.refuse("16", "--phase", "decode")


class Terminal(AttendTest):
    def test_the_oracle_shows_its_progress(self):
        source = self.write(qkv(1536, heads_q=16, heads_kv=1))
        status, said = run_on_terminal(
            *("attend", "--qkv", source, "--out", self.path("out.safetensors"), "--reference"),
            env={"LONGHAUL_THREADS": "1"},
        )
        self.assertEqual(status, 0, said)
        self.assertRegex(said, r"oracle \S+ +\d+ %")
        self.assertTrue(said.endswith("\r\033[K"), "the bar is erased at the end")


class Interrupt(AttendTest):
    def test_control_c_leaves_no_partial_file(self):
        source = self.write({**qkv(2048, heads_q=16, heads_kv=16)})
        before = sorted(os.listdir(self.folder))
        process = subprocess.Popen(
            [
                PROGRAM,
                "attend",
                "--qkv",
                source,
                "--out",
                self.path("out.safetensors"),
                "--reference",
                "--threads",
                "1",
            ],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )
        time.sleep(0.3)
        process.send_signal(signal.SIGINT)
        process.communicate(timeout=60)
        self.assertEqual(process.returncode, -signal.SIGINT)
        self.assertEqual(sorted(os.listdir(self.folder)), before)


if __name__ == "__main__":
    unittest.main()
