"""The training loop: a generator of records that touches no disk.

`ega_mope.experiments` writes what it yields; a test or a notebook may just read it.
"""

from __future__ import annotations

import contextlib
import math
import time
from collections.abc import Callable, Generator, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from ega_mope.config import ExperimentConfig, TrainConfig
from ega_mope.memory import forget_peak, peak_memory
from ega_mope.model import CharLM, build_model, stream_generator


@dataclass(frozen=True)
class Metrics:
    """One point of a loss curve; `loss_nats` is nats per token, None where it was not finite.

    `peak_memory_bytes` comes with evaluations: the most that the process held since training began (see
    `ega_mope.memory`), None where the system does not tell.
    """

    step: int
    tokens: int
    seconds: float
    split: Literal["train", "validation"]
    loss_nats: float | None
    lr: float
    grad_norm: float | None
    tokens_per_second: float | None
    peak_memory_bytes: int | None = None
    diverged: bool = False


@dataclass(frozen=True)
class Learned:
    """Every mechanism's learned scalars after `step` updates, as nested lists."""

    step: int
    values: dict[str, Any]


@dataclass(frozen=True)
class Checkpoint:
    """All that resuming exactly needs. `state` and `model` are live: use them before going on.

    `best` says that the weights have the lowest validation loss so far.
    """

    step: int
    state: dict[str, Any]
    best: bool
    model: CharLM


@dataclass(frozen=True)
class Step:
    """One update was made: for heartbeats and progress bars."""

    step: int


@dataclass(frozen=True)
class Ended:
    """The last record of every training."""

    step: int
    state: Literal["finished", "stopped", "diverged"]


Record = Metrics | Learned | Checkpoint | Step | Ended


def windows(ids: Int[Tensor, " n"], context_length: int) -> Int[Tensor, "window context_plus_one"]:
    """Every window of the text once, side by side: inputs and the targets one further along."""
    return ids.unfold(0, context_length + 1, context_length)


def token_losses(logits: Float[Tensor, "batch time v"], targets: Int[Tensor, "batch time"]) -> Tensor:
    """Cross-entropy of each token, in nats, [batch, time], float32 or better."""
    flat = logits.flatten(0, 1)
    flat = flat if flat.dtype == torch.float64 else flat.float()
    return nn.functional.cross_entropy(flat, targets.flatten(), reduction="none").view(targets.shape)


def batch_loss(model: nn.Module, batch: Int[Tensor, "batch context_plus_one"]) -> Tensor:
    """Mean cross-entropy of a batch of windows, in nats per token."""
    return token_losses(model(batch[:, :-1]), batch[:, 1:]).mean()


@torch.inference_mode()
def validation_loss(
    model: CharLM, ids: Int[Tensor, " n"], training: TrainConfig, generator: torch.Generator
) -> float:
    """Mean validation loss in nats per token: the whole split, every window once, or random batches of it."""
    was_training = model.training
    model.eval()
    context = model.config.context_length
    if training.validation_batches:
        batches = [
            random_batch(ids, context, training.batch_size, generator)
            for _ in range(training.validation_batches)
        ]
    else:
        batches = list(windows(ids, context).split(training.batch_size))
    with autocast(training, ids.device):
        sums = torch.stack(
            [token_losses(model(batch[:, :-1]), batch[:, 1:]).sum(dtype=torch.float64) for batch in batches]
        )
    model.train(was_training)
    return float(sums.sum()) / sum(batch.shape[0] * context for batch in batches)


def random_batch(
    ids: Int[Tensor, " n"], context_length: int, batch_size: int, generator: torch.Generator
) -> Int[Tensor, "batch context_plus_one"]:
    """Windows at uniformly random starts, with replacement."""
    starts = torch.randint(len(ids) - context_length, (batch_size, 1), generator=generator)
    return ids[(starts + torch.arange(context_length + 1)).to(ids.device)]


def autocast(training: TrainConfig, device: torch.device) -> contextlib.AbstractContextManager[Any]:
    """The precision of a forward pass; float16 on the CPU would be slow and unscaled, so it stays float32."""
    used = used_precision(training, device)
    if used == "float32":
        return contextlib.nullcontext()
    return torch.autocast(device.type, dtype=getattr(torch, used))


def used_precision(training: TrainConfig, device: torch.device) -> str:
    """The precision that `training` really gets on `device`."""
    return "float32" if training.precision == "float16" and device.type == "cpu" else training.precision


