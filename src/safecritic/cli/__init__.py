"""The command line: `safecritic COMMAND ...`.

Nothing heavy is imported before the command is known, so that `safecritic --help` is instant.
"""

import os
import sys

from safecritic.cli.errors import FAILED, INTERRUPTED, USAGE, UsageError, answer, plain_warnings

COMMANDS = {  # each a function of `commands`
    "train": "Train a method on a task, or resume a run.",
    "evaluate": "Evaluate a trained policy without exploration noise, with its screen on.",
    "show": "Film episodes of a trained policy and plot its learning curves.",
    "explore": "Write a page to drag a scene about in, with what the critics of runs say of it.",
    "certify": "Bound what the next episode of a trained policy costs, from fresh episodes.",
    "dial": "Find the screen's tolerance that keeps a limit, for one trained policy.",
    "export": "Write the policy, its screen and its contract to one file that a robot can run.",
    "push": "Share an exported policy on the Hugging Face Hub, or in a folder, with a card.",
    "pull": "Fetch a shared policy and check it.",
    "limits": "Find which cost limits bind in a task or an environment of your own.",
    "study": "Run methods x tasks x seeds from a TOML file; run again to resume.",
    "pack": "Write the results of a study to one small file that a report can read.",
    "report": "Build a page of tables and figures of a study, finished or not.",
    "tasks": "List the tasks, or describe one of them or any environment.",
    "methods": "List the methods.",
}

OVERVIEW = """\
usage: safecritic COMMAND ...

Safe reinforcement learning with safety critics.

commands:
{commands}

examples:
  safecritic train usc CarGoal1 --steps 40000 --seed 0
  safecritic train --resume runs/usc-CarGoal1-seed0
  safecritic evaluate runs/usc-CarGoal1-seed0 --episodes 10
  safecritic show runs/usc-CarGoal1-seed0
  safecritic explore runs/usc-CarGoal1-seed0
  safecritic certify runs/usc-CarGoal1-seed0 --episodes 99
  safecritic dial runs/usc-CarGoal1-seed0 --limits 0.5 1 2
  safecritic export runs/usc-CarGoal1-seed0 --out policy.safecritic
  safecritic limits my_module:MyEnv-v0
  safecritic study quick.toml
  safecritic report studies/quick
  safecritic pack studies/quick --out quick.parquet

environment variables:
  SAFECRITIC_TRACEBACK=1    show the traceback of an error
  SAFECRITIC_CACHE=off      do not keep compiled functions on disk
  SAFECRITIC_CACHE=FOLDER   keep them in this folder

exit codes:
  0      done
  1      a run or a study failed after it had begun; what can be resumed is printed
  2      refused: nothing was begun
  130    stopped by Ctrl-C, and saved

`safecritic COMMAND --help` lists the options of a command,
`safecritic train METHOD --help` the settings of a method."""


def names_own_module(command: str, arguments: list[str]) -> bool:
    """Return whether a command asks for an environment of the user's own, as `module:Env-v0`.

    Only then is the current folder searched for modules: it may be a stranger's.
    """
    trusted = "--trust-env" in arguments or "--trust_env" in arguments
    return command == "study" or trusted or any(":" in word for word in arguments)


def main(arguments: list[str] | None = None) -> int:
    """Run a command; return its exit code."""
    arguments = sys.argv[1:] if arguments is None else arguments
    name, *rest = arguments or [""]
    try:
        if name in ("", "-h", "--help", "help"):
            summaries = (f"  {name:<10}{summary}" for name, summary in COMMANDS.items())
            print(OVERVIEW.format(commands="\n".join(summaries)))
            return 0 if name else USAGE
        if name == "--version":
            from importlib.metadata import version

            print(version("safecritic"))
            return 0
        if name not in COMMANDS:
            from safecritic.core.names import suggest

            raise UsageError(f"unknown command {name!r}: {suggest(name, list(COMMANDS))}")
        from safecritic.cli import commands

        if names_own_module(name, rest):
            sys.path.append(os.getcwd())  # last, so that it hides no installed module
        with plain_warnings():
            return getattr(commands, name)(rest)
    except KeyboardInterrupt:
        return INTERRUPTED
    except BrokenPipeError:  # the reader of our output is gone, as with `| head`
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return FAILED
    except Exception as error:
        if os.environ.get("SAFECRITIC_TRACEBACK") and not isinstance(error, UsageError):
            raise
        code, text = answer(error)
        print(f"error: {text}", file=sys.stderr)
        return code
