"""Held gradients against networks whose gates are written out as constants, and whole model families that add up."""

import math
from functools import partial

import pytest
import torch
import torch.nn.functional as F
from captum.attr import InputXGradient
from torch import nn

import axiograd
from axiograd.attribution import choose_method
from support.torchvision import torchvision_models

transformers = pytest.importorskip("transformers")


@pytest.fixture(autouse=True)
def in_double_precision():
    torch.manual_seed(0)
    torch.set_default_dtype(torch.float64)
    yield
    torch.set_default_dtype(torch.float32)


def by_hand(frozen, x, constants=()):
    """Σ features and Σ constants by plain autograd on a function whose gates are numbers."""
    x, constants = x.clone().requires_grad_(), [c.detach().clone().requires_grad_() for c in constants]
    gradients = torch.autograd.grad(frozen(x, *constants).sum(), [x, *constants])
    return (x * gradients[0]).detach(), sum(
        float((c * g).sum().detach()) for c, g in zip(constants, gradients[1:], strict=True)
    )


# --- networks written out with their gates as constants


def test_norm_and_activation_are_a_scale_and_a_slope():
    x, w, b, scale, shift = torch.randn(1, 4), torch.randn(4, 6), torch.randn(6), torch.randn(4), torch.randn(4)
    v = torch.randn(6)

    def network(x):
        return F.gelu(F.layer_norm(x, (4,), scale, shift) @ w + b) @ v

    deviation = (x.var(correction=0) + 1e-5).sqrt()
    hidden = ((x - x.mean()) / deviation * scale + shift) @ w + b
    slope = F.gelu(hidden) / hidden

    def frozen(x, shift, b):
        return (((x - x.mean()) / deviation * scale + shift) @ w + b) * slope @ v

    features, constants = by_hand(frozen, x, [shift, b])
    torch.testing.assert_close(axiograd.HeldGradient(network).attribute(x), features)
    parts = axiograd.HeldGradient(network).completeness(x)
    assert float(parts.constants) == pytest.approx(constants)
    assert float(parts.features + parts.constants) == pytest.approx(float(network(x)))


@pytest.mark.parametrize("fused", [True, False])
def test_attention_is_its_weights_times_values(fused):
    x, (q, k, v), positions = torch.randn(1, 5, 4), torch.randn(3, 4, 4), torch.randn(5, 4)
    causal = torch.ones(5, 5).tril().bool()

    def network(x):
        h = x + positions
        if fused:
            return F.scaled_dot_product_attention(h @ q, h @ k, h @ v, attn_mask=causal).sum((1, 2))
        scores = (h @ q @ (h @ k).transpose(1, 2) / 2).masked_fill(~causal, -math.inf)
        return (scores.softmax(-1) @ (h @ v)).sum((1, 2))

    def weights(h, other):
        """Queries and keys share the product of them."""
        logits = (h @ q @ (other @ k).transpose(1, 2) + other @ q @ (h @ k).transpose(1, 2)) / 4
        return logits.masked_fill(~causal, -math.inf).softmax(-1)

    h = x + positions
    features, constants = by_hand(lambda x, p: (weights(x + p, h) @ ((x + p) @ v)).sum(), x, [positions])
    logits = (h @ q @ (h @ k).transpose(1, 2) / 2).masked_fill(~causal, 0)
    weigh = lambda logits: logits.masked_fill(~causal, -math.inf).softmax(-1)  # noqa: E731
    moved = torch.autograd.functional.jvp(weigh, logits, logits)[1] @ (h @ v)
    torch.testing.assert_close(axiograd.HeldGradient(network).attribute(x), features)
    found = axiograd.HeldGradient(network).completeness(x)
    assert float(found.constants) == pytest.approx(constants - float(moved.sum()))
    assert float(found.delta.abs()) < 1e-12


def test_a_gated_perceptron_shares_its_product():
    x, a, b = torch.randn(1, 4), torch.randn(4, 3), torch.randn(4, 3)

    def network(x):
        return (F.silu(x @ a) * (x @ b)).sum(1)

    gate, slope, other = F.silu(x @ a), torch.sigmoid(x @ a), x @ b
    features, _ = by_hand(lambda x: (gate * (x @ b) + x @ a * slope * other).sum() / 2, x)
    torch.testing.assert_close(axiograd.HeldGradient(network).attribute(x), features)


