"""Masking curves against a slow implementation that walks sample by sample and feature by feature."""

import itertools

import numpy as np
import pytest
import torch
from torch import nn

from axiograd.errors import ConfigurationError, InputError, NotFiniteError, TargetError
from axiograd.metrics import FRACTIONS, Blur, keep_negative_mask, keep_positive_mask, masking_curves
from axiograd.metrics.masking import masked_out

METRICS = ("KPM", "KNM", "KAM", "RAM")


def slow_curve(model, x, a, labels, metric, fractions, background):
    """One sample, one fraction, one feature at a time; a: one value per feature, [batch][features]."""
    scores = []
    for sample in range(len(x)):
        values = [float(v) for v in a[sample]]
        if metric == "KPM":
            order = sorted((i for i, v in enumerate(values) if v > 0), key=lambda i: -values[i])
        elif metric == "KNM":
            order = sorted((i for i, v in enumerate(values) if v < 0), key=lambda i: values[i])
        elif metric == "KAM":
            order = sorted((i for i, v in enumerate(values) if v != 0), key=lambda i: -abs(values[i]))
        else:
            order = sorted((i for i, v in enumerate(values) if v != 0), key=lambda i: abs(values[i]))
        row = []
        for fraction in fractions:
            n_kept = min(int(round(fraction * len(values), 6)), len(order))
            copy = background[sample].clone().reshape(-1, len(values))
            for i in order[:n_kept]:
                copy[:, i] = x[sample].reshape(-1, len(values))[:, i]
            with torch.no_grad():
                output = model(copy.reshape(1, *x.shape[1:])).reshape(-1).numpy()
            label = int(labels[sample])
            if metric in {"KPM", "KNM"}:
                row.append(output[label])
            else:
                row.append(100.0 * (int(np.argmax(output)) == label))
        scores.append(row)
    scores = np.array(scores, dtype=np.float64)
    areas = []
    for row in scores:
        area = 0.0
        for i in range(1, len(fractions)):
            area += (fractions[i] - fractions[i - 1]) * (row[i] + row[i - 1]) / 2
        areas.append(area)
    return scores, np.array(areas)


def small_convnet():
    torch.manual_seed(3)
    return nn.Sequential(
        nn.Conv2d(3, 6, 5, stride=2), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(), nn.LazyLinear(4)
    ).double()


def images_and_attributions():
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(6, 3, 28, 27, dtype=torch.float64, generator=generator)
    a = torch.randn(6, 3, 28, 27, dtype=torch.float64, generator=generator)
    a[1] = a[1].mul(2).round()  # many ties, many zeros
    a[2] = -a[2].abs()
    a[3] = 0
    a[4, :, :, ::2] = 0
    a[5] = 1.0  # one single tie
    return x, a, torch.tensor([0, 1, 2, 3, 0, 1])


@pytest.mark.parametrize("metric", METRICS)
def test_images_as_the_slow_way(metric):
    x, a, labels = images_and_attributions()
    model = small_convnet()
    model(x)  # lazy shapes
    fast = masking_curves(model, x, a, labels, metrics=(metric,), max_rows=17)[metric]
    scores, areas = slow_curve(model, x, a.mean(1).flatten(1).numpy(), labels, metric, FRACTIONS, masked_out(x, Blur()))
    np.testing.assert_allclose(fast.scores.numpy(), scores, atol=1e-6)
    np.testing.assert_allclose(fast.areas.numpy(), areas, atol=1e-6)
    assert fast.area == pytest.approx(areas.mean())
    assert fast.standard_error == pytest.approx(areas.std(ddof=1) / np.sqrt(len(areas)))
    np.testing.assert_allclose(fast.curve_standard_error.numpy(), scores.std(0, ddof=1) / np.sqrt(len(scores)))


