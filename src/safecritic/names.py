"""Names people type: what an unknown one may have meant."""

import difflib
from collections.abc import Sequence


def suggest(name: str, known: Sequence[str]) -> str:
    """Return what an unknown name may have meant, as the end of its error message."""
    close = difflib.get_close_matches(name, known, n=3, cutoff=0.4)
    return f"did you mean {' or '.join(close)}?" if close else f"known: {', '.join(known)}"
