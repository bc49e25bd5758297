"""Text in: corpora (names and files to text) and tokenizers (text to ids and back)."""

from ega_mope.text.corpora import (
    CORPORA,
    Corpus,
    at_hand,
    decode_text,
    load_corpus,
    normalise_newlines,
    split_ids,
    store_corpus,
)
from ega_mope.text.tokenizers import (
    TOKENIZERS,
    ByteTokenizer,
    CharacterTokenizer,
    Reading,
    Tokenizer,
    tokenizer_from_json,
)

__all__ = [
    "CORPORA",
    "TOKENIZERS",
    "ByteTokenizer",
    "CharacterTokenizer",
    "Corpus",
    "Reading",
    "Tokenizer",
    "at_hand",
    "decode_text",
    "load_corpus",
    "normalise_newlines",
    "split_ids",
    "store_corpus",
    "tokenizer_from_json",
]
