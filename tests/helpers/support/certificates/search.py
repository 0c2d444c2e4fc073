"""The long random search: python -m support.certificates.search 100000 tests/homogeneity/random_search.json

Draws networks from one seed until so many different ones have been seen, and writes what was found after each batch.
"""

import json
import random
import sys
import time
from pathlib import Path

import torch

from support.certificates.draws import draw
from support.certificates.soundness import Tally, examine

SEED = 2026
BATCH = 40
#: Every so many batches, one of networks that change tensors in place.
IN_PLACE_EVERY = 5


def search(count, path=None, *, seed=SEED, minutes=float("inf")):
    """Examine `count` different networks, or as many as the time allows; the tally."""
    torch.set_num_threads(1)
    generator, tally, batches, start = random.Random(seed), Tally(), 0, time.monotonic()
    while tally.examples < count and time.monotonic() - start < 60 * minutes:
        batches += 1
        in_place = batches % IN_PLACE_EVERY == 0
        examine([draw(generator, in_place=in_place) for _ in range(BATCH)], tally, seed=batches % 100)
        if path is not None:
            Path(path).write_text(json.dumps(_summary(tally, seed, batches), indent=1) + "\n")
    return tally


def _summary(tally, seed, batches):
    return {
        "seed": seed,
        "batches": batches,
        "networks": tally.examples,
        "certified": tally.certified,
        "refused": tally.refused,
        "refused although some degree fits every probe": tally.cautious,
        "certificates refuted": len(tally.refuted),
        "counterexamples": [str(found) for found in tally.refuted[:20]],
        "torch": torch.__version__,
    }


if __name__ == "__main__":
    search(int(sys.argv[1]), sys.argv[2], minutes=float(sys.argv[3]) if len(sys.argv) > 3 else float("inf"))
