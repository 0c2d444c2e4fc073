"""Texts explained: Hugging Face's models of every kind, against autograd, Captum and brute force."""

import copy
import warnings

import pytest
import torch
import transformers as hf
from captum.attr import LayerGradientXActivation, LayerIntegratedGradients

import axiograd
from axiograd import text as axiotext
from axiograd.errors import ConfigurationError, InputError, NotHomogeneousError, TargetError
from support.texts import (
    SIZE,
    SMALL,
    byte_pairs,
    causal_model,
    llama,
    sequence_classifier,
    strengthened,
    token_classifier,
    word_pieces,
)

TEXTS = ["A wonderful film, truly wonderful!", "an awful plot"]


def values(explanation):
    return torch.tensor([token.value for token in explanation.tokens], dtype=torch.double)


def exactly(model):
    return copy.deepcopy(model).double()


class Bag(torch.nn.Module):
    """The sum of the embeddings of the tokens that count, and a head."""

    task = "sequence"

    def __init__(self, *, linear=True, bias=True):
        super().__init__()
        torch.manual_seed(0)
        self.embedding, self.linear = torch.nn.Embedding(SIZE, 8), linear
        self.body, self.head = torch.nn.Linear(8, 8, bias=bias), torch.nn.Linear(8, 2, bias=bias)

    def get_input_embeddings(self):
        return self.embedding

    def forward(self, input_ids, attention_mask):
        h = self.body(self.embedding(input_ids))
        h = h if self.linear else h.relu()
        return self.head((h * attention_mask[..., None]).sum(1))


# --- the default: words, special tokens and constants add up to the score


@pytest.mark.parametrize(
    ("make", "tokenizer", "targets"),
    [
        (sequence_classifier, word_pieces, ("good", "bad")),
        (token_classifier, word_pieces, ("PRAISE", "BLAME")),
        (causal_model, byte_pairs, (" film", " awful")),
        (llama, word_pieces, ("film", "awful")),
    ],
)
@pytest.mark.parametrize("versus", [False, True])
def test_tokens_and_constants_add_up_to_the_logit(make, tokenizer, targets, versus):
    """Constants are what is left of the score; found apart, by their own derivative, they are the same."""
    model, tokenizer = exactly(make()), tokenizer()
    target, other = targets[0], targets[1] if versus else None
    at = {"at": ["film", "awful"]} if make is token_classifier else {}
    found = axiotext.explain(model, tokenizer, TEXTS, target, versus=other, **at)
    for i, (text, one) in enumerate(zip(TEXTS, found, strict=True)):
        call = dict(tokenizer([text], return_tensors="pt"))

        def logit(output, call=call, text=text, i=i):
            scores = output.logits
            if make is token_classifier:
                scores = scores[:, tokenizer(text).char_to_token(text.index(at["at"][i]))]
            elif scores.dim() == 3:
                scores = scores[:, -1]
            labels = {label: i for i, label in (model.config.id2label or {}).items()}
            plus, minus = (
                labels[t] if t in labels else tokenizer(t, add_special_tokens=False)["input_ids"][0] for t in targets
            )
            return scores[:, plus] - scores[:, minus] if versus else scores[:, plus]

        parts = axiograd.HeldGradient(model, layer=model.get_input_embeddings()).completeness(call, logit)
        # Llama computes its norms in float32.
        near = {"rel": 1e-5 if make is llama else 1e-6, "abs": 1e-6}
        assert one.score == pytest.approx(float(logit(model(**call)).detach()), **near)
        assert float(values(one).sum()) == pytest.approx(float(parts.features), **near)
        assert one.constants == pytest.approx(float(parts.constants), **near)
        assert one.of_words + one.special + one.constants == pytest.approx(one.score)
        assert sum(word.value for word in one.words) == pytest.approx(one.of_words)
        assert one.method == "Held gradient"


def test_on_a_linear_model_it_is_input_x_gradient():
    model, tokenizer = Bag(), word_pieces()
    both = axiotext.explain(model, tokenizer, TEXTS[0], target=1, versus=0)
    call = tokenizer([TEXTS[0]], return_tensors="pt")
    method = LayerGradientXActivation(model, model.embedding)
    one, other = (
        method.attribute(call["input_ids"], target=t, additional_forward_args=call["attention_mask"]).sum(2)[0]
        for t in (1, 0)
    )
    torch.testing.assert_close(values(both), (one - other).detach().double(), rtol=1e-5, atol=1e-6)
    n = len(both.tokens)
    constant = (n * model.head.weight @ model.body.bias + model.head.bias).detach()
    assert both.constants == pytest.approx(float(constant[1] - constant[0]), rel=1e-4)


