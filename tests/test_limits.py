"""What the mechanisms must become in their limiting cases, and what their equations promise."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable

import pytest
import torch
from torch import Tensor
from torch.nn.functional import scaled_dot_product_attention

import ega_mope.training
from ega_mope.attention.gate_norms import GATE_NORMS
from ega_mope.config import ExperimentConfig, ModelConfig, Plain, TrainConfig, preset
from ega_mope.model import CharLM, build_model
from ega_mope.positions import POSITIONS, Position
from ega_mope.positions.mope import morlet_table
from ega_mope.training import Checkpoint, train

SMALL = ModelConfig(vocabulary_size=9, context_length=12, n_layers=2, n_heads=2, d_model=8)


def model_of(attention: Plain, position: Plain, seed: int = 3) -> CharLM:
    """A float64 model whose random weights are large enough to tell scores apart."""
    config = dataclasses.replace(SMALL, attention=attention, position=position)
    model = build_model(config, seed).double().eval()
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if "qkv" in name or "signal" in name:
                parameter.mul_(20.0)
    return model


def position_of(data: Plain, d_model: int = 8, context_length: int = 12) -> Position:
    sizes = dataclasses.replace(SMALL, d_model=d_model, context_length=context_length, position=data)
    return build_model(sizes).double().position


def some_ids() -> Tensor:
    return torch.randint(9, (2, 12), generator=torch.Generator().manual_seed(1))


# ---- energy-gated attention


@pytest.mark.parametrize("gate_norm", sorted(GATE_NORMS))
def test_an_open_gate_is_dot_product_attention(gate_norm: str) -> None:
    gated = model_of({"name": "ega", "gate_norm": gate_norm}, {"name": "learned"})
    plain = model_of({"name": "dot"}, {"name": "learned"})
    shared = plain.state_dict()
    for attention in gated.attentions:
        torch.nn.init.constant_(attention.threshold, 0.0)  # type: ignore[arg-type]
    ids = some_ids()
    assert (gated(ids) - plain(ids)).abs().max() > 1e-4, "closed a little, it is something else"
    for attention in gated.attentions:
        torch.nn.init.constant_(attention.threshold, -1e9)  # type: ignore[arg-type]
    assert all(torch.equal(gated.state_dict()[name], value) for name, value in shared.items())
    assert (gated(ids) - plain(ids)).abs().max() < 1e-12


def test_dot_product_attention_is_torchs() -> None:
    model = model_of({"name": "dot"}, {"name": "learned"})
    with torch.no_grad():
        _, trace = model.trace(some_ids(), ("residual", "output", "weight"))
        for layer, attention in enumerate(model.attentions):
            x = model.blocks[layer].norm_attention(trace["residual"][:, layer])  # type: ignore[operator]
            q, k, v = (part.unflatten(-1, (2, 4)).transpose(1, 2) for part in attention.qkv(x).split(8, -1))
            expected = scaled_dot_product_attention(q, k, v, is_causal=True)
            assert (trace["output"][:, layer] - expected).abs().max() < 1e-13
            assert (trace["weight"][:, layer] @ v - expected).abs().max() < 1e-13


def test_gating_reweights_and_renormalises() -> None:
    model = model_of({"name": "ega"}, {"name": "learned"})
    with torch.no_grad():
        _, trace = model.trace(some_ids(), ("gate", "weight", "share", "output", "residual"))
        gated = trace["weight"] * trace["gate"][..., None, :]
        expected = gated / gated.sum(-1, keepdim=True)
        assert (trace["share"] - expected).abs().max() < 1e-13
        assert trace["gate"].std() > 0.05, "gates that all agree would test nothing"
        x = model.blocks[0].norm_attention(trace["residual"][:, 0])  # type: ignore[operator]
        v = model.attentions[0].qkv(x)[..., 16:].unflatten(-1, (2, 4)).transpose(1, 2)
        assert (trace["output"][:, 0] - expected[:, 0] @ v).abs().max() < 1e-12


@pytest.mark.parametrize("name", ["smoke", "small", "paper"])
def test_ega_adds_d_plus_two_parameters_a_head(name: str) -> None:
    model, _ = preset(name)
    dot = build_model(model).parameter_counts()
    ega = build_model(dataclasses.replace(model, attention={"name": "ega"})).parameter_counts()
    assert ega["total"] - dot["total"] == (model.d_model + 2) * model.n_heads * model.n_layers
    assert ega["attention_gate"] == ega["total"] - dot["total"] and dot["attention_gate"] == 0


def test_parameter_counts_of_the_paper() -> None:
    model, _ = preset("paper")
    ega = build_model(dataclasses.replace(model, attention={"name": "ega"})).parameter_counts()
    assert build_model(model).parameter_counts()["total"] == 4_816_640
    assert ega["attention_gate"] == 12_384
    assert round(100 * 12_384 / 4_816_640, 3) == 0.257


# ---- the causal gate norm


def causal_z(energy: Tensor) -> Tensor:
    return GATE_NORMS["causal"].z(energy[None, None])[0, 0]


def direct_loop(energy: Tensor) -> Tensor:
    """Each token against the mean and population standard deviation of those up to it, one by one."""
    z = []
    for j in range(len(energy)):
        past = energy[: j + 1].double()
        spread = float(past.std(correction=0))
        z.append((float(past[-1]) - float(past.mean())) / spread if spread else 0.0)
    return torch.tensor(z, dtype=torch.float64)


def energies(mean: float, sd: float, n: int = 300, dtype: torch.dtype = torch.float64) -> Tensor:
    return (mean + sd * torch.randn(n, generator=torch.Generator().manual_seed(5), dtype=torch.float64)).to(
        dtype
    )


@pytest.mark.parametrize(
    ("mean", "sd", "dtype", "tolerance"),
    [
        (0.0, 1.0, torch.float64, 1e-11),
        (5.0, 0.01, torch.float64, 1e-9),
        (0.0, 1.0, torch.float32, 1e-4),
        (5.0, 0.01, torch.float32, 1e-4),
    ],
)
def test_causal_norm_is_the_direct_loop(mean: float, sd: float, dtype: torch.dtype, tolerance: float) -> None:
    energy = energies(mean, sd, dtype=dtype)
    assert (causal_z(energy).double() - direct_loop(energy)).abs().max() < tolerance


def test_causal_norm_bounds() -> None:
    z = causal_z(energies(1.0, 1.0))
    assert z[0] == 0
    assert abs(abs(z[1]) - 1) < 1e-12
    bound = torch.arange(300, dtype=torch.float64).sqrt()
    assert (z.abs() <= bound + 1e-12).all()
    outlier = torch.zeros(50, dtype=torch.float64)
    outlier[-1] = 1.0
    assert abs(causal_z(outlier)[-1] - math.sqrt(49)) < 1e-9, "the bound is reached"


@pytest.mark.parametrize("gate_norm", ["causal", "sequence"])
@pytest.mark.parametrize("value", [0.0, 5.3, -1e6])
def test_constant_energies_give_zero_and_finite_gradients(gate_norm: str, value: float) -> None:
    energy = torch.full((1, 1, 40), value, requires_grad=True)
    z = GATE_NORMS[gate_norm].z(energy)
    assert (z == 0).all()
    z.sum().backward()
    assert energy.grad is not None and energy.grad.isfinite().all()


@pytest.mark.parametrize("gate_norm", sorted(set(GATE_NORMS) - {"none"}))
def test_energies_too_small_to_square_are_as_good_as_constant(gate_norm: str) -> None:
    energy = (1e-20 * energies(2.0, 1.0, 12).float())[None, None].requires_grad_()
    z = GATE_NORMS[gate_norm].z(energy)
    assert (z == 0).all()
    z.sum().backward()
    assert energy.grad is not None and energy.grad.isfinite().all()


@pytest.mark.parametrize("gate_norm", sorted(GATE_NORMS))
def test_gate_norms_have_the_right_gradients(gate_norm: str) -> None:
    energy = energies(0.5, 1.0, n=7)[None, None].requires_grad_()
    # The first two tokens of a causal norm are 0 and ±1 whatever they are: a step, not a slope.
    assert torch.autograd.gradcheck(lambda e: GATE_NORMS[gate_norm].z(e)[..., 2:], (energy,))


@pytest.mark.parametrize("gate_norm", sorted(set(GATE_NORMS) - {"none"}))
@pytest.mark.parametrize("halvings", [43, 56])
def test_the_unit_of_the_energies_makes_no_difference(gate_norm: str, halvings: int) -> None:
    """Energies of 1e-13 and 1e-17 in float32, as the square of a signal that passes through 0: the same z, and
    gradients that are as much larger."""
    unit, upstream = 2.0**-halvings, energies(0.0, 1.0, 12).float()

    def z_and_gradient(scale: float) -> tuple[Tensor, Tensor]:
        energy = (scale * energies(2.0, 1.0, 12).float())[None, None].requires_grad_()
        z = GATE_NORMS[gate_norm].z(energy)
        (gradient,) = torch.autograd.grad((z * upstream).sum(), energy)
        return z, gradient

    z, gradient = z_and_gradient(1.0)
    small, its_gradient = z_and_gradient(unit)
    torch.testing.assert_close(small, z)
    torch.testing.assert_close(its_gradient * unit, gradient, rtol=1e-4, atol=1e-5)


# ---- positions


def test_wide_morlets_are_sinusoids_cosine_first() -> None:
    positions = torch.arange(50)
    sinusoidal = position_of({"name": "sinusoidal", "amplitude": 1.0}).encode(positions).unflatten(1, (-1, 2))
    omega = 10000.0 ** (-torch.arange(0, 8, 2, dtype=torch.float64) / 8)
    table = morlet_table(positions, omega, torch.full_like(omega, 1e12)).unflatten(1, (-1, 2))
    assert (table - sinusoidal.flip(-1)).abs().max() < 1e-9
    narrow = morlet_table(positions, omega, torch.full_like(omega, 3.0)).unflatten(1, (-1, 2))
    assert (narrow - sinusoidal.flip(-1)).abs().max() > 0.1


def test_morlets_without_oscillation_are_a_window() -> None:
    sigma = torch.tensor([2.0, 7.0], dtype=torch.float64)
    table = morlet_table(torch.arange(30), torch.zeros(2, dtype=torch.float64), sigma)
    b = torch.arange(30, dtype=torch.float64)
    for pair, width in enumerate((2.0, 7.0)):
        assert (table[:, 2 * pair] - torch.exp(-(b**2) / (2 * width**2))).abs().max() < 1e-14
        assert (table[:, 2 * pair + 1] == 0).all()


def test_morlet_positions_fade_as_the_paper_starts() -> None:
    with torch.no_grad():
        table = position_of({"name": "mope"}, d_model=256, context_length=64).encode(torch.arange(21))
    norms = table.norm(dim=1)
    for b, norm, digits in ((0, 11.3, 1), (5, 3.5, 1), (10, 0.47, 2), (20, 0.0007, 4)):
        assert round(float(norms[b]), digits) == norm


@pytest.mark.parametrize("init", ["paper", "multiscale"])
def test_projected_morlets_start_admissible(init: str) -> None:
    learned = position_of({"name": "mope", "init": init}).learned()
    assert (learned["omega"] * learned["sigma"] >= 5 - 1e-6).all()


def test_rotary_scores_depend_on_the_lag_alone() -> None:
    rope = position_of({"name": "rope"}, d_model=16, context_length=40)
    generator = torch.Generator().manual_seed(2)
    q, k = torch.randn(2, 1, 1, 1, 8, generator=generator, dtype=torch.float64).expand(2, 1, 1, 40, 8)
    positions = torch.arange(40)
    scores = (rope.rotate(q, positions) @ rope.rotate(k, positions).transpose(-1, -2))[0, 0]
    by_lag = [scores.diagonal(-lag) for lag in range(-39, 40)]
    assert max(float(diagonal.max() - diagonal.min()) for diagonal in by_lag) < 1e-12
    assert torch.stack([diagonal[0] for diagonal in by_lag]).std() > 0.1, "and on that it does depend"


# ---- one seed, four cells


CELLS: dict[str, tuple[Plain, Plain]] = {
    "00": ({"name": "dot"}, {"name": "learned"}),
    "10": ({"name": "ega"}, {"name": "learned"}),
    "01": ({"name": "dot"}, {"name": "mope"}),
    "11": ({"name": "ega"}, {"name": "mope"}),
}


def test_the_four_cells_share_the_weights_they_have_in_common() -> None:
    models = {
        cell: dict(build_model(dataclasses.replace(SMALL, attention=a, position=p), 7).named_parameters())
        for cell, (a, p) in CELLS.items()
    }
    for cell, parameters in models.items():
        for other in models.values():
            common = parameters.keys() & other.keys()
            assert len(common) > 20
            assert all(torch.equal(parameters[name], other[name]) for name in common), cell
    weight = "blocks.0.attention.qkv.weight"
    other_seed = build_model(SMALL, 8).state_dict()[weight]
    assert not torch.equal(other_seed, models["00"][weight])


def test_all_models_see_the_same_first_hundred_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[Tensor] = []
    real = ega_mope.training.batch_loss

    def noted(model: torch.nn.Module, batch: Tensor) -> Tensor:
        seen.append(batch.clone())
        # Ten real passes draw dropout as each model does; what they disturbed would stay disturbed.
        return real(model, batch) if len(seen) <= 10 else 0 * next(model.parameters()).sum()

    monkeypatch.setattr(ega_mope.training, "batch_loss", noted)
    tiny = dataclasses.replace(SMALL, context_length=4, n_layers=1, d_model=4, dropout=0.1)
    models = {cell: dataclasses.replace(tiny, attention=a, position=p) for cell, (a, p) in CELLS.items()}
    models["without dropout"] = dataclasses.replace(tiny, dropout=0.0)
    schedule = TrainConfig(steps=100, batch_size=2, warmup_steps=5, evaluate_every=100, log_every=100)
    ids = torch.randint(9, (500,), generator=torch.Generator().manual_seed(0)).numpy()
    batches: dict[str, list[Tensor]] = {}
    for name, model in models.items():
        seen.clear()
        for _ in train(ExperimentConfig(model=model, training=schedule, seed=4), ids, ids[:50]):
            pass
        batches[name] = list(seen)
    assert len(batches["00"]) == 100
    for name in models:
        assert all(torch.equal(a, b) for a, b in zip(batches["00"], batches[name], strict=True)), name
    assert len({tuple(batch.flatten().tolist()) for batch in batches["00"]}) > 90


# ---- the most that scales can move


@pytest.mark.parametrize(("name", "most"), [("paper", 0.87), ("small", 1.28)])
def test_most_log_move_of_the_presets(name: str, most: float) -> None:
    _, training = preset(name)
    assert round(training.most_log_move(), 2) == most
    assert training.most_log_move(10.0) == pytest.approx(10 * training.most_log_move())


def pushes(steps: int) -> dict[str, Callable[[int], float]]:
    noise = torch.randn(steps, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    return {
        "constant": lambda t: 1.0,
        "noise": lambda t: float(noise[t]),
        "biased noise": lambda t: 0.3 + float(noise[t]),
        "growing as fast as helps": lambda t: (0.95 / 0.9) ** (t - steps),
        "growing faster": lambda t: 1.5 ** (t - steps),
        "rare jumps": lambda t: 1e6 if t % 25 == 24 else 1e-6,
    }


def test_adam_never_moves_a_parameter_further_than_that() -> None:
    training = TrainConfig(steps=400, warmup_steps=40, weight_decay=0.0)
    bound = training.most_log_move()
    moves = {}
    for name, push in pushes(training.steps).items():
        x = torch.nn.Parameter(torch.zeros((), dtype=torch.float64))
        adam = torch.optim.AdamW([x], betas=(0.9, 0.95), weight_decay=0.0, eps=1e-30)
        for step in range(training.steps):
            adam.param_groups[0]["lr"] = training.learning_rate_at(step)
            x.grad = torch.tensor(push(step), dtype=torch.float64)
            adam.step()
        moves[name] = abs(float(x.detach()))
    assert max(moves.values()) <= bound, moves
    assert moves["growing as fast as helps"] > 0.97 * bound, "and the bound is not far off"
    assert 0.8 * bound < moves["constant"] < 0.87 * bound, "1/1.165 of it for a steady push"


def test_a_learned_scale_stays_within_the_bound_in_a_real_training() -> None:
    model = dataclasses.replace(SMALL, position={"name": "mope"})
    training = TrainConfig(steps=30, batch_size=2, learning_rate=0.05, warmup_steps=3, evaluate_every=30)
    ids = torch.randint(9, (400,), generator=torch.Generator().manual_seed(0)).numpy()
    start = build_model(model).state_dict()
    records = train(ExperimentConfig(model=model, training=training), ids, ids[:60])
    end = [record.state["model"] for record in records if isinstance(record, Checkpoint)][-1]
    moved = max(float((end[n] - start[n]).abs().max()) for n in ("position.log_omega", "position.log_sigma"))
    assert 0.2 * training.most_log_move() < moved <= training.most_log_move()


def test_every_position_is_a_subclass_that_says_what_it_acts_on() -> None:
    for name in POSITIONS:
        position = position_of({"name": name})
        assert position.acts_on(position.settings) <= {"input", "query_key", "scores"}
