"""The paper's networks, each regular and X from one definition, and their trained weights."""

from axiograd.models.convnets import (
    MLP as MLP,
    VGG as VGG,
    AlexNet as AlexNet,
    DnCNN as DnCNN,
    MobileNetV2 as MobileNetV2,
    SqueezeNet as SqueezeNet,
)
from axiograd.models.registry import get_model as get_model, list_models as list_models
from axiograd.models.resnets import FixupResNet as FixupResNet, ResNet as ResNet, ResNet18 as ResNet18
from axiograd.models.transformers import TextEncoder as TextEncoder, ViT as ViT
from axiograd.models.weights import (
    Weights as Weights,
    fetch_weights as fetch_weights,
    list_weights as list_weights,
    read_state_dict as read_state_dict,
)
