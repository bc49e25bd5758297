"""Each mechanism's limiting case, and answers worked out by hand, by numpy or by PyWavelets."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import pywt
import torch
from torch import Tensor

from ega_mope.attention import ATTENTIONS, Trace
from ega_mope.attention.base import QUERY_BLOCK, fused_attention, softmax_weights
from ega_mope.attention.conv import lagged_keys
from ega_mope.attention.gate_norms import GATE_NORMS, causal_norm, sequence_norm, visible_norm
from ega_mope.attention.multi_quantity import key_biased_attention
from ega_mope.config import ExperimentConfig, ModelConfig, Plain, TrainConfig
from ega_mope.gate_signals import GATE_SIGNALS
from ega_mope.gate_signals.filters import FILTER_LENGTHS, causal_filter
from ega_mope.model import CharLM, build_model
from ega_mope.positions import POSITIONS
from ega_mope.positions.alibi import alibi_slopes
from ega_mope.training import Learned, train

TIME = 40
WIDTH = 16


def model_of(attention: Plain, position: Plain | None = None, **sizes: Any) -> CharLM:
    """A float64 model with weights of ordinary size; at one seed all share what they have in common."""
    shape = {"vocabulary_size": 9, "context_length": TIME, "n_layers": 2, "n_heads": 4, "d_model": WIDTH}
    config = ModelConfig(**{**shape, **sizes}, attention=attention, position=position or {"name": "learned"})
    model = build_model(config, seed=2).double().eval()
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.ndim >= 2:
                parameter.mul_(10.0)
    return model


def ids_of(time: int = TIME) -> Tensor:
    return torch.randint(9, (2, time), generator=torch.Generator().manual_seed(1))


def numbers(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def gap(one: CharLM, other: CharLM) -> float:
    with torch.no_grad():
        return float((one(ids_of()) - other(ids_of())).abs().max())


def with_parameters(model: CharLM, part: str, value: float) -> CharLM:
    """The same model with every parameter whose name holds `part` set to `value`."""
    found = [parameter for name, parameter in model.named_parameters() if part in name]
    assert found
    with torch.no_grad():
        for parameter in found:
            parameter.fill_(value)
    return model


# ---- limiting cases, one for every registry entry


def dot() -> CharLM:
    return model_of({"name": "dot"})


def with_position(name: str, **settings: Any) -> CharLM:
    return model_of({"name": "dot"}, {"name": name, **settings})


def limit_dot() -> float:
    """All keys alike: every query takes the mean of the values so far."""
    v = numbers(1, 1, 5, 4)
    y = fused_attention(numbers(1, 1, 5, 4), torch.ones_like(v), v, None, d_head=4, dropout=0.0)
    means = v.cumsum(2) / torch.arange(1, 6, dtype=torch.float64)[:, None]
    return float((y - means).abs().max())


def limit_ega() -> float:
    return gap(with_parameters(model_of({"name": "ega"}), "threshold", -1e9), dot())


def limit_conv() -> float:
    model = model_of({"name": "conv"})
    assert gap(model, dot()) > 1e-3
    with torch.no_grad():
        for attention in model.attentions:
            attention.lag_logit.view(4, -1)[:, 0] = 1e9  # type: ignore[operator]
    return gap(model, dot())


def limit_multi_quantity() -> float:
    model = model_of({"name": "multi_quantity"})
    assert gap(model, dot()) > 1e-6
    return gap(with_parameters(model, "strength", 0.0), dot())


def limit_scale_heads() -> float:
    return gap(model_of({"name": "scale_heads"}, n_heads=1), model_of({"name": "dot"}, n_heads=1))


def limit_learned() -> float:
    return gap(with_parameters(with_position("learned"), "position", 0.0), with_position("none"))


def limit_none() -> float:
    """Without positions one layer's last logits do not know the order of the tokens before."""
    model = model_of({"name": "dot"}, {"name": "none"}, n_layers=1)
    ids = ids_of()
    turned = torch.cat([ids[:, :-1].flip(1), ids[:, -1:]], dim=1)
    return float((model(ids) - model(turned))[:, -1].abs().max())


