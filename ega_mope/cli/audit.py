"""`ega-mope audit`: does this model see the future?"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

import click

from ega_mope.cli.output import device_option, json_option, note, print_json, print_table

if TYPE_CHECKING:
    from ega_mope.analysis.audit import Audit


@click.command()
@click.argument("run", required=False)
@click.option("--callable", "target", metavar="PACKAGE.MODULE:FUNCTION", help="Audit this instead of a run.")
@click.option("--vocabulary", type=click.IntRange(2), help="Number of different tokens the callable reads.")
@click.option("--context", type=click.IntRange(2), help="Tokens in one window of the callable.")
@click.option("--corpus", metavar="NAME|FILE", help="Text for the callable; without, no losses.")
@click.option("--tokenizer", default="characters", show_default=True, metavar="characters|bytes")
@click.option("--fresh", is_flag=True, help="Measure even where the run's audit.json has the answer.")
@click.option("--keep", is_flag=True, help="Write what was measured into the run's audit.json.")
@device_option
@json_option
def audit(
    run: str | None,
    target: str | None,
    vocabulary: int | None,
    context: int | None,
    corpus: str | None,
    tokenizer: str,
    fresh: bool,
    keep: bool,
    device: str,
    as_json: bool,
) -> None:
    """Does RUN, or any torch model, let later tokens into earlier predictions?

    A run answers from its audit.json where it has one. PACKAGE.MODULE:FUNCTION, looked for in the current
    folder too, is a torch module or a function from ids [batch, time] to logits [batch, time, vocabulary];
    a class, or a function without required arguments, is called first and must return one.
    """
    if (run is None) == (target is None):
        raise ValueError("audit: expected RUN or --callable, got both or neither; give one of them")
    if run is not None:
        _audit_run(run, fresh, keep, device, as_json)
        return
    assert target is not None
    if vocabulary is None or context is None:
        raise ValueError("--callable: expected --vocabulary and --context with it, got one or none; add them")
    if keep:
        raise ValueError(
            "--keep: expected a run to keep the answer in, got --callable; use --json and a file"
        )
    _audit_callable(target, vocabulary, context, corpus, tokenizer, as_json)


def _audit_run(name: str, fresh: bool, keep: bool, device: str, as_json: bool) -> None:
    import dataclasses

    from ega_mope.analysis.audit import audit as measure
    from ega_mope.analysis.audit import beside, keep_audit, stored_audit
    from ega_mope.analysis.audit.reading import value_in_words
    from ega_mope.runs import list_runs, open_run

    opened = open_run(name)
    answer = None if fresh else stored_audit(opened)
    if answer is None:
        answer = measure(opened, device=device, progress=_progress())
        if keep:
            keep_audit(opened, answer)
    runs = [*list_runs([opened.path.parent]), *list_runs()]
    base, twin = beside.baseline(opened, answer, runs), beside.twin(opened, answer, runs)
    if as_json:
        others = {"baseline": dataclasses.asdict(base), "twin": twin and dataclasses.asdict(twin)}
        print_json(answer.to_plain() | others)
        return
    _print(answer)
    if base.teacher_forced_nats is not None:
        click.echo(f"baseline {base.run}, the true text that follows: {base.teacher_forced_nats:.4f} nats")
    else:
        note(f"baseline: {base.missing}")
    value = value_in_words(answer, twin)
    if value:
        click.echo(value)


def _audit_callable(
    target: str, vocabulary: int, context: int, corpus: str | None, tokenizer: str, as_json: bool
) -> None:
    from ega_mope.analysis.audit import audit as measure

    model = load_callable(target)
    ids = _ids(vocabulary, context, corpus, tokenizer)
    text = corpus is not None
    answer = measure(model, ids, context=context if text else None, losses=text, progress=_progress())
    if as_json:
        print_json(answer.to_plain())
    else:
        _print(answer)


def load_callable(target: str) -> Any:
    """The model behind "package.module:function", the current folder searched too.

    A torch module, or something with a required positional argument, is the model itself; what can be
    called without any argument (a class, a factory) is called, and must return a model.
    """
    import importlib

    module_name, colon, attribute = target.partition(":")
    if not colon or not attribute:
        raise ValueError(f"--callable: expected package.module:function, got {target!r}; write it so")
    if "" not in sys.path:
        sys.path.insert(0, "")
    try:
        found: Any = importlib.import_module(module_name)
        for part in attribute.split("."):
            found = getattr(found, part)
    except (ImportError, AttributeError) as error:
        raise ValueError(
            f"--callable: expected {target} to be importable from here, got {error}; check the name and the folder"
        ) from error
    made = found() if _is_factory(found) else found
    if not callable(made):
        raise ValueError(
            f"--callable: expected a model or a function that returns one, got {type(made).__name__} from {target}; "
            "name one"
        )
    return made


def _is_factory(found: Any) -> bool:
    """Whether it is to be called for the model: no module, and callable without any argument."""
    import inspect

    from torch import nn

    if isinstance(found, nn.Module) or not callable(found):
        return False
    try:
        inspect.signature(found).bind()
    except (TypeError, ValueError):
        return False
    return True


def _ids(vocabulary: int, context: int, corpus: str | None, tokenizer: str) -> Any:
    """Random windows, or the whole text as ids below `vocabulary`."""
    import torch

    from ega_mope.text import TOKENIZERS, load_corpus

    if corpus is None:
        generator = torch.Generator().manual_seed(0)
        return torch.randint(vocabulary, (8, context), generator=generator)
    if tokenizer not in TOKENIZERS:
        raise ValueError(
            f"tokenizer: expected one of ({', '.join(TOKENIZERS)}), got {tokenizer!r}; choose one of them"
        )
    text = load_corpus(corpus).text
    fitted = TOKENIZERS[tokenizer].fit(text)
    if fitted.vocabulary_size != vocabulary:
        raise ValueError(
            f"--vocabulary: expected the {fitted.vocabulary_size} tokens that {tokenizer} make of {corpus}, got "
            f"{vocabulary}; choose the text and the tokenizer that the model was trained with"
        )
    return fitted.encode(text)


def _progress() -> Any:
    """A line on stderr that counts, where somebody is watching."""
    if not sys.stderr.isatty():
        return lambda fraction, doing: None

    def show(fraction: float, doing: str) -> None:
        end = "\n" if fraction >= 1 else ""
        click.echo(f"\r{fraction:4.0%}  {doing}\033[K{end}", nl=False, err=True)

    return show


def _print(answer: Audit) -> None:
    from ega_mope.analysis.audit.reading import headline, losses_in_words

    click.echo(headline(answer))
    if answer.teacher_forced_nats is not None:
        click.echo(losses_in_words(answer))
        positions = answer.by_position
        curves = [
            c for c in ("teacher_forced", "exchanged_future", "prefix_only") if positions[c] is not None
        ]
        rows = zip(positions["from"], positions["to"], *(positions[c] for c in curves), strict=True)
        print_table(["from", "to", *curves], list(rows))
    columns = ("mode", "verdict", "later_tokens", "other_windows", "threshold")
    print_table(columns, [[_short(mode[column]) for column in columns] for mode in answer.modes])
    for line in answer.notes:
        note(line)


def _short(value: Any) -> Any:
    return f"{value:.3g}" if isinstance(value, float) else value
