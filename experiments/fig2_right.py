"""Figure 2, right: attributions of one photo at full and at low contrast.

The paper's photo shows a reflex camera; ours, a Polaroid camera, is the first of its class among the photos.
"""

from experiments import lab, panels, photos

POLAROID = 732


def run(*, quick: bool) -> lab.Result:
    names = ["small"] if quick else ["squeezenet1_1", "resnet50"]
    image = photos.order("small")[0] if quick else polaroid()
    found = [panels.measured(name, form, image) for name, form in photos.forms(*names)]
    return panels.result(found, "Figure 2, right: attributions at low contrast")


def polaroid() -> int:
    """The place of the photo."""
    return int((photos.images("squeezenet1_1").targets == POLAROID).nonzero()[0])
