"""Which characters a checkpoint's tokens are: the file itself does not say."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

from ega_mope.text import CharacterTokenizer, Corpus, decode_text, load_corpus

TINYSHAKESPEARE_ALPHABET = "\n !$&',-.3:;?ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
"""The 65 distinct characters of TinyShakespeare (the file whose sha256 is TINYSHAKESPEARE_SHA256 in
`ega_mope.text.corpora`), sorted: the ids that the published script and nanoGPT give them."""


@dataclass(frozen=True)
class Vocabulary:
    """The characters in id order, where they come from, and the text behind them where one is known."""

    characters: str
    origin: str
    corpus: Corpus | None = None


def find_vocabulary(rows: int, corpus: str | None, vocabulary: Path | None) -> Vocabulary:
    """The vocabulary of a model with this many tokens, from a corpus, a file, or TinyShakespeare's 65.

    A file is JSON (a list of characters or one string) or plain text: the characters in id order. ValueError
    unless there are as many different characters as rows.
    """
    if corpus is not None and vocabulary is not None:
        raise ValueError("import: expected --corpus or --vocabulary, got both; give one of them")
    if corpus is not None:
        text = load_corpus(corpus)
        found = Vocabulary(CharacterTokenizer.fit(text.text).alphabet, f"the characters of {text.name}", text)
    elif vocabulary is not None:
        found = Vocabulary(_vocabulary_file(vocabulary, rows), f"the file {vocabulary.name}")
    elif rows == len(TINYSHAKESPEARE_ALPHABET):
        found = Vocabulary(TINYSHAKESPEARE_ALPHABET, "TinyShakespeare's alphabet, assumed from the 65 tokens")
    else:
        raise ValueError(
            f"import: expected --corpus or --vocabulary for a model with {rows} tokens, got neither; "
            "the file itself does not say which characters they are"
        )
    if len(found.characters) != rows or len(set(found.characters)) != rows:
        raise ValueError(
            f"import: expected {rows} different characters, as many as the model has tokens, got "
            f"{len(set(found.characters))} different of {len(found.characters)} from {found.origin}; "
            "give the text or vocabulary that it was trained with"
        )
    return found


def _vocabulary_file(path: Path, rows: int) -> str:
    try:
        text = decode_text(path.read_bytes(), path.name)
    except OSError as error:
        raise ValueError(
            f"{path}: expected a vocabulary file, got: {error.strerror}; check the path"
        ) from error
    if path.suffix == ".json":
        try:
            data = json.loads(text)
        except ValueError as error:
            raise ValueError(f"{path.name}: expected JSON, got {error}; correct it") from error
        characters = list(data) if isinstance(data, list | str) else []
        if not characters or not all(isinstance(c, str) and len(c) == 1 for c in characters):
            raise ValueError(
                f"{path.name}: expected a JSON list of single characters in id order, got something else; rewrite it"
            )
        return "".join(characters)
    # An editor ends a file with a newline that is none of the characters.
    return text[:-1] if len(text) == rows + 1 and text.endswith("\n") else text