GATED_BY_ITSELF = {
    "GELU by tanh": lambda x: 0.5 * x * (1 + torch.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * torch.pow(x, 3)))),
    "GELU by erf": lambda x: x * 0.5 * (1.0 + torch.erf(x / math.sqrt(2))),
    "quick GELU": lambda x: x * torch.sigmoid(1.702 * x),
    "SiLU in place": lambda x: x.mul(1).mul_(x.sigmoid()),
    "hard swish": lambda x: x * F.relu6(x + 3) / 6,
    "Mish": lambda x: x * torch.tanh(F.softplus(x)),
    "squared ReLU": lambda x: F.relu(x) ** 2,
    "GLU": lambda x: F.glu(torch.cat([x, x], -1)),
    "module in place": nn.SiLU(inplace=True),
    "by keyword": lambda x: F.silu(input=x),
}


@pytest.mark.parametrize("name", GATED_BY_ITSELF)
def test_a_value_times_its_own_gate_is_an_activation(name):
    x, w, b, v = torch.randn(1, 4), torch.randn(4, 6), torch.randn(6), torch.randn(6)
    activation = GATED_BY_ITSELF[name]
    slope = activation(x @ w + b) / (x @ w + b)
    features, constants = by_hand(lambda x, b: (x @ w + b) * slope @ v, x, [b])
    method = axiograd.HeldGradient(lambda x: activation(x @ w + b) @ v)
    torch.testing.assert_close(method.attribute(x), features)
    assert float(method.completeness(x).constants) == pytest.approx(constants)


def test_bounded_signals_flow_and_sigmoids_are_their_gates():
    """A gated recurrent cell: tanh flows where it is linear, and where its factor is a sigmoid."""
    x, w, u = torch.randn(1, 4), torch.randn(4, 3), torch.randn(4, 3)
    gate, slope = torch.sigmoid(x @ u), torch.tanh(x @ w) / (x @ w)
    features, _ = by_hand(lambda x: (gate * (x @ w) * slope).sum(), x)
    found = axiograd.HeldGradient(lambda x: (torch.sigmoid(x @ u) * torch.tanh(x @ w)).sum(1)).attribute(x)
    torch.testing.assert_close(found, features)


@pytest.mark.parametrize(
    "norm",
    [
        nn.BatchNorm1d(6).eval(),
        nn.BatchNorm1d(6),
        nn.GroupNorm(2, 6),
        nn.InstanceNorm1d(6, affine=True),
        nn.RMSNorm(5),
        nn.LocalResponseNorm(3),
        lambda x: F.normalize(x, dim=1),
        lambda x: (x - x.mean(1, keepdim=True)) / (x.std(1, keepdim=True) + 1e-6),
        lambda x: x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-6),
    ],
    ids=["batch eval", "batch train", "group", "instance", "rms", "response", "normalize", "by hand", "rms by hand"],
)
def test_every_norm_computes_what_it_did_and_adds_up(norm):
    if isinstance(norm, nn.Module):
        for parameter in norm.double().parameters():
            nn.init.normal_(parameter)
    x, w = torch.randn(3, 6, 5), torch.randn(6, 5)
    # In train mode samples are mixed, and only their sum adds up.
    method = axiograd.HeldGradient(lambda x: (norm(x) * w).sum((1, 2)))
    parts, outputs = method.completeness(x), method.explain(x).outputs
    torch.testing.assert_close(outputs, (norm(x) * w).sum((1, 2)).detach())
    torch.testing.assert_close((parts.features + parts.constants).sum(), outputs.sum())


def test_constants_that_are_written_put_beside_or_chosen():
    x, token, w = torch.randn(2, 3), torch.randn(1, 3), torch.randn(4, 3)

    def network(x):
        h = torch.cat([token.expand(2, 1, 3), x[:, None], torch.zeros(2, 2, 3)], 1)
        h[:, 2] = x + 2
        h[:, 3] += torch.where(x > 0, x, token)
        return (h * w).sum((1, 2))

    kept = (x > 0).double()
    features = x * (w[1] + w[2] + kept * w[3])
    method = axiograd.HeldGradient(network)
    torch.testing.assert_close(method.attribute(x), features)
    expected = (token * w[0] + 2 * w[2] + (1 - kept) * token * w[3]).sum(1)
    torch.testing.assert_close(method.completeness(x).constants, expected)


def test_it_is_input_x_gradient_of_a_piecewise_linear_network():
    network = nn.Sequential(
        nn.Conv2d(1, 4, 3, bias=False), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(4, 4, 3, bias=False),
        nn.LeakyReLU(), nn.AdaptiveMaxPool2d(1), nn.Flatten(), nn.Linear(4, 3, bias=False),
    )  # fmt: skip
    x = torch.randn(2, 1, 12, 12).relu()
    found = axiograd.HeldGradient(network).attribute(x, 1)
    torch.testing.assert_close(found, InputXGradient(network).attribute(x.clone().requires_grad_(), 1).detach())
    torch.testing.assert_close(found, axiograd.XGradient(network).attribute(x, 1))
    assert float(axiograd.HeldGradient(network).completeness(x, 1).constants.abs().max()) == 0


