import copy

import pytest
import torch
from torch import nn

from axiograd.homogeneity.conversion.calibration import calibrate
from axiograd.homogeneity.conversion.example import ExampleCall
from axiograd.homogeneity.conversion.layers import NormalisedAttention
from axiograd.homogeneity.conversion.strip import ModuleStripper


class SelfAttention(nn.Module):
    def __init__(self, **options):
        super().__init__()
        self.attention = nn.MultiheadAttention(8, 2, **options)

    def forward(self, x):
        return self.attention(x, x, x)[0]


def _stripped(model, x):
    stripped, _ = ModuleStripper().strip(copy.deepcopy(model))
    calibrate(stripped, ExampleCall.ensure(stripped, x))
    return stripped


@pytest.mark.parametrize("batch_first", [True, False])
@pytest.mark.parametrize("options", [{}, {"add_bias_kv": True}, {"add_zero_attn": True}, {"bias": False}])
def test_attention_has_degree_one(batch_first, options, assert_degree):
    x = torch.randn(3, 5, 8)
    assert_degree(_stripped(SelfAttention(batch_first=batch_first, **options).eval(), x), x)


def test_attention_without_bias_is_the_original_at_the_scale_of_its_data():
    model, x = SelfAttention(bias=False, batch_first=True).eval(), torch.randn(1, 5, 8) * 4
    torch.testing.assert_close(_stripped(model, x)(x), model(x))


def test_samples_do_not_see_each_other():
    x = torch.randn(3, 5, 8)
    stripped = _stripped(SelfAttention(batch_first=True).eval(), x)
    torch.testing.assert_close(stripped(x)[1:2], stripped(x[1:2]))


def test_other_widths_masks_and_weights():
    attention = nn.MultiheadAttention(8, 2, kdim=4, vdim=6, batch_first=True)
    query, key, value = torch.randn(2, 3, 8), torch.randn(2, 5, 4), torch.randn(2, 5, 6)
    stripped, _ = ModuleStripper().strip(attention)
    assert isinstance(stripped, NormalisedAttention)
    mask = torch.zeros(2, 5, dtype=torch.bool)
    mask[:, -1] = True
    output, weights = stripped(query, key, value, key_padding_mask=mask)
    scaled, same = stripped(3 * query, 3 * key, 3 * value, key_padding_mask=mask)
    torch.testing.assert_close(scaled, 3 * output)
    torch.testing.assert_close(same, weights)
    assert weights[..., -1].abs().max() == 0


def test_keys_that_are_kept_keep_their_names():
    stripped, _ = ModuleStripper().strip(nn.MultiheadAttention(8, 2))
    assert set(stripped.state_dict()) == {"in_proj_weight", "out_proj.weight", "radius"}
