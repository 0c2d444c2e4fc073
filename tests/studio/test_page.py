"""The page in a browser: looked at, painted on, spread, trained, judged, kept, closed and opened again."""

import runpy
import urllib.error
import urllib.request
from threading import Event

import pytest
import torch
from safetensors.torch import load_file

from axiograd.datasets.pictures import Pictures
from axiograd.errors import StorageError
from axiograd.studio.marks import Marks
from axiograd.studio.masks import write_masks
from axiograd.studio.network import Origin
from axiograd.studio.opening import Opened
from support import studio_model

IDLE, PATIENCE = "html[data-job=none]", 120_000


@pytest.fixture
def opened(pictures, tmp_path):
    with Opened(pictures, studio_model.origin(), tmp_path / "session") as studio:
        yield studio


@pytest.fixture
def tab(page, opened):
    page.goto(opened.address)
    settle(page)
    yield page
    page.close()  # before the studio, or it complains


def settle(page):
    page.wait_for_selector(f"{IDLE} #train:not([disabled])", timeout=PATIENCE)


def paint_corner(page, image):
    page.locator(f'.card[data-image="{image}"]').click()
    page.locator("[data-tool=rectangle]").click()
    with page.expect_response("**/api/about/*"):
        box = page.locator("#canvas").bounding_box()
        side = min(box["width"], box["height"])
        left, top = box["x"] + (box["width"] - side) / 2, box["y"] + (box["height"] - side) / 2
        page.mouse.move(left + 2, top + 2)
        page.mouse.down()
        page.mouse.move(left + side / 16, top + side / 16)
        page.mouse.move(left + side / 8, top + side / 8)
        page.mouse.up()
    page.wait_for_timeout(300)


def spread(page, how):
    page.locator(f"[data-how={how}]").click()
    page.locator("#spread").click()
    page.wait_for_selector(f"{IDLE} #message:has-text('Spread to')", timeout=PATIENCE)


def shown_mask(page, image):
    """How many pixels of an image's mask the wall shows."""
    return page.evaluate(
        """async (image) => {
          const mask = document.querySelector(`.card[data-image="${image}"] .mask`);
          await mask.decode();
          const canvas = new OffscreenCanvas(mask.naturalWidth, mask.naturalHeight), pen = canvas.getContext("2d");
          pen.drawImage(mask, 0, 0);
          return pen.getImageData(0, 0, canvas.width, canvas.height).data.filter((v, at) => at % 4 === 3 && v).length;
        }""",
        image,
    )


def on_the_wall(page, count):
    return [int(card.get_attribute("data-image")) for card in page.locator(".card[data-image]").all()[:count]]


def train(page, seconds):
    page.evaluate("seconds => document.querySelector('#seconds').append(new Option('short', seconds))", seconds)
    page.evaluate("seconds => { document.querySelector('#seconds').value = seconds; }", seconds)
    page.locator("#train").click()


def test_from_the_first_place_to_a_fixed_network(tab, opened):
    tab.wait_for_selector("#clusters li:first-child:has-text('upper left corner')")
    assert [one.inner_text() for one in tab.locator("main h2 i").all()] == ["1", "2", "3", "4"]
    first, second, third = on_the_wall(tab, 3)
    paint_corner(tab, first)
    tab.locator("[data-how=place]").click()
    tab.wait_for_selector("#preview p:has-text('119 other images, of 2 classes')")
    spread(tab, "place")
    tab.locator("#close").click()
    assert [shown_mask(tab, image) for image in (first, second, third)] == [4, 4, 4]
    train(tab, 5)
    tab.wait_for_selector("html[data-job=fix]")
    settle(tab)
    verdicts = [one["verdict"] for one in opened.session.rounds]
    assert verdicts[1]["marked"] == verdicts[1]["images"] == 24
    assert verdicts[1]["wrong_share"] < verdicts[0]["wrong_share"]
    words = "With regions exchanged: {} % → {} %".format(*(round(100 * one["exchanged"]) for one in verdicts))
    assert tab.locator("#verdict").inner_text().replace("\xa0", " ").startswith(words)
    tab.locator("#rounds button:has-text('Go there')").click()
    tab.wait_for_selector("#rounds li:first-child .current", timeout=PATIENCE)
    assert opened.session.current == 0