def position_of(name: str, **settings: Any) -> Any:
    return with_position(name, **settings).position


def limit_sinusoidal() -> float:
    """MoPE at the same ω with σ → ∞ has the same sines and cosines, cosine first."""
    sinusoidal, mope = position_of("sinusoidal"), position_of("mope", admissibility="free")
    mope.log_omega.copy_(sinusoidal.omega.log())
    mope.log_sigma.fill_(30.0)
    at = torch.arange(TIME)
    pairs = sinusoidal.encode(at).unflatten(1, (-1, 2)).flip(-1).flatten(1)
    return float((pairs - mope.encode(at)).abs().max())


def limit_rope() -> float:
    """Turning all positions by the same step changes no score."""
    rope, q, k = position_of("rope"), numbers(1, 4, 6, 4), numbers(1, 4, 6, 4, seed=1)
    scores = [rope.rotate(q, at) @ rope.rotate(k, at).mT for at in (torch.arange(6), torch.arange(6) + 100)]
    return float((scores[0] - scores[1]).abs().max())


def limit_mope_relative() -> float:
    model = with_position("mope_relative")
    assert gap(model, with_position("rope")) > 1e-3
    return gap(with_parameters(model, "log_sigma", 30.0), with_position("rope"))


def limit_alibi() -> float:
    model = with_position("alibi")
    assert gap(model, with_position("none")) > 1e-3
    model.position.slope.zero_()  # type: ignore[operator]
    return gap(model, with_position("none"))


def signal_of(name: str, stream: Tensor, x: Tensor | None = None, heads: int = 2) -> Tensor:
    """The signal of a text whose residual stream is `stream` [time] in every channel, [head, time]."""
    signal = GATE_SIGNALS[name](ModelConfig(n_heads=heads, d_model=4)).double()
    for parameter in signal.parameters():
        if parameter.ndim == 2:
            torch.nn.init.eye_(parameter)
    wide = stream.double()[None, :, None].expand(1, -1, 4)
    return signal(wide if x is None else x, wide)[0].detach()


def limit_linear() -> float:
    x = numbers(1, 7, 4)
    return float((signal_of("linear", torch.zeros(7), x) - x[0, :, :2].mT).abs().max())


def limit_flux() -> float:
    rising = torch.arange(10) * -0.25
    expected = torch.tensor([0.0] + [0.25] * 9, dtype=torch.float64)
    return float((signal_of("flux", rising) - expected).abs().max())


def limit_constant(name: str) -> float:
    return float((signal_of(name, torch.ones(50))[:, 30:] - 1).abs().max())


def morlet_by_hand(n: int, omega: float, sigma: float) -> np.ndarray:
    t = np.arange(n) - (n - 1) / 2
    taps = np.exp(-(t**2) / (2 * sigma**2)) * np.exp(1j * omega * t)
    return taps / np.sqrt((np.abs(taps) ** 2).sum())


def limit_impulse(name: str) -> float:
    expected = np.zeros(50)
    for n in FILTER_LENGTHS:
        omega = math.pi / n
        expected[5 : 5 + n] += np.abs(morlet_by_hand(n, omega, 5 / omega)) ** 2 / 4
    impulse = torch.zeros(50)
    impulse[5] = 1.0
    return float(np.abs(signal_of(name, impulse).numpy() - expected).max())


def limit_vanishing(name: str, moments: int) -> float:
    """A polynomial below the vanishing moments has no detail, one more degree has some."""
    t = torch.linspace(-1, 1, 30)
    assert signal_of(name, t**moments)[:, 8:].abs().max() > 1e-9
    return float(signal_of(name, t.double() ** (moments - 1))[:, 8:].abs().max())