# --- training


class Encoder(nn.Module):
    """Attention, norms and GELU, by PyTorch's own layers."""

    def __init__(self):
        super().__init__()
        self.encoder = nn.TransformerEncoder(
            nn.TransformerEncoderLayer(8, 2, 12, 0.0, "gelu", batch_first=True), 2, enable_nested_tensor=False
        )
        self.head = nn.Linear(8, 3)

    def forward(self, x):
        return self.head(self.encoder(x).mean(1))


def test_attributions_lead_back_to_all_parameters_gates_included():
    """Against differences of the attribution itself."""
    network, x, weights = Encoder(), torch.randn(2, 4, 8), torch.randn(2, 4, 8)
    method = axiograd.HeldGradient(network)
    loss = (method.attribute(x, 0, create_graph=True) * weights).sum()
    parameters = list(network.parameters())
    gradients = torch.autograd.grad(loss, parameters, allow_unused=True, materialize_grads=True)
    for parameter, gradient in zip(parameters, gradients, strict=True):
        direction, step, values = torch.randn_like(parameter), 1e-5, []
        for sign in (1, -2, 1):
            parameter.data += sign * step * direction
            values.append(float((method.attribute(x, 0) * weights).sum()))
        assert (values[0] - values[1]) / (2 * step) == pytest.approx(float((gradient * direction).sum()), abs=1e-7)


def test_a_training_step_has_the_networks_own_task_gradient():
    network, x = Encoder(), torch.randn(2, 4, 8)
    explanation = axiograd.HeldGradient(network).explain(x, 0, create_graph=True)
    torch.testing.assert_close(explanation.outputs, network(x))
    found = torch.autograd.grad(explanation.outputs.square().sum(), list(network.parameters()))
    expected = torch.autograd.grad(network(x).square().sum(), list(network.parameters()))
    torch.testing.assert_close(found, expected)


def agrees_with_its_wrapper(network, wrapped):
    x = torch.randn(2, 4, 8)
    expected = axiograd.HeldGradient(network).attribute(x, 1)
    torch.testing.assert_close(axiograd.HeldGradient(wrapped).attribute(x, 1), expected)
    gradients = []
    for model in (network, wrapped):
        network.zero_grad()
        explained = axiograd.HeldGradient(model).explain(x, 1, create_graph=True)
        (explained.outputs.sum() + explained.attributions.square().sum()).backward()
        gradients.append([parameter.grad.clone() for parameter in network.parameters()])
    torch.testing.assert_close(*gradients)


def test_compiled_and_data_parallel_models():
    network = Encoder()
    agrees_with_its_wrapper(network, torch.compile(network, backend="aot_eager"))
    agrees_with_its_wrapper(network, nn.DataParallel(network))


def test_distributed_models(tmp_path):
    torch.distributed.init_process_group("gloo", init_method=f"file://{tmp_path}/store", rank=0, world_size=1)
    try:
        network = Encoder()
        agrees_with_its_wrapper(network, nn.parallel.DistributedDataParallel(network))
    finally:
        torch.distributed.destroy_process_group()


def test_the_target_all_is_every_target():
    network, x = Encoder().eval(), torch.randn(2, 4, 8)
    method = axiograd.HeldGradient(network)
    everything, parts = method.attribute(x, "all"), method.completeness(x, "all")
    torch.testing.assert_close(everything, torch.stack([method.attribute(x, i) for i in range(3)]))
    torch.testing.assert_close(parts.features + parts.constants, network(x).T.detach())
    assert parts.constants.shape == (3, 2)


# --- whole families, with biases that are not zero

