"""Checkpoints of the published script and of nanoGPT become runs: exactly, or not at all."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from click.testing import CliRunner
from golden_files import golden
from torch import Tensor, nn
from torch.nn.functional import scaled_dot_product_attention
from trainer_process import tiny_experiment

from ega_mope.analysis.home import comparable_runs
from ega_mope.analysis.runs import summarise, summarise_all
from ega_mope.cli import cli, run
from ega_mope.experiments import describe, prepare
from ega_mope.importers import (
    TINYSHAKESPEARE_ALPHABET,
    from_nanogpt_state,
    from_published_state,
    import_checkpoint,
)
from ega_mope.runs import Run, open_run
from ega_mope.text import CharacterTokenizer

ELEVEN = "abcdefghijk"


def state_of(name: str) -> dict[str, Tensor]:
    return golden(name)[0]


def save(path: Path, state: dict[str, Tensor], **more: Any) -> Path:
    torch.save({"model_state": state, "history": [], "step": 5000, **more}, path)
    return path


@pytest.fixture
def letters(tmp_path: Path) -> Path:
    """A vocabulary for the goldens' eleven tokens."""
    path = tmp_path / "letters.txt"
    path.write_text(ELEVEN)
    return path


# ---- state dicts


def test_sizes_and_mechanisms_come_from_the_keys() -> None:
    config = from_published_state(state_of("ega_mope")).config
    sizes = (config.vocabulary_size, config.context_length, config.n_layers, config.n_heads, config.d_model)
    assert sizes == (11, 24, 2, 4, 32)
    assert config.attention["gate_norm"] == "sequence"
    assert from_published_state(state_of("rope")).config.position["learned_table"] is True


@pytest.mark.parametrize("prefix", ["module.", "_orig_mod.", "module._orig_mod.", "_orig_mod.module."])
def test_wrappers_prefixes_come_off(prefix: str) -> None:
    plain = state_of("ega")
    wrapped = from_published_state({prefix + name: value for name, value in plain.items()}).state_dict()
    for name, value in from_published_state(plain).state_dict().items():
        assert torch.equal(value, wrapped[name])


@pytest.mark.parametrize("name", ["sincos", "rope", "ega_mope"])
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_half_precision_is_widened_exactly(name: str, dtype: torch.dtype) -> None:
    half = {key: value.to(dtype) for key, value in state_of(name).items()}
    model = from_published_state(half)
    assert model.token_embedding.weight.dtype == torch.float32
    assert torch.equal(model.token_embedding.weight, half["tok_emb.weight"].float())


def test_masks_and_the_cancelled_energy_bias_change_nothing() -> None:
    state = state_of("ega")
    changed = dict(state)
    for layer in range(2):
        for head in range(4):
            changed[f"blocks.{layer}.heads.{head}.tril"] = torch.ones(24, 24).tril()
            changed[f"blocks.{layer}.heads.{head}.proj.bias"] = torch.tensor([7.0])
    ids = torch.tensor(golden("ega")[1]["input_ids"])
    assert torch.equal(from_published_state(changed)(ids), from_published_state(state)(ids))


def test_float64_weights_keep_their_digits() -> None:
    state = {key: value.double() for key, value in state_of("base").items()}
    state["tok_emb.weight"] = state["head.weight"] = state["tok_emb.weight"] + 1e-12
    assert torch.equal(from_published_state(state).token_embedding.weight, state["tok_emb.weight"])


def without(state: dict[str, Tensor], key: str) -> dict[str, Tensor]:
    return {name: value for name, value in state.items() if name != key}


def broken(how: str) -> dict[str, Tensor]:
    state = state_of("rope" if how == "other frequencies" else "sincos" if how == "other table" else "ega")
    changes: dict[str, dict[str, Tensor]] = {
        "unknown key": {"blocks.0.heads.0.lag_weights": torch.zeros(5)},
        "untied head": {"head.weight": state["head.weight"] + 1.0},
        "not finite": {"ln_f.bias": torch.full((32,), math.nan)},
        "misfit": {"blocks.1.proj.weight": torch.zeros(31, 32)},
        "other frequencies": {"blocks.1.heads.2.theta": torch.tensor([1.0, 0.04, 0.001, 0.0001])},
        "other table": {"pe.pe": torch.zeros(24, 32)},
    }
    if how == "missing key":
        return without(state, "blocks.1.heads.3.alpha")
    if how == "no positions":
        return without(state, "pos_emb.weight")
    return state | changes[how]


