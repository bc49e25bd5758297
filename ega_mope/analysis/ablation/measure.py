"""What a change does to losses and to predictions, window by window, beside the unchanged model."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

from ega_mope.analysis.ablation.changes import Change
from ega_mope.attention import Trace
from ega_mope.model import CharLM
from ega_mope.training import token_losses

WINDOWS_AT_ONCE = 16

Progress = Callable[[int, int], None]
"""Called with the window readings done and those in all."""


@dataclass(frozen=True)
class Effects:
    """Mean loss of each window, nats per token: `before` unchanged, `after` with each change; and `kl`, the
    mean over a window's tokens of KL(unchanged ‖ changed), nats per token."""

    before: Float[np.ndarray, " window"]
    after: Float[np.ndarray, "change window"]
    kl: Float[np.ndarray, "change window"]


@torch.inference_mode()
def effects(
    model: CharLM,
    windows: Int[Tensor, "window time_plus_one"],
    changes: Sequence[Change],
    progress: Progress = lambda done, total: None,
) -> Effects:
    """Every change on every window. `model` is changed and restored on the way: pass a copy of a shared one."""
    total, done = len(windows) * (len(changes) + 1), 0
    parts = []
    for batch in windows.split(WINDOWS_AT_ONCE):
        batch = batch.to(model.token_embedding.weight.device)
        inputs, targets = batch[:, :-1], batch[:, 1:]
        logits, trace = model.trace(inputs, ("residual",))
        streams = trace["residual"]  # (window, layer + 1, time, d_model)
        log_before = logits.double().log_softmax(dim=-1)
        losses = [token_losses(logits, targets).mean(dim=1)]
        divergences = []
        for change in changes:
            done += len(batch)
            progress(done, total)
            with change.made(model):
                changed = _changed_logits(model, inputs, streams, change)
            losses.append(token_losses(changed, targets).mean(dim=1))
            divergences.append(_divergence(log_before, changed.double().log_softmax(dim=-1)))
        done += len(batch)
        progress(done, total)
        parts.append((torch.stack(losses).double().cpu(), torch.stack(divergences).cpu()))
    losses_by_window = torch.cat([part[0] for part in parts], dim=1).numpy()
    return Effects(losses_by_window[0], losses_by_window[1:], torch.cat([p[1] for p in parts], dim=1).numpy())


def _changed_logits(
    model: CharLM,
    inputs: Int[Tensor, "window time"],
    streams: Float[Tensor, "window streams time d_model"],
    change: Change,
) -> Float[Tensor, "window time vocabulary"]:
    """The changed model's logits; what enters the first block that changes is not computed again."""
    if change.first_layer == 0:
        return model(inputs)
    x, positions = streams[:, change.first_layer], torch.arange(inputs.shape[1], device=inputs.device)
    for block in list(model.blocks)[change.first_layer :]:
        x = block(x, model.position, positions, Trace(()))
    return torch.nn.functional.linear(model.norm_final(x), model.token_embedding.weight)


def _divergence(
    log_p: Float[Tensor, "window time v"], log_q: Float[Tensor, "window time v"]
) -> Float[Tensor, " window"]:
    """Σ p (log p − log q), the mean over a window's tokens; a p of 0 adds nothing."""
    return (log_p.exp() * (log_p - log_q)).sum(dim=-1).mean(dim=1)
