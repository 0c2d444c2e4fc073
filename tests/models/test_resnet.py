"""ResNet-18 and ResNet-50 with trained weights."""

import pytest
import torch

from axiograd.datasets import CAFFE, TINY_IMAGENET, imagenet_sample, tiny_imagenet
from axiograd.datasets._tiny_imagenet import TINY_20_STEP
from axiograd.errors import DataMissingError
from axiograd.models import get_model


def test_trained_weights_recognise_tiny_images():
    try:
        model = get_model("resnet18", weights="tiny_imagenet").eval()
        images = tiny_imagenet("val", transform=TINY_IMAGENET)
    except DataMissingError as error:
        pytest.skip(str(error))
    data = images.load(range(0, 1000, 20))
    with torch.no_grad():
        predicted = model(data.inputs).argmax(1)
    # About 56 % over all 200 classes; 50 images scatter by about 7 points.
    assert (predicted == TINY_20_STEP * data.targets).float().mean() > 0.35


def test_trained_weights_recognise_photos():
    try:
        model = get_model("resnet50", weights="imagenet_v1").eval()
        photos = imagenet_sample(transform=CAFFE)
    except DataMissingError as error:
        pytest.skip(str(error))
    data = photos.load(range(0, 500, 50))
    with torch.no_grad():
        predicted = model(data.inputs).argmax(1)
    # About 91 % on these photos, which are probably training images.
    assert (predicted == data.targets).float().mean() >= 0.7
