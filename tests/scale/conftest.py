import pytest
import torch

from support.scale import source, write


@pytest.fixture
def written(tmp_path):
    """A folder of parts with a broken row, and the inputs that it was made from."""
    samples = source(broken=(3,))
    write(tmp_path / "rows", samples)
    return tmp_path / "rows", torch.stack([samples.get(i) for i in range(len(samples)) if i != 3])
