# Made by `python -m safecritic.signatures` from the table of methods. Do not edit.
from collections.abc import Iterable
from typing import Any, Literal

import gymnasium

from safecritic.api import Agent

__all__: list[str] = [
    "CPO",
    "CSC",
    "DDPG",
    "RCPO",
    "SC",
    "USC",
    "USCNR",
    "PIDLag",
    "agent_class",
]

def agent_class(name: str) -> type[Agent]: ...
def __getattr__(name: str) -> Any: ...  # classes of methods that plugins register

class DDPG(Agent):
    """Deep deterministic policy gradient; looks at reward alone.

    Args:
        env: id of a task or of a registered environment, or an environment with a cost
        seed: seed of parameters, exploration, replay and environment (default 0)
        paper_defaults: start from the paper's values instead of ours (default False)
        cost_key: key of the cost in `info`; None: `cost` (default None)
        success_key: key of success in `info`; None: `success`, `is_success` or `goal_met`
            (default None)
        closeness: observations in [0, 1], 1 for near, such as lidars: places or names, as in
            "10-25,30"; None: what the environment declares (default None)
        no_cost: True: the environment has no cost (default False)
        gamma: discount of reward and cost (default 0.95)
        hidden: widths of the hidden layers of every network (default (256, 256))
        critic_lr: step size of the reward critic (default 0.001)
        batch_size: samples per update (default 64)
        cost_limit: budget: undiscounted cost of an episode; None: the task's, elsewhere 1.0
            (default None)
        units: of reward and cost inside; paper: task (default "measured")
        action_repeat: environment steps for which an action is held; paper: 1; None: the task's,
            elsewhere 1 (default None)
        sharpening: power of inputs that are a closeness (lidars); paper: 1, none (default 8.0)
        sharpening_for: networks that see those (default "all")
        observation_scaling: by mean and spread; paper: none (default "running")
        tau: rate at which target networks follow (default 0.005)
        buffer_size: transitions in the replay buffer (default 200000)
        learning_starts: random steps before the first update; the paper gives no value
            (default 1000)
        actor_lr: step size of the actor; paper: 2e-3 (default 0.0003)
        noise_sigma: spread of the Ornstein-Uhlenbeck exploration noise (default 0.2)
        noise_theta: pull of that noise to 0; the paper gives no value (default 0.15)
        noise_half_life: updates in which that noise halves; paper: 0, it stays (default 20000.0)
        n_step: steps of reward in a target (default 1)
        reward_critics: networks of Q_R; of two, the smaller value is the target (default 1)
        layer_norm: of which critics; paper: none (default "reward")
        actor_every: updates of the critics for one of the actor (default 1)
        actor_pull: weight of the actor's squared output before its tanh (default 0.0)
        deployed_actor: its slow copy; paper: last (default "average")
        target_noise: spread of the noise that smooths the targets of Q_R (default 0.0)
        costly_share: share of a batch drawn among transitions with cost > 0 (default 0.0)
    """

    def __init__(
        self,
        env: str | gymnasium.Env,
        *,
        seed: int = 0,
        paper_defaults: bool = False,
        cost_key: str | None = None,
        success_key: str | None = None,
        closeness: str | slice | Iterable[int | str] | None = None,
        no_cost: bool = False,
        gamma: float = 0.95,
        hidden: tuple[int, ...] = (256, 256),
        critic_lr: float = 0.001,
        batch_size: int = 64,
        cost_limit: float | None = None,
        units: Literal["measured", "task"] = "measured",
        action_repeat: int | None = None,
        sharpening: float = 8.0,
        sharpening_for: Literal["all", "critic"] = "all",
        observation_scaling: Literal["running", "none"] = "running",
        tau: float = 0.005,
        buffer_size: int = 200000,
        learning_starts: int = 1000,
        actor_lr: float = 0.0003,
        noise_sigma: float = 0.2,
        noise_theta: float = 0.15,
        noise_half_life: float = 20000.0,
        n_step: int = 1,
        reward_critics: Literal[1, 2] = 1,
        layer_norm: Literal["reward", "all", "none"] = "reward",
        actor_every: int = 1,
        actor_pull: float = 0.0,
        deployed_actor: Literal["average", "last"] = "average",
        target_noise: float = 0.0,
        costly_share: float = 0.0,
    ) -> None: ...

