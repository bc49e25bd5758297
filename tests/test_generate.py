"""Going on with a text: the cache changes nothing, seeds decide everything, and what was cut is said."""

import itertools
import json
import math
from pathlib import Path

import pytest
import torch

from ega_mope import cli
from ega_mope.attention import ATTENTIONS, Past
from ega_mope.attention.gate_norms import GATE_NORMS
from ega_mope.config import ModelConfig, Plain
from ega_mope.gate_signals import GATE_SIGNALS
from ega_mope.generation import continue_text, generate
from ega_mope.model import CharLM, build_model, refusal
from ega_mope.positions import POSITIONS
from ega_mope.runs import open_run
from ega_mope.text import ByteTokenizer, CharacterTokenizer

CONTEXT, VOCABULARY = 12, 11
PROMPT = [3, 1, 4]

# Every attention with every position, and EGA with each gate norm, each signal and each way of applying.
PAIRS: list[tuple[Plain, str]] = [
    ({"name": attention}, position)
    for attention, position in itertools.product(ATTENTIONS, POSITIONS)
    if refusal(attention, position) is None
]
PAIRS += [({"name": "ega", "gate_norm": norm}, "mope") for norm in GATE_NORMS]
PAIRS += [({"name": "ega", "signal": signal}, "mope") for signal in GATE_SIGNALS]
PAIRS += [({"name": "ega", "apply": "plain"}, "mope")]


def lively(attention: Plain, position: str) -> CharLM:
    """A float64 model with large random parameters, so that every part of it moves the logits."""
    config = ModelConfig(
        vocabulary_size=VOCABULARY, context_length=CONTEXT, n_layers=2, n_heads=2, d_model=16,
        attention=attention, position={"name": position},
    )  # fmt: skip
    model = build_model(config, seed=1).double().eval()
    noise = torch.Generator().manual_seed(2)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.3 * torch.randn(parameter.shape, generator=noise, dtype=torch.float64))
    return model


@pytest.fixture(scope="module")
def model() -> CharLM:
    return lively({"name": "ega"}, "learned")


@torch.inference_mode()
@pytest.mark.parametrize(
    ("attention", "position"), PAIRS, ids=["-".join([*a.values(), position]) for a, position in PAIRS]
)
def test_reading_one_by_one_gives_the_logits_of_reading_at_once(attention: Plain, position: str) -> None:
    model = lively(attention, position)
    if not model.caches:
        # Falls back to reading everything anew, and still writes.
        assert len(generate(model, PROMPT, tokens=2, seed=0).ids) == 2
        return
    ids = torch.randint(VOCABULARY, (2, CONTEXT), generator=torch.Generator().manual_seed(3))
    pasts = [Past() for _ in model.attentions]
    at_once = model(ids)
    one_by_one = torch.stack([model.next_logits(ids[:, t], t, pasts) for t in range(CONTEXT)], dim=1)
    assert float(at_once.std()) > 0.1
    assert float((at_once - one_by_one).abs().max()) < 1e-10
    with_cache, without = (
        generate(model, PROMPT, tokens=CONTEXT, seed=5, use_cache=use) for use in (True, False)
    )
    assert with_cache.ids == without.ids
    assert (with_cache.cached, without.cached) == (True, False)


def test_who_caches_and_who_does_not() -> None:
    caches = {
        norm: lively({"name": "ega", "gate_norm": norm}, "rope").caches
        for norm in ("causal", "none", "sequence")
    }
    assert caches == {"causal": True, "none": True, "sequence": False}
    assert lively({"name": "dot"}, "learned").caches


def test_a_seed_decides_the_text_whatever_else_draws(model: CharLM) -> None:
    torch.manual_seed(1)
    first = generate(model, PROMPT, tokens=20, seed=7).ids
    torch.manual_seed(2)
    torch.rand(3)
    assert generate(model, PROMPT, tokens=20, seed=7).ids == first
    assert generate(model, PROMPT, tokens=20, seed=8).ids != first
    assert generate(model, PROMPT, tokens=10, seed=7).ids == first[:10]


