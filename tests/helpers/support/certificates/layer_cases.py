"""More lines of the table: reductions, layers, changes in place; and the whole table by group."""

import torch
import torch.nn.functional as F

from support.certificates.cases import (
    ACTIVATIONS,
    ELEMENTWISE,
    EPS,
    HOLES,
    INDEX,
    INF,
    K1,
    KB,
    POSITIVE,
    SHAPES,
    ZERO,
    B,
    K,
    W,
    case,
    unit,
)
from support.certificates.name_cases import BY_NAME


def _assign(x, value):
    y = x.clone()
    y[:, 0] = value
    return y


def _view_mul(x):
    y = x.clone()
    y[:, 1].mul_(2)
    y.view(-1)[3:5] += y.view(-1)[0:2]
    return y.relu_()


def _view_add(x):
    y = x * 2
    y[1].add_(1.0)
    return y


def _used_twice(x):
    n = x.norm(dim=1, keepdim=True) + 1e-3
    return x / n + n


def _exact_guard(x):
    n = x.norm(dim=1, keepdim=True)
    return x / n.masked_fill(n == 0, INF)


def _alias(x):
    y = x * 2
    z = y.view(-1)
    y.add_(1.0)
    return z


def _alias_dropout(x):
    y = x * 2
    z = F.dropout(y, training=False)
    z += 1.0
    return y


def _alias_einsum(x):
    y = x * 2
    z = torch.einsum("ij->ji", y)
    z += 1.0
    return y


def _square_in_place(x):
    y = x * 1.0
    view = y.t()
    y.mul_(y.clone())
    return view


REDUCTIONS = [
    case("sum mean", lambda x, i: x.sum(0) + x.mean(), 1),
    case("amax amin", lambda x, i: x.amax(1) - x.amin(1), 1),
    case("max dim", lambda x, i: x.max(1).values, 1),
    case("max indices", lambda x, i: x.max(1).indices * x.amax(1), 1),
    case("max of two", lambda x, i: torch.max(x, -x), 1),
    case("max of constant", lambda x, i: torch.max(x, B.expand_as(x)), None),
    case("sort", lambda x, i: x.sort(1).values, 1),
    case("topk", lambda x, i: x.topk(2).values, 1),
    case("kthvalue", lambda x, i: x.kthvalue(2).values, 1),
    case("median", lambda x, i: x.median() + x.median(1).values, 1),
    case("cummax", lambda x, i: x.cummax(1).values, 1),
    case("argmax", lambda x, i: x.argmax(1) * 1.0, 0),
    case("count_nonzero", lambda x, i: x.relu().count_nonzero(1) * 1.0, 0),
    case("var", lambda x, i: x.var(1), 2),
    case("std", lambda x, i: x.std(1), 1),
    case("var_mean", lambda x, i: torch.var_mean(x, 1)[0] / torch.var_mean(x, 1)[1], 1),
    case("norm", lambda x, i: x.norm(dim=1) + torch.linalg.vector_norm(x, 3), 1),
    case("norm inf", lambda x, i: torch.linalg.vector_norm(x, INF, dim=1), 1),
    case("norm 0", lambda x, i: torch.linalg.vector_norm(x.relu(), 0, dim=1), 0),
    case("cdist", lambda x, i: torch.cdist(x, x.flip(0)), 1),
    case("cdist constant", lambda x, i: torch.cdist(x, W), None),
    case("prod dim", lambda x, i: x.prod(1), 6),
    case("prod", lambda x, i: x[:2, :2].prod(), 4),
    case("cumprod", lambda x, i: x.cumprod(1), None),
    case("cumprod degree 0", lambda x, i: unit(x).cumprod(1) * x, 1),
    case("cumsum", lambda x, i: x.cumsum(1), 1),
    case("any all", lambda x, i: (x > 0).any(1) * 1.0 + (x > 0).all(1), 0),
    case("trace", lambda x, i: (x.t() @ x).trace(), 2),
    case("searchsorted", lambda x, i: torch.searchsorted(x.sort(1).values, x) * 1.0, 0),
    case("bucketize", lambda x, i: torch.bucketize(x, POSITIVE.sort().values) * x, None),
]  # fmt: skip

COMPARISONS = [
    case("greater than zero", lambda x, i: (x > 0) * x, 1),
    case("greater than one", lambda x, i: (x > 0.5) * x, None),
    case("equal degrees", lambda x, i: (x > x.mean()) * x, 1),
    case("different degrees", lambda x, i: (x > x**2) * x, None),
    case("greater than -inf", lambda x, i: (x > -INF) * x, 1),
    case("constant zero", lambda x, i: (x >= ZERO) * x, 1),
    case("constant", lambda x, i: (x >= B) * x, None),
    case("logical", lambda x, i: torch.logical_and(x > 0, x.relu()) * x, 1),
    case("isclose", lambda x, i: torch.isclose(x, x.flip(0), rtol=0.5, atol=0.0) * x, 1),
    case("isclose atol", lambda x, i: torch.isclose(x, x * 1.2, rtol=0.0, atol=0.1) * x, None),
]  # fmt: skip

