"""What a character of a text is: boundaries, function words, repeats, suffixes; all found in the text alone.

A character is a code point after newline normalisation. Some of these look ahead of the character: a model
that reads "the" letter by letter cannot know at its `t` that a function word has begun. They say what a
gate goes with, not what it computes.
"""

from __future__ import annotations

from collections import Counter

import numpy as np
import regex
from jaxtyping import Bool, Float, Int

from ega_mope.analysis.gate_tables import WORD

_FUNCTION_WORDS = """
a an the this that these those each every either neither some any no none all both such other another much many
few several own same i me my mine we us our ours you your yours he him his she her hers it its they them their
theirs myself himself herself itself themselves ourselves yourself yourselves who whom whose which what thou
thee thy thine ye thyself and or but nor so yet for if then than because although though while whereas unless
until till since as whether lest when where why how whence thence hence of in on at by with from to into onto
upon over under about above below between among through during before after against without within along across
behind beyond toward towards near off out up down per be am is are was were been being have has had having do
does did done doing will would shall should can could may might must ought art wert hast hath hadst dost doth
didst wilt wouldst shalt shouldst canst couldst mayst not there here too very just only also even
i'm i'll i've i'd you're you'll you've you'd he's he'll he'd she's she'll she'd it's it'll we're we'll we've
we'd they're they'll they've they'd that's there's don't doesn't didn't isn't aren't wasn't weren't won't
wouldn't can't couldn't shouldn't haven't hasn't hadn't tis twas thou'lt thou'rt
"""
FUNCTION_WORDS = frozenset(_FUNCTION_WORDS.split())
"""A closed list: English articles, pronouns, conjunctions, prepositions, auxiliaries and particles, those of
Shakespeare's time included. A word of another language is never in it."""

_SUFFIXES = (
    "ations ation ition ments ment ness less able ible ings ing edst est eth ers ies ful ous ive ity ish ism ist "
    "ize ise tion sion ant ent ary ory ed er ly es al en 's s"
)
SUFFIXES = tuple(sorted(_SUFFIXES.split(), key=len, reverse=True))
"""Common English suffixes, tried from the longest on; no morphology, hence approximate."""

LEAST_STEM = 3
"""Letters that a word keeps before a suffix for it to count as one."""

SENTENCE_END = regex.compile(r"[.!?…]+(?=[\"'”’)\]]*(?:\s|$))")
"""Full stops, question and exclamation marks that white space or the text's end follows, closing marks between."""

Marks = Bool[np.ndarray, " character"]


def word_starts(characters: str) -> Marks:
    """The first character of each word."""
    return _at(characters, [found.start() for found in WORD.finditer(characters)])


def word_ends(characters: str) -> Marks:
    """The character after each word: the first at which reading left to right shows that it has ended."""
    ends = [found.end() for found in WORD.finditer(characters)]
    return _at(characters, [end for end in ends if end < len(characters)])


def line_ends(characters: str) -> Marks:
    """Newlines."""
    return _at(characters, [place for place, character in enumerate(characters) if character == "\n"])


def sentence_ends(characters: str) -> Marks:
    """The marks that end a sentence; not the point of 3.2."""
    return _at(characters, [p for found in SENTENCE_END.finditer(characters) for p in range(*found.span())])


def function_words(characters: str) -> Marks:
    """All characters of the words in FUNCTION_WORDS, whatever their case."""
    places: list[int] = []
    for found in WORD.finditer(characters):
        if found[0].lower().replace("’", "'") in FUNCTION_WORDS:
            places.extend(range(*found.span()))
    return _at(characters, places)


def suffix_starts(characters: str) -> Marks:
    """Approximately: the first character of the longest common suffix that a word ends in, function words left out."""
    places = []
    for found in WORD.finditer(characters):
        word = found[0].lower().replace("’", "'")
        if word in FUNCTION_WORDS:
            continue
        ending = next((end for end in SUFFIXES if word.endswith(end)), None)
        if ending and len(word) - len(ending) >= LEAST_STEM:
            places.append(found.end() - len(ending))
    return _at(characters, places)


def earlier_repeat(characters: str) -> Int[np.ndarray, " character"]:
    """Length of the longest string that ends at each character and also ends somewhere earlier in the text.

    Of a suffix automaton (Blumer et al. 1985) built letter by letter: after a letter, the longest suffix that has
    occurred before is its state's suffix link. Linear time; the whole text counts, beyond a model's window too.
    """
    follow: list[dict[str, int]] = [{}]
    link, length = [-1], [0]
    last, found = 0, np.zeros(len(characters), np.int64)
    for place, letter in enumerate(characters):
        state, p = len(follow), last
        follow.append({})
        length.append(length[last] + 1)
        link.append(0)
        while p >= 0 and letter not in follow[p]:
            follow[p][letter] = state
            p = link[p]
        if p >= 0:
            q = follow[p][letter]
            if length[p] + 1 == length[q]:
                link[state] = q
            else:
                clone = len(follow)
                follow.append(dict(follow[q]))
                length.append(length[p] + 1)
                link.append(link[q])
                while p >= 0 and follow[p].get(letter) == q:
                    follow[p][letter] = clone
                    p = link[p]
                link[q] = link[state] = clone
        last = state
        found[place] = length[link[state]]
    return found


def rarity(read_as: tuple[str | None, ...], counts: Counter[str]) -> Float[np.ndarray, " character"]:
    """−ln of each character's unigram frequency in nats, from `counts`; NaN where the model reads nothing.

    Add-one smoothing over the counted characters and one unknown, so that one never counted is rare, not infinite.
    """
    total = sum(counts.values()) + len(counts) + 1
    known = {c: -np.log((counts[c] + 1) / total) for c in set(read_as) if c is not None}
    return np.array([np.nan if c is None else known[c] for c in read_as], np.float64)


def _at(characters: str, places: list[int]) -> Marks:
    marks = np.zeros(len(characters), np.bool_)
    marks[places] = True
    return marks
