"""A pretrained SqueezeNet on real photos, and the survey table, from the command line."""

import pytest
from safetensors.torch import load_file

from axiograd.datasets import catalogue
from axiograd.models import list_weights
from support.command import axiograd

PHOTOS = next(entry for entry in catalogue() if entry.loader == "imagenet_sample")
SURVEY = next(entry for entry in catalogue() if entry.loader == "nhanes (reconstructed)")
WEIGHTS = list_weights("squeezenet1_1")[0]


@pytest.mark.skipif(
    not PHOTOS.present or WEIGHTS.locate() is None, reason="needs ImageNet photos and SqueezeNet weights"
)
@pytest.mark.parametrize("how", ["strip", pytest.param("lift", marks=pytest.mark.long)])
def test_a_pretrained_network_is_converted_and_explained(tmp_path, how):
    file = tmp_path / "x.safetensors"
    command = ("convert", "squeezenet1_1", "--weights", "default", "--how", how, "--examples", PHOTOS.path)
    converted = axiograd(*command, "--n-examples", "40", "-o", file, "--json").json
    assert converted["kept"]["share"] >= 0.5
    photos = [PHOTOS.path / name for name in ("n01440764_tench.jpg", "n01532829_house_finch.jpg")]
    done = axiograd("explain", file, *photos, "-o", tmp_path, "--no-figures", "--json")
    assert [sample["target_name"] for sample in done.json["samples"]] == ["tench", "house finch"]
    assert "BGR, values 0 to 255" in done.json["preprocessing"]
    for sample in done.json["samples"]:
        assert sample["methods"]["x-gradient"]["completeness_error"] < 1e-5


@pytest.mark.skipif(not SURVEY.present, reason="needs the reconstructed NHANES table")
def test_rows_of_the_survey(tmp_path):
    table = SURVEY.path / "nhanes_reconstructed.csv.gz"
    options = ("--label", "y_survived15", "--drop", "seqn", "--missing", "mean", "--standardise", "--limit", "4")
    options = (*options, "--statistics", table)
    command = ("explain", "xmlp", table, "--set", "in_channels=106", *options, "-o", tmp_path, "--no-figures")
    done = axiograd(*command, "--json")
    assert done.code == 0, done.err
    assert load_file(tmp_path / "attributions.safetensors")["x-gradient"].shape == (4, 106)
    assert "serum_albumin" in (tmp_path / "report.html").read_text()