class PIDLag(Agent):
    """DDPG with a cost critic and a multiplier driven by a PID controller.

    Args:
        env: id of a task or of a registered environment, or an environment with a cost
        seed: seed of parameters, exploration, replay and environment (default 0)
        paper_defaults: start from the paper's values instead of ours (default False)
        cost_key: key of the cost in `info`; None: `cost` (default None)
        success_key: key of success in `info`; None: `success`, `is_success` or `goal_met`
            (default None)
        closeness: observations in [0, 1], 1 for near, such as lidars: places or names, as in
            "10-25,30"; None: what the environment declares (default None)
        gamma: discount of reward and cost (default 0.95)
        hidden: widths of the hidden layers of every network (default (256, 256))
        critic_lr: step size of the reward critic (default 0.001)
        batch_size: samples per update (default 64)
        cost_limit: budget: undiscounted cost of an episode; None: the task's, elsewhere 1.0
            (default None)
        units: of reward and cost inside; paper: task (default "measured")
        action_repeat: environment steps for which an action is held; paper: 1; None: the task's,
            elsewhere 1 (default None)
        sharpening: power of inputs that are a closeness (lidars); paper: 1, none (default 8.0)
        sharpening_for: networks that see those (default "all")
        observation_scaling: by mean and spread; paper: none (default "running")
        tau: rate at which target networks follow (default 0.005)
        buffer_size: transitions in the replay buffer (default 200000)
        learning_starts: random steps before the first update; the paper gives no value
            (default 1000)
        actor_lr: step size of the actor; paper: 2e-3 (default 0.0003)
        noise_sigma: spread of the Ornstein-Uhlenbeck exploration noise (default 0.2)
        noise_theta: pull of that noise to 0; the paper gives no value (default 0.15)
        noise_half_life: updates in which that noise halves; paper: 0, it stays (default 20000.0)
        n_step: steps of reward in a target (default 1)
        reward_critics: networks of Q_R; of two, the smaller value is the target (default 1)
        layer_norm: of which critics; paper: none (default "reward")
        actor_every: updates of the critics for one of the actor (default 1)
        actor_pull: weight of the actor's squared output before its tanh (default 0.0)
        deployed_actor: its slow copy; paper: last (default "average")
        target_noise: spread of the noise that smooths the targets of Q_R (default 0.0)
        costly_share: share of a batch drawn among transitions with cost > 0; paper: 0
            (default 0.25)
        safety_critics: networks of Q_C; of two, the larger value is the target (default 1)
        safety_value: how two networks become one Q_C (default "max")
        safety_output: what keeps Q_C from being negative; paper: linear (default "clipped")
        output_sharpness: sharpness of softplus and bounded; not in the paper (default 5.0)
        safety_lr: step size of Q_C (default 0.001)
        safety_tau: rate at which the target of Q_C follows (default 0.005)
        safety_n_step: steps of cost in a target; paper: 1 (default 5)
        sharpening_gain: factor of all other inputs of Q_C, if there is sharpening (default 0.3)
        multiplier_rule: printed: in units of cost (default "relative")
        kp: gain of the smoothed cost above the limit (default 0.05)
        ki: gain of its integral, per episode (printed) or per decision (default 2e-05)
        kd: gain of the rise of the smoothed cost (default 0.01)
        p_smoothing: weight of the old average; its authors' code (default 0.95)
        d_smoothing: the same for the derivative; its authors' code (default 0.95)
        derivative_delay: episodes over which the rise is taken; its authors' code (default 10)
        integral_max: largest integral (default 100.0)
        multiplier_init: integral at the start (default 0.02)
        rescale_actor_loss: divide the actor's loss by 1 + multiplier (default True)
        quiet_every: near the limit, episodes for one without noise to judge by; paper: 0
            (default 3)
    """

    def __init__(
        self,
        env: str | gymnasium.Env,
        *,
        seed: int = 0,
        paper_defaults: bool = False,
        cost_key: str | None = None,
        success_key: str | None = None,
        closeness: str | slice | Iterable[int | str] | None = None,
        gamma: float = 0.95,
        hidden: tuple[int, ...] = (256, 256),
        critic_lr: float = 0.001,
        batch_size: int = 64,
        cost_limit: float | None = None,
        units: Literal["measured", "task"] = "measured",
        action_repeat: int | None = None,
        sharpening: float = 8.0,
        sharpening_for: Literal["all", "critic"] = "all",
        observation_scaling: Literal["running", "none"] = "running",
        tau: float = 0.005,
        buffer_size: int = 200000,
        learning_starts: int = 1000,
        actor_lr: float = 0.0003,
        noise_sigma: float = 0.2,
        noise_theta: float = 0.15,
        noise_half_life: float = 20000.0,
        n_step: int = 1,
        reward_critics: Literal[1, 2] = 1,
        layer_norm: Literal["reward", "all", "none"] = "reward",
        actor_every: int = 1,
        actor_pull: float = 0.0,
        deployed_actor: Literal["average", "last"] = "average",
        target_noise: float = 0.0,
        costly_share: float = 0.25,
        safety_critics: Literal[1, 2] = 1,
        safety_value: Literal["max", "mean"] = "max",
        safety_output: Literal["clipped", "softplus", "bounded", "linear"] = "clipped",
        output_sharpness: float = 5.0,
        safety_lr: float = 0.001,
        safety_tau: float = 0.005,
        safety_n_step: int = 5,
        sharpening_gain: float = 0.3,
        multiplier_rule: Literal["relative", "printed"] = "relative",
        kp: float = 0.05,
        ki: float = 2e-05,
        kd: float = 0.01,
        p_smoothing: float = 0.95,
        d_smoothing: float = 0.95,
        derivative_delay: int = 10,
        integral_max: float = 100.0,
        multiplier_init: float = 0.02,
        rescale_actor_loss: bool = True,
        quiet_every: int = 3,
    ) -> None: ...

class CPO(Agent):
    """Constrained policy optimisation: on-policy, each step within a trust region and the limit.

    Args:
        env: id of a task or of a registered environment, or an environment with a cost
        seed: seed of parameters, exploration, replay and environment (default 0)
        paper_defaults: start from the paper's values instead of ours (default False)
        cost_key: key of the cost in `info`; None: `cost` (default None)
        success_key: key of success in `info`; None: `success`, `is_success` or `goal_met`
            (default None)
        closeness: observations in [0, 1], 1 for near, such as lidars: places or names, as in
            "10-25,30"; None: what the environment declares (default None)
        gamma: discount of reward and cost (default 0.99)
        hidden: widths of the hidden layers of every network (default (64, 64))
        critic_lr: step size of the reward critic (default 0.001)
        batch_size: samples per step of the value regression (default 128)
        cost_limit: budget: undiscounted cost of an episode; None: the task's, elsewhere 1.0
            (default None)
        units: of reward and cost inside; paper: task (default "measured")
        action_repeat: environment steps for which an action is held; paper: 1; None: the task's,
            elsewhere 1 (default None)
        sharpening: power of inputs that are a closeness (lidars); paper: 1, none (default 8.0)
        sharpening_for: networks that see those (default "all")
        observation_scaling: by mean and spread; paper: none (default "running")
        rollout_steps: environment steps between two updates, over all environments (default 8000)
        rollout_envs: environments stepped together (default 8)
        rollout_workers: processes that step them; 0: one per core; no effect on results (default 0)
        gae_lambda: GAE's lambda for the reward (default 0.97)
        cost_gae_lambda: GAE's lambda for the cost (default 0.97)
        max_kl: size of the trust region (default 0.01)
        cg_iterations: iterations of conjugate gradients (default 10)
        cg_damping: added to the Fisher matrix (default 0.1)
        backtrack: factor by which the line search shrinks a step (default 0.8)
        line_search_steps: tries before no step is taken (default 10)
        value_epochs: epochs of the value regression, per rollout (default 8)
        std_init: spread of the policy at the start (default 0.6)
    """

    def __init__(
        self,
        env: str | gymnasium.Env,
        *,
        seed: int = 0,
        paper_defaults: bool = False,
        cost_key: str | None = None,
        success_key: str | None = None,
        closeness: str | slice | Iterable[int | str] | None = None,
        gamma: float = 0.99,
        hidden: tuple[int, ...] = (64, 64),
        critic_lr: float = 0.001,
        batch_size: int = 128,
        cost_limit: float | None = None,
        units: Literal["measured", "task"] = "measured",
        action_repeat: int | None = None,
        sharpening: float = 8.0,
        sharpening_for: Literal["all", "critic"] = "all",
        observation_scaling: Literal["running", "none"] = "running",
        rollout_steps: int = 8000,
        rollout_envs: int = 8,
        rollout_workers: int = 0,
        gae_lambda: float = 0.97,
        cost_gae_lambda: float = 0.97,
        max_kl: float = 0.01,
        cg_iterations: int = 10,
        cg_damping: float = 0.1,
        backtrack: float = 0.8,
        line_search_steps: int = 10,
        value_epochs: int = 8,
        std_init: float = 0.6,
    ) -> None: ...

