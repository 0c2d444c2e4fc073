"""The prior against a protected attribute: its measures by hand, and the experiment in small."""

import numpy as np
import torch

from axiograd.experiments import fairness
from axiograd.experiments.records import Records


def test_disparities_by_counting():
    random = np.random.default_rng(0)
    scores, died, man = random.normal(size=200), random.random(200) < 0.3, random.random(200) < 0.5
    flagged = set(np.argsort(scores)[: died.sum()].tolist())

    def share(rows):
        return 100 * np.mean([row in flagged for row in rows])

    found = fairness.disparities(*map(torch.from_numpy, (scores, died, man)))
    men, women = np.flatnonzero(man), np.flatnonzero(~man)
    assert np.isclose(found["disparity"], share(men) - share(women))
    assert np.isclose(found["opportunity"], share(men[died[men]]) - share(women[died[women]]))
    assert np.isclose(found["truth"], 100 * (died[man].mean() - died[~man].mean()))


def test_proxies_are_what_numpy_correlates():
    random = torch.Generator().manual_seed(0)
    x = torch.randn(500, 6, generator=random)
    x[:, 1] += x[:, 0]
    x[:, 4] -= 0.5 * x[:, 0]
    scaled = (x - x.mean(0)) / x.std(0, correction=0)
    expected = np.abs(np.corrcoef(x.numpy().T)[0]) > 0.2
    assert fairness.proxies(scaled, 0).tolist() == expected.tolist()


def test_a_strong_prior_takes_the_column_out_and_the_table_says_so(tmp_path):
    size = fairness.FairnessSize(train=600, epochs=6, seeds=1)
    found = {name: fairness.measured("quick", size, name, 0) for name in ("x", "sex-10", "without-sex")}
    assert found["without-sex"]["sex_share"] == 0
    assert found["sex-10"]["sex_share"] < found["x"]["sex_share"]
    records = Records(tmp_path / "r.json", command="x", data="table", settings={})
    for name, values in found.items():
        records.add(values, way=name, seed=0)
    shown = fairness.table(records)
    assert [row[0] for row in shown.rows] == [
        "no prior", "prior on sex, λ = 10", "without the column sex", "who died, in truth"
    ]  # fmt: skip
