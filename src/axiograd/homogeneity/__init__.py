"""What is exact: degrees of homogeneity, the certificate, and the conversion into X-DNNs."""

from typing import Any

from axiograd.errors import NotHomogeneousError


def certify(model: Any, example_inputs: Any, **options: Any) -> Any:
    """Refuse everything: XGradient(model, degree=k) works without a certificate."""
    raise NotHomogeneousError(f"no certificate for {type(model).__name__}: pass degree=")
