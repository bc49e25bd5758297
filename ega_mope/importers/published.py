"""State dicts of the paper's published script (arXiv 2605.26355)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from ega_mope.config import ModelConfig, Plain
from ega_mope.importers.state import State, check_tied, misfits_explained, model_with
from ega_mope.model import CharLM
from ega_mope.positions.sinusoidal import inverse_frequencies

ROUNDING = 1e-2
"""How far a stored table may be from the computed one, relative to 1: half precision rounds by 0.4 %."""


def from_published_state(state: Mapping[str, Any]) -> CharLM:
    """The model in a state dict of the paper's published script (arXiv 2605.26355), sizes from its keys.

    Understands its dot product and EGA (whose gate norm is `sequence`) with learned, sinusoidal, rotary
    (on top of learned) and Morlet positions. Prefixes of DataParallel and torch.compile are taken off;
    half-precision weights become float32, exactly. Causal masks and the energy's bias, which the
    z-normalisation cancels, are left out; fixed tables are held against ours. ValueError in one line for
    an unknown or a missing key, an untied head, weights that are not finite.
    """
    s = State(state)
    embedding = s.take("tok_emb.weight")
    check_tied(s.take("head.weight"), embedding)
    n_layers, n_heads = s.count(r"blocks\.(\d+)\."), s.count(r"blocks\.0\.heads\.(\d+)\.")
    if not n_layers or not n_heads or embedding.ndim != 2:
        raise ValueError("state: expected blocks.0.heads.0 and so on, got none; it is of another layout")
    gated = "blocks.0.heads.0.tau" in s
    attention: Plain = {"name": "ega", "gate_norm": "sequence"} if gated else {"name": "dot"}
    context_length = next(
        (len(s.left[n]) for n in ("pos_emb.weight", "pe.pe", "pe.pos", "blocks.0.heads.0.tril") if n in s), 0
    )
    if not context_length:
        raise ValueError(
            "state: expected pos_emb.weight, pe.pe or pe.pos, which say the context length, got none"
        )
    with misfits_explained():
        position, weights = _published_position(s, n_layers, n_heads, embedding.shape[1])
        config = ModelConfig(
            vocabulary_size=embedding.shape[0],
            context_length=context_length,
            n_layers=n_layers,
            n_heads=n_heads,
            d_model=embedding.shape[1],
            attention=attention,
            position=position,
        )
        weights |= {"token_embedding.weight": embedding, **s.take_pair("ln_f", "norm_final")}
        for layer in range(n_layers):
            weights |= _published_block(s, f"blocks.{layer}", n_heads, gated)
        s.drop(r"blocks\.\d+\.heads\.\d+\.(tril|proj\.bias)" if gated else r"blocks\.\d+\.heads\.\d+\.tril")
        s.drop(r"pe\.pos")
        s.finish()
        return model_with(config, weights)


def _published_position(
    s: State, n_layers: int, n_heads: int, d_model: int
) -> tuple[Plain, dict[str, Tensor]]:
    """The position encoding that the keys name, and its weights."""
    if "pe.log_omega" in s:
        return {"name": "mope"}, {
            f"position.{name}": s.take(f"pe.{name}") for name in ("log_omega", "log_sigma")
        }
    if "pe.pe" in s:
        table = s.take("pe.pe")
        angle = torch.arange(len(table))[:, None] * inverse_frequencies(d_model, 10000.0)
        _check_table("pe.pe", table, torch.stack([angle.sin(), angle.cos()], dim=-1).flatten(1))
        return {"name": "sinusoidal", "amplitude": 1.0}, {}
    weights = {"position.table.weight": s.take("pos_emb.weight")}
    if "blocks.0.heads.0.theta" not in s:
        return {"name": "learned"}, weights
    for name in [
        f"blocks.{layer}.heads.{head}.theta" for layer in range(n_layers) for head in range(n_heads)
    ]:
        _check_table(name, s.take(name), inverse_frequencies(d_model // n_heads, 10000.0))
    return {"name": "rope", "learned_table": True}, weights


def _published_block(s: State, block: str, n_heads: int, gated: bool) -> dict[str, Tensor]:
    def heads(part: str) -> Tensor:
        return torch.cat([s.take(f"{block}.heads.{head}.{part}") for head in range(n_heads)])

    attention = f"{block}.attention"
    weights = {
        f"{attention}.qkv.weight": torch.cat([heads(f"{n}.weight") for n in ("query", "key", "value")]),
        **s.take_pair(f"{block}.proj", f"{attention}.out"),
        **s.take_pair(f"{block}.ln1", f"{block}.norm_attention"),
        **s.take_pair(f"{block}.ln2", f"{block}.norm_mlp"),
        **s.take_pair(f"{block}.ff.0", f"{block}.mlp.0"),
        **s.take_pair(f"{block}.ff.2", f"{block}.mlp.2"),
    }
    if gated:
        weights |= {
            f"{attention}.signal.weight": heads("proj.weight"),
            f"{attention}.threshold": heads("tau"),
            f"{attention}.sharpness": heads("alpha"),
        }
    return weights


def _check_table(name: str, stored: Tensor, computed: Tensor) -> None:
    if stored.shape != computed.shape or not torch.allclose(
        stored.double(), computed.double(), rtol=ROUNDING, atol=ROUNDING
    ):
        raise ValueError(f"state: expected the published script's fixed table in {name!r}, got another one")
