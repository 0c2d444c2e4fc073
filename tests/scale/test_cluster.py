"""Addresses at which no Ray is: told before Ray itself waits there."""

import socket
from contextlib import closing

import pytest

from axiograd.errors import AxiogradError
from axiograd.scale import cluster
from support.scale import write

pytest.importorskip("ray")


@pytest.fixture
def taken():
    """A port of this machine; who has it says nothing until it is closed, and then nobody has it."""
    with closing(socket.create_server(("127.0.0.1", 0))) as server:
        yield server


@pytest.mark.parametrize("scheme", ["", "ray://"])
def test_nobody_at_the_port(tmp_path, taken, scheme, monkeypatch):
    port = taken.getsockname()[1]
    taken.close()
    # Neither Ray nor a trial of it is asked: both would wait.
    monkeypatch.setattr("ray.init", lambda **_: pytest.fail("Ray was asked"))
    monkeypatch.setattr(cluster.subprocess, "run", lambda *_, **__: pytest.fail("a trial of Ray was made"))
    with pytest.raises(AxiogradError, match=rf"cannot be reached at {scheme}127.0.0.1:{port}: nobody answers .*\.$"):
        write(tmp_path / "rows", engine="ray", address=f"{scheme}127.0.0.1:{port}")


def test_somebody_else_at_the_port(tmp_path, taken, monkeypatch):
    monkeypatch.setattr(cluster, "_RAY", 5)
    with pytest.raises(AxiogradError, match="no answer of Ray's within 5 seconds"):
        write(tmp_path / "rows", engine="ray", address=f"127.0.0.1:{taken.getsockname()[1]}")


@pytest.mark.parametrize("address", ["ray://127.0.0.1", "127.0.0.1:99999", "no such host:6379"])
def test_what_is_no_address(monkeypatch, address):
    def refuse(place, timeout):
        raise {99999: OverflowError, 10001: ConnectionRefusedError}.get(place[1], socket.gaierror)(f"{place}")

    monkeypatch.setattr(socket, "create_connection", refuse)
    with pytest.raises(AxiogradError, match=r"^Ray cannot be reached at .*: nobody answers at port \d+ of"):
        cluster.check_answers(address)
