"""Table 3 in its quick form and at full scale in miniature."""

import pytest
import torch
from torch.testing import assert_close

from axiograd.experiments import image_networks, table3
from axiograd.experiments.image_networks import FAMILIES
from axiograd.experiments.item import Setting
from axiograd.experiments.records import read
from axiograd.experiments.reproduce import ProcessShare


def test_quick(quick, tmp_path):
    done = quick("table3")
    lines = {(row[0], row[1]): row for row in done.table.rows}
    assert len(lines) == 12
    # On an X-DNN, X-Gradient is Integrated Gradients; the paper's numbers stand beside.
    x_gradient, integrated = (lines["small network, X", method] for method in ("X-Gradient (1)", "IG (128)"))
    assert x_gradient[2:6] == integrated[2:6]
    assert x_gradient[6:] == ("7.38", "2.21", "21.83", "11.68", 3)
    assert lines["small network, regular", "EG (1)"][6:10] == ("4.92", "2.97", "20.49", "13.76")
    assert ("small network, regular", "X-Gradient (1)") not in lines
    piece = read(tmp_path / "table3" / "quick.json").get(network="small", form="X", method="Random", images=[0, 2])
    assert [len(piece[metric]) for metric in table3.METRICS] == [2, 2, 2, 2]


def test_draws_depend_on_the_chunk_alone(quick, small, tmp_path):
    work = table3.plan(Setting("quick")).stages[0](None)
    last = next(w for w in work if w.key["method"] == "EG (1)" and w.key["images"] == [2, 3])
    alone = last.compute()
    for number in (1, 2):
        quick("table3", share=ProcessShare(number, 2))
    assert read(tmp_path / "table3" / "quick.json").get(**last.key) == alone


@pytest.mark.long
def test_full_scale(full, tmp_path):
    done = full("table3")
    assert {row[0] for row in done.table.rows} == {
        f"{name}, {form}" for name in ("AlexNet", "VGG16", "Fixup-ResNet-50") for form in ("regular", "X")
    }
    assert {row[-1] for row in done.table.rows} == {3}
    stored = read(tmp_path / "results" / "table3" / "full.json")
    assert stored.data == "ImageNet val"
    # Of so many images, moments are kept in place of numbers.
    assert stored.pieces[0].values["KPM"].keys() == {"n", "mean", "squares"}


def test_channels_last_is_the_same_network(small):
    family = FAMILIES["quick"][0]
    setting = Setting("quick")
    inputs, _ = image_networks.batch(image_networks.images(family, setting), [0, 1], family)
    assert inputs.is_contiguous(memory_format=torch.channels_last)
    model = image_networks.network(family, "regular", setting)
    plain = image_networks.trained(family, "regular", 0).eval()
    assert_close(model(inputs), plain(inputs.contiguous()))


def test_photos_that_a_strip_was_fitted_to_judge_nothing():
    photos = range(500)
    resnet50 = next(family for family in image_networks.in_alexnets_role("real") if family.key == "resnet50")
    judged = image_networks.order(photos, 0, family=resnet50)
    fitted = {500 * i // 48 for i in range(48)}
    assert set(judged) == set(photos) - fitted
    assert image_networks.order(photos, 0, 3, resnet50) == judged[:3]
    # In the order of the others, so that networks are seen on the same photos.
    assert judged == [i for i in image_networks.order(photos, 0) if i not in fitted]
