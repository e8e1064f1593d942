"""A control loop: a simulated robot behind the runtime, in real time, with bad and late data.

    safecritic export runs/usc-CarGoal1-seed0 --out policy.safecritic
    python examples/control_loop.py policy.safecritic --seconds 20

The robot is the task itself, on the other side of `read` and `send`. One observation in fifty is
lost, one in a hundred is broken, one in two hundred comes two periods late.
"""

import argparse
import time

import numpy as np

import safecritic
from safecritic.runtime import Monitor, load


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("policy")
    parser.add_argument("--seconds", type=float, default=20.0)
    chosen = parser.parse_args()
    policy = load(chosen.policy, fallback="hold", on_fault=lambda fault, detail: None)
    monitor, period = Monitor(policy, log="operation.jsonl"), policy.contract["period"]
    robot = safecritic.make(policy.contract["task"])
    rng, obs = np.random.default_rng(0), robot.reset(seed=0)[0]
    end, due = time.monotonic() + chosen.seconds, time.monotonic()
    while due < end:
        luck = rng.random()
        if luck < 0.005:
            time.sleep(2.5 * period)  # the observation comes late
        seen = None if luck > 0.98 else obs * np.nan if luck > 0.97 else obs
        action = monitor(seen)
        obs, _, terminated, truncated, info = robot.step(action)
        monitor.spend(info["cost"])
        if terminated or truncated:
            obs = robot.reset()[0]
            monitor.reset()
        due = max(due + period, time.monotonic())
        time.sleep(max(0.0, due - time.monotonic()))
    monitor.close()
    print({name: count for name, count in policy.counts.items() if count})


if __name__ == "__main__":
    main()
