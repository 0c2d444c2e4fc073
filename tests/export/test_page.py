"""The live page in a browser: photos dropped, chosen and filmed; its numbers against PyTorch's."""

import json
import math
import os
import shutil
import tarfile
from pathlib import Path

import numpy as np
import onnxruntime
import pytest
import torch
from PIL import Image
from torch import nn

import axiograd
from axiograd.datasets import SQUEEZENET, Preprocess
from axiograd.datasets.images import as_rgb
from axiograd.errors import ConfigurationError, DataMissingError, InputError, StorageError
from axiograd.export import page as pages
from support.chromium import CHROMIUM, Browser
from support.pages import set_slider
from support.served import onnxruntime_web, served

HOW = Preprocess(resize=36, crop=32, mean=(0.5, 0.4, 0.3))
NAMES = ("cat", "<b>dog</b>", "owl", "hen", "fox", "elk", "asp")


@pytest.fixture(scope="module")
def browser(tmp_path_factory):
    if CHROMIUM is None:
        pytest.skip("no chromium on this machine (Debian: apt install chromium)")
    camera = "--use-fake-device-for-media-stream", "--use-fake-ui-for-media-stream"
    browser = Browser(tmp_path_factory.mktemp("profile"), *camera)
    yield browser
    browser.close()


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
def page(browser, folder):
    with served(folder) as address:
        open_page(browser, address)
        yield browser
        browser.call("Page.navigate", url="about:blank")


def open_page(browser, address):
    browser.resize(1100, 900)
    browser.allowed = (address, "data:", "about:", "blob:")
    browser.complaints.clear()
    browser.call("Page.navigate", url=address)
    browser.wait("document.documentElement?.dataset.state === 'ready'", 120)


def drop(page, path):
    """What a person does with the mouse."""
    data = {"items": [], "files": [str(path)], "dragOperationsMask": 1}
    for kind in ("dragEnter", "dragOver", "drop"):
        page.call("Input.dispatchDragEvent", type=kind, x=200, y=300, data=data)


def settle(page, after=0):
    """Wait until everything that was asked has been answered."""
    done = f"live.number > {after} && !live.busy && !live.again && document.documentElement.dataset.state === 'done'"
    page.wait(done, 120)


def answer(page):
    """Everything that the page has been told, and the numbers that it shows."""
    text = page.evaluate(
        "JSON.stringify({output: [...live.last.output], attribution: [...live.last.attribution], gap: live.last.gap,"
        "explained: live.explained, score: +$('score').dataset.value, shown: +$('gap').dataset.value,"
        "rows: rows.filter(r => !r.hidden).map(r => [+r.dataset.index, +r.dataset.value, r.firstChild.textContent,"
        "r.getAttribute('aria-checked')])})"
    )
    return json.loads(text)


def expected(model, how, path, target=None):
    """Outputs and attributions by PyTorch, of the picture that Pillow prepares."""
    x = how(Image.open(path).convert("RGB"))[None]
    output = model(x).detach()
    chosen = int(output.argmax()) if target is None else target
    return output[0].numpy(), axiograd.XGradient(model).attribute(x, target=chosen).numpy().ravel(), chosen


def ties(model, how, path, chosen, shifts=16):
    """How far PyTorch's own attributions move, number by number, when rounding decides which gate of a tie opens."""
    torch.manual_seed(0)
    x = how(Image.open(path).convert("RGB"))[None]
    method = axiograd.XGradient(model)
    before = method.attribute(x, target=chosen)
    moved = [method.attribute(x + 1e-6 * x * torch.randn_like(x), target=chosen) - before for _ in range(shifts)]
    return torch.stack(moved).abs().amax(0).numpy().ravel()


def agree(found, wanted, tolerance=1e-5, tied=0.0):
    output, attribution, chosen = wanted
    assert found["explained"] == chosen
    np.testing.assert_allclose(found["output"], output, rtol=0, atol=tolerance * np.abs(output).max())
    off, allowed = np.abs(np.array(found["attribution"]) - attribution), tolerance * np.abs(attribution).max()
    assert (off <= allowed + 4 * tied).all()
    assert (off > allowed).mean() < 0.01  # behind a gate or two, not all over the picture
    assert found["shown"] == found["gap"]
    assert abs(found["gap"]) < tolerance * np.abs(attribution).sum()
    assert math.isclose(found["score"], output[chosen], rel_tol=1e-4)
    assert [row[0] for row in found["rows"][:5]] == np.argsort(-output)[:5].tolist()


