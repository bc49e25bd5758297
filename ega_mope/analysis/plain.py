"""Tables as plain data: what JSON and a terminal can hold."""

from __future__ import annotations

import pandas as pd

from ega_mope.config import Plain


def without_nan(table: pd.DataFrame) -> pd.DataFrame:
    """None where there is no number."""
    return table.astype(object).where(table.notna(), None)


def plain_rows(table: pd.DataFrame) -> list[Plain]:
    """A table's rows as plain data; NaN is None."""
    return without_nan(table).to_dict("records")  # type: ignore[return-value]
