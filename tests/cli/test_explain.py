"""`axiograd explain`: images, tables and texts in; figures, arrays, a page and numbers out."""

import json

import pytest
import torch
from safetensors.torch import load_file

import axiograd as library
from support.command import axiograd
from support.texts import sequence_classifier, word_pieces

PIXELS = ("--preprocess", "size=16,mean=0.5,std=0.5")


def test_photos_become_figures_arrays_and_a_page(mine, photos, tmp_path):
    (photos / "owl" / "torn.png").write_bytes((photos / "owl" / "owl0.png").read_bytes()[:200])
    out = tmp_path / "out"
    how = ("-m", "integrated-gradients,gradient", "--steps", "4", "-o", out, "--json")
    done = axiograd("explain", f"{mine}:build", photos, *PIXELS, *how)
    assert done.code == 0, done.err
    answer = done.json
    assert [row["name"] for row in answer["samples"]][:2] == ["cat/cat0.png", "cat/cat1.png"]
    assert [row["label"] for row in answer["samples"]] == [0, 0, 1, 1, 2, 2]
    assert list(answer["left_out"]) == ["owl/torn.png"]
    assert answer["samples"][0]["top"][0]["name"] in {"cat", "dog", "owl"}
    assert len(list(out.glob("*.png"))) == 6
    assert (out / "report.html").stat().st_size > 10_000
    stored = load_file(out / "attributions.safetensors")
    x = stored["0/inputs"][None]
    model = library.load(f"{mine}:build").model
    expected = library.IntegratedGradients(model, n_steps=4).attribute(x, int(stored["0/target"]))
    torch.testing.assert_close(stored["0/integrated-gradients"][None], expected, rtol=1e-4, atol=1e-6)
    # What the run before left is not mistaken for this one's.
    again = axiograd("explain", f"{mine}:build", photos / "cat", *PIXELS, "-m", "gradient", "-o", out)
    assert again.code == 0, again.err
    assert len(list(out.glob("*.png"))) == 2


def test_the_method_suits_the_model(mine, photos, tmp_path):
    net = tmp_path / "net.py"
    net.write_text(mine.read_text() + "\npreprocess = 'size=16'\nclasses = ['cat', 'dog', 'owl']\n")
    done = axiograd("explain", f"{net}:Image", photos / "cat", "-o", tmp_path / "o", "--json")
    assert done.code != 0  # an image is no class
    done = axiograd("explain", f"{net}:build", photos / "cat", "-o", tmp_path / "o", "--steps", "4", "--json")
    assert done.json["methods"] == ["integrated-gradients"]
    assert not done.json["preprocessing_is_a_guess"]
    assert "not certified" in done.err
    # What is suggested can be run as it stands.
    assert f"axiograd convert {net}:build --out x.safetensors --examples {photos / 'cat'}" in done.err
    done = axiograd("explain", f"{net}:build", photos / "cat", "-m", "x-gradient", "-o", tmp_path / "o")
    assert done.code == 1
    assert f"--examples {photos / 'cat'}" in done.err
    assert done.err.count("\n") == 1
    file = tmp_path / "x.safetensors"
    assert axiograd("convert", f"{net}:build", "--how", "strip", "--examples", photos, "-o", file).code == 0
    done = axiograd("explain", f"{net}:build", photos / "cat", "--weights", file, "-o", tmp_path / "o", "--json")
    assert (done.json["methods"], done.json["certified"]) == (["x-gradient"], True)
    assert done.json["samples"][0]["methods"]["x-gradient"]["completeness_error"] < 1e-4


def test_attention_is_explained_by_the_held_gradient(photos, tmp_path):
    (tmp_path / "net.py").write_text(
        "import torch\nfrom torch import nn\n\n"
        "class Net(nn.Module):\n"
        "    def __init__(self):\n"
        "        super().__init__()\n"
        "        torch.manual_seed(0)\n"
        "        self.patches, self.head = nn.Conv2d(3, 8, 8, 8), nn.Linear(8, 2)\n"
        "        self.layer = nn.TransformerEncoderLayer(8, 2, 16, batch_first=True)\n"
        "    def forward(self, x):\n"
        "        return self.head(self.layer(self.patches(x).flatten(2).mT).mean(1))\n"
    )
    how = ("--preprocess", "size=16", "-o", tmp_path / "o", "--json")
    done = axiograd("explain", f"{tmp_path}/net.py:Net", photos / "cat", *how)
    assert done.code == 0, done.err
    assert done.json["methods"] == ["held-gradient"]
    assert "not Integrated Gradients" in done.err


