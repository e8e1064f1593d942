"""What is trained here, in the real Safety Gymnasium; and how fast that is beside ours.

    safecritic train usc SafetyCarGoal1-v0
    safecritic export runs/usc-SafetyCarGoal1-v0-seed0 --out policy.safecritic
    python benchmarks/original.py policy.safecritic [...] --episodes 100
    python benchmarks/original.py --speed [SafetyCarGoal1-v0 ...]

The original, version 1.0.0, runs in an environment of its own on Python 3.11, which is made on
first use (`--folder`). It installs with `--no-deps`, as pygame is not needed, and is imported with
`dataclasses.dataclass` taking arrays as defaults, which 3.11 refuses. The policy file is run there
by this package's `runtime` alone, which needs NumPy.

Both sides play the same episodes by the same loop, from the same seeds, hence in the same scenes.
The difference is taken episode by episode; SAME means that its 95% interval holds 0, which chance
alone denies one time in twenty. For a policy's episodes the original gets a plain sky: it decodes
one for a second at every reset. That changes no field of the model but `tex_...`, and no random
number. Speed is measured with its own sky: the two sides take turns with the same random actions on
one core each, in processor seconds; resets apart; medians over the rounds.
"""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import io
import json
import math
import os
import shutil
import statistics
import subprocess
import sys
import time
import types
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

# Only the standard library above: the other side imports this file too, without this package.

VERSION = "3.11"
PACKAGES = (
    "numpy==1.23.5",
    "gymnasium==0.28.1",
    "mujoco==2.3.3",
    "gymnasium-robotics==1.2.2",
    "xmltodict",
    "pyyaml",
)
ORIGINAL = "safety-gymnasium==1.0.0"  # without what it depends on
CLOSE = 1e-6  # what is no difference, as two versions of MuJoCo round differently
STEPS = 100  # of a block
RESETS = 20  # of ours per reset of the original


# ------------------------------------------------------------ both sides


class Side:
    """Environments and policies: the original's or ours."""

    def __init__(self, make: Callable[[str], Any], load: Callable[..., Any]) -> None:
        self.make, self.load = make, load

    def episodes(self, task: str, policy: str, seeds: list[int]) -> dict[str, Any]:
        """Return a row for each seed, and how many calls the policy's fallback answered."""
        env, runs = self.make(task), self.load(policy, clock=None)
        rows = [episode(env, runs, seed) for seed in seeds]
        return {"rows": rows, "faults": runs.counts["faults"]}

    def start(self, task: str, seed: int) -> None:
        """Begin to measure a task's speed."""
        import numpy as np

        self.env, self.rng = self.make(task), np.random.default_rng(seed)
        self.env.reset(seed=seed)

    def steps(self) -> float:
        """Return the seconds of a step with random actions."""
        space = self.env.action_space
        actions = self.rng.uniform(space.low, space.high, (STEPS, *space.shape))
        seconds, begun = 0.0, time.process_time()
        for action in actions.astype(space.dtype):
            if step(self.env, action)[-1]:
                seconds += time.process_time() - begun
                self.env.reset()
                begun = time.process_time()
        return (seconds + time.process_time() - begun) / STEPS

    def resets(self, times: int) -> float:
        """Return the seconds of a reset."""
        begun = time.process_time()
        for _ in range(times):
            self.env.reset()
        return (time.process_time() - begun) / times


def step(env: Any, action: Any) -> tuple[Any, float, float, bool]:
    """Return observation, reward, cost, and whether the episode ended, of five or six values."""
    obs, reward, *cost, terminated, truncated, info = env.step(action)
    return obs, float(reward), float(*cost or [info["cost"]]), bool(terminated or truncated)


def episode(env: Any, policy: Any, seed: int) -> dict[str, Any]:
    """Run one episode as the README does; return its sums and the first observation."""
    obs, _ = env.reset(seed=seed)
    row = {"seed": seed, "first": obs.tolist(), "reward": 0.0, "cost": 0.0, "steps": 0}
    policy.reset()
    done = False
    while not done:
        obs, reward, cost, done = step(env, policy(obs))
        policy.spend(cost)
        row["reward"] += reward
        row["cost"] += cost
        row["steps"] += 1
    return row


# ------------------------------------------------------------ the original's side


def serve(runtime: str, sky: str) -> None:
    """Answer requests, lines of JSON, in the side environment."""
    answers, sys.stdout = sys.stdout, sys.stderr  # the original prints
    sys.path.insert(0, runtime)
    from runtime import load

    del sys.path[0]  # a module beside `runtime` has the original's name
    with arrays_as_defaults(), contextlib.redirect_stderr(io.StringIO()):
        import safety_gymnasium
    if sky == "plain":
        plain_sky(safety_gymnasium.world)
    side = Side(safety_gymnasium.make, load)
    for line in sys.stdin:
        name, *arguments = json.loads(line)
        print(json.dumps(getattr(side, name)(*arguments)), file=answers, flush=True)


