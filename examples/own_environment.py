# %% [markdown]
# # Your own environment
#
# Any Gymnasium environment with continuous actions and a cost per step. Here: a cart on a round
# track that must be slow in the curve.

# %%
from typing import Any

import gymnasium
import matplotlib.pyplot as plt
import numpy as np
from gymnasium.spaces import Box, Dict

import safecritic
from safecritic.tasks import describe

STEPS = 20_000  # environment steps
CURVE = (5.0, 7.0)  # metres along a track of 10


class Track(gymnasium.Env):
    """Drive round a track; each fast step in the curve costs 1."""

    observation_space = Dict(
        {
            "near": Box(0.0, 1.0, (1,), np.float32),  # 1: in the curve
            "place": Box(-1.0, 1.0, (2,), np.float32),  # as a point on a circle
        }
    )
    action_space = Box(0.0, 0.3, (1,), np.float32)  # metres per step

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        super().reset(seed=seed)
        self.place = self.np_random.uniform(0.0, 10.0)
        return self.observe(), {}

    def observe(self) -> dict[str, np.ndarray]:
        near = 1.0 - max(0.0, CURVE[0] - self.place, self.place - CURVE[1])
        angle = 2 * np.pi * self.place / 10
        place = np.array([np.sin(angle), np.cos(angle)], np.float32)
        return {"near": np.array([max(0.0, near)], np.float32), "place": place}

    def step(self, action: np.ndarray) -> Any:
        speed = float(action[0])
        cost = float(CURVE[0] < self.place < CURVE[1] and speed > 0.1)
        self.place = (self.place + speed) % 10
        return self.observe(), speed, False, False, {"cost": cost}


def make() -> gymnasium.Env:
    return gymnasium.wrappers.TimeLimit(Track(), 100)  # without it no episode would end


# %% [markdown]
# ## What is understood of it
#
# A thousand random steps. `proximity` says that `near` is 1 where something is near: such inputs
# are shown to the networks once more, raised to a power.

# %%
env = safecritic.adapt(make(), proximity="near")
print(describe(env))

# %% [markdown]
# ## What does it cost not to care?
#
# DDPG looks at reward alone. The limit has to be below what it pays, and above what the task makes
# unavoidable: here 0, for a cart that crawls through the curve.

# %%
unconstrained = safecritic.DDPG(env, seed=0).learn(total_timesteps=STEPS // 2)
print(unconstrained.evaluate(episodes=5))

# %%
agent = safecritic.USC(make(), proximity="near", cost_limit=3.0, seed=0)
agent.learn(total_timesteps=STEPS)
print(agent.evaluate(episodes=5))

# %% [markdown]
# ## Speed along the track

# %%
fig, ax = plt.subplots(figsize=(7, 3))
for kind, trained in (("DDPG", unconstrained), ("USC", agent)):
    track, policy = make(), trained.policy()
    obs, _ = track.reset(seed=1)
    policy.reset()
    places, speeds, done = [], [], False
    while not done:
        places.append(track.unwrapped.place)  # type: ignore[attr-defined]
        action = policy(obs)
        obs, _, terminated, truncated, info = track.step(action)
        policy.spend(info["cost"])
        speeds.append(float(action[0]))
        done = terminated or truncated
    ax.plot(places, speeds, ".", label=kind)
ax.axvspan(*CURVE, alpha=0.15, color="tab:red", label="curve")
ax.axhline(0.1, color="tab:red", lw=0.8)
ax.set(xlabel="place on the track (m)", ylabel="speed (m per step)")
ax.legend()
plt.show()
