"""The line below a page of results: which commit and versions made it."""

import platform
import subprocess
from pathlib import Path

import numpy as np
import torch

import axiograd


def versions(**further: str) -> str:
    """axiograd, its commit, what it runs on, and further libraries by name."""
    command = ["git", "rev-parse", "--short=10", "HEAD"]
    asked = subprocess.run(command, cwd=Path(__file__).parent, capture_output=True, text=True, check=False)
    found = {
        "axiograd": axiograd.__version__,
        "commit": asked.stdout.strip() or "unknown",
        "torch": torch.__version__,
        "numpy": np.__version__,
        "Python": platform.python_version(),
        **further,
    }
    return ", ".join(f"{name} {version}" for name, version in found.items())
