"""Ray as it runs already, at an address, or for one run alone."""

from __future__ import annotations

import logging
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from axiograd.errors import AxiogradError, MissingExtraError

#: Seconds until a machine answers at all, and until Ray does.
_MACHINE, _RAY = 10, 60
#: What `ray://` means without a port.
_CLIENT_PORT = 10001
_TRIAL = "import sys, ray; ray.init(address=sys.argv[1], log_to_driver=False)"


def ray_data() -> Any:
    """Ray with its data library, or what to install."""
    try:
        import ray
        import ray.data
    except ImportError as error:
        raise MissingExtraError("ray[data]", "ray", "the engine ray") from error
    return ray


@contextmanager
def cluster(ray: Any, workers: int, address: str | None) -> Iterator[None]:
    """Ray as it runs already, that at the address, or one of our own for as long as it is needed."""
    started = not ray.is_initialized()
    if started:
        if address is not None:
            check_answers(address)
        quiet = {"include_dashboard": False} if address is None else {"address": address}
        cores = {"num_cpus": workers + 1} if address is None else {}
        try:
            ray.init(**quiet, **cores, log_to_driver=False, logging_level="error", configure_logging=True)
        except Exception as error:  # Ray raises plain ones, too
            where = "on this machine" if address is None else f"at {address}"
            raise AxiogradError(f"Ray cannot be reached {where}: {first_line(error)}.") from error
    logging.getLogger("ray.data").setLevel(logging.ERROR)  # the plan of every run is nobody's answer
    context = ray.data.DataContext.get_current()
    before = context.enable_progress_bars
    context.enable_progress_bars = False
    try:
        yield
    finally:
        context.enable_progress_bars = before
        if started:
            ray.shutdown()


def check_answers(address: str) -> None:
    """Refuse an address at which nobody answers: Ray itself waits there for minutes, and cannot be interrupted."""
    host, _, port = address.removeprefix("ray://").rpartition(":")
    is_client = address.startswith("ray://")
    if not host and is_client:
        host, port = port, str(_CLIENT_PORT)
    if host and port.isdecimal():
        try:
            socket.create_connection((host.strip("[]"), int(port)), timeout=_MACHINE).close()
        except (OSError, OverflowError) as error:
            raise _unreachable(address, f"nobody answers at port {port} of {host} ({error})") from error
    if not is_client:  # whose own limit is half a minute
        try:
            subprocess.run(  # noqa: S603  # our own interpreter; what goes wrong otherwise, goes wrong again below
                [sys.executable, "-c", _TRIAL, address],
                timeout=_RAY,
                check=False,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
            )
        except subprocess.TimeoutExpired as error:
            raise _unreachable(address, f"no answer of Ray's within {_RAY} seconds") from error


def first_line(error: BaseException) -> str:
    """What an error says first."""
    return next((line.strip().rstrip(".") for line in str(error).splitlines() if line.strip()), type(error).__name__)


def _unreachable(address: str, why: str) -> AxiogradError:
    return AxiogradError(
        f"Ray cannot be reached at {address}: {why}. `ray status` on a machine of the cluster shows whether it runs; "
        "its own port is 6379, as host:6379, and that for clients 10001, as ray://host:10001."
    )