LIMITS: dict[str, dict[str, Callable[[], float]]] = {
    "attention": {
        "dot": limit_dot,
        "ega": limit_ega,
        "conv": limit_conv,
        "multi_quantity": limit_multi_quantity,
        "scale_heads": limit_scale_heads,
    },
    "signal": {
        "linear": limit_linear,
        "flux": limit_flux,
        "phase": lambda: limit_constant("phase"),
        "phase_coherence": lambda: limit_constant("phase_coherence"),
        "morlet": lambda: limit_impulse("morlet"),
        "morlet_parametric": lambda: limit_impulse("morlet_parametric"),
        "daubechies2": lambda: limit_vanishing("daubechies2", 2),
        "daubechies4": lambda: limit_vanishing("daubechies4", 4),
    },
    "position": {
        "learned": limit_learned,
        "sinusoidal": limit_sinusoidal,
        "rope": limit_rope,
        "mope": limit_sinusoidal,
        "mope_relative": limit_mope_relative,
        "alibi": limit_alibi,
        "none": limit_none,
    },
}


REGISTRIES: dict[str, dict[str, Any]] = {
    "attention": ATTENTIONS,
    "signal": GATE_SIGNALS,
    "position": POSITIONS,
}


@pytest.mark.parametrize(
    ("kind", "name"), [(kind, name) for kind, registry in REGISTRIES.items() for name in registry]
)
def test_limiting_case(kind: str, name: str) -> None:
    # Logarithms of ω and σ are kept in float32.
    tolerance = 1e-6 if name in ("morlet_parametric", "mope_relative", "sinusoidal", "mope") else 1e-12
    with torch.no_grad():
        assert LIMITS[kind][name]() < tolerance


# ---- gate norm `visible`


def test_visible_norm_compares_with_the_keys_a_query_sees() -> None:
    energy = numbers(2, 3, 12) * 4 + 7
    z = visible_norm(energy)
    for i in range(12):
        seen = energy[..., : i + 1].numpy()
        spread = seen.std(-1, keepdims=True)
        expected = np.divide(seen - seen.mean(-1, keepdims=True), spread, where=spread > 0, out=seen * 0)
        np.testing.assert_allclose(z[..., i, : i + 1].numpy(), expected, atol=1e-12)
    assert (z.triu(1) == 0).all()
    torch.testing.assert_close(z.diagonal(dim1=-2, dim2=-1), causal_norm(energy))
    torch.testing.assert_close(z[..., -1, :], sequence_norm(energy))


@pytest.mark.parametrize("value", [0.0, 5.3])
def test_visible_norm_of_constant_energies_is_zero(value: float) -> None:
    energy = torch.full((1, 2, 6), value, requires_grad=True)
    z = visible_norm(energy)
    z.sum().backward()
    assert (z == 0).all()
    assert energy.grad is not None
    assert energy.grad.isfinite().all()


@pytest.mark.parametrize("apply", ["renormalised", "plain"])
def test_visible_is_sequence_for_the_last_query_of_one_layer(apply: str) -> None:
    visible, sequence = (
        model_of({"name": "ega", "gate_norm": norm, "apply": apply}, n_layers=1)
        for norm in ("visible", "sequence")
    )
    apart = (visible(ids_of()) - sequence(ids_of())).abs()
    assert apart[:, -1].max() < 1e-12
    assert apart[:, :-1].max() > 1e-3


def test_visible_gates_are_traced_for_each_pair() -> None:
    model = model_of({"name": "ega", "gate_norm": "visible"})
    causal = model_of({"name": "ega", "gate_norm": "causal"})
    with torch.no_grad():
        _, trace = model.trace(ids_of(), ("gate", "weight", "share"))
        _, causal_trace = causal.trace(ids_of(), ("gate",))
    gate = trace["gate"]
    assert gate.shape == (2, 2, 4, TIME, TIME)
    own = gate.diagonal(dim1=-2, dim2=-1)
    torch.testing.assert_close(own[:, 0], causal_trace["gate"][:, 0])
    assert (gate.triu(1) == 0).all()
    gated = trace["weight"] * gate
    torch.testing.assert_close(trace["share"], gated / gated.sum(-1, keepdim=True))


