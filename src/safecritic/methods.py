"""The table of methods: name -> agent and settings. Nothing else tests a name."""

import difflib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from types import ModuleType
from typing import Any

from safecritic.agents import cpo, ddpg, pid_lag, rcpo, safety_critic
from safecritic.agents.settings import Common
from safecritic.tasks.registry import TASKS


@dataclass(frozen=True)
class Method:
    name: str
    title: str
    summary: str
    agent: ModuleType
    config: type[Common]
    defaults: Mapping[str, Any] = field(default_factory=dict)
    paper: Mapping[str, Any] = field(default_factory=dict)  # laid over the defaults
    on_policy: bool = False  # learns from rollouts, not from a replay
    steps: int = 60_000  # that solve CarGoal1


# The paper's printed settings where ours differ.
PAPER: dict[str, Any] = {"actor_lr": 2e-3, "observation_scaling": "none", "costly_share": 0.0}
PAPER_CRITIC: dict[str, Any] = {
    "safety_critics": 1,
    "safety_output": "linear",
    "safety_lr": 1e-3,
    "safety_tau": 5e-3,
    "safety_n_step": 1,
    "sharpening": 1.0,
}
PAPER_SAFETY: dict[str, Any] = (
    PAPER
    | PAPER_CRITIC
    | {
        "reference": "batch",
        "damping": 1e-6,
        "conservative_form": "printed",
        "conservative_weight": 1e-3,
        "conservative_share": 1.0,
        "push_data": True,
        "sigma_epsilon": 1e-6,
        "kl_weight": 1e-6,
        "rescale_actor_loss": False,
        "multiplier_init": 1.0,
        "tolerance": 0.3,
        "screen_from": "ou",
        "screen_spread": 0.2,
        "refine_target": "cost",
        "refine_clip": 0.0,
    }
)


def _safety(name: str, title: str, summary: str, **defaults: Any) -> Method:
    return Method(
        name,
        title,
        summary,
        agent=safety_critic,
        config=safety_critic.SafetyCriticConfig,
        defaults=defaults,
        paper=PAPER_SAFETY,
    )


_TABLE = (
    Method(
        "ddpg",
        "DDPG",
        "deep deterministic policy gradient; looks at reward alone",
        agent=ddpg,
        config=ddpg.DDPGConfig,
        paper=PAPER,
    ),
    Method(
        "pid-lag",
        "PID-Lag",
        "DDPG with a cost critic and a multiplier driven by a PID controller",
        agent=pid_lag,
        config=pid_lag.PIDLagConfig,
        paper=PAPER | PAPER_CRITIC,
    ),
    Method(
        "cpo",
        "CPO",
        "constrained policy optimisation: on-policy, each step within a trust region and the limit",
        agent=cpo,
        config=cpo.CPOConfig,
        paper={"observation_scaling": "none"},
        on_policy=True,
        steps=500_000,
    ),
    Method(
        "rcpo",
        "RCPO",
        "reward constrained policy optimisation: DDPG on reward minus multiplier times cost",
        agent=rcpo,
        config=rcpo.RCPOConfig,
        paper=PAPER,
    ),
    _safety(
        "sc",
        "SC",
        "safety critic: Bellman regression of the cost, multiplier and screen",
        objective="bellman",
    ),
    _safety(
        "csc",
        "CSC",
        "conservative safety critic: other actions of the policy are taken to cost more",
        objective="conservative",
        alternatives_from="policy",
    ),
    _safety(
        "usc-nr",
        "USC (NR)",
        "uncertain safety critic without refinement: conservatism weighted by influence",
        objective="uncertain",
    ),
    _safety(
        "usc",
        "USC",
        "uncertain safety critic: influence-weighted conservatism and refinement",
        objective="uncertain",
        refinement=True,
    ),
)

METHODS: dict[str, Method] = {method.name: method for method in _TABLE}


def suggest(name: str, known: Sequence[str]) -> str:
    """What an unknown name may have meant, for its error."""
    close = difflib.get_close_matches(name, known, n=3, cutoff=0.4)
    return f"did you mean {' or '.join(close)}?" if close else f"known: {', '.join(known)}"


def get(name: str) -> Method:
    """The method of that name; an unknown name is answered with the nearest ones."""
    found = METHODS.get(name.lower())
    if found is None:
        raise ValueError(f"unknown method {name!r}: {suggest(name.lower(), list(METHODS))}")
    return found


def make_config(
    name: str, task: str | None = None, paper_defaults: bool = False, **overrides: Any
) -> Any:
    """The validated settings of a method: its defaults, the task's limit, then ``overrides``."""
    method = get(name)
    known = [f.name for f in fields(method.config)]
    for key in overrides:
        if key not in known:
            raise ValueError(f"unknown setting {key!r} of {method.name}: {suggest(key, known)}")
    chosen = dict(method.defaults)
    if paper_defaults:
        chosen |= method.paper
    if task in TASKS:
        chosen["cost_limit"] = TASKS[task].cost_limit
    chosen |= overrides
    if isinstance(chosen.get("hidden"), list):  # as read back from JSON
        chosen["hidden"] = tuple(chosen["hidden"])
    config = method.config(**chosen)
    method.agent.validate(config)
    return config