class RCPO(Agent):
    """Reward constrained policy optimisation: DDPG on reward minus multiplier times cost.

    Args:
        env: id of a task or of a registered environment, or an environment with a cost
        seed: seed of parameters, exploration, replay and environment (default 0)
        paper_defaults: start from the paper's values instead of ours (default False)
        cost_key: key of the cost in `info`; None: `cost` (default None)
        success_key: key of success in `info`; None: `success`, `is_success` or `goal_met`
            (default None)
        closeness: observations in [0, 1], 1 for near, such as lidars: places or names, as in
            "10-25,30"; None: what the environment declares (default None)
        gamma: discount of reward and cost (default 0.95)
        hidden: widths of the hidden layers of every network (default (256, 256))
        critic_lr: step size of the reward critic (default 0.001)
        batch_size: samples per update (default 64)
        cost_limit: budget: undiscounted cost of an episode; None: the task's, elsewhere 1.0
            (default None)
        units: of reward and cost inside; paper: task (default "measured")
        action_repeat: environment steps for which an action is held; paper: 1; None: the task's,
            elsewhere 1 (default None)
        sharpening: power of inputs that are a closeness (lidars); paper: 1, none (default 8.0)
        sharpening_for: networks that see those (default "all")
        observation_scaling: by mean and spread; paper: none (default "running")
        tau: rate at which target networks follow (default 0.005)
        buffer_size: transitions in the replay buffer (default 200000)
        learning_starts: random steps before the first update; the paper gives no value
            (default 1000)
        actor_lr: step size of the actor; paper: 2e-3 (default 0.0003)
        noise_sigma: spread of the Ornstein-Uhlenbeck exploration noise (default 0.2)
        noise_theta: pull of that noise to 0; the paper gives no value (default 0.15)
        noise_half_life: updates in which that noise halves; paper: 0, it stays (default 20000.0)
        n_step: steps of reward in a target (default 1)
        reward_critics: networks of Q_R; of two, the smaller value is the target (default 1)
        layer_norm: of which critics; paper: none (default "reward")
        actor_every: updates of the critics for one of the actor (default 1)
        actor_pull: weight of the actor's squared output before its tanh (default 0.0)
        deployed_actor: its slow copy; paper: last (default "average")
        target_noise: spread of the noise that smooths the targets of Q_R (default 0.0)
        costly_share: share of a batch drawn among transitions with cost > 0 (default 0.0)
        quiet_every: near the limit, episodes for one without noise to judge by; paper: 0
            (default 3)
        multiplier_rule: printed: Eq. 7 (default "relative")
        multiplier_init: first multiplier; paper: 1 (default 0.02)
        multiplier_lr: step per decision and relative excess, or as printed (default 0.0001)
        multiplier_gain: how far it moves at once with the excess, before the integral (default 1.0)
        multiplier_aim: share of the limit that episodes are to cost; 1 as printed (default 0.8)
        multiplier_memory: decisions over which the episodes' cost is averaged (default 2000.0)
        multiplier_max: largest multiplier; the paper gives no value (default 3.0)
    """

    def __init__(
        self,
        env: str | gymnasium.Env,
        *,
        seed: int = 0,
        paper_defaults: bool = False,
        cost_key: str | None = None,
        success_key: str | None = None,
        closeness: str | slice | Iterable[int | str] | None = None,
        gamma: float = 0.95,
        hidden: tuple[int, ...] = (256, 256),
        critic_lr: float = 0.001,
        batch_size: int = 64,
        cost_limit: float | None = None,
        units: Literal["measured", "task"] = "measured",
        action_repeat: int | None = None,
        sharpening: float = 8.0,
        sharpening_for: Literal["all", "critic"] = "all",
        observation_scaling: Literal["running", "none"] = "running",
        tau: float = 0.005,
        buffer_size: int = 200000,
        learning_starts: int = 1000,
        actor_lr: float = 0.0003,
        noise_sigma: float = 0.2,
        noise_theta: float = 0.15,
        noise_half_life: float = 20000.0,
        n_step: int = 1,
        reward_critics: Literal[1, 2] = 1,
        layer_norm: Literal["reward", "all", "none"] = "reward",
        actor_every: int = 1,
        actor_pull: float = 0.0,
        deployed_actor: Literal["average", "last"] = "average",
        target_noise: float = 0.0,
        costly_share: float = 0.0,
        quiet_every: int = 3,
        multiplier_rule: Literal["relative", "printed"] = "relative",
        multiplier_init: float = 0.02,
        multiplier_lr: float = 0.0001,
        multiplier_gain: float = 1.0,
        multiplier_aim: float = 0.8,
        multiplier_memory: float = 2000.0,
        multiplier_max: float = 3.0,
    ) -> None: ...

