"""State dicts of nanoGPT."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch

from ega_mope.config import ModelConfig
from ega_mope.importers.state import State, check_tied, misfits_explained, model_with
from ega_mope.model import CharLM


def from_nanogpt_state(state: Mapping[str, Any], n_heads: int) -> CharLM:
    """The model in a nanoGPT state dict, sizes but the number of heads from its keys.

    As its model.py stands: exact-erf GELU, tied head. Biases that it goes without become zeros. ValueError
    where the packed q, k, v have a bias that is not zero, which our attention has no place for, and as in
    `from_published_state`.
    """
    s = State(state)
    embedding = s.take("transformer.wte.weight")
    check_tied(s.take("lm_head.weight"), embedding)
    table = s.take("transformer.wpe.weight")
    weights = {"token_embedding.weight": embedding, "position.table.weight": table}
    n_layers = s.count(r"transformer\.h\.(\d+)\.")
    if not n_layers:
        raise ValueError("state: expected transformer.h.0 and so on, got none; it is of another layout")

    def layer(theirs: str, ours: str) -> None:
        weight = s.take(f"transformer.{theirs}.weight")
        bias = f"transformer.{theirs}.bias"
        weights[f"{ours}.weight"] = weight
        weights[f"{ours}.bias"] = s.take(bias) if bias in s else torch.zeros(len(weight))

    layer("ln_f", "norm_final")
    for n in range(n_layers):
        packed = f"transformer.h.{n}.attn.c_attn"
        weights[f"blocks.{n}.attention.qkv.weight"] = s.take(f"{packed}.weight")
        if f"{packed}.bias" in s and s.take(f"{packed}.bias").any():
            raise ValueError(
                f"state: expected no bias on queries, keys and values, got one in {packed!r} that is not zero; "
                "this lab's attention has none, train nanoGPT with bias=False"
            )
        layer(f"h.{n}.attn.c_proj", f"blocks.{n}.attention.out")
        layer(f"h.{n}.ln_1", f"blocks.{n}.norm_attention")
        layer(f"h.{n}.ln_2", f"blocks.{n}.norm_mlp")
        layer(f"h.{n}.mlp.c_fc", f"blocks.{n}.mlp.0")
        layer(f"h.{n}.mlp.c_proj", f"blocks.{n}.mlp.2")
    s.drop(r"transformer\.h\.\d+\.attn\.bias")  # the causal mask, where there is no fused attention
    s.finish()
    with misfits_explained():
        config = ModelConfig(
            vocabulary_size=embedding.shape[0],
            context_length=len(table),
            n_layers=n_layers,
            n_heads=n_heads,
            d_model=embedding.shape[1],
        )
        return model_with(config, weights)
