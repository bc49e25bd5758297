"""The causality audit: every leak written for it is caught and placed, and no clean model is ever flagged."""

from __future__ import annotations

import json
import math
import re
from pathlib import Path

import numpy as np
import pytest
import torch
from audit_models import (
    CLEAN,
    LEAKY,
    QUICK,
    VOCABULARY,
    MaskedAttention,
    Wrapped,
    causal_mask,
    seeded,
    window_ids,
)
from torch import Tensor, nn

import ega_mope as em
from ega_mope.analysis.audit import Audit
from ega_mope.analysis.audit.beside import baseline, twin
from ega_mope.analysis.audit.losses import mean_and_error
from ega_mope.analysis.audit.reading import (
    distance_table,
    headline,
    loss_table,
    losses_in_words,
    value_in_words,
)
from ega_mope.cli import run as command
from ega_mope.plots.audit import loss_by_position, movement_by_distance
from ega_mope.runs import BrokenRun, Run, list_runs

ROOT = Path(__file__).resolve().parent.parent


def short_ids(seed: int) -> Tensor:
    return window_ids(seed)[:, :40]


@pytest.mark.parametrize("name", LEAKY)
def test_every_leak_is_caught_and_placed(name: str) -> None:
    leak = LEAKY[name]

    found = em.audit(seeded(leak.build, 0), window_ids(0), losses=False)

    assert (found.verdict, found.mode, found.where) == ("sees the future", leak.mode, leak.where)
    assert found.max_logit_change is not None and found.max_logit_change > 100 * found.threshold


@pytest.mark.parametrize("name", QUICK)
def test_no_clean_model_is_flagged_at_five_seeds(name: str) -> None:
    for seed in range(5):
        found = em.audit(seeded(CLEAN[name], seed), short_ids(seed), losses=False)
        assert found.verdict == "causal", (seed, found.reason)
        assert found.mode == "evaluation and training, float32 and bf16"
        assert found.where is None


@pytest.mark.slow
@pytest.mark.parametrize("name", CLEAN)
def test_no_clean_model_is_flagged_at_fifty_seeds(name: str) -> None:
    verdicts = [
        em.audit(seeded(CLEAN[name], seed), window_ids(seed), losses=False).verdict for seed in range(50)
    ]
    assert verdicts == ["causal"] * 50


@pytest.mark.slow
@pytest.mark.parametrize("name", LEAKY)
def test_every_leak_is_caught_and_placed_at_ten_seeds(name: str) -> None:
    leak = LEAKY[name]
    for seed in range(10):
        found = em.audit(seeded(leak.build, seed), window_ids(seed), losses=False)
        assert (found.verdict, found.mode, found.where) == ("sees the future", leak.mode, leak.where), seed


def peek(ids: Tensor) -> Tensor:
    """Knows the next token where it is in view, and nothing at the end of what it is shown."""
    logits = torch.zeros(*ids.shape, VOCABULARY)
    logits[:, :-1].scatter_(2, ids[:, 1:, None], 20.0)
    return logits


def test_the_four_losses_of_a_model_that_copies_the_next_token() -> None:
    found = em.audit(peek, window_ids(0, windows=64))

    assert found.verdict == "sees the future"
    assert found.where is None
    assert found.mode == "as called, float32"
    assert found.teacher_forced_nats == pytest.approx(0.0, abs=1e-6)
    assert found.exchanged_future_nats == pytest.approx(20 * (1 - 1 / VOCABULARY), abs=0.5)
    assert found.prefix_only_nats == pytest.approx(math.log(VOCABULARY), abs=1e-6)
    assert found.standard_error["prefix_only"] == pytest.approx(0.0, abs=1e-6)
    assert 0 < found.standard_error["exchanged_future_minus_teacher_forced"] < 0.5
    assert found.by_distance["max_logit_change"][0] == pytest.approx(20.0)
    assert set(found.by_distance["max_logit_change"][1:]) == {0.0}
    assert all(loss < 1e-6 for loss in found.by_position["teacher_forced"])
    assert len(found.by_position["from"]) == 8
    assert "it leans on text it will not have" in losses_in_words(found)


