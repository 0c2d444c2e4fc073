import base64
import hashlib
import json
import re
from html.parser import HTMLParser
from types import SimpleNamespace

import numpy as np
import pytest
import torch

import axiograd
from axiograd.errors import ConfigurationError, InputError, StorageError
from axiograd.report import Report
from axiograd.report._escape import json_text
from axiograd.report._png import encode
from axiograd.report._tables import as_rows, show
from axiograd.report.sample import LEVELS, pack, shrink
from support.pages import HOSTILE


class Elements(HTMLParser):
    """What a browser would find: tags, their attributes, and the content of scripts."""

    def __init__(self, page):
        super().__init__()
        self.tags, self.scripts = [], {}
        self._id = None
        self.feed(page)

    def handle_starttag(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))
        if tag == "script":
            self._id = dict(attrs).get("id", "code")
            self.scripts[self._id] = ""

    def handle_endtag(self, tag):
        if tag == "script":
            self._id = None

    def handle_data(self, content):
        if self._id is not None:
            self.scripts[self._id] += content


def hostile_report(image, violated, text):
    violated.violations[0].module = violated.violations[0].reason = violated.violations[0].fix = text
    report = Report(
        text, lead=text, headline={text: text}, command=text, model_name=text, data=text, baseline=text,
        certificate={text: violated}, facts={text: text},
    )  # fmt: skip
    report.add_step(text, text, numbers={text: (text, text)}, code=text)
    report.add_section(text, text)
    report.add_table(text, [{text: text}], note=text)
    report.add_text(text, text)
    report.add_command(text, text)
    report.add_sample(
        text,
        {text: image, "other": image},
        image=image,
        label=text,
        prediction=text,
        details={text: text},
        featured=True,
    )
    report.add_sample(text, torch.ones(2), features=[text, "b"], label=text)
    return report


@pytest.mark.parametrize("text", HOSTILE)
def test_hostile_names_stay_text(image, violated, text):
    plain = Elements(hostile_report(image, violated, "plain").to_html())
    found = Elements(hostile_report(image, violated, text).to_html())
    assert [t for t, _ in found.tags if t != "code"] == [t for t, _ in plain.tags if t != "code"]
    assert not any(name.startswith("on") for _, attributes in found.tags for name in attributes)
    data = json.loads(found.scripts["data"])
    assert [s["name"] for s in data["samples"]] == [text, text]
    assert data["views"][0] == text


def test_nothing_is_loaded_from_elsewhere(image):
    report = Report("title")
    report.add_sample("a", image, image=image)
    page = report.to_html()
    found = Elements(page)
    links = [a[k] for _, a in found.tags for k in ("src", "href") if k in a]
    assert all(link.startswith(("data:", "#")) for link in links)
    assert "http" not in re.sub(r"http-equiv|http://www\.w3\.org/2000/svg", "", page)


def test_the_policy_allows_exactly_this_script_and_this_style():
    page = Report("title").to_html()
    for tag in ("script", "style"):
        content = re.findall(f"<{tag}>(.*?)</{tag}>", page, re.DOTALL)
        assert len(content) == 1
        digest = base64.b64encode(hashlib.sha256(content[0].encode()).digest()).decode()
        assert f"{tag}-src 'sha256-{digest}'" in page


def test_json_survives_and_never_ends_its_element():
    value = {"</script>": ["\u2028", "<!--", "&amp;", "ü", "\ud800"]}
    text = json_text(value)
    assert not set("<>&\u2028\u2029") & set(text)
    assert json.loads(text) == {"</script>": ["\u2028", "<!--", "&amp;", "ü", "?"]}


def unpack(packed, shape):
    """What the page does in JavaScript."""
    levels = np.frombuffer(base64.b64decode(packed["levels"]), dtype=np.int8).reshape(shape).astype(float)
    return np.sign(levels) * (levels / LEVELS) ** 2 * packed["largest"]


@pytest.mark.parametrize("shape", [(1, 1), (7, 5)])
@pytest.mark.parametrize("scale", [1e-30, 1.0, 1e30])
def test_packed_values_are_within_the_stated_error(shape, scale):
    values = np.random.default_rng(0).standard_normal(shape) ** 3 * scale
    back = unpack(pack(values), shape)
    assert np.abs(back - values).max() <= 0.008 * np.abs(values).max()
    assert (np.sign(back) * np.sign(values) >= 0).all()


def test_all_zero_packs_to_zero():
    assert unpack(pack(np.zeros((2, 2))), (2, 2)).tolist() == [[0, 0], [0, 0]]


def test_shrinking_averages_blocks():
    values = np.arange(35.0).reshape(5, 7)
    small = shrink(values, 2)
    assert small.shape == (3, 4)
    assert small[0, 0] == values[:2, :2].mean()
    assert small[2, 3] == values[4, 6]
    assert small[1, 3] == values[2:4, 6].mean()


def test_large_maps_are_shrunk_and_keep_their_sum(image):
    report = Report("title", max_side=4)
    report.add_sample("a", image, image=image)
    found = Elements(report.to_html())
    assert json.loads(found.scripts["data"])["samples"][0]["shape"] == [4, 4]
    payload = json.loads(found.scripts["payload-0"])
    assert payload["block"] == 2
    assert payload["maps"][0]["sum"] == pytest.approx(float(image.double().sum()))