SMALL = {"vocab_size": 40, "hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2, "num_labels": 3}
SMALL |= {"intermediate_size": 24, "pad_token_id": 0}
KEYS = {**SMALL, "num_key_value_heads": 1, "head_dim": 8}
GPT = {"vocab_size": 40, "num_labels": 3, "pad_token_id": 0}
IMAGES = {"image_size": 16, "patch_size": 4, "intermediate_size": 24, "num_labels": 3}
IMAGES |= {"hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2}
FAMILIES = {
    "Bert": SMALL,
    "Roberta": SMALL,
    "DistilBert": {**GPT, "dim": 16, "n_layers": 2, "n_heads": 2, "hidden_dim": 24},
    "Albert": {**SMALL, "embedding_size": 8},
    "Electra": {**SMALL, "embedding_size": 8},
    "DebertaV2": {**SMALL, "relative_attention": True, "pos_att_type": ["p2c", "c2p"]},
    "MPNet": SMALL,
    "ModernBert": SMALL,
    "GPT2": {**GPT, "n_embd": 16, "n_layer": 2, "n_head": 2},
    "GPTNeo": {
        **GPT,
        "hidden_size": 16,
        "num_layers": 2,
        "num_heads": 2,
        "attention_types": [[["global", "local"], 1]],
    },
    "GPTNeoX": SMALL,
    "Falcon": SMALL,
    "OPT": {**SMALL, "ffn_dim": 24, "word_embed_proj_dim": 16},
    "Llama": KEYS,
    "Mistral": KEYS,
    "Qwen2": KEYS,
    "Gemma": KEYS,
    "Phi": SMALL,
    "T5": {"vocab_size": 40, "d_model": 16, "d_kv": 8, "d_ff": 24, "num_layers": 2, "num_heads": 2},
    "ViT": IMAGES,
    "Swin": {
        "image_size": 16,
        "patch_size": 2,
        "embed_dim": 8,
        "depths": [2, 2],
        "num_heads": [2, 2],
        "window_size": 4,
    },
    "Dinov2": {**IMAGES, "use_swiglu_ffn": True},
}
#: All of them by hand, and by fused attention where they have it.
ATTENTION = [(name, "eager") for name in FAMILIES]
ATTENTION += [(name, "sdpa") for name in FAMILIES if name not in {"DebertaV2", "MPNet", "GPTNeo"}]


def shaken(model):
    """Random weights, biases and statistics, none of them zero."""
    with torch.no_grad():
        for tensor in (*model.parameters(), *model.buffers()):
            if tensor.is_floating_point():
                tensor.add_(0.1 * torch.rand_like(tensor))
    return model.double().eval()


@pytest.mark.filterwarnings("ignore:.torch.jit.script. is deprecated")  # which DeBERTa uses
@pytest.mark.parametrize(("name", "attention"), ATTENTION)
def test_features_and_constants_add_up_to_the_logit(name, attention):
    config = getattr(transformers, f"{name}Config")(**FAMILIES[name])
    images, encoder = name in {"ViT", "Swin", "Dinov2"}, name == "T5"
    kind = "EncoderModel" if encoder else "ForImageClassification" if images else "ForSequenceClassification"
    config._attn_implementation = attention
    model = shaken(getattr(transformers, name + kind)(config))
    if images:
        inputs, layer = torch.randn(2, 3, 16, 16), None
    else:
        ids = torch.tensor([[5, 7, 9, 11, 13, 2], [6, 8, 3, 2, 0, 0]])
        inputs, layer = {"input_ids": ids, "attention_mask": (ids != 0).long()}, model.get_input_embeddings()
        layer = "encoder.embed_tokens" if encoder else layer

    def logit(output):
        return (output.last_hidden_state.mean(1) if encoder else output.logits)[:, 1]

    method = axiograd.HeldGradient(model, layer=layer)
    parts = method.completeness(inputs, logit)
    expected = logit(model(**inputs) if isinstance(inputs, dict) else model(inputs)).detach()
    # Llama and its kin compute norms in float32.
    torch.testing.assert_close(parts.features + parts.constants, expected, atol=1e-6, rtol=1e-6)
    assert method.attends(inputs)


def detached(model):
    """The same network with held scales and slopes, by replacing the forward of its modules."""

    def norm(x, module):
        scale = (x.var(-1, correction=0, keepdim=True) + module.eps).rsqrt().detach()
        return (x - x.mean(-1, keepdim=True)) * scale * module.weight + module.bias

    def half(x, module):
        return F.linear(x, module.weight, module.bias) / 2 + F.linear(x, module.weight, module.bias).detach() / 2

    def slope(x, module):
        return x * (type(module).forward(module, x) / x).detach()

    for name, module in model.named_modules():
        kind = name.rpartition(".")[2]
        activation = isinstance(module, nn.Tanh) or "Activation" in type(module).__name__
        rule = norm if isinstance(module, nn.LayerNorm) else slope if activation else None
        rule = half if kind in {"query", "key", "q_proj", "k_proj"} else rule
        if rule is not None:
            module.forward = partial(rule, module=module)
    return model


@pytest.mark.parametrize("name", ["Bert", "ViT"])
def test_every_feature_is_that_of_modules_with_detached_scales(name):
    config = getattr(transformers, f"{name}Config")(**FAMILIES[name])
    model = shaken(getattr(transformers, f"{name}For{'Image' if name == 'ViT' else 'Sequence'}Classification")(config))
    x = torch.randn(2, 3, 16, 16) if name == "ViT" else torch.randn(2, 6, 16)
    call = (lambda x: model(x).logits) if name == "ViT" else (lambda x: model(inputs_embeds=x).logits)
    found = axiograd.HeldGradient(call).attribute(x, 1)
    model = detached(model)
    x.requires_grad_()
    (gradient,) = torch.autograd.grad(call(x)[:, 1].sum(), x)
    torch.testing.assert_close(found, (x * gradient).detach(), rtol=1e-10, atol=1e-14)


TORCHVISION = {
    "vit_b_16": {"image_size": 32, "num_layers": 1, "hidden_dim": 48, "num_heads": 4, "mlp_dim": 64},
    "swin_t": {"embed_dim": 12, "depths": [1, 1], "num_heads": [2, 2]},
    "swin_v2_t": {"embed_dim": 12, "depths": [1, 1], "num_heads": [2, 2]},
    "convnext_tiny": {},
    "resnet18": {},
    "mobilenet_v3_small": {},
    "efficientnet_b0": {},
    "squeezenet1_0": {},
}


@pytest.mark.parametrize("name", TORCHVISION)
def test_torchvisions_networks_add_up(name):
    models = torchvision_models()
    settings = dict(TORCHVISION[name])
    if name == "vit_b_16":
        model = models.VisionTransformer(patch_size=16, num_classes=5, **settings)
    elif name.startswith("swin"):
        model = models.SwinTransformer(
            patch_size=[4, 4], window_size=[4, 4], num_classes=5, **settings,
            **({"block": models.swin_transformer.SwinTransformerBlockV2,
                "downsample_layer": models.swin_transformer.PatchMergingV2} if name == "swin_v2_t" else {}),
        )  # fmt: skip
    else:
        model = getattr(models, name)(num_classes=5)
    _adds_up(model, 64 if name == "squeezenet1_0" else 32)


TIMM = {
    "vit_tiny_patch16_224": {"img_size": 32, "depth": 2, "embed_dim": 24},
    "swin_tiny_patch4_window7_224": {
        "img_size": 32,
        "window_size": 4,
        "embed_dim": 12,
        "depths": (1, 1),
        "num_heads": (2, 2),
    },
    "convnext_atto": {},
    "mixer_s32_224": {"img_size": 64},
    "resnet10t": {},
}


@pytest.mark.parametrize("name", TIMM)
def test_timms_networks_add_up(name):
    torchvision_models()  # which timm imports
    timm = pytest.importorskip("timm")
    _adds_up(timm.create_model(name, num_classes=5, **TIMM[name]), TIMM[name].get("img_size", 32))


def _adds_up(model, side):
    model, x = shaken(model), torch.randn(2, 3, side, side)
    parts = axiograd.HeldGradient(model).completeness(x, 1)
    torch.testing.assert_close(parts.features + parts.constants, model(x)[:, 1].detach(), atol=1e-9, rtol=1e-9)


@pytest.mark.parametrize(
    "last", [nn.LogSoftmax(1), nn.Softmax(1), *(layer(4, 4).double() for layer in (nn.LSTM, nn.GRU, nn.RNN)), torch.sin]
)
def test_what_would_not_add_up_is_refused(last):
    hidden = nn.Sequential(nn.Linear(4, 4), nn.GELU())

    def model(x):
        found = last(hidden(x))
        return found[0] if isinstance(found, tuple) else found

    with pytest.raises(axiograd.errors.NotHomogeneousError, match=r"attribute the logits|IntegratedGradients"):
        axiograd.HeldGradient(model).attribute(torch.randn(2, 4), 1)


# --- which method


def test_the_method_that_suits_a_model():
    x = torch.randn(2, 4, 8)
    method, why = choose_method(Encoder().eval(), x)
    assert method is axiograd.HeldGradient
    assert "not Integrated Gradients" in why
    regular = nn.Sequential(nn.Flatten(), nn.Linear(32, 4), nn.BatchNorm1d(4), nn.ReLU(), nn.Linear(4, 2)).eval()
    assert choose_method(regular, x)[0] is axiograd.IntegratedGradients
    built = axiograd.models.ViT(2, 1, image_size=8, patch=4, dim=8, depth=1, heads=2, homogeneous=True).eval()
    assert choose_method(built, torch.randn(2, 1, 8, 8))[0] is axiograd.XGradient
