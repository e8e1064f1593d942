"""What the agent classes take: keywords, docstrings, and the stub `agent_classes.pyi`.

All of it comes from the table of methods and from the settings beside each agent's code. After a
change there, write the stub again:

    python -m safecritic.signatures
"""

import inspect
import textwrap
import typing
from contextlib import suppress
from dataclasses import MISSING
from pathlib import Path
from typing import Any, Literal, NamedTuple

from safecritic import methods
from safecritic.agents import settings
from safecritic.methods import Method
from safecritic.tasks.observations import Closeness

STUB = Path(__file__).with_name("agent_classes.pyi")
WIDTH = 100  # of a line of the stub
NO_BREAK = "\N{NO-BREAK SPACE}"
HEAD = """\
# Made by `python -m safecritic.signatures` from the table of methods. Do not edit.
from collections.abc import Iterable
from typing import Any, Literal

import gymnasium

from safecritic.api import Agent

__all__: list[str] = [
{names}]

def agent_class(name: str) -> type[Agent]: ...
def __getattr__(name: str) -> Any: ...  # classes of methods that plugins register
"""


class Keyword(NamedTuple):
    """A keyword of an agent class."""

    name: str
    type: Any
    default: Any


def keywords(method: Method) -> list[Keyword]:
    """Return the keywords of a method's class: seed, declarations, settings, switches of parts."""
    rows = [Keyword("seed", int, 0), Keyword("paper_defaults", bool, False)]
    rows += [Keyword(name, str | None, None) for name in ("cost_key", "success_key")]
    rows.append(Keyword("closeness", Closeness | None, None))
    if not method.constrained:
        rows.append(Keyword("no_cost", bool, False))
    for field, _ in settings.setting_fields(method.settings_type(), method.parts):
        kind: Any = field.type
        factory: Any = field.default_factory
        default = field.default if factory is MISSING else factory()
        default = method.defaults.get(field.name, default)
        if field.name in methods.OF_THE_TASK:  # `methods.make_config` takes it from there
            kind, default = kind | None, None
        rows.append(Keyword(field.name, kind, default))
    return rows + [Keyword(part, bool, method.defaults.get(part, True)) for part in method.parts]


def helps(method: Method) -> dict[str, str]:
    """Return the help of each argument; there may be none, as where there is no source."""
    kind = method.settings_type()
    parts = {name: part for name, part in settings.part_types(kind).items() if name in method.parts}
    texts = {
        "env": "id of a task or of a registered environment, or an environment with a cost",
        "seed": "seed of parameters, exploration, replay and environment",
        "paper_defaults": "start from the paper's values instead of ours",
        "cost_key": "key of the cost in `info`; None: `cost`",
        "success_key": "key of success in `info`; None: `success`, `is_success` or `goal_met`",
        "closeness": "observations in [0, 1], 1 for near, such as lidars: places or names, as in "
        '"10-25,30"; None: what the environment declares',
        "no_cost": "True: the environment has no cost",
    }
    for group in (kind, *parts.values()):
        with suppress(OSError, TypeError):
            texts |= settings.helps(group)
    for name in methods.OF_THE_TASK:
        elsewhere = method.defaults.get(name, getattr(kind, name))
        texts[name] = f"{texts.get(name, '')}; None: the task's, elsewhere {elsewhere}"
    return texts | {name: f"False switches the {part.TITLE} off" for name, part in parts.items()}


def signature(method: Method, env: Any) -> inspect.Signature:
    """Return the signature of `__init__` of a method's class; `env` is the type of its `env`."""
    kinds = inspect.Parameter
    rows = [
        kinds("self", kinds.POSITIONAL_OR_KEYWORD),
        kinds("env", kinds.POSITIONAL_OR_KEYWORD, annotation=env),
    ]
    rows += [
        kinds(key.name, kinds.KEYWORD_ONLY, default=key.default, annotation=key.type)
        for key in keywords(method)
    ]
    return inspect.Signature(rows, return_annotation=None)


def docstring(method: Method) -> str:
    """Return the docstring of a method's class: its summary and the help of every argument."""
    summary = method.summary[:1].upper() + method.summary[1:].rstrip(".") + "."
    texts = helps(method)
    rows = [f"env: {texts['env']}"]
    rows += [
        f"{key.name}: {texts.get(key.name, '')} (default{NO_BREAK}{_source(key.default)})"
        for key in keywords(method)
    ]
    lines = [*textwrap.wrap(summary, WIDTH - 8), "", "Args:"]
    for row in rows:
        lines += textwrap.wrap(row, WIDTH - 4, initial_indent="    ", subsequent_indent="        ")
    return "\n".join(lines).replace(NO_BREAK, " ")


def stub() -> str:
    """Return the stub of `agent_classes`, with the methods of this package alone."""
    table = methods._TABLE
    names = ["agent_class", *(method.class_name for method in table)]
    names.sort(key=lambda name: (not name.isupper(), name))  # as ruff sorts `__all__`
    head = HEAD.format(names="".join(f'    "{name}",\n' for name in names))
    return "\n".join([head, *map(_stub_class, table)])


def _stub_class(method: Method) -> str:
    arguments = ["self", "env: str | gymnasium.Env", "*"]
    for key in keywords(method):
        arguments.append(f"{key.name}: {_type_source(key.type)} = {_source(key.default)}")
    lines = [f'"""{docstring(method)}', '"""', "", "def __init__("]
    lines += [f"    {argument}," for argument in arguments]
    body = textwrap.indent("\n".join([*lines, ") -> None: ...", ""]), "    ")
    return f"class {method.class_name}(Agent):\n{body}"


def _type_source(kind: Any) -> str:
    """Return the type of a setting as Python source."""
    if typing.get_origin(kind) is Literal:
        return f"Literal[{', '.join(map(_source, typing.get_args(kind)))}]"
    plain = isinstance(kind, type) and not typing.get_args(kind)
    return kind.__name__ if plain else str(kind).replace("collections.abc.", "")


def _source(value: Any) -> str:
    return f'"{value}"' if isinstance(value, str) else repr(value)


if __name__ == "__main__":
    STUB.write_text(stub(), encoding="utf-8")
    print(STUB)
