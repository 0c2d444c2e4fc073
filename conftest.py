"""Runs the README's Python block, and keeps half precision from killing a run and experiments from leaving files."""

import atexit
import os
import shutil
import tempfile

from sybil import Sybil
from sybil.parsers.markdown import PythonCodeBlockParser

from axiograd._half_precision import LIMIT, PROBED, products_work, working_limit

pytest_collect_file = Sybil(parsers=[PythonCodeBlockParser()], patterns=["README.md", "CONTRIBUTING.md"]).pytest()


def limit_instructions() -> str:
    """Set oneDNN's limit where half-precision products need one, for this process and its children; what was done."""
    before = os.environ.get(LIMIT, "")
    if os.environ.get(PROBED) != before:
        if not products_work():
            limit = working_limit()
            if limit is None:
                return "half precision: products kill a process here under every limit of oneDNN"
            os.environ[LIMIT] = limit
        os.environ[PROBED] = os.environ.get(LIMIT, "")
    if os.environ.get(LIMIT, "") == before:
        return f"half precision: products work{f' with {LIMIT}={before}' if before else ''}"
    return f"half precision: products kill a process here, so this run sets {LIMIT}={os.environ[LIMIT]}"


SAID = limit_instructions()

if "AXIOGRAD_EXPERIMENTS" not in os.environ:  # a worker has the folder of the process that started it
    os.environ["AXIOGRAD_EXPERIMENTS"] = tempfile.mkdtemp(prefix="axiograd-experiments-")
    atexit.register(shutil.rmtree, os.environ["AXIOGRAD_EXPERIMENTS"], ignore_errors=True)


def pytest_report_header() -> str:
    return SAID
