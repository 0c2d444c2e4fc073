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

from axiograd import InputXGradient, XGradient, certify

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


def _normalised():
    torch.manual_seed(0)
    first, norm = (nn.BatchNorm1d(8, affine=False) for _ in range(2))
    return nn.Sequential(nn.Linear(4, 8, bias=False), first, nn.ReLU(), norm, nn.Linear(8, 1, bias=False)), norm


def test_threads_that_look_at_one_model_in_train_mode_leave_its_statistics():
    model, norm = _normalised()
    before = {name: value.clone() for name, value in model.state_dict().items()}
    parts = [model, norm, nn.Sequential(model[2], norm)]  # parts share the buffers of the whole
    inputs = [torch.randn(6, 4), torch.randn(6, 8), torch.randn(6, 8)]
    owned = norm.running_mean

    def work(i):
        for _ in range(30):
            InputXGradient(parts[i]).attribute(inputs[i], lambda y: y.sum(1))

    with ThreadPoolExecutor(3) as pool:
        list(pool.map(work, range(3)))
    assert norm.running_mean is owned
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())


def test_training_beside_threads_that_look_counts_every_batch():
    model, norm = _normalised()
    x, steps = torch.randn(6, 4), 60

    def look():
        for _ in range(steps):
            InputXGradient(model).attribute(x)

    def train():
        for _ in range(steps):
            InputXGradient(model).explain(x, create_graph=True)

    with ThreadPoolExecutor(3) as pool:
        for future in [pool.submit(work) for work in (look, train, look)]:
            future.result(timeout=120)
    assert int(norm.num_batches_tracked) == steps
