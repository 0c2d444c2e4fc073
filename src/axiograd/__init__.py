"""Exact Integrated Gradients in one backward pass, differentiable, so that you can train with them."""

from axiograd._version import __version__ as __version__
from axiograd.errors import AxiogradError as AxiogradError