def make_optimizer(model: CharLM, training: TrainConfig) -> torch.optim.AdamW:
    """AdamW with one group for each (weight decay, learning-rate multiplier)."""
    multipliers = model.rate_multipliers()
    groups: dict[tuple[float, float], list[nn.Parameter]] = {}
    for name, parameter in model.named_parameters():
        decays = training.decay_on == "all" or parameter.ndim >= 2
        key = (training.weight_decay if decays else 0.0, multipliers.get(name, 1.0))
        groups.setdefault(key, []).append(parameter)
    return torch.optim.AdamW(
        [
            {"params": parameters, "weight_decay": decay, "multiplier": multiplier}
            for (decay, multiplier), parameters in groups.items()
        ],
        lr=training.learning_rate,
        betas=(training.beta1, training.beta2),
        fused=True,
    )


class _Trainer:
    """Model, optimizer, random streams and running sums: what a checkpoint holds."""

    def __init__(
        self, config: ExperimentConfig, device: torch.device, start: Mapping[str, Tensor] | None = None
    ) -> None:
        self.config = config
        self.device = device
        self.model = build_model(config.model, config.seed)
        self.model.load_state_dict(dict(start or {}), strict=False)
        self.model.to(device)
        self.optimizer = make_optimizer(self.model, config.training)
        scaled = used_precision(config.training, device) == "float16"
        self.scaler = torch.amp.GradScaler(device.type, enabled=scaled)
        self.batches = stream_generator(config.seed, "batches")
        # torch's own dropout draws from the global stream and from no other.
        torch.manual_seed(stream_generator(config.seed, "dropout").initial_seed())
        self.step = 0
        self.best_loss = math.inf
        self.seconds = 0.0
        self.loss_sum = torch.zeros((), dtype=torch.float64, device=device)
        self.loss_count = 0

    def state(self) -> dict[str, Any]:
        return {
            "model": self.model.state_dict(),
            "optimizer": self.optimizer.state_dict(),
            "scaler": self.scaler.state_dict(),
            "batches": self.batches.get_state(),
            "torch_rng": torch.get_rng_state(),
            "cuda_rng": torch.cuda.get_rng_state(self.device) if self.device.type == "cuda" else None,
            "step": self.step,
            "best_loss": self.best_loss,
            "seconds": self.seconds,
            "loss_sum": self.loss_sum,
            "loss_count": self.loss_count,
        }

    def load(self, state: dict[str, Any]) -> None:
        self.model.load_state_dict(state["model"])
        self.optimizer.load_state_dict(state["optimizer"])
        if state["scaler"]:
            self.scaler.load_state_dict(state["scaler"])
        self.batches.set_state(state["batches"].cpu())
        torch.set_rng_state(state["torch_rng"].cpu())
        if self.device.type == "cuda" and state["cuda_rng"] is not None:
            torch.cuda.set_rng_state(state["cuda_rng"].cpu(), self.device)
        self.step = state["step"]
        self.best_loss = state["best_loss"]
        self.seconds = state["seconds"]
        self.loss_sum = state["loss_sum"].to(self.device)
        self.loss_count = state["loss_count"]

    def update(self, ids: Int[Tensor, " n"]) -> Tensor:
        """One optimizer update; returns the gradient's norm before clipping."""
        training = self.config.training
        rate = training.learning_rate_at(self.step)
        for group in self.optimizer.param_groups:
            group["lr"] = rate * group["multiplier"]
        batch = random_batch(ids, self.config.model.context_length, training.batch_size, self.batches)
        with autocast(training, self.device):
            loss = batch_loss(self.model, batch)
        self.optimizer.zero_grad(set_to_none=True)
        self.scaler.scale(loss).backward()
        self.scaler.unscale_(self.optimizer)
        norm = nn.utils.clip_grad_norm_(self.model.parameters(), training.clip_norm or math.inf)
        self.scaler.step(self.optimizer)
        self.scaler.update()
        self.step += 1
        self.loss_sum += loss.detach()
        self.loss_count += 1
        return norm

    def take_mean_loss(self) -> float:
        """Mean training loss since the last call."""
        mean = float(self.loss_sum) / self.loss_count
        self.loss_sum.zero_()
        self.loss_count = 0
        return mean

    def learned(self) -> Learned:
        return Learned(
            self.step, {name: value.cpu().tolist() for name, value in self.model.learned().items()}
        )


