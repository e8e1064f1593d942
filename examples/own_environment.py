# %% [markdown]
# # Your own environment
#
# Any Gymnasium environment with continuous actions and a cost per step. Here: a robot that is to go
# round a puddle.

# %%
from typing import Any

import gymnasium
import matplotlib.pyplot as plt
import numpy as np
from gymnasium.spaces import Box, Dict

import safecritic
from safecritic.tasks import describe

STEPS = 20_000  # environment steps


class Delivery(gymnasium.Env):
    """Drive from left to right past a puddle; each step in the puddle costs 1."""

    observation_space = Dict(
        {
            "near": Box(0.0, 1.0, (1,), np.float32),  # 1: in the puddle
            "place": Box(-2.0, 2.0, (2,), np.float32),
            "puddle": Box(-4.0, 4.0, (2,), np.float32),  # from here to there
        }
    )
    action_space = Box(-0.1, 0.1, (2,), np.float32)  # metres per step

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        super().reset(seed=seed)
        self.place = np.array([-1.5, self.np_random.uniform(-0.5, 0.5)])
        self.puddle = np.array([0.0, self.np_random.uniform(-0.5, 0.5)])
        return self.observe(), {}

    def observe(self) -> dict[str, np.ndarray]:
        way = self.puddle - self.place
        near = np.clip([1.5 - np.linalg.norm(way)], 0.0, 1.0)
        values = {"near": near, "place": self.place, "puddle": way}
        return {name: value.astype(np.float32) for name, value in values.items()}

    def step(self, action: np.ndarray) -> Any:
        before = self.distance()
        self.place = np.clip(self.place + action, -2.0, 2.0)
        there = bool(self.distance() < 0.3)
        reward = before - self.distance() + float(there)
        cost = float(np.linalg.norm(self.puddle - self.place) < 0.5)
        return self.observe(), reward, there, False, {"cost": cost, "success": there}

    def distance(self) -> float:
        return float(np.linalg.norm(self.place - [1.5, 0.0]))  # to the goal


def make() -> gymnasium.Env:
    return gymnasium.wrappers.TimeLimit(Delivery(), 100)  # without it no episode would end


# %% [markdown]
# ## What is understood of it
#
# A thousand random steps. `proximity` says that `near` is 1 where something is near: such inputs
# are shown to the networks once more, as ramps over several distances.

# %%
env = safecritic.adapt(make(), proximity="near")
print(describe(env))

# %% [markdown]
# ## What does it cost not to care?
#
# DDPG looks at reward alone. The limit has to be below what it pays, and above what the task makes
# unavoidable: here 0, for there is a way round.

# %%
unconstrained = safecritic.DDPG(env, seed=0).learn(total_timesteps=STEPS)
print(unconstrained.evaluate(episodes=5))

# %%
agent = safecritic.USC(make(), proximity="near", cost_limit=2.0, seed=0)
agent.learn(total_timesteps=STEPS)
print(agent.evaluate(episodes=5))

# %% [markdown]
# ## Where they drive
#
# The same five scenes, each drawn from its puddle.

# %%
fig, ax = plt.subplots(figsize=(6, 5))
for colour, trained in (("tab:gray", unconstrained), ("tab:blue", agent)):
    for seed in range(5):
        world, policy = make(), trained.policy()
        robot: Any = world.unwrapped
        obs, _ = world.reset(seed=seed)
        policy.reset()
        path, done = [robot.place - robot.puddle], False
        while not done:
            obs, _reward, terminated, truncated, info = world.step(policy(obs))
            policy.spend(info["cost"])
            path.append(robot.place - robot.puddle)
            done = terminated or truncated
        label = f"{trained.method}" if seed == 0 else None
        ax.plot(*np.transpose(path), color=colour, lw=1, label=label)
ax.add_patch(plt.Circle((0, 0), 0.5, color="tab:cyan", alpha=0.3, label="puddle"))
ax.set(aspect="equal", xlabel="x (m)", ylabel="y (m)")
ax.legend()
plt.show()
