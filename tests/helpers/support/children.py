"""Processes that start quickly: a server that has done the imports, once for all tests of a worker, forks them."""

import multiprocessing
import os
from multiprocessing import forkserver
from pathlib import Path

#: What the children of any test need: the server's first user decides what it imports.
PRELOAD = [
    *("support.training_run", "support.training_ranks", "support.prior_steps", "support.killable", "support.scale"),
    *("lightning.pytorch", "axiograd.training.module", "safetensors.torch", "rich.progress", "pyarrow.parquet"),
]
START = "forkserver"


def processes():
    """Where processes come from."""
    context = multiprocessing.get_context(START)
    context.set_forkserver_preload(PRELOAD)
    # Until Python 3.12 the server does not get this process's path, and leaves out what it cannot import.
    before = os.environ.get("PYTHONPATH")
    os.environ["PYTHONPATH"] = os.pathsep.join([str(Path(__file__).parents[1]), *([before] if before else [])])
    try:
        forkserver.ensure_running()
    finally:
        if before is None:
            del os.environ["PYTHONPATH"]
        else:
            os.environ["PYTHONPATH"] = before
    return context