def test_a_causal_model_has_one_loss_whatever_follows() -> None:
    model = seeded(CLEAN["ega"], 0)

    found = em.audit(model, window_ids(1).flatten(), context=48)

    assert found.teacher_forced_nats is not None
    for name in ("exchanged_future", "prefix_only"):
        assert getattr(found, f"{name}_nats") == pytest.approx(found.teacher_forced_nats, abs=1e-5)
        assert found.by_position[name] == pytest.approx(found.by_position["teacher_forced"], abs=1e-5)
    assert found.max_logit_change == 0
    assert found.draws == 8
    assert "The curves lie on one another" in losses_in_words(found)


def test_standard_errors_count_a_window_once() -> None:
    values = np.array([1.0, 3.0, 5.0, 5.0, 7.0])

    mean, error = mean_and_error(values, np.array([4, 4, 9, 9, 2]))

    # Deviations 4.2: window sums −4.4, 1.6, 2.8; 3/2 · (19.36 + 2.56 + 7.84) / 25.
    assert mean == pytest.approx(4.2)
    assert error == pytest.approx(math.sqrt(1.5 * 29.76 / 25))
    assert mean_and_error(values, np.zeros(5, dtype=int))[1] is None


class FixedContext(nn.Module):
    """Reads windows of 40 tokens and no others."""

    def __init__(self) -> None:
        super().__init__()
        self.model = Wrapped(MaskedAttention(causal_mask))

    def forward(self, ids: Tensor) -> Tensor:
        return self.model(ids.view(-1, 40))


def test_a_model_that_cannot_be_shortened_has_no_prefix_loss_and_says_why() -> None:
    found = em.audit(FixedContext(), short_ids(0), predictions=16, draws=2)

    assert found.verdict == "causal"
    assert found.prefix_only_nats is None
    assert found.by_position["prefix_only"] is None
    assert found.exchanged_future_nats == pytest.approx(found.teacher_forced_nats, abs=1e-5)
    assert any(
        "prefix-only could not be computed: the model cannot read a shortened" in n for n in found.notes
    )
    json.dumps(found.to_plain(), allow_nan=False)


class OwnDropout(nn.Module):
    """Drops with random numbers of its own, which no random state from outside repeats."""

    def __init__(self) -> None:
        super().__init__()
        self.generator = torch.Generator().manual_seed(0)

    def forward(self, x: Tensor) -> Tensor:
        if not self.training:
            return x
        return x * (torch.rand(x.shape, generator=self.generator) > 0.1)


def test_randomness_that_does_not_repeat_cannot_be_told() -> None:
    found = em.audit(seeded(lambda: Wrapped(OwnDropout()), 0), short_ids(0), losses=False)

    assert (found.verdict, found.mode) == ("cannot tell", "training, float32")
    assert "two identical calls" in found.reason
    assert "cannot tell" in headline(found)


class Whisper(nn.Module):
    """Passes a trace of the last token back; 3e-7 is as faint as float32's rounding."""

    def __init__(self, loudness: float) -> None:
        super().__init__()
        self.loudness = loudness

    def forward(self, x: Tensor) -> Tensor:
        return x * (1 + self.loudness * torch.tanh(x[:, -1:]))


def test_what_bf16_cannot_tell_from_rounding_is_not_called_causal_there() -> None:
    found = em.audit(seeded(lambda: Wrapped(Whisper(0.02)), 0), short_ids(0), losses=False)

    said = {mode["mode"]: mode["verdict"] for mode in found.modes}
    assert found.verdict == said["evaluation, float32"] == "sees the future"
    assert said["evaluation, bf16"] == "within rounding"


