"""Home: what the lab is, a way into each job, the runs there are, and the two mechanisms drawn live."""

import streamlit as st

from ega_mope import ui
from ega_mope.analysis import home
from ega_mope.analysis.runs import marked_name
from ega_mope.plots.home import gate_figure, morlet_figure
from ega_mope.runs import Run, runs_folder, shipped_folder

JOBS = (
    (
        "Browse what was learned",
        "The frequency and width of every wavelet, where it started and how far it moved.",
        ("pages/Learned_scales.py", "pages/Correlation_kernels.py"),
    ),
    (
        "See what the gates keep",
        "Paste a text and see, head by head, which of its characters are kept and which suppressed.",
        ("pages/Energy_gates.py",),
    ),
    (
        "Compare",
        "Losses by configuration, and whether the two mechanisms together give more than their sum.",
        ("pages/Compare_runs.py", "pages/Superadditivity.py"),
    ),
)
LOSSES = {"best loss, nats": "%.4f", "final loss, nats": "%.4f"}


def jobs() -> None:
    for column, (title, text, pages) in zip(st.columns(len(JOBS)), JOBS, strict=True):
        with column.container(border=True, height="stretch"):
            st.markdown(f"**{title}**  \n{text}")
            for page in pages:
                ui.page_button(page)


def runs() -> None:
    found = ui.all_runs()
    st.subheader("Runs", anchor=False)
    st.markdown(f"Yours: `{runs_folder()}`  \nShipped: `{shipped_folder()}`")
    if not any(run.path.parent == runs_folder() for run in found):
        st.caption(f"None of your own yet: {ui.HOW_TO_TRAIN}.")
    rows = [(run, row) for run, row in zip(found, ui.summaries(found), strict=True) if isinstance(run, Run)]
    groups = home.comparable_runs(rows, shipped_folder())
    for number, group in enumerate(groups, 1):
        st.markdown(f"**{ui.plain(group.title)}** · losses over the {ui.plain(group.evaluation)}")
        ui.table(ui.marked(group.table), key=f"runs-{number}", name=f"runs-{number}", formats=LOSSES)
    if len(groups) > 1:
        st.caption(
            "Losses compare within one table, not between tables: they were measured on different data."
        )
    broken = home.broken_runs(found)
    if len(broken):
        st.warning(f"Folders that cannot be read: {len(broken)}", icon=":material/warning:")
        ui.table(broken, key="broken", name="broken-runs")


@st.fragment
def gate() -> None:
    run = ui.current_run()
    st.markdown("**Energy gate**  g = sigmoid(α(z − θ))")
    theta = st.slider(
        "threshold θ, standard deviations", -3.0, 3.0, 0.0, 0.1, key="threshold", bind="query-params"
    )
    alpha = st.slider(
        "sharpness α, 1/standard deviation", 0.1, 10.0, 2.0, 0.1, key="sharpness", bind="query-params"
    )
    curve, learned = home.gate_curve(theta, alpha), home.learned_gate_curves(run)
    name = marked_name(run) if run else None
    behind = f" Grey: what each head of {ui.plain(name)} learned." if name and len(learned) else ""
    ui.figure(
        gate_figure(curve, learned, theta, name),
        key="gate",
        alt=f"The gate rises from 0 to 1 around z = {theta:g}; sharpness {alpha:g}.",
        how_to_read="A token whose energy lies above θ keeps most of its say in attention, one below loses it; "
        f"α says how suddenly. Every head starts at θ = 0, α = 2.{behind}",
        table=curve,
        in_fragment=True,
    )


@st.fragment
def wavelet() -> None:
    st.markdown("**Morlet pair**  cos ωb and sin ωb, times exp(−b²/2σ²)")
    omega = st.slider(
        "frequency ω, radians per token", 0.02, 3.14, 1.0, 0.02, key="omega", bind="query-params"
    )
    sigma = st.slider("width σ, tokens", 1.0, 64.0, 5.0, 0.5, key="sigma", bind="query-params")
    pair = home.morlet_pair(omega, sigma, tokens=max(16, min(128, round(4 * sigma))))
    ui.figure(
        morlet_figure(pair),
        key="morlet",
        alt=f"A cosine and a sine of period {home.period(omega):.1f} tokens that fade out over {sigma:g} tokens.",
        how_to_read=f"Dots are what the model adds at each token. Period 2π/ω = {home.period(omega):.1f} tokens; the "
        f"envelope is at half height {home.half_height(sigma):.1f} tokens into the window and fades from there: later "
        f"tokens get no position from this pair. ω·σ = {omega * sigma:.2f}; the paper keeps it at 5 or more.",
        table=pair[pair["token"]].drop(columns="token"),
        in_fragment=True,
    )


ui.frame(
    "EGA/MoPE Lab",
    "**Energy-Gated Attention** lets a learned gate weigh each token; **Morlet Positional Encoding** "
    "gives positions learned wavelets.  \n"
    "Here you look at what real models learned with them, on their texts and on yours.  \n"
    "And you check, run against run, whether they help, alone and together.",
)
jobs()
runs()
st.subheader("The two mechanisms, live", anchor=False)
left, right = st.columns(2, gap="large")
with left:
    gate()
with right:
    wavelet()
