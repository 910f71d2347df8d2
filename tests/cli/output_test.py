"""What becomes of results and exit statuses where output is closed, full, linked, interrupted or named unusually."""

import contextlib
import errno
import json
import os
import resource
import signal
import subprocess
import time
import unittest

from program import PROGRAM, ProgramTest, qkv, read_safetensors, run, write_safetensors


def redirected(redirections, *arguments):
    """One call with the redirections of a shell, as in '>&- 2>/dev/full'."""
    return subprocess.run(
        ["sh", "-c", f'exec "$0" "$@" {redirections}', PROGRAM, *map(str, arguments)],
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )


class Streams(ProgramTest):
    BROKEN = (">/dev/full", ">&-", "<&- >&- 2>&-")

    def commands(self):
        """Commands that write files, and those files."""
        tensors = {}
        for layer in (0, 1):
            tensors.update(
                qkv(1024, heads_q=2, heads_kv=1, dtype="BF16", prefix=f"layer.{layer}.", query_scale=4.0, run=64)
            )
        capture = self.path("in.safetensors")
        write_safetensors(capture, tensors)
        result = ["--json", self.path("out.json")]
        return [
            (
                ["attend", "--qkv", capture, "--prefix", "layer.1.", "--out", self.path("out.safetensors"), *result],
                ["out.safetensors", "out.json"],
            ),
            (
                [
                    *("calibrate", "--qkv", capture, "--phase", "decode", "--out", self.path("out.yaml")),
                    *("--trtllm", self.path("trtllm.yaml"), "--checkpoint", self.path("out.ckpt.json"), *result),
                ],
                ["out.yaml", "trtllm.yaml", "out.ckpt.json", "out.json"],
            ),
            (
                ["demo", "--data", capture, "--repeat", "1", "--out", self.path("demo"), *result],
                ["demo/longhaul.yaml", "demo/trtllm.yaml", "demo/skipping.svg", "out.json"],
            ),
            (
                ["bench", "attention", "--length", "256", "--repeat", "1", "--no-ceilings", "--dense-only", *result],
                ["out.json"],
            ),
            (["info", *result], ["out.json"]),
        ]

    def test_files_are_written_where_standard_output_fails(self):
        for command, files in self.commands():
            for redirections in self.BROKEN:
                with self.subTest(command=command[0], redirections=redirections):
                    result = redirected(redirections, *command)
                    self.assertEqual(result.returncode, 1, result.stderr)
                    if "2>" not in redirections:
                        reason = os.strerror(errno.ENOSPC if "full" in redirections else errno.EBADF)
                        name = " ".join(["longhaul", *command[: 2 if command[0] == "bench" else 1]])
                        self.assertEqual(result.stderr, f"{name}: cannot write to standard output: {reason}\n")
                    for file in files:
                        with open(self.path(file), encoding="latin-1") as written:
                            content = written.read()
                        self.assertNotIn("cannot write", content)
                        self.assertTrue(content)
                        if file.endswith(".json"):
                            json.loads(content)
                        os.remove(self.path(file))

    def test_without_a_file_bench_stops_at_the_first_failure(self):
        result = redirected(
            ">/dev/full", "bench", "attention", "--length", "64", "--repeat", "1", "--no-ceilings", "--dense-only"
        )
        self.assertEqual(result.returncode, 1)
        self.assertIn("standard output", result.stderr)

    def test_help_and_version_report_a_failing_standard_output(self):
        for arguments in (["--help"], ["--version"], ["attend", "--help"], ["info", "--json", "-"]):
            for redirections in (">/dev/full", ">&-"):
                result = redirected(redirections, *arguments)
                self.assertEqual(result.returncode, 1)
                self.assertRegex(result.stderr, r"cannot write to standard output: [^\n]+\n\Z")

    def test_a_failing_standard_error_changes_no_status(self):
        for redirections in ("2>&-", "2>/dev/full", "<&- 2>&-"):
            self.assertEqual(redirected(redirections, "frobnicate").returncode, 2)
            self.assertEqual(redirected(redirections).returncode, 2)
            self.assertEqual(redirected(redirections, "verify", "--case", "99999").returncode, 1)
            self.assertEqual(redirected(redirections, "report", self.path("nowhere")).returncode, 1)
            result = redirected(redirections, "info")
            self.assertEqual((result.returncode, result.stdout[:9]), (0, "longhaul "))
            # The text goes to standard error here, and nobody misses it.
            result = redirected(redirections, "info", "--json", "-")
            self.assertEqual(result.returncode, 0)
            self.assertIn("version", json.loads(result.stdout))

    def test_a_closed_pipe_is_reported(self):
        reader, writer = os.pipe()
        os.close(reader)
        result = subprocess.run([PROGRAM, "info"], stdout=writer, stderr=subprocess.PIPE, text=True, check=False)
        self.assertEqual(result.returncode, 1)
        self.assertIn("Broken pipe", result.stderr)
        result = subprocess.run([PROGRAM, "frobnicate"], stderr=writer, check=False)
        os.close(writer)
        self.assertEqual(result.returncode, 2)


