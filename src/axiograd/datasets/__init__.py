"""Data sets: in memory as `TensorData`, on disk as `ImageFiles`; what is missing says where to get it."""

from axiograd.datasets.catalogue import Entry as Entry, catalogue as catalogue
from axiograd.datasets.cifar10 import cifar10 as cifar10
from axiograd.datasets.decoy import (
    add_colour as add_colour,
    add_decoy as add_decoy,
    color_mnist as color_mnist,
    decoy as decoy,
)
from axiograd.datasets.image_folder import (
    DamagedImageError as DamagedImageError,
    ImageFiles as ImageFiles,
    Skipped as Skipped,
    image_folder as image_folder,
)
from axiograd.datasets.imagenet import imagenet as imagenet, imagenet_sample as imagenet_sample
from axiograd.datasets.mnist import fashion_mnist as fashion_mnist, mnist as mnist
from axiograd.datasets.nhanes import nhanes as nhanes
from axiograd.datasets.shapes import shapes as shapes
from axiograd.datasets.tensors import TensorData as TensorData
from axiograd.datasets.tiny_imagenet import box_masks as box_masks, tiny_imagenet as tiny_imagenet
from axiograd.datasets.transforms import (
    IMAGENET as IMAGENET,
    PIXELS as PIXELS,
    SQUEEZENET as SQUEEZENET,
    TINY_IMAGENET as TINY_IMAGENET,
    Augment as Augment,
    Preprocess as Preprocess,
)
