"""Every setting of every method, in one place. Imports no JAX, so that help is quick.

A class per method and a group per part. The comment at a field is its help on the command line and
in Python. `core/settings.py` says how names, files and checks work.
"""

from dataclasses import dataclass

from safecritic.core.settings import (
    BLOCK,
    REACH,
    Group,
    OffPolicySettings,
    Settings,
)

# Groups


@dataclass(frozen=True, kw_only=True)
class CostCritic(Group):
    """The safety critic Q_C: it predicts the discounted cost that follows an action."""

    POSITIVE = ("lr", "steps")
    SHARES = ("costly_share",)

    lr: float = 1e-3  # step size of the safety critic (Adam)
    # decisions whose observed costs enter a target before the critic's own estimate takes over
    steps: int = 5
    # share of each batch that is drawn from transitions with a cost: more where costs are rare
    costly_share: float = 0.25


@dataclass(frozen=True, kw_only=True)
class Multiplier(Group):
    """The multiplier: the weight of the cost in the policy's loss, adapted to the limit (Eq. 7)."""

    POSITIVE = ("largest",)
    NOT_NEGATIVE = ("start", "lr", "noise_free_every")

    start: float = 0.02  # multiplier at the start of training
    # how fast it rises while episodes cost more than the limit, and falls below it, per decision
    lr: float = 1e-4
    largest: float = 3.0  # upper bound of the multiplier
    # near the limit, run every n-th episode without exploration noise and adapt the multiplier to
    # these episodes alone; 0: adapt it to every episode
    noise_free_every: int = 3


@dataclass(frozen=True, kw_only=True)
class Controller(Group):
    """The PID controller of the multiplier, the weight of the cost in the policy's loss."""

    NOT_NEGATIVE = ("start", "kp", "ki", "kd", "noise_free_every")

    start: float = 0.02  # multiplier at the start of training
    kp: float = 0.05  # proportional gain, on the smoothed cost above the limit
    ki: float = 2e-5  # integral gain, on the cost above the limit, per decision
    kd: float = 0.01  # derivative gain, on the rise of the smoothed cost
    # near the limit, run every n-th episode without exploration noise and adapt the multiplier to
    # these episodes alone; 0: adapt it to every episode
    noise_free_every: int = 3


@dataclass(frozen=True, kw_only=True)
class Conservative(Group):
    """The conservative term: predict higher costs for actions that were not tried (Eq. 3)."""

    NOT_NEGATIVE = ("weight",)

    weight: float = 5e-3  # weight of the term beside the regression of the observed cost
    # compare with actions near the policy's own, as CSC does, and not with any action
    near_policy: bool = False


@dataclass(frozen=True, kw_only=True)
class Influence(Group):
    """The uncertainty weight: apply the conservative term where Q_C is uncertain (Eq. 1, 2)."""

    POSITIVE = ("damping",)

    # smaller values rate samples unlike the rest of the replay buffer as more uncertain
    damping: float = 1e-3


@dataclass(frozen=True, kw_only=True)
class Refinement(Group):
    """The refinement: correct the most uncertain predictions from similar samples (Eq. 8-10)."""

    POSITIVE = ("top", "neighbours")
    NOT_NEGATIVE = ("lr",)

    top: int = 8  # number of samples of each batch that are refined, the most uncertain ones
    neighbours: int = 5  # number of similar transitions in the replay buffer that each learns from
    lr: float = 1e-3  # step size of the refinement


@dataclass(frozen=True, kw_only=True)
class Screen(Group):
    """The screen: replace actions whose predicted cost Q_C is too high (Algorithm 1, line 6-9)."""

    NOT_NEGATIVE = ("tolerance",)

    # highest Q_C that passes while the whole budget remains; 1 is the typical discounted cost ahead
    # wherever there is any. It rises where Q_C would exceed it in more than one decision in twenty
    tolerance: float = 0.3


# Methods


@dataclass(frozen=True, kw_only=True)
class DDPGSettings(OffPolicySettings):
    """Settings of DDPG: those of every method with a replay buffer."""


