"""Would other pairs of the same kind give the same groups? Refits on bootstrap draws of the pairs."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from jaxtyping import Int

from ega_mope.analysis.clusters import Clusters, Points, all_fits, count_of_groups, fewest_good
from ega_mope.config import Plain

if TYPE_CHECKING:
    import pandas as pd

REFITS = 40
STABLE, DISSOLVED = 0.75, 0.6
"""A group whose mean Jaccard similarity is 0.75 or more is stable; below 0.6 it is not to be trusted (Hennig 2007)."""


@dataclass(frozen=True)
class Stability:
    """What `refits` bootstrap draws make of groups.

    `wins[k]` says how often k groups were chosen. At the number chosen on all pairs: `agreement`, the mean
    adjusted Rand index of the refits' groups with the original ones (1 the same, 0 chance); `jaccard`,
    for each original group the mean of its best match's Jaccard similarity. Both None and empty for one
    group, which has no border that could move.
    """

    chosen: int
    refits: int
    wins: dict[int, int]
    agreement: float | None
    jaccard: tuple[float, ...]

    @property
    def holds(self) -> bool:
        """Whether the number wins more than half of the draws and every group is stable."""
        return self.wins.get(self.chosen, 0) > self.refits / 2 and all(one >= STABLE for one in self.jaccard)

    @property
    def in_words(self) -> str:
        """How often each number of groups won, and how well the groups come back."""
        won = ", ".join(f"{count_of_groups(k)} {n}×" for k, n in sorted(self.wins.items()))
        says = f"{'Stable' if self.holds else 'Not stable'}. On {self.refits} bootstrap draws: {won}."
        if self.agreement is None:
            return says
        weakest = int(np.argmin(self.jaccard))
        grade = self.jaccard[weakest]
        word = "stable" if grade >= STABLE else "not to be trusted" if grade < DISSOLVED else "doubtful"
        return (
            f"{says} Refitted with {count_of_groups(self.chosen)}, they agree with these at an adjusted Rand index of "
            f"{self.agreement:.2f}; the weakest, group {weakest + 1}, comes back with a Jaccard similarity of {grade:.2f} "
            f"({word})."
        )

    def to_json(self) -> Plain:
        return {
            "refits": self.refits,
            "wins": {str(k): n for k, n in sorted(self.wins.items())},
            "adjusted_rand_index": self.agreement,
            "jaccard": list(self.jaccard),
        }


def stability(
    points: Points,
    found: Clusters,
    refits: int = REFITS,
    progress: Callable[[int, int], None] = lambda done, total: None,
) -> Stability:
    """Refit on `refits` bootstrap draws of the pairs, the groups compared on the pairs that were drawn.

    A pair that is drawn twice counts once: left in, repeated points look like dense groups of their own,
    and BIC finds too many. A draw then holds about 63 % of the pairs, so that groups which all pairs only
    just tell apart are sometimes taken for fewer. The same points always give the same answer.
    """
    from sklearn.metrics import adjusted_rand_score

    rng = np.random.default_rng(0)
    labels = np.array(found.labels)
    wins: dict[int, int] = {}
    rands, matches = [], []
    for done in range(1, refits + 1):
        drawn = np.unique(rng.integers(0, len(points), len(points)))
        fits = all_fits(points[drawn])
        chosen = fewest_good(fits)
        wins[chosen] = wins.get(chosen, 0) + 1
        if found.chosen > 1 and found.chosen in fits:
            again = fits[found.chosen].labels
            rands.append(adjusted_rand_score(labels[drawn], again))
            matches.append([_best_match(labels[drawn] == k, again) for k in range(1, found.chosen + 1)])
        progress(done, refits)
    agreement = float(np.mean(rands)) if rands else None
    jaccard = tuple(np.nanmean(matches, axis=0).tolist()) if matches else ()
    return Stability(found.chosen, refits, wins, agreement, jaccard)


def _best_match(members: np.ndarray, again: Int[np.ndarray, " pair"]) -> float:
    """|A ∩ B| / |A ∪ B| of these members and the group of `again` most like them; NaN where none was drawn."""
    if not members.any():
        return float("nan")
    others = [again == label for label in np.unique(again)]
    return max(float((members & other).sum() / (members | other).sum()) for other in others)


def wins_table(now: Stability, start: Stability | None) -> pd.DataFrame:
    """How often each number of groups won, now and at the start (NaN where the start is not recorded)."""
    import pandas as pd

    most = max([*now.wins, *(start.wins if start else {})])
    return pd.DataFrame(
        {
            "groups": range(1, most + 1),
            "now": [now.wins.get(k, 0) for k in range(1, most + 1)],
            "start": [start.wins.get(k, 0) if start else np.nan for k in range(1, most + 1)],
        }
    )


def groups_table(found: Clusters, now: Stability) -> pd.DataFrame:
    """One row a group, counted from 1 by rising σ: its pairs, and its Jaccard similarity over the refits."""
    import pandas as pd

    sizes = np.bincount(found.labels, minlength=found.chosen + 1)[1:]
    jaccard = now.jaccard or (np.nan,) * found.chosen
    return pd.DataFrame({"group": range(1, found.chosen + 1), "pairs": sizes, "Jaccard": jaccard})
