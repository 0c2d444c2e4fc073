"""Which output is which class."""

import pytest

from axiograd.datasets.sources import TINY_20_WNIDS
from axiograd.errors import TargetError
from axiograd.loading.zoo import about
from axiograd.pipeline import ClassNames


def test_names_of_the_data_only_where_their_number_fits():
    assert ClassNames.of((), ("a", "b"), 2)[1] == "b"
    assert ClassNames.of((), ("a", "b"), 3)[1] == "class 1"
    assert ClassNames.of(("tench, Tinca tinca", "cat"), (), 2).index("Tinca tinca") == 0


def test_labels_are_not_rewritten():
    """Twenty classes of somebody's own are not every tenth of two hundred."""
    own = tuple(f"own{i}" for i in range(20))
    for known in (about("resnet18")[1], ()):
        assert ClassNames.of(known, own, 200).match([0, 1, 19], own, 200) is None


def test_the_twenty_classes_of_tiny_imagenet_are_matched_by_wnid():
    names = ClassNames.of(about("resnet18")[1], (), 200)
    assert names[30] == "tabby"
    assert names.match([0, 3], TINY_20_WNIDS, 200) == [0, 30]
    assert names.match([0, 3], [*TINY_20_WNIDS[:3], "n02444819"], 200) is None


def test_the_thousand_names_with_all_that_imagenet_calls_them():
    names = ClassNames.of(about("squeezenet1_1")[1], (), 1000)
    assert (names[0], names[360], names[999]) == ("tench", "otter", "toilet tissue")
    assert names.index("otter") == names.index("OTTER") == names.index("n02444819") == 360
    with pytest.raises(TargetError, match=r"did you mean 'otter'"):
        names.index("oter")
    with pytest.raises(TargetError, match="the classes 134, 517 have that name"):
        names.index("crane")
    with pytest.raises(TargetError, match="have no names here"):
        ClassNames.of((), (), 1000).index("otter")
