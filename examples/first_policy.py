# %% [markdown]
# # A first policy
#
# A car drives to a goal past hazards. Each step in a hazard costs 0.2, and an episode may cost 1.
# We train USC, look at what it learned, and measure whether it keeps the limit. It takes about two
# minutes on one core.

# %%
import tempfile
from pathlib import Path

from PIL import Image

import safecritic
from safecritic.evaluate.films import record_episode

STEPS = 40_000  # environment steps
EPISODES = 20  # for the evaluation
run = Path(tempfile.mkdtemp()) / "usc-CarGoal1"

# %% [markdown]
# ## The task
#
# Five values from `step`, as in Gymnasium; the cost is in `info`.

# %%
env = safecritic.make("CarGoal1")
obs, info = env.reset(seed=0)
obs, reward, terminated, truncated, info = env.step(env.action_space.sample())
print(f"{obs.size} numbers, reward {reward:.3f}, cost {info['cost']}")
Image.fromarray(env.unwrapped.draw())  # type: ignore[attr-defined]

# %% [markdown]
# ## Train
#
# The classes have the names and conventions of Stable-Baselines3. With `out` the run is a folder:
# curves, tables and checkpoints.

# %%
agent = safecritic.USC("CarGoal1", cost_limit=1.0, seed=0)
agent.learn(total_timesteps=STEPS, out=run)
agent

# %%
Image.open(run / "curves.png")

# %% [markdown]
# ## Is it safe?
#
# The curves are of training, with exploration noise. What counts is the policy that is deployed: no
# noise, screen on. Few episodes say little: one accident decides their mean.

# %%
evaluation = agent.evaluate(episodes=EPISODES)
evaluation

# %%
without = agent.evaluate(episodes=EPISODES, screen=False)
for name, result in (("with its screen", evaluation), ("without", without)):
    print(f"{name:16} cost {result.means['cost']:.2f}, success {result.means['success']:.0%}")

# %% [markdown]
# ## Look at it

# %%
policy = agent.policy()
frames = record_episode(env, policy, seed=10_000, every=4)
Image.fromarray(frames[-1])

# %% [markdown]
# ## Take it away
#
# One file with the policy, its screen and its contract. It runs with NumPy alone.

# %%
from safecritic.runtime import load

path = agent.export(run / "policy.safecritic", onnx=False)
deployed = load(path, clock=None)
obs, info = env.reset(seed=10_000)
deployed.reset()
cost, done = 0.0, False
while not done:
    obs, reward, terminated, truncated, info = env.step(deployed(obs))
    deployed.spend(info["cost"])
    cost += info["cost"]
    done = terminated or truncated
print(f"{path.stat().st_size / 1e3:.0f} kB, success {info['success']}, cost {cost:.1f}")