def test_beside_other_texts_a_text_is_explained_as_alone():
    texts = [*TEXTS, "truly", "a thin plot, with warm actors, truly warm"]
    for make in (sequence_classifier, token_classifier, llama):
        model = exactly(make())
        together = axiotext.explain(model, word_pieces(), texts)
        for text, one in zip(texts, together, strict=True):
            alone = axiotext.explain(model, word_pieces(), text)
            near = {"rtol": 1e-5, "atol": 1e-6} if make is llama else {"rtol": 1e-9, "atol": 1e-11}
            torch.testing.assert_close(values(one), values(alone), **near)
            assert (one.target, one.at) == (alone.target, alone.at)


def test_a_certified_model_gets_x_gradient():
    model = Bag(linear=False, bias=False)
    found = axiotext.explain(model, word_pieces(), TEXTS, target=1, batch_size=1)
    steps = axiotext.explain(model, word_pieces(), TEXTS, target=1, method="integrated-gradients")
    given = axiotext.explain(model, word_pieces(), TEXTS, target=1, method=axiograd.XGradient)
    for a, b, c in zip(found, steps, given, strict=True):
        assert a.method == c.method == "X-Gradient"
        assert a.constants == pytest.approx(0, abs=1e-5)
        torch.testing.assert_close(values(a), values(b), rtol=1e-4, atol=1e-6)
        torch.testing.assert_close(values(a), values(c), rtol=1e-4, atol=1e-6)
    encoder = axiograd.models.TextEncoder(2, SIZE, homogeneous=True, dim=16, depth=1, heads=2)
    assert axiotext.explain(encoder, word_pieces(), TEXTS[0]).method == "X-Gradient"
    with pytest.raises(NotHomogeneousError):
        axiotext.explain(sequence_classifier(), word_pieces(), TEXTS, method="x-gradient")


def test_recurrent_models_get_integrated_gradients():
    class Recurrent(Bag):
        def __init__(self):
            super().__init__()
            self.body = torch.nn.GRU(8, 8, batch_first=True)

        def forward(self, input_ids):
            return self.head(self.body(self.embedding(input_ids))[0][:, -1])

    found = axiotext.explain(Recurrent(), word_pieces(), TEXTS)
    assert {one.method for one in found} == {"Integrated Gradients (50)"}


# --- other methods


@pytest.mark.parametrize("baseline", [None, "mask"])
def test_integrated_gradients_are_captums(baseline):
    model, tokenizer = exactly(sequence_classifier()), word_pieces()
    call = tokenizer(TEXTS[0], return_tensors="pt")
    found = axiotext.explain(
        model, tokenizer, TEXTS, target="good", method="integrated-gradients", steps=50, baseline=baseline
    )[0]
    emb = model.get_input_embeddings()
    if baseline is None:
        # Captum's baseline is a text: one whose embeddings are zero.
        model = copy.deepcopy(model)
        emb = model.get_input_embeddings()
        emb.weight.data = torch.cat([emb.weight.data, torch.zeros(1, 16, dtype=torch.double)])
        emb.num_embeddings += 1
        ids = torch.full_like(call["input_ids"], len(emb.weight) - 1)
    else:
        special = torch.tensor([[t in (2, 3) for t in call["input_ids"][0].tolist()]])
        ids = torch.where(special, call["input_ids"], tokenizer.mask_token_id)
    captum = LayerIntegratedGradients(lambda i: model(input_ids=i).logits, emb)
    theirs = captum.attribute(call["input_ids"], baselines=ids, target=1, n_steps=50).sum(2)[0]
    torch.testing.assert_close(values(found), theirs.detach(), rtol=1e-6, atol=1e-8)
    assert found.constants == pytest.approx(float(model(input_ids=ids).logits[0, 1].detach()), rel=1e-3)
    assert found.beside == f"score at {'embeddings of zero' if baseline is None else f'the token {baseline!r}'}"


def test_methods_by_class_and_of_ones_own():
    class Twice(axiograd.InputXGradient):
        def _combine(self, x, gradient):
            return 2 * x * gradient

    model, tokenizer = sequence_classifier(), word_pieces()
    once, twice = (axiotext.explain(model, tokenizer, TEXTS[0], 1, method=m) for m in (axiograd.InputXGradient, Twice))
    torch.testing.assert_close(2 * values(once), values(twice))
    assert twice.method == "Twice"
    assert twice.beside is None
    assert "not from the words" not in twice.headline()


# --- what is asked