def test_visible_drops_weights_before_it_renormalises() -> None:
    """So a query's shares still sum to 1: values that are all 1 come out as 1, or 0 where all were dropped."""
    model = model_of({"name": "ega", "gate_norm": "visible"}, dropout=0.4).train()
    attention, x = model.attentions[0], numbers(2, TIME, WIDTH)
    v = torch.ones(2, 4, TIME, 4, dtype=torch.float64)
    y = attention.attend(numbers(2, 4, TIME, 4), numbers(2, 4, TIME, 4, seed=1), v, None, x, x, Trace(()))
    kept = y[y > 0]
    assert len(kept) > 0.9 * y.numel()
    assert (kept - 1).abs().max() < 1e-6


# ---- biases on the scores


@pytest.mark.parametrize(
    ("heads", "slopes"),
    [
        (1, [2**-8]),
        (4, [1 / 4, 1 / 16, 1 / 64, 1 / 256]),
        (8, [1 / 2, 1 / 4, 1 / 8, 1 / 16, 1 / 32, 1 / 64, 1 / 128, 1 / 256]),
        (3, [1 / 16, 1 / 256, 1 / 4]),
        (6, [1 / 4, 1 / 16, 1 / 64, 1 / 256, 1 / 2, 1 / 8]),
    ],
)
def test_alibi_slopes(heads: int, slopes: list[float]) -> None:
    torch.testing.assert_close(alibi_slopes(heads), torch.tensor(slopes, dtype=torch.float64))


def test_alibi_takes_its_slope_off_for_each_token_back() -> None:
    bias = with_position("alibi").position.bias(torch.tensor([7, 9]), torch.tensor([0, 7, 9]))
    assert bias.shape == (4, 2, 3)
    assert bias[0].tolist() == [[-7 / 4, 0, 2 / 4], [-9 / 4, -2 / 4, 0]]


def attention_by_hand(q: Tensor, k: Tensor, v: Tensor, bias: Tensor) -> Tensor:
    return softmax_weights(q.double(), k.double(), lambda rows: bias[..., rows, :]) @ v.double()


def half(*shape: int, seed: int) -> Tensor:
    return numbers(*shape, seed=seed).bfloat16()


def test_a_bias_keeps_its_digits_in_half_precision() -> None:
    q, k, v = half(1, 2, 9, 16, seed=1), half(1, 2, 9, 16, seed=2), half(1, 2, 9, 16, seed=3)
    bias = numbers(2, 9, 9, seed=4) + 300.0
    y = fused_attention(q, k, v, lambda rows: bias[:, rows], d_head=16, dropout=0.0)
    assert (y.double() - attention_by_hand(q, k, v, bias)).abs().max() < 0.02


def test_a_key_bias_keeps_its_digits_in_half_precision() -> None:
    q, k, v = half(1, 2, 9, 8, seed=1), half(1, 2, 9, 8, seed=2), half(1, 2, 9, 8, seed=3)
    key_bias = numbers(1, 2, 9, seed=4).float() + 300.0
    y = key_biased_attention(q, k, v, key_bias, None, 0.0)
    by_hand = attention_by_hand(q, k, v, key_bias.double()[:, :, None].expand(-1, -1, 9, -1))
    assert (y.double() - by_hand).abs().max() < 0.02


@pytest.mark.parametrize("position", ["alibi", "mope_relative"])
@pytest.mark.parametrize("attention", ["dot", "ega", "multi_quantity"])
def test_long_texts_are_read_in_query_blocks(attention: str, position: str) -> None:
    model = model_of({"name": attention}, {"name": position}, n_layers=1)
    ids = ids_of(QUERY_BLOCK + 40)[:1]
    whole = model(ids).detach()
    with torch.no_grad():
        assert (model(ids) - whole).abs().max() < 1e-12


