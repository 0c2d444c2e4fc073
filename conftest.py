"""Runs the README's Python block, and keeps half precision from killing a run and experiments from leaving files."""

import atexit
import os
import shutil
import tempfile

from sybil import Sybil
from sybil.parsers.markdown import PythonCodeBlockParser

pytest_collect_file = Sybil(parsers=[PythonCodeBlockParser()], patterns=["README.md", "CONTRIBUTING.md"]).pytest()


# Virtual machines may advertise AMX and kill a process that uses it in a bfloat16 product; oneDNN reads this once.
os.environ.setdefault("ONEDNN_MAX_CPU_ISA", "AVX512_CORE_FP16")

if "AXIOGRAD_EXPERIMENTS" not in os.environ:  # a worker has the folder of the process that started it
    os.environ["AXIOGRAD_EXPERIMENTS"] = tempfile.mkdtemp(prefix="axiograd-experiments-")
    atexit.register(shutil.rmtree, os.environ["AXIOGRAD_EXPERIMENTS"], ignore_errors=True)
