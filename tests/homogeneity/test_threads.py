"""Several threads certify at once: right verdicts, and the state of the process as it was."""

import logging
import random
import sys
import threading
import warnings
from concurrent.futures import ThreadPoolExecutor

import torch
from torch import nn
from torch._subclasses.fake_tensor import FakeTensor

from axiograd import XGradient, certify

ROUNDS = 6


def _mlp(width):
    return nn.Sequential(nn.Linear(4, width, bias=False), nn.ReLU(), nn.Linear(width, 2, bias=False))


def _state():
    mode = torch.inference_mode
    return {
        "stderr": sys.stderr,
        "enter": mode.__enter__,
        "exit": mode.__exit__,
        "unwrap": torch._functorch.utils.unwrap_dead_wrappers,
        "logging": logging.root.manager.disable,
        "filters": list(warnings.filters),
        "fast path": torch.backends.mha.get_fastpath_enabled(),
        "grad": torch.is_grad_enabled(),
        "python": random.getstate(),
    }


def test_two_threads_certify_models_of_their_own():
    before = _state()
    start = threading.Barrier(2)

    def work(number):
        verdicts = []
        for i in range(ROUNDS):
            model = _mlp(3 + 2 * i + number)
            start.wait()
            certificate = certify(model, torch.ones(3, 4))
            verdicts.append((certificate.ok, certificate.degree))
        return verdicts

    with ThreadPoolExecutor(2) as pool:
        for verdicts in pool.map(work, range(2)):
            assert verdicts == [(True, 1.0)] * ROUNDS
    assert _state() == before


def test_two_threads_certify_one_model():
    model, x = _mlp(8), torch.randn(5, 4)
    expected = model(x)[:, 0]
    start = threading.Barrier(4)

    def work(_):
        start.wait()
        return XGradient(model).attribute(x, 0).sum(1), certify(model, x)

    with ThreadPoolExecutor(4) as pool:
        results = list(pool.map(work, range(4)))
    for attributed, certificate in results:
        torch.testing.assert_close(attributed, expected)
        assert certificate == results[0][1]


def test_inference_mode_of_another_thread_stays_what_it_is():
    inside, seen = threading.Event(), threading.Event()
    found = []

    class Slow(nn.Module):
        def forward(self, x):
            inside.set()
            assert seen.wait(30)
            return x.relu()

    def look():
        assert inside.wait(30)
        with torch.inference_mode():
            found.append(torch.is_inference_mode_enabled())
        seen.set()

    other = threading.Thread(target=look)
    other.start()
    assert certify(Slow(), torch.ones(2, 3)).ok
    other.join()
    assert found == [True]


def test_a_failed_export_is_not_remembered():
    failures = [True]  # for a while, as when two exports meet

    class Once(nn.Module):
        def forward(self, x):
            if failures and isinstance(x, FakeTensor):
                raise RuntimeError("two exports met")
            return x.relu()

    model, x = Once(), torch.ones(1, 3)
    assert certify(model, x).violations[0].kind == "export"
    failures.clear()
    assert certify(model, x).ok
