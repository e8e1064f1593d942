"""What it takes for Q_C to predict cost: one setting changed at a time, on the same data.

    safecritic train ddpg CarGoal1 --steps 20000 --seed 100 --sharpening 1
    python benchmarks/safety_critic.py runs/ddpg-CarGoal1-seed100

Fits the safety critic on the replay of a finished DDPG run, with the run's final policy, and looks
at held-out episodes of that policy: AUC of Q_C for "any cost within the next 1/(1 - gamma) steps",
mean Q_C over the mean realised discounted cost, and their correlation. No policy learns here, so
nothing but the critic differs between the rows. The policy must not need sharpened lidars, which
some of the rows leave out.
"""

from __future__ import annotations

import argparse
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from safecritic import api, methods, networks, replay
from safecritic.agents import safety_critic, scaling
from safecritic.agents.cost_critic import critic_inputs
from safecritic.evaluation.critic_quality import auc, cost_within
from safecritic.run.episode import discounted_sums

PLAIN: dict[str, Any] = {
    "sharpening": 1.0,
    "safety_n_step": 1,
    "safety_critics": 1,
    "costly_share": 0.0,
    "safety_output": "linear",
}
CLIPPED = PLAIN | {"safety_output": "clipped"}
SHARP = CLIPPED | {"sharpening": 8.0}
FIVE = SHARP | {"safety_n_step": 5}
ROWS: list[tuple[str, str, dict[str, Any]]] = [
    ("plain, inputs as observed", "sc", PLAIN | {"observation_scaling": "none"}),
    ("plain, inputs scaled", "sc", PLAIN),
    ("+ clipped at 0", "sc", CLIPPED),
    ("+ sharpened lidars", "sc", SHARP),
    ("+ 5-step targets", "sc", FIVE),
    ("+ a quarter of the batch costly: the default of SC", "sc", {}),
    ("SC with a softplus instead of the clip", "sc", {"safety_output": "softplus"}),
    ("SC with two critics", "sc", {"safety_critics": 2}),
    ("SC without sharpened lidars", "sc", {"sharpening": 1.0}),
    ("the default of CSC", "csc", {}),
    ("the default of USC (NR)", "usc-nr", {}),
    ("the default of USC", "usc", {}),
    ("USC with a refinement step ten times as large", "usc", {"refine_lr": 1e-2}),
]


def held_out(agent: api.Agent, episodes: int, seed: int) -> list[tuple[np.ndarray, ...]]:
    """Observations, actions and costs of deployment episodes."""
    columns = []
    for number in range(episodes):
        obs, _ = agent.env.reset(seed=seed + number)
        rows = []
        over = False
        while not over:
            action, _ = agent.predict(obs)
            after, _, terminated, truncated, info = agent.env.step(action)
            rows.append((np.array(obs, np.float32), action, info["cost"]))
            obs, over = after, terminated or truncated
        columns.append(tuple(np.array(column) for column in zip(*rows, strict=True)))
    return columns


def updated(state: Any, batch: replay.Batch, sizes: Any, config: Any) -> Any:
    """Return an agent after one update of its safety critic alone."""
    batch = scaling.in_units(batch, sizes)
    critic_obs = critic_inputs(state, batch.obs, config)
    learned, _ = safety_critic.update_safety(state, batch, critic_obs, config)
    safety = learned.safety
    if config.refinement is not None:
        safety, _ = safety_critic.refine(
            state, safety, batch, critic_obs, learned.rank, sizes.cost, config
        )
    return state._replace(
        safety=safety,
        safety_opt=learned.safety_opt,
        target_safety=networks.update_target(state.target_safety, safety, config.safety_tau),
        curvature=learned.curvature,
        norms=learned.norms,
        key=learned.key,
    )


def fit(agent: api.Agent, method: str, settings: dict[str, Any], updates: int) -> tuple[Any, Any]:
    """Fit a safety critic on the agent's replay buffer, its policy held fixed."""
    device = agent.training.device
    ours = device.agent
    config = methods.make_config(method, gamma=agent.config.gamma, **settings)
    spec = agent.training.spec
    state = safety_critic.init(jax.random.PRNGKey(0), spec, config)
    # The policy looks at the observation alone, on its own scale.
    seen = device.replay.obs[: int(device.replay.size)]
    scaler = scaling.scaler_update_many(state.scaler, seen, config)
    scaler = scaler._replace(
        mean=scaler.mean.at[: spec.obs_dim].set(ours.scaler.mean),
        var=scaler.var.at[: spec.obs_dim].set(ours.scaler.var),
    )
    actor = jax.tree.map(jnp.copy, ours.actor)
    more = scaling.input_size(spec, config) - spec.obs_dim
    first = {"w": jnp.pad(actor[0]["w"], ((0, more), (0, 0))), "b": actor[0]["b"]}
    if config.observation_scaling == "none":
        # the policy still needs its scale: fold it into its first layer
        spread = jnp.sqrt(jnp.maximum(scaler.var, scaling.LEAST_VARIANCE))
        first = {
            "w": first["w"] / spread[:, None],
            "b": first["b"] - (scaler.mean / spread) @ first["w"],
        }
    actor = (first, *actor[1:])
    state = state._replace(actor=actor, target_actor=actor, scaler=scaler, units=ours.units)
    sizes = scaling.unit_sizes(ours.units, config)
    task_bound = state.cost_bound
    state = state._replace(cost_bound=task_bound / sizes.cost)

    def step(carry: Any, key: jax.Array) -> tuple[Any, None]:
        return updated(carry, replay.sample(device.replay, key, config), sizes, config), None

    keys = jax.random.split(jax.random.PRNGKey(1), updates)
    state, _ = jax.jit(lambda s: jax.lax.scan(step, s, keys))(state)
    return state._replace(cost_bound=task_bound), config


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("run", help="folder of a finished run")
    parser.add_argument("--updates", type=int, default=12_000)
    parser.add_argument("--episodes", type=int, default=80)
    options = parser.parse_args()
    agent = api.Agent.load(options.run)
    if len(agent.training.device.agent.scaler.mean) != agent.training.spec.obs_dim:
        parser.error(
            f"the policy of {options.run} sees sharpened lidars, which not all critics here do: "
            "train it with --sharpening 1"
        )
    episodes = held_out(agent, options.episodes, seed=10_000)
    gamma = agent.config.gamma
    obs, action = (np.concatenate([e[i] for e in episodes]) for i in (0, 1))
    truth = np.concatenate([discounted_sums(e[2], gamma) for e in episodes])
    soon = np.concatenate([cost_within(e[2], round(1 / (1 - gamma))) for e in episodes])
    print(
        f"{len(episodes)} held-out episodes, {len(obs)} steps, cost ahead in {soon.mean():.0%}, "
        f"mean realised discounted cost {truth.mean():.3f}"
    )
    print(f"{'safety critic':52} {'AUC':>5} {'Q_C / realised':>15} {'correlation':>12}")
    for name, method, settings in ROWS:
        state, config = fit(agent, method, settings, options.updates)
        q = np.asarray(
            safety_critic.values(state, jnp.asarray(obs), jnp.asarray(action, jnp.float32), config)[
                "q_cost"
            ]
        )
        print(
            f"{name:52} {auc(q, soon):5.2f} {q.mean() / truth.mean():15.2f} "
            f"{np.corrcoef(q, truth)[0, 1]:12.2f}",
            flush=True,
        )


if __name__ == "__main__":
    main()
