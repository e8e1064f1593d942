"""The command line: `safecritic COMMAND ...`.

Nothing heavy is imported before the command is known, so that `safecritic --help` is instant.
"""

import os
import sys

from safecritic.cli.errors import FAILED, INTERRUPTED, USAGE, UsageError

COMMANDS = {  # each a function of `commands`
    "train": "Train a method on a task, or resume a run.",
    "evaluate": "Evaluate a trained policy without exploration, its screen on.",
    "export": "Write the policy, its screen and its contract to one file that a robot can run.",
    "certify": "Bound what the next episode of a trained policy costs, from fresh episodes.",
    "show": "Film episodes of a trained policy and plot its learning curves.",
    "study": "Run methods x tasks x seeds from a TOML file; run again to resume.",
    "pack": "Copy what tables and a report need of a study, small enough to send.",
    "report": "Build a page of tables and figures of a study, finished or not.",
    "tasks": "List the tasks, or describe one, or any environment.",
    "methods": "List the methods.",
}

EXAMPLES = """\
  safecritic train usc CarGoal1 --steps 40000 --seed 0
  safecritic train --resume runs/usc-CarGoal1-seed0
  safecritic evaluate runs/usc-CarGoal1-seed0 --episodes 10
  safecritic show runs/usc-CarGoal1-seed0
  safecritic certify runs/usc-CarGoal1-seed0 --episodes 99
  safecritic export runs/usc-CarGoal1-seed0 --out policy.safecritic
  safecritic study quick.toml
  safecritic report studies/quick
  safecritic pack studies/quick --out quick-results
"""

VARIABLES = """\
  SAFECRITIC_TRACEBACK=1    show the traceback of an error
  SAFECRITIC_CACHE=off      do not keep compiled functions on disk
  SAFECRITIC_CACHE=FOLDER   keep them in this folder
"""


EXIT_CODES = """\
  0      done
  1      a run or a study failed after it had begun; what can be resumed is printed
  2      refused: nothing was begun
  130    stopped by Ctrl-C, and saved
"""


def main(arguments: list[str] | None = None) -> int:
    """Run a command; return its exit code."""
    arguments = sys.argv[1:] if arguments is None else arguments
    name, *rest = arguments or [""]
    try:
        if name in ("", "-h", "--help", "help"):
            print(_overview())
            return 0 if name else USAGE
        if name == "--version":
            from importlib.metadata import version

            print(version("safecritic"))
            return 0
        if name not in COMMANDS:
            from safecritic.names import suggest

            raise UsageError(f"unknown command {name!r}: {suggest(name, list(COMMANDS))}")
        from safecritic.cli import commands
        from safecritic.cli.errors import plain_warnings

        with plain_warnings():
            return getattr(commands, name)(rest)
    except UsageError as error:
        print(f"error: {error}", file=sys.stderr)
        return USAGE
    except KeyboardInterrupt:
        return INTERRUPTED
    except BrokenPipeError:  # the reader of our output is gone, as with `| head`
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return FAILED
    except Exception as error:
        if os.environ.get("SAFECRITIC_TRACEBACK"):
            raise
        from safecritic.cli.errors import unexpected_text

        print(f"error: {unexpected_text(error)}", file=sys.stderr)
        return FAILED


def _overview() -> str:
    """Return what `safecritic --help` prints."""
    summaries = "\n".join(f"  {name:<10}{summary}" for name, summary in COMMANDS.items())
    return (
        "usage: safecritic COMMAND ...\n\n"
        "Safe reinforcement learning with safety critics.\n\n"
        f"commands:\n{summaries}\n\n"
        f"examples:\n{EXAMPLES}\n"
        f"environment variables:\n{VARIABLES}\n"
        f"exit codes:\n{EXIT_CODES}\n"
        "`safecritic COMMAND --help` lists the options of a command,\n"
        "`safecritic train METHOD --help` the settings of a method."
    )