@pytest.mark.parametrize("metric", METRICS)
@pytest.mark.parametrize(
    "masking", ["zero", "mean", torch.linspace(-1, 1, 9, dtype=torch.float64)], ids=["zero", "mean", "tensor"]
)
def test_rows_as_the_slow_way(metric, masking):
    generator = torch.Generator().manual_seed(1)
    x = torch.randn(9, 9, dtype=torch.float64, generator=generator)
    a = torch.randn(9, 9, dtype=torch.float64, generator=generator).mul(2).round()
    a[0], a[1] = 0, -1
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(9, 12), nn.ReLU(), nn.Linear(12, 3)).double()
    labels = torch.arange(9) % 3
    fractions = (0.0, 0.1, 0.34, 0.5, 0.9, 1.0)
    fast = masking_curves(model, x, a, labels, metrics=(metric,), fractions=fractions, masking=masking, max_rows=7)
    scores, areas = slow_curve(model, x, a.numpy(), labels, metric, fractions, masked_out(x, masking))
    np.testing.assert_allclose(fast[metric].scores.numpy(), scores, atol=1e-6)
    np.testing.assert_allclose(fast[metric].areas.numpy(), areas, atol=1e-6)


def test_channels_on_their_own():
    generator = torch.Generator().manual_seed(2)
    x, a = torch.randn(2, 3, 2, 4, 5, dtype=torch.float64, generator=generator)
    weights = torch.randn(40, 2, dtype=torch.float64, generator=generator)

    def model(images):
        return images.flatten(1) @ weights

    fast = masking_curves(model, x, a, 1, channels="none", masking=0.0, metrics=("KPM",))["KPM"]
    scores, _ = slow_curve(model, x, a.flatten(1).numpy(), [1, 1, 1], "KPM", FRACTIONS, torch.zeros_like(x))
    np.testing.assert_allclose(fast.scores.numpy(), scores, atol=1e-6)
    by_sum, by_mean = (masking_curves(model, x, a, 1, channels=c, masking=0.0)["KNM"].scores for c in ("sum", "mean"))
    assert torch.allclose(by_sum, by_mean, atol=1e-12)


def test_all_zero_gives_the_fully_masked_score():
    x, _, labels = images_and_attributions()
    model = small_convnet()
    model(x)
    curves = masking_curves(model, x, torch.zeros_like(x), labels)
    masked = model(Blur()(x)).detach()
    for metric in ("KPM", "KNM"):
        assert torch.allclose(curves[metric].scores, masked[range(6), labels].unsqueeze(1).expand(6, 16))
    right = 100.0 * (masked.argmax(1) == labels).double()
    for metric in ("KAM", "RAM"):
        assert torch.equal(curves[metric].scores, right.unsqueeze(1).expand(6, 16))


@pytest.mark.parametrize("value", [torch.nan, torch.inf])
def test_not_finite_names_the_samples(value):
    x, a, labels = images_and_attributions()
    a[1, 2, 3, 4] = a[4, 0, 0, 0] = value
    with pytest.raises(NotFiniteError, match="attributions of sample 1, 4"):
        masking_curves(small_convnet(), x, a, labels)


def test_outputs_that_are_not_finite_name_the_sample():
    x = torch.tensor([[1.0, 2.0], [3.0, -4.0]])
    with pytest.raises(NotFiniteError, match="masked copies of sample 1"):
        masking_curves(lambda x: x.sum(1).sqrt(), x, x.abs(), metrics=("KPM",), fractions=(0.9, 1.0))


def test_a_perfect_attribution_of_a_linear_model_is_best_possible():
    generator = torch.Generator().manual_seed(5)
    x, weights = torch.randn(2, 1, 7, dtype=torch.float64, generator=generator)
    contributions = (x * weights)[0].tolist()
    fractions = tuple(k / 7 for k in range(8))

    def model(rows):
        return rows @ weights[0]

    subsets = [s for size in range(8) for s in itertools.combinations(contributions, size)]
    highest = [max(sum(s) for s in subsets if len(s) <= k) for k in range(8)]
    lowest = [min(sum(s) for s in subsets if len(s) <= k) for k in range(8)]
    best = masking_curves(model, x, x * weights, metrics=("KPM", "KNM"), fractions=fractions)
    np.testing.assert_allclose(best["KPM"].curve.numpy(), highest, atol=1e-12)
    np.testing.assert_allclose(best["KNM"].curve.numpy(), lowest, atol=1e-12)
    flipped = masking_curves(model, x, -x * weights, metrics=("KPM", "KNM"), fractions=fractions)
    assert torch.allclose(flipped["KPM"].scores, best["KNM"].scores, atol=1e-12)
    assert torch.allclose(flipped["KNM"].scores, best["KPM"].scores, atol=1e-12)
    for _ in range(20):
        chance = torch.randn(1, 7, dtype=torch.float64, generator=generator)
        assert best["KNM"].area < keep_positive_mask(model, x, chance, fractions=fractions).area < best["KPM"].area
        assert best["KNM"].area < keep_negative_mask(model, x, chance, fractions=fractions).area < best["KPM"].area


