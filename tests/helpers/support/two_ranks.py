"""Run a function in two gloo processes on the CPU and get back what each returned."""

from __future__ import annotations

import tempfile
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
import torch.distributed as dist
import torch.multiprocessing as mp

from support.children import START, processes

if TYPE_CHECKING:
    from collections.abc import Callable

N_RANKS = 2


def on_two_ranks(work: Callable[[int], Any]) -> list[Any]:
    """`work(rank)` on each rank; it must be importable by name, so it lives beside this file."""
    with tempfile.TemporaryDirectory() as folder:
        processes()
        mp.start_processes(_run, (folder, work), nprocs=N_RANKS, start_method=START)
        return [torch.load(Path(folder) / f"{rank}.pt", weights_only=True) for rank in range(N_RANKS)]


def _run(rank: int, folder: str, work: Callable[[int], Any]) -> None:
    torch.set_num_threads(1)
    store = dist.FileStore(str(Path(folder) / "store"), N_RANKS)
    dist.init_process_group("gloo", store=store, rank=rank, world_size=N_RANKS, timeout=timedelta(seconds=60))
    try:
        torch.save(work(rank), Path(folder) / f"{rank}.pt")
    finally:
        dist.destroy_process_group()
