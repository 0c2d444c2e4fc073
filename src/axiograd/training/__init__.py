"""The loss with a prior, and the loop that trains with it."""

from axiograd.training.batches import WithArguments as WithArguments
from axiograd.training.distill import distill as distill
from axiograd.training.fit import FitResult as FitResult, fit as fit
from axiograd.training.loss import AttributionLoss as AttributionLoss, LossTerms as LossTerms
from axiograd.training.objective import Objective as Objective
from axiograd.training.recipe import Recipe as Recipe
from axiograd.training.robust_attribution import RobustAttribution as RobustAttribution, RobustTerms as RobustTerms
