"""SqueezeNet: the trained weights load and recognise real photos."""

import pytest
import torch

from axiograd.datasets import SQUEEZENET, imagenet_sample
from axiograd.errors import DataMissingError
from axiograd.models import SqueezeNet, get_model


def test_every_convolution_has_a_caffe_name():
    model = SqueezeNet("1_1")
    weights = {key.removesuffix(".weight") for key in model.state_dict() if key.endswith(".weight")}
    assert set(model.caffe_names()) == weights


def test_x_variant_has_no_bias():
    assert not [key for key in SqueezeNet("1_0", homogeneous=True).state_dict() if key.endswith("bias")]


def test_trained_weights_recognise_photos():
    try:
        model = get_model("squeezenet1_1", weights="imagenet").eval()
        photos = imagenet_sample(transform=SQUEEZENET)
    except DataMissingError as error:
        pytest.skip(str(error))
    data = photos.load(range(0, 500, 20))
    with torch.no_grad():
        ranked = model(data.inputs).topk(5).indices
    hits = ranked == data.targets[:, None]
    # 61.2 and 82.0 % on all 500; 25 photos scatter by about 10 points.
    assert hits[:, 0].float().mean() > 0.4
    assert hits.any(1).float().mean() > 0.6