def test_a_leak_as_faint_as_rounding_is_found_in_float64() -> None:
    found = em.audit(seeded(lambda: Wrapped(Whisper(3e-7)), 0), short_ids(0), losses=False)

    assert found.verdict == "sees the future"
    assert "float64" in found.reason
    assert found.max_logit_change is not None and found.max_logit_change < found.threshold


def test_nothing_but_infinite_logits_cannot_be_told() -> None:
    found = em.audit(lambda ids: torch.full((*ids.shape, 5), math.nan), short_ids(0), losses=False)

    assert found.verdict == "cannot tell"
    assert "not a number" in found.reason


def test_the_model_and_the_random_states_come_back_as_they_were() -> None:
    model = seeded(LEAKY["batch statistics"].build, 0)
    model.train()
    model.get_submodule("mixers.0").eval()
    before = {name: value.clone() for name, value in model.state_dict().items()}
    torch.manual_seed(7)
    np.random.seed(7)
    expected = torch.rand(1), np.random.rand()
    torch.manual_seed(7)
    np.random.seed(7)

    em.audit(model, short_ids(0), predictions=4, draws=1)

    assert (torch.rand(1), np.random.rand()) == expected
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())
    assert model.training
    assert not model.get_submodule("mixers.0").training
    assert not any(m._forward_hooks or m._forward_pre_hooks for m in model.modules())


@pytest.mark.parametrize(
    ("model", "ids", "options", "message"),
    [
        (peek, None, {}, "ids: expected windows of tokens"),
        (peek, torch.rand(2, 8), {}, "ids: expected whole numbers"),
        (peek, torch.ones(4, 8, dtype=torch.long), {}, "2 different ones"),
        (peek, torch.arange(20), {}, "context: expected 2 to 19"),
        (lambda ids: ids, torch.arange(20).view(2, 10), {}, r"logits \[5, 10, vocabulary\]|tensor of logits"),
        (nn.Linear(3, 3), torch.arange(20).view(2, 10), {}, "model: expected logits"),
    ],
)
def test_what_cannot_be_audited_says_what_was_expected(model, ids, options, message) -> None:
    with pytest.raises(ValueError, match=message) as caught:
        em.audit(model, ids, **options)
    assert "\n" not in str(caught.value)


CONTRACT = {
    "run", "verdict", "mode", "where", "max_logit_change", "by_distance", "by_position", "teacher_forced_nats",
    "exchanged_future_nats", "prefix_only_nats", "standard_error", "windows",
}  # fmt: skip


def test_a_finished_training_is_audited_and_the_run_says_what_was_found(tiny_runs: Path) -> None:
    leaky, clean = Run(tiny_runs / "ega-sequence-learned-s0"), Run(tiny_runs / "ega-causal-learned-s0")
    assert leaky.audit is not None and clean.audit is not None

    assert leaky.audit.keys() >= CONTRACT
    assert (leaky.audit["verdict"], leaky.audit["where"]) == ("sees the future", "blocks.0.attention")
    assert (leaky.sees_future, clean.sees_future) == (True, False)
    assert leaky.audit["sample"]["id"] == clean.audit["sample"]["id"]
    assert clean.audit["prefix_only_nats"] == pytest.approx(clean.audit["teacher_forced_nats"], abs=1e-5)
    assert Run(tiny_runs / "ega-causal-mope-s1").audit is None


def test_a_training_that_cannot_be_audited_ends_finished_and_says_why(tmp_path: Path) -> None:
    from ega_mope.config import ExperimentConfig, ModelConfig, TrainConfig
    from ega_mope.experiments import run_experiment

    text = tmp_path / "monotone.txt"
    text.write_text("abcdefgh" * 100 + "a" * 200)
    config = ExperimentConfig(
        model=ModelConfig(context_length=8, n_layers=1, n_heads=1, d_model=8),
        training=TrainConfig(steps=1, batch_size=2, warmup_steps=0),
        corpus=str(text),
    )

    path, ended = run_experiment(config, tmp_path / "runs", device="cpu")

    assert ended == "finished"
    answer = Audit.from_plain(Run(path).audit or {})
    assert (answer.verdict, answer.max_logit_change, answer.teacher_forced_nats) == (
        "cannot tell",
        None,
        None,
    )
    assert "2 different ones" in answer.reason
    assert Run(path).sees_future is None