@torch.inference_mode()
def test_draws_follow_the_models_probabilities(model: CharLM) -> None:
    n = 120
    drawn = [
        generate(model, PROMPT, tokens=1, seed=seed, temperature=2.0, use_cache=False).ids[0]
        for seed in range(n)
    ]
    expected = (model(torch.tensor([PROMPT]))[0, -1] / 2.0).softmax(dim=0)
    counts = torch.bincount(torch.tensor(drawn), minlength=VOCABULARY)
    # χ² with 10 degrees of freedom passes 29.6 once in a thousand; the seeds are fixed.
    assert float(((counts - n * expected) ** 2 / (n * expected)).sum()) < 29.6


@torch.inference_mode()
def test_temperature_0_and_top_1_take_the_likeliest(model: CharLM) -> None:
    ids = list(PROMPT)
    for _ in range(20):
        ids.append(int(model(torch.tensor([ids[-CONTEXT:]]))[0, -1].argmax()))
    expected = ids[len(PROMPT) :]
    assert generate(model, PROMPT, tokens=20, seed=0, temperature=0).ids == expected
    assert generate(model, PROMPT, tokens=20, seed=0, top_k=1).ids == expected
    assert generate(model, PROMPT, tokens=20, seed=0, temperature=1e-12).ids == expected


@torch.inference_mode()
def test_top_k_draws_from_the_k_likeliest_only(model: CharLM) -> None:
    likeliest = set(model(torch.tensor([PROMPT]))[0, -1].topk(3).indices.tolist())
    drawn = {generate(model, PROMPT, tokens=1, seed=s, temperature=5, top_k=3).ids[0] for s in range(60)}
    assert drawn == likeliest


@torch.inference_mode()
def test_beyond_the_context_each_token_comes_from_the_last_window_read_anew(model: CharLM) -> None:
    written = generate(model, PROMPT, tokens=20, seed=0, temperature=0)
    text = PROMPT + written.ids
    for end in range(CONTEXT, len(text)):
        assert text[end] == int(model(torch.tensor([text[max(0, end - CONTEXT) : end]]))[0, -1].argmax())
    # 3 + 9 tokens fill the context and the next is still written from all of them.
    assert written.moved_from == CONTEXT + 1 - len(PROMPT)
    assert generate(model, PROMPT, tokens=10, seed=0).moved_from is None
    assert generate(model, PROMPT, tokens=11, seed=0).moved_from == 10


def test_a_prompt_longer_than_the_context_says_what_was_not_read(model: CharLM) -> None:
    prompt = [1] * 7 + [*range(10), 3, 4]
    long, short = (generate(model, p, tokens=5, seed=0) for p in (prompt, prompt[-CONTEXT:]))
    assert (long.unread, long.moved_from, short.unread, short.moved_from) == (7, 0, 0, 1)
    assert long.ids == short.ids


def test_it_ends_after_the_stop_sequence_and_says_so(model: CharLM) -> None:
    ids = generate(model, PROMPT, tokens=20, seed=7).ids
    ended = generate(model, PROMPT, tokens=20, seed=7, stop=ids[8:10])
    first = next(end for end in range(2, 21) if ids[end - 2 : end] == ids[8:10])
    assert ended.ids == ids[:first] and ended.stopped
    assert not generate(model, PROMPT, tokens=5, seed=7, stop=[1, 2, 3, 4]).stopped


def test_it_is_read_in_evaluation_mode_and_given_back_as_it_was() -> None:
    config = ModelConfig(
        vocabulary_size=VOCABULARY, context_length=CONTEXT, d_model=16, n_heads=2, dropout=0.9
    )
    model = build_model(config, seed=1).train()
    assert len({tuple(generate(model, PROMPT, tokens=20, seed=0).ids) for _ in range(3)}) == 1
    assert model.training


def test_a_model_that_sees_the_future_says_so() -> None:
    written = generate(lively({"name": "ega", "gate_norm": "sequence"}, "mope"), PROMPT, tokens=3, seed=0)
    assert written.sees_future and not written.cached
    assert not generate(lively({"name": "ega"}, "mope"), PROMPT, tokens=3, seed=0).sees_future


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"tokens": -1}, "tokens: expected at least 0, got -1"),
        ({"seed": -1}, "seed: expected at least 0, got -1"),
        ({"temperature": -0.5}, "temperature: expected 0 or more, got -0.5"),
        ({"temperature": math.nan}, "temperature: .*got nan"),
        ({"top_k": 0}, "top-k: expected at least 1, got 0"),
        ({"stop": []}, "stop: expected at least one character"),
        ({"stop": [11]}, "expected ids from 0 to 10, got 11"),
    ],
)
def test_settings_out_of_range_are_refused(change: Plain, message: str, model: CharLM) -> None:
    settings: Plain = {"tokens": 1, "seed": 0} | change
    with pytest.raises(ValueError, match=message):
        generate(model, PROMPT, **settings)


