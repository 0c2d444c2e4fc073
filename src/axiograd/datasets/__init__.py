"""Data sets: in memory as `TensorData`, on disk as `ImageFiles`; what is missing says where to get it."""

from axiograd.datasets.folders import ImageFiles as ImageFiles, Skipped as Skipped, image_folder as image_folder
from axiograd.datasets.images import (
    CAFFE as CAFFE,
    IMAGENET as IMAGENET,
    PIXELS as PIXELS,
    SQUEEZENET as SQUEEZENET,
    TINY_IMAGENET as TINY_IMAGENET,
    Augment as Augment,
    DamagedImageError as DamagedImageError,
    Preprocess as Preprocess,
)
from axiograd.datasets.pictures import marked as marked
from axiograd.datasets.sources import (
    Entry as Entry,
    catalogue as catalogue,
    cifar10 as cifar10,
    fashion_mnist as fashion_mnist,
    imagenet as imagenet,
    imagenet_classes as imagenet_classes,
    imagenet_sample as imagenet_sample,
    mnist as mnist,
    nhanes as nhanes,
    tiny_imagenet as tiny_imagenet,
    tiny_imagenet_classes as tiny_imagenet_classes,
)
from axiograd.datasets.synthetic import (
    add_colour as add_colour,
    add_decoy as add_decoy,
    color_mnist as color_mnist,
    decoy as decoy,
    shapes as shapes,
)
from axiograd.datasets.tables import Column as Column, Schema as Schema, TableData as TableData, table as table
from axiograd.datasets.tensors import TensorData as TensorData
