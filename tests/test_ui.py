"""The pages' states without a browser: no runs, some runs, broken ones; what a picker does about each."""

from __future__ import annotations

import importlib
import shutil
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from plotly.io import to_json
from simulated_runs import write_cells, write_run
from streamlit.testing.v1 import AppTest

from ega_mope import runs as run_folders
from ega_mope.plots.drawn import Drawn
from ega_mope.plots.scales import bic_curve, log_ticks
from ega_mope.plots.style import figure
from ega_mope.ui import drawn

ROOT = Path(__file__).resolve().parents[1]
PICKER = """
import streamlit as st
from ega_mope import ui

def needs(run):
    return None if "mope" in run.name else "has no wavelets"

ui.frame("A page")
run = ui.pick_run(needs)
model = ui.load_model(run)
st.text(f"{run.name} {model is ui.load_model(run)}")
"""


@pytest.fixture
def own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty folder of own runs, and no shipped ones."""
    folder = tmp_path / "runs"
    folder.mkdir()
    monkeypatch.setenv("EGA_MOPE_RUNS", str(folder))
    monkeypatch.setattr(run_folders, "shipped_folder", lambda: tmp_path / "shipped")
    return folder


@pytest.fixture
def picker(tmp_path: Path) -> AppTest:
    """A page that shows MoPE runs only."""
    script = tmp_path / "app.py"
    script.write_text(PICKER)
    (tmp_path / "pages").mkdir()
    (tmp_path / "pages" / "Energy_gates.py").touch()
    return AppTest.from_file(str(script), default_timeout=180)


def home() -> AppTest:
    return AppTest.from_file(str(ROOT / "app.py"), default_timeout=180)


def copy(tiny_runs: Path, own: Path, *names: str) -> None:
    for name in names:
        shutil.copytree(tiny_runs / name, own / name)


def shown(at: AppTest) -> str:
    return "\n".join(
        str(element.value)
        for kind in (at.title, at.markdown, at.caption, at.info, at.warning, at.error, at.text)
        for element in kind
    )


def test_home_without_runs_says_how_to_get_one(own):
    at = home().run()

    assert not at.exception
    assert "ega-mope train" in shown(at)
    assert str(own) in shown(at)
    assert len(at.dataframe) == 0  # none of runs; those behind the two drawings are closed


def test_home_lists_a_run_with_its_losses(own, tiny_runs):
    copy(tiny_runs, own, "ega-sequence-mope-s0")

    at = home().run()

    assert not at.exception
    table = at.dataframe[0].value
    best = run_folders.open_run("ega-sequence-mope-s0").best()
    assert best is not None
    assert table["name"].tolist() == ["ega-sequence-mope-s0"]
    assert table["mechanisms"].tolist() == ["ega sequence + mope"]
    assert table["best loss, nats"].tolist() == [best.loss_nats]
    assert table["sees the future"].tolist() == ["⚠ yes"]


def test_home_keeps_losses_of_different_evaluations_apart(own, tiny_runs):
    copy(tiny_runs, own, "dot-mope-s0", "dot-mope-s1", "ega-causal-mope-s0")
    config = own / "dot-mope-s1" / "config.json"
    config.write_text(config.read_text().replace('"stride": 32', '"stride": 16'))

    at = home().run()

    names = [sorted(table.value["name"]) for table in at.dataframe[:2]]
    assert names == [["dot-mope-s0", "ega-causal-mope-s0"], ["dot-mope-s1"]]
    assert "not between tables" in shown(at)


def test_home_shows_a_broken_folder_with_its_problem(own, tiny_runs):
    copy(tiny_runs, own, "dot-mope-s0", "dot-mope-s1")
    (own / "dot-mope-s1" / "config.json").write_text("{")

    at = home().run()

    assert not at.exception
    broken = at.dataframe[1].value
    assert broken["folder"].tolist() == [str(own / "dot-mope-s1")]
    assert "config.json" in broken["problem"].iloc[0]


def test_home_sees_a_run_that_appears_and_one_that_changes(own, tiny_runs):
    copy(tiny_runs, own, "dot-mope-s0")
    at = home().run()
    copy(tiny_runs, own, "dot-mope-s1")
    assert at.run().dataframe[0].value["name"].tolist() == ["dot-mope-s0", "dot-mope-s1"]

    with (own / "dot-mope-s0" / "metrics.jsonl").open("a") as file:
        file.write('{"step": 99, "split": "validation", "loss_nats": 0.25}\n')

    table = at.run().dataframe[0].value.set_index("name")

    assert table.loc["dot-mope-s0", "final loss, nats"] == 0.25


def test_home_draws_the_gate_that_the_sliders_ask_for(own):
    at = home()
    at.session_state["gate-behind"] = True  # its table, opened
    at.run()
    at.slider(key="threshold").set_value(1.0)
    at.slider(key="sharpness").set_value(4.0).run()

    table = at.dataframe[0].value
    curve = dict(zip(table["z"].round(6), table["gate"], strict=True))
    assert curve[1.0] == pytest.approx(0.5)
    assert curve[2.0] == pytest.approx(0.98201379)


def test_a_page_without_runs_says_so_and_ends(own, picker):
    at = picker.run()

    assert not at.exception
    assert "no runs yet" in shown(at)
    assert not at.text


def test_a_page_opens_on_gates_and_scales_and_loads_the_model_once(own, tiny_runs, picker):
    copy(tiny_runs, own, "dot-learned-s0", "dot-mope-s0", "ega-causal-mope-s0", "ega-sequence-mope-s0")

    at = picker.run()

    assert at.text[0].value == "ega-causal-mope-s0 True"


def test_the_url_decides_the_run_and_the_picker_writes_it(own, tiny_runs, picker):
    copy(tiny_runs, own, "dot-mope-s0", "ega-causal-mope-s0")
    picker.query_params["run"] = "dot-mope-s0"
    at = picker.run()
    assert at.text[0].value == "dot-mope-s0 True"

    at.selectbox[0].select("ega-causal-mope-s0").run()

    assert at.text[0].value == "ega-causal-mope-s0 True"
    assert at.query_params["run"] == "ega-causal-mope-s0"


def test_a_run_that_is_not_there_is_named_and_replaced(own, tiny_runs, picker):
    copy(tiny_runs, own, "dot-mope-s0")
    picker.query_params["run"] = "gone_*run*"

    at = picker.run()

    assert r"gone\_\*run\*" in at.warning[0].value
    assert at.text[0].value == "dot-mope-s0 True"


def test_a_run_the_page_cannot_show_is_listed_last_and_leads_to_the_nearest(own, tiny_runs, picker):
    copy(tiny_runs, own, "dot-learned-s1", "dot-mope-s0", "dot-mope-s1", "ega-causal-mope-s1")
    picker.query_params["run"] = "dot-learned-s1"

    at = picker.run()

    assert at.selectbox[0].options[-1] == "dot-learned-s1 — has no wavelets"
    assert "has no wavelets" in at.info[0].value
    assert not at.text

    at.button(key="nearest-run").click().run()

    assert at.text[0].value == "dot-mope-s1 True"


def test_an_own_run_hides_no_shipped_one_of_the_same_name(own, tiny_runs, picker):
    copy(tiny_runs, own, "dot-mope-s0")
    copy(tiny_runs, own.parent / "shipped", "dot-mope-s0")

    at = picker.run()

    assert at.selectbox[0].options == [str(own.parent / "shipped" / "dot-mope-s0"), "dot-mope-s0"]


def test_new_weights_in_the_folder_are_loaded_again(own, tiny_runs):
    from ega_mope import ui

    copy(tiny_runs, own, "dot-mope-s0")
    run = run_folders.open_run("dot-mope-s0")
    before = ui.load_model(run)
    shutil.copy(tiny_runs / "dot-mope-s1" / "model.safetensors", run.path)

    after = ui.load_model(run)

    assert (before.token_embedding.weight != after.token_embedding.weight).any()


LONG_WORK = """
import streamlit as st
from ega_mope.ui.long_work import kept_work

