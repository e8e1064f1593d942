"""THE table of methods, one row each. Imports no JAX.

Classes of the Python interface, exports, command line, report styles and the tables in the
documentation come from here; nothing else tests a method's name. A method that is a new mix of
parts is a new row; `register` adds one from outside the package.
"""

import importlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from types import ModuleType
from typing import Any

from safecritic.agents import settings as settings_
from safecritic.agents.settings import Settings
from safecritic.names import suggest
from safecritic.style import Style
from safecritic.tasks.registry import TASKS

OF_THE_TASK = ("cost_limit", "action_repeat")  # settings whose defaults the table of tasks has


@dataclass(frozen=True)
class Method:
    """One row of the table."""

    name: str  # on the command line and in files
    class_name: str  # in Python
    title: str  # in tables and figures
    summary: str
    cost_model: str  # what it knows of the cost, for the table in the README
    agent: str  # module with the agent's functions
    settings: str  # class of its settings, in that module
    parts: tuple[str, ...] = ()  # optional parts of the settings it has
    defaults: Mapping[str, Any] = field(default_factory=dict)  # laid over the settings' own
    paper: Mapping[str, Any] = field(default_factory=dict)  # the paper's values, laid over those
    on_policy: bool = False  # learns from rollouts, not from a replay buffer
    constrained: bool = True  # learns from costs and keeps to the limit
    steps: int = 40_000  # enough to solve CarGoal1
    style: Style | None = None  # None: one is chosen

    def load_agent(self) -> ModuleType:
        """Import and return the agent."""
        return importlib.import_module(self.agent)

    def settings_type(self) -> type[Settings]:
        """Import and return the class of its settings."""
        return getattr(self.load_agent(), self.settings)

    def setting_names(self) -> list[str]:
        """Return the flat names of its settings, switches of its parts included."""
        return settings_.setting_names(self.settings_type(), self.parts)

    def part_fields(self) -> dict[str, set[str]]:
        """Return the names of the settings of each part that such a method may have."""
        return settings_.part_fields(self.settings_type())


# The paper's printed settings where ours differ.
PAPER_INPUTS: dict[str, Any] = {
    "observation_scaling": "none",
    "units": "task",
    "sharpening": 1.0,
    "action_repeat": 1,
}
PAPER: dict[str, Any] = PAPER_INPUTS | {
    "actor_lr": 2e-3,
    "costly_share": 0.0,
    "noise_half_life": 0.0,
    "layer_norm": "none",
    "deployed_actor": "last",
}
PRINTED_MULTIPLIER: dict[str, Any] = {
    "multiplier_rule": "printed",
    "multiplier_lr": 1e-3,
    "multiplier_max": 100.0,
    "quiet_every": 0,
}
PAPER_CRITIC: dict[str, Any] = PAPER | {
    "safety_critics": 1,
    "safety_output": "linear",
    "safety_lr": 1e-3,
    "safety_tau": 5e-3,
    "safety_n_step": 1,
}
PAPER_SAFETY: dict[str, Any] = (
    PAPER_CRITIC
    | PRINTED_MULTIPLIER
    | {
        "kl_weight": 1e-6,
        "rescale_actor_loss": False,
        "multiplier_init": 1.0,
    }
)
PAPER_PARTS: dict[str, dict[str, Any]] = {
    "conservative": {
        "conservative_form": "printed",
        "conservative_weight": 1e-3,
        "conservative_share": 1.0,
        "push_data": True,
        "sigma_epsilon": 1e-6,
    },
    "influence": {"reference": "batch", "damping": 1e-6},
    "refinement": {"refine_target": "cost", "refine_own": 0.0, "refine_clip": 0.0},
    "screen": {
        "tolerance": 0.3,
        "training_tolerance": 0.3,
        "tolerance_in": "cost",
        "screen_choice": "cost",
        "screen_from": "ou",
        "screen_spread": 0.2,
        "escape_after": 0,
    },
}


def safety_critic(
    name: str,
    class_name: str,
    title: str,
    summary: str,
    cost_model: str,
    style: Style | None,
    parts: tuple[str, ...],
    **defaults: Any,
) -> Method:
    """Return the row of a safety critic with these parts."""
    paper = dict(PAPER_SAFETY)
    for part in parts:
        paper |= PAPER_PARTS[part]
    return Method(
        name,
        class_name,
        title,
        summary,
        cost_model,
        agent="safecritic.agents.safety_critic",
        settings="SafetyCriticSettings",
        parts=parts,
        defaults=defaults,
        paper=paper,
        style=style,
    )


