"""Tokenizers: text to ids and back, and how a model reads a text it was not trained on.

Strict encoding is for corpora; reading is for whatever a person types. Reading never fails: a character the
model has no id for keeps its place and is marked.
"""

import operator
import unicodedata
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar, Protocol, SupportsIndex, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from ega_mope.text.corpora import normalise_newlines

# What a keyboard or a word processor puts in place of the plain character a corpus has. One to one, so that
# every character keeps its place.
_PLAIN = {
    "'": "‘’‚‛′‹›´`",
    '"': "“”„‟″«»",
    "-": "‐‑‒–—―−",
    " ": "\t\u00a0\u1680\u2000\u2001\u2002\u2003\u2004\u2005\u2006\u2007\u2008\u2009\u200a\u202f\u205f\u3000",
    "\n": "\v\f\x85\u2028\u2029",
    ".": "…·",
    "*": "•",
    "/": "⁄∕",
    "O": "Ø",
    "o": "ø",
    "L": "Ł",
    "l": "ł",
    "D": "Đ",
    "d": "đ",
    "i": "ı",
}
_LOOKALIKES = {fancy: plain for plain, others in _PLAIN.items() for fancy in others}


@dataclass(frozen=True)
class Reading:
    """How a tokenizer reads one text; a character is a code point after newline normalisation.

    `read_as[c]` is what the model is fed for character c, None where it knows none. `ids` are the tokens fed,
    `owner` the index of the character each belongs to (never decreasing). `seen[c]` is True if all ids of
    character c occurred in the training text, False for an unknown character.
    """

    characters: str
    read_as: tuple[str | None, ...]
    ids: NDArray[np.int64]
    owner: NDArray[np.int64]
    seen: NDArray[np.bool_]

    @property
    def known(self) -> NDArray[np.bool_]:
        """One bool a character: whether the model is fed anything for it."""
        return np.fromiter((text is not None for text in self.read_as), np.bool_, len(self.read_as))

    def unknown(self) -> list[tuple[str, int]]:
        """Each unknown character and how often it occurs, the most frequent first."""
        pairs = zip(self.characters, self.read_as, strict=True)
        return Counter(character for character, text in pairs if text is None).most_common()


@runtime_checkable
class Tokenizer(Protocol):
    """What every tokenizer offers; `kind` is its name in TOKENIZERS, on the command line and in JSON."""

    kind: ClassVar[str]

    @classmethod
    def fit(cls, text: str) -> "Tokenizer":
        """The tokenizer of this training text."""
        ...

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> "Tokenizer":
        """The tokenizer `to_json` described; ValueError if the data is not of that form."""
        ...

    @property
    def vocabulary_size(self) -> int:
        """Number of ids: 0 to vocabulary_size − 1."""
        ...

    def read(self, text: str) -> Reading:
        """How any text is read; raises for none."""
        ...

    def encode(self, text: str) -> NDArray[np.int64]:
        """All ids of a text; ValueError if there is a character with none."""
        ...

    def decode(self, ids: Iterable[SupportsIndex]) -> str:
        """The text of these ids; ValueError for an id outside the vocabulary."""
        ...

    def to_json(self) -> dict[str, Any]:
        """Kind and vocabulary as plain data, for `tokenizer_from_json`."""
        ...


@dataclass(frozen=True)
class CharacterTokenizer:
    """One id a character: its rank in the sorted alphabet of the training text.

    Sorted as the published script does, whatever order the alphabet is given in. ValueError if it is empty.
    """

    kind: ClassVar[str] = "characters"
    alphabet: str

    def __post_init__(self) -> None:
        if not self.alphabet:
            raise ValueError("expected at least one character to build an alphabet from, got an empty text")
        object.__setattr__(self, "alphabet", "".join(sorted(set(self.alphabet))))

    @classmethod
    def fit(cls, text: str) -> "CharacterTokenizer":
        """The tokenizer whose alphabet is exactly the characters of `text`."""
        return cls(normalise_newlines(text))

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> "CharacterTokenizer":
        """ValueError unless `alphabet` is a sorted string: another order would change every id's letter."""
        alphabet = data.get("alphabet")
        if not isinstance(alphabet, str) or alphabet != "".join(sorted(set(alphabet))):
            raise ValueError(
                "tokenizer of kind 'characters': expected `alphabet`, a string of distinct characters sorted "
                f"by code point, got {repr(alphabet)[:120]}; use the file the run was saved with"
            )
        return cls(alphabet)

    @property
    def vocabulary_size(self) -> int:
        """Number of characters in the alphabet."""
        return len(self.alphabet)

    @cached_property
    def _ids(self) -> dict[str, int]:
        return {character: index for index, character in enumerate(self.alphabet)}

    def read(self, text: str) -> Reading:
        """Reads each character as itself, else a plain lookalike, else its base letter, else as unknown.

        Lookalikes are curly quotes, dashes, special spaces and the like; the base letter is the Unicode NFKD
        decomposition without combining marks, where that is one character (é is read as e). A character is
        `seen` exactly when it is known, since the alphabet is that of the training text.
        """
        characters = normalise_newlines(text)
        readings = {character: self._read_as(character) for character in set(characters)}
        ids_of = {character: -1 if r is None else self._ids[r] for character, r in readings.items()}
        ids = np.fromiter(map(ids_of.__getitem__, characters), np.int64, len(characters))
        known = ids >= 0
        return Reading(
            characters=characters,
            read_as=tuple(map(readings.__getitem__, characters)),
            ids=ids[known],
            owner=np.flatnonzero(known).astype(np.int64),
            seen=known,
        )

    def _read_as(self, character: str) -> str | None:
        decomposed = unicodedata.normalize("NFKD", character)
        base = "".join(part for part in decomposed if not unicodedata.category(part).startswith("M"))
        candidates = (character, _LOOKALIKES.get(character), base)
        return next((candidate for candidate in candidates if candidate in self._ids), None)

    def encode(self, text: str) -> NDArray[np.int64]:
        """Ids of a text made of the alphabet alone, newlines normalised first.

        ValueError names the first character outside it, its code point and its position.
        """
        characters = normalise_newlines(text)
        outside = set(characters) - self._ids.keys()
        if outside:
            position = min(map(characters.index, outside))
            character = characters[position]
            raise ValueError(
                f"expected only the {self.vocabulary_size} characters of the alphabet, got {character!a} "
                f"(U+{ord(character):04X}) at position {position}; fit the tokenizer on this text or use the "
                "bytes tokenizer"
            )
        return np.fromiter(map(self._ids.__getitem__, characters), np.int64, len(characters))

    def decode(self, ids: Iterable[SupportsIndex]) -> str:
        """The characters of these ids; ValueError for an id outside the vocabulary."""
        return "".join(self.alphabet[index] for index in _checked(ids, self.vocabulary_size))

    def to_json(self) -> dict[str, Any]:
        """`{"kind": "characters", "alphabet": …}`."""
        return {"kind": self.kind, "alphabet": self.alphabet}


