"""Runs the README's Python block, keeps half precision from killing a run, and lists results that are out of date."""

import os
from pathlib import Path

import pytest
from sybil import Sybil
from sybil.parsers.markdown import PythonCodeBlockParser

from axiograd._half_precision import LIMIT, PROBED, products_work, working_limit

pytest_collect_file = Sybil(parsers=[PythonCodeBlockParser()], patterns=["README.md"]).pytest()


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


def pytest_report_header() -> str:
    return SAID


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Which results are older than the code they depend on: no failure, a list for whoever runs experiments next."""
    if any("tests/experiments" in str(report.nodeid) for report in terminalreporter.getreports("passed")):
        from axiograd.experiments.reproduce import older_than_their_code

        old = older_than_their_code(Path(__file__).parent / "results")
        terminalreporter.section(f"{len(old)} results that other code has made than what would run now")
        terminalreporter.write("".join(f"{line}\n" for line in old))
