"""A tiny session: images in which a corner gives the class away, and a network that has learnt the corner."""

import os
import shutil
import tempfile
from pathlib import Path

import pytest

from axiograd.datasets.pictures import Pictures
from support import studio_model

#: The worker is another process, which imports the network by its name.
HELPERS = str(Path(studio_model.__file__).parents[1])


@pytest.fixture(scope="session", autouse=True)
def workers_find_the_helpers():
    before = os.environ.get("PYTHONPATH")
    os.environ["PYTHONPATH"] = os.pathsep.join([HELPERS, *([before] if before else [])])
    yield
    if before is None:
        del os.environ["PYTHONPATH"]
    else:
        os.environ["PYTHONPATH"] = before


@pytest.fixture(scope="session")
def pictures() -> Pictures:
    return Pictures.of_tensors(studio_model.squares())


@pytest.fixture
def model():
    return studio_model.learnt()


@pytest.fixture
def origin():
    return studio_model.origin()


@pytest.fixture(scope="session")
def browser():
    from support.chromium import CHROMIUM, Browser

    if CHROMIUM is None:
        pytest.skip("no Chromium on this machine")
    profile = Path(tempfile.mkdtemp())
    opened = Browser(profile)
    yield opened
    opened.close()
    shutil.rmtree(profile, ignore_errors=True)