def test_memory_is_bounded_and_results_do_not_depend_on_it():
    x, a, labels = images_and_attributions()
    model, rows = small_convnet(), []
    model(x)
    model.register_forward_pre_hook(lambda _, args: rows.append(len(args[0])))
    reference = masking_curves(model, x, a, labels, max_rows=10_000)
    assert len(rows) == 1
    # Copies that keep the same pixels are run once: KPM and KNM have no more than half of the pixels to keep.
    assert rows[0] < 6 * 4 * 16
    for max_rows in (1, 5, 64):
        rows.clear()
        found = masking_curves(model, x, a, labels, max_rows=max_rows)
        assert max(rows) <= max_rows
        for metric in METRICS:
            assert torch.allclose(found[metric].scores, reference[metric].scores, atol=1e-12)


def test_the_model_is_measured_in_evaluation_mode_and_left_as_it_was():
    model = nn.Sequential(nn.BatchNorm1d(4), nn.Dropout(0.5), nn.Linear(4, 2))
    model[1].eval()
    before = {name: value.clone() for name, value in model.state_dict().items()}
    x = torch.randn(5, 4)
    first, second = (masking_curves(model, x, x, 1)["KPM"].scores for _ in range(2))
    assert torch.equal(first, second)
    assert [m.training for m in model] == [True, False, True]
    assert all(torch.equal(before[name], value) for name, value in model.state_dict().items())
    assert not first.requires_grad


def test_additional_arguments_and_a_single_logit():
    x = torch.tensor([[1.0, 2.0], [3.0, -4.0]])
    scale = torch.tensor([1.0, 10.0])
    seen = masking_curves(
        lambda rows, s: rows.sum(1) * s, x, x, labels=[1, 0], fractions=(0.5, 1.0), additional_forward_args=scale
    )
    assert seen["KPM"].scores.tolist() == [[2.0, 3.0], [30.0, 30.0]]
    assert seen["KAM"].scores.tolist() == [[100.0, 100.0], [100.0, 100.0]]
    assert seen["RAM"].scores.tolist() == [[100.0, 100.0], [0.0, 100.0]]


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ({"attributions": torch.zeros(2, 3)}, InputError, r"attributions of shape \(2, 3\)"),
        ({"inputs": (torch.zeros(2, 4),)}, InputError, "inputs tuple"),
        ({"fractions": (0.5, 0.2)}, ConfigurationError, "increasing"),
        ({"fractions": (0.5, 1.2)}, ConfigurationError, "between 0 and 1"),
        ({"metrics": ("KPM", "ROAR")}, ConfigurationError, "ROAR"),
        ({"max_rows": 0}, ConfigurationError, "max_rows=0"),
        ({"channels": "max"}, ConfigurationError, "channels='max'"),
        ({"target": None}, TargetError, "Give labels="),
        ({"target": "all"}, TargetError, "one scalar per sample"),
        ({"target": [0, 1, 1]}, TargetError, "3 targets for 2 samples"),
        ({"target": 7, "metrics": ("KPM",)}, TargetError, "out of range"),
    ],
)
def test_wrong_arguments_are_named(arguments, error, message):
    right = {"model": nn.Linear(4, 2), "inputs": torch.zeros(2, 4), "attributions": torch.ones(2, 4), "target": 0}
    with pytest.raises(error, match=message):
        masking_curves(**(right | arguments))


