"""Data sets: in memory as `TensorData`, on disk as `ImageFiles`; what is missing says where to get it."""

from axiograd.datasets._catalogue import Entry as Entry, catalogue as catalogue
from axiograd.datasets._cifar10 import cifar10 as cifar10
from axiograd.datasets._imagenet import (
    imagenet as imagenet,
    imagenet_classes as imagenet_classes,
    imagenet_sample as imagenet_sample,
)
from axiograd.datasets._mnist import fashion_mnist as fashion_mnist, mnist as mnist
from axiograd.datasets._nhanes import nhanes as nhanes
from axiograd.datasets._shapes import shapes as shapes
from axiograd.datasets._tiny_imagenet import (
    box_masks as box_masks,
    tiny_imagenet as tiny_imagenet,
    tiny_imagenet_classes as tiny_imagenet_classes,
)
from axiograd.datasets.columns import Column as Column
from axiograd.datasets.confounders import (
    add_colour as add_colour,
    add_decoy as add_decoy,
    color_mnist as color_mnist,
    decoy as decoy,
)
from axiograd.datasets.folders import (
    DamagedImageError as DamagedImageError,
    ImageFiles as ImageFiles,
    Skipped as Skipped,
    image_folder as image_folder,
)
from axiograd.datasets.marked import marked as marked
from axiograd.datasets.schema import Schema as Schema
from axiograd.datasets.table import TableData as TableData, table as table
from axiograd.datasets.tensors import TensorData as TensorData
from axiograd.datasets.transforms import (
    CAFFE as CAFFE,
    IMAGENET as IMAGENET,
    PIXELS as PIXELS,
    SQUEEZENET as SQUEEZENET,
    TINY_IMAGENET as TINY_IMAGENET,
    Augment as Augment,
    Preprocess as Preprocess,
)
