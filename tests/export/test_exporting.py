"""Files against Integrated Gradients by quadrature in float64, an oracle that knows nothing of graphs."""

import copy

import numpy as np
import onnxruntime
import pytest
import torch
from torch import nn

import axiograd
from axiograd.errors import (
    BaselineError,
    ConfigurationError,
    ExportError,
    InputError,
    NotHomogeneousError,
    StorageError,
)


def fresh(inputs, batch):
    """New values for every input, as a mapping of names."""
    named = inputs if isinstance(inputs, dict) else {"input": inputs}
    return {
        name: torch.randn(batch, *x.shape[1:]) if x.is_floating_point() else torch.randint(2, (batch, *x.shape[1:]))
        for name, x in named.items()
    }


def expected(model, values, options, score, quadrature):
    """Outputs, and attributions by name, in float64."""
    double = copy.deepcopy(model).double()
    scaling = {name: x.double() for name, x in values.items() if x.is_floating_point()}
    rest = {name: x for name, x in values.items() if name not in scaling}

    def run(*points):
        if "input" in values:
            return double(*points)
        return double(**dict(zip(scaling, points, strict=True)), **rest)

    baseline = options.get("baseline")
    origins = [torch.zeros_like(x) if baseline is None else baseline.double().expand_as(x) for x in scaling.values()]
    found = quadrature(lambda *points: score(run(*points)), list(scaling.values()), origins)
    with torch.no_grad():
        outputs = run(*scaling.values())
    return outputs, dict(zip(scaling, found, strict=True))


@pytest.mark.parametrize("batch", [1, 4])
def test_the_file_computes_integrated_gradients(exported, quadrature, batch):
    _, model, inputs, options, _, session, _ = exported
    torch.manual_seed(batch)
    values = fresh(inputs, batch)
    with torch.no_grad():
        raw = model(**values) if isinstance(inputs, dict) else model(values["input"])
    outputs = raw.reshape(batch, -1)
    if options.get("target") == "weights":
        asked = {"weights": torch.randn(outputs.shape)}
        weights = asked["weights"].double()
    else:
        chosen = torch.randint(outputs.shape[1], (batch,))
        chosen[0] = -1  # the largest
        asked = {"target": chosen}
        index = torch.where(chosen < 0, outputs.argmax(1), chosen)
        weights = nn.functional.one_hot(index, outputs.shape[1]).double()
    names = [each.name for each in session.get_outputs()]
    found = dict(zip(names, session.run(names, {k: v.numpy() for k, v in (values | asked).items()}), strict=True))
    score, attributions = expected(
        model, values, options, lambda out: (out.reshape(batch, -1) * weights).sum(1), quadrature
    )
    np.testing.assert_allclose(found["output"], score.numpy(), rtol=1e-4, atol=1e-5)
    for name, attribution in attributions.items():
        key = "attribution" if len(attributions) == 1 else f"attribution_{name}"
        scale = float(attribution.abs().max())
        np.testing.assert_allclose(found[key], attribution.numpy(), rtol=0, atol=2e-5 * scale)
    if "pooled" in found:
        blocks = found["attribution"].sum(1)
        windows = [[blocks[:, i : i + 4, j : j + 4].sum((1, 2)) for j in range(0, 19, 4)] for i in range(0, 21, 4)]
        np.testing.assert_allclose(found["pooled"], np.moveaxis(np.array(windows), -1, 0), rtol=1e-4, atol=1e-6)
    total = sum(found[k].reshape(batch, -1).sum(1) for k in found if k.startswith("attribution"))
    np.testing.assert_allclose(found["gap"], 0, atol=1e-5 * max(1, float(np.abs(total).max())))


def test_what_lies_outside_the_proof_has_an_answer(exported):
    name, _, inputs, options, _, session, _ = exported
    values = {k: v.numpy() for k, v in fresh(inputs, 2).items()}
    scaling = next(iter(values))
    origin = options.get("baseline", torch.zeros(()))
    values[scaling][0] = np.broadcast_to(origin.numpy(), values[scaling][0].shape)
    values[scaling][1].flat[0] = np.nan if name != "lift" else np.inf
    outputs = session.get_outputs()
    if options.get("target") == "weights":
        asked = {"weights": np.ones((2, 4), dtype=np.float32)}
    else:
        asked = {"target": np.array([-1, -1])}
    found = session.run(None, values | asked)
    for each, value in zip(outputs, found, strict=True):
        assert np.isnan(value[1]).all(), each.name
        assert np.isfinite(value[0]).all(), each.name
        if name != "products" or each.name in {"gap", "attribution_left"}:  # the other input is not zero
            np.testing.assert_array_equal(value[0], 0)