class Grid(nn.Module):
    """Outputs [batch, 2, 3]."""

    def forward(self, x, scale=1.0, *, shift=0.0):
        return (scale * x[:, :2, None] * torch.arange(1.0, 4.0) + shift).double()


def test_targets_are_those_of_attribution():
    x = torch.randn(5, 4)
    a = torch.randn(5, 4)
    picked = masking_curves(lambda z: Grid()(z)[:, 1, 2], x, a, metrics=("KPM", "KNM"))
    for target in ((1, 2), [(1, 2)], [(1, 2)] * 5):
        found = masking_curves(Grid(), x, a, target, metrics=("KPM", "KNM"), max_rows=7)
        assert all(torch.equal(found[name].scores, picked[name].scores) for name in picked)
    own = [(0, 0), (1, 1), (0, 2), (1, 0), (0, 1)]
    found = masking_curves(Grid(), x, a, own, metrics=("KPM",), max_rows=7)["KPM"]
    for i, (row, column) in enumerate(own):
        one = masking_curves(Grid(), x[i : i + 1], a[i : i + 1], (row, column), metrics=("KPM",))["KPM"]
        assert torch.equal(found.scores[i], one.scores[0])
    with pytest.raises(TargetError, match="3 targets for 5 samples"):
        masking_curves(Grid(), x, a, [(1, 2)] * 3, metrics=("KPM",))
    with pytest.raises(TargetError, match="Give labels="):
        masking_curves(Grid(), x[:2], a[:2], (1, 2), metrics=("KAM",))


def test_additional_arguments_are_those_of_attribution():
    x, a, scale = torch.randn(5, 4), torch.randn(5, 4), torch.rand(5, 1, 1)
    options = {"metrics": ("KPM",), "max_rows": 7}
    wanted = [
        masking_curves(lambda z, i=i: scale[i] * Grid()(z) + 0.5, x[i : i + 1], a[i : i + 1], (0, 1), **options)["KPM"]
        for i in range(5)
    ]
    by_name = {"scale": scale, "shift": 0.5}
    found = masking_curves(Grid(), x, a, (0, 1), additional_forward_args=by_name, **options)["KPM"]
    assert torch.allclose(found.scores, torch.cat([one.scores for one in wanted]))


def test_modules_in_a_function_stay_as_they_were():
    norm = nn.BatchNorm1d(4)
    x = torch.randn(6, 4)
    masking_curves(lambda z: norm(z).sum(1), x, torch.randn(6, 4), metrics=("KPM",))
    assert norm.training
    assert int(norm.num_batches_tracked) == 0
    assert torch.equal(norm.running_mean, torch.zeros(4))