class SC(Agent):
    """Safety critic: Bellman regression of the cost, multiplier and screen.

    Args:
        env: id of a task or of a registered environment, or an environment with a cost
        seed: seed of parameters, exploration, replay and environment (default 0)
        paper_defaults: start from the paper's values instead of ours (default False)
        cost_key: key of the cost in `info`; None: `cost` (default None)
        success_key: key of success in `info`; None: `success`, `is_success` or `goal_met`
            (default None)
        closeness: observations in [0, 1], 1 for near, such as lidars: places or names, as in
            "10-25,30"; None: what the environment declares (default None)
        gamma: discount of reward and cost (default 0.95)
        hidden: widths of the hidden layers of every network (default (256, 256))
        critic_lr: step size of the reward critic (default 0.001)
        batch_size: samples per update (default 64)
        cost_limit: budget: undiscounted cost of an episode; None: the task's, elsewhere 1.0
            (default None)
        units: of reward and cost inside; paper: task (default "measured")
        action_repeat: environment steps for which an action is held; paper: 1; None: the task's,
            elsewhere 1 (default None)
        sharpening: power of inputs that are a closeness (lidars); paper: 1, none (default 8.0)
        sharpening_for: networks that see those (default "all")
        observation_scaling: by mean and spread; paper: none (default "running")
        tau: rate at which target networks follow (default 0.005)
        buffer_size: transitions in the replay buffer (default 200000)
        learning_starts: random steps before the first update; the paper gives no value
            (default 1000)
        actor_lr: step size of the actor; paper: 2e-3 (default 0.0003)
        noise_sigma: spread of the Ornstein-Uhlenbeck exploration noise (default 0.2)
        noise_theta: pull of that noise to 0; the paper gives no value (default 0.15)
        noise_half_life: updates in which that noise halves; paper: 0, it stays (default 20000.0)
        n_step: steps of reward in a target (default 1)
        reward_critics: networks of Q_R; of two, the smaller value is the target (default 1)
        layer_norm: of which critics; paper: none (default "reward")
        actor_every: updates of the critics for one of the actor (default 1)
        actor_pull: weight of the actor's squared output before its tanh (default 0.0)
        deployed_actor: its slow copy; paper: last (default "average")
        target_noise: spread of the noise that smooths the targets of Q_R (default 0.0)
        costly_share: share of a batch drawn among transitions with cost > 0; paper: 0
            (default 0.25)
        safety_critics: networks of Q_C; of two, the larger value is the target (default 1)
        safety_value: how two networks become one Q_C (default "max")
        safety_output: what keeps Q_C from being negative; paper: linear (default "clipped")
        output_sharpness: sharpness of softplus and bounded; not in the paper (default 5.0)
        safety_lr: step size of Q_C (default 0.001)
        safety_tau: rate at which the target of Q_C follows (default 0.005)
        safety_n_step: steps of cost in a target; paper: 1 (default 5)
        sharpening_gain: factor of all other inputs of Q_C, if there is sharpening (default 0.3)
        kl_weight: weight of the distance to the lagging actor; paper: 1e-6, its delta
            (default 0.001)
        kl_sigma: spread of both policies in that distance (default 0.2)
        rescale_actor_loss: divide the actor's loss by 1 + multiplier (default False)
        quiet_every: near the limit, episodes for one without noise to judge by; paper: 0
            (default 3)
        multiplier_rule: printed: Eq. 7 (default "relative")
        multiplier_init: first multiplier; paper: 1 (default 0.02)
        multiplier_lr: step per decision and relative excess, or as printed (default 0.0001)
        multiplier_gain: how far it moves at once with the excess, before the integral (default 1.0)
        multiplier_aim: share of the limit that episodes are to cost; 1 as printed (default 0.8)
        multiplier_memory: decisions over which the episodes' cost is averaged (default 2000.0)
        multiplier_max: largest multiplier; the paper gives no value (default 3.0)
        tolerance: Q_C above which an action is screened; paper: 0.3 (default 0.2)
        tolerance_in: what is left of the limit; paper: cost (default "budget")
        tolerance_least: smallest tolerance of a budget, in typical costs (default 0.3)
        screen_choice: best Q_R within; paper: least Q_C (default "reward")
        screen_price: of Q_C where nothing is within, in multipliers of at least 1 (default 1.0)
        training_tolerance: the same in training, as long as there is much to learn (default 1.0)
        training_least: the smallest in training, in typical costs (default 0.1)
        training_price: of Q_C in training, in multipliers (default 3.0)
        screen_candidates: number of actions tried, N; the paper gives no value (default 16)
        screen_from: paper: ou, noise on the action (default "grid")
        screen_spread: spread of the noise around the action (default 0.2)
        escape_after: costly decisions in a row that mean stuck; 0: never; paper: 0 (default 6)
        escape_for: decisions for which the way out is held (default 3)
        escape_near: change of the observation that is none; 2: between unrelated ones (default 1.0)
        screen: False switches the screen off (default True)
    """

    def __init__(
        self,
        env: str | gymnasium.Env,
        *,
        seed: int = 0,
        paper_defaults: bool = False,
        cost_key: str | None = None,
        success_key: str | None = None,
        closeness: str | slice | Iterable[int | str] | None = None,
        gamma: float = 0.95,
        hidden: tuple[int, ...] = (256, 256),
        critic_lr: float = 0.001,
        batch_size: int = 64,
        cost_limit: float | None = None,
        units: Literal["measured", "task"] = "measured",
        action_repeat: int | None = None,
        sharpening: float = 8.0,
        sharpening_for: Literal["all", "critic"] = "all",
        observation_scaling: Literal["running", "none"] = "running",
        tau: float = 0.005,
        buffer_size: int = 200000,
        learning_starts: int = 1000,
        actor_lr: float = 0.0003,
        noise_sigma: float = 0.2,
        noise_theta: float = 0.15,
        noise_half_life: float = 20000.0,
        n_step: int = 1,
        reward_critics: Literal[1, 2] = 1,
        layer_norm: Literal["reward", "all", "none"] = "reward",
        actor_every: int = 1,
        actor_pull: float = 0.0,
        deployed_actor: Literal["average", "last"] = "average",
        target_noise: float = 0.0,
        costly_share: float = 0.25,
        safety_critics: Literal[1, 2] = 1,
        safety_value: Literal["max", "mean"] = "max",
        safety_output: Literal["clipped", "softplus", "bounded", "linear"] = "clipped",
        output_sharpness: float = 5.0,
        safety_lr: float = 0.001,
        safety_tau: float = 0.005,
        safety_n_step: int = 5,
        sharpening_gain: float = 0.3,
        kl_weight: float = 0.001,
        kl_sigma: float = 0.2,
        rescale_actor_loss: bool = False,
        quiet_every: int = 3,
        multiplier_rule: Literal["relative", "printed"] = "relative",
        multiplier_init: float = 0.02,
        multiplier_lr: float = 0.0001,
        multiplier_gain: float = 1.0,
        multiplier_aim: float = 0.8,
        multiplier_memory: float = 2000.0,
        multiplier_max: float = 3.0,
        tolerance: float = 0.2,
        tolerance_in: Literal["budget", "cost"] = "budget",
        tolerance_least: float = 0.3,
        screen_choice: Literal["reward", "cost"] = "reward",
        screen_price: float = 1.0,
        training_tolerance: float = 1.0,
        training_least: float = 0.1,
        training_price: float = 3.0,
        screen_candidates: int = 16,
        screen_from: Literal["grid", "uniform", "ou"] = "grid",
        screen_spread: float = 0.2,
        escape_after: int = 6,
        escape_for: int = 3,
        escape_near: float = 1.0,
        screen: bool = True,
    ) -> None: ...

