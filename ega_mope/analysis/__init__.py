"""Numbers only: run folders, models and texts in; tables, arrays and small frozen dataclasses out."""