def test_mope_relative_weighs_by_its_kernel() -> None:
    model = with_position("mope_relative")
    with torch.no_grad():
        for attention in model.attentions:
            attention.qkv.weight.view(3, -1)[:2] = 0.0
        _, trace = model.trace(ids_of(), ("weight",))
    sigma = model.position.learned()["head_sigma"]
    assert sigma.tolist() == pytest.approx([2 * 20 ** (h / 4) for h in (1, 2, 3, 4)])
    lag = torch.arange(TIME, dtype=torch.float64)
    kernel = torch.exp(-(lag**2) / (4 * sigma[:, None] ** 2)).flip(-1)
    torch.testing.assert_close(trace["weight"][0, 0, :, -1], kernel / kernel.sum(-1, keepdim=True))


@pytest.mark.parametrize(
    ("position", "longest"),
    [
        ({"name": "learned"}, TIME),
        ({"name": "rope", "learned_table": True}, TIME),
        ({"name": "rope"}, None),
        ({"name": "mope_relative"}, None),
        ({"name": "alibi"}, None),
        ({"name": "none"}, None),
    ],
)
def test_positions_say_how_far_they_reach(position: Plain, longest: int | None) -> None:
    model = model_of({"name": "dot"}, position)
    assert model.position.longest() == longest
    if longest is None:
        assert model(ids_of(4 * TIME)).isfinite().all()


# ---- convolutional attention


def test_lagged_keys_are_a_sum_over_the_past() -> None:
    k, w = numbers(2, 3, 10, 4), numbers(3, 5, seed=1)
    expected = np.zeros(k.shape)
    for lag in range(5):
        for j in range(lag, 10):
            expected[:, :, j] += w.numpy()[:, lag, None] * k.numpy()[:, :, j - lag]
    np.testing.assert_allclose(lagged_keys(k, w).numpy(), expected, atol=1e-12)
    np.testing.assert_allclose(lagged_keys(k[:, :, :2], w).numpy(), expected[:, :, :2], atol=1e-12)


@pytest.mark.parametrize("lags", [0, 4, 8])
def test_lag_weights_start_near_lag_zero(lags: int) -> None:
    weight = model_of({"name": "conv", "lags": lags}).learned()["attention.lag_weight"]
    assert weight.shape == (2, 4, lags + 1)
    torch.testing.assert_close(weight.sum(-1), torch.ones(2, 4, dtype=torch.float64))
    assert (weight[..., 0] > 0.8).all()


def test_no_lags_are_dot_product_attention() -> None:
    assert gap(model_of({"name": "conv", "lags": 0}), dot()) == 0.0


# ---- gate signals


def test_causal_filter_is_numpys_convolution() -> None:
    signal, taps = numbers(2, 20), numbers(3, 6, seed=1)
    filtered = causal_filter(signal, taps).numpy()
    for batch in range(2):
        for index in range(3):
            expected = np.convolve(signal[batch].numpy(), taps[index].numpy())[:20]
            np.testing.assert_allclose(filtered[batch, index], expected, atol=1e-12)


@pytest.mark.parametrize(("name", "wavelet"), [("daubechies2", "db2"), ("daubechies4", "db4")])
def test_daubechies_energy_is_pywavelets_detail(name: str, wavelet: str) -> None:
    stream = numbers(32)
    detail = pywt.dwt(stream.numpy(), wavelet, mode="zero")[1]
    np.testing.assert_allclose(signal_of(name, stream)[0, 1::2].numpy(), detail[:16] ** 2, atol=1e-12)


