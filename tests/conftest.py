"""One thread: the last bits of sums depend on the number of threads, and the tests' networks are too small for more."""

import torch

torch.set_num_threads(1)
