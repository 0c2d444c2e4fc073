"""The axioms of the paper's Table 1 as checks, and the audit that runs them on any method."""

from axiograd.axioms.auditing import audit as audit
from axiograd.axioms.base import Axiom as Axiom, Finding as Finding, Probe as Probe
from axiograd.axioms.paper_table import Table1 as Table1, audit_all as audit_all
from axiograd.axioms.report import (
    AxiomReport as AxiomReport,
    AxiomResult as AxiomResult,
    Counterexample as Counterexample,
)
from axiograd.axioms.statements import AXIOMS as AXIOMS