def test_morlet_signals_are_direct_sums() -> None:
    stream = numbers(60)
    filtered = []
    for n in FILTER_LENGTHS:
        omega = math.pi / n
        filtered.append(np.convolve(stream.numpy(), morlet_by_hand(n, omega, 5 / omega))[:60])
    phasors = np.array([part / np.abs(part) for part in filtered])
    expected = {
        "morlet": (np.abs(filtered) ** 2).mean(0),
        "phase": phasors.real.mean(0),
        "phase_coherence": np.abs(phasors.mean(0)),
    }
    for name, values in expected.items():
        np.testing.assert_allclose(signal_of(name, stream)[1].numpy(), values, atol=1e-12, err_msg=name)


def test_parametric_morlet_follows_its_own_scales() -> None:
    signal = GATE_SIGNALS["morlet_parametric"](ModelConfig(n_heads=2, d_model=4)).double()
    stream = numbers(60)
    with torch.no_grad():
        signal.log_omega.view(2, 4)[1] = math.log(0.7)  # type: ignore[operator]
        signal.log_sigma.view(2, 4)[1] = math.log(3.0)  # type: ignore[operator]
    energy = signal(numbers(1, 60, 4), stream[None, :, None].expand(1, -1, 4))[0]
    by_hand = [np.convolve(stream.numpy(), morlet_by_hand(n, 0.7, 3.0))[:60] for n in FILTER_LENGTHS]
    np.testing.assert_allclose(energy[1].detach().numpy(), (np.abs(by_hand) ** 2).mean(0), atol=1e-6)
    assert signal.learned()["filter_sigma"][1].tolist() == pytest.approx([3.0] * 4)


@pytest.mark.parametrize("name", ["phase", "phase_coherence"])
def test_a_silent_stream_has_no_phase(name: str) -> None:
    assert (signal_of(name, torch.zeros(9)) == 0).all()


@pytest.mark.parametrize(
    ("signal", "parameters"),
    [
        ("linear", WIDTH),
        ("flux", WIDTH),
        ("phase", 0),
        ("phase_coherence", 0),
        ("morlet", 0),
        ("morlet_parametric", 8),
        ("daubechies2", 0),
        ("daubechies4", 0),
    ],
)
def test_parameters_of_a_signal_a_head(signal: str, parameters: int) -> None:
    counts = model_of({"name": "ega", "signal": signal}).parameter_counts()
    assert counts["attention_gate"] == 2 * 4 * (parameters + 2)


# ---- multi-quantity attention


@pytest.mark.parametrize("gate_norm", sorted(GATE_NORMS))
def test_quantities_are_added_to_the_scores(gate_norm: str) -> None:
    model = model_of({"name": "multi_quantity", "gate_norm": gate_norm}, n_layers=1)
    strengths = {"energy": 0.5, "phase": -0.7, "flux": 0.3}
    for name, value in strengths.items():
        with_parameters(model, f"strength.{name}", value)
    with torch.no_grad():
        _, trace = model.trace(ids_of(), ("energy", "weight", "share", "residual", "output"))
    energy = trace["energy"][:, 0]
    flux = torch.cat([torch.zeros(2, 4, 1), energy.diff(dim=-1).abs()], dim=-1)
    phase = GATE_SIGNALS["phase"](model.config).double()(trace["residual"][:, 0], trace["residual"][:, 0])
    z = GATE_NORMS[gate_norm].z
    added = 0.5 * z(energy) + 0.3 * z(flux) - 0.7 * (phase if z(energy).ndim == 3 else phase[:, :, None])
    gated = trace["weight"][:, 0] * (added if added.ndim == 4 else added[:, :, None]).exp()
    share = gated / gated.sum(-1, keepdim=True)
    torch.testing.assert_close(trace["share"][:, 0], share)
    assert (share - trace["weight"][:, 0]).abs().max() > 0.05
    with torch.no_grad():
        x = model.blocks[0].norm_attention(trace["residual"][:, 0])  # type: ignore[operator]
        v = model.attentions[0].qkv(x)[..., 2 * WIDTH :].unflatten(-1, (4, -1)).transpose(1, 2)
    torch.testing.assert_close(trace["output"][:, 0], share @ v)


