"""One file per family of operators; importing them fills the registry."""

from axiograd.homogeneity.rules import (
    activation as activation,
    attention as attention,
    comparison as comparison,
    elementwise as elementwise,
    linalg as linalg,
    linear as linear,
    normalisation as normalisation,
    random as random,
    recurrent as recurrent,
    reduction as reduction,
    shape as shape,
)
from axiograd.homogeneity.rules.registry import lookup as lookup, rule as rule