def test_one_value_per_pixel_is_accepted():
    x, _, labels = images_and_attributions()
    a = torch.randn(6, 28, 27, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    model = small_convnet()
    of_pixels, of_channels = (masking_curves(model, x, v, labels)["KPM"].scores for v in (a, a[:, None].expand_as(x)))
    assert torch.allclose(of_pixels, of_channels, atol=1e-12)
    with pytest.raises(InputError, match=r"\(6, 28, 27\) for inputs of shape \(6, 3, 28, 27\)"):
        masking_curves(model, x, a, labels, channels="none")


def test_tiny_magnitudes_keep_their_order():
    a = torch.tensor([[3e-45, 1e-45, 1e-30, 1e30]])
    curve = masking_curves(
        lambda x: x @ torch.tensor([[1.0, 2.0, 4.0, 8.0], [0.0, 0.0, 0.0, 0.0]]).T,
        torch.ones(1, 4),
        -a,
        0,
        metrics=("KNM",),
        fractions=(0.25, 0.5, 0.75, 1.0),
    )["KNM"]
    assert curve.scores.tolist() == [[8.0, 12.0, 13.0, 15.0]]


def test_fractions_are_rounded_down():
    kept = masking_curves(
        lambda x: x.sum(1), torch.ones(1, 100), torch.ones(1, 100), metrics=("KPM",), fractions=(0.0, 0.019, 0.29, 1.0)
    )["KPM"]
    assert kept.scores.tolist() == [[0.0, 1.0, 29.0, 100.0]]


def test_copies_have_the_inputs_memory_order():
    orders = []

    def model(x):
        orders.append(x.is_contiguous(memory_format=torch.channels_last))
        return x.mean((2, 3))

    x, a = torch.randn(2, 3, 3, 30, 30, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    usual = masking_curves(model, x, a, 0)
    assert not any(orders)
    orders.clear()
    last = masking_curves(model, x.contiguous(memory_format=torch.channels_last), a, 0)
    assert all(orders)
    assert all(torch.allclose(last[name].scores, usual[name].scores, atol=1e-12) for name in usual)


def dense_blur(images, size, sigma):
    """Reflect, then weigh every pixel of the dense kernel: nothing is separated, nothing is folded."""
    half = size // 2
    kernel = np.empty((size, size))
    for i in range(size):
        for j in range(size):
            kernel[i, j] = np.exp(-(((i - half) / (2 * sigma)) ** 2)) * np.exp(-(((j - half) / (2 * sigma)) ** 2))
    kernel /= kernel.sum()
    height, width = images.shape[-2:]
    padded = np.pad(images, ((0, 0), (0, 0), (half, half), (half, half)), mode="reflect")
    blurred = np.zeros_like(images)
    for i in range(size):
        for j in range(size):
            blurred += kernel[i, j] * padded[..., i : i + height, j : j + width]
    return blurred


@pytest.mark.parametrize(
    ("size", "sigma", "shape"), [(51, 41.0, (2, 3, 30, 41)), (5, 1.5, (1, 1, 3, 8)), (1, 1.0, (1, 2, 2, 2))]
)
def test_blur_is_the_dense_kernel(size, sigma, shape):
    images = torch.randn(shape, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    expected = dense_blur(images.numpy(), size, sigma)
    np.testing.assert_allclose(Blur(size, sigma)(images).numpy(), expected, atol=1e-13)


def test_the_default_is_the_papers_blur():
    images = torch.randn(1, 3, 26, 26, generator=torch.Generator().manual_seed(0))
    np.testing.assert_allclose(
        masked_out(images, None).numpy(), dense_blur(images.double().numpy(), 51, 41.0), atol=1e-6
    )
    assert torch.equal(masked_out(images, "blur"), Blur(51, 41.0)(images))


def test_a_constant_image_stays_as_it_is():
    image = torch.full((1, 1, 40, 30), 0.7, dtype=torch.float64)
    assert torch.allclose(Blur()(image), image, atol=1e-14)


def test_small_images_are_told_what_to_do():
    with pytest.raises(InputError, match="side of 25 are too small to be reflected by 25"):
        masked_out(torch.zeros(1, 3, 25, 60), "blur")
    with pytest.raises(InputError, match=r"\(4, 7\) cannot be blurred"):
        masked_out(torch.zeros(4, 7), "blur")


def test_words_numbers_tensors_and_callables():
    rows = torch.tensor([[1.0, 5.0], [3.0, 7.0]])
    assert torch.equal(masked_out(rows, None), torch.zeros(2, 2))
    assert torch.equal(masked_out(rows, "mean"), torch.tensor([[2.0, 6.0], [2.0, 6.0]]))
    assert torch.equal(masked_out(rows, 0.5), torch.full((2, 2), 0.5))
    assert torch.equal(masked_out(rows, torch.tensor([9.0, 8.0])), torch.tensor([[9.0, 8.0], [9.0, 8.0]]))
    assert torch.equal(masked_out(rows, lambda x: -x), -rows)
    image = torch.arange(8.0).reshape(1, 2, 2, 2)
    assert torch.equal(masked_out(image, "mean")[0, :, 0, 0], torch.tensor([1.5, 5.5]))


def test_wrong_values_are_refused():
    with pytest.raises(ConfigurationError, match="masking='noise'"):
        masked_out(torch.zeros(1, 2), "noise")
    with pytest.raises(InputError, match=r"shape \(3,\) does not fit inputs of \(1, 2\)"):
        masked_out(torch.zeros(1, 2), torch.zeros(3))
    with pytest.raises(ConfigurationError, match="kernel_size=4"):
        Blur(kernel_size=4)
