"""One step of constrained policy optimisation (Achiam, Held, Tamar, Abbeel, 2017).

With g the gradient of the reward to be gained, b that of the cost, c the cost above the limit and H
the Fisher matrix, the step x solves

    maximise g x   such that   c + b x <= 0   and   1/2 x H x <= delta

whose dual has two variables (`solve_dual`). H is only ever multiplied with a vector
(`fisher_product`); its inverse is applied by conjugate gradients. All on flat vectors (P,).
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

Product = Callable[[jax.Array], jax.Array]

# Cases of the dual, numbered as in its authors' code.
RECOVERY, INFEASIBLE, BOUNDARY, FEASIBLE, UNCONSTRAINED = range(5)

TINY = 1e-8


def conjugate_gradient(product: Product, g: jax.Array, iterations: int) -> jax.Array:
    """Return x with product(x) = g for a positive definite product; stop early once it is there."""

    def step(carry: Any) -> Any:
        x, residual, direction, rr, count = carry
        z = product(direction)
        alpha = rr / jnp.maximum(direction @ z, TINY * TINY)
        x = x + alpha * direction
        residual = residual - alpha * z
        rr_new = residual @ residual
        direction = residual + rr_new / jnp.maximum(rr, TINY * TINY) * direction
        return x, residual, direction, rr_new, count + 1

    start = g @ g

    def unfinished(carry: Any) -> jax.Array:
        return (carry[4] < iterations) & (carry[3] > 1e-10 * start)

    zero = jnp.zeros_like(g)
    return jax.lax.while_loop(unfinished, step, (zero, g, g, start, jnp.int32(0)))[0]


def fisher_product(
    outputs: Callable[[jax.Array], jax.Array], flat: jax.Array, precision: jax.Array, damping: float
) -> Product:
    """Return v -> (J^T M J + damping) v, the product with a Gaussian policy's Fisher matrix.

    `outputs` maps the parameters to the (N, k) means and log stds of N states, J is its
    Jacobian and M = diag(`precision`) / N the curvature of KL(old, new) in them, where new = old.
    """
    value, push = jax.linearize(outputs, flat)
    pull = jax.linear_transpose(push, flat)

    def product(v: jax.Array) -> jax.Array:
        return pull(precision * push(v) / value.shape[0])[0] + damping * v

    return product


class Dual(NamedTuple):
    lam: jax.Array  # of the trust region
    nu: jax.Array  # of the cost
    case: jax.Array


def solve_dual(q: jax.Array, r: jax.Array, s: jax.Array, c: jax.Array, delta: float) -> Dual:
    """Return the dual variables from q = g H^-1 g, r = b H^-1 g, s = b H^-1 b and c.

    UNCONSTRAINED  no cost gradient and within the limit: a step for reward alone
    FEASIBLE       no step of the trust region breaks the limit: the same
    BOUNDARY       within the limit, which cuts the trust region
    INFEASIBLE     above the limit, which still cuts the trust region
    RECOVERY       above the limit, out of reach: a step down in cost alone
    """
    a = q - r**2 / (s + TINY)
    b = 2.0 * delta - c**2 / (s + TINY)
    case = jnp.where(
        c < 0,
        jnp.where(b < 0, FEASIBLE, BOUNDARY),
        jnp.where(b >= 0, INFEASIBLE, RECOVERY),
    )
    case = jnp.where((s <= TINY) & (c < 0), UNCONSTRAINED, case).astype(jnp.int32)

    # The dual in lam is f_a where the cost is active (nu > 0: lam c + r > 0) and f_b elsewhere.
    split = jnp.maximum(-r / jnp.where(jnp.abs(c) < TINY, jnp.copysign(TINY, c), c), 0.0)
    largest = jnp.asarray(jnp.finfo(q.dtype).max, q.dtype)
    below, above = (jnp.zeros_like(split), split), (split, largest)
    active = jax.tree.map(lambda x, y: jnp.where(c < 0, x, y), below, above)
    passive = jax.tree.map(lambda x, y: jnp.where(c < 0, y, x), below, above)
    lam_a = jnp.clip(jnp.sqrt(jnp.maximum(a, 0.0) / jnp.maximum(b, TINY)), *active)
    lam_b = jnp.clip(jnp.sqrt(q / (2.0 * delta)), *passive)
    f_a = -0.5 * (a / (lam_a + TINY) + b * lam_a) + r * c / (s + TINY)
    f_b = -0.5 * (q / (lam_b + TINY) + 2.0 * delta * lam_b)
    lam_cut = jnp.where(f_a >= f_b, lam_a, lam_b)
    nu_cut = jnp.maximum(0.0, lam_cut * c + r) / (s + TINY)

    free = case >= FEASIBLE
    lam = jnp.where(free, jnp.sqrt(q / (2.0 * delta)), lam_cut)
    nu = jnp.where(free, 0.0, nu_cut)
    recovery = case == RECOVERY
    lam = jnp.where(recovery, 0.0, lam)
    nu = jnp.where(recovery, jnp.sqrt(2.0 * delta / (s + TINY)), nu)
    return Dual(lam, nu, case)


class Step(NamedTuple):
    x: jax.Array  # (P,) the proposed change of the parameters
    case: jax.Array
    lam: jax.Array
    nu: jax.Array


def constrained_step(
    product: Product, g: jax.Array, b: jax.Array, c: jax.Array, delta: float, iterations: int
) -> Step:
    """Return the step x of the problem above; in the recovery case the one down in cost."""
    v = conjugate_gradient(product, g, iterations)
    w = conjugate_gradient(product, b, iterations)
    lam, nu, case = solve_dual(v @ g, v @ b, w @ b, c, delta)
    towards = (v - nu * w) / (lam + TINY)
    return Step(jnp.where(case == RECOVERY, -nu * w, towards), case, lam, nu)


class Trial(NamedTuple):
    """What the line search asks of a policy, measured on the batch."""

    reward: jax.Array  # surrogate advantage
    cost: jax.Array  # surrogate cost advantage
    kl: jax.Array


def line_search(
    measure: Callable[[jax.Array], Trial],
    flat: jax.Array,
    step: Step,
    c: jax.Array,
    delta: float,
    backtrack: float,
    tries: int,
) -> tuple[jax.Array, jax.Array, Trial]:
    """Return parameters, share and trial of the first shrinking step that keeps its promises.

    KL within the limit; cost not above what the limit leaves (if above the limit: not higher than
    before); reward not lower, unless the cost had to come down first. A KL or surrogate that is not
    finite counts as too large.
    """
    old = measure(flat)
    allowed = jnp.maximum(-c, 0.0)
    may_lose = step.case <= INFEASIBLE

    def accepted(trial: Trial) -> jax.Array:
        finite = jnp.isfinite(trial.kl) & jnp.isfinite(trial.reward) & jnp.isfinite(trial.cost)
        # NaN compares as False
        better = may_lose | (trial.reward >= old.reward)
        return finite & (trial.kl <= delta) & (trial.cost - old.cost <= allowed) & better

    def body(carry: Any) -> Any:
        count, share, _, _, _ = carry
        share = jnp.where(count == 0, share, share * backtrack)
        moved = flat + share * step.x
        trial = measure(moved)
        return count + 1, share, moved, trial, accepted(trial)

    def unfinished(carry: Any) -> jax.Array:
        return (carry[0] < tries) & ~carry[4]

    start = (jnp.int32(0), jnp.ones((), flat.dtype), flat, old, jnp.zeros((), bool))
    _, share, moved, trial, success = jax.lax.while_loop(unfinished, body, start)
    kept = jax.tree.map(lambda new, before: jnp.where(success, new, before), trial, old)
    return jnp.where(success, moved, flat), jnp.where(success, share, 0.0), kept