def work(report):
    st.session_state["made"] = st.session_state.get("made", 0) + 1
    for step in range(5):
        report((step + 1) / 5, "counting")
    return "the answer"

inputs = st.session_state.setdefault("inputs", "some text")
st.text(kept_work("count", inputs, work))
"""


def test_long_work_is_done_once_for_its_inputs_and_not_again_when_cancelled():
    at = AppTest.from_string(LONG_WORK, default_timeout=180).run()
    assert at.text[0].value == "the answer"
    assert not at.button
    at.run()
    assert at.session_state["made"] == 1

    at.session_state["inputs"] = "another text"
    at.session_state["count-cancelled"] = "another text"  # what the Cancel button leaves behind
    at.run()
    assert not at.text and at.session_state["made"] == 1 and "Cancelled" in at.info[0].value

    at.button(key="count-again").click().run()
    assert at.text[0].value == "the answer" and at.session_state["made"] == 2


BEGINNING = """
import streamlit as st
from ega_mope.ui.long_work import kept_work

def work(report):
    st.session_state["made"] += st.session_state["inputs"]
    return "the answer"

def begin():
    st.session_state["begun"] += st.session_state["inputs"]
    st.text("its beginning")

for name in ("made", "begun"):
    st.session_state.setdefault(name, "")
