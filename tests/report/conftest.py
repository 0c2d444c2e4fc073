import pytest
import torch

import axiograd
from support.pages import build


@pytest.fixture(scope="session")
def refused():
    return axiograd.certify(torch.nn.Sequential(torch.nn.Linear(3, 2)), torch.ones(2, 3))


@pytest.fixture
def image():
    return torch.rand(3, 8, 8, generator=torch.Generator().manual_seed(0))


@pytest.fixture(scope="session")
def path(tmp_path_factory):
    return build().write(tmp_path_factory.mktemp("page") / "report.html")
