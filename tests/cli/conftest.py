import copy
import runpy
import shutil

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
    """Rows of patients, and beside them, in patients.py, a network with the schema that it was trained with."""
    path = tmp_path / "patients.csv"
    rows = ["id,age,weight,pulse,steps,ill", "1,30,70,60,,0", "2,50,80,70,200,1", "3,70,60,90,400,1"]
    path.write_text("\n".join(rows) + "\n")
    (tmp_path / "patients.py").write_text(
        SOURCE + "\n\nfrom axiograd.datasets import Schema\nfrom axiograd.datasets.tables import read_frame\n"
        "from pathlib import Path\n"
        f'schema = Schema.fit(read_frame(Path({str(path)!r})), label="ill", drop=["id"], missing="mean")\n'
    )
    return path


def _images(folder, classes=("cat", "otter"), count=2, size=64):
    """Photos by class, and for each a mask of its upper half."""
    from PIL import Image

    generator = torch.Generator().manual_seed(0)
    mask = Image.new("L", (size, size))
    mask.paste(255, (0, 0, size, size // 2))
    for name in classes:
        for root in (folder, folder.parent / "masks"):
            (root / name).mkdir(parents=True, exist_ok=True)
        for i in range(count):
            pixels = torch.randint(0, 256, (size, size, 3), generator=generator, dtype=torch.uint8)
            Image.fromarray(pixels.numpy()).save(folder / name / f"{i}.png")
            mask.save(folder.parent / "masks" / name / f"{i}.png")


@pytest.fixture(scope="session")
def documented_files(tmp_path_factory):
    """A folder with small files under the names that README and docs use in their commands."""
    import pandas as pd

    from axiograd.models import get_model
    from support.command import axiograd
    from support.texts import sequence_classifier, word_pieces

    here = tmp_path_factory.mktemp("documented")
    net = SOURCE.replace("Conv2d(3, 4, 3, 2)", "Conv2d(3, 4, 3, 2, bias=False)")
    (here / "net.py").write_text(net.replace("Linear(16, classes)", "Linear(16, classes, bias=False)"))
    _images(here / "photos")
    _images(here / "pets" / "photos" / "train")
    (here / "pets" / "photos" / "masks").rename(here / "pets" / "masks")
    _images(here / "pets" / "photos" / "val")
    (here / "pets" / "photos" / "masks").rename(here / "pets" / "masks-val")
    for name in ("cat", "dog"):
        (here / f"{name}.jpg").write_bytes((here / "photos" / "cat" / "0.png").read_bytes())
    images = [(path.read_bytes(),) for path in sorted((here / "photos").rglob("*.png"))]
    pd.DataFrame(images, columns=["image"]).to_parquet(here / "shop.parquet")
    torch.save(runpy.run_path(str(here / "net.py"))["build"]().state_dict(), here / "net.pt")
    torch.manual_seed(0)
    settings = {"num_classes": 2, "width": 0.05, "hidden": 8, "pool": 2, "small": True}
    torch.save(get_model("alexnet", **settings).state_dict(), here / "small.pth")
    given = [word for name, value in settings.items() for word in ("--set", f"{name}={str(value).lower()}")]
    small = ("alexnet", *given, "--weights", here / "small.pth", "--preprocess", "imagenet,size=32")
    for how, file in (("lift", "lifted"), ("strip", "x")):
        out = here / f"{file}.safetensors"
        done = axiograd("convert", *small, "--examples", here / "photos", "--how", how, "-o", out)
        assert done.code == 0, done.err
    (here / "runs" / "photos").mkdir(parents=True)
    for file in ("stripped", "runs/photos/model"):
        shutil.copy(here / "x.safetensors", here / f"{file}.safetensors")
    model = copy.deepcopy(sequence_classifier())  # tests share it
    model.config.id2label = {0: "negative", 1: "positive", 2: "unsure"}
    model.config.label2id = {name: i for i, name in model.config.id2label.items()}
    model.save_pretrained(here / "my-model")
    word_pieces().save_pretrained(here / "my-model")
    (here / "review.txt").write_text("a wonderful film\n")
    (here / "reviews.csv").write_text("review\na wonderful film\na bad film\n")
    rows = [f"{i},{30 + i % 7},{['f', 'm'][i % 2]},{1 + i % 3},{['ill', 'well'][i % 2]}" for i in range(40)]
    (here / "patients.csv").write_text("\n".join(["id,age,sex,counts,outcome", *rows]) + "\n")
    (here / "new-patients.csv").write_text("age,sex,counts\n50,f,1\n60,m,2\n")
    return here
