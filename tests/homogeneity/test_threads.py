"""Several threads certify at once: right verdicts, and the state of the process as it was."""

import threading
from concurrent.futures import ThreadPoolExecutor

import torch
from torch import nn

from axiograd import InputXGradient, XGradient, certify


def _mlp(width):
    return nn.Sequential(nn.Linear(4, width, bias=False), nn.ReLU(), nn.Linear(width, 2, bias=False))


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
