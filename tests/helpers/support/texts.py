"""Small Hugging Face models with random weights, and tokenizers trained on the spot: nothing is downloaded."""

from functools import cache

import torch
import transformers as hf
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, processors, trainers

CORPUS = [
    "a wonderful film, truly wonderful and warm",
    "an awful film that nobody needs",
    "the plot is thin but the actors are wonderful",
    "awful, awful sound in a thin plot",
]
SMALL = {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 16}
SIZE = 80


@cache
def word_pieces():
    """A tokenizer as BERT has it: [CLS] … [SEP], and pieces that begin with ##."""
    own = Tokenizer(models.WordPiece(unk_token="[UNK]"))
    own.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    special = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    own.train_from_iterator(
        CORPUS, trainers.WordPieceTrainer(vocab_size=SIZE, special_tokens=special, show_progress=False)
    )
    own.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]", special_tokens=[("[CLS]", 2), ("[SEP]", 3)]
    )
    names = {"pad_token": "[PAD]", "unk_token": "[UNK]", "cls_token": "[CLS]", "sep_token": "[SEP]"}
    return hf.PreTrainedTokenizerFast(tokenizer_object=own, mask_token="[MASK]", **names)


@cache
def byte_pairs():
    """A tokenizer as GPT-2 has it: bytes, spaces at the beginning of words, no padding."""
    own = Tokenizer(models.BPE())
    own.pre_tokenizer, own.decoder = pre_tokenizers.ByteLevel(add_prefix_space=False), decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(
        vocab_size=300, special_tokens=["<|end|>"], initial_alphabet=alphabet, show_progress=False
    )
    own.train_from_iterator(CORPUS * 2, trainer)
    return hf.PreTrainedTokenizerFast(tokenizer_object=own, eos_token="<|end|>", bos_token="<|end|>")


def strengthened(model):
    """Random weights give answers that hardly depend on the text: larger ones do."""
    torch.manual_seed(0)
    for name, parameter in model.named_parameters():
        if parameter.dim() > 1:
            torch.nn.init.normal_(parameter, std=0.5 if "embed" in name or "wte" in name else 0.3)
        elif name.endswith("bias"):
            torch.nn.init.normal_(parameter, std=0.1)
    return model.eval()


@cache
def sequence_classifier():
    config = hf.BertConfig(
        vocab_size=SIZE, max_position_embeddings=32, id2label={0: "bad", 1: "good", 2: "unsure"}, **SMALL
    )
    config.label2id = {name: i for i, name in config.id2label.items()}
    return strengthened(hf.BertForSequenceClassification(config))


@cache
def token_classifier():
    config = hf.DistilBertConfig(
        vocab_size=SIZE, dim=16, n_layers=1, n_heads=2, hidden_dim=16, id2label={0: "O", 1: "PRAISE", 2: "BLAME"}
    )
    return strengthened(hf.DistilBertForTokenClassification(config))


@cache
def causal_model():
    ids = {"bos_token_id": 0, "eos_token_id": 0}
    return strengthened(
        hf.GPT2LMHeadModel(hf.GPT2Config(n_embd=16, n_layer=1, n_head=2, vocab_size=300, n_positions=24, **ids))
    )


@cache
def llama():
    """RoPE, RMSNorm, SwiGLU, no biases, and a token to pad with."""
    config = hf.LlamaConfig(**SMALL, vocab_size=SIZE, max_position_embeddings=64, pad_token_id=0)
    return strengthened(hf.LlamaForCausalLM(config))