def test_token_classifiers_answer_for_one_word():
    model, tokenizer = token_classifier(), word_pieces()
    found = axiotext.explain(model, tokenizer, TEXTS, target="PRAISE", at=["truly", 3], method="input-x-gradient")
    for text, one, word in zip(TEXTS, found, ("truly", "awful"), strict=True):
        call = tokenizer(text, return_tensors="pt", return_offsets_mapping=True)
        start = text.index(word)
        where = next(i for i, (a, b) in enumerate(call["offset_mapping"][0].tolist()) if a <= start < b)
        x = model.get_input_embeddings()(call["input_ids"]).detach().requires_grad_()
        score = model(inputs_embeds=x).logits[0, where, 1]
        expected = (x * torch.autograd.grad(score, x)[0]).sum(2)[0].double()
        torch.testing.assert_close(values(one), expected, rtol=1e-4, atol=1e-5)
        assert one.at == word
    by_itself = axiotext.explain(model, tokenizer, TEXTS[0])
    sure = model(input_ids=tokenizer(TEXTS[0], return_tensors="pt")["input_ids"]).logits[0, 1:-1, 1:].softmax(-1)
    assert by_itself.target in {"PRAISE", "BLAME"}
    assert sure.isfinite().all()
    with pytest.raises(TargetError, match="occurs several times"):
        axiotext.explain(model, tokenizer, TEXTS[0], at="wonderful")
    with pytest.raises(TargetError, match="does not occur"):
        axiotext.explain(model, tokenizer, TEXTS[0], at="dull")
    with pytest.raises(TargetError, match="reads no token there"):
        axiotext.explain(model, tokenizer, TEXTS[0], at=1)


def test_causal_models_say_the_next_token():
    model, tokenizer = causal_model(), byte_pairs()
    found = axiotext.explain(model, tokenizer, TEXTS, target=" film", versus=" awful", method="input-x-gradient")
    film, awful = (tokenizer(word)["input_ids"][0] for word in (" film", " awful"))
    for text, one in zip(TEXTS, found, strict=True):
        ids = tokenizer(text, return_tensors="pt")["input_ids"]
        x = model.get_input_embeddings()(ids).detach().requires_grad_()
        scores = model(inputs_embeds=x).logits[0, -1]
        expected = (x * torch.autograd.grad(scores[film] - scores[awful], x)[0]).sum(2)[0].double()
        torch.testing.assert_close(values(one), expected, rtol=1e-4, atol=1e-5)
        assert one.headline().startswith("' film' rather than ' awful': score")
    said = axiotext.explain(model, tokenizer, TEXTS[0], method="saliency")
    best = model(input_ids=tokenizer(TEXTS[0], return_tensors="pt")["input_ids"]).logits[0, -1].argmax()
    assert said.target == repr(tokenizer.decode([best]))
    with pytest.raises(TargetError, match="is not one token"):
        axiotext.explain(model, tokenizer, TEXTS[0], target="unheard of")


# --- texts, words and what is not read


def test_words_are_the_texts_own():
    found = axiotext.explain(sequence_classifier(), word_pieces(), TEXTS[0], target="good")
    assert [t.text for t in found.tokens if t.kind == "special"] == ["[CLS]", "[SEP]"]
    assert [w.text for w in found.words] == ["A", "wonderful", "film", ",", "truly", "wonderful", "!"]
    assert found.target == "good"
    assert 0 < found.probability < 1
    text = "A wonderful  film,\n truly\tnew"
    spaced = axiotext.explain(causal_model(), byte_pairs(), text, target=5)
    assert [w.text for w in spaced.words] == ["A", "wonderful", "film", ",", "truly", "new"]
    assert all(text[w.start : w.end] == w.text for w in spaced.words)
    assert sum(w.value for w in spaced.words) == pytest.approx(spaced.of_words)


@pytest.mark.parametrize(
    ("make", "tokenizer", "which"), [(sequence_classifier, word_pieces, "first"), (causal_model, byte_pairs, "last")]
)
def test_a_long_text_is_cut_with_a_warning(make, tokenizer, which):
    text = " ".join(TEXTS * 8)
    with pytest.warns(UserWarning, match=f"1 of 2 texts have more than {10} tokens: the model reads the {which} 10"):
        cut, short = axiotext.explain(make(), tokenizer(), [text, "a film"], target=1, max_length=10)
    assert len(cut.tokens) == 10
    unread = [word for word in cut.words if word.kind == "outside"]
    assert [word.start == 0 for word in unread] == [which == "last"]
    assert "the model did not read what is struck out" in cut.notes()
    assert not any(word.kind == "outside" for word in short.words)
    with pytest.warns(UserWarning, match=f"more than {32 if which == 'first' else 24} tokens"):
        axiotext.explain(make(), tokenizer(), text, target=1)
    assert tokenizer().truncation_side == "right"


def test_llamas_read_long_texts_in_one_piece():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        found = axiotext.explain(llama(), word_pieces(), " ".join(["film"] * 60))
    assert len(found.words) == 60


