"""The axioms of the paper's Table 1 as checks, and the audit that runs them on any method."""

from axiograd.axioms.auditing import (
    AxiomReport as AxiomReport,
    AxiomResult as AxiomResult,
    Counterexample as Counterexample,
    audit as audit,
)
from axiograd.axioms.axioms import (
    AXIOMS as AXIOMS,
    Axiom as Axiom,
    Finding as Finding,
    Probe as Probe,
    finding as finding,
)
from axiograd.axioms.paper_table import Table1 as Table1, audit_all as audit_all