# Colours of Okabe and Ito, which stay apart for the common kinds of colour blindness; dash and
# marker are for print without colours.
_TABLE = (
    Method(
        "ddpg",
        "DDPG",
        "DDPG",
        "deep deterministic policy gradient; looks at reward alone",
        "none: looks at reward alone",
        agent="safecritic.agents.ddpg",
        settings="DDPGSettings",
        paper=PAPER,
        constrained=False,
        style=Style("#8c8c8c", "dot", "circle"),
    ),
    Method(
        "pid-lag",
        "PIDLag",
        "PID-Lag",
        "DDPG with a cost critic and a multiplier driven by a PID controller",
        "regression of the discounted cost; a PID controller moves the multiplier",
        agent="safecritic.agents.pid_lag",
        settings="PIDLagSettings",
        paper=PAPER_CRITIC
        | {"multiplier_rule": "printed", "ki": 1e-3, "multiplier_init": 0.0, "quiet_every": 0},
        style=Style("#56b4e9", "dashdot", "square"),
    ),
    Method(
        "cpo",
        "CPO",
        "CPO",
        "constrained policy optimisation: on-policy, each step within a trust region and the limit",
        "a value of the cost; every step stays within a trust region and the limit",
        agent="safecritic.agents.cpo",
        settings="CPOSettings",
        paper=PAPER_INPUTS,
        on_policy=True,
        steps=500_000,
        style=Style("#0072b2", "dash", "diamond"),
    ),
    Method(
        "rcpo",
        "RCPO",
        "RCPO",
        "reward constrained policy optimisation: DDPG on reward minus multiplier times cost",
        "none: learns from reward minus multiplier times cost",
        agent="safecritic.agents.rcpo",
        settings="RCPOSettings",
        paper=PAPER | PRINTED_MULTIPLIER | {"multiplier_init": 0.0, "multiplier_max": 100.0},
        style=Style("#cc79a7", "dot", "triangle"),
    ),
    safety_critic(
        "sc",
        "SC",
        "SC",
        "safety critic: Bellman regression of the cost, multiplier and screen",
        "regression of the discounted cost",
        Style("#e69f00", "dashdot", "square"),
        ("screen",),
    ),
    safety_critic(
        "csc",
        "CSC",
        "CSC",
        "conservative safety critic: other actions of the policy are taken to cost more",
        "takes other actions of the policy to cost more",
        Style("#d55e00", "dash", "diamond"),
        ("conservative", "screen"),
        alternatives_from="policy",
    ),
    safety_critic(
        "usc-nr",
        "USCNR",
        "USC (NR)",
        "uncertain safety critic without refinement: conservatism weighted by influence",
        "takes other actions to cost more where it is uncertain or costs are high",
        Style("#009e73", "solid", "triangle"),
        ("conservative", "influence", "screen"),
    ),
    safety_critic(
        "usc",
        "USC",
        "USC",
        "uncertain safety critic: influence-weighted conservatism and refinement",
        "and refines its least certain samples from their neighbours",
        Style("#000000", "solid", "circle", 2.4),
        ("conservative", "influence", "refinement", "screen"),
    ),
)

METHODS: dict[str, Method] = {method.name: method for method in _TABLE}


def register(method: Method) -> None:
    """Add a row to the table, as a package outside of this one does."""
    if method.name in METHODS:
        raise ValueError(f"there is a method {method.name!r} already: choose another name")
    if method.class_name in {known.class_name for known in METHODS.values()}:
        raise ValueError(f"there is a class {method.class_name!r} already: choose another name")
    METHODS[method.name] = method


def get(name: str) -> Method:
    """Return the method of that name; an unknown name is answered with the nearest ones."""
    method = METHODS.get(name.lower())
    if method is None:
        raise ValueError(f"unknown method {name!r}: {suggest(name.lower(), list(METHODS))}")
    return method


def make_config(
    name: str, task: str | None = None, paper_defaults: bool = False, **overrides: Any
) -> Any:
    """Return the checked settings of a method: its defaults, those of the task, `overrides`."""
    method = get(name)
    _check_names(method, overrides)
    flat = dict(method.defaults)
    if task in TASKS:
        flat |= {name: getattr(TASKS[task], name) for name in OF_THE_TASK}
    if paper_defaults:
        flat |= method.paper
    flat |= overrides
    for part, names in method.part_fields().items():
        if part not in method.parts:
            flat.pop(part, None)  # False, by `_check_names`
        elif flat.get(part, True) is False:
            given = sorted(names & overrides.keys())
            if given:
                raise ValueError(
                    f"{given[0]} is a setting of the {part} part, which is switched off: "
                    f"leave out one of the two (--no-{part}, --{given[0].replace('_', '-')})"
                )
            flat = {key: value for key, value in flat.items() if key not in names}
    return settings_.build(method.settings_type(), method.parts, flat)


def _check_names(method: Method, given: Mapping[str, Any]) -> None:
    """Refuse settings the method does not have, with the reason."""
    known = method.setting_names()
    parts = method.part_fields()
    for key in given:
        if key in known or (key in parts and given[key] is False):
            continue
        for part, names in parts.items():
            if key == part or key in names:
                having = [m.name for m in METHODS.values() if part in m.parts]
                raise ValueError(
                    f"{key} belongs to the {part} part, which {method.name} does not have: "
                    f"use it with {', '.join(having)}"
                )
        raise ValueError(f"unknown setting {key!r} of {method.name}: {suggest(key, known)}")


def require_cost(name: str, declared: Mapping[str, Any]) -> None:
    """Refuse an environment declared to have no cost if the method needs one."""
    if get(name).constrained and declared.get("no_cost"):
        without = [method.name for method in METHODS.values() if not method.constrained]
        raise ValueError(
            f"{name} learns to keep costs within a limit, and no_cost declares that there are "
            f"none (--no-cost): use {' or '.join(without)}, or name the cost (--cost-key)"
        )
