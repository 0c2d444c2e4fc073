import pytest
import torch

SOURCE = """
import sys
import torch
from torch import nn


def build(classes=3):
    torch.manual_seed(0)
    layers = nn.Conv2d(3, 4, 3, 2), nn.ReLU(), nn.AdaptiveAvgPool2d(2), nn.Flatten(), nn.Linear(16, classes)
    return nn.Sequential(*layers)


def normalised():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8), nn.GELU(), nn.LayerNorm(8), nn.Linear(8, 2))


def table(features=4):
    torch.manual_seed(1)
    return nn.Sequential(nn.Linear(features, 8, bias=False), nn.ReLU(), nn.Linear(8, 2, bias=False))


def talks():
    print("hello from the factory")
    return table()


def fails():
    raise ValueError("no luck today")


def leaves():
    sys.exit(7)


def a_list():
    return [1]


number = 3


class Raises(nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = nn.Linear(4, 2)

    def forward(self, x):
        raise RuntimeError("not today\\nreally")


class Image(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Conv2d(3, 3, 3, padding=1, bias=False)

    def forward(self, x):
        return self.layer(x)
"""


@pytest.fixture
def mine(tmp_path):
    path = tmp_path / "mine.py"
    path.write_text(SOURCE)
    return path


@pytest.fixture
def photos(tmp_path):
    from PIL import Image

    generator = torch.Generator().manual_seed(0)
    folder = tmp_path / "photos"
    for name in ("cat", "dog", "owl"):
        (folder / name).mkdir(parents=True)
        for i in range(2):
            pixels = torch.randint(0, 256, (20, 24, 3), generator=generator, dtype=torch.uint8)
            Image.fromarray(pixels.numpy()).save(folder / name / f"{name}{i}.png")
    return folder


@pytest.fixture
def table(tmp_path):
    path = tmp_path / "patients.csv"
    rows = ["id,age,weight,pulse,steps,ill", "1,30,70,60,,0", "2,50,80,70,200,1", "3,70,60,90,400,1"]
    path.write_text("\n".join(rows) + "\n")
    return path
