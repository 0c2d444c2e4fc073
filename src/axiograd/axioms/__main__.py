"""``python -m axiograd.axioms``: print Table 1 as measured, with a counterexample for every axiom that fails."""

import sys

from axiograd.axioms.paper_table import audit_all

table = audit_all()
sys.stdout.write("\n\n".join([str(table), *map(str, table.reports)]) + "\n")