def test_a_dropped_photo_gives_pythons_numbers(page, net, photo):
    drop(page, photo)
    settle(page)
    found = answer(page)
    agree(found, expected(net, HOW, photo))
    assert found["rows"][0][2:] == [NAMES[found["explained"]], "true"]
    assert page.complaints == []


def test_a_large_photo_gives_the_numbers_of_onnxruntime_elsewhere(page, folder, tmp_path):
    coarse = np.random.default_rng(1).integers(0, 256, (7, 9, 3), dtype=np.uint8)
    Image.fromarray(coarse).resize((640, 480)).save(tmp_path / "large.png")
    drop(page, tmp_path / "large.png")
    settle(page)
    session = onnxruntime.InferenceSession(folder / "model.onnx", providers=["CPUExecutionProvider"])
    image = np.asarray(Image.open(tmp_path / "large.png"))[None]
    inputs = {"image": image, "target": np.array([-1]), "contrast": np.ones(1, np.float32)}
    output, attribution, _ = session.run(None, inputs)
    agree(answer(page), (output[0], attribution.ravel(), int(output.argmax())))


def test_a_class_can_be_chosen_with_the_keyboard(page, net, photo):
    drop(page, photo)
    settle(page)
    page.evaluate("rows[0].focus()")
    page.key("ArrowDown")
    settle(page, 1)
    second = answer(page)["rows"][1]
    assert second[3] == "true"
    agree(answer(page), expected(net, HOW, photo, second[0]))
    page.key("Escape")
    settle(page, 2)
    agree(answer(page), expected(net, HOW, photo))
    page.evaluate("$('other').focus()")
    page.type("owl")
    page.key("Enter")
    settle(page, 3)
    agree(answer(page), expected(net, HOW, photo, 2))
    page.evaluate("$('other').value = 'yeti'; $('other').dispatchEvent(new Event('change'))")
    assert "no class yeti" in page.evaluate("$('status').textContent")


def test_contrast_does_not_move_the_answer(page, net, photo):
    drop(page, photo)
    settle(page)
    before = answer(page)
    set_slider(page, "#contrast", -90)
    settle(page, 1)
    after, power = answer(page), 10**-0.9
    for key in ("output", "attribution"):
        largest = np.abs(before[key]).max()
        np.testing.assert_allclose(np.array(after[key]) / power, before[key], rtol=0, atol=2e-6 * largest)
    assert page.evaluate("+$('moved').dataset.value") < 1e-5
    assert "The answer is the same" in page.evaluate("$('moved').textContent")


def test_a_file_is_chosen_and_nonsense_is_refused(page, net, photo, tmp_path):
    (tmp_path / "words.png").write_text("no picture")
    drop(page, tmp_path / "words.png")
    page.wait("$('status').textContent.includes('words.png is not a picture')")
    root = page.call("DOM.getDocument")["root"]["nodeId"]
    node = page.call("DOM.querySelector", nodeId=root, selector="#file")["nodeId"]
    page.call("DOM.setFileInputFiles", nodeId=node, files=[str(photo)])
    settle(page)
    agree(answer(page), expected(net, HOW, photo))


def test_what_is_transparent_is_white_as_in_python(page, net, tmp_path):
    levels = np.random.default_rng(0).integers(0, 256, (36, 36, 4), dtype=np.uint8)
    levels[:, :, 3] = np.where(levels[:, :, 3] < 128, 0, 255)
    Image.fromarray(levels).save(tmp_path / "clear.png")
    as_rgb(Image.open(tmp_path / "clear.png")).save(tmp_path / "white.png")
    drop(page, tmp_path / "clear.png")
    settle(page)
    agree(answer(page), expected(net, HOW, tmp_path / "white.png"))


def test_a_photo_stands_upright(page, photo, tmp_path):
    picture = Image.open(photo).convert("RGB").resize((60, 40))
    exif = picture.getexif()
    exif[0x0112] = 6  # a quarter turn
    picture.save(tmp_path / "turned.jpg", exif=exif)
    drop(page, tmp_path / "turned.jpg")
    settle(page)
    assert page.evaluate("`${live.frame.width} ${live.frame.height}`") == "40 60"


def test_the_camera_keeps_answering(page):
    page.key("c")
    page.wait("live.number > 3 && live.stream !== null", 60)
    assert page.evaluate("$('camera').getAttribute('aria-pressed')") == "true"
    page.key("c")
    assert page.evaluate("live.stream") is None
    page.wait("!live.busy")
    assert page.evaluate("Number.isFinite(live.last.gap)")