LINEAR = [
    case("linear", lambda x, i: F.linear(x, W), 1),
    case("linear bias", lambda x, i: F.linear(x, W, B), None),
    case("linear zero bias", lambda x, i: F.linear(x, W, ZERO), 1),
    case("linear degree 0", lambda x, i: F.linear(unit(x), W, B) * x, 1),
    case("linear moving bias", lambda x, i: F.linear(x, W, x[0]), 1),
    case("hypernetwork", lambda x, i: F.linear(x, x[:, :6].t() @ x), 3),
    case("matmul", lambda x, i: x @ x.t() @ x, 3),
    case("bmm", lambda x, i: torch.bmm(i[:, 0], i[:, 1]), 2),
    case("einsum", lambda x, i: torch.einsum("bcij,bckj->bik", i, i), 2),
    case("addmm", lambda x, i: torch.addmm(x[:, :4] * x[:, :4], x, x.t()), 2),
    case("addmm bias", lambda x, i: torch.addmm(B, x, W), None),
    case("addmm beta 0", lambda x, i: torch.addmm(B, x, W, beta=0), 1),
    case("baddbmm", lambda x, i: torch.baddbmm(i[:, 0], i[:, 1], i[:, 2]), None),
    case("conv2d", lambda x, i: F.conv2d(i, K, padding=1), 1),
    case("conv2d bias", lambda x, i: F.conv2d(i, K, KB), None),
    case("conv1d", lambda x, i: F.conv1d(i[:, :, 0], K1, stride=2), 1),
    case("conv_transpose2d", lambda x, i: F.conv_transpose2d(i, K, stride=2), 1),
    case("conv_transpose2d bias", lambda x, i: F.conv_transpose2d(i, K, KB), None),
    case("bilinear", lambda x, i: F.bilinear(x, x, W.expand(2, 6, 6).contiguous()), 2),
    case("outer", lambda x, i: torch.outer(x[0], x[1]), 2),
    case("cross", lambda x, i: torch.linalg.cross(x[:, :3], x[:, 3:]), 2),
]  # fmt: skip

NORMALISATIONS = [
    case("layer_norm", lambda x, i: F.layer_norm(x, (6,), eps=EPS), 0),
    case("layer_norm affine", lambda x, i: F.layer_norm(x, (6,), POSITIVE, B, eps=EPS) * x, 1),
    case("layer_norm large eps", lambda x, i: F.layer_norm(x, (6,), eps=0.5), None),
    case("group_norm", lambda x, i: F.group_norm(i, 3, eps=EPS) * i, 1),
    case("instance_norm", lambda x, i: F.instance_norm(i, eps=EPS), 0),
    case("rms_norm", lambda x, i: F.rms_norm(x, (6,), eps=EPS) * x, 1),
    case("batch_norm train", lambda x, i: F.batch_norm(i, None, None, training=True, eps=EPS) * i, 1),
    case("batch_norm eval", lambda x, i: F.batch_norm(x, B, POSITIVE), None),
    case("batch_norm eval centred", lambda x, i: F.batch_norm(x, ZERO, POSITIVE, POSITIVE, ZERO), 1),
    case("batch_norm eval shift", lambda x, i: F.batch_norm(x, ZERO, POSITIVE, POSITIVE, B), None),
    case("normalize", lambda x, i: F.normalize(x) * x, 1),
    case("cosine_similarity", lambda x, i: F.cosine_similarity(x, x.flip(1), eps=EPS), 0),
    case("rms by hand", lambda x, i: x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + EPS), 0),
    case("std by hand", lambda x, i: (x - x.mean(1, keepdim=True)) / (x.std(1, keepdim=True) + EPS), 0),
    case("a bias that looks like epsilon", lambda x, i: x.abs() + 1e-3, None),
    case("epsilon beside signed", lambda x, i: x / (x.sum(1, keepdim=True) + 1e-3), None),
    case("epsilon used twice", lambda x, i: _used_twice(x), None),
    case("epsilon beside single entries", lambda x, i: x * x / (x.abs() + 1e-3), None),
    case("large epsilon", lambda x, i: x / (x.norm(dim=1, keepdim=True) + 0.5), None),
    case("exact guard", lambda x, i: _exact_guard(x), 0),
    case("local_response_norm", lambda x, i: F.local_response_norm(i, 3), None),
]  # fmt: skip

