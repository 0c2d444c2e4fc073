"""A certificate on the terminal: what repeats is one entry, and every one of it with `--all`."""

import io

import torch
from rich.console import Console
from torch import nn

import axiograd
from axiograd.cli.certificates import show_certificate


def shown(certificate, **how):
    text = io.StringIO()
    show_certificate(Console(file=text, width=120), certificate, **how)
    return text.getvalue()


def test_violations_of_one_kind_are_one_entry():
    layers = [layer for _ in range(5) for layer in (nn.Linear(4, 4), nn.ReLU())]
    certificate = axiograd.certify(nn.Sequential(*layers, nn.Tanh()), torch.randn(3, 4))
    text = shown(certificate)
    assert "6 violations" in text
    assert "0, 2, 4 and 2 more" in text
    assert "5 alike" in text
    assert text.count("fix: ") == 2
    assert shown(certificate, every=True).count("fix: ") == 6
    assert "… and 1 more" in shown(certificate, most=1)
    assert "… and 3 more" in shown(certificate, most=3, every=True)