@pytest.mark.parametrize(
    ("how", "says"),
    [
        ("unknown key", "blocks.0.heads.0.lag_weights"),
        ("missing key", "blocks.1.heads.3.alpha"),
        ("no positions", "pos_emb.weight"),
        ("untied head", "head"),
        ("not finite", "ln_f.bias"),
        ("misfit", "blocks.1.attention.out.weight"),
        ("other frequencies", "blocks.1.heads.2.theta"),
        ("other table", "pe.pe"),
    ],
)
def test_what_cannot_be_represented_is_refused_by_name(how: str, says: str) -> None:
    with pytest.raises(ValueError, match=r"^state: expected") as caught:
        from_published_state(broken(how))
    assert says in str(caught.value)
    assert "\n" not in str(caught.value)


# ---- nanoGPT


class NanoGPT(nn.Module):
    """nanoGPT's forward pass, written out from its parameters' names: the reference."""

    def __init__(self, bias: bool, vocabulary: int = 11, context: int = 16, width: int = 24) -> None:
        super().__init__()

        def block() -> nn.ModuleDict:
            attention = nn.ModuleDict(
                {"c_attn": nn.Linear(width, 3 * width, bias), "c_proj": nn.Linear(width, width, bias)}
            )
            mlp = nn.ModuleDict(
                {"c_fc": nn.Linear(width, 4 * width, bias), "c_proj": nn.Linear(4 * width, width, bias)}
            )
            norms = {name: nn.LayerNorm(width, bias=bias) for name in ("ln_1", "ln_2")}
            return nn.ModuleDict({**norms, "attn": attention, "mlp": mlp})

        self.transformer = nn.ModuleDict(
            {
                "wte": nn.Embedding(vocabulary, width),
                "wpe": nn.Embedding(context, width),
                "h": nn.ModuleList(block() for _ in range(2)),
                "ln_f": nn.LayerNorm(width, bias=bias),
            }
        )
        self.lm_head = nn.Linear(width, vocabulary, bias=False)
        self.lm_head.weight = self.transformer["wte"].weight  # type: ignore[assignment]
        with torch.no_grad():
            for parameter in self.parameters():
                parameter.add_(0.1 * torch.randn_like(parameter))

    @property
    def blocks(self) -> list[Any]:
        return list(self.transformer["h"])  # type: ignore[call-overload]

    def forward(self, ids: Tensor) -> Tensor:
        parts = self.transformer
        x = parts["wte"](ids) + parts["wpe"](torch.arange(ids.shape[1]))
        for block in self.blocks:
            q, k, v = block["attn"]["c_attn"](block["ln_1"](x)).split(24, dim=2)
            q, k, v = (part.view(*ids.shape, 3, 8).transpose(1, 2) for part in (q, k, v))
            y = scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).flatten(2)
            x = x + block["attn"]["c_proj"](y)
            x = x + block["mlp"]["c_proj"](nn.functional.gelu(block["mlp"]["c_fc"](block["ln_2"](x))))
        return self.lm_head(parts["ln_f"](x))


def nanogpt(bias: bool, attention_bias: float = 0.0) -> NanoGPT:
    torch.manual_seed(0)
    model = NanoGPT(bias).double()
    if bias:
        for block in model.blocks:
            nn.init.constant_(block["attn"]["c_attn"].bias, attention_bias)
    return model


@pytest.mark.parametrize("bias", [False, True])
def test_nanogpt_gives_the_same_logits(bias: bool) -> None:
    theirs = nanogpt(bias)
    ids = torch.arange(32).view(2, 16) % 11
    gap = (from_nanogpt_state(theirs.state_dict(), 3)(ids) - theirs(ids)).abs().max()
    assert gap < 1e-12


def test_nanogpt_with_biases_on_queries_keys_and_values_is_refused() -> None:
    with pytest.raises(ValueError, match=r"no bias on queries, keys and values.*c_attn"):
        from_nanogpt_state(nanogpt(True, attention_bias=0.1).state_dict(), 3)


def nanogpt_file(path: Path) -> Path:
    state = {f"_orig_mod.{name}": value.float() for name, value in nanogpt(False).state_dict().items()}
    arguments = {"n_layer": 2, "n_head": 3, "n_embd": 24, "block_size": 16, "bias": False, "vocab_size": 11}
    torch.save(
        {
            "model": state,
            "optimizer": {},
            "model_args": arguments,
            "iter_num": 2000,
            "best_val_loss": torch.tensor(1.5),
            "config": {},
        },
        path,
    )
    return path