class CSC(Agent):
    """Conservative safety critic: other actions of the policy are taken to cost more.

    Args:
        env: id of a task or of a registered environment, or an environment with a cost
        seed: seed of parameters, exploration, replay and environment (default 0)
        paper_defaults: start from the paper's values instead of ours (default False)
        cost_key: key of the cost in `info`; None: `cost` (default None)
        success_key: key of success in `info`; None: `success`, `is_success` or `goal_met`
            (default None)
        closeness: observations in [0, 1], 1 for near, such as lidars: places or names, as in
            "10-25,30"; None: what the environment declares (default None)
        gamma: discount of reward and cost (default 0.95)
        hidden: widths of the hidden layers of every network (default (256, 256))
        critic_lr: step size of the reward critic (default 0.001)
        batch_size: samples per update (default 64)
        cost_limit: budget: undiscounted cost of an episode; None: the task's, elsewhere 1.0
            (default None)
        units: of reward and cost inside; paper: task (default "measured")
        action_repeat: environment steps for which an action is held; paper: 1; None: the task's,
            elsewhere 1 (default None)
        sharpening: power of inputs that are a closeness (lidars); paper: 1, none (default 8.0)
        sharpening_for: networks that see those (default "all")
        observation_scaling: by mean and spread; paper: none (default "running")
        tau: rate at which target networks follow (default 0.005)
        buffer_size: transitions in the replay buffer (default 200000)
        learning_starts: random steps before the first update; the paper gives no value
            (default 1000)
        actor_lr: step size of the actor; paper: 2e-3 (default 0.0003)
        noise_sigma: spread of the Ornstein-Uhlenbeck exploration noise (default 0.2)
        noise_theta: pull of that noise to 0; the paper gives no value (default 0.15)
        noise_half_life: updates in which that noise halves; paper: 0, it stays (default 20000.0)
        n_step: steps of reward in a target (default 1)
        reward_critics: networks of Q_R; of two, the smaller value is the target (default 1)
        layer_norm: of which critics; paper: none (default "reward")
        actor_every: updates of the critics for one of the actor (default 1)
        actor_pull: weight of the actor's squared output before its tanh (default 0.0)
        deployed_actor: its slow copy; paper: last (default "average")
        target_noise: spread of the noise that smooths the targets of Q_R (default 0.0)
        costly_share: share of a batch drawn among transitions with cost > 0; paper: 0
            (default 0.25)
        safety_critics: networks of Q_C; of two, the larger value is the target (default 1)
        safety_value: how two networks become one Q_C (default "max")
        safety_output: what keeps Q_C from being negative; paper: linear (default "clipped")
        output_sharpness: sharpness of softplus and bounded; not in the paper (default 5.0)
        safety_lr: step size of Q_C (default 0.001)
        safety_tau: rate at which the target of Q_C follows (default 0.005)
        safety_n_step: steps of cost in a target; paper: 1 (default 5)
        sharpening_gain: factor of all other inputs of Q_C, if there is sharpening (default 0.3)
        kl_weight: weight of the distance to the lagging actor; paper: 1e-6, its delta
            (default 0.001)
        kl_sigma: spread of both policies in that distance (default 0.2)
        rescale_actor_loss: divide the actor's loss by 1 + multiplier (default False)
        quiet_every: near the limit, episodes for one without noise to judge by; paper: 0
            (default 3)
        multiplier_rule: printed: Eq. 7 (default "relative")
        multiplier_init: first multiplier; paper: 1 (default 0.02)
        multiplier_lr: step per decision and relative excess, or as printed (default 0.0001)
        multiplier_gain: how far it moves at once with the excess, before the integral (default 1.0)
        multiplier_aim: share of the limit that episodes are to cost; 1 as printed (default 0.8)
        multiplier_memory: decisions over which the episodes' cost is averaged (default 2000.0)
        multiplier_max: largest multiplier; the paper gives no value (default 3.0)
        conservative_form: form of the margin; paper: printed (default "band")
        conservative_weight: weight of the term; paper: 1e-3, reading its alpha as this
            (default 0.005)
        conservative_weight_in: or share of Bellman's gradient (default "loss")
        conservative_gradient: equal in expectation (default "sampled")
        conservative_share: share of the states used, drawn by caution; paper: 1 (default 0.5)
        push_data: push the data's own value down as well; paper: True (default False)
        alternatives: other actions per state, m; the paper gives no value (default 8)
        alternatives_from: box, or near the policy (default "policy")
        alternatives_spread: spread of the noise around the policy, for "policy" (default 0.2)
        sigma_epsilon: eps beside sigma; the paper gives no value (default 0.01)
        tolerance: Q_C above which an action is screened; paper: 0.3 (default 0.2)
        tolerance_in: what is left of the limit; paper: cost (default "budget")
        tolerance_least: smallest tolerance of a budget, in typical costs (default 0.3)
        screen_choice: best Q_R within; paper: least Q_C (default "reward")
        screen_price: of Q_C where nothing is within, in multipliers of at least 1 (default 1.0)
        training_tolerance: the same in training, as long as there is much to learn (default 1.0)
        training_least: the smallest in training, in typical costs (default 0.1)
        training_price: of Q_C in training, in multipliers (default 3.0)
        screen_candidates: number of actions tried, N; the paper gives no value (default 16)
        screen_from: paper: ou, noise on the action (default "grid")
        screen_spread: spread of the noise around the action (default 0.2)
        escape_after: costly decisions in a row that mean stuck; 0: never; paper: 0 (default 6)
        escape_for: decisions for which the way out is held (default 3)
        escape_near: change of the observation that is none; 2: between unrelated ones (default 1.0)
        conservative: False switches the conservatism off (default True)
        screen: False switches the screen off (default True)
    """

    def __init__(
        self,
        env: str | gymnasium.Env,
        *,
        seed: int = 0,
        paper_defaults: bool = False,
        cost_key: str | None = None,
        success_key: str | None = None,
        closeness: str | slice | Iterable[int | str] | None = None,
        gamma: float = 0.95,
        hidden: tuple[int, ...] = (256, 256),
        critic_lr: float = 0.001,
        batch_size: int = 64,
        cost_limit: float | None = None,
        units: Literal["measured", "task"] = "measured",
        action_repeat: int | None = None,
        sharpening: float = 8.0,
        sharpening_for: Literal["all", "critic"] = "all",
        observation_scaling: Literal["running", "none"] = "running",
        tau: float = 0.005,
        buffer_size: int = 200000,
        learning_starts: int = 1000,
        actor_lr: float = 0.0003,
        noise_sigma: float = 0.2,
        noise_theta: float = 0.15,
        noise_half_life: float = 20000.0,
        n_step: int = 1,
        reward_critics: Literal[1, 2] = 1,
        layer_norm: Literal["reward", "all", "none"] = "reward",
        actor_every: int = 1,
        actor_pull: float = 0.0,
        deployed_actor: Literal["average", "last"] = "average",
        target_noise: float = 0.0,
        costly_share: float = 0.25,
        safety_critics: Literal[1, 2] = 1,
        safety_value: Literal["max", "mean"] = "max",
        safety_output: Literal["clipped", "softplus", "bounded", "linear"] = "clipped",
        output_sharpness: float = 5.0,
        safety_lr: float = 0.001,
        safety_tau: float = 0.005,
        safety_n_step: int = 5,
        sharpening_gain: float = 0.3,
        kl_weight: float = 0.001,
        kl_sigma: float = 0.2,
        rescale_actor_loss: bool = False,
        quiet_every: int = 3,
        multiplier_rule: Literal["relative", "printed"] = "relative",
        multiplier_init: float = 0.02,
        multiplier_lr: float = 0.0001,
        multiplier_gain: float = 1.0,
        multiplier_aim: float = 0.8,
        multiplier_memory: float = 2000.0,
        multiplier_max: float = 3.0,
        conservative_form: Literal["band", "hinge", "mirrored", "flipped", "printed"] = "band",
        conservative_weight: float = 0.005,
        conservative_weight_in: Literal["loss", "gradient"] = "loss",
        conservative_gradient: Literal["sampled", "exact"] = "sampled",
        conservative_share: float = 0.5,
        push_data: bool = False,
        alternatives: int = 8,
        alternatives_from: Literal["uniform", "policy"] = "policy",
        alternatives_spread: float = 0.2,
        sigma_epsilon: float = 0.01,
        tolerance: float = 0.2,
        tolerance_in: Literal["budget", "cost"] = "budget",
        tolerance_least: float = 0.3,
        screen_choice: Literal["reward", "cost"] = "reward",
        screen_price: float = 1.0,
        training_tolerance: float = 1.0,
        training_least: float = 0.1,
        training_price: float = 3.0,
        screen_candidates: int = 16,
        screen_from: Literal["grid", "uniform", "ou"] = "grid",
        screen_spread: float = 0.2,
        escape_after: int = 6,
        escape_for: int = 3,
        escape_near: float = 1.0,
        conservative: bool = True,
        screen: bool = True,
    ) -> None: ...