class Targets(ProgramTest):
    def test_a_json_path_that_cannot_be_written(self):
        self.fails(1, "--json", "info", "--json", self.path("no/such/folder/info.json"))
        self.fails(1, "--json", "info", "--json", self.folder)

    def test_links_are_followed_from_their_own_folder(self):
        os.makedirs(self.path("links"))
        os.makedirs(self.path("data"))
        os.symlink("../data/second.json", self.path("links/first.json"))
        os.symlink("real.json", self.path("data/second.json"))  # leads nowhere at first
        for _ in range(2):
            self.fine("info", "--json", self.path("links/first.json"))
            self.assertIn("version", self.read_json("data/real.json"))
            self.assertTrue(os.path.islink(self.path("links/first.json")))
            self.assertTrue(os.path.islink(self.path("data/second.json")))
            self.assertEqual(sorted(os.listdir(self.path("links"))), ["first.json"])
        self.fine("info", "--json", "first.json", cwd=self.path("links"))

    def test_links_that_lead_nowhere(self):
        os.symlink("circle", self.path("circle"))
        self.fails(1, "--json: cannot write '.*circle': Too many levels", "info", "--json", self.path("circle"))
        os.symlink("missing/file", self.path("dangling"))
        self.fails(1, "--json: cannot write '.*missing/file': No such file", "info", "--json", self.path("dangling"))

    def test_two_outputs_through_a_link_that_leads_nowhere_yet(self):
        write_safetensors(self.path("in.safetensors"), qkv(8))
        os.symlink("real", self.path("link"))
        files = ["--out", self.path("link"), "--json", self.path("real")]
        self.fails(1, "file of --out", "attend", "--qkv", self.path("in.safetensors"), *files)

    def test_names_as_long_as_a_file_system_allows(self):
        longest = os.pathconf(self.folder, "PC_NAME_MAX")
        for length in (longest - 5, longest):
            self.fine("info", "--json", self.path("n" * length))
            self.assertIn("version", self.read_json("n" * length))
        self.fails(1, "--json: cannot write '.*': File name too long", "info", "--json", self.path("n" * (longest + 1)))

    def test_names_that_are_no_paths(self):
        write_safetensors(self.path("in.safetensors"), qkv(8))
        qkv_option = ["--qkv", self.path("in.safetensors")]
        out = ["--out", self.path("out")]
        for value in ("", "-"):
            for command, option in [
                (["attend", *qkv_option], "--out"),
                (["attend", *out], "--qkv"),
                (["attend", *qkv_option, *out], "--config"),
                (["calibrate", *qkv_option], "--out"),
                (["calibrate", *qkv_option], "--trtllm"),
                (["calibrate", *qkv_option], "--checkpoint"),
                (["calibrate", *qkv_option], "--held-out"),
                (["calibrate"], "--qkv"),
                (["report", self.folder], "--targets"),
                (["demo"], "--data"),
                (["demo"], "--out"),
            ]:
                with self.subTest(command=command[0], option=option, value=value):
                    self.fails(
                        2,
                        f"{option}: '{value}' is not allowed, only the path of a ",
                        *command,
                        option,
                        value,
                        cwd=self.folder,
                    )
        self.fails(2, "DIR: '' is not allowed, only the path of a folder", "report", "")
        self.fails(2, "--json: '' is not allowed, only the path of a file, or - for", "info", "--json", "")
        self.fine("info", "--json", "./-", cwd=self.folder)
        self.assertIn("version", self.read_json("-"))


