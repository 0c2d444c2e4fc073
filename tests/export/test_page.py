"""The live page in a browser: photos dropped, chosen and filmed; its numbers against PyTorch's."""

import base64
import json
import math
import shutil
import tarfile
import time

import numpy as np
import onnxruntime
import pytest
import torch
from PIL import Image
from torch import nn

import axiograd
from axiograd.datasets import Preprocess
from axiograd.datasets.images import as_rgb
from axiograd.errors import ConfigurationError, DataMissingError, InputError, StorageError
from axiograd.export import page as pages
from support.served import onnxruntime_web, served

HOW = Preprocess(resize=36, crop=32, mean=(0.5, 0.4, 0.3))
NAMES = ("cat", "<b>dog</b>", "owl", "hen", "fox", "elk", "asp")
#: A drop as a mouse makes it.
DROP = """([name, content]) => {
  const bytes = Uint8Array.from(atob(content), c => c.charCodeAt(0)), data = new DataTransfer();
  data.items.add(new File([bytes], name, { type: "image/png" }));
  for (const type of ["dragover", "drop"]) {
    document.body.dispatchEvent(new DragEvent(type, { dataTransfer: data, bubbles: true, cancelable: true }));
  }
}"""
STATE = """() => JSON.stringify({
  output: [...live.last.output], attribution: [...live.last.attribution], gap: live.last.gap,
  explained: live.explained, score: +$("score").dataset.value, shown: +$("gap").dataset.value,
  rows: rows.filter(r => !r.hidden).map(
    r => [+r.dataset.index, +r.dataset.value, r.firstChild.textContent, r.getAttribute("aria-checked")]),
})"""


@pytest.fixture(scope="module")
def net():
    torch.manual_seed(0)
    layers = nn.Conv2d(3, 8, 5, 2, bias=False), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten()
    return nn.Sequential(*layers, nn.Linear(8 * 49, len(NAMES), bias=False)).eval()


@pytest.fixture(scope="module")
def folder(net, tmp_path_factory):
    package, folder = onnxruntime_web(), tmp_path_factory.mktemp("live")
    x = torch.randn(2, 3, 32, 32)
    pages.export_page(net, x, folder, preprocessing=HOW, classes=NAMES, name="small", onnxruntime_web=package)
    return folder


@pytest.fixture(scope="module")
def photo(tmp_path_factory):
    coarse = np.random.default_rng(0).integers(0, 256, (6, 5, 3), dtype=np.uint8)
    path = tmp_path_factory.mktemp("photo") / "photo.png"
    Image.fromarray(coarse).resize((36, 54)).save(path)  # nothing to resize, about which Pillow rounds differently
    return path


@pytest.fixture
def live(folder, page):
    with served(folder) as address:
        page.goto(address)
        until(page, "document.documentElement.dataset.state === 'ready'")
        yield page
        page.goto("about:blank")


def until(page, condition, seconds=120):
    """Wait in Python: the page's policy forbids to evaluate what Playwright would put into it."""
    end = time.monotonic() + seconds
    while not page.evaluate(condition):
        assert time.monotonic() < end, condition
        page.wait_for_timeout(50)


def drop(page, path):
    page.evaluate(DROP, [path.name, base64.b64encode(path.read_bytes()).decode()])


def settle(page, after=0):
    """Wait until everything that was asked has been answered."""
    done = f"live.number > {after} && !live.busy && !live.again && document.documentElement.dataset.state === 'done'"
    until(page, done)


def answer(page):
    """Everything that the page has been told, and the numbers that it shows."""
    return json.loads(page.evaluate(STATE))


def expected(model, how, path, target=None):
    """Outputs and attributions by PyTorch, of the picture that Pillow prepares."""
    x = how(Image.open(path).convert("RGB"))[None]
    output = model(x).detach()
    chosen = int(output.argmax()) if target is None else target
    return output[0].numpy(), axiograd.XGradient(model).attribute(x, target=chosen).numpy().ravel(), chosen