def test_our_png_is_one_that_others_read():
    pil = pytest.importorskip("PIL.Image", reason="Pillow is not installed")
    import io

    pixels = np.random.default_rng(0).integers(0, 256, (5, 3, 3), dtype=np.uint8)
    assert np.array_equal(np.asarray(pil.open(io.BytesIO(encode(pixels)))), pixels)


def test_the_certificate_says_who_where_and_what_to_do(violated, certified):
    page = Report("title", certificate={"regular": violated, "X-DNN": certified}).to_html()
    for words in ("Not certified: 1 violation.", "<code>fc</code>", "net.py:7", "<code>bias=False</code>"):
        assert words in page
    assert "Certified: homogeneous of degree 1, exactly." in page


def test_real_certificates_are_shown():
    regular = axiograd.certify(torch.nn.Linear(3, 2), torch.ones(1, 3))
    xdnn = axiograd.certify(torch.nn.Linear(3, 2, bias=False), torch.ones(1, 3))
    page = Report("title", certificate={"regular": regular, "X-DNN": xdnn}).to_html()
    assert "Not certified: 1 violation." in page
    assert "homogeneous of degree 1, exactly" in page


def test_steps_tables_and_commands_are_there():
    report = Report("title", command="axiograd demo", headline={"accuracy": (34.0, 97.8)})
    report.add_step("first", "uses `certify`", numbers={"n": 12345})
    report.add_table("Costs", {"X-Gradient": {"ms": 3.0}, "IG": {"ms": 376.0}}, section="Costs")
    result = SimpleNamespace(axiom="symmetry", passed=False, violation=0.5, counterexample="x = (1, 2)")
    report.add_axioms(SimpleNamespace(method="Gradient", models="networks", results=[result]))
    page = report.to_html()
    for words in (
        "<code>certify</code>",
        "12,345",
        'data-value="376.0"',
        "axiograd demo",
        "✗ no",
        "x = (1, 2)",
        "97.8",
    ):
        assert words in page


def test_figures_come_as_png_from_anywhere(tmp_path):
    png = encode(np.zeros((2, 2, 3), dtype=np.uint8))
    (tmp_path / "a.png").write_bytes(png)
    report = Report("title")
    report.add_figure("bytes", png)
    report.add_figure("path", tmp_path / "a.png", caption="with `code`")
    assert report.to_html().count("data:image/png;base64,") == 2
    with pytest.raises(ConfigurationError, match="PNG"):
        report.add_figure("no", b"GIF89a")
    with pytest.raises(ConfigurationError, match="int"):
        report.add_figure("no", 3)
    with pytest.raises(StorageError, match="missing"):
        report.add_figure("no", tmp_path / "missing.png")


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"attributions": {}}, "no attribution"),
        ({"attributions": {"a": torch.ones(3), "b": torch.ones(2, 2)}}, "mixes"),
        ({"attributions": torch.ones(2, 2), "image": torch.ones(3, 3)}, "differ in size"),
        ({"attributions": torch.ones(3), "features": ["a"]}, "1 feature names"),
        ({"attributions": torch.ones(3), "values": torch.ones(2)}, "2 values"),
        ({"attributions": {"a": torch.ones(3)}, "prediction": {"b": 1}}, "not among"),
    ],
)
def test_samples_that_do_not_fit_are_refused(arguments, words):
    with pytest.raises(InputError, match=words):
        Report("title").add_sample("sample", **arguments)


def test_a_batch_is_the_same_as_its_samples(image):
    names, x = ["a", "b"], torch.stack([image, 1 - image])
    one, many = Report("title"), Report("title")
    for i, name in enumerate(names):
        one.add_sample(name, {"m": x[i]}, image=x[i], label=i, completeness={"m": 0.5 * i}, featured=i < 1)
    many.add_samples(names, {"m": x}, image=x, label=[0, 1], completeness={"m": torch.tensor([0.0, 0.5])}, featured=[0])
    assert Elements(one.to_html()).scripts == Elements(many.to_html()).scripts
    with pytest.raises(InputError, match="1 label for 2"):
        many.add_samples(names, x, label=[0])


def test_numbers_that_json_lacks_are_words():
    report = Report("title")
    report.add_sample("a", torch.ones(2), completeness=float("inf"), score=float("nan"))
    sample = json.loads(Elements(report.to_html()).scripts["data"])["samples"][0]
    assert (sample["completeness"], sample["score"]) == (["inf"], ["nan"])


def test_tables_of_every_shape():
    assert as_rows([[1, 2]], ["a", "b"]) == (["a", "b"], [[1, 2]])
    assert as_rows({"x": 1}) == (["", " "], [["x", 1]])
    with pytest.raises(InputError, match="columns"):
        as_rows([[1, 2]])
    assert [show(v) for v in (float("nan"), torch.tensor(2.5), -1e-7, False)] == ["nan", "2.5", "−1e−7", "✗ no"]


def test_a_page_without_anything_is_written(tmp_path):
    path = Report("title").write(tmp_path / "new" / "report.html")
    assert path.read_text(encoding="utf-8").startswith("<!doctype html>")
