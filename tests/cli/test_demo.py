import json

from safetensors.torch import load_file

from support.command import axiograd


def test_the_demo_runs_and_saves_exact_attributions(tmp_path):
    done = axiograd("demo", "--out", tmp_path / "demo", "--images", "80", "--json")
    assert done.code == 0, done.err
    for words in ("conv1.bias", "not certified", "X-DNN of degree 1, exact", "times faster"):
        assert words in done.err
    found = json.loads((tmp_path / "demo" / "demo.json").read_text())
    answer = done.json
    assert answer.pop("files")["report"] == str(tmp_path / "demo" / "report.html")
    assert answer == found
    assert found["completeness_error_relative_max"] < 1e-4
    assert found["difference_to_integrated_gradients_128"] < 1e-4
    stored = load_file(tmp_path / "demo" / "attributions.safetensors")
    assert stored["attributions_before"].shape == stored["images"].shape == (16, 3, 32, 32)
    assert (tmp_path / "demo" / "report.html").stat().st_size > 10_000
    assert not stored["attributions_before"].equal(stored["attributions_after"])
