"""A Hugging Face model and its tokenizer from a folder, by the class that its configuration names."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from axiograd._extras import optional
from axiograd.errors import ConfigurationError, DataMissingError
from axiograd.loading.hugging_face import without_bars


def load(folder: str | Path, *, local: bool = True) -> tuple[Any, Any]:
    """Model, in eval mode, and tokenizer; ``local=False`` also takes names on the Hugging Face hub and downloads.

    `model, tokenizer = axiograd.text.load("my-sentiment-model/")`
    """
    transformers = optional("transformers", "text", "explaining texts")
    if local and not (Path(folder) / "config.json").is_file():
        raise DataMissingError(
            f"{folder} is not a folder with a Hugging Face model (no config.json in it): write one with "
            "model.save_pretrained(folder) and tokenizer.save_pretrained(folder)."
        )
    config = transformers.AutoConfig.from_pretrained(folder, local_files_only=local)
    names = getattr(config, "architectures", None) or []
    kind = getattr(transformers, names[0], None) if names else None
    if kind is None:
        raise ConfigurationError(
            f"{folder}: its configuration names the class {names[0] if names else 'None'}, which transformers "
            f"{transformers.__version__} does not have."
        )
    with without_bars():
        model = kind.from_pretrained(folder, local_files_only=local).eval()
    return model, transformers.AutoTokenizer.from_pretrained(folder, local_files_only=local)
