"""Table 2's difference and the convergence figure on small networks in the pretrained ones' place."""

import json

import torch
from torch import nn

from axiograd.experiments import difference_pretrained
from axiograd.experiments.difference_pretrained import run


def test_x_dnns_are_integrated_gradients_and_regular_networks_are_not(monkeypatch):
    torch.manual_seed(0)
    model = nn.Sequential(nn.Conv2d(3, 4, 3), nn.ReLU(), nn.Flatten(), nn.Linear(144, 5)).double()
    nn.init.normal_(model[0].bias)
    photos = [(torch.randn(3, 8, 8, dtype=torch.float64), 0) for _ in range(6)]
    monkeypatch.setattr(difference_pretrained, "PRETRAINED", {"small": lambda: photos})
    monkeypatch.setattr(difference_pretrained, "get_model", lambda name, weights: model)
    found = run("small", n_photos=5, n_convergence=5)
    assert found["photos"] == 5
    assert found["regular"]["value"] > 0.1
    assert found["stripped"]["value"] < 1e-9
    assert found["lifted"]["value"] < 1e-6
    assert found["convergence"]["steps"] == (1, 2, 4, 8, 16, 32, 64, 128, 256)
    assert found["convergence"]["differences"][-1] < 0.1 * found["convergence"]["differences"][0]
    json.dumps(found)
