"""Query-key correlation measured on a text: at lags for one pair, and by distance for each head."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import torch
from jaxtyping import Float, Int

from ega_mope.analysis.windows import side_by_side
from ega_mope.model import CharLM
from ega_mope.text import Tokenizer

if TYPE_CHECKING:
    import pandas as pd

MOST_WINDOWS = 64
WINDOWS_AT_ONCE = 8


def lag_correlation(
    query: Float[np.ndarray, "time d_head"], key: Float[np.ndarray, "time d_head"], i: int, j: int
) -> Float[np.ndarray, " lag"]:
    """C_ij(ℓ) = q_i·k_{j−ℓ}/√d_head for ℓ = 0 … j; at larger lags there is no token.

    Dot-product attention scores the pair (i, j) by ℓ = 0 alone (arXiv 2605.26355, section 3).
    """
    return key[j::-1] @ query[i] / math.sqrt(query.shape[-1])


def score_by_distance(
    query: Float[np.ndarray, "... time d_head"], key: Float[np.ndarray, "... time d_head"]
) -> Float[np.ndarray, "... time"]:
    """S(δ) = mean over i ≥ δ of q_i·k_{i−δ}/√d_head, for δ = 0 … time − 1."""
    return mean_by_distance(query @ np.swapaxes(key, -1, -2) / math.sqrt(query.shape[-1]))


def mean_by_distance(values: Float[np.ndarray, "... query key"]) -> Float[np.ndarray, "... time"]:
    """The mean of values[i, i − δ] over the queries i ≥ δ, for δ = 0 … time − 1."""
    time = values.shape[-1]
    means = [values.diagonal(-distance, -2, -1).mean(axis=-1) for distance in range(time)]
    return np.stack(means, axis=-1)


def profile_by_distance(
    weight: Float[np.ndarray, "... query key"],
) -> Float[np.ndarray, "... key"]:
    """Where the weight of these queries, the last of a window, goes: the mean over all of them of the weight
    at distance δ = 0 … keys − 1, 0 where there is no such key; it sums to 1."""
    queries, keys = weight.shape[-2:]
    first = keys - queries
    sums = [weight.diagonal(first - back, -2, -1).sum(axis=-1) for back in range(keys)]
    return np.stack(sums, axis=-1) / queries


def even_attention(time: int) -> Float[np.ndarray, " time"]:
    """The mean weight by distance if every query spread its attention evenly over what it may see."""
    share = 1.0 / np.arange(1, time + 1)
    return np.array([share[distance:].mean() for distance in range(time)])


@dataclass(frozen=True, kw_only=True)
class Correlation:
    """What the heads of one model do on one text, read in whole windows side by side.

    Of the first window: `tokens` (as text), `query`, `key`, `weight` (softmax attention before any gate).
    Of each window, by distance in tokens: `scores` S(δ), `attentions` the mean weight over the queries
    that have such a key, `profiles` the mean weight over the queries of the window's second half, 0
    where there is no such key, so that it sums to 1. Windows beyond MOST_WINDOWS, and a rest shorter
    than a window, are left out: `tokens_read` of `tokens_in_all` tokens were read.
    """

    tokens: tuple[str, ...]
    query: Float[np.ndarray, "layer head time d_head"]
    key: Float[np.ndarray, "layer head time d_head"]
    weight: Float[np.ndarray, "layer head time time"]
    scores: Float[np.ndarray, "window layer head time"]
    attentions: Float[np.ndarray, "window layer head time"]
    profiles: Float[np.ndarray, "window layer head time"]
    tokens_read: int
    tokens_in_all: int

    @property
    def windows(self) -> int:
        return len(self.scores)

    @property
    def score(self) -> Float[np.ndarray, "layer head time"]:
        """S(δ), the mean over the windows."""
        return self.scores.mean(axis=0)

    @property
    def attention(self) -> Float[np.ndarray, "layer head time"]:
        """The mean weight by distance, over the windows."""
        return self.attentions.mean(axis=0)

    @property
    def distances(self) -> Float[np.ndarray, "window layer head"]:
        """How far back a head looks on average, Σ_j A_ij (i − j) in tokens, over each window's second half."""
        return self.profiles @ np.arange(self.profiles.shape[-1])

    @property
    def distance(self) -> Float[np.ndarray, "layer head"]:
        """The same, the mean over the windows."""
        return self.distances.mean(axis=0)

    def at_lags(self, layer: int, head: int, i: int, j: int) -> pd.DataFrame:
        """C_ij(ℓ) of one pair as a table: lag, the key's place and text, value."""
        import pandas as pd

        values = lag_correlation(self.query[layer, head], self.key[layer, head], i, j)
        places = range(j, -1, -1)
        return pd.DataFrame(
            {
                "lag": range(j + 1),
                "key": places,
                "token": [self.tokens[p] for p in places],
                "correlation": values,
            }
        )

    def grid_table(self, layer: int, head: int, most: int) -> pd.DataFrame:
        """Weights between the first `most` tokens: query, key, their texts, weight."""
        import pandas as pd

        query, key = np.tril_indices(min(most, len(self.tokens)))
        texts = np.array(self.tokens, dtype=object)
        return pd.DataFrame(
            {
                "query": query,
                "query token": texts[query],
                "key": key,
                "key token": texts[key],
                "weight": self.weight[layer, head, query, key],
            }
        )

    def by_distance(self, layer: int) -> pd.DataFrame:
        """S(δ) and mean attention of a layer's heads: distance, queries behind each mean, head, values."""
        import pandas as pd

        heads, time = self.score.shape[1:]
        even = even_attention(time)
        parts = [
            pd.DataFrame(
                {
                    "head": head + 1,
                    "distance": range(time),
                    "queries": self.windows * np.arange(time, 0, -1),
                    "score": self.score[layer, head],
                    "attention": self.attention[layer, head],
                    "even attention": even,
                }
            )
            for head in range(heads)
        ]
        return pd.concat(parts, ignore_index=True)

    def heads_table(self) -> pd.DataFrame:
        """How far back each head looks, in tokens; layers and heads count from 1."""
        import pandas as pd

        layers, heads = self.distance.shape
        places = [(layer, head) for layer in range(layers) for head in range(heads)]
        return pd.DataFrame(
            [
                {"layer": layer + 1, "head": head + 1, "mean distance (tokens)": self.distance[layer, head]}
                for layer, head in places
            ]
        )


