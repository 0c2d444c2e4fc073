"""Functional code that nobody wrote for this package: Hugging Face models, keyword inputs, structured outputs."""

import pytest
import torch
from transformers import BertConfig, BertForSequenceClassification, GPT2Config, GPT2Model

from axiograd.homogeneity.conversion import to_xdnn


def _bert():
    config = BertConfig(hidden_size=16, num_hidden_layers=1, num_attention_heads=2, intermediate_size=32, vocab_size=9)
    return BertForSequenceClassification(config)


def _gpt2():
    ids = {"bos_token_id": 0, "eos_token_id": 0}
    return GPT2Model(GPT2Config(n_embd=16, n_layer=1, n_head=2, vocab_size=9, n_positions=8, use_cache=False, **ids))


@pytest.mark.parametrize("how", ["strip", "lift"])
@pytest.mark.parametrize("build", [_bert, _gpt2])
def test_certified_and_homogeneous(build, how):
    embeddings = torch.randn(1, 5, 16)
    conversion = to_xdnn(build().eval(), {"inputs_embeds": embeddings}, how=how)
    assert (conversion.certificate.degree, conversion.certificate.exact) == (1.0, True)
    model = conversion.model.double()
    value = model(inputs_embeds=embeddings.double())[0]
    torch.testing.assert_close(model(inputs_embeds=7 * embeddings.double())[0], 7 * value)
