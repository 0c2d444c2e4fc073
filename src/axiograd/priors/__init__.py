"""What we want attributions to look like: one prior per file, combined by `+` and `*`."""

from axiograd.priors.base import Prior as Prior
from axiograd.priors.energy import Energy as Energy
from axiograd.priors.gini import Gini as Gini
from axiograd.priors.graph_smoothness import GraphSmoothness as GraphSmoothness
from axiograd.priors.groups import Groups as Groups
from axiograd.priors.l1 import L1 as L1
from axiograd.priors.low_frequency import LowFrequency as LowFrequency
from axiograd.priors.matching import Matching as Matching
from axiograd.priors.right_reasons import RightReasons as RightReasons
from axiograd.priors.shapley import Shapley as Shapley
from axiograd.priors.smoothness import Smoothness as Smoothness