def agree(found, wanted, tolerance=1e-5):
    output, attribution, chosen = wanted
    assert found["explained"] == chosen
    for key, numbers in (("output", output), ("attribution", attribution)):
        np.testing.assert_allclose(found[key], numbers, rtol=0, atol=tolerance * np.abs(numbers).max())
    assert found["shown"] == found["gap"]
    assert abs(found["gap"]) < tolerance * np.abs(attribution).sum()
    assert math.isclose(found["score"], output[chosen], rel_tol=1e-4)
    assert [row[0] for row in found["rows"][:5]] == np.argsort(-output)[:5].tolist()


def test_a_dropped_photo_gives_pythons_numbers_for_any_class(live, net, photo):
    drop(live, photo)
    settle(live)
    found = answer(live)
    agree(found, expected(net, HOW, photo))
    assert found["rows"][0][2:] == [NAMES[found["explained"]], "true"]
    live.locator("#classes [role=radio]").first.press("ArrowDown")
    settle(live, 1)
    second = answer(live)["rows"][1]
    assert second[3] == "true"
    agree(answer(live), expected(net, HOW, photo, second[0]))
    live.fill("#other", "owl")
    live.press("#other", "Enter")
    settle(live, 2)
    agree(answer(live), expected(net, HOW, photo, 2))
    live.fill("#other", "yeti")
    live.press("#other", "Enter")
    assert "no class yeti" in live.inner_text("#status")


def test_a_large_photo_gives_the_numbers_of_onnxruntime_elsewhere(live, folder, tmp_path):
    coarse = np.random.default_rng(1).integers(0, 256, (7, 9, 3), dtype=np.uint8)
    Image.fromarray(coarse).resize((640, 480)).save(tmp_path / "large.png")
    live.set_input_files("#file", tmp_path / "large.png")
    settle(live)
    session = onnxruntime.InferenceSession(folder / "model.onnx", providers=["CPUExecutionProvider"])
    image = np.asarray(Image.open(tmp_path / "large.png"))[None]
    inputs = {"image": image, "target": np.array([-1]), "contrast": np.ones(1, np.float32)}
    output, attribution, _ = session.run(None, inputs)
    agree(answer(live), (output[0], attribution.ravel(), int(output.argmax())))


def test_contrast_does_not_move_the_answer(live, photo):
    drop(live, photo)
    settle(live)
    before = answer(live)
    live.locator("#contrast").fill("-90")
    settle(live, 1)
    after, power = answer(live), 10**-0.9
    for key in ("output", "attribution"):
        largest = np.abs(before[key]).max()
        np.testing.assert_allclose(np.array(after[key]) / power, before[key], rtol=0, atol=2e-6 * largest)
    assert "The answer is the same" in live.inner_text("#moved")


def test_the_heat_lies_on_a_grey_photo_alone_or_not_at_all(live, photo):
    drop(live, photo)
    settle(live)
    grey = "getComputedStyle($('photo')).filter"
    assert live.evaluate(grey) == "grayscale(1)"
    live.get_by_role("radio", name="Heat map", exact=True).check(force=True)
    assert live.evaluate(grey) == "none"
    assert live.is_visible("#heat")
    live.get_by_role("radio", name="Photo", exact=True).check(force=True)
    assert not live.is_visible("#heat")


def test_nonsense_is_refused_and_transparency_is_white_as_in_python(live, net, tmp_path):
    (tmp_path / "words.png").write_text("no picture")
    drop(live, tmp_path / "words.png")
    until(live, "$('status').textContent.includes('words.png is not a picture')")
    levels = np.random.default_rng(0).integers(0, 256, (36, 36, 4), dtype=np.uint8)
    levels[:, :, 3] = np.where(levels[:, :, 3] < 128, 0, 255)
    Image.fromarray(levels).save(tmp_path / "clear.png")
    as_rgb(Image.open(tmp_path / "clear.png")).save(tmp_path / "white.png")
    drop(live, tmp_path / "clear.png")
    settle(live)
    agree(answer(live), expected(net, HOW, tmp_path / "white.png"))


