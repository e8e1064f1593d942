"""Names that users type: what an unknown one may have meant."""

import difflib
from collections.abc import Iterable


def suggest(name: str, known: Iterable[str]) -> str:
    """Return the known names nearest to an unknown one, or all of them, for its error.

    >>> suggest("cargaol1", ["CarGoal1", "HalfCheetah"])
    'did you mean CarGoal1?'
    """
    spelling = {key.lower(): key for key in known}
    close = difflib.get_close_matches(name.lower(), spelling, n=3, cutoff=0.4)
    if close:
        return f"did you mean {' or '.join(spelling[key] for key in close)}?"
    return f"known: {', '.join(spelling.values())}"
