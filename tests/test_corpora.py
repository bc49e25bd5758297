"""Corpora: names and files to text, one pinned download, the split by position."""

import gc
import hashlib
import re
import subprocess
import sys
import threading
from collections.abc import Iterator
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from logging.handlers import BufferingHandler
from pathlib import Path

import numpy as np
import pooch
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ega_mope.text import corpora, decode_text, load_corpus, normalise_newlines, split_ids, store_corpus

PLAY = b"First Citizen:\nBefore we proceed any further, hear me speak.\n"


class _CountingServer(ThreadingHTTPServer):
    requests = 0


class _Handler(SimpleHTTPRequestHandler):
    def do_GET(self) -> None:
        assert isinstance(self.server, _CountingServer)
        self.server.requests += 1
        super().do_GET()

    def log_message(self, format: str, *args: object) -> None:
        """The server's own log would hide what the code under test prints."""


@pytest.fixture
def server(tmp_path: Path) -> Iterator[_CountingServer]:
    (tmp_path / "served").mkdir()
    (tmp_path / "served" / "input.txt").write_bytes(PLAY)
    handler = partial(_Handler, directory=str(tmp_path / "served"))
    with _CountingServer(("127.0.0.1", 0), handler) as running:
        thread = threading.Thread(target=running.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield running
        running.shutdown()
        thread.join()


@pytest.fixture
def cache(tmp_path: Path, server: _CountingServer, monkeypatch: pytest.MonkeyPatch) -> Path:
    """TinyShakespeare replaced by PLAY on a local server, the user's cache by an empty folder."""
    folder = tmp_path / "cache"
    monkeypatch.setattr(pooch, "os_cache", lambda project: folder / project)
    monkeypatch.setattr(corpora, "TINYSHAKESPEARE_URL", f"http://127.0.0.1:{server.server_port}/input.txt")
    monkeypatch.setattr(corpora, "TINYSHAKESPEARE_SHA256", hashlib.sha256(PLAY).hexdigest())
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    monkeypatch.delenv("EGA_MOPE_DATA", raising=False)
    return folder / "ega-mope"


def test_tinyshakespeare_is_fetched_once_quietly_and_then_read_from_the_cache(
    cache: Path, server: _CountingServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    said = BufferingHandler(100)
    monkeypatch.setattr(pooch.get_logger(), "handlers", [said])
    corpus = load_corpus("tinyshakespeare")
    assert (corpus.name, corpus.text) == ("tinyshakespeare", PLAY.decode())
    assert corpus.sha256 == hashlib.sha256(PLAY).hexdigest()
    assert corpus.source == str(cache / "tinyshakespeare.txt")
    assert load_corpus("tinyshakespeare") == corpus
    assert server.requests == 1
    assert [path.name for path in cache.iterdir()] == ["tinyshakespeare.txt"]
    assert said.buffer == []


def test_a_spoilt_copy_in_the_cache_is_fetched_again(cache: Path) -> None:
    cache.mkdir(parents=True)
    (cache / "tinyshakespeare.txt").write_text("half a play")
    assert load_corpus("tinyshakespeare").text == PLAY.decode()


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
@pytest.mark.parametrize("fault", ["no network", "not there", "another text"])
def test_a_failed_fetch_says_both_ways_out_and_leaves_nothing(
    fault: str, cache: Path, server: _CountingServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if fault == "no network":
        monkeypatch.setattr(corpora, "TINYSHAKESPEARE_URL", "http://127.0.0.1:1/input.txt")
    elif fault == "not there":
        (tmp_path / "served" / "input.txt").unlink()
    else:
        (tmp_path / "served" / "input.txt").write_text("another text")
    with pytest.raises(ValueError, match=r"EGA_MOPE_DATA.*`ega-mope data tinyshakespeare`") as caught:
        load_corpus("tinyshakespeare")
    assert "\n" not in str(caught.value)
    assert ("another sha256" in str(caught.value)) == (fault == "another text")
    assert list(cache.iterdir()) == []
    # pooch leaves the socket of a refused answer to the garbage collector, which complains: here, not in a later test.
    gc.collect()


@pytest.mark.parametrize("where", ["play.txt", "tinyshakespeare.txt", "input.txt"])
def test_the_users_own_copy_comes_first(
    where: str, cache: Path, server: _CountingServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    own = tmp_path / "own" / where
    own.parent.mkdir()
    own.write_bytes(PLAY)
    monkeypatch.setenv("EGA_MOPE_DATA", str(own if where == "play.txt" else own.parent))
    corpus = load_corpus("tinyshakespeare")
    assert (corpus.text, corpus.source) == (PLAY.decode(), str(own.resolve()))
    assert server.requests == 0


def test_a_data_folder_without_the_play_does_not_stand_in_the_way(
    cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("EGA_MOPE_DATA", str(tmp_path))
    assert load_corpus("tinyshakespeare").source == str(cache / "tinyshakespeare.txt")


def test_a_wrong_own_copy_is_refused_with_both_hashes(
    cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    wrong = tmp_path / "input.txt"
    wrong.write_bytes(b"something else")
    monkeypatch.setenv("EGA_MOPE_DATA", str(wrong))
    expected, got = hashlib.sha256(PLAY).hexdigest(), hashlib.sha256(b"something else").hexdigest()
    with pytest.raises(ValueError, match=f"expected sha256 {expected}, got {got}"):
        load_corpus("tinyshakespeare")


def test_a_data_setting_that_leads_nowhere_is_refused(
    cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("EGA_MOPE_DATA", str(tmp_path / "nowhere"))
    with pytest.raises(ValueError, match=r"EGA_MOPE_DATA.*nowhere.*does not exist"):
        load_corpus("tinyshakespeare")


def test_python_docs_are_the_help_topics_in_order() -> None:
    from pydoc_data.topics import topics

    corpus = load_corpus("python-docs")
    first, second = sorted(topics)[:2]
    assert corpus.text.startswith(f"{topics[first]}\n\n{topics[second]}\n\n")
    assert corpus.sha256 == hashlib.sha256(corpus.text.encode()).hexdigest()
    version = ".".join(map(str, sys.version_info[:3]))
    assert corpus.source.startswith(f"pydoc_data.topics of Python {version}")


def test_a_file_is_a_corpus_named_by_its_file_name(tmp_path: Path) -> None:
    path = tmp_path / "poem.txt"
    path.write_bytes("\ufeffO wind,\r\né\rend".encode())
    corpus = load_corpus(path)
    assert (corpus.name, corpus.text, corpus.source) == ("poem.txt", "O wind,\né\nend", str(path.resolve()))
    assert corpus.sha256 == hashlib.sha256("O wind,\né\nend".encode()).hexdigest()
    assert load_corpus(str(path)) == corpus


@pytest.mark.parametrize("name", ["shakespear", "", "x" * 5000, "two\nlines", "nul\0"])
def test_neither_a_name_nor_a_file_lists_the_corpora_in_one_line(name: str) -> None:
    message = r"tinyshakespeare, python-docs.*correct the name or the path$"
    with pytest.raises(ValueError, match=message) as caught:
        load_corpus(name)
    assert "\n" not in str(caught.value) and len(str(caught.value)) < 300


@given(text=st.text(min_size=1).filter(lambda text: "\0" not in text and text[0] != "\ufeff"))
def test_every_marked_encoding_gives_the_same_text(text: str) -> None:
    expected = normalise_newlines(text)
    assert decode_text(text.encode(), "here") == expected
    assert decode_text(text.encode("utf-8-sig"), "here") == expected
    assert decode_text(text.encode("utf-16"), "here") == expected
    assert decode_text(b"\xfe\xff" + text.encode("utf-16-be"), "here") == expected
    assert decode_text(text.encode("utf-32"), "here") == expected


@given(text=st.text(st.sampled_from("a\r\n")))
def test_newlines_are_those_python_reads(text: str) -> None:
    assert normalise_newlines(text) == text.replace("\r\n", "\n").replace("\r", "\n")
    assert normalise_newlines(text).count("\n") == len(f"{text}.".splitlines()) - 1


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"", "poem.txt: .*empty"),
        (b"\xef\xbb\xbf", "poem.txt: .*empty"),
        (b"caf\xe9 au lait", "poem.txt: .*byte 0xe9 at byte offset 3 .*save it as UTF-8"),
        (b"\xef\xbb\xbfab\xff", "byte 0xff at byte offset 5 "),
        ("\ufeffab".encode("utf-16-le") + b"c", "UTF-16-LE.*byte 0x63 at byte offset 6 "),
        ("ab".encode("utf-16-le"), "2 NUL bytes among 4 .*save it as UTF-8"),
    ],
)
def test_what_is_no_text_is_refused_with_the_place_and_the_cure(data: bytes, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        decode_text(data, "poem.txt")


def test_a_pasted_text_is_stored_once_and_loads_by_its_path(tmp_path: Path) -> None:
    folder = tmp_path / "runs" / ".corpora"
    path = store_corpus("one\r\ntwo é", folder)
    written = path.stat().st_mtime_ns
    assert path == folder / (hashlib.sha256("one\ntwo é".encode()).hexdigest() + ".txt")
    assert load_corpus(path).text == "one\ntwo é"
    assert f"{load_corpus(path).sha256}.txt" == path.name
    assert store_corpus("one\ntwo é", folder) == path
    assert path.stat().st_mtime_ns == written
    assert list(folder.iterdir()) == [path]


@pytest.mark.parametrize(("text", "message"), [("", "empty"), ("ab\ud800", r"U\+D800 at character 2")])
def test_a_text_no_file_can_hold_is_not_stored(text: str, message: str, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=message):
        store_corpus(text, tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_the_split_is_by_position_as_published() -> None:
    ids = np.arange(1_115_394)
    training, validation = split_ids(ids, 256)
    assert (len(training), len(validation)) == (1_003_854, 111_540)
    assert training[-1] + 1 == validation[0]


@given(
    length=st.integers(0, 3000),
    context_length=st.integers(1, 300),
    fraction=st.sampled_from([0.05, 0.1, 0.5, 0.9]),
)
def test_a_refused_split_names_the_exact_limits(length: int, context_length: int, fraction: float) -> None:
    ids = np.arange(length)
    try:
        training, validation = split_ids(ids, context_length, fraction)
    except ValueError as error:
        message = str(error).replace(",", "")
    else:
        assert min(len(training), len(validation)) > context_length
        assert np.concatenate([training, validation]).tolist() == ids.tolist()
        return
    enough = int(re.findall(r"at least (\d+) tokens", message)[-1])
    split_ids(np.arange(enough), context_length, fraction)
    with pytest.raises(ValueError):
        split_ids(np.arange(enough - 1), context_length, fraction)
    if limit := re.search(r"at most (\d+)", message):
        split_ids(ids, int(limit[1]), fraction)
        with pytest.raises(ValueError):
            split_ids(ids, int(limit[1]) + 1, fraction)
    else:
        assert "too short altogether" in message
        with pytest.raises(ValueError):
            split_ids(ids, 1, fraction)


@pytest.mark.parametrize("fraction", [0.0, 1.0, -0.1])
def test_a_split_needs_a_fraction_between_0_and_1(fraction: float) -> None:
    with pytest.raises(ValueError, match="validation_fraction between 0 and 1"):
        split_ids(np.arange(1000), 8, fraction)


def test_importing_text_loads_nothing_heavy() -> None:
    heavy = "{'torch', 'pandas', 'pooch', 'requests', 'streamlit', 'plotly'}"
    code = f"import sys, ega_mope.text; print(sorted({heavy} & sys.modules.keys()))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
