"""Names that users type: what an unknown one may have meant."""

import difflib
import re
from collections.abc import Iterable

# what other libraries call a setting, and a word of its name here
ELSEWHERE = {
    "learning_rate": "lr",
    "discount": "gamma",
    "budget": "cost_limit",
    "net_arch": "hidden",
    "hidden_sizes": "hidden",
    "n_step": "steps",
}
SHORTEST = 4  # letters of what is looked for within a name


def suggest(name: str, known: Iterable[str]) -> str:
    """Return the known names nearest to an unknown one, or all of them, for its error.

    >>> suggest("cargaol1", ["CarGoal1", "HalfCheetah"])
    'did you mean CarGoal1?'
    >>> suggest("learning_rate", ["learning_starts", "actor_lr", "safety.lr"])
    'did you mean actor_lr or safety.lr?'
    >>> suggest("hopper", ["CarGoal1", "SafetyHopperVelocity-v1"])
    'did you mean SafetyHopperVelocity-v1?'
    """
    spelling = {key.lower(): key for key in known}
    meant = name.lower().replace("-", "_")
    meant = ELSEWHERE.get(meant, meant)
    # names that have all its words, or all of it, come before those that merely look alike
    close = [key for key in spelling if _words(meant) <= _words(key)]
    close = close or [key for key in spelling if len(meant) >= SHORTEST and meant in key]
    close = close or difflib.get_close_matches(meant, spelling, cutoff=0.6)
    if close:
        return f"did you mean {' or '.join(spelling[key] for key in close[:3])}?"
    return f"known: {', '.join(spelling.values())}"


def _words(name: str) -> set[str]:
    return set(re.split(r"[^a-z0-9]", name))
