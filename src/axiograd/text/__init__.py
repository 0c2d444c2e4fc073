"""From tokens to coloured words: Hugging Face models explained in the words of their texts."""

# `x as x` is how a name is made public

from axiograd.text.explaining import explain as explain
from axiograd.text.explanation import Piece as Piece, TextExplanation as TextExplanation
from axiograd.text.loading import load as load
