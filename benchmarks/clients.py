"""Run the tasks with the libraries that people use, and print what came of it.

    pip install stable-baselines3 torchrl
    python benchmarks/clients.py [SafetyAntVelocity-v1 ...] [--steps 2048]

A library that is not installed is left out. Nothing here is adapted to safecritic but the ids.
"""

from __future__ import annotations

import argparse
import importlib.metadata
import warnings
from collections.abc import Callable
from typing import Any

import gymnasium as gym
import numpy as np

import safecritic
from safecritic import safety_gymnasium

DEFAULT = ("SafetyHopperVelocity-v1", "SafetyAntVelocity-v1")


def gymnasium_checker(name: str, steps: int) -> str:
    """gymnasium.utils.env_checker, with every warning shown but those of an unbounded space."""
    from gymnasium.utils.env_checker import check_env

    env = gym.make(f"safecritic/{name}", render_mode="rgb_array")
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        check_env(env.unwrapped)
    texts = {str(warning.message) for warning in caught}
    left = [text for text in texts if "infinity" not in text and "unbounded" not in text]
    return f"passed, {len(left)} warnings {' '.join(left)}".rstrip()


def old_loop(name: str, steps: int) -> str:
    """A loop as in Safety Gymnasium's README."""
    env = safety_gymnasium.make(name)
    env.reset(seed=0)
    env.action_space.seed(0)
    reward_sum = cost_sum = 0.0
    episodes = 0
    for _ in range(steps):
        act = env.action_space.sample()
        _, reward, cost, terminated, truncated, _ = env.step(act)
        reward_sum, cost_sum = reward_sum + reward, cost_sum + cost
        if terminated or truncated:
            env.reset()
            episodes += 1
    env.close()
    return f"{steps} steps, {episodes} episodes, return {reward_sum:.1f}, cost {cost_sum:.0f}"


