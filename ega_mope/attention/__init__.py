"""Attentions by name. A new one is a file in this folder and a line here."""

from ega_mope.attention.base import Attention
from ega_mope.attention.dot import DotAttention
from ega_mope.attention.ega import EnergyGatedAttention
from ega_mope.attention.trace import Trace

ATTENTIONS: dict[str, type[Attention]] = {
    "dot": DotAttention,
    "ega": EnergyGatedAttention,
}

__all__ = ["ATTENTIONS", "Attention", "Trace"]
