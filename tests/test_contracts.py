"""What every mechanism promises, held over the registries: a new entry is tested the moment it registers."""

from __future__ import annotations

import collections
import dataclasses
import math
import os
import subprocess
import sys
from typing import Any

import pytest
import torch
from mechanism_choices import Choice, entries, pairwise, product
from safetensors.torch import load, save
from torch import Tensor

from ega_mope.attention import ATTENTIONS
from ega_mope.config import ExperimentConfig, ModelConfig, smoke
from ega_mope.model import CharLM, build_model, is_causal, mechanism_settings, resolve
from ega_mope.positions import POSITIONS
from ega_mope.text import CharacterTokenizer, load_corpus, split_ids
from ega_mope.training import Metrics, train

VOCABULARY = 11
TIME = 24


def model_of(choice: Choice, seed: int = 0, **sizes: Any) -> CharLM:
    """A small model whose weights are of ordinary size: N(0, 0.02) at this width would hide what differs."""
    shape = {
        "vocabulary_size": VOCABULARY,
        "context_length": TIME,
        "n_layers": 2,
        "n_heads": 2,
        "d_model": 16,
    }
    model = build_model(
        ModelConfig(**{**shape, **sizes}, attention=choice.attention, position=choice.position), seed
    )
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.ndim >= 2:
                parameter.mul_(10.0)
    return model


def some_ids(batch: int = 2, time: int = TIME, seed: int = 1) -> Tensor:
    return torch.randint(VOCABULARY, (batch, time), generator=torch.Generator().manual_seed(seed))


BY_NAME = {str(choice): choice for choice in [*entries(), *pairwise()]}
EACH = {str(choice) for choice in entries()}
ENTRIES = [pytest.param(choice, id=name) for name, choice in BY_NAME.items() if name in EACH]
PAIRS = [pytest.param(choice, id=name) for name, choice in BY_NAME.items() if name not in EACH]
PRODUCT = [
    pytest.param(choice, id=str(choice), marks=pytest.mark.slow)
    for choice in product()
    if str(choice) not in BY_NAME
]
every_entry = pytest.mark.parametrize("choice", ENTRIES)


@pytest.mark.parametrize("choice", ENTRIES + PRODUCT)
def test_logits_have_their_shape_and_are_finite(choice: Choice) -> None:
    model = model_of(choice)
    for batch, time in ((2, TIME), (1, 5), (3, 1)):
        logits = model(some_ids(batch, time))
        assert logits.shape == (batch, time, VOCABULARY)
        assert logits.isfinite().all()


@pytest.mark.parametrize("choice", ENTRIES + PAIRS + PRODUCT)
def test_later_tokens_move_earlier_logits_only_where_that_is_declared(choice: Choice) -> None:
    model, ids = model_of(choice).eval(), some_ids()
    moved = []
    with torch.no_grad():
        before = model(ids)
        for cut in (1, 17):
            later = (ids[:, cut:] + 1 + some_ids(time=TIME - cut, seed=cut) % (VOCABULARY - 1)) % VOCABULARY
            after = model(torch.cat([ids[:, :cut], later], dim=1))
            moved.append(float((after - before)[:, :cut].abs().max()))
            assert (after - before)[:, cut:].abs().max() > 1e-4, "the change itself must be seen"
    if is_causal(model.config):
        assert moved == [0.0, 0.0]
    else:
        assert max(moved) >= 1e-4


def saved_bytes(model: CharLM, time: int) -> int:
    """Bytes that a forward pass keeps for the backward pass, parameters left out, storages counted once."""
    parameters = {parameter.untyped_storage().data_ptr() for parameter in model.parameters()}
    kept: dict[int, torch.UntypedStorage] = {}

    def note(tensor: Tensor) -> Tensor:
        # Held, so that no later tensor gets the address of one that is gone.
        kept[tensor.untyped_storage().data_ptr()] = tensor.untyped_storage()
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(note, lambda tensor: tensor):
        loss = model(some_ids(1, time)).sum()
    total = sum(storage.nbytes() for place, storage in kept.items() if place not in parameters)
    del loss
    return total