def test_images_that_do_not_fit_are_said_with_what_does(photos, tmp_path):
    net = tmp_path / "net.py"
    net.write_text(
        "from torch import nn\n\n\ndef build():\n    return nn.Sequential(nn.Flatten(), nn.Linear(784, 2))\n"
    )
    done = axiograd("explain", f"{net}:build", photos, "--preprocess", "size=20", "-o", tmp_path / "o")
    assert done.code == 2
    assert "--preprocess size=28,grey" in done.err
    # Without a word it is found, and called a guess.
    done = axiograd("explain", f"{net}:build", photos, "-m", "gradient", "-o", tmp_path / "o", "--json")
    assert done.code == 0, done.err
    assert done.json["preprocessing"].startswith("short side 28, centre crop 28, grey")
    assert done.json["preprocessing_is_a_guess"]


def test_rows_of_a_table_by_the_schema_beside_the_network(table, tmp_path):
    out = tmp_path / "out"
    done = axiograd("explain", f"{table.with_suffix('.py')}:table", table, "-o", out, "--json")
    assert done.code == 0, done.err
    assert [row["label"] for row in done.json["samples"]] == [0, 1, 1]
    assert done.json["baseline"] == "zero, every feature at its mean"
    assert len(list(out.glob("*.png"))) == 3
    assert "weight" in (out / "report.html").read_text()
    plain = axiograd("explain", f"{tmp_path}/patients.py:Image", table, "-o", out)
    assert plain.code == 2
    (tmp_path / "bare.py").write_text("from torch import nn\n\n\ndef build():\n    return nn.Linear(4, 2)\n")
    bare = axiograd("explain", f"{tmp_path}/bare.py:build", table, "-o", out)
    assert bare.code == 2
    assert "schema = axiograd.datasets.table" in bare.err


def test_metrics_of_photos_with_masks(mine, photos, tmp_path):
    from PIL import Image

    for path in photos.rglob("*.png"):
        mask = Image.new("L", (24, 20))
        mask.paste(255, (0, 0, 12, 20))
        target = tmp_path / "masks" / path.relative_to(photos)
        target.parent.mkdir(parents=True, exist_ok=True)
        mask.save(target)
    how = ("-m", "x-gradient,random", "--metrics", "all", "--masks", tmp_path / "masks", "-o", tmp_path / "m")
    net = tmp_path / "net.py"
    net.write_text(mine.read_text().replace("nn.Linear(16, classes)", "nn.Linear(16, classes, bias=False)"))
    net.write_text(net.read_text().replace("nn.Conv2d(3, 4, 3, 2)", "nn.Conv2d(3, 4, 3, 2, bias=False)"))
    done = axiograd("explain", f"{net}:build", photos, *PIXELS, *how, "--json")
    assert done.code == 0, done.err
    assert json.loads((tmp_path / "m" / "metrics.json").read_text()) == done.json
    assert (done.json["n_samples"], done.json["n_regions"]) == (6, 6)
    exact, random = done.json["results"]
    assert exact["completeness_error"]["max"] < 1e-4
    assert "completeness_error" not in random
    assert exact["KPM"]["mean"] > random["KPM"]["mean"]
    assert 0 <= exact["energy inside"]["mean"] <= 1
    assert "top-1" in done.json["accuracy_percent"]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    path = tmp_path_factory.mktemp("model")
    sequence_classifier().save_pretrained(path)
    word_pieces().save_pretrained(path)
    return path


def test_texts(folder, tmp_path):
    table = tmp_path / "texts.csv"
    table.write_text('id,review\n1,"a wonderful film, and warm"\n2,"an awful\nplot"\n', encoding="utf-8")
    out = tmp_path / "out"
    done = axiograd("explain", f"hf:{folder}", table, "--target", "good", "--versus", "bad", "-o", out, "--json")
    assert done.code == 0, done.err
    assert [text["name"] for text in done.json["texts"]] == ["texts.csv:2", "texts.csv:3"]
    expected = library.text.explain(
        sequence_classifier(), word_pieces(), "a wonderful film, and warm", "good", versus="bad"
    )
    found = done.json["texts"][0]["words"]
    assert [word["value"] for word in found] == pytest.approx([w.value for w in expected.words], rel=1e-4, abs=1e-6)
    assert (out / "report.html").is_file()
    assert len(list(out.glob("*.svg"))) == 2
    for wrong, words in ((("--column", "reviw"), "did you mean 'review'"), (("--masks", out), "--masks")):
        done = axiograd("explain", f"hf:{folder}", table, *wrong, "-o", out)
        assert done.code == 2
        assert words in done.err
    # A name on the hub that is not here is asked for as a text model, too.
    done = axiograd("explain", "hf:no-such/model", table)
    assert "classify images" not in done.err
