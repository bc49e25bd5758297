"""Claims about other mechanisms: lags, starts of heads, flux, phase, fixed wavelets, frozen scales."""

from __future__ import annotations

from ega_mope.analysis.claims.losses import ega
from ega_mope.analysis.claims.outcome import MARGIN_NATS, NO_NUMBER, Claim, Paper, all_gain, none_gains
from ega_mope.analysis.claims.paired import Cells, judge_gains, model
from ega_mope.config import Plain

GROUP = "Other mechanisms"

ONE_SEED = "one seed, 5,001 steps"


def _against_baseline(attention: Plain) -> Cells:
    return {"without": model(), "with": model(attention)}


GAIN = {"without": 1, "with": -1}


def quantities(*on: str) -> Plain:
    """Multi-quantity attention with these of energy, phase and flux switched on."""
    return {"name": "multi_quantity", **{name: name in on for name in ("energy", "phase", "flux")}}


def learned_against_frozen(attention: Plain | str) -> Cells:
    """MoPE with learned scales, and with scales that stay at their start."""
    frozen = {"name": "mope", "freeze": "both"}
    return {"frozen": model(attention, frozen), "learned": model(attention, "mope")}


FIXED: Cells = {
    "learned": model(ega("causal")),
    "daubechies2": model(ega("causal", signal="daubechies2")),
    "morlet": model(ega("causal", signal="morlet")),
}

CLAIMS = [
    Claim(
        id="lags-help",
        group=GROUP,
        sentence="Non-zero lags help (convolutional attention)",
        test="Convolutional attention, lags up to 4 (or 8), gains over dot product, which is lag 0 alone.",
        paper=Paper(
            0.007, f"lags up to 4, {ONE_SEED}; in the published script the lags' weights get no gradient"
        ),
        judge=judge_gains(
            *(_against_baseline({"name": "conv", "lags": lags}) for lags in (4, 8)), contrasts={"lags": GAIN}
        ),
    ),
    Claim(
        id="scale-init-does-not",
        group=GROUP,
        sentence="Scale initialisation of heads does not help",
        test=f"Heads started at four scales surely gain less than {MARGIN_NATS} nats over the usual start.",
        paper=Paper(-0.007, ONE_SEED),
        judge=judge_gains(
            *(
                _against_baseline({"name": "scale_heads", "start": start})
                for start in ("script", "frequency")
            ),
            contrasts={"scale initialisation": GAIN},
            rule=none_gains,
        ),
    ),
    Claim(
        id="flux-helps",
        group=GROUP,
        sentence="Energy and flux in the scores help a little",
        test="Scores with energy and its flux gain over the baseline.",
        paper=Paper(0.012, ONE_SEED),
        judge=judge_gains(
            _against_baseline(quantities("energy", "flux")), contrasts={"flux": GAIN}, rule=all_gain
        ),
    ),
    Claim(
        id="phase-does-not",
        group=GROUP,
        sentence="Energy and phase in the scores do not help",
        test=f"Scores with energy and phase surely gain less than {MARGIN_NATS} nats over the baseline.",
        paper=Paper(-0.007, ONE_SEED),
        judge=judge_gains(
            _against_baseline(quantities("energy", "phase")), contrasts={"phase": GAIN}, rule=none_gains
        ),
    ),
    Claim(
        id="learned-beats-fixed",
        group=GROUP,
        sentence="A learned projection beats fixed wavelets as the gate's signal",
        test="EGA on the learned projection gains over EGA on Daubechies-2 and over EGA on fixed Morlet filters, "
        "all with a causal gate. The smaller gain is shown.",
        paper=NO_NUMBER,
        judge=judge_gains(
            FIXED,
            contrasts={f"over {name}": {name: 1, "learned": -1} for name in ("daubechies2", "morlet")},
        ),
    ),
    Claim(
        id="learned-beats-frozen",
        group=GROUP,
        sentence="Learned scales beat frozen ones",
        test="MoPE gains over MoPE whose ω and σ stay at their start.",
        paper=NO_NUMBER,
        judge=judge_gains(
            *(learned_against_frozen(attention) for attention in ("dot", ega("causal"))),
            contrasts={"learning": {"frozen": 1, "learned": -1}},
        ),
    ),
]