@pytest.mark.parametrize("prompt", [[], [0, 11], [-1]])
def test_prompts_that_are_none_are_refused(prompt: list[int], model: CharLM) -> None:
    with pytest.raises(ValueError, match=r"expected a prompt of at least one id|expected ids from 0 to 10"):
        generate(model, prompt, tokens=1, seed=0)


def test_a_diverged_model_writes_nothing() -> None:
    model = lively({"name": "dot"}, "learned")
    with torch.no_grad():
        model.norm_final.weight.fill_(math.nan)
    with pytest.raises(ValueError, match="expected finite logits"):
        generate(model, PROMPT, tokens=1, seed=0)


def test_text_is_read_as_everywhere_and_the_unknown_left_out(model: CharLM) -> None:
    tokenizer = CharacterTokenizer("abcdefgh-' ")
    typed, plain = (
        continue_text(model, tokenizer, prompt, tokens=12, seed=3) for prompt in ("a–b’漢漢", "a-b'")
    )
    assert typed.text == plain.text and len(typed.text) == 12
    assert typed.reading.unknown() == [("漢", 2)]
    assert typed.started_from is None
    ended = continue_text(model, tokenizer, "a-b'", tokens=12, seed=3, stop=plain.text[3:5])
    assert ended.text == plain.text[: plain.text.index(plain.text[3:5]) + 2]


def test_an_empty_prompt_starts_from_a_newline_where_there_is_one(model: CharLM) -> None:
    with_newline = CharacterTokenizer("\nabcdefghij")
    started = continue_text(model, with_newline, "", tokens=9, seed=1)
    assert started.started_from == "\n"
    assert started.text == continue_text(model, with_newline, "\n", tokens=9, seed=1).text
    without: list[CharacterTokenizer | ByteTokenizer] = [
        CharacterTokenizer("abcdefghijk"),
        ByteTokenizer([65]),
    ]
    for tokenizer in without:
        with pytest.raises(ValueError, match="knows no newline to start from"):
            continue_text(model, tokenizer, "", tokens=9, seed=1)


@pytest.mark.parametrize(
    ("prompt", "stop", "message"),
    [("漢字", None, "got 2 characters unknown"), ("a", "z", "stop: expected only the 11 characters")],
)
def test_texts_the_run_cannot_read_or_write_are_refused(
    prompt: str, stop: str | None, message: str, model: CharLM
) -> None:
    with pytest.raises(ValueError, match=message):
        continue_text(model, CharacterTokenizer("abcdefghijk"), prompt, tokens=1, seed=0, stop=stop)


def test_the_command_answers_in_text_and_json(
    tiny_runs: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("EGA_MOPE_RUNS", str(tiny_runs))
    options = ["--prompt", "The “quick” 漢 fox", "--seed", "4", "--tokens", "40", "--device", "cpu"]
    assert cli.run(["generate", "ega-sequence-mope-s0", *options]) == 0
    plain = capsys.readouterr()
    assert cli.run(["generate", "ega-sequence-mope-s0", *options, "--json"]) == 0
    answer = json.loads(capsys.readouterr().out)
    run = open_run("ega-sequence-mope-s0")
    ids = run.tokenizer.read("The “quick” 漢 fox").ids.tolist()
    expected = generate(run.model("cpu"), ids, tokens=40, seed=4)
    assert answer["text"] == run.tokenizer.decode(expected.ids)
    assert plain.out == "The “quick” 漢 fox" + answer["text"] + "\n"
    assert answer["unknown"] == [
        {"text": text, "count": 1} for text, _ in run.tokenizer.read("The “quick” 漢 fox").unknown()
    ]
    assert answer["sees_future"] and not answer["cached"] and answer["context"]["length"] == 32
    for said in ("unknown to this run", "'漢' (1×)", "only the last 32 tokens", "sees the future"):
        assert said in plain.err


def test_the_command_refuses_in_one_line(
    tiny_runs: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("EGA_MOPE_RUNS", str(tiny_runs))
    assert cli.run(["generate", "dot-mope-s0", "--prompt", "漢"]) == 2
    said = capsys.readouterr().err
    assert said.startswith("error: prompt: expected") and said.count("\n") == 1