def copied(run: Path, folder: Path) -> Path:
    folder.mkdir(exist_ok=True)
    target = folder / run.name
    target.mkdir()
    for file in run.iterdir():
        (target / file.name).write_bytes(file.read_bytes())
    return target


@pytest.mark.parametrize(
    ("verdict", "sees"), [("causal", False), ("sees the future", True), ("cannot tell", None)]
)
def test_the_measured_verdict_counts_more_than_the_declared_one(tiny_runs, tmp_path, verdict, sees) -> None:
    path = copied(tiny_runs / "ega-sequence-learned-s0", tmp_path)
    document = json.loads((path / "audit.json").read_text()) | {"verdict": verdict}
    (path / "audit.json").write_text(json.dumps(document))

    assert Run(path).sees_future is sees


def test_a_broken_audit_is_listed_with_its_problem(tiny_runs: Path, tmp_path: Path) -> None:
    path = copied(tiny_runs / "dot-learned-s0", tmp_path)
    (path / "audit.json").write_text('{"verdict": "cau')

    [broken] = [run for run in list_runs([tmp_path]) if run.name == path.name]

    assert isinstance(broken, BrokenRun) and "audit.json" in broken.problem


def test_baseline_and_twin_stand_beside_a_run_that_sees_the_future(tiny_runs: Path) -> None:
    run, runs = Run(tiny_runs / "ega-sequence-learned-s0"), list_runs([tiny_runs])
    answer = Audit.from_plain(run.audit or {})

    base, other = baseline(run, answer, runs), twin(run, answer, runs)

    assert (base.run, other and other.run) == ("dot-learned-s0", "ega-causal-learned-s0")
    assert (
        other is not None and other.teacher_forced_nats is not None and answer.teacher_forced_nats is not None
    )
    assert other.gap_nats == pytest.approx(other.teacher_forced_nats - answer.teacher_forced_nats, abs=1e-5)
    assert "its twin ega-causal-learned-s0" in (value_in_words(answer, other) or "")
    table = loss_table(answer, base, other)
    assert table["curve"].nunique() == 5
    assert len(loss_by_position(table).data) == 5


def test_without_its_twin_no_value_is_named_and_the_missing_run_is(tiny_runs: Path) -> None:
    run = Run(tiny_runs / "ega-sequence-learned-s0")
    answer = Audit.from_plain(run.audit or {})

    words = value_in_words(answer, twin(run, answer, [run]))

    assert words is not None and "cannot be said" in words
    assert "--position learned --gate-norm causal" in words and "--seed 0" in words
    # Sizes beyond the preset too, or what it trains would be no twin.
    assert "--set model.context_length=32" in words
    assert "dot-product attention" in (baseline(run, answer, [run]).missing or "")


def test_the_figure_of_distances_shows_zeros_as_zeros() -> None:
    causal = em.audit(seeded(CLEAN["GRU"], 0), short_ids(0), losses=False)
    leaky = em.audit(seeded(LEAKY["mask off by one"].build, 0), short_ids(0), losses=False)

    flat = movement_by_distance(distance_table(causal), causal.threshold or 0)
    steep = movement_by_distance(distance_table(leaky), leaky.threshold or 0)

    assert [trace.name for trace in flat.data] == ["exactly 0", "the most that rounding explains"]
    assert flat.layout.yaxis.ticktext[0] == "0"
    assert [trace.name for trace in steep.data][:2] == ["moved", "exactly 0"]
    assert list(steep.data[0].x) == [1.0]


def call(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str, str]:
    status = command(arguments)
    out, err = capsys.readouterr()
    return status, out, err


