"""One thread: the last bits of sums depend on the number of threads, and the tests' networks are too small for more."""

import gc

import torch

from support.browser import chromium, complaints, page  # noqa: F401  # fixtures for all

torch.set_num_threads(1)


def pytest_collection_finish() -> None:
    """What importing has made stays for good: the garbage collector need not walk through all of it again and again."""
    gc.collect()
    gc.freeze()
