"""Speed: one update, a whole step, compiling and memory, for every method and beside its peers.

    python benchmarks/speed.py                                  # everything, some 15 minutes
    python benchmarks/speed.py --methods ddpg usc --tasks CarGoal1
    pip install safecritic[bench]                               # adds SB3 and SBX to the table

Each contestant is a process of its own. They take turns, block by block, each piece of a
block counts at its best, and medians are taken over the rounds: machines are noisy, so ratios
within one run are what counts.

update      one update alone, batch drawn included, CPU milliseconds on one core (CarGoal1)
floor       of that, the share its matrix products would take at the best rate that NumPy's BLAS or
            XLA reaches on products of the same shapes, measured in the same round
compile     seconds until the first step is learned; "again" with the compilation cache filled
memory      peak of the process, MB, with its replay of 200,000 transitions
steps/s     environment steps with their updates, wall clock, all cores allowed
"""

from __future__ import annotations

import argparse
import dataclasses
import importlib.util
import json
import os
import re
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections import Counter
from typing import Any

BATCH, WIDTHS = 64, (256, 256)  # of the peers; ours by default
METHODS = ("ddpg", "rcpo", "pid-lag", "sc", "csc", "usc-nr", "usc", "cpo")
PEERS = {"sb3": "stable_baselines3", "sbx": "sbx"}
TASKS = ("CarGoal1", "CarGoal2", "CarButton2", "HalfCheetah")
BLOCK = 50  # updates: a refresh of the influence's curvature is in each
PIECE = 10  # of them timed together
PASSES = 10  # blocks of a round
STEPS = 60  # environment steps timed together


# ------------------------------------------------------------ the processes


class Ours:
    """A method of this package on a task, off-policy."""

    def __init__(self, method: str, task: str) -> None:
        start = time.perf_counter()
        import jax

        self.jax, self.training = jax, start_agent(method, task)
        while self.training.step <= self.training.config.learning_starts + 1:
            self.training.advance()
        jax.block_until_ready(self.training.device.metric_sums)
        self.ready = time.perf_counter() - start
        self.products: list[tuple[int, int, int]] | None = None

    def updates(self, number: int) -> dict[str, float]:
        """Of one update, in seconds: of the clock and of the processor."""
        training = self.training
        row, learn, device = training.pending, training.compiled.learn, training.device
        clock, cpu = time.perf_counter(), time.process_time()
        for _ in range(number):
            device = learn(device, row)
        self.jax.block_until_ready(device.metric_sums)
        found = {
            "clock": (time.perf_counter() - clock) / number,
            "cpu": (time.process_time() - cpu) / number,
        }
        training.device = device
        return found

    def steps(self, number: int) -> float:
        clock = time.perf_counter()
        for _ in range(number):
            self.training.advance()
        self.jax.block_until_ready(self.training.device.metric_sums)
        return number / (time.perf_counter() - clock)

    def floor(self) -> dict[str, float]:
        """Seconds of the update's matrix products at the best rate, and their FLOPs."""
        if self.products is None:
            lowered = self.training.compiled.learn.lower(
                self.training.device, self.training.pending
            )
            self.products = matrix_products(lowered.compile().as_text())
        seconds = flops = 0.0
        for shape, times in Counter(self.products).items():
            seconds += times * best_product(*shape)
            flops += times * 2.0 * shape[0] * shape[1] * shape[2]
        return {"seconds": seconds, "flops": flops}

    def influence(self, number: int) -> float:
        """Of what Eq. 1 adds to the update of USC, processor seconds."""
        import jax.numpy as jnp

        from safecritic.core import influence

        config = self.training.config

        @self.jax.jit
        def call(curvature: Any, features: Any, slope: Any) -> Any:
            gradients = influence.last_layer_gradients(features, slope)
            damping = config.influence.damping
            curvature = influence.curvature_update(curvature, gradients, damping)
            return curvature, influence.curvature_influence(curvature, gradients)

        if not hasattr(self, "parts"):
            shape = (config.batch_size, config.hidden[-1])
            features = self.jax.random.uniform(self.jax.random.PRNGKey(0), shape, jnp.float32)
            curvature = influence.curvature_init(config.hidden[-1])
            self.parts = (curvature, features, jnp.ones(shape[0], jnp.float32))
            self.call = call
            self.jax.block_until_ready(call(*self.parts))
        curvature, *rest = self.parts
        cpu = time.process_time()
        for _ in range(number):
            curvature, u = self.call(curvature, *rest)
        self.jax.block_until_ready(u)
        return (time.process_time() - cpu) / number


