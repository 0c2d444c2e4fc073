"""Texts explained: Hugging Face's models of every kind, against autograd, Captum and brute force."""

import copy

import pytest
import torch
import transformers as hf
from captum.attr import LayerIntegratedGradients

from axiograd import text as axiotext
from axiograd.errors import ConfigurationError, InputError, TargetError
from axiograd.homogeneity import to_xdnn
from support.texts import (
    SIZE,
    SMALL,
    byte_pairs,
    causal_model,
    encoder_decoder,
    sequence_classifier,
    strengthened,
    token_classifier,
    word_pieces,
)

TEXTS = ["A wonderful film, truly wonderful!", "an awful plot"]


def values(explanation):
    return torch.tensor([token.value for token in explanation.tokens], dtype=torch.double)


@pytest.fixture(scope="module")
def lifted():
    return axiotext.explain(sequence_classifier(), word_pieces(), TEXTS, target="good", method="x-gradient")


def test_a_lifted_classifier_is_input_x_gradient_plus_energy(lifted):
    """a = x·∇f + (f − x·∇f)·x²/‖x‖² at the text's own scale, one text at a time and without padding."""
    model, tokenizer = sequence_classifier(), word_pieces()
    wide = copy.deepcopy(model).double()
    for text, found in zip(TEXTS, lifted, strict=True):
        ids = tokenizer(text, return_tensors="pt")["input_ids"]
        x = wide.get_input_embeddings()(ids).detach().requires_grad_()
        score = wide(inputs_embeds=x).logits[0, 1]
        product = (x * torch.autograd.grad(score, x)[0])[0].detach()
        left = score.detach() - product.sum()
        expected = (product + left * x.detach()[0] ** 2 / (x.detach() ** 2).sum()).sum(1)
        torch.testing.assert_close(values(found), expected, rtol=1e-4, atol=1e-5)
        assert found.score == pytest.approx(float(score.detach()), rel=1e-5)
        assert found.energy == pytest.approx(float(left / score.detach()), rel=1e-4)
        assert found.error < 1e-5
        assert f"{found.energy:.0%} of the score is the energy part" in " ".join(found.notes())
        assert found.method == "X-Gradient of the lifted network"


def test_the_same_lift_as_to_xdnn_makes(lifted):
    model, tokenizer = sequence_classifier(), word_pieces()
    call = tokenizer(TEXTS[1], return_tensors="pt")
    x = model.get_input_embeddings()(call["input_ids"]).detach()
    conversion = to_xdnn(model, {"inputs_embeds": x, "attention_mask": call["attention_mask"]}, how="lift")
    assert conversion.certificate.ok
    h = x.clone().requires_grad_()
    score = conversion.model(inputs_embeds=h, attention_mask=call["attention_mask"]).logits[0, 1]
    expected = (h * torch.autograd.grad(score, h)[0]).sum(2)[0].detach().double()
    torch.testing.assert_close(values(lifted[1]), expected, rtol=1e-4, atol=1e-5)


def test_texts_words_and_special_tokens(lifted):
    first = lifted[0]
    assert [t.text for t in first.tokens if t.kind == "special"] == ["[CLS]", "[SEP]"]
    assert [w.text for w in first.words] == ["A", "wonderful", "film", ",", "truly", "wonderful", "!"]
    ordinary = sum(t.value for t in first.tokens if t.kind == "text")
    assert sum(w.value for w in first.words) == pytest.approx(ordinary)
    assert ordinary + first.special == pytest.approx(first.score, rel=1e-5)
    assert first.target == "good"
    assert 0 < first.probability < 1


def test_beside_other_texts_a_text_is_explained_as_alone(lifted):
    model, tokenizer = sequence_classifier(), word_pieces()
    alone = axiotext.explain(model, tokenizer, TEXTS[1], target=1, method="x-gradient")
    torch.testing.assert_close(values(alone), values(lifted[1]), rtol=1e-4, atol=1e-5)
    assert alone.score == pytest.approx(lifted[1].score, rel=1e-5)


@pytest.mark.parametrize("baseline", [None, "mask"])
def test_integrated_gradients_are_captums(baseline):
    model, tokenizer = copy.deepcopy(sequence_classifier()).double(), word_pieces()
    call = tokenizer(TEXTS[0], return_tensors="pt")
    emb = model.get_input_embeddings()
    found = axiotext.explain(
        model, tokenizer, TEXTS, target="good", method="integrated-gradients", steps=50, baseline=baseline
    )
    if baseline is None:
        # Captum's baseline is a text: one whose embeddings are zero.
        other, model = model, copy.deepcopy(model)
        emb = model.get_input_embeddings()
        emb.weight.data = torch.cat([other.get_input_embeddings().weight.data, torch.zeros(1, 16, dtype=torch.double)])
        emb.num_embeddings += 1
        ids = torch.full_like(call["input_ids"], SIZE if len(emb.weight) > SIZE else len(emb.weight) - 1)
    else:
        special = torch.tensor([[t in (2, 3) for t in call["input_ids"][0].tolist()]])
        ids = torch.where(special, call["input_ids"], tokenizer.mask_token_id)
    captum = LayerIntegratedGradients(lambda i: model(input_ids=i).logits, emb)
    theirs = captum.attribute(call["input_ids"], baselines=ids, target=1, n_steps=50).sum(2)[0]
    torch.testing.assert_close(values(found[0]), theirs.detach(), rtol=1e-6, atol=1e-8)
    assert found[0].energy is None
    assert found[0].baseline == ("embeddings of zero" if baseline is None else "[MASK]")


