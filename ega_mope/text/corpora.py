"""Corpora: a name or a file in, normalised text with its hash and origin out; the train/validation split."""

import bisect
import codecs
import hashlib
import logging
import os
import platform
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from ega_mope.text.planted import planted

TINYSHAKESPEARE_URL = (
    "https://raw.githubusercontent.com/karpathy/char-rnn/master/data/tinyshakespeare/input.txt"
)
TINYSHAKESPEARE_SHA256 = "86c4e6aa9db7c042ec79f339dcb96d42b0075e16b8fc2e86bf0ca57e2dc565ed"
TINYSHAKESPEARE_FILE = "tinyshakespeare.txt"

# UTF-32 comes first: its little-endian mark begins with UTF-16's.
_BYTE_ORDER_MARKS = (
    (codecs.BOM_UTF32_LE, "utf-32-le"),
    (codecs.BOM_UTF32_BE, "utf-32-be"),
    (codecs.BOM_UTF8, "utf-8"),
    (codecs.BOM_UTF16_LE, "utf-16-le"),
    (codecs.BOM_UTF16_BE, "utf-16-be"),
)


@dataclass(frozen=True)
class Corpus:
    """A text to train or validate on.

    `sha256` is the hex hash of the UTF-8 bytes of `text` (newlines already normalised), so the same text
    has the same hash whatever file it came in; `source` says where it came from.
    """

    name: str
    text: str
    sha256: str
    source: str


def normalise_newlines(text: str) -> str:
    """CRLF and lone CR become LF."""
    return text.replace("\r\n", "\n").replace("\r", "\n")


def decode_text(data: bytes, where: str) -> str:
    """The text in `data`, newlines normalised, byte order mark removed.

    UTF-8 unless a byte order mark says UTF-16 or UTF-32. ValueError, naming `where`, if the data is empty,
    does not decode (with the byte offset of the first bad byte), or is a quarter or more NUL bytes (UTF-16
    without its mark, or no text at all).
    """
    mark, encoding = next((row for row in _BYTE_ORDER_MARKS if data.startswith(row[0])), (b"", "utf-8"))
    body = data[len(mark) :]
    if not body:
        raise ValueError(f"{where}: expected text, got an empty file; choose one that holds text")
    if encoding == "utf-8" and body.count(0) * 4 >= len(body):
        raise ValueError(
            f"{where}: expected text, got {body.count(0):,} NUL bytes among {len(body):,} (binary, or UTF-16 "
            "without a byte order mark); save it as UTF-8"
        )
    try:
        text = body.decode(encoding)
    except UnicodeDecodeError as error:
        offset = error.start + len(mark)
        raise ValueError(
            f"{where}: expected {encoding.upper()} text, got byte 0x{data[offset]:02x} at byte offset "
            f"{offset} ({error.reason}); save it as UTF-8"
        ) from error
    return normalise_newlines(text)


def load_corpus(name_or_path: str | Path) -> Corpus:
    """The corpus registered under this name, else the text file at this path (named by its file name).

    ValueError if it is neither, or if the file cannot be read as text.
    """
    if named := CORPORA.get(str(name_or_path)):
        return named()
    path = Path(name_or_path).expanduser()
    if not _is_file(path):
        shown = repr(str(name_or_path)[:120])
        raise ValueError(
            f"corpus: expected one of ({', '.join(CORPORA)}) or the path of a text file, got {shown}, which is "
            "neither; correct the name or the path"
        )
    path = path.resolve()
    return _corpus(path.name, decode_text(_read_bytes(path), str(path)), str(path))


def at_hand(name_or_path: str | Path) -> bool:
    """Whether `load_corpus` finds this text here, without the network."""
    if str(name_or_path) != "tinyshakespeare":
        return str(name_or_path) in CORPORA or _is_file(Path(name_or_path).expanduser())
    return _tinyshakespeare_set_by_user() is not None or _is_file(_cache_folder() / TINYSHAKESPEARE_FILE)


def store_corpus(text: str, folder: Path) -> Path:
    """Keeps a pasted or uploaded text, newlines normalised, as `<folder>/<sha256>.txt`; returns the path.

    Written once and atomically: a text already there is left alone. ValueError if the text is empty or
    holds an unpaired surrogate, which no file can hold.
    """
    data = _utf8(normalise_newlines(text))
    if not data:
        raise ValueError("expected a text to store, got an empty one; paste or upload some text")
    path = folder / f"{hashlib.sha256(data).hexdigest()}.txt"
    if path.exists():
        return path
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.NamedTemporaryFile(dir=folder, prefix=".", suffix=".part", delete=False) as part:
        part.write(data)
    Path(part.name).replace(path)
    return path


