"""The loss with a prior, and training with it."""

from axiograd.training.data import WithArguments as WithArguments
from axiograd.training.distill import TaughtAttributions as TaughtAttributions, distill as distill
from axiograd.training.fit import FitResult as FitResult, fit as fit
from axiograd.training.loss import AttributionLoss as AttributionLoss, LossTerms as LossTerms
from axiograd.training.objective import Objective as Objective
from axiograd.training.recipe import Recipe as Recipe
from axiograd.training.robust_attribution import RobustAttribution as RobustAttribution, RobustTerms as RobustTerms
