"""Pages to look at."""

import torch

from axiograd.report import Report

CLASSES = ("circle", "square")
#: Names that would break a page that does not escape them.
HOSTILE = (
    "<img src=x onerror=alert(1)>",
    "</script><script>alert(2)</script>",
    '"><svg onload=alert(3)>',
    "line\u2028separator & `tick` ' <!-- <script>",
)


def ramp(size=4):
    """Attribution of row r, column c: r + c/10, so that a value says where it was read."""
    rows, columns = torch.meshgrid(torch.arange(size), torch.arange(size), indexing="ij")
    return (rows + columns / 10).double()


def build(count=30, size=4):
    report = Report("Shapes", model_name="net", headline={"accuracy": ("34 %", "98 %")}, command="axiograd demo")
    report.add_table("Costs", [{"method": "a", "ms": 30.0}, {"method": "b", "ms": 4.0}])
    values = ramp(size)
    for i in range(count):
        label = CLASSES[i % 2]
        report.add_sample(
            f"sample {i}",
            {"before": values, "after": -values},
            image=torch.full((3, size, size), 0.5),
            label=label,
            prediction={"before": "circle", "after": label},
            completeness={"before": 1e-8, "after": 10.0 ** (-7 + i % 5)},
            score={"before": 0.5, "after": i / count},
            boxes=[(0, 0, 1, 1)],
            featured=i < 2,
        )
    return report