def test_a_wrong_target_or_size_is_an_error_at_run_time(exported):
    _, _, inputs, options, _, session, _ = exported
    values = {k: v.numpy() for k, v in fresh(inputs, 2).items()}
    if options.get("target") != "weights":
        for wrong in (99, -2):
            with pytest.raises(Exception, match=r"out of data bounds|out of bounds|indices element"):
                session.run(None, values | {"target": np.array([0, wrong])})
    asked = {each.name: np.zeros((2, 4)[: len(each.shape)], np.int64) for each in session.get_inputs()[-1:]}
    asked = {name: value.astype(np.float32) if name == "weights" else value for name, value in asked.items()}
    with pytest.raises(Exception, match=r"Got invalid dimensions|Invalid rank"):
        session.run(None, {**values, **asked, next(iter(values)): np.ones((2, 7), np.float32)})


def test_pt2_loads_without_the_package_and_agrees(tmp_path):
    import subprocess
    import sys

    torch.manual_seed(0)
    layers = nn.Linear(3, 8, bias=False), nn.ReLU(), nn.Dropout(), nn.Linear(8, 2, bias=False)
    model = nn.Sequential(*layers).train()
    path = tmp_path / "model.pt2"
    card = axiograd.export_pt2(model, torch.randn(2, 3), path, classes=("no", "yes"))
    assert model.training
    assert model[2].training
    model.eval()
    assert axiograd.export.read(path) == card
    x = torch.randn(5, 3)
    torch.save(x, tmp_path / "x.pt")
    code = f"""
import sys
sys.modules["axiograd"] = None
import torch
x = torch.load({str(tmp_path / "x.pt")!r})
found = torch.export.load({str(path)!r}).module()(x, torch.tensor([0, 1, -1, 0, 1]))
torch.save(found, {str(tmp_path / "found.pt")!r})
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    output, attribution, gap = torch.load(tmp_path / "found.pt")
    chosen = torch.tensor([0, 1, 0, 0, 1])
    chosen[2] = output[2].argmax()
    oracle = axiograd.IntegratedGradients(model, n_steps=8).attribute(x, target=chosen)
    torch.testing.assert_close(output, model(x).detach())
    torch.testing.assert_close(attribution, oracle, rtol=1e-5, atol=1e-6)
    assert float(gap.abs().max()) < 1e-6


def test_a_regular_model_is_refused_with_the_line_and_the_way_out(tmp_path):
    with pytest.raises(NotHomogeneousError, match=r"(?s)bias.*axiograd convert"):
        axiograd.export_onnx(nn.Linear(3, 2), torch.ones(2, 3), tmp_path / "m.onnx")
    assert not list(tmp_path.iterdir())


def test_wrong_use(tmp_path):
    model, x = nn.Linear(3, 2, bias=False).eval(), torch.ones(2, 3)
    with pytest.raises(ConfigurationError, match=r"ends in \.onnx"):
        axiograd.export_onnx(model, x, tmp_path / "m.pb")
    with pytest.raises(ConfigurationError, match="target='both'"):
        axiograd.export_onnx(model, x, tmp_path / "m.onnx", target="both")
    with pytest.raises(InputError, match="pool=8"):
        axiograd.export_onnx(model, x, tmp_path / "m.onnx", pool=8)
    with pytest.raises(BaselineError, match="from sample to sample"):
        axiograd.export_onnx(model, x, tmp_path / "m.onnx", baseline=torch.randn(2, 3))
    with pytest.raises(InputError, match="list with tensors"):
        axiograd.export_pt2(lambda x, more: model(x) * more[0], (x, [x[:, :1] * 0 + 1]), tmp_path / "m.pt2")
    for pool in (2.5, "8", 0):
        with pytest.raises(InputError, match=f"pool={pool!r}"):
            axiograd.export_pt2(nn.Conv2d(3, 2, 3, bias=False), torch.ones(1, 3, 5, 5), tmp_path / "m.pt2", pool=pool)
    for classes in (("one",), ("one", "two", "three"), "ab"):
        with pytest.raises(ConfigurationError, match="the model has 2 outputs"):
            axiograd.export_pt2(model, x, tmp_path / "m.pt2", classes=classes)
    for name in ("target", "attribution", "pooled_left"):
        with pytest.raises(InputError, match=f"'{name}' has the name of one of the graph's own"):
            axiograd.export_pt2(Any(), {name: x}, tmp_path / "m.pt2")
    with pytest.raises(InputError, match=r"shape \(2,\) for an input of .*Give the examples a batch dimension"):
        axiograd.export_onnx(model, x[0], tmp_path / "m.onnx")
    (tmp_path / "file").write_text("")
    with pytest.raises(StorageError, match="is not a writable folder"):
        axiograd.export_onnx(model, x, tmp_path / "file" / "m.onnx")
    (tmp_path / "other.onnx").write_bytes(b"\x08\x08")
    with pytest.raises(StorageError, match="not written by axiograd"):
        axiograd.export.read(tmp_path / "other.onnx")
    assert {path.name for path in tmp_path.iterdir()} == {"file", "other.onnx"}


class Any(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(3, 2, bias=False)

    def forward(self, **named):
        return sum(self.layer(value) for value in named.values())


def test_one_tensor_given_twice_is_two_inputs(tmp_path):
    x = torch.randn(2, 3)
    model = Any().eval()
    card = axiograd.export_pt2(model, {"left": x, "right": x}, tmp_path / "m.pt2")
    assert [name for name, *_ in card.inputs] == ["left", "right", "target"]
    left, right = torch.randn(4, 3), torch.randn(4, 3)
    output, *_ = torch.export.load(tmp_path / "m.pt2").module()(left, right, torch.full((4,), -1))
    torch.testing.assert_close(output, model(left=left, right=right).detach())


def test_inputs_may_be_called_like_operators_and_weights(tmp_path):
    class Named(Any):
        def forward(self, relu, mm, weight_layer_weight):
            return self.layer(relu.relu() * 2 + mm - weight_layer_weight)

    model = Named().eval()
    given = {name: torch.randn(4, 3) for name in ("relu", "mm", "weight_layer_weight")}
    axiograd.export_onnx(model, given, tmp_path / "m.onnx")
    axiograd.export_pt2(model, given, tmp_path / "m.pt2")
    x = [torch.randn(2, 3, requires_grad=True) for _ in given]
    gradients = torch.autograd.grad(model(*x)[:, 1].sum(), x)
    target = torch.ones(2, dtype=torch.int64)
    values = [each.detach() for each in x]
    inputs = dict(zip((*given, "target"), (v.numpy() for v in (*values, target)), strict=True))
    from_onnx = onnxruntime.InferenceSession(tmp_path / "m.onnx").run(None, inputs)
    from_pt2 = torch.export.load(tmp_path / "m.pt2").module()(*values, target)
    for found in ([torch.from_numpy(value) for value in from_onnx], from_pt2):
        for attribution, value, gradient in zip(found[1:4], values, gradients, strict=True):
            torch.testing.assert_close(attribution, value * gradient)


def test_modules_may_have_any_names(tmp_path):
    class Two(nn.Module):
        def __init__(self):
            super().__init__()
            self.a = nn.Sequential()
            self.a.add_module("block-1", nn.Linear(3, 4, bias=False))
            self.a.add_module("b", nn.Linear(4, 4, bias=False))
            self.a_b = nn.Linear(4, 2, bias=False)

        def forward(self, x):
            return self.a_b(self.a(x).relu())

    model, x = Two().eval(), torch.randn(2, 3)
    axiograd.export_onnx(model, x, tmp_path / "m.onnx")
    axiograd.export_pt2(model, x, tmp_path / "m.pt2")
    target = torch.tensor([0, 1])
    session = onnxruntime.InferenceSession(tmp_path / "m.onnx")
    from_onnx = session.run(["output"], {"input": x.numpy(), "target": target.numpy()})[0]
    from_pt2 = torch.export.load(tmp_path / "m.pt2").module()(x, target)[0]
    for found in (torch.from_numpy(from_onnx), from_pt2):
        torch.testing.assert_close(found, model(x).detach())


def test_examples_in_channels_last(tmp_path):
    model = nn.Sequential(nn.Conv2d(3, 2, 3, bias=False), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten()).eval()
    images = torch.randn(2, 3, 8, 8).to(memory_format=torch.channels_last)
    card = axiograd.export_onnx(model, images, tmp_path / "m.onnx")
    assert card.check.median < 1e-5


def test_height_and_width_may_be_free(tmp_path):
    torch.manual_seed(0)
    layers = nn.Conv2d(3, 4, 3, 2, 1, bias=False), nn.ReLU(), nn.MaxPool2d(3, 2), nn.Conv2d(4, 4, (3, 2), bias=False)
    model = nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten()).eval()
    card = axiograd.export_onnx(model, torch.randn(2, 3, 24, 24), tmp_path / "m.onnx", sizes=True)
    assert card.inputs[0] == ("input", "float32", ("batch", 3, "height", "width"))
    session = onnxruntime.InferenceSession(tmp_path / "m.onnx", providers=["CPUExecutionProvider"])
    for height, width in ((24, 24), (23, 40), (31, 18)):
        x, target = torch.randn(3, 3, height, width), torch.tensor([0, 3, 1])
        _, attribution, gap = session.run(None, {"input": x.numpy(), "target": target.numpy()})
        oracle = axiograd.IntegratedGradients(model, n_steps=4).attribute(x, target=target)
        np.testing.assert_allclose(attribution, oracle.numpy(), atol=1e-5 * float(oracle.abs().max()))
        assert np.abs(gap).max() < 1e-6


def test_any_size_is_pooled_to_several_pixels(tmp_path):
    pooling = nn.AvgPool2d(3, 2, 1), nn.AdaptiveAvgPool2d((3, 2)), nn.Flatten()
    model = nn.Sequential(nn.Conv2d(3, 4, 3, 2, bias=False), nn.ReLU(), *pooling, nn.Linear(24, 2, bias=False)).eval()
    axiograd.export_onnx(model, torch.randn(2, 3, 32, 32), tmp_path / "m.onnx", sizes=True)
    session = onnxruntime.InferenceSession(tmp_path / "m.onnx")
    for height, width in ((33, 47), (16, 80)):
        x = torch.randn(2, 3, height, width, requires_grad=True)
        (gradient,) = torch.autograd.grad(model(x)[:, 1].sum(), x)
        given = {"input": x.detach().numpy(), "target": np.ones(2, np.int64)}
        (found,) = session.run(["attribution"], given)
        torch.testing.assert_close(torch.from_numpy(found), (x * gradient).detach())


class Singular(nn.Module):
    def forward(self, x):
        return torch.linalg.svdvals(x.reshape(-1, 2, 2))


def test_an_operator_that_onnx_lacks_is_named(tmp_path):
    with pytest.raises(ExportError, match=r"no operator for aten\..*svd.*\.pt2 file"):
        axiograd.export_onnx(Singular().eval(), torch.randn(2, 4), tmp_path / "m.onnx")
    assert not list(tmp_path.iterdir())


def same_as_by_hand(path, wide, score, target):
    """A file's answers and scores in float64 that were written without anything in place."""
    session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
    inputs = {"input": wide.detach().float().numpy(), "target": np.full(len(wide), target)}
    output, attribution, _ = map(torch.from_numpy, session.run(None, inputs))
    (gradient,) = torch.autograd.grad(score[:, target].sum(), wide)
    torch.testing.assert_close(output.double(), score.detach(), rtol=1e-5, atol=1e-6)
    torch.testing.assert_close(attribution.double(), (wide * gradient).detach(), rtol=1e-5, atol=1e-6)