@contextlib.contextmanager
def arrays_as_defaults() -> Iterator[None]:
    """Let dataclasses have arrays as defaults, as they could before Python 3.11."""
    plain: Any = dataclasses.dataclass

    def dataclass(cls: Any = None, **options: Any) -> Any:
        if cls is None:
            return lambda cls: dataclass(cls, **options)
        for name in vars(cls).get("__annotations__", {}):
            value = vars(cls).get(name)
            if type(value).__name__ == "ndarray":
                setattr(cls, name, dataclasses.field(default_factory=value.copy))
        return plain(cls, **options)

    dataclasses.dataclass = dataclass
    try:
        yield
    finally:
        dataclasses.dataclass = plain


def plain_sky(world: Any) -> None:
    """Replace the pictures of the sky, and read the list of assets once."""
    yaml = world.yaml
    with open(Path(world.BASE_DIR, "configs", "assets.yaml"), encoding="utf-8") as file:
        assets = yaml.load(file, Loader=yaml.FullLoader)
    sky = {"type": "skybox", "builtin": "flat", "width": "8", "height": "8"}
    assets["textures"]["skybox"] = {f"@{name}": value for name, value in sky.items()}
    world.yaml = types.SimpleNamespace(load=lambda *_, **__: assets, FullLoader=None)


# ------------------------------------------------------------ this side