def test_a_verdict_on_one_class_says_which_ones_it_does_not_judge(tab, opened):
    first = on_the_wall(tab, 1)[0]
    paint_corner(tab, first)
    spread(tab, "class")
    tab.locator("#close").click()
    train(tab, 0.1)
    tab.wait_for_selector(f"{IDLE} #verdict .headline", timeout=PATIENCE)
    verdict = opened.session.round(0)["verdict"]
    assert verdict["exchanged"] < verdict["accuracy"]
    own, other = verdict["marked_classes"][0], verdict["unmarked_classes"][0]
    words = tab.locator("#verdict").inner_text()
    assert f"all of class “{own}”, with the marked regions exchanged for the same place in images of other" in words
    assert f"Nothing is marked in “{other}”" in words


def test_painted_masks_are_on_the_wall_at_once_and_undo_is_of_the_image(tab, opened):
    first, second = on_the_wall(tab, 2)
    for image in (first, second):
        paint_corner(tab, image)
        tab.locator("#close").click()
    assert [shown_mask(tab, image) for image in (first, second)] == [4, 4]
    tab.locator(f'.card[data-image="{first}"]').click()
    tab.locator("#undo").click()
    tab.wait_for_selector("#message:has-text('Undone')")
    tab.wait_for_timeout(300)
    assert [shown_mask(tab, image) for image in (first, second)] == [0, 4]
    assert opened.session.marks.painted() == [second]


def test_by_keyboard_and_without_a_mark(tab, opened, complaints):
    tab.locator("#train").click()
    tab.wait_for_selector("#message:has-text('paint first')")
    image = on_the_wall(tab, 1)[0]
    tab.locator(f'.card[data-image="{image}"]').click()
    tab.wait_for_selector("#editor-title:not(:empty)")
    tab.evaluate("document.querySelector('#size').value = 1")
    tab.locator("#canvas").focus()
    for key in ("2", "ArrowRight", " "):
        tab.keyboard.press(key)
    tab.wait_for_selector("#marked:has-text('1 image painted')")
    assert opened.session.marks.masks(image)[1].nonzero() == (8, 9)
    tab.keyboard.press("z")
    tab.wait_for_selector("#message:has-text('Undone')")
    tab.keyboard.press("z")
    tab.wait_for_selector("#message:has-text('nothing was painted')")
    complaints[:] = [one for one in complaints if "422" not in one]  # the browser logs a refusal


def test_filters_and_search_narrow_the_wall(tab):
    tab.select_option("[name=label]", "1")
    tab.wait_for_selector("#count:has-text('60 images')")
    tab.fill("[name=text]", "119")
    tab.wait_for_selector("#count:text-is('1 image')")
    tab.fill("[name=text]", "nothing")
    tab.wait_for_selector("#count:has-text('No images match')")


def test_it_is_read_on_a_phone(tab):
    tab.set_viewport_size({"width": 390, "height": 800})
    assert tab.evaluate("document.documentElement.scrollWidth") <= 390


def cornered(rows) -> Marks:
    marks = Marks((studio_model.SIDE, studio_model.SIDE))
    for row in rows:
        marks.add({"do": "stroke", "image": row, "kind": "wrong", "tool": "rectangle", "points": [[0, 0], [2, 2]]})
    return marks


def idle(studio):
    """Wait until nothing is being done."""
    done = Event()
    studio.worker.listeners.append(lambda event: done.set() if event["kind"] == "state" else None)
    if studio.worker.job is not None:
        assert done.wait(PATIENCE / 1000)
    studio.worker.listeners.clear()


def test_a_map_of_a_training_is_not_kept_as_the_round_s(opened):
    idle(opened)
    for row in range(120):
        opened.session.marks.add(cornered([row]).actions[0])
    worker, early = opened.worker, []
    # Asked for at the first step of the training, of the round that it will be.
    worker.listeners.append(
        lambda event: early.append(worker.ask(lambda: worker.map(0, 1))) if event["kind"] == "step" else None
    )
    worker.begin("fix", "Training", lambda: worker.fix("right-reasons", 1.0, 3.0)).result(PATIENCE)
    worker.listeners.clear()
    last = worker.ask(lambda: worker.map(0, 1)).result(PATIENCE)
    assert early[0].result() != last
    worker._maps.clear()
    assert worker.ask(lambda: worker.map(0, 1)).result(PATIENCE) == last