class InPlace(nn.Module):
    """Writes into what nobody looks at again, or, where `seen`, into what a view of it shows."""

    def __init__(self, *, seen: bool) -> None:
        super().__init__()
        self.first, self.last = nn.Linear(4, 6, bias=False), nn.Linear(6, 2, bias=False)
        self.seen = seen

    def forward(self, x):
        hidden = self.first(x)
        before = hidden[:, :3] if self.seen else torch.relu(hidden)[:, :3]
        hidden.mul_(2).relu_()
        return self.last(hidden + torch.cat([before, before], 1))


@pytest.mark.parametrize("seen", [False, True])
def test_in_place_operators(tmp_path, seen):
    torch.manual_seed(0)
    model, x = InPlace(seen=seen).eval(), torch.randn(5, 4)
    axiograd.export_onnx(model, x[:2], tmp_path / "m.onnx")
    # by hand, without anything in place
    double, wide = copy.deepcopy(model).double(), x.double().requires_grad_()
    hidden = double.first(wide)
    after = torch.relu(2 * hidden)
    before = (after if seen else torch.relu(hidden))[:, :3]
    score = double.last(after + torch.cat([before, before], 1))
    same_as_by_hand(tmp_path / "m.onnx", wide, score, 1)


class Windowed(nn.Module):
    """What Swin and ConvNeXt do: a mask filled part by part, and pooling of images whose channels lie last."""

    def __init__(self) -> None:
        super().__init__()
        self.mix, self.last = nn.Linear(3, 6, bias=False), nn.Linear(6, 2, bias=False)

    def forward(self, x):
        mask = x.new_zeros((4, 4))
        for i, rows in enumerate((slice(0, 2), slice(2, 4))):
            mask[rows, 1:3] = i + 1
        channels_last = torch.relu(self.mix(x.permute(0, 2, 3, 1)))
        return self.last(nn.functional.adaptive_avg_pool2d(channels_last.permute(0, 3, 1, 2) * mask, 1).flatten(1))