ATTENTION = [
    case("sdpa", lambda x, i: F.scaled_dot_product_attention(i, i, i), None),
    case("sdpa qk normalised", lambda x, i: F.scaled_dot_product_attention(unit(i), unit(i), i), 1),
    case("sdpa causal", lambda x, i: F.scaled_dot_product_attention(unit(i), unit(i), i, is_causal=True), 1),
    case("sdpa q over k", lambda x, i: F.scaled_dot_product_attention(i, 1 / i, i), 1),
    case("sdpa mask", lambda x, i: F.scaled_dot_product_attention(unit(i), unit(i), i, i[:, :1]), None),
    case("softmax with mask", lambda x, i: (unit(x) @ W + HOLES).softmax(-1) * x, 1),
    case("relu attention", lambda x, i: (x @ x.t()).relu() @ x, 3),
]  # fmt: skip

POOLING = [
    case("max_pool2d", lambda x, i: F.max_pool2d(i, 3, padding=1), 1),
    case("max_pool1d", lambda x, i: F.max_pool1d(i[:, :, 0], 2), 1),
    case("avg_pool2d", lambda x, i: F.avg_pool2d(i, 3, padding=1, count_include_pad=True), 1),
    case("adaptive_avg_pool2d", lambda x, i: F.adaptive_avg_pool2d(i, 3), 1),
    case("adaptive_max_pool2d", lambda x, i: F.adaptive_max_pool2d(i, 3), 1),
    case("lp_pool2d", lambda x, i: F.lp_pool2d(i, 2, 2), 1),
    case("max_unpool2d", lambda x, i: F.max_unpool2d(*F.max_pool2d(i, 2, return_indices=True), 2), 1),
]  # fmt: skip

RANDOM = [
    case("dropout train", lambda x, i: F.dropout(x, 0.5, training=True), 1),
    case("dropout eval", lambda x, i: F.dropout(x, 0.5, training=False), 1),
    case("dropout2d", lambda x, i: F.dropout2d(i, 0.5, training=True), 1),
    case("alpha_dropout", lambda x, i: F.alpha_dropout(x, 0.5, training=True), None),
    case("noise", lambda x, i: x + torch.randn_like(x), None),
    case("scaled noise", lambda x, i: x + x.std() * torch.randn_like(x), 1),
    case("bernoulli", lambda x, i: torch.bernoulli(unit(x).abs()) * x, 1),
    case("empty", lambda x, i: torch.empty(4, 6, dtype=torch.float64).copy_(x), 1),
]  # fmt: skip

IN_PLACE = [
    case("relu_", lambda x, i: (x * 2).relu_(), 1),
    case("assign zero", lambda x, i: _assign(x, 0.0), 1),
    case("assign one", lambda x, i: _assign(x, 1.0), None),
    case("views", lambda x, i: _view_mul(x), 1),
    case("add on a view", lambda x, i: _view_add(x), None),
    case("alias sees the addition", lambda x, i: _alias(x), None),
    case("dropout aliases", lambda x, i: _alias_dropout(x), None),
    case("einsum aliases", lambda x, i: _alias_einsum(x), None),
    case("square through an alias", lambda x, i: _square_in_place(x), 2),
    case("index_put", lambda x, i: x.clone().index_put_((INDEX[:2],), x[0]), 1),
    case("copy into integers", lambda x, i: torch.zeros(4, 6, dtype=torch.long).copy_(x * 4) * 1.0, None),
]  # fmt: skip

LINALG = [
    case("det", lambda x, i: torch.linalg.det(x[:4, :4]), 4),
    case("inv", lambda x, i: torch.linalg.inv(x[:4, :4]), -1),
    case("solve", lambda x, i: torch.linalg.solve(x[:4, :4], x**2), 1),
    case("solve constant", lambda x, i: torch.linalg.solve(x[:4, :4] + W[:4, :4], x), None),
    case("cholesky", lambda x, i: torch.linalg.cholesky(x @ x.t()), 1),
    case("svdvals", lambda x, i: torch.linalg.svdvals(x), 1),
    case("eigvalsh", lambda x, i: torch.linalg.eigvalsh(x @ x.t()), 2),
    case("qr", lambda x, i: torch.linalg.qr(x)[0] @ torch.linalg.qr(x)[1], 1),
    case("matrix_power", lambda x, i: torch.linalg.matrix_power(x[:4, :4], 3), 3),
    case("matrix_exp", lambda x, i: torch.matrix_exp(x[:4, :4]), None),
]

GROUPS = {
    "elementwise": ELEMENTWISE, "activation": ACTIVATIONS, "shape": SHAPES, "reduction": REDUCTIONS,
    "comparison": COMPARISONS, "linear": LINEAR, "normalisation": NORMALISATIONS, "attention": ATTENTION,
    "pooling": POOLING, "random": RANDOM, "in place": IN_PLACE,
    "linalg": LINALG, **BY_NAME,
}  # fmt: skip
