"""Other people's checkpoints become run folders: the paper's published script's, and nanoGPT's.

What such a file does not say (how it was trained, from which seed, often on which text) stays unknown in
the run: nothing is filled in.
"""

from ega_mope.importers.checkpoint import Checkpoint, read_checkpoint
from ega_mope.importers.nanogpt import from_nanogpt_state
from ega_mope.importers.published import from_published_state
from ega_mope.importers.run_folder import Imported, import_checkpoint
from ega_mope.importers.vocabulary import TINYSHAKESPEARE_ALPHABET

__all__ = [
    "TINYSHAKESPEARE_ALPHABET",
    "Checkpoint",
    "Imported",
    "from_nanogpt_state",
    "from_published_state",
    "import_checkpoint",
    "read_checkpoint",
]