def test_masks_filled_by_parts_and_pooling_of_channels_last(tmp_path):
    torch.manual_seed(0)
    model, x = Windowed().eval(), torch.randn(5, 3, 4, 4)
    axiograd.export_onnx(model, x[:2], tmp_path / "m.onnx")
    mask = torch.tensor([[0, 1, 1, 0], [0, 1, 1, 0], [0, 2, 2, 0], [0, 2, 2, 0.0]], dtype=torch.float64)
    wide, mix, last = x.double().requires_grad_(), model.mix.weight.double(), model.last.weight.double()
    score = torch.relu(torch.einsum("nchw,dc->ndhw", wide, mix)).mul(mask).mean((2, 3)) @ last.T
    same_as_by_hand(tmp_path / "m.onnx", wide, score, 0)


class Copied(nn.Module):
    """A copy into something new, a shift by slices, and an idle dropout whose result is changed in place."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.last, self.drop = nn.Linear(4, 6, bias=False), nn.Linear(6, 2, bias=False), nn.Dropout(0.5)

    def forward(self, x):
        hidden = self.first(x)
        copied = torch.empty_like(hidden).copy_(hidden[:, :1])
        shifted = hidden.new_zeros(hidden.shape)
        shifted[:, 1:] = hidden[:, :-1]
        self.drop(hidden).relu_()
        return self.last(hidden + copied + shifted)


class FilledInPlace(nn.Module):
    """A constant that is filled in place, as Swin v2 does."""

    def __init__(self) -> None:
        super().__init__()
        self.mix = nn.Linear(4, 4, bias=False)
        self.register_buffer("chosen", torch.eye(4))

    def forward(self, x):
        scale = torch.zeros_like(self.chosen)
        scale.masked_fill_(self.chosen != 0, 2.0)
        return torch.relu(self.mix(x)) @ scale


def test_constants_filled_in_place(tmp_path):
    torch.manual_seed(0)
    model, x = FilledInPlace().eval(), torch.randn(3, 4)
    axiograd.export_onnx(model, x[:2], tmp_path / "m.onnx")
    wide, weight = x.double().requires_grad_(), model.mix.weight.double()
    same_as_by_hand(tmp_path / "m.onnx", wide, 2 * torch.relu(wide @ weight.T), 0)


def test_copies_and_idle_dropout(tmp_path):
    torch.manual_seed(0)
    model, x = Copied().eval(), torch.randn(5, 4)
    axiograd.export_onnx(model, x[:2], tmp_path / "m.onnx")
    double, wide = copy.deepcopy(model).double(), x.double().requires_grad_()
    hidden = double.first(wide)
    shifted = torch.cat([torch.zeros_like(hidden[:, :1]), hidden[:, :-1]], 1)
    score = double.last(hidden.relu() + hidden[:, :1] + shifted)
    same_as_by_hand(tmp_path / "m.onnx", wide, score, 0)


def test_free_sizes_that_the_model_fixes(tmp_path):
    model = nn.Sequential(nn.Conv2d(3, 4, 3, bias=False), nn.Flatten(), nn.Linear(144, 2, bias=False))
    with pytest.raises(InputError, match=r"the model fails on samples of shape \(3, 10, 9\)"):
        axiograd.export_pt2(model, torch.randn(2, 3, 8, 8), tmp_path / "m.pt2", sizes=True)
    for export, name in ((axiograd.export_onnx, "m.onnx"), (axiograd.export_pt2, "m.pt2")):
        with pytest.raises(ExportError, match=r"takes 4 alone for the batch.*int\(x\.shape\[0\]\), say x\.shape\[0\]"):
            export(Counted().eval(), torch.randn(4, 2, 4), tmp_path / name)


def test_half_precision(tmp_path):
    torch.manual_seed(0)
    layers = nn.Linear(64, 256, bias=False), nn.ReLU(), nn.Linear(256, 3, bias=False)
    model, x = nn.Sequential(*layers).half().eval(), torch.randn(3, 64).half()
    card = axiograd.export_pt2(model, x, tmp_path / "m.pt2")
    assert card.check.structure < 1e-12
    assert {dtype for _, dtype, _ in (*card.inputs, *card.outputs)} == {"float16", "int64"}


class Counted(nn.Module):
    """Writes the number of rows into the graph."""

    def __init__(self) -> None:
        super().__init__()
        self.last = nn.Linear(8, 3, bias=False)

    def forward(self, x):
        return self.last(x.relu().view(len(x), -1))
