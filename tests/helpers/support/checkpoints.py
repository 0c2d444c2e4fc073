"""Checkpoints of tiny networks in the format in which the paper published its own."""

import numpy as np
import torch
from torch import nn

TINY = {
    "alexnet": {"num_classes": 3, "width": 0.05, "hidden": 8, "pool": 1},
    "vgg16": {"num_classes": 3, "width": 0.05, "hidden": 8, "pool": 1},
    "fixup_resnet50": {"num_classes": 3, "width": 0.05},
}
TINY |= {f"x{name}": config for name, config in TINY.items()}


def randomise(model):
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.normal_(0, 0.1)
    return model.eval()


def publish(model, path):
    """Save as the paper's training scripts do: AlexNet and VGG wrap `.features`, others the whole model."""
    if hasattr(model, "features"):
        model.features = nn.DataParallel(model.features)
        wrapped = model
    else:
        wrapped = nn.DataParallel(model)
    optimizer = torch.optim.SGD(wrapped.parameters(), 0.1, momentum=0.9)
    content = {
        "epoch": 90,
        "arch": "resnet50",
        "state_dict": wrapped.state_dict(),
        "best_acc1": torch.tensor(50.0),
        "best_acc5": np.float64(78.54),
        "optimizer": optimizer.state_dict(),
    }
    torch.save(content, path)
    return content["state_dict"]
