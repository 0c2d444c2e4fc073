"""One exception type per kind of error; every message names the thing, its values, and what to do."""


class AxiogradError(Exception):
    """Base of every error that axiograd raises on purpose."""


class InputError(AxiogradError):
    """The inputs cannot be attributed to: empty, without floating-point tensors, not finite, of wrong shape."""


class TargetError(AxiogradError):
    """The target does not select one scalar per sample from the model's output."""


class BaselineError(AxiogradError):
    """The baselines or references do not fit the inputs or the method."""


class DisconnectedError(AxiogradError):
    """The output is not connected to the inputs, or not differentiable as often as asked."""


class NotFiniteError(AxiogradError):
    """NaN or Inf in inputs, outputs, gradients or a loss."""


class NotHomogeneousError(AxiogradError):
    """The model is not certified as homogeneous of a degree k ≥ 1."""


class ConversionError(AxiogradError):
    """The model could not be turned into an X-DNN completely."""


class ExportError(AxiogradError):
    """The model could not be exported as a graph that computes the same."""


class StorageError(AxiogradError):
    """Stored attributions or checkpoints are damaged or were written with different settings."""


class DataMissingError(AxiogradError):
    """A data set or weights file is not where it was looked for."""


class ConfigurationError(AxiogradError):
    """A setting has a value that cannot work."""


class MissingExtraError(AxiogradError, ImportError):
    """An optional dependency is not installed."""

    def __init__(self, package: str, extra: str, purpose: str) -> None:
        super().__init__(f"{purpose} needs {package!r}: pip install 'axiograd[{extra}]'")