def test_integrated_gradients_with_fifty_steps_are_the_default():
    model, tokenizer = sequence_classifier(), word_pieces()
    found = axiotext.explain(model, tokenizer, TEXTS[0], target="good")
    assert found.method == "Integrated Gradients (50)"
    nodes = (torch.arange(400, dtype=torch.double) + 0.5) / 400
    wide = copy.deepcopy(model).double()
    x = wide.get_input_embeddings()(tokenizer(TEXTS[0], return_tensors="pt")["input_ids"]).detach()
    points = (nodes[:, None, None] * x).requires_grad_()
    gradient = torch.autograd.grad(wide(inputs_embeds=points).logits[:, 1].sum(), points)[0].mean(0)
    torch.testing.assert_close(values(found), (x[0] * gradient).sum(1), rtol=1e-3, atol=1e-4)


def test_one_label_rather_than_another_is_the_difference():
    model, tokenizer = sequence_classifier(), word_pieces()
    how = {"method": "input-x-gradient"}
    both = axiotext.explain(model, tokenizer, TEXTS[0], target="good", versus="bad", **how)
    good, bad = (axiotext.explain(model, tokenizer, TEXTS[0], target=label, **how) for label in ("good", "bad"))
    torch.testing.assert_close(values(both), values(good) - values(bad), rtol=1e-4, atol=1e-5)
    assert both.score == pytest.approx(good.score - bad.score, rel=1e-4)
    assert both.headline().startswith("good rather than bad: score")


def test_long_texts_are_the_mean_of_their_windows():
    model, tokenizer = sequence_classifier(), word_pieces()
    text = " ".join(TEXTS * 3)
    found = axiotext.explain(
        model, tokenizer, [text, TEXTS[1]], target=1, method="input-x-gradient", max_length=12, overlap=3
    )[0]
    encoded = tokenizer(
        [text], truncation=True, max_length=12, stride=3, return_overflowing_tokens=True, return_offsets_mapping=True
    )
    by_place, scores = {}, []
    for ids, offsets in zip(encoded["input_ids"], encoded["offset_mapping"], strict=True):
        x = model.get_input_embeddings()(torch.tensor([ids])).detach().requires_grad_()
        score = model(inputs_embeds=x).logits[0, 1]
        scores.append(float(score.detach()))
        for value, place in zip((x * torch.autograd.grad(score, x)[0]).sum(2)[0].tolist(), offsets, strict=True):
            by_place[place] = by_place.get(place, 0.0) + value
    assert found.windows == len(scores) > 3
    assert found.score == pytest.approx(sum(scores) / len(scores), rel=1e-4)
    for token in found.tokens:
        if token.kind == "text":
            assert token.value == pytest.approx(by_place[token.start, token.end] / len(scores), rel=1e-3, abs=1e-6)
    assert found.special == pytest.approx(by_place[0, 0] / len(scores), rel=1e-3, abs=1e-6)
    plain = tokenizer(text, add_special_tokens=False)["input_ids"]
    assert len([t for t in found.tokens if t.kind == "text"]) == len(plain)
    assert [t.text for t in found.tokens if t.kind == "text"] == tokenizer.convert_ids_to_tokens(plain)


