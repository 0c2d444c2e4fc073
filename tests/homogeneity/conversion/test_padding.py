"""Padding is nothing: no attribution, and no part in the output, with Hugging Face's own models."""

import copy
import pickle
from functools import cache

import pytest
import torch
import transformers as hf
from torch import nn

from axiograd import XGradient
from axiograd.errors import ConfigurationError
from axiograd.homogeneity import certify, to_xdnn

SMALL = {"vocab_size": 9, "pad_token_id": 0, "num_labels": 3}
ENCODER = SMALL | {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 32}


def _bert(**kwargs):
    return hf.BertForSequenceClassification(hf.BertConfig(**ENCODER, **kwargs))


def _roberta():
    return hf.RobertaForSequenceClassification(hf.RobertaConfig(**ENCODER, bos_token_id=1, eos_token_id=2))


def _distilbert():
    config = hf.DistilBertConfig(**SMALL, dim=16, n_layers=1, n_heads=2, hidden_dim=32)
    return hf.DistilBertForSequenceClassification(config)


def _llama():
    return hf.LlamaForSequenceClassification(hf.LlamaConfig(**ENCODER, max_position_embeddings=32))


def _gpt2():
    config = hf.GPT2Config(**SMALL, n_embd=16, n_layer=1, n_head=2, n_positions=32, bos_token_id=0, eos_token_id=0)
    return hf.GPT2ForSequenceClassification(config)


class Scores(nn.Module):
    """The logits alone: what people explain."""

    def __init__(self, model):
        super().__init__()
        self.model = model

    def forward(self, inputs_embeds, attention_mask=None, position_ids=None):
        further = {} if position_ids is None else {"position_ids": position_ids}
        return self.model(inputs_embeds=inputs_embeds, attention_mask=attention_mask, **further).logits


def _batch(left):
    """Two texts of 5 and 7 tokens and one of 3, padded to 7 with loud noise."""
    torch.manual_seed(1)
    texts = [torch.randn(n, 16).double() for n in (5, 7, 3)]
    x, mask = 100 * torch.randn(3, 7, 16).double(), torch.zeros(3, 7, dtype=torch.long)
    for row, text in enumerate(texts):
        at = slice(7 - len(text), None) if left else slice(len(text))
        x[row, at], mask[row, at] = text, 1
    return texts, x, mask


def _check(model, left, texts, x, mask):
    positions = (mask.cumsum(1) - 1).clamp_min(0)
    further = {"attention_mask": mask} | ({"position_ids": positions} if left else {})
    output = model(x, **further)
    for row, text in enumerate(texts):
        alone = model(text[None], attention_mask=torch.ones(1, len(text), dtype=torch.long))
        torch.testing.assert_close(output[row], alone[0], rtol=1e-9, atol=1e-12)
    more = torch.cat([x, 7 * torch.randn_like(x)], 1) if not left else torch.cat([7 * torch.randn_like(x), x], 1)
    wider = torch.cat([mask, 0 * mask], 1) if not left else torch.cat([0 * mask, mask], 1)
    further["attention_mask"] = wider
    if left:
        further["position_ids"] = torch.cat([0 * positions, positions], 1)
    torch.testing.assert_close(model(more, **further), output, rtol=1e-9, atol=1e-12)
    method = XGradient(model)
    attributed = method.attribute(more, 1, additional_forward_args=further)
    assert (attributed[wider == 0] == 0).all()
    torch.testing.assert_close(attributed.sum((1, 2)), output[:, 1], rtol=1e-8, atol=1e-10)


@cache
def _converted(build, left, how):
    _, x, mask = _batch(left)
    model = Scores(build()).double().eval()
    positions = {"position_ids": (mask.cumsum(1) - 1).clamp_min(0)} if left else {}
    return to_xdnn(model, x, how=how, additional_forward_args={"attention_mask": mask} | positions)


#: Beside one encoder and one decoder, the others take their turn in the long tests.
OTHERS = [(_distilbert, False), (_roberta, False), (_llama, True)]


@pytest.mark.parametrize(
    ("build", "left", "how"),
    [
        (_bert, False, "lift"),
        (_bert, False, "strip"),
        (_gpt2, True, "lift"),
        pytest.param(_gpt2, True, "strip", marks=pytest.mark.long),
        *(pytest.param(*one, how, marks=pytest.mark.long) for one in OTHERS for how in ("lift", "strip")),
    ],
)
def test_padding_of_hugging_face_models(build, left, how):
    conversion = _converted(build, left, how)
    assert (conversion.certificate.degree, conversion.certificate.exact) == (1.0, True)
    _check(conversion.model, left, *_batch(left))


