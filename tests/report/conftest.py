from types import SimpleNamespace

import pytest
import torch

from support.chromium import CHROMIUM, Browser
from support.pages import build


@pytest.fixture(scope="session")
def browser(tmp_path_factory):
    if CHROMIUM is None:
        pytest.skip("no chromium on this machine (Debian: apt install chromium)")
    browser = Browser(tmp_path_factory.mktemp("profile"))
    yield browser
    browser.close()


@pytest.fixture
def violated():
    violation = SimpleNamespace(
        module="fc", op="aten.addmm", source="net.py:7", reason="adds the bias `fc.bias`", fix="use `bias=False`"
    )
    return SimpleNamespace(ok=False, degree=None, exact=True, violations=[violation])


@pytest.fixture
def certified():
    return SimpleNamespace(ok=True, degree=1.0, exact=True, violations=[])


@pytest.fixture
def image():
    return torch.rand(3, 8, 8, generator=torch.Generator().manual_seed(0))


@pytest.fixture(scope="session")
def path(tmp_path_factory):
    return build().write(tmp_path_factory.mktemp("page") / "report.html")


@pytest.fixture
def page(browser, path):
    browser.resize(1200, 900)
    browser.open(path)
    yield browser
    assert browser.complaints == []