def test_token_classifiers_answer_for_one_word():
    model, tokenizer = token_classifier(), word_pieces()
    found = axiotext.explain(model, tokenizer, TEXTS, target="PRAISE", at=["truly", "awful"], method="input-x-gradient")
    for text, one, word in zip(TEXTS, found, ("truly", "awful"), strict=True):
        call = tokenizer(text, return_tensors="pt", return_offsets_mapping=True)
        start = text.index(word)
        where = next(i for i, (a, b) in enumerate(call["offset_mapping"][0].tolist()) if a <= start < b)
        x = model.get_input_embeddings()(call["input_ids"]).detach().requires_grad_()
        score = model(inputs_embeds=x).logits[0, where, 1]
        expected = (x * torch.autograd.grad(score, x)[0]).sum(2)[0].double()
        torch.testing.assert_close(values(one), expected, rtol=1e-4, atol=1e-5)
        assert one.at == word
    by_itself = axiotext.explain(model, tokenizer, TEXTS[0], method="input-x-gradient")
    assert by_itself.target in {"PRAISE", "BLAME"}
    with pytest.raises(TargetError, match="occurs several times"):
        axiotext.explain(model, tokenizer, TEXTS[0], at="wonderful")
    with pytest.raises(TargetError, match="does not occur"):
        axiotext.explain(model, tokenizer, TEXTS[0], at="dull")


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
        assert one.target == "' film'"
    said = axiotext.explain(model, tokenizer, TEXTS[0], method="saliency")
    best = model(input_ids=tokenizer(TEXTS[0], return_tensors="pt")["input_ids"]).logits[0, -1].argmax()
    assert said.target == repr(tokenizer.decode([best]))
    assert said.error is None
    long = axiotext.explain(model, tokenizer, " ".join(TEXTS * 4), target=5, method="input-x-gradient")
    assert long.tokens[0].kind == "outside"
    assert len(long.tokens) == 24 + 1
    with pytest.raises(TargetError, match="is not one token"):
        axiotext.explain(model, tokenizer, TEXTS[0], target="unheard of")


def test_encoder_decoders_explain_by_source_and_prefix():
    model, tokenizer = encoder_decoder(), word_pieces()
    prefixes = ["a wonderful", "an"]
    found = axiotext.explain(model, tokenizer, TEXTS, target="film", prefix=prefixes, method="integrated-gradients")
    film = tokenizer("film", add_special_tokens=False)["input_ids"][0]
    wide = copy.deepcopy(model).double()
    for text, one, prefix in zip(TEXTS, found, prefixes, strict=True):
        source = tokenizer(text, return_tensors="pt")["input_ids"]
        written = torch.tensor([[0, *tokenizer(prefix, add_special_tokens=False)["input_ids"]]])
        h = [wide.shared(ids).detach() for ids in (source, written)]
        totals = [torch.zeros_like(x) for x in h]
        nodes, weights = (torch.tensor(a) for a in __import__("numpy").polynomial.legendre.leggauss(50))
        for t, w in zip((nodes + 1) / 2, weights / 2, strict=True):
            a, b = ((t * x).requires_grad_() for x in h)
            score = wide(inputs_embeds=a, decoder_inputs_embeds=b).logits[0, -1, film]
            for total, g in zip(totals, torch.autograd.grad(score, (a, b)), strict=True):
                total.add_(w * g)
        expected = torch.cat([(x * total).sum(2)[0] for x, total in zip(h, totals, strict=True)])
        torch.testing.assert_close(values(one), expected, rtol=2e-3, atol=2e-4)
        assert [t.kind for t in one.tokens][-written.shape[1] :] == ["special"] + ["prefix"] * (written.shape[1] - 1)
        assert one.prefix == prefix


def test_padding_has_exactly_nothing_and_who_reads_it_is_refused():
    class Leaky(torch.nn.Module):
        task = "sequence"

        def __init__(self):
            super().__init__()
            self.embedding, self.head = torch.nn.Embedding(SIZE, 4), torch.nn.Linear(4, 2)

        def get_input_embeddings(self):
            return self.embedding

        def forward(self, input_ids, attention_mask=None):
            return self.head(self.embedding(input_ids).sum(1))

    with pytest.raises(InputError, match="gives padding a share"):
        axiotext.explain(Leaky(), word_pieces(), TEXTS, method="input-x-gradient")
    alone = axiotext.explain(Leaky(), word_pieces(), TEXTS, method="input-x-gradient", batch_size=1)
    assert all(one.error < 1e-5 for one in alone)
    drawn = axiotext.explain(sequence_classifier(), word_pieces(), TEXTS, method="random")
    assert len({token.value for one in drawn for token in one.tokens}) == sum(len(one.tokens) for one in drawn)


def test_a_homogeneous_model_is_not_lifted():
    class Bag(torch.nn.Module):
        task = "sequence"

        def __init__(self):
            super().__init__()
            torch.manual_seed(0)
            self.embedding = torch.nn.Embedding(SIZE, 8)
            self.body, self.head = torch.nn.Linear(8, 8, bias=False), torch.nn.Linear(8, 2, bias=False)

        def get_input_embeddings(self):
            return self.embedding

        def forward(self, input_ids, attention_mask):
            h = self.body(self.embedding(input_ids)).relu()
            return self.head((h * attention_mask[..., None]).sum(1))

    model = Bag()
    found = axiotext.explain(model, word_pieces(), TEXTS, target=1, method="x-gradient")
    steps = axiotext.explain(model, word_pieces(), TEXTS, target=1, method="integrated-gradients")
    for a, b in zip(found, steps, strict=True):
        assert a.energy is None
        assert a.method == "X-Gradient"
        torch.testing.assert_close(values(a), values(b), rtol=1e-4, atol=1e-6)