class OnPolicy:
    """CPO: an update is one on a whole rollout."""

    def __init__(self, method: str, task: str) -> None:
        start = time.perf_counter()
        import jax

        self.jax, self.training = jax, start_agent(method, task)
        self.training.advance()
        self.ready = time.perf_counter() - start

    def updates(self, number: int) -> dict[str, float]:
        training = self.training
        clock, cpu = time.perf_counter(), time.process_time()
        agent, _ = training.compiled.update(training.device.agent, training.locals["rollout"])
        self.jax.block_until_ready(agent)
        return {"clock": time.perf_counter() - clock, "cpu": time.process_time() - cpu}

    def steps(self, number: int) -> float:
        clock, before = time.perf_counter(), self.training.step
        self.training.advance()
        return (self.training.step - before) / (time.perf_counter() - clock)


class Peer:
    """DDPG of Stable-Baselines3 or SBX on the same task, at the same size."""

    def __init__(self, name: str, task: str) -> None:
        start = time.perf_counter()
        import torch

        torch.set_num_threads(1)  # its fastest at this size
        import safecritic.tasks

        agent = importlib.import_module(PEERS[name]).DDPG
        self.model = agent(
            "MlpPolicy",
            safecritic.tasks.make(task),
            batch_size=BATCH,
            buffer_size=200_000,
            learning_starts=1_000,
            train_freq=1,
            gradient_steps=1,
            policy_kwargs={"net_arch": list(WIDTHS)},
            seed=0,
        )
        self.model.learn(1_002)
        self.name, self.ready = name, time.perf_counter() - start
        if name == "sbx":
            self._watch()

    def _watch(self) -> None:
        """Keep the arguments of SBX's compiled update, to time it without what surrounds it."""
        compiled = type(self.model)._train

        def kept(*arguments: Any) -> Any:
            self.arguments = arguments
            return compiled(*arguments)

        self.compiled, self.model._train = compiled, kept

    def updates(self, number: int) -> dict[str, float]:
        clock, cpu = time.perf_counter(), time.process_time()
        for _ in range(number):
            self.model.train(1, BATCH)
        found = {
            "clock": (time.perf_counter() - clock) / number,
            "cpu": (time.process_time() - cpu) / number,
        }
        if self.name == "sbx":
            import jax

            cpu = time.process_time()
            for _ in range(number):
                result = self.compiled(*self.arguments)
            jax.block_until_ready(result)
            found["compiled"] = (time.process_time() - cpu) / number
        return found

    def steps(self, number: int) -> float:
        clock, before = time.perf_counter(), self.model.num_timesteps
        self.model.learn(number, reset_num_timesteps=False)
        return (self.model.num_timesteps - before) / (time.perf_counter() - clock)


def start_agent(method: str, task: str) -> Any:
    from safecritic.agent_classes import agent_class

    # an update for each environment step, as the peers do it
    return agent_class(method)(task, seed=0, action_repeat=1).training


