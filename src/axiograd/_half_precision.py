"""Whether products in half precision work here: some processors advertise instructions that kill the process.

Virtual machines and sandboxes often show AMX to a process that may not use it; a bfloat16 product then ends in SIGILL.
This module imports no torch: oneDNN reads its limit once, so whoever wants to set it must do so before.
"""

import os
import subprocess
import sys
from collections.abc import Mapping
from functools import cache

from axiograd.errors import ConfigurationError

#: The environment variable that keeps oneDNN from using newer instructions.
LIMIT = "ONEDNN_MAX_CPU_ISA"
#: Its values from the newest instructions to the oldest; the first that works costs the least speed.
LIMITS = ("AVX512_CORE_FP16", "AVX512_CORE_BF16", "AVX512_CORE", "AVX2", "SSE41")
#: Tells child processes, which inherit it, under which limit products have been seen to work ("" for none).
PROBED = "AXIOGRAD_HALF_PRECISION_WORKS"
#: A child that computes a wrong product ends with this code; one that is killed ends with a signal.
_WRONG = 86
_PROBE = f"""
import sys, torch
torch.set_num_threads(1)
for dtype in (torch.bfloat16, torch.float16):
    a, image, kernel = torch.randn(64, 64), torch.randn(2, 16, 12, 12), torch.randn(16, 16, 3, 3)
    for product, (x, y) in ((torch.matmul, (a, a.T)), (torch.nn.functional.conv2d, (image, kernel))):
        x, y = (t.to(dtype).requires_grad_() for t in (x, y))
        try:
            found = product(x, y)
            found.sum().backward()
        except RuntimeError:  # this torch has no such product: an error, which kills nothing
            continue
        exact = product(x.detach().double(), y.detach().double())
        if not torch.allclose(found.double(), exact, rtol=0.02, atol=0.02 * exact.abs().max().item()):
            sys.exit({_WRONG})
"""


def products_work(environment: Mapping[str, str] | None = None) -> bool:
    """Whether a child process survives half-precision products in this environment (by default, that of this process).

    A child that fails for another reason, such as a missing torch or a timeout, says nothing about products.
    """
    command = [sys.executable, "-c", _PROBE]
    try:
        child = subprocess.run(command, env=environment, capture_output=True, timeout=120, check=False)  # noqa: S603
    except (OSError, subprocess.TimeoutExpired):
        return True
    # Windows reports an illegal instruction as a large positive number.
    killed = child.returncode < 0 or child.returncode > 255  # noqa: PLR2004
    return not killed and child.returncode != _WRONG


def working_limit() -> str | None:
    """The first value of `LIMIT` under which products work, or None."""
    return next((limit for limit in LIMITS if products_work({**os.environ, LIMIT: limit})), None)


@cache
def _advice() -> str | None:
    """What to do before half precision can be used, asked once per process; None where it can be."""
    if os.environ.get(PROBED) == os.environ.get(LIMIT, "") or products_work():
        return None
    limit = working_limit()
    return "use 32-true" if limit is None else f"set {LIMIT}={limit} before Python starts, or use 32-true"


def require_products(precision: object) -> None:
    """Raise where a precision of Fabric, such as "bf16-mixed", would kill this process on the CPU.

    >>> require_products("32-true")  # asks nothing
    """
    if "16" not in str(precision):
        return
    if (advice := _advice()) is not None:
        raise ConfigurationError(
            f"precision={precision!r} would kill this process: the processor advertises instructions for products in "
            f"half precision that it does not let the process use; {advice}."
        )