def test_who_reads_padding_is_refused():
    class Leaky(Bag):
        def forward(self, input_ids, attention_mask=None):
            return self.head(self.body(self.embedding(input_ids)).sum(1))

    with pytest.raises(InputError, match="padding changes the model"):
        axiotext.explain(Leaky(), word_pieces(), TEXTS)
    assert len(axiotext.explain(Leaky(), word_pieces(), TEXTS, batch_size=1)) == 2


def test_classifiers_without_a_padding_token_take_texts_one_at_a_time():
    ids = {"bos_token_id": 0, "eos_token_id": 0, "pad_token_id": None}
    config = hf.GPT2Config(n_embd=16, n_layer=1, n_head=2, vocab_size=300, n_positions=32, **ids)
    model = strengthened(hf.GPT2ForSequenceClassification(config))
    found = axiotext.explain(model, byte_pairs(), TEXTS, target=1)
    for text, one in zip(TEXTS, found, strict=True):
        logits = model(input_ids=byte_pairs()(text, return_tensors="pt")["input_ids"]).logits
        assert one.score == pytest.approx(float(logits[0, 1].detach()), rel=1e-5)


# --- the headline


def test_a_score_that_is_not_from_the_words_says_so_first():
    model, tokenizer = Bag(), word_pieces()
    assert "not from the words" not in axiotext.explain(model, tokenizer, TEXTS[0]).headline()
    with torch.no_grad():
        model.head.bias += 100
    found = axiotext.explain(model, tokenizer, TEXTS[0])
    assert found.share_of_words < 0.5
    parts = f"{found.of_words:+.3g}", f"constants {found.constants:+.3g} = {found.score:.4g}"
    of_words, sum_of_all = (part.replace("-", "−") for part in parts)
    assert f"; mostly not from the words, which have {of_words} of it" in found.headline()
    assert sum_of_all in found.notes()[0]


# --- the model, and what is refused


def test_the_model_is_left_as_it_was():
    model = hf.RobertaForSequenceClassification(
        hf.RobertaConfig(vocab_size=SIZE, max_position_embeddings=20, pad_token_id=0, **SMALL)
    ).train()
    before = {name: value.clone() for name, value in model.state_dict().items()}
    state = torch.get_rng_state()
    with pytest.warns(UserWarning, match="more than 19 tokens"):  # 19 of 20 positions are for text
        axiotext.explain(model, word_pieces(), " ".join(TEXTS * 3))
    assert model.training
    assert torch.equal(state, torch.get_rng_state())
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())
    assert not any(m._forward_hooks for m in model.modules())
    assert all(p.grad is None for p in model.parameters())


def test_what_cannot_be_meant_is_refused():
    model, tokenizer = sequence_classifier(), word_pieces()
    explain = axiotext.explain
    with pytest.raises(TargetError, match="did you mean 'good'"):
        explain(model, tokenizer, TEXTS, target="goood")
    with pytest.raises(TargetError, match="out of range"):
        explain(model, tokenizer, TEXTS, target=3)
    with pytest.raises(TargetError, match="out of range"):
        explain(model, tokenizer, TEXTS, target=1, versus=3)
    with pytest.raises(ConfigurationError, match="for 2 texts"):
        explain(model, tokenizer, TEXTS, target=[0, 1, 2])
    with pytest.raises(ConfigurationError, match="both good"):
        explain(model, tokenizer, TEXTS, target=1, versus="good")
    with pytest.raises(ConfigurationError, match="some of the texts only"):
        explain(model, tokenizer, TEXTS, target=1, versus=["bad", None])
    with pytest.raises(InputError, match="text 1 is '  '"):
        explain(model, tokenizer, ["a film", "  "])
    with pytest.raises(InputError, match="0 texts"):
        explain(model, tokenizer, [])
    with pytest.raises(InputError, match="text 0 is 3"):
        explain(model, tokenizer, [3])
    with pytest.raises(ConfigurationError, match="at= is for token classifiers"):
        explain(model, tokenizer, TEXTS, at="film")
    with pytest.raises(ConfigurationError, match="baseline= is for integrated-gradients"):
        explain(model, tokenizer, TEXTS, baseline="pad")
    with pytest.raises(ConfigurationError, match="not a token of the tokenizer"):
        explain(model, tokenizer, TEXTS, method="integrated-gradients", baseline="nothing")
    with pytest.raises(ConfigurationError, match="did you mean 'integrated-gradients'"):
        explain(model, tokenizer, TEXTS, method="integrated-gradient")
    with pytest.raises(ConfigurationError, match="does not say which task it solves"):
        explain(model.bert, tokenizer, TEXTS)
    with pytest.raises(ConfigurationError, match="is an encoder-decoder"):
        explain(
            hf.T5ForConditionalGeneration(hf.T5Config(d_model=8, d_kv=4, d_ff=8, num_layers=1, num_heads=2)),
            tokenizer,
            TEXTS,
        )