@dataclass(frozen=True, init=False)
class ByteTokenizer:
    """One id a UTF-8 byte, so every character has ids; `seen` are the byte values of the training text.

    ValueError if one is not a byte value.
    """

    kind: ClassVar[str] = "bytes"
    seen: frozenset[int]

    def __init__(self, seen: Iterable[SupportsIndex]) -> None:
        object.__setattr__(self, "seen", frozenset(_checked(seen, 256)))

    @classmethod
    def fit(cls, text: str) -> "ByteTokenizer":
        """The tokenizer that has seen the bytes of `text`."""
        return cls(set(_bytes_of(normalise_newlines(text))))

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> "ByteTokenizer":
        """ValueError unless `seen` is a list of byte values."""
        seen = data.get("seen")
        if not isinstance(seen, list) or not all(type(value) is int for value in seen):
            raise ValueError(
                "tokenizer of kind 'bytes': expected `seen`, a list of integers from 0 to 255, got "
                f"{repr(seen)[:120]}; use the file the run was saved with"
            )
        return cls(seen)

    @property
    def vocabulary_size(self) -> int:
        """256."""
        return 256

    def read(self, text: str) -> Reading:
        """Reads every character as its UTF-8 bytes, an unpaired surrogate as the three it would have."""
        characters = normalise_newlines(text)
        ids = np.frombuffer(_bytes_of(characters), np.uint8).astype(np.int64)
        # A character's first byte is the only one that is not of the form 10xxxxxx.
        owner = np.cumsum((ids & 0xC0) != 0x80, dtype=np.int64) - 1
        seen = np.ones(len(characters), np.bool_)
        seen[owner[~np.isin(ids, list(self.seen))]] = False
        return Reading(characters=characters, read_as=tuple(characters), ids=ids, owner=owner, seen=seen)

    def encode(self, text: str) -> NDArray[np.int64]:
        """The UTF-8 bytes of a text, newlines normalised first; every text has them."""
        return np.frombuffer(_bytes_of(normalise_newlines(text)), np.uint8).astype(np.int64)

    def decode(self, ids: Iterable[SupportsIndex]) -> str:
        """The text of these bytes, U+FFFD where they are not UTF-8; ValueError for an id outside 0 to 255."""
        return bytes(_checked(ids, 256)).decode(errors="replace")

    def to_json(self) -> dict[str, Any]:
        """`{"kind": "bytes", "seen": […]}`, the byte values in ascending order."""
        return {"kind": self.kind, "seen": sorted(self.seen)}


TOKENIZERS: dict[str, type[Tokenizer]] = {
    tokenizer.kind: tokenizer for tokenizer in (CharacterTokenizer, ByteTokenizer)
}


def tokenizer_from_json(data: Any) -> Tokenizer:
    """The tokenizer that `to_json` described; ValueError for an unknown kind or data not of its form."""
    kind = data.get("kind") if isinstance(data, Mapping) else None
    if not isinstance(kind, str) or kind not in TOKENIZERS:
        raise ValueError(f"expected a tokenizer kind of {', '.join(TOKENIZERS)}, got {repr(kind)[:120]}")
    return TOKENIZERS[kind].from_json(data)


def _bytes_of(text: str) -> bytes:
    return text.encode("utf-8", "surrogatepass")


def _checked(ids: Iterable[SupportsIndex], vocabulary_size: int) -> list[int]:
    checked = [operator.index(value) for value in ids]
    for value in checked:
        if not 0 <= value < vocabulary_size:
            raise ValueError(f"expected ids from 0 to {vocabulary_size - 1}, got {value}")
    return checked