@dataclass(frozen=True, kw_only=True)
class RCPOSettings(OffPolicySettings):
    """Settings of RCPO."""

    multiplier: Multiplier = Multiplier()


@dataclass(frozen=True, kw_only=True)
class CostCriticSettings(OffPolicySettings):
    """Settings of a method with a critic of the cost."""

    safety: CostCritic = CostCritic()

    @property
    def cost_steps(self) -> int:
        return self.safety.steps

    @property
    def costly_share(self) -> float:
        return self.safety.costly_share


@dataclass(frozen=True, kw_only=True)
class PIDLagSettings(CostCriticSettings):
    """Settings of PID-Lag."""

    multiplier: Controller = Controller()


@dataclass(frozen=True, kw_only=True)
class USCSettings(CostCriticSettings):
    """Settings of the safety critics: SC, CSC, USC (NR) and USC."""

    NOT_NEGATIVE = ("kl_weight",)

    # how strongly the policy is held to its slowly moving copy: larger is steadier and slower
    kl_weight: float = 1e-3

    multiplier: Multiplier = Multiplier()
    conservative: Conservative | None = Conservative()
    influence: Influence | None = Influence()
    refinement: Refinement | None = Refinement()
    screen: Screen | None = Screen()

    @property
    def neighbour_block(self) -> int:
        return 0 if self.refinement is None else BLOCK

    def check(self, prefix: str = "") -> None:
        super().check(prefix)
        if self.refinement is None:
            return
        if self.influence is None:
            raise ValueError(
                "refinement needs the influence, which says what is uncertain: "
                "switch both off or neither (--no-influence, --no-refinement)"
            )
        candidates = min(BLOCK, self.buffer_size) + 2 * REACH
        if self.refinement.neighbours > candidates:
            raise ValueError(
                f"refinement.neighbours {self.refinement.neighbours} exceeds the {candidates} "
                "transitions that are searched (--refinement.neighbours)"
            )
        if self.refinement.top > self.batch_size:
            raise ValueError(
                f"refinement.top {self.refinement.top} exceeds batch_size {self.batch_size}: "
                "only samples of the batch are refined (--refinement.top)"
            )


@dataclass(frozen=True, kw_only=True)
class CPOSettings(Settings):
    """Settings of CPO."""

    POSITIVE = ("rollout_steps", "rollout_envs", "max_kl", "value_epochs", "std_init")
    NOT_NEGATIVE = ("rollout_workers",)
    SHARES = ("gae_lambda", "cost_gae_lambda")

    gamma: float = 0.99  # discount of reward and cost per decision: 0.99 looks about 100 ahead
    hidden: tuple[int, ...] = (64, 64)  # widths of the hidden layers of every network
    batch_size: int = 128  # samples per step of the value regression
    rollout_steps: int = 8_000  # environment steps between two updates, over all environments
    rollout_envs: int = 8  # environments stepped together
    rollout_workers: int = 0  # processes that step them; 0: one per core; no effect on results
    gae_lambda: float = 0.97  # lambda of generalised advantage estimation, for the reward
    cost_gae_lambda: float = 0.97  # the same for the cost
    max_kl: float = 0.01  # largest KL divergence between the policies before and after an update
    value_epochs: int = 8  # passes of the value regression over a rollout
    std_init: float = 0.6  # std of the policy's actions at the start, for actions in [-1, 1]

    @property
    def warm_up(self) -> int:
        return 0

    def check(self, prefix: str = "") -> None:
        super().check(prefix)
        if self.rollout_steps % self.rollout_envs:
            raise ValueError(
                f"rollout_steps {self.rollout_steps} must be a multiple of rollout_envs "
                f"{self.rollout_envs}: each takes the same number (--rollout-steps)"
            )
        if self.batch_size * self.action_repeat > self.rollout_steps:
            raise ValueError(
                f"batch_size {self.batch_size} exceeds rollout_steps {self.rollout_steps}"
                f"{f' / action_repeat {self.action_repeat}' if self.action_repeat > 1 else ''}: "
                "no batch could be drawn (--batch-size, --rollout-steps)"
            )
