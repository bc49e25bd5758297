"""Attentions by name. A new one is a file in this folder and a line here."""

from ega_mope.attention.base import Attention
from ega_mope.attention.conv import ConvolutionalAttention
from ega_mope.attention.dot import DotAttention
from ega_mope.attention.ega import EnergyGatedAttention
from ega_mope.attention.multi_quantity import MultiQuantityAttention
from ega_mope.attention.past import Past
from ega_mope.attention.scale_heads import ScaleInitialisedAttention
from ega_mope.attention.trace import Trace

ATTENTIONS: dict[str, type[Attention]] = {
    "dot": DotAttention,
    "ega": EnergyGatedAttention,
    "conv": ConvolutionalAttention,
    "multi_quantity": MultiQuantityAttention,
    "scale_heads": ScaleInitialisedAttention,
}

__all__ = ["ATTENTIONS", "Attention", "Past", "Trace"]