def correlate(model: CharLM, tokenizer: Tokenizer, text: str, *, shuffled: bool = False) -> Correlation:
    """Measure `text` in windows of the context length; a shorter text is one window.

    q and k are taken as they are scored, after any rotation; a bias that the position adds to the scores
    is in the attention, not in S(δ). `shuffled` is the control: the same tokens in random order, always
    the same one, so that what is left of a head's habits does not come from what the text says where.
    Raises ValueError where fewer than two tokens are left to read.
    """
    ids = tokenizer.read(text).ids
    if len(ids) < 2:
        raise ValueError(
            f"text: expected at least 2 characters that the run reads, got {len(ids)}; type or choose a longer text"
        )
    if shuffled:
        ids = np.random.default_rng(0).permutation(ids)
    windows = side_by_side(ids, model.config.context_length, MOST_WINDOWS)
    parts = [_measure(model, batch) for batch in torch.from_numpy(windows).split(WINDOWS_AT_ONCE)]
    first = parts[0]
    scores, attentions, profiles = (np.concatenate([part[name] for part in parts]) for name in EACH_WINDOW)
    return Correlation(
        tokens=tuple(tokenizer.decode([one]) for one in windows[0]),
        query=first["query"],
        key=first["key"],
        weight=first["weight"],
        scores=scores,
        attentions=attentions,
        profiles=profiles,
        tokens_read=windows.size,
        tokens_in_all=len(ids),
    )


EACH_WINDOW = ("scores", "attentions", "profiles")


def _measure(model: CharLM, ids: Int[torch.Tensor, "window time"]) -> dict[str, np.ndarray]:
    """Each window's values by distance, and the first window's own matrices."""
    with torch.inference_mode():
        device = model.token_embedding.weight.device
        _, trace = model.trace(ids.to(device), ("query", "key", "weight"))
        query, key, weight = (trace[kind].double().cpu().numpy() for kind in ("query", "key", "weight"))
    later = weight[..., ids.shape[1] // 2 :, :]
    return {
        "query": query[0],
        "key": key[0],
        "weight": weight[0],
        "scores": score_by_distance(query, key),
        "attentions": mean_by_distance(weight),
        "profiles": profile_by_distance(later),
    }
