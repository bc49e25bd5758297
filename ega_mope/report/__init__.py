"""Run folders as one document: what was run, the claims, the 2×2s, losses, audits.

`sections` says what is in it, once; `as_html` and `as_markdown` write it down.
"""

from ega_mope.report.document import Section, findings, sections
from ega_mope.report.html import as_html
from ega_mope.report.markdown import as_markdown, between_markers

__all__ = ["Section", "as_html", "as_markdown", "between_markers", "findings", "sections"]
