"""The paper's networks, each regular and X from one definition, and their trained weights."""

from axiograd.models.alexnet import AlexNet as AlexNet
from axiograd.models.checkpoint import read_state_dict as read_state_dict
from axiograd.models.dncnn import DnCNN as DnCNN
from axiograd.models.encoders import TextEncoder as TextEncoder, ViT as ViT
from axiograd.models.fixup_resnet import FixupResNet as FixupResNet
from axiograd.models.mlp import MLP as MLP
from axiograd.models.mobilenet_v2 import MobileNetV2 as MobileNetV2
from axiograd.models.registry import get_model as get_model, list_models as list_models
from axiograd.models.resnet import ResNet18 as ResNet18
from axiograd.models.squeezenet import SqueezeNet as SqueezeNet
from axiograd.models.vgg import VGG as VGG
from axiograd.models.weights import (
    Weights as Weights,
    fetch_weights as fetch_weights,
    list_weights as list_weights,
)
