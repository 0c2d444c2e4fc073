"""Millions of samples: tables of summaries instead of pixels, by one process or by Ray, and how two tables differ."""

from axiograd.scale.attribute import Attribute as Attribute
from axiograd.scale.comparison import Change as Change, Comparison as Comparison, compare as compare
from axiograd.scale.parts import Statistics as Statistics, write_attributions as write_attributions
from axiograd.scale.sources import (
    Listed as Listed,
    numpy_file as numpy_file,
    parquet_files as parquet_files,
    tensors as tensors,
)
from axiograd.scale.summaries import (
    InMasks as InMasks,
    PerChannel as PerChannel,
    Pixels as Pixels,
    Regions as Regions,
    Summary as Summary,
    TopK as TopK,
    Windows as Windows,
)
