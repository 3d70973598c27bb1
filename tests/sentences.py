"""A small SST-2 in the hub's layout and a small BERT in a folder, for tests without a network."""

import dataclasses
import json

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from fedsum.tasks import sentences

ROWS = {"train": 60, "test": 20}
GOOD, BAD = ["good", "great", "fine", "charming"], ["bad", "dull", "poor", "bleak"]
OTHER = ["film", "story", "actor", "scene", "is", "was", "very", "quite", "and", "the"]


def written(split, seed):
    """Sentences of 1 to 30 words; the label is whether their last word is a good one."""
    draw = np.random.default_rng(seed)
    labels = draw.integers(0, 2, ROWS[split])
    texts = []
    for label in labels:
        words = draw.choice(OTHER, draw.integers(0, 30)).tolist()
        texts.append(" ".join([*words, str(draw.choice(GOOD if label else BAD))]) + " ")
    return texts, labels


def small_sst2(folder, monkeypatch, change=None):
    """Writes the set below `folder`, and lets fedsum read it from there, with an empty cache."""
    source = sentences.TEXT_SOURCES["sst2"]
    splits = {split: (source.splits[split][0], rows) for split, rows in ROWS.items()}
    source = dataclasses.replace(source, splits=splits)
    monkeypatch.setitem(sentences.TEXT_SOURCES, "sst2", source)
    monkeypatch.setenv("FEDSUM_DATA", str(folder / "hub"))
    monkeypatch.setenv("FEDSUM_CACHE", str(folder / "cache"))
    for seed, split in enumerate(ROWS):
        texts, labels = written(split, seed)
        table = {"idx": list(range(len(texts))), "sentence": texts, "label": labels.tolist()}
        if change:
            change(table)
        path = folder / "hub" / source.repo / source.path(split)
        path.parent.mkdir(parents=True, exist_ok=True)
        pq.write_table(pa.table(table), path)
    return source


def small_bert(folder, weights=True, **config):
    """Config, tokenizer and random weights of a BERT, as a folder that transformers can load."""
    import torch
    from transformers import BertConfig, BertModel

    folder.mkdir(parents=True)
    vocabulary = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *OTHER, *GOOD, *BAD, "##s"]
    (folder / "vocab.txt").write_text("\n".join(vocabulary) + "\n")
    (folder / "tokenizer_config.json").write_text(json.dumps({"tokenizer_class": "BertTokenizer"}))
    shape = {"hidden_size": 16, "intermediate_size": 32, "num_attention_heads": 2, "num_hidden_layers": 2}
    config = BertConfig(**{"vocab_size": len(vocabulary), **shape, **config})
    if not weights:
        config.save_pretrained(folder)
        return folder
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        BertModel(config).save_pretrained(folder)
    return folder