class USCNR(Agent):
    """Uncertain safety critic without refinement: conservatism weighted by influence.

    Args:
        env: id of a task or of a registered environment, or an environment with a cost
        seed: seed of parameters, exploration, replay and environment (default 0)
        paper_defaults: start from the paper's values instead of ours (default False)
        cost_key: key of the cost in `info`; None: `cost` (default None)
        success_key: key of success in `info`; None: `success`, `is_success` or `goal_met`
            (default None)
        closeness: observations in [0, 1], 1 for near, such as lidars: places or names, as in
            "10-25,30"; None: what the environment declares (default None)
        gamma: discount of reward and cost (default 0.95)
        hidden: widths of the hidden layers of every network (default (256, 256))
        critic_lr: step size of the reward critic (default 0.001)
        batch_size: samples per update (default 64)
        cost_limit: budget: undiscounted cost of an episode; None: the task's, elsewhere 1.0
            (default None)
        units: of reward and cost inside; paper: task (default "measured")
        action_repeat: environment steps for which an action is held; paper: 1; None: the task's,
            elsewhere 1 (default None)
        sharpening: power of inputs that are a closeness (lidars); paper: 1, none (default 8.0)
        sharpening_for: networks that see those (default "all")
        observation_scaling: by mean and spread; paper: none (default "running")
        tau: rate at which target networks follow (default 0.005)
        buffer_size: transitions in the replay buffer (default 200000)
        learning_starts: random steps before the first update; the paper gives no value
            (default 1000)
        actor_lr: step size of the actor; paper: 2e-3 (default 0.0003)
        noise_sigma: spread of the Ornstein-Uhlenbeck exploration noise (default 0.2)
        noise_theta: pull of that noise to 0; the paper gives no value (default 0.15)
        noise_half_life: updates in which that noise halves; paper: 0, it stays (default 20000.0)
        n_step: steps of reward in a target (default 1)
        reward_critics: networks of Q_R; of two, the smaller value is the target (default 1)
        layer_norm: of which critics; paper: none (default "reward")
        actor_every: updates of the critics for one of the actor (default 1)
        actor_pull: weight of the actor's squared output before its tanh (default 0.0)
        deployed_actor: its slow copy; paper: last (default "average")
        target_noise: spread of the noise that smooths the targets of Q_R (default 0.0)
        costly_share: share of a batch drawn among transitions with cost > 0; paper: 0
            (default 0.25)
        safety_critics: networks of Q_C; of two, the larger value is the target (default 1)
        safety_value: how two networks become one Q_C (default "max")
        safety_output: what keeps Q_C from being negative; paper: linear (default "clipped")
        output_sharpness: sharpness of softplus and bounded; not in the paper (default 5.0)
        safety_lr: step size of Q_C (default 0.001)
        safety_tau: rate at which the target of Q_C follows (default 0.005)
        safety_n_step: steps of cost in a target; paper: 1 (default 5)
        sharpening_gain: factor of all other inputs of Q_C, if there is sharpening (default 0.3)
        kl_weight: weight of the distance to the lagging actor; paper: 1e-6, its delta
            (default 0.001)
        kl_sigma: spread of both policies in that distance (default 0.2)
        rescale_actor_loss: divide the actor's loss by 1 + multiplier (default False)
        quiet_every: near the limit, episodes for one without noise to judge by; paper: 0
            (default 3)
        multiplier_rule: printed: Eq. 7 (default "relative")
        multiplier_init: first multiplier; paper: 1 (default 0.02)
        multiplier_lr: step per decision and relative excess, or as printed (default 0.0001)
        multiplier_gain: how far it moves at once with the excess, before the integral (default 1.0)
        multiplier_aim: share of the limit that episodes are to cost; 1 as printed (default 0.8)
        multiplier_memory: decisions over which the episodes' cost is averaged (default 2000.0)
        multiplier_max: largest multiplier; the paper gives no value (default 3.0)
        conservative_form: form of the margin; paper: printed (default "band")
        conservative_weight: weight of the term; paper: 1e-3, reading its alpha as this
            (default 0.005)
        conservative_weight_in: or share of Bellman's gradient (default "loss")
        conservative_gradient: equal in expectation (default "sampled")
        conservative_share: share of the states used, drawn by caution; paper: 1 (default 0.5)
        push_data: push the data's own value down as well; paper: True (default False)
        alternatives: other actions per state, m; the paper gives no value (default 8)
        alternatives_from: box, or near the policy (default "uniform")
        alternatives_spread: spread of the noise around the policy, for "policy" (default 0.2)
        sigma_epsilon: eps beside sigma; the paper gives no value (default 0.01)
        reference: what Eq. 1 compares with; paper: batch (default "replay")
        damping: d of Eq. 1, for the reference "batch" (default 1e-06)
        replay_damping: damping relative to the mean curvature, for "replay" (default 0.001)
        curvature_decay: decay of the running curvature, per update (default 0.999)
        curvature_every: updates between two batches added to the curvature (default 4)
        curvature_refresh: updates between two factorisations of the curvature (default 50)
        caution_from: what caution follows; others show what u is worth (default "influence")
        caution_indicator: double the caution where Q_C is above the batch's mean (default True)
        tolerance: Q_C above which an action is screened; paper: 0.3 (default 0.2)
        tolerance_in: what is left of the limit; paper: cost (default "budget")
        tolerance_least: smallest tolerance of a budget, in typical costs (default 0.3)
        screen_choice: best Q_R within; paper: least Q_C (default "reward")
        screen_price: of Q_C where nothing is within, in multipliers of at least 1 (default 1.0)
        training_tolerance: the same in training, as long as there is much to learn (default 1.0)
        training_least: the smallest in training, in typical costs (default 0.1)
        training_price: of Q_C in training, in multipliers (default 3.0)
        screen_candidates: number of actions tried, N; the paper gives no value (default 16)
        screen_from: paper: ou, noise on the action (default "grid")
        screen_spread: spread of the noise around the action (default 0.2)
        escape_after: costly decisions in a row that mean stuck; 0: never; paper: 0 (default 6)
        escape_for: decisions for which the way out is held (default 3)
        escape_near: change of the observation that is none; 2: between unrelated ones (default 1.0)
        conservative: False switches the conservatism off (default True)
        influence: False switches the influence off (default True)
        screen: False switches the screen off (default True)
    """

    def __init__(
        self,
        env: str | gymnasium.Env,
        *,
        seed: int = 0,
        paper_defaults: bool = False,
        cost_key: str | None = None,
        success_key: str | None = None,
        closeness: str | slice | Iterable[int | str] | None = None,
        gamma: float = 0.95,
        hidden: tuple[int, ...] = (256, 256),
        critic_lr: float = 0.001,
        batch_size: int = 64,
        cost_limit: float | None = None,
        units: Literal["measured", "task"] = "measured",
        action_repeat: int | None = None,
        sharpening: float = 8.0,
        sharpening_for: Literal["all", "critic"] = "all",
        observation_scaling: Literal["running", "none"] = "running",
        tau: float = 0.005,
        buffer_size: int = 200000,
        learning_starts: int = 1000,
        actor_lr: float = 0.0003,
        noise_sigma: float = 0.2,
        noise_theta: float = 0.15,
        noise_half_life: float = 20000.0,
        n_step: int = 1,
        reward_critics: Literal[1, 2] = 1,
        layer_norm: Literal["reward", "all", "none"] = "reward",
        actor_every: int = 1,
        actor_pull: float = 0.0,
        deployed_actor: Literal["average", "last"] = "average",
        target_noise: float = 0.0,
        costly_share: float = 0.25,
        safety_critics: Literal[1, 2] = 1,
        safety_value: Literal["max", "mean"] = "max",
        safety_output: Literal["clipped", "softplus", "bounded", "linear"] = "clipped",
        output_sharpness: float = 5.0,
        safety_lr: float = 0.001,
        safety_tau: float = 0.005,
        safety_n_step: int = 5,
        sharpening_gain: float = 0.3,
        kl_weight: float = 0.001,
        kl_sigma: float = 0.2,
        rescale_actor_loss: bool = False,
        quiet_every: int = 3,
        multiplier_rule: Literal["relative", "printed"] = "relative",
        multiplier_init: float = 0.02,
        multiplier_lr: float = 0.0001,
        multiplier_gain: float = 1.0,
        multiplier_aim: float = 0.8,
        multiplier_memory: float = 2000.0,
        multiplier_max: float = 3.0,
        conservative_form: Literal["band", "hinge", "mirrored", "flipped", "printed"] = "band",
        conservative_weight: float = 0.005,
        conservative_weight_in: Literal["loss", "gradient"] = "loss",
        conservative_gradient: Literal["sampled", "exact"] = "sampled",
        conservative_share: float = 0.5,
        push_data: bool = False,
        alternatives: int = 8,
        alternatives_from: Literal["uniform", "policy"] = "uniform",
        alternatives_spread: float = 0.2,
        sigma_epsilon: float = 0.01,
        reference: Literal["replay", "batch"] = "replay",
        damping: float = 1e-06,
        replay_damping: float = 0.001,
        curvature_decay: float = 0.999,
        curvature_every: int = 4,
        curvature_refresh: int = 50,
        caution_from: Literal["influence", "spread", "error", "chance"] = "influence",
        caution_indicator: bool = True,
        tolerance: float = 0.2,
        tolerance_in: Literal["budget", "cost"] = "budget",
        tolerance_least: float = 0.3,
        screen_choice: Literal["reward", "cost"] = "reward",
        screen_price: float = 1.0,
        training_tolerance: float = 1.0,
        training_least: float = 0.1,
        training_price: float = 3.0,
        screen_candidates: int = 16,
        screen_from: Literal["grid", "uniform", "ou"] = "grid",
        screen_spread: float = 0.2,
        escape_after: int = 6,
        escape_for: int = 3,
        escape_near: float = 1.0,
        conservative: bool = True,
        influence: bool = True,
        screen: bool = True,
    ) -> None: ...