def test_quantities_can_be_switched_off() -> None:
    off = {"name": "multi_quantity", "energy": False, "phase": False, "flux": False}
    assert gap(model_of(off), dot()) < 1e-12
    assert model_of(off).learned() == {}
    shown = model_of({**off, "flux": True}).learned()
    assert {name: value.tolist() for name, value in shown.items()} == {
        "attention.lambda_flux": [pytest.approx([0.01] * 4)] * 2
    }


# ---- scale-initialised heads and frozen priors


def test_louder_heads_by_level() -> None:
    ours, plain = (
        build_model(ModelConfig(n_heads=8, d_model=32, n_layers=1, attention={"name": name}))
        .attentions[0]
        .qkv.weight
        for name in ("scale_heads", "dot")
    )
    ratio = (ours / plain).detach().view(3, 8, -1)
    for head in range(8):
        assert ratio[:2, head].flatten().tolist() == pytest.approx(
            [1 + head % 4 / 4] * ratio[:2, head].numel()
        )
    assert (ratio[2] == 1).all()


def test_heads_on_bands_of_frequency() -> None:
    attention = {"name": "scale_heads", "start": "frequency"}
    model = build_model(ModelConfig(n_heads=8, d_model=32, n_layers=1, attention=attention))
    plain = build_model(ModelConfig(n_heads=8, d_model=32, n_layers=1))
    ours, theirs = (m.attentions[0].qkv.weight.detach().view(3, 8, 4, 32) for m in (model, plain))
    for head in range(8):
        band = slice(8 * (head % 4), 8 * (head % 4) + 8)
        assert (ours[:2, head, :, band] == theirs[:2, head, :, band]).all()
        assert (ours[:2, head] != 0).sum() == 2 * 4 * 8
    assert (ours[2] == theirs[2]).all()
    assert model.parameter_counts() == plain.parameter_counts()


def test_too_few_pairs_for_four_bands_are_refused() -> None:
    with pytest.raises(ValueError, match="at least 8"):
        build_model(
            ModelConfig(n_heads=2, d_model=4, attention={"name": "scale_heads", "start": "frequency"})
        )


def learned_over_training(attention: Plain, position: Plain) -> tuple[dict[str, Any], dict[str, Any]]:
    model = ModelConfig(
        vocabulary_size=9,
        context_length=16,
        n_layers=1,
        n_heads=2,
        d_model=8,
        attention=attention,
        position=position,
    )
    training = TrainConfig(steps=3, batch_size=4, warmup_steps=1, evaluate_every=3, decay_on="all")
    ids = ids_of(200).flatten().numpy()
    records = [
        record
        for record in train(ExperimentConfig(model=model, training=training), ids, ids)
        if isinstance(record, Learned)
    ]
    return records[0].values, records[-1].values


@pytest.mark.parametrize(
    ("freeze", "still"),
    [
        ("nothing", set()),
        ("omega", {"omega_free"}),
        ("sigma", {"sigma"}),
        ("both", {"omega", "omega_free", "sigma"}),
    ],
)
def test_frozen_scales_stay_at_their_start(freeze: str, still: set[str]) -> None:
    start, end = learned_over_training(
        {"name": "dot"}, {"name": "mope", "init": "multiscale", "freeze": freeze}
    )
    unmoved = {name.partition(".")[2] for name, values in start.items() if values == end[name]}
    assert unmoved == still


def test_a_frozen_projection_leaves_threshold_and_sharpness_to_learn() -> None:
    frozen = {"name": "ega", "signal": "morlet_parametric", "freeze": "projection"}
    start, end = learned_over_training(frozen, {"name": "learned"})
    unmoved = {name for name, values in start.items() if values == end[name]}
    assert unmoved == {"attention.filter_omega", "attention.filter_sigma"}
    start, end = learned_over_training({**frozen, "freeze": "nothing"}, {"name": "learned"})
    assert all(values != end[name] for name, values in start.items())
