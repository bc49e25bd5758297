"""A model goes on with a text: reproducible from a seed, with a key-value cache where the model allows one."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from ega_mope.attention import Past
from ega_mope.model import CharLM, is_causal, stream_generator
from ega_mope.text import Reading, Tokenizer

START = "\n"
"""What an empty prompt is read as: a text begins where a line does."""


@dataclass(frozen=True)
class Generated:
    """The ids a model wrote, and what it could see while it wrote them.

    `unread` is how many of the prompt's first ids lay beyond the context and were never read. `moved_from` is
    the index in `ids` from which on the model saw only the last context_length tokens, read anew at positions
    0, 1, … for every token: positions of the text shift under such a window. None where all of it fitted.
    `stopped` says that it ended with the stop sequence, which is kept. `cached` says that a key-value cache
    was used inside the context. `sees_future` is true for a model whose earlier states change with every
    new token: it was not trained to write, and what it writes is not what its losses measured.
    """

    ids: list[int]
    unread: int
    moved_from: int | None
    stopped: bool
    cached: bool
    sees_future: bool


@dataclass(frozen=True)
class Continuation:
    """A text gone on with: `text` is what the model wrote, `reading` how it read the prompt.

    `started_from` is what it was fed in place of an empty prompt, None where it was fed the prompt.
    """

    text: str
    reading: Reading
    started_from: str | None
    generated: Generated


def generate(
    model: CharLM,
    prompt: Sequence[int],
    *,
    tokens: int,
    seed: int,
    temperature: float | int = 1.0,
    top_k: int | None = None,
    stop: Sequence[int] | None = None,
    use_cache: bool = True,
) -> Generated:
    """At most `tokens` ids after the ids of `prompt`, each drawn from softmax(logits / temperature).

    Only the `top_k` likeliest are drawn from where it is given; temperature 0 takes the likeliest always. One
    random number a token from a stream of its own, so equal seeds give equal texts and the same model with and
    without a cache the same ids. Ends early after the ids `stop`. Raises ValueError for settings out of range,
    ids outside the vocabulary, an empty prompt, and logits that are not finite.
    """
    _check(model, prompt, tokens=tokens, seed=seed, temperature=temperature, top_k=top_k, stop=stop)
    context = model.config.context_length
    draw = stream_generator(seed, "generate")
    was_training = model.training
    model.eval()
    cached = use_cache and model.caches
    ids = list(prompt)
    try:
        with torch.inference_mode():
            next_logits = _reader(model, cached)
            while len(ids) < len(prompt) + tokens and not _ends_with(ids[len(prompt) :], stop):
                ids.append(_choose(next_logits(ids), temperature, top_k, draw))
    finally:
        model.train(was_training)
    new = ids[len(prompt) :]
    # The last id is written and not read: a text of context_length + 1 ids fits.
    first_moved = max(0, context + 1 - len(prompt))
    return Generated(
        ids=new,
        unread=max(0, len(prompt) - context),
        moved_from=first_moved if first_moved < len(new) else None,
        stopped=_ends_with(new, stop),
        cached=cached,
        sees_future=not is_causal(model.config),
    )


def continue_text(
    model: CharLM,
    tokenizer: Tokenizer,
    prompt: str,
    *,
    tokens: int,
    seed: int,
    temperature: float | int = 1.0,
    top_k: int | None = None,
    stop: str | None = None,
    use_cache: bool = True,
) -> Continuation:
    """The same from text to text. A prompt is read as everywhere: lookalikes as what they look like, unknown
    characters left out (`reading.unknown()` says which). An empty one starts from a newline, where the training
    text has any. `stop` is kept at the end of the text.

    Raises ValueError as `generate` does, for a prompt of which no character is known, and for a `stop` that
    the model cannot write.
    """
    reading = tokenizer.read(prompt)
    if prompt and not len(reading.ids):
        raise ValueError(
            f"prompt: expected text that the run can read, got {len(reading.characters)} characters unknown to it; "
            "write with the characters of its training text"
        )
    generated = generate(
        model,
        reading.ids.tolist() if prompt else _start(tokenizer),
        tokens=tokens,
        seed=seed,
        temperature=temperature,
        top_k=top_k,
        stop=_stop_ids(tokenizer, stop),
        use_cache=use_cache,
    )
    text = tokenizer.decode(generated.ids)
    return Continuation(text, reading, None if prompt else START, generated)


def _start(tokenizer: Tokenizer) -> list[int]:
    start = tokenizer.read(START)
    if not start.seen.all():
        raise ValueError(
            "prompt: expected some text, got an empty one, and the run knows no newline to start from; write a prompt"
        )
    return start.ids.tolist()


def _stop_ids(tokenizer: Tokenizer, stop: str | None) -> list[int] | None:
    if stop is None:
        return None
    try:
        return tokenizer.encode(stop).tolist()
    except ValueError as error:
        raise ValueError(f"stop: {error}") from None


def _reader(model: CharLM, cached: bool) -> Callable[[list[int]], Float[Tensor, " vocabulary"]]:
    """Gives the logits after a text that grows by one id between calls, from its last context_length ids."""
    device = model.token_embedding.weight.device
    context = model.config.context_length
    pasts = [Past() for _ in model.attentions]
    read = 0

    def next_logits(ids: list[int]) -> Tensor:
        nonlocal read
        if not cached or len(ids) > context:
            return model(torch.tensor([ids[-context:]], device=device))[0, -1]
        while True:
            logits = model.next_logits(torch.tensor([ids[read]], device=device), read, pasts)
            read += 1
            if read == len(ids):
                return logits[0]

    return next_logits


def _choose(
    logits: Float[Tensor, " vocabulary"], temperature: float | int, top_k: int | None, draw: torch.Generator
) -> int:
    """The id at which the cumulative probability passes one uniform random number."""
    logits = logits.double().cpu()
    if not bool(logits.isfinite().all()):
        raise ValueError(
            "generate: expected finite logits, got nan or inf; the training of this run diverged"
        )
    if temperature == 0:
        return int(logits.argmax())
    if top_k is not None and top_k < len(logits):
        kept = logits.topk(top_k).indices
        logits = torch.full_like(logits, -math.inf).index_copy(0, kept, logits[kept])
    # From the largest logit down, so that a tiny temperature overflows nowhere.
    cumulative = ((logits - logits.max()) / temperature).softmax(dim=0).cumsum(dim=0)
    point = torch.rand((), generator=draw, dtype=torch.float64) * cumulative[-1]
    # Rounding may lift the point to the very end: then the first id that reaches it.
    return int(torch.minimum(torch.searchsorted(cumulative, point, right=True), cumulative.argmax()))


def _ends_with(ids: Sequence[int], stop: Sequence[int] | None) -> bool:
    return stop is not None and list(ids[-len(stop) :]) == list(stop)


def _check(
    model: CharLM,
    prompt: Sequence[int],
    *,
    tokens: int,
    seed: int,
    temperature: float | int,
    top_k: int | None,
    stop: Sequence[int] | None,
) -> None:
    vocabulary = model.config.vocabulary_size
    if not len(prompt):
        raise ValueError("generate: expected a prompt of at least one id, got none; begin with one")
    if outside := [index for index in (*prompt, *(stop or ())) if not 0 <= index < vocabulary]:
        raise ValueError(
            f"generate: expected ids from 0 to {vocabulary - 1}, got {outside[0]}; choose another"
        )
    if stop is not None and not len(stop):
        raise ValueError("stop: expected at least one character, got an empty text; leave it out")
    if tokens < 0 or seed < 0:
        name, value = ("tokens", tokens) if tokens < 0 else ("seed", seed)
        raise ValueError(f"{name}: expected at least 0, got {value}; choose another")
    if not (math.isfinite(temperature) and temperature >= 0):
        raise ValueError(f"temperature: expected 0 or more, got {temperature}; 1 draws as the model learned")
    if top_k is not None and top_k < 1:
        raise ValueError(f"top-k: expected at least 1, got {top_k}; leave it out to draw from all tokens")
