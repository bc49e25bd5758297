"""`ega-mope generate`: let a run go on with a text."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from ega_mope.cli.output import device_option, json_option, note, print_json, run_argument

if TYPE_CHECKING:
    from ega_mope.generation import Continuation


@click.command()
@run_argument
@click.option("--prompt", default="", metavar="STR", help="Text to go on with; none starts from a newline.")
@click.option("--seed", default=0, show_default=True, type=click.IntRange(0), help="Same seed, same text.")
@click.option(
    "--tokens", default=200, show_default=True, type=click.IntRange(0), help="Characters (or bytes) to write."
)
@click.option(
    "--temperature", default=1.0, show_default=True, help="0 takes the likeliest always, 1 draws as learned."
)
@click.option("--top-k", type=int, help="Draw from the K likeliest only.")
@click.option("--stop", metavar="STR", help="End after this text, once the run has written it.")
@device_option
@json_option
def generate(
    run: str,
    prompt: str,
    seed: int,
    tokens: int,
    temperature: float,
    top_k: int | None,
    stop: str | None,
    device: str,
    as_json: bool,
) -> None:
    """Let RUN go on with a text. What it could not read, and how far it could look back, goes to stderr."""
    from ega_mope.generation import continue_text
    from ega_mope.runs import open_run

    opened = open_run(run)
    written = continue_text(
        opened.model(device),
        opened.tokenizer,
        prompt,
        tokens=tokens,
        seed=seed,
        temperature=temperature,
        top_k=top_k,
        stop=stop,
    )
    context = opened.config.model.context_length
    for line in _remarks(written, context):
        note(line)
    if not as_json:
        click.echo(written.reading.characters + written.text)
        return
    result = written.generated
    print_json(
        {
            "run": opened.name,
            "prompt": prompt,
            "read_as": "".join(text for text in written.reading.read_as if text is not None),
            "unknown": [{"text": text, "count": count} for text, count in written.reading.unknown()],
            "started_from": written.started_from,
            "text": written.text,
            "tokens": len(result.ids),
            "stopped": result.stopped,
            "seed": seed,
            "temperature": temperature,
            "top_k": top_k,
            "context": {"length": context, "unread": result.unread, "moved_from": result.moved_from},
            "cached": result.cached,
            "sees_future": result.sees_future,
        }
    )


def _remarks(written: Continuation, context: int) -> list[str]:
    """What a reader of the text must know about how it came about."""
    result, reading = written.generated, written.reading
    unknown = ", ".join(f"{text!r} ({count}×)" for text, count in reading.unknown())
    changed = sorted(
        {
            f"{typed!r} as {read!r}"
            for typed, read in zip(reading.characters, reading.read_as, strict=True)
            if read not in (typed, None)
        }
    )
    remarks = {
        f"left out of the prompt, unknown to this run: {unknown}": bool(unknown),
        f"read in the prompt: {', '.join(changed)}": bool(changed),
        "no prompt: started from a newline": written.started_from is not None,
        f"the first {result.unread:,} tokens of the prompt are beyond the context of {context} and were not read": (
            result.unread > 0
        ),
        f"from token {result.moved_from} on only the last {context} tokens were read, anew for each one and from "
        "position 0: positions of the text shift under such a window": result.moved_from is not None,
        "this run sees the future: its earlier states change with every token it writes, so it writes otherwise "
        "than its losses say": result.sees_future,
    }
    return [text for text, holds in remarks.items() if holds]