def test_a_session_resumes_with_its_marks_and_rounds_and_takes_masks(pictures, tmp_path):
    write_masks(tmp_path / "masks", pictures, cornered(range(5)))
    with Opened(pictures, studio_model.origin(), tmp_path / "s") as studio:
        idle(studio)
        studio.session.marks.add(cornered([7]).actions[0])
        with pytest.raises(StorageError, match="already writing"):
            Opened(pictures, studio_model.origin(), tmp_path / "s")
        worker, passed = studio.worker, Event()
        worker.listeners.append(lambda _: passed.set() if len(studio.session.rounds) > 1 else None)
        worker.begin("fix", "Training", lambda: worker.fix("right-reasons", 1.0, 600.0))
        assert passed.wait(PATIENCE / 1000)  # closed in the middle of a training
    with Opened(pictures, studio_model.origin(), tmp_path / "s", masks=tmp_path / "masks") as studio:
        idle(studio)
        assert studio.session.marks.images() == [0, 1, 2, 3, 4, 7]
        assert studio.session.round(1)["plan"]["passes"] > 0
        studio.worker.begin("show", "Going there", lambda: studio.worker.show(1)).result(PATIENCE)
        assert studio.session.round(1)["verdict"]["marked"] > 0
    other = Pictures.of_tensors(studio_model.squares(40))
    with pytest.raises(StorageError, match="there: 120, here: 40"):
        Opened(other, studio_model.origin(), tmp_path / "s")


def test_what_is_kept_repeats_the_training_to_the_same_numbers(opened, tmp_path, pictures):
    idle(opened)
    for row in range(20):
        opened.session.marks.add(cornered([row]).actions[0])
    worker = opened.worker
    worker.begin("fix", "Training", lambda: worker.fix("right-reasons", 1.0, 0.1)).result(PATIENCE)
    opened.session.marks.add(cornered([50]).actions[0])  # painted after the training
    worker.begin("keep", "Keeping", lambda: worker.keep(1)).result(PATIENCE)
    kept = tmp_path / "session" / "kept" / "round-1"
    assert "Fixed in the studio" in (kept / "report.html").read_text()
    runpy.run_path(str(kept / "fix.py"))
    again, trained = load_file(kept / "fixed.safetensors"), load_file(kept / "model.safetensors")
    for name, value in trained.items():
        torch.testing.assert_close(again[name], value, rtol=1e-5, atol=1e-7)
    onnx = pytest.importorskip("onnxruntime").InferenceSession(kept / "model.onnx", providers=["CPUExecutionProvider"])
    x = pictures.batch(range(3))
    names = [one.name for one in onnx.get_inputs()]
    outputs, *_ = onnx.run(None, dict(zip(names, [x.numpy(), torch.full((3,), -1).numpy()], strict=True)))
    torch.testing.assert_close(torch.from_numpy(outputs), worker.model(1)(x).detach(), rtol=1e-4, atol=1e-4)


def test_nobody_without_the_address_is_answered(opened):
    def status(path, **headers):
        try:
            with urllib.request.urlopen(urllib.request.Request(path, headers=headers)) as answer:
                return answer.status
        except urllib.error.HTTPError as error:
            return error.code

    base = opened.address.rsplit("/", 2)[0] + "/"
    assert base.startswith("http://127.0.0.1:")
    assert status(opened.address) == status(opened.address + "shared/palette.css") == 200
    assert [status(base + path) for path in ("", "api/state", "x/api/state", "assets/main.js")] == [404] * 4
    assert status(opened.address, Host="evil.example") == 400
    assert status(opened.address + "assets/..%2fserver.py") == 404
    assert status(opened.address + "api/image/99999.png") == 422


def test_a_model_that_will_not_do_is_a_sentence_on_the_page(page, pictures, tmp_path):
    with Opened(pictures, Origin(studio_model.hopeless, studio_model.hopeless), tmp_path / "s") as studio:
        page.goto(studio.address)
        page.wait_for_selector(".trouble:has-text('one output for each')", timeout=PATIENCE)
        assert page.locator("#train").is_disabled()
        page.close()