def declared_memory(choice: Choice) -> set[str]:
    attention, settings = mechanism_settings(ATTENTIONS, choice.attention, "attention")
    position, position_settings = mechanism_settings(POSITIONS, choice.position, "position")
    return {attention.memory(settings), position.memory(position_settings)}


@pytest.mark.parametrize("choice", ENTRIES + PRODUCT)
def test_memory_grows_as_declared(choice: Choice) -> None:
    model = model_of(choice, context_length=1024, n_layers=1, d_model=8)
    growth = saved_bytes(model, 1024) / saved_bytes(model, 512)
    if "quadratic" in declared_memory(choice):
        assert growth > 2.2
    else:
        assert growth <= 2.2


@every_entry
def test_gradients_reach_every_parameter_that_learns(choice: Choice) -> None:
    model = model_of(choice)
    torch.nn.functional.cross_entropy(model(some_ids()).flatten(0, 1), some_ids(seed=2).flatten()).backward()
    for name, parameter in model.named_parameters():
        if parameter.requires_grad:
            assert parameter.grad is not None, name
            assert parameter.grad.isfinite().all(), name
            assert parameter.grad.abs().sum() > 0, name
        else:
            assert parameter.grad is None, name
    frozen = {str(data.get("freeze", "nothing")) for data in (choice.attention, choice.position)}
    assert all(parameter.requires_grad for parameter in model.parameters()) == (frozen == {"nothing"})


@every_entry
def test_one_text_of_a_batch_does_not_know_the_others(choice: Choice) -> None:
    model = model_of(choice).double().eval()
    ids = some_ids(3)
    other = torch.cat([ids[:1], some_ids(2, seed=9)])
    with torch.no_grad():
        assert (model(ids)[:1] - model(other)[:1]).abs().max() == 0.0
        assert (model(ids)[:1] - model(ids[:1])).abs().max() < 1e-12


@every_entry
def test_one_token_trains(choice: Choice) -> None:
    model = model_of(choice)
    model(some_ids(2, 1)).square().sum().backward()
    gradients = [parameter.grad for parameter in model.parameters() if parameter.grad is not None]
    assert gradients
    assert all(gradient.isfinite().all() for gradient in gradients)


@every_entry
def test_saved_weights_are_the_whole_model(choice: Choice) -> None:
    model, ids = model_of(choice, seed=0).eval(), some_ids()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.01 * torch.randn(parameter.shape, generator=torch.Generator().manual_seed(4)))
        other = build_model(model.config, seed=1).eval()
        other.load_state_dict(load(save(model.state_dict())))
        assert torch.equal(other(ids), model(ids))
    assert resolve(model.config) == model.config


@every_entry
def test_gradients_are_those_of_the_equations(choice: Choice) -> None:
    model = model_of(choice, vocabulary_size=VOCABULARY, context_length=6, n_layers=1, d_model=8).double()
    ids = some_ids(1, 6)
    noise = torch.Generator().manual_seed(7)
    # Off the start, where MoPE's pairs sit exactly on the kink of ω·σ = 5.
    moved = {
        name: (parameter + 0.05 * torch.randn(parameter.shape, generator=noise, dtype=torch.float64))
        .detach()
        .requires_grad_()
        for name, parameter in model.named_parameters()
        if parameter.requires_grad
    }

    def logits(*values: Tensor) -> Tensor:
        return torch.func.functional_call(model, dict(zip(moved, values, strict=True)), (ids,))

    assert torch.autograd.gradcheck(logits, tuple(moved.values()), fast_mode=True)


