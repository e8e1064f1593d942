"""The conservative term of Eq. 3: a margin between alternative actions and the data's action.

With z = (Q_C - mu) / (sigma + eps), mu and sigma the batch's mean and spread without gradient, and
LSE, LME the log-sum-exp and log-mean-exp over the m alternatives:

    band      hinge + relu(LME(z_alt) - z_top)   and down again above the batch's largest, z_top
    hinge     relu(LME(-z_alt) + z_data)         alternatives up while they look safer
    mirrored  LSE(-z_alt) + z_data               the same without an end
    printed   LSE(z_alt) - z_data                Eq. 3 as printed: alternatives down
    flipped   z_data - LSE(z_alt)                the printed term maximised: no bound

The hinge bounds the term but not the critic: pushing up the cheapest alternatives, which lie beside
the data, raises without end what the network extrapolates beyond them. The band holds it at the
scale of the data.
"""

import math
from dataclasses import dataclass
from typing import ClassVar, Literal

import jax
import jax.numpy as jnp

from safecritic.agents.settings import (
    Part,
    require,
    require_not_negative,
    require_positive,
)
from safecritic.critics import bellman
from safecritic.fast import draws
from safecritic.networks import Tree, length

NORM_DECAY = 0.99  # of the running norms, per update
TINY = 1e-12

Form = Literal["band", "hinge", "mirrored", "flipped", "printed"]


@dataclass(frozen=True, kw_only=True)
class Conservative(Part):
    """Eq. 3, second term: other actions are taken to cost more."""

    TITLE: ClassVar[str] = "conservatism"

    conservative_form: Form = "band"  # form of the margin; paper: printed
    conservative_weight: float = 5e-3  # weight of the term; paper: 1e-3, reading its alpha as this
    conservative_weight_in: Literal["loss", "gradient"] = "loss"  # or share of Bellman's gradient
    conservative_gradient: Literal["sampled", "exact"] = "sampled"  # equal in expectation
    conservative_share: float = 0.5  # share of the states used, drawn by caution; paper: 1
    push_data: bool = False  # push the data's own value down as well; paper: True
    alternatives: int = 8  # other actions per state, m; the paper gives no value
    alternatives_from: Literal["uniform", "policy"] = "uniform"  # box, or near the policy
    alternatives_spread: float = 0.2  # spread of the noise around the policy, for "policy"
    sigma_epsilon: float = 1e-2  # eps beside sigma; the paper gives no value

    def check(self) -> None:
        super().check()
        require_positive(self, "alternatives", "sigma_epsilon")
        require_not_negative(self, "conservative_weight", "alternatives_spread")
        share = self.conservative_share
        require(0 < share <= 1, "conservative_share", "in (0, 1]", share)


def sample_actions(
    key: jax.Array, policy_action: jax.Array, number: int, source: str, spread: float
) -> jax.Array:
    """Return other actions (B, m, A): uniform over the box (USC) or policy plus noise (CSC)."""
    batch, size = policy_action.shape
    shape = (batch, number, size)
    if source == "uniform":
        return draws.uniform(key, shape, -1.0, 1.0)
    noise = spread * draws.normal(key, shape)
    return jnp.clip(policy_action[:, None, :] + noise, -1.0, 1.0)


def batch_scale(q: jax.Array, epsilon: float) -> tuple[jax.Array, jax.Array]:
    """Return mu and sigma + eps of Eq. 3 over the last axis of `q`, without gradient."""
    q = jax.lax.stop_gradient(q)
    return q.mean(axis=-1, keepdims=True), q.std(axis=-1, keepdims=True) + epsilon


def _log_mean_exp(z: jax.Array) -> jax.Array:
    return jax.nn.logsumexp(z, axis=-1) - math.log(z.shape[-1])


def margin(z_data: jax.Array, z_alt: jax.Array, form: str, z_top: jax.Array) -> jax.Array:
    """Eq. 3, second term before its weight: (..., n), one of the forms listed above.

    `z_data` (..., n) belongs to the data's actions in n states, `z_alt` (..., n, m) to the
    alternatives there, `z_top` (..., 1) is the largest of the data's in the whole batch.
    """
    if form in ("printed", "flipped"):
        gap = jax.nn.logsumexp(z_alt, axis=-1) - z_data
        return gap if form == "printed" else -gap
    if form == "mirrored":
        return jax.nn.logsumexp(-z_alt, axis=-1) + z_data
    hinge = jax.nn.relu(_log_mean_exp(-z_alt) + z_data)
    if form == "hinge":
        return hinge
    return hinge + jax.nn.relu(_log_mean_exp(z_alt) - z_top)


def combine(
    bellman_gradient: Tree, gradient: Tree, norms: jax.Array, share: float
) -> tuple[Tree, jax.Array, jax.Array]:
    """Return Eq. 3's gradient with its second term at a set share of the first, norms and share.

    `norms` (2,) are running means of the norms of both, 0 before the first update. A batch whose
    margins ask for more than usual gets no more than the share.
    """
    now = jnp.stack([length(bellman_gradient), length(gradient)])
    norms = jnp.where(norms > 0, NORM_DECAY * norms + (1.0 - NORM_DECAY) * now, now)
    weight = share * norms[0] / jnp.maximum(jnp.maximum(norms[1], now[1]), TINY)
    total = jax.tree.map(lambda a, b: a + weight * b, bellman_gradient, gradient)
    return total, norms, weight * now[1] / jnp.maximum(now[0], TINY)


def loss(
    q: jax.Array, targets: jax.Array, caution: jax.Array, margin: jax.Array, weight: float
) -> tuple[jax.Array, dict[str, jax.Array]]:
    """Eq. 3: mean of 1/2 (Q_C - target)^2 + weight 1/2 caution margin, summed over members.

    `q` is (members, B), `margin` (members, n) of all states or of those drawn by their caution. A
    caution of 1 is CSC, a weight of 0 is SC.
    """
    regression = bellman.loss(q, targets)
    conservative = 0.5 * jnp.sum(jnp.mean(caution * margin, axis=-1))
    return regression + weight * conservative, {
        "safety/bellman_loss": regression,
        "safety/conservative_loss": weight * conservative,
    }
