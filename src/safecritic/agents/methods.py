"""THE table of methods, one row each; nothing else tests a method's name. Imports no JAX."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from importlib import import_module
from types import ModuleType
from typing import Any

from safecritic.agents import settings as agents_settings
from safecritic.core import settings as settings_
from safecritic.core.names import suggest
from safecritic.core.settings import Settings

OF_THE_TASK = ("cost_limit", "action_repeat")  # settings whose defaults a task may bring along
PAPER = "safecritic.agents.paper"  # the agent that several methods are with the paper's defaults


@dataclass(frozen=True)
class Method:
    """One row of the table."""

    name: str  # on the command line and in files
    class_name: str  # in Python
    title: str  # in tables and figures
    summary: str
    cost_model: str  # what it knows of the cost, for the table in the README
    agent: str  # module with the agent's functions
    settings: str  # class of its settings, in `agents/settings.py` or in that module
    parts: tuple[str, ...] = ()  # optional parts of the settings it has
    defaults: Mapping[str, Any] = field(default_factory=dict)  # laid over the settings' own
    paper: Mapping[str, Any] = field(default_factory=dict)  # with `--paper-defaults`
    printed: bool = False  # these are settings of `agents/paper.py`, not laid over the defaults
    on_policy: bool = False  # learns from rollouts, not from a replay buffer
    constrained: bool = True  # learns from costs and keeps to the limit
    steps: int = 40_000  # enough to solve CarGoal1

    def load_agent(self, config: Settings | None = None) -> ModuleType:
        """Import and return the agent that has these settings."""
        return import_module(PAPER if self.is_printed(config) else self.agent)

    def is_printed(self, config: Settings | None) -> bool:
        """Return whether these are the settings of the agent of `agents/paper.py`."""
        return type(config).__module__ == PAPER

    def settings_type(self, paper_defaults: bool = False) -> type[Settings]:
        """Return the class of its settings; for the methods of this package without JAX."""
        if paper_defaults and self.printed:
            return import_module(PAPER).PaperSettings
        ours = hasattr(agents_settings, self.settings)
        return getattr(agents_settings if ours else import_module(self.agent), self.settings)

    def setting_names(self, paper_defaults: bool = False) -> list[str]:
        """Return the names of its settings, switches of its parts included."""
        parts = () if paper_defaults and self.printed else self.parts
        return settings_.setting_names(self.settings_type(paper_defaults), parts)


SAFETY_CRITIC: dict[str, Any] = {
    "agent": "safecritic.agents.usc",
    "settings": "USCSettings",
    "printed": True,
}
ONE_STEP = {"action_repeat": 1}  # the paper decides anew in every step
PAPER_ACTOR = ONE_STEP | {"actor_lr": 2e-3, "multiplier.noise_free_every": 0}
# what `agents/paper.py` is without, method by method
NO_REFINEMENT = ONE_STEP | {"refinement": False}
NO_INFLUENCE = NO_REFINEMENT | {"influence": False}
NO_CONSERVATISM = NO_INFLUENCE | {"conservative": False}
NO_SAFETY_CRITIC = NO_CONSERVATISM | {"safety_critic": False, "screen": False, "kl_weight": 0.0}

_TABLE = (
    Method(
        "ddpg",
        "DDPG",
        "DDPG",
        "deep deterministic policy gradient; looks at reward alone",
        "none: looks at reward alone",
        agent="safecritic.agents.ddpg",
        settings="DDPGSettings",
        paper=NO_SAFETY_CRITIC,
        printed=True,
        constrained=False,
    ),
    Method(
        "pid-lag",
        "PIDLag",
        "PID-Lag",
        "DDPG with a cost critic and a multiplier driven by a PID controller",
        "regression of the discounted cost; a PID controller moves the multiplier",
        agent="safecritic.agents.pid_lag",
        settings="PIDLagSettings",
        paper=PAPER_ACTOR | {"safety.steps": 1, "safety.costly_share": 0.0},
    ),
    Method(
        "cpo",
        "CPO",
        "CPO",
        "constrained policy optimisation: on-policy, each step within a trust region and the limit",
        "a value of the cost; every step stays within a trust region and the limit",
        agent="safecritic.agents.cpo",
        settings="CPOSettings",
        paper=ONE_STEP,
        on_policy=True,
        steps=500_000,
    ),
    Method(
        "rcpo",
        "RCPO",
        "RCPO",
        "reward constrained policy optimisation: DDPG on reward minus multiplier times cost",
        "none: learns from reward minus multiplier times cost",
        agent="safecritic.agents.rcpo",
        settings="RCPOSettings",
        paper=PAPER_ACTOR,
    ),
    Method(
        "sc",
        "SC",
        "SC",
        "safety critic: Bellman regression of the cost, multiplier and screen",
        "regression of the discounted cost",
        parts=("screen",),
        paper=NO_CONSERVATISM,
        **SAFETY_CRITIC,
    ),
    Method(
        "csc",
        "CSC",
        "CSC",
        "conservative safety critic: other actions of the policy are taken to cost more",
        "takes other actions of the policy to cost more",
        parts=("conservative", "screen"),
        defaults={"conservative.near_policy": True},
        paper=NO_INFLUENCE | {"near_policy": True},
        **SAFETY_CRITIC,
    ),
    Method(
        "usc-nr",
        "USCNR",
        "USC (NR)",
        "uncertain safety critic without refinement: conservatism weighted by influence",
        "takes other actions to cost more where it is uncertain or costs are high",
        parts=("conservative", "influence", "screen"),
        paper=NO_REFINEMENT,
        **SAFETY_CRITIC,
    ),
    Method(
        "usc",
        "USC",
        "USC",
        "uncertain safety critic: influence-weighted conservatism and refinement",
        "and refines its least certain samples from their neighbours",
        parts=("conservative", "influence", "refinement", "screen"),
        paper=ONE_STEP,
        **SAFETY_CRITIC,
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
    name: str,
    task: Mapping[str, Any] | None = None,
    paper_defaults: bool = False,
    **given: Any,
) -> Any:
    """Return the checked settings of a method: its defaults, those of a task, those given.

    A group of settings is given as such, as a mapping, by names with dots, or as False:
    `screen=Screen(tolerance=0.1)`, `screen={"tolerance": 0.1}`, `**{"screen.tolerance": 0.1}`.
    """
    method = get(name)
    kind, printed = method.settings_type(paper_defaults), paper_defaults and method.printed
    parts = () if printed else method.parts
    chosen = settings_.dotted(given)
    _check_names(method, kind, parts, chosen)
    flat = {**(task or {}), **({} if printed else method.defaults)}
    flat |= {**(method.paper if paper_defaults else {}), **chosen}
    off = [part for part in settings_.part_types(kind) if flat.get(part) is False]
    for part in off:
        inside = sorted(name for name in chosen if name.startswith(f"{part}."))
        if inside:
            raise ValueError(
                f"{inside[0]} is a setting of the {part} part, which is switched off: "
                f"leave out one of the two (--no-{part}, --{inside[0].replace('_', '-')})"
            )
    on = {name: x for name, x in flat.items() if name.partition(".")[0] not in off}
    return settings_.build(kind, parts, on | {part: False for part in off if part in parts})


def _check_names(
    method: Method, kind: type[Settings], parts: tuple[str, ...], given: Mapping[str, Any]
) -> None:
    """Refuse settings the method does not have, with the reason."""
    known = settings_.setting_names(kind, parts)
    optional = settings_.part_types(kind)
    for key in given:
        part = key.partition(".")[0]
        if key in known or (key in optional and given[key] is False):
            continue
        if part in optional and part not in parts:
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