class Original:
    """The original in its own process; requests are the methods of `Side`."""

    def __init__(self, folder: Path, base: str | None, sky: str) -> None:
        import safecritic.runtime

        runtime = str(Path(safecritic.runtime.__file__).parents[1])
        python = side_environment(folder, base)
        self.process = subprocess.Popen(
            [python, "-I", __file__, "--serve", runtime, sky],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def send(self, name: str, *arguments: Any) -> Callable[[], Any]:
        """Send a request; return a function that waits for the answer."""
        assert self.process.stdin is not None
        print(json.dumps([name, *arguments]), file=self.process.stdin, flush=True)
        return self._answer

    def ask(self, name: str, *arguments: Any) -> Any:
        return self.send(name, *arguments)()

    def _answer(self) -> Any:
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        if not line:
            raise SystemExit("the original's process ended: its error is above")
        return json.loads(line)


def side_environment(folder: Path, base: str | None) -> str:
    """Return the interpreter of the side environment, which is made if it is not there."""
    folder = folder.resolve()
    python = str(folder / ("Scripts/python.exe" if sys.platform == "win32" else "bin/python"))
    note, content = folder / "packages.txt", "\n".join((*PACKAGES, ORIGINAL, ""))
    if note.exists() and note.read_text() == content:
        return python
    if folder.exists() and any(folder.iterdir()) and not (folder / "pyvenv.cfg").exists():
        raise SystemExit(f"{folder} holds something else: name another folder (--folder)")
    here = sys.executable if sys.version_info[:2] == (3, 11) else None
    base = base or here or shutil.which(f"python{VERSION}")
    if base is None:
        raise SystemExit(
            f"the original needs Python {VERSION}, and none is found: name one by --python"
        )
    print(f"making {folder} with {base}", file=sys.stderr)
    pip = [python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    for command in (
        [base, "-m", "venv", "--clear", str(folder)],
        [*pip, *PACKAGES],
        [*pip, "--no-deps", ORIGINAL],
    ):
        subprocess.run(command, check=True)
    note.write_text(content)
    return python


def cache_folder() -> Path:
    """Return where the side environment is by default."""
    return Path(
        os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache", "safecritic", "original"
    )


def known() -> list[str]:
    """Return the ids that both know."""
    from safecritic.tasks import registry

    return [name for name in registry.TASKS if name.startswith("Safety")]


# ------------------------------------------------------------ the two tables


def compare(original: Original, policy: str, seeds: list[int]) -> dict[str, Any]:
    """Play a policy's episodes on both sides at once."""
    import safecritic
    from safecritic.runtime import load

    about, path = load(policy).contract, str(Path(policy).resolve())
    task = about["task"]
    if task not in known():
        raise SystemExit(f"{policy} was trained on {task}, which Safety Gymnasium does not have")
    answer = original.send("episodes", task, path, seeds)
    here = Side(safecritic.make, load).episodes(task, path, seeds)
    names = ("method", "steps", "cost_limit", "policy_sha256")
    row = {"policy": policy, "task": task} | {name: about[name] for name in names}
    row |= {"here": here, "there": answer()}
    apart = set()
    for ours, theirs in zip(row["here"]["rows"], row["there"]["rows"], strict=True):
        pairs = zip(
            about["observation"]["names"], ours.pop("first"), theirs.pop("first"), strict=True
        )
        apart |= {name for name, x, y in pairs if abs(x - y) > CLOSE}
    row["first_apart"] = [name for name in about["observation"]["names"] if name in apart]
    return row | {"summary": summary(row)}


def summary(row: dict[str, Any]) -> list[dict[str, Any]]:
    """Return each number of a policy here, there and as a difference, with intervals of means."""
    import numpy as np

    from safecritic.core.statistics import interval_of_mean

    reward, cost = (
        [np.array([each[name] for each in row[side]["rows"]]) for side in ("here", "there")]
        for name in ("reward", "cost")
    )
    above = [100.0 * (each > row["cost_limit"]) for each in cost]
    found: list[dict[str, Any]] = []
    for name, sides in (("reward", reward), ("cost", cost), ("above the limit %", above)):
        apart = interval_of_mean(sides[1] - sides[0])
        same = apart.low - CLOSE <= 0.0 <= apart.high + CLOSE
        here, there = map(interval_of_mean, sides)
        found.append({"name": name, "here": here, "there": there, "apart": apart, "same": same})
    tenth = math.ceil(len(cost[0]) / 10)
    worst = [[float(np.sort(each)[-tenth:].mean())] for each in cost]
    found.append({"name": "cost, worst tenth", "here": worst[0], "there": worst[1]})
    return found


def show(row: dict[str, Any]) -> None:
    """Print one policy's table."""
    scenes = row["here"]["rows"]
    print(
        f"\n{row['task']}: {row['method']}, {row['steps']:,} steps, limit {row['cost_limit']:g}, "
        f"policy {row['policy_sha256'][:12]}, {len(scenes)} scenes from seed {scenes[0]['seed']}"
    )
    print(f"{'':18}{'here':>16}{'there':>16}{'there - here':>28}")
    for line in row["summary"]:
        cells = []
        for value, *ends in (line["here"], line["there"]):
            cells.append(f"{value:.2f}" + (f" ± {(ends[1] - ends[0]) / 2:.2f}" if ends else ""))
        print(f"{line['name']:18}{cells[0]:>16}{cells[1]:>16}", end="")
        if "apart" in line:
            value, low, high = line["apart"]
            word = "SAME" if line["same"] else "DIFFERENT"
            print(f"{f'{value:+.2f} [{low:+.2f}, {high:+.2f}]':>28}  {word}", end="")
        print()
    apart = ", ".join(row["first_apart"]) or "nothing"
    faults = row["here"]["faults"], row["there"]["faults"]
    print(
        f"first observations agree to {CLOSE:g}, but for: {apart}\n"
        f"calls that the fallback answered: {faults[0]} here, {faults[1]} there"
    )


def race(original: Original, task: str, rounds: int, seed: int) -> dict[str, Any]:
    """Measure the speed of a task on both sides, in turns."""
    import safecritic

    ours = Side(safecritic.make, lambda *_: None)
    original.ask("start", task, seed)
    ours.start(task, seed)
    turns: dict[str, list[tuple[float, float]]] = {"steps": [], "reset": []}
    for number in range(rounds):
        turns["steps"].append((ours.steps(), original.ask("steps")))
        if number % 5 == 0:  # one takes the original a second
            turns["reset"].append((ours.resets(RESETS), original.ask("resets", 1)))
    row: dict[str, Any] = {"task": task}
    for name, pairs in turns.items():
        here, there = (statistics.median(times) for times in zip(*pairs, strict=True))
        ratio = statistics.median(there / here for here, there in pairs)
        row[name] = {"here": here, "there": there, "ratio": ratio}
    return row


def main() -> None:
    if sys.argv[1:2] == ["--serve"]:
        serve(*sys.argv[2:])
        return
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("policies", nargs="*", help="policy files of tasks that the original has")
    parser.add_argument("--episodes", type=int, default=100)
    parser.add_argument("--seed", type=int, default=20_000, help="of the first scene")
    parser.add_argument("--speed", nargs="*", metavar="ID", help="measure it; without ids, of all")
    parser.add_argument("--rounds", type=int, default=15, help="of the measurement of speed")
    parser.add_argument("--folder", type=Path, default=cache_folder(), help="side environment")
    parser.add_argument("--python", help=f"a Python {VERSION} to make it with")
    parser.add_argument("--json", type=Path, help="also write everything here")
    options = parser.parse_args()
    if (options.speed is None) == (not options.policies):
        parser.error("give policy files, or --speed")
    if options.episodes < 2:
        parser.error(f"an interval takes 2 episodes or more, got {options.episodes} (--episodes)")
    if unknown := sorted({*(options.speed or ())} - {*known()}):
        parser.error(f"not known to both: {', '.join(unknown)}; --speed without ids takes all")
    found = []
    original = Original(
        options.folder, options.python, "own" if options.policies == [] else "plain"
    )
    if options.policies:
        seeds = list(range(options.seed, options.seed + options.episodes))
        for policy in options.policies:
            found.append(compare(original, policy, seeds))
            show(found[-1])
    else:
        print(f"{'':30}{'steps/s':>9}{'original':>10}{'ratio':>7}{'reset ms':>11}{'original':>10}")
        for task in options.speed or known():
            found.append(race(original, task, options.rounds, options.seed))
            steps, reset = found[-1]["steps"], found[-1]["reset"]  # seconds
            print(
                f"{task:30}{1 / steps['here']:9.0f}{1 / steps['there']:10.0f}{steps['ratio']:7.1f}"
                f"{1e3 * reset['here']:11.2f}{1e3 * reset['there']:10.1f}",
                flush=True,
            )
    if options.json is not None:
        options.json.write_text(json.dumps(found, indent=1) + "\n")


if __name__ == "__main__":
    main()
