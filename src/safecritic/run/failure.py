"""Why a run stopped: the errors that stop one, and error.json, which says it as data."""

import contextlib
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated

from safecritic.core import files
from safecritic.core.schema import Count, Matching
from safecritic.tasks.checks import EnvError

FILE = "error.json"


class RunStopped(RuntimeError):
    """A run that cannot go on; the message says why, and at which step."""

    quantity: str | None = None
    step: int | None = None

    def __init__(self, message: str, step: int | None = None):
        super().__init__(message)
        self.step = step


class NotFiniteError(RunStopped):
    """A metric, an action or a part of the run's state was NaN or infinite: it has diverged."""

    def __init__(self, quantity: str, step: int, why: str = ""):
        about = f" ({why})" if why else ""
        text = f"{quantity} was not finite at step {step}{about}: the run was stopped"
        super().__init__(text, step)
        self.quantity, self.why = quantity, why


class EnvNotFiniteError(NotFiniteError):
    """A value from the environment was NaN, infinite or far too large."""


def stop_of(error: EnvError, step: int) -> RunStopped:
    """Return the error of a run whose environment failed at `step`."""
    if not error.finite:
        return EnvNotFiniteError(error.quantity, step, str(error))
    return RunStopped(f"{error}; at step {step}: the run was stopped", step)


@dataclass(frozen=True)
class Failure:
    """The form of error.json."""

    type: Annotated[str, Matching(r"\w{1,100}", "the name of a class")]
    message: str
    quantity: str | None = None  # that was not finite
    step: Count | None = None

    @property
    def diverged(self) -> bool:
        """Whether the run's own numbers were not finite: trained again it would do the same."""
        return self.type == NotFiniteError.__name__

    @property
    def text(self) -> str:
        """Return one line for a reader."""
        return self.message if self.diverged else f"{self.type}: {self.message}"


def failure_of(error: BaseException) -> Failure:
    """Return an error as data."""
    message = files.printable(" ".join(str(error).split()))[:2_000]
    quantity, step = getattr(error, "quantity", None), getattr(error, "step", None)
    return Failure(type(error).__name__, message, quantity, step)


def write_failure(run: Path, error: BaseException | Failure) -> Failure:
    """Write error.json into a run's folder, as far as it can be written; return its content."""
    failure = error if isinstance(error, Failure) else failure_of(error)
    with contextlib.suppress(OSError, files.FileError):  # a full disk, or a folder that is a link
        files.write_json(files.make_folder(run) / FILE, asdict(failure))
    return failure


def read_failure(run: Path) -> Failure | None:
    """Return why the last attempt at a run stopped; None if it did not fail."""
    try:
        return Failure(**files.read_json(run / FILE, Failure))
    except FileNotFoundError:
        return None


def clear_failure(run: Path) -> None:
    """Remove the error of an earlier attempt."""
    (run / FILE).unlink(missing_ok=True)