@pytest.mark.parametrize("how", [pytest.param("lift", marks=pytest.mark.long), "strip"])
def test_eager_attention_adds_its_mask(how):
    """Logits of −3.4e38 are no part of the scale of logits, and rows of which nothing is seen are not NaN."""
    texts, x, mask = _batch(False)
    model = Scores(_bert(attn_implementation="eager")).double().eval()
    conversion = to_xdnn(model, x, how=how, additional_forward_args={"attention_mask": mask})
    _check(conversion.model, False, texts, x, mask)


def test_the_converted_model_is_close_to_the_original_on_padded_texts():
    _, x, mask = _batch(False)
    model = Scores(_bert()).double().eval()
    x = torch.where(mask[..., None] > 0, x, 0.0)
    x = x / x[mask > 0].square().mean().sqrt()
    lifted = to_xdnn(model, x[1:2], how="lift", additional_forward_args={"attention_mask": mask[1:2]}).model
    torch.testing.assert_close(lifted(x[1:2], mask[1:2]), model(x[1:2], mask[1:2]))


class Averaged(nn.Module):
    """A network of one's own: a norm of one's own, and an average over the tokens that count."""

    def __init__(self):
        super().__init__()
        self.norm, self.embed, self.head = nn.LayerNorm(4), nn.Linear(4, 6), nn.Linear(6, 2)

    def forward(self, x, keep):
        h = torch.nn.functional.gelu(self.embed(self.norm(x))) * keep[..., None]
        return self.head(h.sum(1) / keep.sum(1, keepdim=True))


@pytest.mark.parametrize("how", ["lift", "strip"])
@pytest.mark.parametrize(
    ("mask", "dtype"),
    [("keep", torch.float64), (1, torch.bool), (lambda x, keep: keep, torch.int32)],
    ids=["name", "position", "function"],
)
def test_a_mask_of_ones_own(how, mask, dtype):
    model, x = Averaged().double().eval(), torch.randn(3, 5, 4).double()
    keep = (torch.arange(5)[None] < torch.tensor([[3], [5], [1]])).to(dtype)
    converted = to_xdnn(model, x, how=how, mask=mask, additional_forward_args=keep).model
    loud = torch.where(keep[..., None] > 0, x, 1e3)
    torch.testing.assert_close(converted(loud, keep), converted(x, keep))
    torch.testing.assert_close(converted(x[:1, :3], keep[:1, :3]), converted(loud, keep)[:1])
    torch.testing.assert_close(converted(3 * x, keep), 3 * converted(x, keep))
    attributed = XGradient(converted).attribute(loud, 0, additional_forward_args=keep)
    assert (attributed[keep == 0] == 0).all()
    assert copy.deepcopy(converted)(x, keep) is not None


def test_a_mask_that_is_no_argument_is_refused():
    with pytest.raises(ConfigurationError, match="'pad' names no argument"):
        to_xdnn(Averaged(), torch.randn(2, 5, 4), mask="pad", additional_forward_args=torch.ones(2, 5), how="strip")


@pytest.mark.parametrize("how", ["lift", "strip"])
def test_torchs_encoder_drops_what_its_mask_marks(how):
    layer = nn.TransformerEncoderLayer(8, 2, 16, norm_first=True, batch_first=True, dropout=0.0)
    model = nn.TransformerEncoder(layer, 1, enable_nested_tensor=False).double().eval()
    drop = torch.arange(5)[None] >= torch.tensor([[3], [5]])
    x = torch.randn(2, 5, 8).double()
    further = {"src_key_padding_mask": drop}
    converted = to_xdnn(model, x, how=how, additional_forward_args=further).model
    one, two = (converted(v, **further) for v in (x, torch.where(drop[..., None], 1e2, x)))
    torch.testing.assert_close(one[~drop], two[~drop])
    torch.testing.assert_close(converted(x[:1, :3])[0], one[0, :3])


def test_the_stripped_model_is_pickled_and_certified_with_its_mask():
    _, x, mask = _batch(False)
    stripped = _converted(_bert, False, "strip").model
    twin = pickle.loads(pickle.dumps(stripped))
    torch.testing.assert_close(twin(x, mask), stripped(x, mask))
    assert certify(twin, x, additional_forward_args={"attention_mask": mask}).degree == 1.0