class _Course:
    """A trainer at work on its text: the clock and the records."""

    def __init__(
        self, trainer: _Trainer, train_ids: Int[Tensor, " n"], validation_ids: Int[Tensor, " m"]
    ) -> None:
        self.trainer = trainer
        self.training = trainer.config.training
        self.train_ids = train_ids
        self.validation_ids = validation_ids
        self.tokens_per_step = self.training.batch_size * trainer.config.model.context_length
        self.norm: Tensor | None = None
        self.clock = time.perf_counter()
        self.rest()

    def tick(self) -> None:
        """Count the time since the last call as the training's."""
        now = time.perf_counter()
        self.trainer.seconds += now - self.clock
        self.clock = now

    def rest(self) -> None:
        """Begin the next stretch of updates: its speed is counted from here."""
        self.logged_step, self.logged_seconds = self.trainer.step, self.trainer.seconds

    def metrics(
        self, split: Literal["train", "validation"], loss: float, speed: float | None = None
    ) -> Metrics:
        trainer, finite, norm = self.trainer, math.isfinite(loss), self.norm
        return Metrics(
            step=trainer.step,
            tokens=trainer.step * self.tokens_per_step,
            seconds=round(trainer.seconds, 3),
            split=split,
            loss_nats=loss if finite else None,
            lr=self.training.learning_rate_at(max(0, trainer.step - 1)),
            grad_norm=None if norm is None or not math.isfinite(float(norm)) else float(norm),
            tokens_per_second=speed,
            peak_memory_bytes=peak_memory(trainer.device) if split == "validation" else None,
            diverged=not finite,
        )

    def log(self) -> Metrics:
        """The mean training loss since the last one, and the speed."""
        trainer = self.trainer
        loss = trainer.take_mean_loss()
        self.tick()
        tokens = (trainer.step - self.logged_step) * self.tokens_per_step
        return self.metrics(
            "train", loss, round(tokens / max(1e-9, trainer.seconds - self.logged_seconds), 1)
        )

    def evaluate(self) -> Generator[Record, None, bool]:
        """Yields what an evaluation leaves; returns whether the model is still finite."""
        trainer = self.trainer
        generator = stream_generator(trainer.config.seed, f"validation:{trainer.step}")
        loss = validation_loss(trainer.model, self.validation_ids, self.training, generator)
        self.tick()
        yield self.metrics("validation", loss)
        finite = all(value.isfinite().all() for value in trainer.model.learned().values())
        if not math.isfinite(loss) or not finite:
            return False
        best = loss < trainer.best_loss
        trainer.best_loss = min(loss, trainer.best_loss)
        yield trainer.learned()
        yield Checkpoint(trainer.step, trainer.state(), best, trainer.model)
        return True


def train(
    config: ExperimentConfig,
    train_ids: Int[np.ndarray, " n"],
    validation_ids: Int[np.ndarray, " m"],
    *,
    device: torch.device | None = None,
    start: Mapping[str, Tensor] | None = None,
    state: dict[str, Any] | None = None,
    stop: Callable[[], bool] = lambda: False,
) -> Iterator[Record]:
    """Train one model, yielding records as they come; the last is an `Ended`.

    Records are yielded after step 0 and then in step order. `start` gives parameters, by name, another start
    than their initialisation. With the `state` of a `Checkpoint` the
    training goes on from there and yields the same losses, to the last digit, as if it had never been
    interrupted. `stop` is asked after each update; once it says yes, a checkpoint and `Ended("stopped")`
    follow. A loss or a learned scalar that is not finite ends the training as diverged.
    """
    device = device or torch.device("cpu")
    forget_peak(device)
    training = config.training
    trainer = _Trainer(config, device, start)
    course = _Course(trainer, *(torch.as_tensor(ids, device=device) for ids in (train_ids, validation_ids)))
    if state is None:
        yield from course.evaluate()
    else:
        trainer.load(state)
    course.rest()
    trainer.model.train()
    while trainer.step < training.steps:
        course.norm = trainer.update(course.train_ids)
        step = trainer.step
        last = step == training.steps
        logs, evaluates = last or step % training.log_every == 0, last or step % training.evaluate_every == 0
        if logs:
            line = course.log()
            yield line
            if line.diverged:
                yield Ended(step, "diverged")
                return
        if evaluates and not (yield from course.evaluate()):
            yield Ended(step, "diverged")
            return
        if logs or evaluates:
            # Whoever reads the records takes time too, to save them for instance: no part of the speed.
            course.tick()
            course.rest()
        yield Step(step)
        if not last and stop():
            course.tick()
            yield Checkpoint(step, trainer.state(), False, trainer.model)
            yield Ended(step, "stopped")
            return
    yield Ended(trainer.step, "finished")


def time_updates(
    config: ExperimentConfig, ids: Int[np.ndarray, " n"], device: torch.device, seconds: float
) -> tuple[float, float, int]:
    """Seconds of one update, seconds of one evaluation batch, and parameters, from updates for about `seconds`."""
    trainer = _Trainer(config, device)
    on_device = torch.as_tensor(ids, device=device)
    trainer.update(on_device)  # the first one also allocates
    start, updates = time.perf_counter(), 0
    while not updates or time.perf_counter() - start < seconds:
        float(trainer.update(on_device))  # waits for the device
        updates += 1
    update = (time.perf_counter() - start) / updates
    batch = random_batch(on_device, config.model.context_length, config.training.batch_size, trainer.batches)
    start = time.perf_counter()
    with torch.inference_mode(), autocast(config.training, device):
        float(batch_loss(trainer.model.eval(), batch))
    return update, time.perf_counter() - start, trainer.model.parameter_counts()["total"]