def split_ids(
    ids: NDArray[np.int64], context_length: int, validation_fraction: float = 0.1
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Training ids, then validation ids, cut by position at int((1 − validation_fraction) · length).

    At the default this is the published script's int(0.9 · length). Each part must hold one window and its
    next token, context_length + 1 ids; ValueError says what was got and what would fit.
    """
    if not 0 < validation_fraction < 1:
        raise ValueError(f"expected a validation_fraction between 0 and 1, got {validation_fraction}")

    def cut(length: int) -> int:
        return int((1 - validation_fraction) * length)

    def shorter_part(length: int) -> int:
        return min(cut(length), length - cut(length))

    length = len(ids)
    if shorter_part(length) <= context_length:
        bound = int((context_length + 2) / min(validation_fraction, 1 - validation_fraction)) + 2
        enough = bisect.bisect_left(range(bound), context_length + 1, key=shorter_part)
        largest = shorter_part(length) - 1
        advice = (
            f"use a context_length of at most {largest:,}, or" if largest > 0 else "too short altogether: use"
        )
        raise ValueError(
            f"context_length {context_length:,}: expected at least {context_length + 1:,} tokens to train on "
            f"and as many to validate on, got {cut(length):,} and {length - cut(length):,}; {advice} a text "
            f"of at least {enough:,} tokens (characters, or bytes with the bytes tokenizer)"
        )
    return ids[: cut(length)], ids[cut(length) :]


def _tinyshakespeare() -> Corpus:
    path = _tinyshakespeare_set_by_user() or _tinyshakespeare_cached()
    data = _read_bytes(path)
    got = hashlib.sha256(data).hexdigest()
    if got != TINYSHAKESPEARE_SHA256:
        raise ValueError(
            f"{path} is not TinyShakespeare: expected sha256 {TINYSHAKESPEARE_SHA256}, got {got}; point "
            "EGA_MOPE_DATA to the right file or unset it"
        )
    return _corpus("tinyshakespeare", decode_text(data, str(path)), str(path))


def _tinyshakespeare_set_by_user() -> Path | None:
    """The file EGA_MOPE_DATA leads to; None if it is unset or its folder holds no TinyShakespeare."""
    setting = os.environ.get("EGA_MOPE_DATA")
    if not setting:
        return None
    place = Path(setting).expanduser().resolve()
    candidates = (place, place / "tinyshakespeare.txt", place / "input.txt")
    found = next((path for path in candidates if _is_file(path)), None)
    if found is None and not place.is_dir():
        raise ValueError(f"EGA_MOPE_DATA: expected a file or a folder, got {setting!r}, which does not exist")
    return found


def _cache_folder() -> Path:
    import pooch

    return Path(pooch.os_cache("ega-mope"))


def _tinyshakespeare_cached() -> Path:
    """The copy in the user's cache, fetched once if it is not there (pooch checks the hash both times)."""
    import pooch

    folder = _cache_folder()
    try:
        with _quiet(pooch.get_logger()):
            return Path(
                pooch.retrieve(
                    TINYSHAKESPEARE_URL,
                    known_hash=f"sha256:{TINYSHAKESPEARE_SHA256}",
                    fname=TINYSHAKESPEARE_FILE,
                    path=folder,
                )
            )
    except (OSError, ValueError) as error:
        reason = "what came has another sha256" if isinstance(error, ValueError) else type(error).__name__
        raise ValueError(
            f"TinyShakespeare could not be fetched from {TINYSHAKESPEARE_URL} into {folder} ({reason}); set "
            "EGA_MOPE_DATA to a folder with tinyshakespeare.txt, or go online once and run "
            "`ega-mope data tinyshakespeare`"
        ) from error


def _python_docs() -> Corpus:
    from pydoc_data.topics import topics

    text = "\n\n".join(topics[name] for name in sorted(topics))
    source = f"pydoc_data.topics of Python {platform.python_version()}"
    return _corpus("python-docs", normalise_newlines(text), source)


def _planted() -> Corpus:
    return _corpus("planted", planted().text, "generated: ega_mope.text.planted.planted()")


CORPORA: dict[str, Callable[[], Corpus]] = {
    "tinyshakespeare": _tinyshakespeare,
    "python-docs": _python_docs,
    "planted": _planted,
}


@contextmanager
def _quiet(logger: logging.Logger) -> Iterator[None]:
    level = logger.level
    logger.setLevel(logging.WARNING)
    try:
        yield
    finally:
        logger.setLevel(level)


def _corpus(name: str, text: str, source: str) -> Corpus:
    return Corpus(name, text, hashlib.sha256(_utf8(text)).hexdigest(), source)


def _utf8(text: str) -> bytes:
    try:
        return text.encode()
    except UnicodeEncodeError as error:
        raise ValueError(
            f"expected text, got the unpaired surrogate U+{ord(text[error.start]):04X} at character "
            f"{error.start}; remove it"
        ) from error


def _is_file(path: Path) -> bool:
    try:
        return path.is_file()
    except OSError:  # a whole text given as a path is too long a name for the system to look up
        return False


def _read_bytes(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise ValueError(f"{path}: expected a readable file, got {error.strerror or error}") from error