# ---- run folders


def test_an_imported_run_opens_computes_and_is_listed(
    tmp_path: Path, letters: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("EGA_MOPE_RUNS", str(tmp_path / "runs"))
    file = save(tmp_path / "best model.pt", state_of("ega_mope"))
    imported = import_checkpoint(file, tmp_path / "runs", vocabulary=letters)
    opened = open_run("best-model")
    assert opened.path == imported.path
    assert (opened.status.state, opened.status.step) == ("finished", 5000)
    assert opened.sees_future is True
    state, expected = golden("ega_mope")
    gap = opened.model("cpu")(torch.tensor(expected["input_ids"])).double().numpy() - expected["logits"]
    assert np.abs(gap).max() < 1e-4
    (learned,) = opened.learned()
    assert learned["step"] == 5000
    assert learned["values"]["attention.threshold"][1][2] == state["blocks.1.heads.2.tau"].item()
    row = next(row for row in summarise_all() if row["name"] == "best-model")
    assert row["problem"] is None and row["steps"] == 5000 and row["attention"] == "ega"
    (group,) = comparable_runs([(opened, row)], tmp_path)
    assert "text that is not known" in group.evaluation


def test_what_the_file_does_not_say_stays_unknown(tmp_path: Path, letters: Path) -> None:
    file = save(tmp_path / "a.pt", state_of("base"))
    opened = Run(import_checkpoint(file, tmp_path / "runs", vocabulary=letters).path)
    assert opened.seed is None and opened.config.training is None
    assert opened.best() is None and opened.final() is None
    assert summarise(opened)["seed"] is None
    assert opened.settings()["training"] is None
    with pytest.raises(ValueError, match="expected the text it was trained on"):
        opened.corpus()


def test_losses_of_others_never_share_an_evaluation_with_ours(tmp_path: Path, small_text: Path) -> None:
    ours = describe(prepare(tiny_experiment(small_text)), torch.device("cpu"), "ours")["evaluation"]
    alphabet = CharacterTokenizer.fit(small_text.read_text()).alphabet
    rows = len(alphabet)
    state = state_of("base")
    state["tok_emb.weight"] = state["head.weight"] = torch.randn(rows, 32)
    files = [save(tmp_path / f"{n}.pt", state, step=n) for n in (1, 2)]
    runs = tmp_path / "runs"
    known = [Run(import_checkpoint(f, runs, corpus=str(small_text)).path).evaluation for f in files]
    (tmp_path / "alphabet.json").write_text(json.dumps(list(alphabet)))
    unknown = [
        Run(import_checkpoint(f, runs, vocabulary=tmp_path / "alphabet.json").path).evaluation for f in files
    ]
    assert known[0]["corpus_sha256"] == ours["corpus_sha256"]
    assert "measured_by" not in ours and known[0]["measured_by"] == "published script"
    assert ours not in known
    assert known[0] == known[1], "two of the same program on the same text do compare"
    assert unknown[0] != unknown[1] and unknown[0] not in known


@pytest.mark.parametrize("shape", ["list of dicts", "dict of lists", "numpy numbers", "tensors"])
def test_a_history_that_can_be_understood_is_kept(tmp_path: Path, letters: Path, shape: str) -> None:
    history: Any = {
        "list of dicts": [
            {"step": 0, "train": 4.0, "val": 4.1, "lr": 0.0},
            {"step": 500, "train": 2.0, "val": 2.25, "lr": 1e-3},
        ],
        "dict of lists": {"steps": [0, 500], "train_loss": [4.0, 2.0], "val_loss": [4.1, 2.25]},
        "numpy numbers": [
            {"step": 0, "train": np.float64(4.0), "val": np.float32(4.1)},
            {"step": 500, "train": np.float64(2.0), "val": np.float64(2.25)},
        ],
        "tensors": {"iter": torch.tensor([0, 500]), "val": torch.tensor([4.1, 2.25])},
    }[shape]
    file = save(tmp_path / "a.pt", state_of("mope"), history=history)
    opened = Run(import_checkpoint(file, tmp_path / "runs", vocabulary=letters).path)
    final, best = opened.final(), opened.best()
    assert final is not None and (final.step, final.loss_nats) == (500, 2.25)
    assert best == final
    table = opened.metrics()
    assert list(table[table.split == "train"].loss_nats) == ([] if shape == "tensors" else [4.0, 2.0])
    assert table.lr.isna().all() and table.tokens.isna().all()


@pytest.mark.parametrize(
    "history",
    [
        None,
        [1.0, 2.0],
        {"val": [1.0, 2.0]},
        {"step": [0, 1], "val": [1.0]},
        [{"step": 1, "accuracy": 0.5}],
        [{"step": math.inf, "val": 1.0}],
        [{"step": 1, "val": "low"}],
        "text",
    ],
    ids=str,
)
def test_a_history_that_cannot_be_understood_is_left_out_and_said_so(
    tmp_path: Path, letters: Path, history: Any
) -> None:
    file = save(tmp_path / "a.pt", state_of("base"), history=history)
    imported = import_checkpoint(file, tmp_path / "runs", vocabulary=letters)
    assert Run(imported.path).records() == []
    assert any("no losses" in note for note in imported.notes)


def test_a_loss_that_was_not_finite_is_kept_as_diverged(tmp_path: Path, letters: Path) -> None:
    file = save(tmp_path / "a.pt", state_of("base"), history=[{"step": 3, "val": math.nan}])
    (record,) = Run(import_checkpoint(file, tmp_path / "runs", vocabulary=letters).path).records()
    assert record == {"step": 3, "split": "validation", "loss_nats": None, "diverged": True}


def test_nanogpt_files_become_runs(tmp_path: Path, letters: Path) -> None:
    opened = Run(
        import_checkpoint(nanogpt_file(tmp_path / "ckpt.pt"), tmp_path / "runs", vocabulary=letters).path
    )
    assert opened.status.step == 2000
    assert opened.document["imported"]["best_val_loss"] == 1.5
    ids = torch.arange(16)[None] % 11
    gap = opened.model("cpu")(ids).double() - nanogpt(False)(ids)
    assert gap.abs().max() < 1e-4


def test_sixty_five_tokens_are_tinyshakespeares(tmp_path: Path) -> None:
    state = state_of("base")
    state["tok_emb.weight"] = state["head.weight"] = torch.randn(65, 32)
    imported = import_checkpoint(save(tmp_path / "a.pt", state), tmp_path / "runs")
    assert Run(imported.path).tokenizer.decode([0, 1, 39]) == "\n a"
    assert len(set(TINYSHAKESPEARE_ALPHABET)) == 65
    assert "assumed" in " ".join(imported.notes)


def test_an_unsorted_vocabulary_keeps_every_character_at_its_own_weights(tmp_path: Path) -> None:
    state, expected = golden("ega")
    path = tmp_path / "order.json"
    shuffled = "kajbichdgef"
    path.write_text(json.dumps(list(shuffled)))
    opened = Run(import_checkpoint(save(tmp_path / "a.pt", state), tmp_path / "runs", vocabulary=path).path)
    theirs = torch.tensor(expected["input_ids"])
    ours = torch.stack(
        [torch.tensor(opened.tokenizer.encode("".join(shuffled[i] for i in row))) for row in theirs.tolist()]
    )
    assert not torch.equal(ours, theirs)
    column = [opened.tokenizer.encode(character)[0] for character in shuffled]
    logits = opened.model("cpu")(ours)[..., column]
    assert np.abs(logits.double().numpy() - expected["logits"]).max() < 1e-4


@pytest.mark.parametrize(
    ("file", "content"),
    [
        ("v.txt", "abcdefghij"),
        ("v.txt", "abcdefghijj"),
        ("v.json", '["ab", "c"]'),
        ("v.json", "{"),
        ("v.txt", ""),
    ],
)
def test_a_vocabulary_that_does_not_fit_is_refused(tmp_path: Path, file: str, content: str) -> None:
    (tmp_path / file).write_text(content)
    with pytest.raises(ValueError, match="expected"):
        import_checkpoint(
            save(tmp_path / "a.pt", state_of("base")), tmp_path / "runs", vocabulary=tmp_path / file
        )
    assert not (tmp_path / "runs").exists()


def test_a_vocabulary_file_may_end_with_an_editors_newline(tmp_path: Path) -> None:
    (tmp_path / "v.txt").write_text(ELEVEN + "\n")
    file = save(tmp_path / "a.pt", state_of("base"))
    imported = import_checkpoint(file, tmp_path / "runs", vocabulary=tmp_path / "v.txt")
    assert Run(imported.path).tokenizer.decode(range(11)) == ELEVEN


# ---- the command


class Danger:
    """What a pickle could run."""

    def __reduce__(self) -> tuple[Any, ...]:
        return (Path.touch, (Path("ran-by-the-pickle"),))


def test_nothing_in_the_file_is_executed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    save(tmp_path / "a.pt", state_of("base"), history=Danger())
    assert run(["import", "a.pt", "--runs", "runs"]) == 2
    assert not (tmp_path / "ran-by-the-pickle").exists()
    assert capsys.readouterr().err.count("\n") == 1


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["nowhere.pt"], "nowhere.pt"),
        (["noise.pt"], "noise.pt"),
        (["letters.txt"], "letters.txt"),
        (["protocol.pt"], "protocol.pt"),
        (["list.pt"], "dict"),
        (["other.pt"], "model_state"),
        (["stepless.pt"], "step"),
        (["good.pt"], "--corpus or --vocabulary"),
        (["good.pt", "--corpus", "text.txt", "--vocabulary", "text.txt"], "both"),
        (["good.pt", "--corpus", "text.txt"], "11 different characters"),
        (["good.pt", "--vocabulary", "nowhere.txt"], "nowhere.txt"),
        (["good.pt", "--vocabulary", "letters.txt", "--name", "../up"], "name"),
        (["good.pt", "--vocabulary", "letters.txt", "--name", "taken"], "taken"),
    ],
)
def test_bad_input_is_one_line_and_status_2(
    tmp_path: Path,
    letters: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    arguments: list[str],
    says: str,
) -> None:
    monkeypatch.chdir(tmp_path)
    save(tmp_path / "good.pt", state_of("base"))
    torch.save({"weights": 1}, tmp_path / "other.pt")
    torch.save([1, 2], tmp_path / "list.pt")
    torch.save({"model_state": state_of("base")}, tmp_path / "stepless.pt")
    (tmp_path / "noise.pt").write_bytes(b"no checkpoint at all")
    (tmp_path / "protocol.pt").write_bytes(b"\x80\x00\x00\x00")
    (tmp_path / "text.txt").write_text("only six")
    import_checkpoint(tmp_path / "good.pt", tmp_path / "runs", vocabulary=letters, name="taken")
    capsys.readouterr()
    assert run(["import", *arguments, "--runs", "runs"]) == 2
    printed = capsys.readouterr()
    assert printed.out == ""
    assert printed.err.count("\n") == 1 and says in printed.err


