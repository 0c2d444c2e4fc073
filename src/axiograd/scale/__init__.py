"""Millions of samples: tables of summaries instead of pixels, by one process or by Ray, and two of them compared."""

from axiograd.scale.attribute import Attribute as Attribute
from axiograd.scale.comparison import Change as Change, Comparison as Comparison, compare as compare
from axiograd.scale.engines import write_attributions as write_attributions
from axiograd.scale.masked import InMasks as InMasks
from axiograd.scale.sources import (
    Listed as Listed,
    NumpyFile as NumpyFile,
    ParquetFiles as ParquetFiles,
    Source as Source,
    tensors as tensors,
)
from axiograd.scale.statistics import Moments as Moments, Statistics as Statistics
from axiograd.scale.summaries import (
    Histogram as Histogram,
    LowRank as LowRank,
    PerChannel as PerChannel,
    Pixels as Pixels,
    Regions as Regions,
    Summary as Summary,
    TopK as TopK,
    Windows as Windows,
)
