"""A tiny session: images in which a corner gives the class away, and a network that has learnt the corner."""

import pytest

from axiograd.datasets.pictures import Pictures
from support import studio_model


@pytest.fixture(scope="session")
def pictures() -> Pictures:
    return Pictures.of_tensors(studio_model.squares())


@pytest.fixture
def model():
    return studio_model.learnt()


@pytest.fixture
def origin():
    return studio_model.origin()