def test_json_answer_and_name(tmp_path: Path, letters: Path) -> None:
    file = save(tmp_path / "a.pt", state_of("ega"))
    arguments = [
        "import",
        str(file),
        "--vocabulary",
        str(letters),
        "--runs",
        str(tmp_path / "runs"),
        "--json",
    ]
    first = json.loads(CliRunner().invoke(cli, arguments).stdout)
    second = json.loads(CliRunner().invoke(cli, arguments).stdout)
    assert (first["name"], second["name"]) == ("a", "a-2")
    assert first["step"] == 5000 and first["sees_future"] is True
    assert Run(Path(second["path"])).config.model.attention["name"] == "ega"
    resume = ["train", "--resume", "--runs", str(tmp_path / "runs"), "--name", "a"]
    assert run(resume) == 2


def test_gates_and_scales_of_an_imported_run(
    tmp_path: Path, letters: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("EGA_MOPE_RUNS", str(tmp_path / "runs"))
    state = state_of("ega_mope")
    import_checkpoint(save(tmp_path / "a.pt", state), tmp_path / "runs", vocabulary=letters)
    assert run(["scales", "a", "--json"]) == 0
    scales = json.loads(capsys.readouterr().out)
    sigma = [pair["sigma"] for pair in scales["pairs"]]
    assert sigma == pytest.approx(state["pe.log_sigma"].exp().tolist(), rel=1e-5)
    assert scales["most_log_move"] is None, "nobody knows how it was trained"
    assert {pair["sigma_start"] for pair in scales["pairs"]} == {None}
    assert run(["gates", "a", "--text", "kick a bad?", "--json"]) == 0
    gates = json.loads(capsys.readouterr().out)
    assert [token["known"] for token in gates["tokens"]][4] is False, "a space is none of its characters"
    assert (gates["layers"], gates["heads"]) == (2, 4)