class WholeOrNotAtAll(ProgramTest):
    def setUp(self):
        super().setUp()
        write_safetensors(self.path("in.safetensors"), qkv(8192, heads_q=1, heads_kv=1, d=64))
        self.out = self.path("out.safetensors")
        self.attend = ["attend", "--qkv", self.path("in.safetensors"), "--window-left", "16", "--out", self.out]

    def temporary_bytes(self):
        """Sizes of the temporary files that are there now."""
        sizes = []
        for name in os.listdir(self.folder):
            if name.endswith(".tmp"):
                with contextlib.suppress(FileNotFoundError):
                    sizes.append(os.stat(self.path(name)).st_size)
        return sizes

    def interrupted(self, kind, when, *arguments):
        """The exit status of a call that gets a signal as soon as when() holds; None where it ended before."""
        with subprocess.Popen(
            [PROGRAM, *arguments],
            stdout=subprocess.DEVNULL,
            cwd=self.folder,
            preexec_fn=lambda: signal.signal(kind, signal.SIG_DFL),  # make test may run where it is ignored
        ) as process:
            while not when():
                if process.poll() is not None:
                    return None
            process.send_signal(kind)
            return process.wait(timeout=60)

    def test_a_signal_while_a_file_is_written(self):
        self.fine(*self.attend)
        _, expected = read_safetensors(self.out)
        with open(self.out, "w", encoding="utf-8") as old:
            old.write("old")
        caught = 0
        for kind in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT):
            # First while a temporary file only asks whether it can be written, then while it takes the result.
            for least in (0, 1):
                status = self.interrupted(
                    kind, lambda least=least: any(size >= least for size in self.temporary_bytes()), *self.attend
                )
                caught += status == -kind
                self.assertIn(status, (-kind, 0, None))
                self.assertEqual(self.temporary_bytes(), [])
                with open(self.out, "rb") as file:
                    if file.read() != b"old":
                        self.assertEqual(read_safetensors(self.out)[1], expected)
        self.assertGreater(caught, 0)

    def test_a_signal_during_the_work_leaves_the_old_file(self):
        with open(self.out, "w", encoding="utf-8") as old:
            old.write("old")
        start = time.monotonic()
        calibrate = ["calibrate", "--qkv", self.path("in.safetensors"), "--out", self.out]
        status = self.interrupted(signal.SIGINT, lambda: time.monotonic() > start + 0.3, *calibrate)
        self.assertEqual(status, -signal.SIGINT)
        self.assertEqual(self.read("out.safetensors"), "old")
        self.assertEqual(sorted(os.listdir(self.folder)), ["in.safetensors", "out.safetensors"])

    def test_a_disk_that_is_full_leaves_the_old_file(self):
        with open(self.out, "w", encoding="utf-8") as old:
            old.write("old")
        for limit in (0, 100, 1 << 20):
            result = run(
                *self.attend,
                preexec_fn=lambda limit=limit: resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit)),
            )
            self.assertEqual(result.returncode, 1)
            self.assertEqual(result.stderr, f"longhaul attend: cannot write '{self.out}': {os.strerror(errno.EFBIG)}\n")
            self.assertEqual(result.stdout, "")
            self.assertEqual(self.read("out.safetensors"), "old")
            self.assertEqual(self.temporary_bytes(), [])
        self.fails(
            1, "--out: cannot write '/dev/full': it exists and is not a regular file", *self.attend[:-1], "/dev/full"
        )


if __name__ == "__main__":
    unittest.main()
