# %% [markdown]
# # Looking inside a safety critic
#
# USC's critic predicts the discounted cost Q_C of an action, and how unlike anything seen a sample
# is: its influence u. We look at both over a scene and over the actions of one moment, and ask
# whether they are right.

# %%
from typing import Any

import matplotlib.pyplot as plt
import numpy as np

import safecritic
from safecritic.evaluate import cost_map
from safecritic.evaluate.critic import Critic
from safecritic.tasks.navigation.poses import observations

STEPS = 40_000  # environment steps
EPISODES = 20  # for the comparison with what came true
agent = safecritic.USC("CarGoal1", cost_limit=1.0, seed=0).learn(total_timesteps=STEPS)

# %% [markdown]
# ## Over a scene
#
# The car is put at rest at each place, heading in four directions; the map is the mean Q_C of what
# the policy would do there. Beside it the cost of standing there, which the critic has never been
# shown.

# %%
env = safecritic.make("CarGoal1")
env.reset(seed=20_000)
task: Any = env.unwrapped
critic = Critic.of(agent)
assert critic is not None  # USC has one
size, headings = 48, cost_map.HEADINGS
maps = {
    "Q_C of the policy's action": cost_map.predicted_map(critic, task, size, headings),
    "cost of standing there": cost_map.instant_map(task, size, headings),
}
extent = task.arena.extent
fig, axes = plt.subplots(1, 2, figsize=(9, 4))
for ax, (title, drawn) in zip(axes, maps.items(), strict=True):
    box = (-extent, extent, -extent, extent)
    fig.colorbar(ax.imshow(drawn, origin="lower", extent=box, cmap="viridis"), ax=ax)
    ax.set(title=title, xlabel="x (m)", ylabel="y (m)")
plt.show()

# %% [markdown]
# ## Over the actions of one moment
#
# The car heads for the nearest hazard. Actions are two wheels, from -1 (backward) to 1.

# %%
hazard = np.asarray(task.layout["hazards"])[0]
pose = np.array([[hazard[0] - 0.5, hazard[1], 0.0]])  # half a metre to its left, facing it
obs = observations(task, pose).astype(np.float32)
wheel = np.linspace(-1, 1, 41)
actions = np.stack(np.meshgrid(wheel, wheel), -1).reshape(-1, 2).astype(np.float32)
values = agent.values(np.repeat(obs, len(actions), 0), actions)
print(sorted(values))
fig, axes = plt.subplots(1, 3, figsize=(12, 3.6))
for ax, name in zip(axes, ("q_reward", "q_cost", "influence"), strict=True):
    square = values[name].reshape(41, 41)
    fig.colorbar(ax.imshow(square, origin="lower", extent=(-1, 1, -1, 1), cmap="viridis"), ax=ax)
    ax.plot(*critic.actions(obs)[0], "x", color="white", ms=9, mew=2)
    ax.set(title=name, xlabel="left wheel", ylabel="right wheel")
plt.show()

# %% [markdown]
# ## Was it right?
#
# Over fresh episodes, Q_C at the time of acting against the discounted cost that followed. AUC: the
# probability that Q_C was higher at a decision that was followed by a cost; 0.5 is chance.

# %%
evaluation = agent.evaluate(episodes=EPISODES)
for name in ("auc", "q_mean", "realised_mean", "ratio"):
    print(f"{name:14} {evaluation.critic[name]:.3f}")

# %%
steps = evaluation.steps
fig, ax = plt.subplots(figsize=(5, 4))
ax.scatter(steps.realised, steps.q_cost, s=4, alpha=0.4)
most = max(float(steps.realised.max()), float(steps.q_cost.max()), 0.1)
ax.plot([0, most], [0, most], color="grey", lw=0.8)
ax.set(xlabel="discounted cost that followed", ylabel="Q_C")
plt.show()