@every_entry
def test_what_is_learned_is_shown(choice: Choice) -> None:
    model = model_of(choice)
    shown = model.learned()
    names = [name for name, _ in model.named_parameters()]
    mechanism = [
        name
        for name in names
        if (name.startswith("position.") or ".attention." in name)
        and ".qkv." not in name
        and ".out." not in name
    ]
    for name, values in shown.items():
        assert name.partition(".")[0] in ("attention", "position")
        assert values.isfinite().all()
        assert not values.requires_grad
        if name.startswith("attention."):
            assert values.shape[:2] == (2, 2), "layers, heads"
    parameters = dict(model.named_parameters())
    for name in mechanism:
        if parameters[name].ndim != 1:
            continue
        before = {key: value.clone() for key, value in model.learned().items()}
        with torch.no_grad():
            parameters[name].add_(torch.linspace(0.1, 0.4, parameters[name].numel()))
        assert any(not torch.equal(value, before[key]) for key, value in model.learned().items()), name


def unigram_entropy(text: str) -> float:
    counts = collections.Counter(text)
    return -sum(count / len(text) * math.log(count / len(text)) for count in counts.values())


WIDE_MORLETS = ("multiscale", "random")
"""Starts of MoPE that stay larger than the tokens' embeddings over the whole window, and so learn later."""


@pytest.mark.slow
@every_entry
def test_sixty_updates_learn_more_than_letter_counts(choice: Choice) -> None:
    """On the corpus and the schedule that `ega-mope train --preset smoke --corpus planted` has."""
    text = load_corpus("planted").text
    tokenizer = CharacterTokenizer.fit(text)
    model, training = smoke()
    sizes = {"vocabulary_size": tokenizer.vocabulary_size, **dataclasses.asdict(choice)}
    config = ExperimentConfig(
        model=resolve(dataclasses.replace(model, **sizes)),
        training=dataclasses.replace(training, evaluate_every=60),
    )
    updates = 180 if choice.position.get("init") in WIDE_MORLETS else 60
    for record in train(config, *split_ids(tokenizer.encode(text), model.context_length)):
        if isinstance(record, Metrics) and record.split == "validation" and record.step == updates:
            assert record.loss_nats is not None and record.loss_nats < unigram_entropy(text)
            return
    raise AssertionError("the training ended before")


PEAK = """
import resource, sys, torch
from ega_mope.config import ModelConfig
from ega_mope.model import build_model
from ega_mope.training import batch_loss
torch.set_num_threads(1)
time, attention, position = int(sys.argv[1]), eval(sys.argv[2]), eval(sys.argv[3])
model = build_model(ModelConfig(context_length=time, n_heads=4, d_model=64, n_layers=2,
                                attention=attention, position=position))
batch_loss(model, torch.zeros(1, 65, dtype=torch.long)).backward()
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
ids = torch.randint(65, (1, time + 1), generator=torch.Generator().manual_seed(0))
loss = batch_loss(model, ids)
loss.backward()
assert loss.isfinite()
print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before)
"""


def peak_growth_kib(choice: Choice, time: int) -> int:
    """How much one training step over `time` tokens raises the peak memory of a fresh process."""
    arguments = [str(time), repr(choice.attention), repr(choice.position)]
    # Large blocks go back to the system at once: what the allocator keeps for later is no need of the model's.
    environment = {**os.environ, "MALLOC_MMAP_THRESHOLD_": "65536"}
    answer = subprocess.run(
        [sys.executable, "-c", PEAK, *arguments],
        capture_output=True,
        text=True,
        check=True,
        timeout=600,
        env=environment,
    )
    return int(answer.stdout)


@pytest.mark.slow
@pytest.mark.parametrize("choice", [p for p in ENTRIES if declared_memory(p.values[0]) == {"linear"}])
def test_linear_memory_trains_on_8192_tokens(choice: Choice) -> None:
    assert peak_growth_kib(choice, 8192) <= 2.2 * peak_growth_kib(choice, 4096)