def safepo(name: str, steps: int) -> str:
    """Environments as SafePO makes them: rescaled, at once, with normal observations."""
    from safecritic.safety_gymnasium.vector import SafetyAsyncVectorEnv
    from safecritic.safety_gymnasium.wrappers import SafeNormalizeObservation, SafeRescaleAction

    def one() -> gym.Env:
        return SafeRescaleAction(safety_gymnasium.make(name), -1.0, 1.0)

    env = SafeNormalizeObservation(SafetyAsyncVectorEnv([one for _ in range(4)]))
    obs, _ = env.reset(seed=0)
    env.action_space.seed(0)
    final = 0
    for _ in range(steps // 4):
        obs, *_, info = env.step(env.action_space.sample())
        if "final_observation" in info:
            final += len([x for x in info["final_observation"] if x is not None])
    env.close()
    return f"{steps // 4} x 4 steps, {final} final observations, {obs.dtype} {obs.shape}"


def cleanrl(name: str, steps: int) -> str:
    """Environments as ppo_continuous_action.py of CleanRL makes them."""

    def make_env(env_id: str, gamma: float) -> Callable[[], gym.Env]:
        def thunk() -> gym.Env:
            env = gym.make(env_id)
            env = gym.wrappers.FlattenObservation(env)
            env = gym.wrappers.RecordEpisodeStatistics(env)
            env = gym.wrappers.ClipAction(env)
            env = gym.wrappers.NormalizeObservation(env)
            env = gym.wrappers.TransformObservation(
                env, lambda obs: np.clip(obs, -10, 10), env.observation_space
            )
            env = gym.wrappers.NormalizeReward(env, gamma=gamma)
            return gym.wrappers.TransformReward(env, lambda r: float(np.clip(r, -10, 10)))

        return thunk

    envs = gym.vector.SyncVectorEnv([make_env(f"safecritic/{name}", 0.99) for _ in range(2)])
    assert isinstance(envs.single_action_space, gym.spaces.Box)
    envs.reset(seed=1)
    envs.action_space.seed(1)
    returns: list[float] = []
    costs = 0.0
    for _ in range(steps // 2):
        *_, infos = envs.step(envs.action_space.sample())
        costs += float(np.sum(infos.get("cost", 0.0)))
        if "episode" in infos:
            returns += infos["episode"]["r"][infos["_episode"]].tolist()
    envs.close()
    shown = f"mean return {np.mean(returns):.1f}" if returns else "none ended"
    return f"{steps // 2} x 2 steps, {len(returns)} episodes, {shown}, cost {costs:.0f}"


def stable_baselines3(name: str, steps: int) -> str:
    """check_env of Stable-Baselines3, and a short run of its PPO."""
    from stable_baselines3 import PPO
    from stable_baselines3.common.env_checker import check_env
    from stable_baselines3.common.env_util import make_vec_env

    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        check_env(gym.make(f"safecritic/{name}"), warn=True)
    vec = make_vec_env(f"safecritic/{name}", n_envs=2, seed=0)
    model = PPO("MlpPolicy", vec, n_steps=512, seed=0, device="cpu").learn(steps)
    infos = model.ep_info_buffer or ()
    return (
        f"check_env passed, {len(caught)} warnings; PPO {model.num_timesteps} steps, "
        f"{len(infos)} episodes, mean return {np.mean([info['r'] for info in infos]):.1f}"
        if infos
        else f"check_env passed, {len(caught)} warnings; PPO {model.num_timesteps} steps"
    )


def evaluate_policy(name: str, steps: int) -> str:
    """evaluate_policy of Stable-Baselines3 on an agent of this package."""
    from stable_baselines3.common.env_util import make_vec_env
    from stable_baselines3.common.evaluation import evaluate_policy

    agent = safecritic.USC(name, seed=0, learning_starts=steps // 2)
    agent.learn(steps)
    vec = make_vec_env(f"safecritic/{name}", n_envs=2, seed=0)
    rewards, lengths = evaluate_policy(agent, vec, 4, return_episode_rewards=True)  # type: ignore[arg-type]
    policy, env = agent.policy(), safecritic.make(name)
    obs, _ = env.reset(seed=0)  # one of these episodes by the README's loop
    total, done = 0.0, False
    while not done:
        obs, reward, terminated, truncated, _ = env.step(policy(obs))
        total, done = total + float(reward), terminated or truncated
    apart = min(abs(total - x) for x in rewards)  # its monitor sums in float32
    mean = f"mean return {np.mean(rewards):.1f}"
    return f"{len(lengths)} episodes, {mean}, {apart:.0e} from the README's loop"


def torchrl(name: str, steps: int) -> str:
    """TorchRL's GymEnv and GymWrapper, its checks and a rollout with the cost.

    TorchRL's own reader of info wants arrays, not floats, so this has a line of its own.
    """
    import torch
    from torchrl.data import Unbounded
    from torchrl.envs import GymEnv, GymWrapper, check_env_specs, set_gym_backend

    def read_cost(info: dict[str, Any], step: Any) -> Any:
        return step.set("cost", torch.tensor(info.get("cost", 0.0)))

    with set_gym_backend("gymnasium"):
        made = GymEnv(f"safecritic/{name}")
        check_env_specs(made, seed=0)
        env = GymWrapper(gym.make(f"safecritic/{name}"))
        env.set_info_dict_reader(read_cost, {"cost": Unbounded(())})
        env.set_seed(0)
        rollout = env.rollout(min(steps, 1000), break_when_any_done=False)
    cost = float(rollout["next", "cost"].sum())
    return f"check_env_specs passed; rollout of {len(rollout)} steps, cost {cost:.0f}"


CLIENTS: dict[str, list[Callable[[str, int], str]]] = {
    "gymnasium": [gymnasium_checker],
    "safecritic": [old_loop, safepo],
    "CleanRL": [cleanrl],
    "stable-baselines3": [stable_baselines3, evaluate_policy],
    "torchrl": [torchrl],
}


def version_of(package: str) -> str | None:
    """Return the version of a package, None if it is not installed."""
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return None


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("tasks", nargs="*", default=DEFAULT)
    parser.add_argument("--steps", type=int, default=2048)
    options = parser.parse_args()
    for package, clients in CLIENTS.items():
        version = version_of(package)
        if version is None and package not in ("CleanRL", "safecritic"):
            print(f"{package}: not installed")
            continue
        for client in clients:
            print(client.__name__ + (f" ({package} {version})" if version else ""))
            for name in options.tasks:
                print(f"  {name:28} {client(name, options.steps)}", flush=True)


if __name__ == "__main__":
    main()