def test_a_photo_stands_upright(live, photo, tmp_path):
    picture = Image.open(photo).convert("RGB").resize((60, 40))
    exif = picture.getexif()
    exif[0x0112] = 6  # a quarter turn
    picture.save(tmp_path / "turned.jpg", exif=exif)
    drop(live, tmp_path / "turned.jpg")
    settle(live)
    assert live.evaluate("`${live.frame.width} ${live.frame.height}`") == "40 60"


def test_the_camera_keeps_answering(live):
    live.click("#camera")
    until(live, "live.number > 3 && live.stream !== null")
    assert live.get_attribute("#camera", "aria-pressed") == "true"
    live.click("#camera")
    assert live.evaluate("live.stream") is None
    until(live, "!live.busy")
    assert live.evaluate("Number.isFinite(live.last.gap)")


def test_nothing_sticks_out_at_any_width(live, photo):
    drop(live, photo)
    settle(live)
    for width in (1280, 700, 360):
        live.set_viewport_size({"width": width, "height": 800})
        assert live.evaluate("document.documentElement.scrollWidth") <= width


def test_without_a_server_it_says_what_to_do(page, folder):
    page.goto((folder / "index.html").as_uri())
    until(page, "document.documentElement.dataset.state === 'failed'")
    assert "python -m http.server" in page.inner_text("#status")


def test_a_model_that_is_gone_is_told(page, folder, tmp_path):
    shutil.copytree(folder, tmp_path / "live")
    (tmp_path / "live" / "model.onnx").unlink()
    with served(tmp_path / "live") as address:
        page.goto(address)
        until(page, "document.documentElement.dataset.state === 'failed'")
        assert "model.onnx: 404" in page.inner_text("#status")
        page.goto("about:blank")


def test_the_package_is_named_in_the_cache_or_downloaded_when_asked(tmp_path, monkeypatch):
    inner = tmp_path / "package" / "dist"
    inner.mkdir(parents=True)
    for name in pages._RUNTIME.values():
        (inner.parent / name).write_bytes(name.encode())
    with tarfile.open(tmp_path / "web.tgz", "w:gz") as archive:
        archive.add(tmp_path / "package", "package")
    assert pages.runtime_files(tmp_path / "web.tgz") == {k: v.encode() for k, v in pages._RUNTIME.items()}
    (tmp_path / "bad.tgz").write_bytes(b"nonsense")
    for wrong in ("bad.tgz", "none.tgz"):
        with pytest.raises(DataMissingError, match="not the npm package"):
            pages.runtime_files(tmp_path / wrong)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    with pytest.raises(DataMissingError, match=r"download=True \(--download\) fetches it"):
        pages.runtime_package()
    monkeypatch.setattr(pages, "ADDRESS", (tmp_path / "web.tgz").as_uri())
    with pytest.raises(StorageError, match="does not match the published file"):
        pages.runtime_package(download=True)
    monkeypatch.setattr(pages, "SHA256", axiograd._io.file_sha256(tmp_path / "web.tgz"))
    assert pages.runtime_package(download=True).read_bytes() == (tmp_path / "web.tgz").read_bytes()
    monkeypatch.setattr(pages, "ADDRESS", (tmp_path / "none.tgz").as_uri())
    with pytest.raises(DataMissingError, match=r"could not download none\.tgz.*--onnxruntime-web"):
        pages.runtime_package(download=True)


def test_what_cannot_be_a_page(net, tmp_path):
    x, none = torch.randn(2, 3, 32, 32), tmp_path / "none.tgz"
    (tmp_path / "file").write_text("")
    with pytest.raises(StorageError, match="it is a file"):
        pages.export_page(net, x, tmp_path / "file", preprocessing=HOW, onnxruntime_web=none)
    with pytest.raises(InputError, match="needs one with a crop"):
        pages.export_page(net, x, tmp_path / "p", preprocessing=Preprocess(resize=None, crop=None))
    with pytest.raises(ConfigurationError, match="contrast=True"):
        axiograd.export_onnx(net, x, tmp_path / "m.onnx", contrast=True)