inputs = st.session_state.setdefault("inputs", "a")
st.text(kept_work("part", inputs, work, kept=2, meanwhile=begin))
"""


def test_long_work_shows_its_beginning_meanwhile_and_keeps_as_many_answers_as_told():
    at = AppTest.from_string(BEGINNING, default_timeout=180).run()
    assert [text.value for text in at.text] == ["the answer"]  # the beginning went with the bar
    for inputs in "abaca":
        at.session_state["inputs"] = inputs
        at.run()
    assert at.session_state["made"] == at.session_state["begun"] == "abc"

    at.session_state["inputs"] = "b"  # a was asked for later
    at.run()
    assert at.session_state["made"] == "abcb"


def test_a_figure_is_drawn_once_for_its_inputs_and_anew_for_any_other():
    table = pd.DataFrame({"clusters": [1, 2], "now": [-3.5, -7.25], "start": [-3.0, -2.0]})
    first = drawn(bic_curve, table, 2, 1, "#0072B2")
    assert drawn(bic_curve, table.copy(), 2, 1, "#0072B2") is first
    for inputs in (
        (table, 2, 1, "#0072B2"),
        (table.assign(start=[-3.0, -2.5]), 2, 1, "#0072B2"),
        (table, 1, 1, "#0072B2"),
        (table, 2, None, "#0072B2"),
        (table, 2, 1, "#D55E00"),
    ):
        sent = to_json(drawn(bic_curve, *inputs).to_dict(), validate=False)
        assert sent == to_json(Drawn(bic_curve(*inputs)).to_dict(), validate=False)


def test_what_is_sent_of_a_figure_is_found_the_same_when_the_page_shows_its_copy():
    """A template, a row of packed numbers or data without a mark is another one to plotly in every copy."""
    fig = figure("x", "y")
    fig.add_scatter(x=np.arange(3), y=np.array([0.5, np.nan, np.inf]), customdata=np.eye(3))
    fig.add_heatmap(z=np.eye(2))

    sent = Drawn(fig).to_dict()

    line, squares = sent["data"]
    assert (line["x"], line["y"]) == ([0, 1, 2], [0.5, None, None])
    assert squares["z"]["shape"] == "2, 2" and line["customdata"]["shape"] == "3, 3"
    assert "template" not in sent["layout"] and sent["layout"]["datarevision"] == 1
    assert fig.layout.template is not None


def test_ticks_of_a_logarithmic_axis_do_not_touch():
    few, many, most = log_ticks([0.02, 5.0]), log_ticks([1e-8, 0.0, 0.9, np.nan]), log_ticks([1e-40, 1.0])
    assert {0.05, 0.1, 0.2, 1, 2} <= set(few["tickvals"])
    assert many["tickvals"] == pytest.approx([10.0**power for power in range(0, -9, -1)])
    assert len(most["tickvals"]) <= 13 and min(most["tickvals"]) < 1e-35
    assert log_ticks([]) == few


def test_the_app_command_refuses_where_there_is_no_app(monkeypatch, tmp_path, capsys):
    from ega_mope.cli import run

    command = importlib.import_module("ega_mope.cli.app")
    monkeypatch.setattr(command, "__file__", str(tmp_path / "ega_mope" / "cli" / "app.py"))

    assert run(["app"]) == 2
    assert str(tmp_path) in (line := capsys.readouterr().err) and line.count("\n") == 1


def test_run_colours_depend_on_the_names_alone():
    from ega_mope.plots.style import run_colours, run_dashes

    names = [f"run-{number}" for number in range(6)]
    colours = run_colours(names)
    assert len(set(colours.values())) == 6
    assert run_colours(reversed(names)) == colours

    many = [f"run-{number}" for number in range(36)]
    pairs = set(zip(run_colours(many).values(), run_dashes(many).values(), strict=True))
    assert len(pairs) == 36


def test_compare_is_filtered_by_words_of_runs_and_of_what_the_legend_calls_them(own, small_text):
    for seed in (0, 1):
        write_run(own, f"short-s{seed}", small_text, seed=seed, training={"steps": 3})
        write_run(own, f"long-s{seed}", small_text, seed=seed)

    def found(words: str) -> list[tuple[str, str]]:
        at = home().switch_page("pages/Compare_runs.py")
        at.query_params["filter"] = words
        losses = at.run().dataframe
        return (
            list(losses[0].value[["configuration", "seeds"]].itertuples(index=False, name=None))
            if losses
            else []
        )

    short, long = ("dot + learned, steps 3", "0, 1"), ("dot + learned, steps 6", "0, 1")
    assert sorted(found("")) == [short, long]
    assert found("learned Steps 3") == found("short") == [("dot + learned", "0, 1")]
    assert sorted(found("s1")) == [(short[0], "1"), (long[0], "1")]
    assert found("steps 9") == []


def claims() -> AppTest:
    return home().switch_page("pages/Claims.py")


def test_claims_without_runs_are_undecided_and_say_how_to_decide_them(own):
    at = claims().run()

    assert not at.exception
    table = at.dataframe[0].value
    assert len(table) == 39
    # What is counted, and what the committed benchmark measured, needs no runs.
    decided = set(table["claim"][table["verdict"] != "undecided"])
    assert decided - {"EGA costs no measurable computing"} == {"EGA adds less than 0.3 % of parameters"}
    assert "Of 39 claims" in shown(at)
    assert any("ega-mope sweep --grid study --seeds 0-5" in code.value for code in at.code)


def test_claims_are_filtered_by_verdict_subject_and_words(own):
    at = claims()
    at.query_params["verdict"] = "holds"

    at.run()

    assert at.dataframe[0].value["claim"].tolist() == ["EGA adds less than 0.3 % of parameters"]
    filtered = claims()
    for key, value in (("verdict", "undecided"), ("about", "Gates"), ("words", "visible THRESHOLD")):
        filtered.query_params[key] = value
    filtered.run()
    assert filtered.dataframe[0].value["claim"].tolist() == [
        "The threshold θ settles near 0.35 (visible gate)"
    ]


def test_claims_follow_the_runs_and_mark_those_that_see_the_future(own, small_text):
    def gain(norm: str, by: float) -> None:
        write_cells(own, small_text, {"10": {s: 1.6 - by - 0.001 * s for s in range(3)}}, gate_norm=norm)

    write_cells(own, small_text, {"00": dict.fromkeys(range(3), 1.6)})
    gain("causal", 0.02)
    at = claims().run()
    verdicts = at.dataframe[0].value.set_index("claim")["verdict"]
    assert verdicts["EGA improves on the baseline (causal gate)"] == "holds"

    gain("sequence", 0.1)
    rows = at.run().dataframe[0].value.set_index("claim")
    marked = rows.loc["⚠ EGA improves on the baseline (paper's gate, which sees the future)"]
    assert (marked["verdict"], marked["N"]) == ("holds", "3 seeds")
    assert "sees the future" in shown(at)
