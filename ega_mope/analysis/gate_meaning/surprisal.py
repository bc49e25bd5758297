"""How surprising each character of a text is to a model: minus the logarithm of its probability."""

from __future__ import annotations

import numpy as np
import torch
from jaxtyping import Float

from ega_mope.analysis.windows import batches, windows_over
from ega_mope.model import CharLM
from ega_mope.text import Reading
from ega_mope.training import token_losses

TOKENS_AT_ONCE = 16_384


def surprisal(model: CharLM, reading: Reading) -> Float[np.ndarray, " character"]:
    """−ln p(character | what came before it in its window) in nats; NaN where nothing is known.

    Read in the windows of `gates`: each token from the window where it has most past. A character of several
    tokens has the sum over them. Unknown for the text's first token, which has no past, and for characters that
    the model reads nothing for. A model that sees the future has looked at what it predicts.
    """
    ids = reading.ids
    found = np.full(len(ids), np.nan)
    device = next(model.parameters()).device
    at_once = max(1, TOKENS_AT_ONCE // model.config.context_length)
    for batch in batches(windows_over(len(ids), model.config.context_length), at_once):
        fed = torch.from_numpy(np.stack([ids[window.start : window.stop] for window in batch])).to(device)
        with torch.inference_mode():
            losses = token_losses(model(fed)[:, :-1], fed[:, 1:]).double().cpu().numpy()
        for window, loss in zip(batch, losses, strict=True):
            first = max(window.first, window.start + 1)
            found[first : window.stop] = loss[first - window.start - 1 :]
    return sum_over_owners(found, reading)


def sum_over_owners(values: Float[np.ndarray, " token"], reading: Reading) -> Float[np.ndarray, " character"]:
    """Sums over each character's tokens; NaN for a character with none, or with one that is NaN."""
    owned = np.bincount(reading.owner, minlength=len(reading.characters)) > 0
    sums = np.bincount(reading.owner, values, minlength=len(reading.characters)).astype(np.float64)
    return np.where(owned, sums, np.nan)
