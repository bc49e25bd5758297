"""How much attention each character receives: the control for a run without gates.

With causal attention an early key is seen by more queries than a late one, and a late query divides its
attention among more keys. So what a key receives is compared with what it would if every query spread
its attention evenly over the keys it may see.
"""

from __future__ import annotations

import numpy as np
import torch
from jaxtyping import Float

from ega_mope.analysis.windows import batches, windows_over
from ega_mope.model import CharLM
from ega_mope.text import Reading

WEIGHTS_AT_ONCE = 2**24


def received_of_weights(
    weight: Float[np.ndarray, "... query key"],
) -> tuple[Float[np.ndarray, "... key"], Float[np.ndarray, " key"]]:
    """What each key gets from the queries after it, Σ_{i>j} A_ij, and under even attention, Σ_{i>j} 1/(i + 1).

    Its own query is left out. The last key of a window has no later query: 0 and 0.
    """
    time = weight.shape[-1]
    later = np.tril(np.ones((time, time)), -1)
    even = (later / np.arange(1, time + 1)[:, None]).sum(axis=0)
    return (weight * later).sum(axis=-2), even


def attention_received(model: CharLM, reading: Reading) -> Float[np.ndarray, "layer head character"]:
    """Attention received from later queries as a multiple of even attention: 1 is neither favoured nor shunned.

    Weights before any gate, summed over both windows (half a context apart) that a token lies in, so that
    all but the last ones are seen by many queries. A character of several tokens has its tokens' sums; NaN
    where no later query sees it.
    """
    config, ids = model.config, reading.ids
    got = np.zeros((config.n_layers, config.n_heads, len(ids)))
    even = np.zeros(len(ids))
    a_window = config.n_layers * config.n_heads * config.context_length**2
    device = next(model.parameters()).device
    for batch in batches(windows_over(len(ids), config.context_length), max(1, WEIGHTS_AT_ONCE // a_window)):
        fed = torch.from_numpy(np.stack([ids[window.start : window.stop] for window in batch])).to(device)
        with torch.inference_mode():
            _, trace = model.trace(fed, ("weight",))
        for window, weight in zip(batch, trace["weight"].double().cpu().numpy(), strict=True):
            keys, evenly = received_of_weights(weight)
            got[..., window.start : window.stop] += keys
            even[window.start : window.stop] += evenly
    size = len(reading.characters)
    expected = np.bincount(reading.owner, even, minlength=size)
    rows = [np.bincount(reading.owner, row, minlength=size) for row in got.reshape(-1, len(ids))]
    sums = np.stack(rows).reshape(*got.shape[:2], size)
    return np.where(expected > 0, sums / np.where(expected > 0, expected, 1.0), np.nan)
