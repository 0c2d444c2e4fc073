import json
import subprocess
import sys

from safetensors.torch import load_file


def test_the_demo_runs_and_saves_exact_attributions(tmp_path):
    command = [sys.executable, "-m", "axiograd", "demo", "--out", str(tmp_path / "demo"), "--images", "80"]
    command.append("--json")
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    for words in ("conv1.bias", "not certified", "X-DNN of degree 1, exact", "times faster"):
        assert words in done.stderr
    found = json.loads((tmp_path / "demo" / "demo.json").read_text())
    answer = json.loads(done.stdout)
    assert answer.pop("files")["report"] == str(tmp_path / "demo" / "report.html")
    assert answer == found
    assert found["completeness_error_relative_max"] < 1e-4
    assert found["difference_to_integrated_gradients_128"] < 1e-4
    stored = load_file(tmp_path / "demo" / "attributions.safetensors")
    assert stored["attributions_before"].shape == stored["images"].shape == (16, 3, 32, 32)
    assert (tmp_path / "demo" / "report.html").stat().st_size > 10_000
    assert not stored["attributions_before"].equal(stored["attributions_after"])
