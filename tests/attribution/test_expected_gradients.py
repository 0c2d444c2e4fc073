import pytest
import torch
from torch.utils.data import DataLoader, TensorDataset

import axiograd
from axiograd.attribution.expected_gradients import References
from axiograd.errors import BaselineError, ConfigurationError
from support.networks import build
from support.oracles import integrated_gradients


def generator(seed=0):
    return torch.Generator().manual_seed(seed)


@pytest.mark.parametrize("name", ["linear", "gelu"])
def test_in_expectation_it_is_the_mean_of_integrated_gradients_over_references(name):
    network, x = build(name, batch=2)
    references = torch.randn(5, *x.shape[1:], dtype=torch.float64, generator=generator(1))
    oracle = torch.stack(
        [integrated_gradients(lambda x: network(x)[:, 0], x, r.expand_as(x), 256) for r in references]
    ).mean(0)
    method = axiograd.ExpectedGradients(network, references, n_samples=100, generator=generator())
    draws = torch.stack([method.attribute(x, target=0) for _ in range(100)])
    standard_error = draws.std(0) / len(draws) ** 0.5
    z = (draws.mean(0) - oracle) / standard_error.clamp_min(1e-12)
    # Under the claim each z is about standard normal: five standard errors are out of reach for all of them.
    assert float(z.abs().max()) < 5
    assert float((draws.mean(0) - oracle).norm() / oracle.norm()) < 0.05


def test_repeatable_with_a_generator():
    network, x = build("linear")
    references = torch.randn(9, 7, dtype=torch.float64)
    first, second = (
        axiograd.ExpectedGradients(network, references, generator=generator(3)).attribute(x, target=0) for _ in range(2)
    )
    assert torch.equal(first, second)
    method = axiograd.ExpectedGradients(network, references)
    assert not torch.equal(method.attribute(x, target=0), method.attribute(x, target=0))


def test_references_are_drawn_without_replacement_within_a_call():
    seen = []

    class Noting(torch.utils.data.Dataset):
        def __len__(self):
            return 12

        def __getitem__(self, index):
            seen.append(index)
            return torch.tensor([float(index)])

    axiograd.ExpectedGradients(lambda x: x.sum(1), Noting(), n_samples=4).attribute(torch.ones(3, 1))
    assert sorted(seen) == list(range(12))


def test_more_draws_than_references_use_each_almost_equally():
    drawn = References.ensure(torch.arange(5)).draw(13, 1, generator())[0]
    assert set(torch.bincount(drawn).tolist()) == {2, 3}


def test_references_from_tensor_data_set_and_loader_agree_in_what_they_offer():
    rows = torch.arange(6.0).reshape(6, 1)
    labels = torch.zeros(6, dtype=torch.long)
    for source in (rows, TensorDataset(rows, labels), DataLoader(TensorDataset(rows, labels), batch_size=4)):
        drawn = References.ensure(source).draw(6, 1, generator())[0]
        assert sorted(drawn.flatten().tolist()) == list(range(6))


def test_a_loader_goes_round():
    loader = DataLoader(TensorDataset(torch.arange(3.0)), batch_size=2)
    references = References.ensure(loader)
    drawn = torch.cat([references.draw(4, 1, None)[0] for _ in range(3)])
    assert drawn.tolist() == [0, 1, 2] * 4


def test_completeness_is_against_the_drawn_references():
    x = torch.randn(3, 2, dtype=torch.float64)
    method = axiograd.ExpectedGradients(lambda x: x.sum(1) * 3, torch.randn(20, 2), n_samples=4)
    attributions, delta = method.attribute(x, return_convergence_delta=True)
    assert attributions.shape == x.shape
    torch.testing.assert_close(delta, torch.zeros(3, dtype=torch.float64))
    assert method.completeness(x).baseline == "the drawn references"


def test_memory_chunks_do_not_change_the_answer():
    network, x = build("linear")
    references = torch.randn(9, 7, dtype=torch.float64)
    whole, parts = (
        axiograd.ExpectedGradients(
            network, references, n_samples=6, generator=generator(1), internal_batch_size=rows
        ).attribute(x, target=torch.tensor([0, 1, 2, 0]))
        for rows in (None, 3)
    )
    torch.testing.assert_close(parts, whole)


def test_several_inputs():
    def model(a, b):
        return (a * b).sum(1)

    a, b = torch.randn(2, 4, 3, dtype=torch.float64)
    method = axiograd.ExpectedGradients(model, (torch.zeros(5, 3), torch.zeros(5, 3)), n_samples=4000)
    got_a, got_b = method.attribute((a, b))
    torch.testing.assert_close(got_a, a * b / 2, atol=0.1, rtol=0)
    torch.testing.assert_close(got_b, got_a)


@pytest.mark.parametrize(
    ("references", "message"),
    [
        (torch.zeros(0, 7), "at least one"),
        (torch.zeros(4, 6), r"\(6,\).*\(7,\)"),
        ((torch.zeros(4, 7), torch.zeros(4, 7)), "for 2 inputs"),
        ("zeros", "type str"),
        ([], "loader of references is empty"),
    ],
)
def test_references_that_do_not_fit(references, message):
    network, x = build("linear")
    with pytest.raises(BaselineError, match=message):
        axiograd.ExpectedGradients(network, references).attribute(x, target=0)


def test_settings_that_cannot_work():
    network, x = build("linear")
    with pytest.raises(ConfigurationError, match="n_samples=0"):
        axiograd.ExpectedGradients(network, x, n_samples=0)
    with pytest.raises(BaselineError, match="references="):
        axiograd.ExpectedGradients(network, x).attribute(x, target=0, baselines=x)