def test_nothing_sticks_out_at_any_width(page, photo):
    drop(page, photo)
    settle(page)
    for width, phone in ((1280, False), (700, False), (360, True)):
        page.resize(width, 800, phone=phone)
        assert page.evaluate("document.documentElement.scrollWidth") <= width
    small = "[...document.querySelectorAll('button, input')].filter(e => e.offsetParent && e.offsetHeight < 32).length"
    assert page.evaluate(small) == 0


def test_without_a_server_it_says_what_to_do(browser, folder):
    browser.call("Page.navigate", url=(folder / "index.html").as_uri())
    browser.wait("document.documentElement?.dataset.state === 'failed'")
    assert "python -m http.server" in browser.evaluate("$('status').textContent")


def test_a_model_that_is_gone_is_told(browser, folder, tmp_path):
    shutil.copytree(folder, tmp_path / "live")
    (tmp_path / "live" / "model.onnx").unlink()
    with served(tmp_path / "live") as address:
        browser.call("Page.navigate", url=address)
        browser.wait("document.documentElement?.dataset.state === 'failed'", 60)
        assert "model.onnx: 404" in browser.evaluate("$('status').textContent")
        browser.call("Page.navigate", url="about:blank")


@pytest.mark.long
def test_squeezenet_on_real_photos(browser, tmp_path):
    data = os.environ.get("AXIOGRAD_DATA")
    if not data or not (Path(data) / "imagenet-sample").is_dir():
        pytest.skip("AXIOGRAD_DATA names no folder with imagenet-sample")
    original = axiograd.models.get_model("squeezenet1_1", weights="imagenet").eval()
    torch.manual_seed(0)
    x = torch.randn(2, 3, 227, 227) * 60
    model = axiograd.to_xdnn(original, x, how="strip").model.eval()
    pages.export_page(model, x, tmp_path, preprocessing=SQUEEZENET, onnxruntime_web=onnxruntime_web())
    photos = sorted((Path(data) / "imagenet-sample").glob("*.jpg"))[40:340:100]
    with served(tmp_path) as address:
        open_page(browser, address)
        for number, source in enumerate(photos):
            photo = tmp_path / f"{number}.png"  # decoded once: decoders of JPEG differ in the last bit
            Image.open(source).convert("RGB").save(photo)
            drop(browser, photo)
            settle(browser, number)
            wanted = expected(model, SQUEEZENET, photo)
            agree(answer(browser), wanted, tied=ties(model, SQUEEZENET, photo, wanted[2]))
        assert browser.complaints == []


def test_the_package_is_a_folder_an_archive_or_missing(tmp_path, monkeypatch):
    inner = tmp_path / "package" / "dist"
    inner.mkdir(parents=True)
    for name in pages._RUNTIME.values():
        (inner.parent / name).write_bytes(name.encode())
    with tarfile.open(tmp_path / "web.tgz", "w:gz") as archive:
        archive.add(tmp_path / "package", "package")
    assert pages.runtime_files(tmp_path / "package") == pages.runtime_files(tmp_path / "web.tgz")
    with pytest.raises(DataMissingError, match="not the npm package"):
        pages.runtime_files(tmp_path)
    (tmp_path / "bad.tgz").write_bytes(b"nonsense")
    with pytest.raises(DataMissingError, match="not the npm package"):
        pages.runtime_files(tmp_path / "bad.tgz")
    with pytest.raises(DataMissingError, match="there is no"):
        pages.runtime_files(tmp_path / "none.tgz")
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(ConfigurationError, match=r"npm.* is not installed.*--onnxruntime-web"):
        pages.runtime_files(None)
    npm = tmp_path / "npm"
    npm.write_text("#!/bin/sh\necho no network >&2\nexit 1\n")
    npm.chmod(0o755)
    with pytest.raises(DataMissingError, match=r"no network.*--onnxruntime-web"):
        pages.runtime_files(None)


def test_what_cannot_be_a_page(net, tmp_path):
    x, none = torch.randn(2, 3, 32, 32), tmp_path / "none.tgz"
    (tmp_path / "file").write_text("")
    with pytest.raises(StorageError, match="it is a file"):
        pages.export_page(net, x, tmp_path / "file", preprocessing=HOW, onnxruntime_web=none)
    with pytest.raises(InputError, match="needs one with a crop"):
        pages.export_page(net, x, tmp_path / "p", preprocessing=Preprocess(resize=None, crop=None))
    with pytest.raises(ConfigurationError, match="contrast=True"):
        axiograd.export_onnx(net, x, tmp_path / "m.onnx", contrast=True)