def matrix_products(text: str) -> list[tuple[int, int, int]]:
    """(rows, columns, inner) of every product in a compiled program."""
    shapes = {}
    for name, dims in re.findall(r"%?([\w.\-]+) = \w+\[([\d,]*)\]", text):
        shapes[name] = [int(d) for d in dims.split(",") if d]
    found = []
    pattern = r"= \w+\[([\d,]*)\]\S* dot\(%?([\w.\-]+), .*?lhs_contracting_dims={([\d,]*)}"
    for out, left, inner in re.findall(pattern, text):
        size = 1
        for d in out.split(","):
            size *= int(d or 1)
        depth = 1
        for d in inner.split(","):
            depth *= shapes[left][int(d)] if d else 1
        rows = int(out.split(",")[0] or 1)
        found.append((rows, size // rows, depth))
    return found


BEST: dict[tuple[int, int, int], Any] = {}


def best_product(rows: int, columns: int, inner: int) -> float:
    """Processor seconds of one product of that shape, the faster of NumPy and XLA."""
    import jax
    import jax.numpy as jnp
    import numpy as np

    shape = (rows, columns, inner)
    number = 8  # different factors, as in an update
    if shape not in BEST:
        rng = np.random.default_rng(0)
        x = [rng.random((rows, inner), np.float32) for _ in range(number)]
        w = [rng.random((inner, columns), np.float32) for _ in range(number)]
        call = jax.jit(lambda x, w: [a @ b for a, b in zip(x, w, strict=True)])
        on_device = [jnp.asarray(a) for a in x], [jnp.asarray(b) for b in w]
        BEST[shape] = (x, w, *on_device, call)
        jax.block_until_ready(call(*on_device))
    x, w, xs, ws, call = BEST[shape]
    times = []
    for _ in range(5):
        cpu = time.process_time()
        for a, b in zip(x, w, strict=True):
            a @ b
        times.append(time.process_time() - cpu)
        cpu = time.process_time()
        jax.block_until_ready(call(xs, ws))
        times.append(time.process_time() - cpu)
    return min(times) / number


def serve(name: str, task: str) -> None:
    """Do what is asked on the standard input, a line each, and answer in a line."""
    if name in PEERS:
        here: Any = Peer(name, task)
    else:
        here = OnPolicy(name, task) if name == "cpo" else Ours(name, task)
    print("@" + json.dumps(here.ready), flush=True)
    for line in sys.stdin:
        what, *rest = json.loads(line)
        answer = (
            resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
            if what == "memory"
            else getattr(here, what)(*rest)
        )
        print("@" + json.dumps(answer), flush=True)


class Contestant:
    """One of those processes, seen from the one that asks."""

    def __init__(self, name: str, task: str, cores: list[int], cache: str) -> None:
        self.name, self.task = name, task
        self.process = subprocess.Popen(
            [sys.executable, __file__, "--serve", name, task],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env=os.environ | {"SAFECRITIC_CACHE": cache, "OPENBLAS_NUM_THREADS": "1"},
            preexec_fn=lambda: hasattr(os, "sched_setaffinity") and os.sched_setaffinity(0, cores),
        )
        self.ready = self._answer()

    def _answer(self) -> Any:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            if line.startswith("@"):
                return json.loads(line[1:])
        raise SystemExit(f"{self.name} on {self.task} ended with {self.process.wait()}")

    def ask(self, *words: Any) -> Any:
        assert self.process.stdin is not None
        print(json.dumps(words), file=self.process.stdin, flush=True)
        return self._answer()

    def close(self) -> None:
        assert self.process.stdin is not None
        self.process.stdin.close()
        self.process.wait()


# ------------------------------------------------------------ the table


@dataclasses.dataclass
class Row:
    """What is printed of a contestant; lists have one figure per round."""

    update: list[float] = dataclasses.field(default_factory=list)
    floor: list[float] = dataclasses.field(default_factory=list)
    gflops: list[float] = dataclasses.field(default_factory=list)
    flops: float = 0.0
    compile: float = 0.0
    again: float = 0.0
    memory: float = 0.0
    steps: dict[str, list[float]] = dataclasses.field(default_factory=dict)


Lists = dict[str, list[float]]


def median(values: list[float]) -> float:
    return statistics.median(values) if values else float("nan")


def ratio(above: list[float], below: list[float]) -> float:
    """The median over the rounds of the ratio within a round."""
    return median([a / b for a, b in zip(above, below, strict=True)])


def least(blocks: list[list[dict[str, float]]], name: str) -> float:
    """Of one update: each piece of a block at its best, since other work only ever adds."""
    return statistics.mean(
        min(piece[name] for piece in pieces) for pieces in zip(*blocks, strict=True)
    )


def measure_updates(
    names: list[str], task: str, rounds: int, cache: str, rows: dict[str, Row], extra: Lists
) -> Lists:
    """Updates alone, each process on the last of the cores; CPU seconds per round."""
    core = [max(os.sched_getaffinity(0))] if hasattr(os, "sched_getaffinity") else []
    found: Lists = {name: [] for name in names}
    contestants = [Contestant(name, task, core, cache) for name in names]
    for contestant in contestants:
        rows[contestant.name].compile = rows[contestant.name].compile or contestant.ready
        contestant.ask("updates", BLOCK)
    for _ in range(rounds):
        blocks: dict[str, list[list[dict[str, float]]]] = {name: [] for name in names}
        for _ in range(PASSES):
            for contestant in contestants:
                pieces = 1 if contestant.name == "cpo" else BLOCK // PIECE
                blocks[contestant.name].append(
                    [contestant.ask("updates", PIECE) for _ in range(pieces)]
                )
        for contestant in contestants:
            found[contestant.name].append(least(blocks[contestant.name], "cpu"))
            if contestant.name == "sbx":
                extra.setdefault("sbx compiled", []).append(least(blocks["sbx"], "compiled"))
            if task == "CarGoal1" and contestant.name not in (*PEERS, "cpo"):
                floor = contestant.ask("floor")
                row = rows[contestant.name]
                row.flops = floor["flops"]
                row.gflops.append(floor["flops"] / floor["seconds"] / 1e9)
                row.floor.append(floor["seconds"] / found[contestant.name][-1])
            if task == "CarGoal1" and contestant.name == "usc":
                extra.setdefault("influence", []).append(
                    contestant.ask("influence", BLOCK) / found["usc"][-1]
                )
    for contestant in contestants:
        row = rows[contestant.name]
        row.memory = row.memory or contestant.ask("memory")
        contestant.close()
    return found


def measure_steps(
    names: list[str], task: str, rounds: int, cache: str, rows: dict[str, Row], extra: Lists
) -> None:
    """Whole steps with all cores allowed, and the update alone under the same conditions."""
    cores = sorted(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else []
    contestants = [Contestant(name, task, cores, cache) for name in names]
    for contestant in contestants:
        if task == "CarGoal1":
            rows[contestant.name].again = contestant.ready
        contestant.ask("steps", STEPS)
    for _ in range(rounds):
        for contestant in contestants:
            # in turn and in blocks of like length: the machine's mood meets both
            pairs = [
                (contestant.ask("updates", BLOCK)["clock"], contestant.ask("steps", STEPS))
                for _ in range(4)
            ]
            alone, steps = (statistics.median(part) for part in zip(*pairs, strict=True))
            rows[contestant.name].steps.setdefault(task, []).append(steps)
            if contestant.name not in (*PEERS, "cpo"):
                extra.setdefault(f"hidden {contestant.name} {task}", []).append(steps * alone)
    for contestant in contestants:
        contestant.close()


def table(rows: dict[str, Row], tasks: list[str]) -> None:
    def cell(value: float, form: str, width: int) -> str:
        known = value > 0  # neither 0, for not measured, nor NaN
        return " " + (format(value, form) if known else "-").rjust(width)

    head = f"{'method':9} {'update ms':>9} {'MFLOP':>6} {'GFLOP/s':>8} {'floor':>6} "
    head += f"{'compile s':>9} {'again':>6} {'MB':>5}"
    print(head + "".join(f" {task:>11}" for task in tasks))
    for name, row in rows.items():
        line = f"{name:9}" + cell(1e3 * median(row.update), ".2f", 9)
        line += cell(row.flops / 1e6, ".0f", 6) + cell(median(row.gflops), ".0f", 8)
        line += cell(median(row.floor), ".0%", 6) + cell(row.compile, ".1f", 9)
        line += cell(row.again, ".1f", 6) + cell(row.memory, ".0f", 5)
        print(line + "".join(cell(median(row.steps.get(t, [])), ".0f", 11) for t in tasks))


def verdicts(rows: dict[str, Row], cheetah: Lists, extra: Lists) -> None:
    """What the project wants to hold, where this run has measured it."""

    def say(text: str, value: float, limit: float, at_most: bool) -> None:
        holds = value <= limit if at_most else value >= limit
        sign = "<=" if at_most else ">="
        print(f"{'holds' if holds else 'MISSED':6}  {text}: {value:.2f} ({sign} {limit})")

    if "sbx" in cheetah and "ddpg" in cheetah:
        say("DDPG update over SBX's", ratio(cheetah["ddpg"], cheetah["sbx"]), 0.8, True)
        only = ratio(cheetah["ddpg"], extra["sbx compiled"])
        say("DDPG update over SBX's compiled part without its sampling", only, 0.8, True)
    for peer, limit in (("sbx", 1.3), ("sb3", 2.5)):
        ours, theirs = (
            rows[n].steps.get("HalfCheetah") if n in rows else None for n in ("ddpg", peer)
        )
        if ours and theirs:
            say(f"DDPG steps/s on HalfCheetah over {peer}'s", ratio(ours, theirs), limit, False)
    for other, limit in (("sc", 1.4), ("csc", 1.2)):
        if "usc" in rows and other in rows:
            value = ratio(rows["usc"].update, rows[other].update)
            say(f"USC update over {other.upper()}'s", value, limit, True)
    if "influence" in extra:
        say("influence's share of the USC update", median(extra["influence"]), 0.15, True)
    for name in ("ddpg", "usc"):
        shares = extra.get(f"hidden {name} CarGoal1")
        if shares:
            text = f"{name.upper()} on CarGoal1, steps/s over what the update alone allows"
            say(text, median(shares), 0.85, False)


def main() -> None:
    if sys.argv[1:2] == ["--serve"]:
        serve(*sys.argv[2:4])
        return
    assert __doc__ is not None
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    installed = [name for name, module in PEERS.items() if importlib.util.find_spec(module)]
    every = [*METHODS, *PEERS]
    parser.add_argument("--methods", nargs="*", choices=every, default=[*METHODS, *installed])
    parser.add_argument("--tasks", nargs="*", choices=TASKS, default=list(TASKS))
    parser.add_argument("--rounds", type=int, default=5)
    options = parser.parse_args()
    rows = {name: Row() for name in options.methods}
    ours = [name for name in options.methods if name not in PEERS]
    peers = [name for name in options.methods if name in PEERS]
    extra: Lists = {}
    with tempfile.TemporaryDirectory() as cache:
        found = measure_updates(ours, "CarGoal1", options.rounds, cache, rows, extra)
        cheetah: Lists = {}
        pair = [name for name in ("ddpg", *peers) if name in options.methods]
        if peers:
            cheetah = measure_updates(pair, "HalfCheetah", options.rounds, cache, rows, extra)
        for name, row in rows.items():
            row.update = found.get(name) or cheetah.get(name, [])
        for task in options.tasks:
            here = [*ours, *(peers if task == "HalfCheetah" else [])]
            measure_steps(here, task, options.rounds, cache, rows, extra)
    table(rows, options.tasks)
    if peers:
        print("updates on HalfCheetah, ms: " + figures(cheetah | select(extra, "sbx compiled")))
    if "cpo" in rows:
        print("an update of cpo is one on a rollout of 8,000 steps")
    verdicts(rows, cheetah, extra)


def figures(lists: Lists) -> str:
    return ", ".join(f"{name} {1e3 * median(values):.2f}" for name, values in lists.items())


def select(lists: Lists, name: str) -> Lists:
    return {name: lists[name]} if name in lists else {}


if __name__ == "__main__":
    main()
