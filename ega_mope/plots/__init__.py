"""Tables in, plotly figures and shaded text out; knows no torch and no disk."""
