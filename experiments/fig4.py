"""Figure 4: attributions of more photos at full and at low contrast; one of ResNet-50, which takes minutes for each."""

from experiments import lab, panels, photos

IMAGES = {"small": 2, "squeezenet1_1": 4, "resnet50": 1}


def run(*, quick: bool) -> lab.Result:
    names = ["small"] if quick else ["squeezenet1_1", "resnet50"]
    images = [(name, image) for name in names for image in photos.order(name)[: IMAGES[name]]]
    found = [panels.measured(name, form, image) for name, image in images for form in photos.NETWORKS[name].forms]
    return panels.result(found, "Figure 4: more attributions at low contrast")