def test_the_command_answers_from_audit_json(tiny_runs, capsys) -> None:
    status, out, _ = call(capsys, "audit", str(tiny_runs / "ega-sequence-learned-s0"), "--json")

    answer = json.loads(out)
    assert status == 0
    assert answer.keys() >= CONTRACT
    assert answer["baseline"]["run"] == "dot-learned-s0"
    assert answer["twin"]["gap_nats"] is not None


def test_a_run_without_an_answer_is_measured_and_the_answer_kept(
    tiny_runs, tmp_path, small_text, capsys
) -> None:
    path = copied(tiny_runs / "ega-sequence-mope-s1", tmp_path)
    (tmp_path / ".corpora").mkdir()
    sha256 = Run(path).document["corpus"]["sha256"]
    (tmp_path / ".corpora" / f"{sha256}.txt").write_text(small_text.read_text())

    status, out, err = call(capsys, "audit", str(path), "--keep")

    assert status == 0, err
    assert out.startswith("sees the future (in evaluation, float32, first in blocks.0.attention)")
    assert "with gate norm causal" in out
    assert (Run(path).audit or {})["verdict"] == "sees the future"


MODULE = """
import torch
from torch import nn

class Model(nn.Module):
    def __init__(self, width=8):
        super().__init__()
        self.embedding, self.head = nn.Embedding(11, width), nn.Linear(width, 11)
    def forward(self, ids):
        return self.head(self.embedding(ids))

model = Model()
def factory(width=8):
    return Model(width)
def function(ids, scale=1.0):
    return torch.nn.functional.one_hot(ids.roll(-1, 1), 11) * scale
number = 7
def nothing():
    return 7
"""


@pytest.mark.parametrize(
    ("name", "verdict"),
    [("model", "causal"), ("Model", "causal"), ("factory", "causal"), ("function", "sees the future")],
)
def test_any_callable_of_the_current_folder_is_audited(name, verdict, tmp_path, monkeypatch, capsys) -> None:
    (tmp_path / "my_audited_model.py").write_text(MODULE)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend("")

    status, out, err = call(
        capsys,
        "audit",
        "--callable",
        f"my_audited_model:{name}",
        "--vocabulary",
        "11",
        "--context",
        "16",
        "--json",
    )

    assert status == 0, err
    answer = json.loads(out)
    assert answer["verdict"] == verdict
    assert answer["teacher_forced_nats"] is None
    assert any("drawn at random" in note for note in answer["notes"])


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "expected RUN or --callable"),
        (["--callable", "json"], "expected package.module:function"),
        (["--callable", "no_such_module:f"], "expected no_such_module:f to be importable"),
        (["--callable", "my_audited_model:number"], "expected a model or a function"),
        (["--callable", "my_audited_model:nothing"], "expected a model or a function"),
        (
            ["--callable", "my_audited_model:model", "--corpus", "text.txt"],
            "--vocabulary: expected the 3 tokens",
        ),
    ],
)
def test_bad_input_is_refused_in_one_line(arguments, message, tmp_path, monkeypatch, capsys) -> None:
    (tmp_path / "my_audited_model.py").write_text(MODULE)
    (tmp_path / "text.txt").write_text("abcabc" * 50)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend("")
    more = ["--vocabulary", "11", "--context", "16"] if arguments else []

    status, out, err = call(capsys, "audit", *arguments, *more)

    assert (status, out) == (2, "")
    assert message in err and err.count("\n") == 1


def test_the_five_lines_of_the_documentation_run(capsys) -> None:
    [code] = re.findall(r"```python\n(.*?)```", (ROOT / "docs" / "AUDIT.md").read_text(), flags=re.DOTALL)

    exec(compile(code, "AUDIT.md", "exec"), {})

    assert len([line for line in code.splitlines() if line.strip()]) == 5
    assert capsys.readouterr().out.startswith(
        "causal evaluation and training, float32 and bf16 None When only"
    )