def test_classifiers_without_a_padding_token_take_texts_one_at_a_time():
    ids = {"bos_token_id": 0, "eos_token_id": 0, "pad_token_id": None}
    config = hf.GPT2Config(n_embd=16, n_layer=1, n_head=2, vocab_size=300, n_positions=32, **ids)
    model = strengthened(hf.GPT2ForSequenceClassification(config))
    found = axiotext.explain(model, byte_pairs(), TEXTS, target=1, method="input-x-gradient")
    for text, one in zip(TEXTS, found, strict=True):
        logits = model(input_ids=byte_pairs()(text, return_tensors="pt")["input_ids"]).logits
        assert one.score == pytest.approx(float(logits[0, 1].detach()), rel=1e-5)


def test_the_model_is_left_as_it_was():
    model = hf.RobertaForSequenceClassification(
        hf.RobertaConfig(vocab_size=SIZE, max_position_embeddings=20, pad_token_id=0, **SMALL)
    ).train()
    before = {name: value.clone() for name, value in model.state_dict().items()}
    state = torch.get_rng_state()
    found = axiotext.explain(model, word_pieces(), " ".join(TEXTS * 3), method="input-x-gradient")
    assert found.windows > 1  # 19 positions are for text
    assert model.training
    assert torch.equal(state, torch.get_rng_state())
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())
    assert not any(m._forward_hooks for m in model.modules())


def test_what_cannot_be_meant_is_refused():
    model, tokenizer = sequence_classifier(), word_pieces()
    explain = axiotext.explain
    with pytest.raises(TargetError, match="did you mean 'good'"):
        explain(model, tokenizer, TEXTS, target="goood")
    with pytest.raises(TargetError, match="out of range"):
        explain(model, tokenizer, TEXTS, target=3)
    with pytest.raises(ConfigurationError, match="3 targets for 2 texts"):
        explain(model, tokenizer, TEXTS, target=[0, 1, 2])
    with pytest.raises(ConfigurationError, match="both good"):
        explain(model, tokenizer, TEXTS, target=1, versus="good")
    with pytest.raises(InputError, match="text 1 is empty"):
        explain(model, tokenizer, ["a film", "  "])
    with pytest.raises(InputError, match="no texts"):
        explain(model, tokenizer, [])
    with pytest.raises(InputError, match="text 0 is of type int"):
        explain(model, tokenizer, [3])
    with pytest.raises(ConfigurationError, match="at= is for token classifiers"):
        explain(model, tokenizer, TEXTS, at="film")
    with pytest.raises(ConfigurationError, match="prefix= is for encoder-decoders"):
        explain(model, tokenizer, TEXTS, prefix="the")
    with pytest.raises(ConfigurationError, match="baseline= is for integrated-gradients"):
        explain(model, tokenizer, TEXTS, method="x-gradient", baseline="pad")
    with pytest.raises(ConfigurationError, match="not a token of the tokenizer"):
        explain(model, tokenizer, TEXTS, method="integrated-gradients", baseline="nothing")
    with pytest.raises(ConfigurationError, match="did you mean 'integrated-gradients'"):
        explain(model, tokenizer, TEXTS, method="integrated-gradient")
    with pytest.raises(ConfigurationError, match="does not say what it answers"):
        explain(model.bert, tokenizer, TEXTS)
    with pytest.raises(ConfigurationError, match="overlap by 0 to 7"):
        explain(model, tokenizer, TEXTS, max_length=10, overlap=9)
    with pytest.raises(ConfigurationError, match="at least 8"):
        explain(model, tokenizer, TEXTS, max_length=4)


@pytest.mark.parametrize("batch_size", [1, 2])
def test_one_proof_is_for_all_lengths(monkeypatch, batch_size):
    """Texts of four lengths, in batches and one by one; each as it is explained alone, by a proof of its own."""
    from axiograd.homogeneity import remembered

    model, tokenizer = sequence_classifier(), word_pieces()
    texts = [
        "an awful plot",
        "truly",
        "A wonderful film, truly wonderful!",
        "a thin plot, with warm actors, truly warm",
    ]
    alone = [axiotext.explain(model, tokenizer, text, target=1, method="x-gradient") for text in texts[1:3]]
    proofs, prove = [], remembered.prove
    monkeypatch.setattr(remembered, "prove", lambda *given, **how: proofs.append(prove(*given, **how)) or proofs[-1])
    found = axiotext.explain(model, tokenizer, texts, target=1, method="x-gradient", batch_size=batch_size)
    assert len(proofs) == 1
    assert any("[1]" in words for words in proofs[0].certificate.dynamic)
    for one, expected in zip(found[1:3], alone, strict=True):
        torch.testing.assert_close(values(one), values(expected), rtol=1e-4, atol=1e-5)
