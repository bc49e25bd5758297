"""A checkpoint read and its vocabulary found: the run folder they become."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

import torch

import ega_mope
from ega_mope.config import Plain, to_plain
from ega_mope.importers.checkpoint import Checkpoint, read_checkpoint
from ega_mope.importers.history import understood_history
from ega_mope.importers.vocabulary import Vocabulary, find_vocabulary
from ega_mope.model import CharLM
from ega_mope.runs import FORMAT, RunWriter, checked_name, free_name
from ega_mope.text import CORPORA, CharacterTokenizer, store_corpus


@dataclass(frozen=True)
class Imported:
    """Where the run is, and what a person should know about it."""

    path: Path
    notes: tuple[str, ...]


def import_checkpoint(
    file: Path,
    runs: Path,
    *,
    corpus: str | None = None,
    vocabulary: Path | None = None,
    name: str | None = None,
) -> Imported:
    """Turn a checkpoint of the published script or of nanoGPT into a finished run in the folder `runs`.

    Its losses are marked as measured by somebody else's program, so that they share no axis with ours;
    without a `corpus`, nor with other imported ones.
    """
    checkpoint = read_checkpoint(file)
    found = find_vocabulary(checkpoint.model.config.vocabulary_size, corpus, vocabulary)
    name = checked_name(name) if name else free_name(runs, _name_of(file))
    _sort_tokens(checkpoint.model, found.characters)
    history = understood_history(checkpoint.history)
    writer = RunWriter(runs / name)
    try:
        if found.corpus is not None and found.corpus.name not in CORPORA:
            store_corpus(found.corpus.text, runs / ".corpora")
        writer.start(_document(checkpoint, found, file, name), CharacterTokenizer(found.characters))
        writer.save_weights(checkpoint.model.state_dict())
        for record in history or []:
            writer.append("metrics.jsonl", record)
        learned = {key: value.tolist() for key, value in checkpoint.model.learned().items()}
        writer.append("learned.jsonl", {"step": checkpoint.step, "values": learned})
        writer.set_status("finished", checkpoint.step)
    finally:
        writer.close()
    losses = (
        f"{len(history)} losses, as {checkpoint.layout} measured them"
        if history
        else "no losses: the file's history could not be understood"
        if checkpoint.history
        else "no losses: the file has no history"
    )
    return Imported(writer.path, (f"characters: {found.origin}", losses))


def _sort_tokens(model: CharLM, characters: str) -> None:
    """Number the tokens by code point, as our tokenizer does; the tied head moves with the embedding."""
    order = sorted(range(len(characters)), key=characters.__getitem__)
    with torch.no_grad():
        model.token_embedding.weight.copy_(model.token_embedding.weight[order].clone())


def _name_of(file: Path) -> str:
    return re.sub(r"[^A-Za-z0-9._-]+", "-", file.stem).lstrip(".-")[:150] or "imported"


def _document(checkpoint: Checkpoint, found: Vocabulary, file: Path, name: str) -> Plain:
    model, corpus = checkpoint.model.config, found.corpus
    evaluation: Plain = {
        "measured_by": checkpoint.layout,
        "corpus_sha256": corpus and corpus.sha256,
        "split": "validation",
        "tokenizer": CharacterTokenizer.kind,
        "context": model.context_length,
    }
    if corpus is None:
        evaluation["file_sha256"] = checkpoint.sha256
    return {
        "format": FORMAT,
        "name": name,
        "preset": "imported",
        "imported": {
            "layout": checkpoint.layout,
            "file": file.name,
            "file_sha256": checkpoint.sha256,
            "step": checkpoint.step,
            "vocabulary": found.origin,
            **checkpoint.facts,
        },
        "seed": None,
        "model": to_plain(model),
        "training": None,
        "tokenizer": CharacterTokenizer.kind,
        "corpus": {
            "name": corpus.name if corpus else "unknown",
            "sha256": corpus and corpus.sha256,
            "tokenizer": CharacterTokenizer.kind,
        },
        "evaluation": evaluation,
        "parameters": checkpoint.model.parameter_counts(),
        "versions": {"ega_mope": ega_mope.__version__, "torch": torch.__version__},
    }
