"""Functional code that nobody wrote for this package: Hugging Face models, keyword inputs, structured outputs."""

import pytest
import torch
from transformers import (
    BertConfig,
    BertForSequenceClassification,
    GPT2Config,
    GPT2Model,
    LlamaConfig,
    LlamaModel,
    MambaConfig,
    MambaModel,
)

from axiograd.homogeneity.conversion import to_xdnn


def _bert():
    config = BertConfig(hidden_size=16, num_hidden_layers=1, num_attention_heads=2, intermediate_size=32, vocab_size=9)
    return BertForSequenceClassification(config)


def _gpt2():
    ids = {"bos_token_id": 0, "eos_token_id": 0}
    return GPT2Model(GPT2Config(n_embd=16, n_layer=1, n_head=2, vocab_size=9, n_positions=8, **ids))


def _llama():
    sizes = {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 32}
    return LlamaModel(LlamaConfig(**sizes, vocab_size=9, max_position_embeddings=8))


def _mamba():
    return MambaModel(MambaConfig(hidden_size=16, num_hidden_layers=1, vocab_size=9, state_size=4))


@pytest.mark.parametrize("how", ["strip", "lift"])
# BERT and GPT-2 are converted with their masks in `test_padding`.
@pytest.mark.parametrize(
    "build", [*(pytest.param(one, marks=pytest.mark.long) for one in (_bert, _gpt2)), _llama, _mamba]
)
def test_certified_and_homogeneous(build, how):
    """With caches of keys and values, norms of their own, and (Mamba) code that reads the biases of its layers."""
    embeddings = torch.randn(2, 5, 16)
    conversion = to_xdnn(build().eval(), {"inputs_embeds": embeddings}, how=how)
    assert (conversion.certificate.degree, conversion.certificate.exact) == (1.0, True)
    model = conversion.model.double()
    value = model(inputs_embeds=embeddings.double())[0]
    single = {"rtol": 1e-5, "atol": 1e-5} if build is _mamba else {}  # its scan runs in float32, whatever it is given
    torch.testing.assert_close(model(inputs_embeds=7 * embeddings.double())[0], 7 * value, **single)