class USC(Agent):
    """Uncertain safety critic: influence-weighted conservatism and refinement.

    Args:
        env: id of a task or of a registered environment, or an environment with a cost
        seed: seed of parameters, exploration, replay and environment (default 0)
        paper_defaults: start from the paper's values instead of ours (default False)
        cost_key: key of the cost in `info`; None: `cost` (default None)
        success_key: key of success in `info`; None: `success`, `is_success` or `goal_met`
            (default None)
        closeness: observations in [0, 1], 1 for near, such as lidars: places or names, as in
            "10-25,30"; None: what the environment declares (default None)
        gamma: discount of reward and cost (default 0.95)
        hidden: widths of the hidden layers of every network (default (256, 256))
        critic_lr: step size of the reward critic (default 0.001)
        batch_size: samples per update (default 64)
        cost_limit: budget: undiscounted cost of an episode; None: the task's, elsewhere 1.0
            (default None)
        units: of reward and cost inside; paper: task (default "measured")
        action_repeat: environment steps for which an action is held; paper: 1; None: the task's,
            elsewhere 1 (default None)
        sharpening: power of inputs that are a closeness (lidars); paper: 1, none (default 8.0)
        sharpening_for: networks that see those (default "all")
        observation_scaling: by mean and spread; paper: none (default "running")
        tau: rate at which target networks follow (default 0.005)
        buffer_size: transitions in the replay buffer (default 200000)
        learning_starts: random steps before the first update; the paper gives no value
            (default 1000)
        actor_lr: step size of the actor; paper: 2e-3 (default 0.0003)
        noise_sigma: spread of the Ornstein-Uhlenbeck exploration noise (default 0.2)
        noise_theta: pull of that noise to 0; the paper gives no value (default 0.15)
        noise_half_life: updates in which that noise halves; paper: 0, it stays (default 20000.0)
        n_step: steps of reward in a target (default 1)
        reward_critics: networks of Q_R; of two, the smaller value is the target (default 1)
        layer_norm: of which critics; paper: none (default "reward")
        actor_every: updates of the critics for one of the actor (default 1)
        actor_pull: weight of the actor's squared output before its tanh (default 0.0)
        deployed_actor: its slow copy; paper: last (default "average")
        target_noise: spread of the noise that smooths the targets of Q_R (default 0.0)
        costly_share: share of a batch drawn among transitions with cost > 0; paper: 0
            (default 0.25)
        safety_critics: networks of Q_C; of two, the larger value is the target (default 1)
        safety_value: how two networks become one Q_C (default "max")
        safety_output: what keeps Q_C from being negative; paper: linear (default "clipped")
        output_sharpness: sharpness of softplus and bounded; not in the paper (default 5.0)
        safety_lr: step size of Q_C (default 0.001)
        safety_tau: rate at which the target of Q_C follows (default 0.005)
        safety_n_step: steps of cost in a target; paper: 1 (default 5)
        sharpening_gain: factor of all other inputs of Q_C, if there is sharpening (default 0.3)
        kl_weight: weight of the distance to the lagging actor; paper: 1e-6, its delta
            (default 0.001)
        kl_sigma: spread of both policies in that distance (default 0.2)
        rescale_actor_loss: divide the actor's loss by 1 + multiplier (default False)
        quiet_every: near the limit, episodes for one without noise to judge by; paper: 0
            (default 3)
        multiplier_rule: printed: Eq. 7 (default "relative")
        multiplier_init: first multiplier; paper: 1 (default 0.02)
        multiplier_lr: step per decision and relative excess, or as printed (default 0.0001)
        multiplier_gain: how far it moves at once with the excess, before the integral (default 1.0)
        multiplier_aim: share of the limit that episodes are to cost; 1 as printed (default 0.8)
        multiplier_memory: decisions over which the episodes' cost is averaged (default 2000.0)
        multiplier_max: largest multiplier; the paper gives no value (default 3.0)
        conservative_form: form of the margin; paper: printed (default "band")
        conservative_weight: weight of the term; paper: 1e-3, reading its alpha as this
            (default 0.005)
        conservative_weight_in: or share of Bellman's gradient (default "loss")
        conservative_gradient: equal in expectation (default "sampled")
        conservative_share: share of the states used, drawn by caution; paper: 1 (default 0.5)
        push_data: push the data's own value down as well; paper: True (default False)
        alternatives: other actions per state, m; the paper gives no value (default 8)
        alternatives_from: box, or near the policy (default "uniform")
        alternatives_spread: spread of the noise around the policy, for "policy" (default 0.2)
        sigma_epsilon: eps beside sigma; the paper gives no value (default 0.01)
        reference: what Eq. 1 compares with; paper: batch (default "replay")
        damping: d of Eq. 1, for the reference "batch" (default 1e-06)
        replay_damping: damping relative to the mean curvature, for "replay" (default 0.001)
        curvature_decay: decay of the running curvature, per update (default 0.999)
        curvature_every: updates between two batches added to the curvature (default 4)
        curvature_refresh: updates between two factorisations of the curvature (default 50)
        caution_from: what caution follows; others show what u is worth (default "influence")
        caution_indicator: double the caution where Q_C is above the batch's mean (default True)
        refine_target: of neighbours; paper: cost (default "n-step")
        refine_own: weight of the sample's own target beside its neighbours'; paper: 0 (default 0.5)
        refine_top: number of samples refined, n (default 8)
        refine_neighbours: number of neighbours of each sample, K (default 5)
        refine_lr: step size of Eq. 10 (default 0.001)
        refine_clip: largest norm of the gradient; 0: no limit; paper: 0 (default 1.0)
        refine_beta: weight of the distance to the target critic in Eq. 9 (default 1.0)
        refine_epsilon: distance to the target critic that is free in Eq. 9 (default 0.01)
        refine_confident: leave out neighbours that are among the n uncertain samples (default True)
        refine_block: rows searched for neighbours: a random block of the replay (default 256)
        refine_reach: rows on either side of the sample, searched as well (default 8)
        tolerance: Q_C above which an action is screened; paper: 0.3 (default 0.2)
        tolerance_in: what is left of the limit; paper: cost (default "budget")
        tolerance_least: smallest tolerance of a budget, in typical costs (default 0.3)
        screen_choice: best Q_R within; paper: least Q_C (default "reward")
        screen_price: of Q_C where nothing is within, in multipliers of at least 1 (default 1.0)
        training_tolerance: the same in training, as long as there is much to learn (default 1.0)
        training_least: the smallest in training, in typical costs (default 0.1)
        training_price: of Q_C in training, in multipliers (default 3.0)
        screen_candidates: number of actions tried, N; the paper gives no value (default 16)
        screen_from: paper: ou, noise on the action (default "grid")
        screen_spread: spread of the noise around the action (default 0.2)
        escape_after: costly decisions in a row that mean stuck; 0: never; paper: 0 (default 6)
        escape_for: decisions for which the way out is held (default 3)
        escape_near: change of the observation that is none; 2: between unrelated ones (default 1.0)
        conservative: False switches the conservatism off (default True)
        influence: False switches the influence off (default True)
        refinement: False switches the refinement off (default True)
        screen: False switches the screen off (default True)
    """

    def __init__(
        self,
        env: str | gymnasium.Env,
        *,
        seed: int = 0,
        paper_defaults: bool = False,
        cost_key: str | None = None,
        success_key: str | None = None,
        closeness: str | slice | Iterable[int | str] | None = None,
        gamma: float = 0.95,
        hidden: tuple[int, ...] = (256, 256),
        critic_lr: float = 0.001,
        batch_size: int = 64,
        cost_limit: float | None = None,
        units: Literal["measured", "task"] = "measured",
        action_repeat: int | None = None,
        sharpening: float = 8.0,
        sharpening_for: Literal["all", "critic"] = "all",
        observation_scaling: Literal["running", "none"] = "running",
        tau: float = 0.005,
        buffer_size: int = 200000,
        learning_starts: int = 1000,
        actor_lr: float = 0.0003,
        noise_sigma: float = 0.2,
        noise_theta: float = 0.15,
        noise_half_life: float = 20000.0,
        n_step: int = 1,
        reward_critics: Literal[1, 2] = 1,
        layer_norm: Literal["reward", "all", "none"] = "reward",
        actor_every: int = 1,
        actor_pull: float = 0.0,
        deployed_actor: Literal["average", "last"] = "average",
        target_noise: float = 0.0,
        costly_share: float = 0.25,
        safety_critics: Literal[1, 2] = 1,
        safety_value: Literal["max", "mean"] = "max",
        safety_output: Literal["clipped", "softplus", "bounded", "linear"] = "clipped",
        output_sharpness: float = 5.0,
        safety_lr: float = 0.001,
        safety_tau: float = 0.005,
        safety_n_step: int = 5,
        sharpening_gain: float = 0.3,
        kl_weight: float = 0.001,
        kl_sigma: float = 0.2,
        rescale_actor_loss: bool = False,
        quiet_every: int = 3,
        multiplier_rule: Literal["relative", "printed"] = "relative",
        multiplier_init: float = 0.02,
        multiplier_lr: float = 0.0001,
        multiplier_gain: float = 1.0,
        multiplier_aim: float = 0.8,
        multiplier_memory: float = 2000.0,
        multiplier_max: float = 3.0,
        conservative_form: Literal["band", "hinge", "mirrored", "flipped", "printed"] = "band",
        conservative_weight: float = 0.005,
        conservative_weight_in: Literal["loss", "gradient"] = "loss",
        conservative_gradient: Literal["sampled", "exact"] = "sampled",
        conservative_share: float = 0.5,
        push_data: bool = False,
        alternatives: int = 8,
        alternatives_from: Literal["uniform", "policy"] = "uniform",
        alternatives_spread: float = 0.2,
        sigma_epsilon: float = 0.01,
        reference: Literal["replay", "batch"] = "replay",
        damping: float = 1e-06,
        replay_damping: float = 0.001,
        curvature_decay: float = 0.999,
        curvature_every: int = 4,
        curvature_refresh: int = 50,
        caution_from: Literal["influence", "spread", "error", "chance"] = "influence",
        caution_indicator: bool = True,
        refine_target: Literal["n-step", "bellman", "cost"] = "n-step",
        refine_own: float = 0.5,
        refine_top: int = 8,
        refine_neighbours: int = 5,
        refine_lr: float = 0.001,
        refine_clip: float = 1.0,
        refine_beta: float = 1.0,
        refine_epsilon: float = 0.01,
        refine_confident: bool = True,
        refine_block: int = 256,
        refine_reach: int = 8,
        tolerance: float = 0.2,
        tolerance_in: Literal["budget", "cost"] = "budget",
        tolerance_least: float = 0.3,
        screen_choice: Literal["reward", "cost"] = "reward",
        screen_price: float = 1.0,
        training_tolerance: float = 1.0,
        training_least: float = 0.1,
        training_price: float = 3.0,
        screen_candidates: int = 16,
        screen_from: Literal["grid", "uniform", "ou"] = "grid",
        screen_spread: float = 0.2,
        escape_after: int = 6,
        escape_for: int = 3,
        escape_near: float = 1.0,
        conservative: bool = True,
        influence: bool = True,
        refinement: bool = True,
        screen: bool = True,
    ) -> None: ...
