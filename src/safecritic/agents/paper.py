"""Algorithm 1 of the paper in plain code: DDPG, SC, CSC, USC (NR) and USC. Start reading here.

Paper: Bethell, Gerasimou, Calinescu, Imrie, "Safe But Not Sorry: Reducing Over-Conservatism in
Safety Critics via Uncertainty-Aware Modulation", AAMAS 2026. Without `refinement` this is USC (NR),
without `influence` as well CSC, its alternatives `near_policy`, without `conservative` SC, without
`safety_critic` DDPG. Where `agents/usc.py`, which works better, reads an equation differently, both
readings stand side by side, as printed and as used; `as_used` chooses. Acting and Eq. 7 are as
printed in both. Two things cannot be: against the parameters of one step ago the gradients of the
distances in Eq. 5 and 9 vanish, so the old policy and the old prediction are the target networks';
and neighbours are searched around a sample and in a random block of the replay.
"""

from dataclasses import dataclass
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax
from jax import Array

from safecritic.core import networks, replay, scaling, settings
from safecritic.core.interface import Carry, EnvSpec, Metrics
from safecritic.core.networks import Members, Params, adam_step, join, ornstein_uhlenbeck
from safecritic.core.refinement import find_neighbours
from safecritic.core.replay import Batch, Transition
from safecritic.core.settings import OffPolicySettings

# Numbers that the paper does not give
NOISE_PULL = 0.15  # pull of the exploration noise to 0, per decision
STD = 0.2  # of the policy in the KL of Eq. 5, and of noise around an action
ALTERNATIVES, CANDIDATES = 8, 16  # m of Eq. 3, N of Algorithm 1
TOP, NEIGHBOURS = 8, 5  # n and K of Eq. 8
BETA, EPSILON = 1.0, 1e-2  # weight and size of the trust region of Eq. 9
SHARPNESS, DECAY = 5.0, 0.999  # as used: of the softplus for the clip of Q_C, of C in Eq. 1
OWN, LONGEST = 0.5, 1.0  # as used: weight of a sample's own target, largest gradient of Eq. 10


@dataclass(frozen=True, kw_only=True)
class PaperSettings(OffPolicySettings):
    """The paper's numbers; where it gives none, ours."""

    POSITIVE = ("safety_lr", "damping", "cost_steps")
    NOT_NEGATIVE = ("conservative_weight", "kl_weight", "multiplier_lr", "tolerance")

    as_used: bool = False  # read inputs, targets, Eq. 1, 3 and 8 to 10 as usc does, not as printed
    safety_critic: bool = True  # learn what an action will cost
    conservative: bool = True  # second term of Eq. 3
    near_policy: bool = False  # take its alternatives near the policy's action, not from the box
    influence: bool = True  # Eq. 1 and 2; without it every sample has weight 1
    refinement: bool = True  # Eq. 8 to 10
    screen: bool = True  # Algorithm 1, lines 6 to 9
    actor_lr: float = 2e-3  # step size of the actor
    safety_lr: float = 1e-3  # step size of the safety critic in Eq. 4 and 10
    damping: float = 1e-6  # d of Eq. 1; as used relative to the mean curvature
    conservative_weight: float = 1e-3  # alpha, taken to be the weight of Eq. 3's second term
    kl_weight: float = 1e-6  # delta of Eq. 5
    multiplier_lr: float = 1e-3  # step size of Eq. 7; not printed
    tolerance: float = 0.3  # Q_C above which an action is replaced
    cost_steps: int = 1  # steps of cost in the targets of Q_C
    costly_share: float = 0.0  # share of a batch drawn among transitions with cost > 0

    @property
    def neighbour_block(self) -> int:
        return settings.BLOCK if self.refinement else 0

    def check(self, prefix: str = "") -> None:
        super().check(prefix)
        if self.refinement and not self.influence:
            raise ValueError("refinement needs the influence (--no-influence, --no-refinement)")


class State(NamedTuple):
    actor: Params
    reward: Members  # one network, as in the states of the other agents
    safety: Members
    target_actor: Params
    target_reward: Members
    target_safety: Members
    actor_opt: Any
    reward_opt: Any
    safety_opt: Any
    multiplier: Array
    curvature: tuple[Array, Array]  # of Eq. 1 as used: running mean of g g^T, its weight so far
    scaler: scaling.Scaler
    units: scaling.Units  # in which reward and cost are counted; 1 as printed
    noise: Array
    key: Array
    step: Array


def inputs(state: State, obs: Array, config: PaperSettings) -> tuple[Array, Array]:
    """Return what actor and Q_R see, and what Q_C sees; as printed the observation."""
    if not config.as_used:
        return obs, obs
    return scaling.inputs(state.scaler, obs), scaling.critic_inputs(state.scaler, obs)


def q_cost(safety: Members, near: Array, action: Array, config: PaperSettings) -> Array:
    """Return Q_C; as used it is never negative, but its own losses see the raw output."""
    q = networks.critic(safety[0], near, action)
    return jnp.maximum(q, 0.0) if config.as_used else q


def influence_printed(state: State, x: Array, damping: float) -> tuple[Array, Array, State]:
    """Eq. 1 as printed: u and 1 - u (B,), which is tiny; the batch x (B, in) is the reference.

    With G the samples' gradients by all parameters u is diag(K (K + d I)^-1), K = G G^T. To K a
    layer with inputs A and gradients D at its outputs adds (A A^T + 1) * (D D^T).
    """
    layers, layer_inputs = state.safety[0], [x]
    for layer in layers[:-1]:
        layer_inputs.append(jax.nn.relu(layer_inputs[-1] @ layer["w"] + layer["b"]))
    k, d = jnp.zeros((), jnp.float32), jnp.ones((len(x), 1), jnp.float32)
    for layer, a in zip(reversed(layers), reversed(layer_inputs), strict=True):
        k = k + (a @ a.T + 1.0) * (d @ d.T)
        d = (d @ layer["w"].T) * (a > 0)
    sizes, vectors = jnp.linalg.eigh(k)
    sizes = jnp.where(sizes > 4e-7 * sizes[-1], sizes, 0.0)  # below it float32 has no digits
    rest = jnp.sum(vectors**2 * damping / (sizes + damping), axis=-1)
    return 1.0 - rest, rest, state


def influence_used(state: State, x: Array, damping: float) -> tuple[Array, Array, State]:
    """Eq. 1 as used: u = g^T (B C + g g^T + d I)^-1 g, C the mean of g g^T over the replay.

    g are the gradients of Q_C by the last layer. Returns u, 1 - u and the state with C.
    """
    z, features = networks.forward_inputs(state.safety[0], x)
    g = jax.nn.sigmoid(SHARPNESS * z) * join(features, jnp.ones_like(z))
    moment = DECAY * state.curvature[0] + (1.0 - DECAY) * g.T @ g / len(g)
    weight = DECAY * state.curvature[1] + (1.0 - DECAY)
    reference = len(g) * moment / weight
    ridge = damping * jnp.trace(reference) / len(reference) * jnp.eye(len(reference), dtype=g.dtype)
    v = jnp.sum(g.T * jnp.linalg.solve(reference + ridge, g.T), axis=0)
    return v / (1.0 + v), 1.0 / (1.0 + v), state._replace(curvature=(moment, weight))


def uncertainty_weight(u: Array, q: Array) -> Array:
    """Eq. 2: u~ = log(1 + u) (1 + [Q_C above the batch's mean])."""
    return jnp.log1p(u) * (1.0 + (q > q.mean()))


def safety_loss_printed(q: Array, others: Array, y: Array, weight: Array, alpha: float) -> Array:
    """Eq. 3 as printed: mean of 1/2 (Q_C - y)^2 + alpha 1/2 u~ (LSE(z of alternatives) - z)."""
    mu, sigma = jax.lax.stop_gradient((q.mean(), q.std() + 1e-6))
    z, z_others = (q - mu) / sigma, (others - mu) / sigma
    margin = jax.nn.logsumexp(z_others, axis=-1) - z
    return jnp.mean(0.5 * (q - y) ** 2 + alpha * 0.5 * weight * margin)


def safety_loss_used(q: Array, others: Array, y: Array, weight: Array, alpha: float) -> Array:
    """Eq. 3 as used: alternatives go up while they look safer, down above the largest z of data."""
    mu, sigma = jax.lax.stop_gradient((q.mean(), q.std() + 1e-2))
    z, z_others = jax.lax.stop_gradient((q - mu) / sigma), (others - mu) / sigma
    log_m = jnp.log(jnp.float32(others.shape[-1]))
    look_safer = jax.nn.relu(jax.nn.logsumexp(-z_others, axis=-1) - log_m + z)
    above_all = jax.nn.relu(jax.nn.logsumexp(z_others, axis=-1) - log_m - z.max())
    return jnp.mean(0.5 * (q - y) ** 2 + alpha * 0.5 * weight * (look_safer + above_all))


def actor_loss(q_reward: Array, q_cost: Array, moved: Array, lam: Array, delta: float) -> Array:
    """Eq. 5: mean of -Q_R + lambda Q_C + delta KL, KL = |pi - pi_old|^2 / (2 sigma^2)."""
    kl = jnp.sum(moved**2, axis=-1) / (2.0 * STD**2)
    return jnp.mean(-q_reward + lam * q_cost + delta * kl)


def interpolate(values: Array, distance: Array, valid: Array) -> Array:
    """Eq. 8: sum_k w_k c_k with w_k proportional to 1 / distance (n, K)."""
    weights = valid / jnp.maximum(distance, 1e-6)
    return jnp.sum(weights * values, axis=-1) / jnp.maximum(weights.sum(axis=-1), 1e-30)


def refinement_loss(q: Array, target: Array, old: Array, valid: Array) -> Array:
    """Eq. 9: mean of 1/2 (Q_C - c^)^2 + beta max(0, KL - eps)^2, KL = (Q_C - Q_C_old)^2 / 2."""
    far = jnp.maximum(0.5 * (q - old) ** 2 - EPSILON, 0.0)
    each = 0.5 * (q - target) ** 2 + BETA * far**2
    return jnp.sum(valid * each) / jnp.maximum(valid.sum(), 1)


def next_q(state: State, seen: Array, config: PaperSettings) -> tuple[Array, Array]:
    """Return Q_R and Q_C of the target networks for observations that followed."""
    obs, near = inputs(state, seen, config)
    action = networks.actor(state.target_actor, obs)
    q_reward = networks.critic(state.target_reward[0], obs, action)
    return q_reward, q_cost(state.target_safety, near, action, config)


def adam(state: State, name: str, loss: Any, lr: float) -> tuple[State, Array]:
    """Eq. 4 and 6: a step of Adam on one of the networks. Returns the loss as well."""
    value, gradient = jax.value_and_grad(loss)(getattr(state, name))
    params, opt = adam_step(getattr(state, name), gradient, getattr(state, f"{name}_opt"), lr)
    return state._replace(**{name: params, f"{name}_opt": opt}), value


def update(state: State, batch: Batch, config: PaperSettings) -> tuple[State, Metrics]:
    """Algorithm 1, lines 12 to 31: one step of Q_C, Q_R and the actor, refinement, targets."""
    sizes = scaling.unit_sizes(state.units)
    batch = scaling.in_units(batch, sizes)
    action, (obs, near) = batch.action, inputs(state, batch.obs, config)
    key, key_others = jax.random.split(state.key)
    metrics = {"dual/multiplier": state.multiplier}

    # Lines 13 to 19: the safety critic
    seen = batch.next_obs if batch.cost_next_obs is None else batch.cost_next_obs
    y = batch.cost + batch.cost_discount * next_q(state, seen, config)[1]
    weight = jnp.ones_like(y)
    if config.influence:
        eq_1 = influence_used if config.as_used else influence_printed
        u, rest, state = eq_1(state, join(near, action), config.damping)
        q = networks.critic(state.safety[0], near, action)
        weight = uncertainty_weight(u, jax.nn.softplus(SHARPNESS * q) if config.as_used else q)
    shape = (len(y), ALTERNATIVES, action.shape[-1])
    others = jax.random.uniform(key_others, shape, jnp.float32, -1.0, 1.0)
    if config.near_policy:
        noise = STD * jax.random.normal(key_others, shape, jnp.float32)
        others = jnp.clip(networks.actor(state.actor, obs)[:, None] + noise, -1.0, 1.0)
    eq_3 = safety_loss_used if config.as_used else safety_loss_printed
    alpha = config.conservative_weight if config.conservative else 0.0

    def safety_loss(safety: Members) -> Array:
        q = networks.critic(safety[0], near, action)
        return eq_3(q, networks.critic_of_many(safety[0], near, others), y, weight, alpha)

    if config.safety_critic:
        state, metrics["safety/loss"] = adam(state, "safety", safety_loss, config.safety_lr)
        metrics |= {"safety/uncertainty_weight": weight.mean(), "safety/target_mean": y.mean()}

    # Lines 20 and 21: the reward critic
    y_reward = batch.reward + batch.discount * next_q(state, batch.next_obs, config)[0]

    def reward_loss(reward: Members) -> Array:
        return 0.5 * jnp.mean((networks.critic(reward[0], obs, action) - y_reward) ** 2)

    state, metrics["reward/loss"] = adam(state, "reward", reward_loss, config.critic_lr)

    # Lines 22 and 23: the actor
    def policy_loss(actor: Params) -> Array:
        action = networks.actor(actor, obs)
        q_reward = networks.critic(state.reward[0], obs, action)
        cost = q_cost(state.safety, near, action, config)
        moved = action - networks.actor(state.target_actor, obs)
        return actor_loss(q_reward, cost, moved, state.multiplier, config.kl_weight)

    state, metrics["actor/loss"] = adam(state, "actor", policy_loss, config.actor_lr)

    # Lines 24 to 30: refinement of the samples of least 1 - u
    if config.refinement and batch.neighbours is not None:
        top = jnp.argsort(rest, stable=True)[:TOP]
        near, action, (store, start) = near[top], action[top], batch.neighbours
        rows, points = batch.index[top], join(near, action)
        found = find_neighbours(
            store, start, rows, points, lambda seen: inputs(state, seen, config)[1], NEIGHBOURS
        )
        end = replay.n_step(store, found.rows.ravel(), config.cost_steps, config.gamma, "cost")
        cost, share = end.total / sizes.cost, OWN if config.as_used else 0.0
        if config.as_used:
            cost += end.discount * next_q(state, end.next_obs, config)[1]
        known = interpolate(cost.reshape(found.valid.shape), found.distance, found.valid)
        target = share * y[top] + (1.0 - share) * known
        old = networks.critic(state.target_safety[0], near, action)

        def loss(safety: Members) -> Array:
            q = networks.critic(safety[0], near, action)
            return refinement_loss(q, target, old, found.valid.any(axis=-1))

        gradient, lr = jax.grad(loss)(state.safety), jnp.float32(config.safety_lr)
        if config.as_used:
            lr *= jnp.minimum(1.0, LONGEST / optax.tree.norm(gradient))
        refined = jax.tree.map(lambda p, g: p - lr * g, state.safety, gradient)  # Eq. 10
        state, metrics["refine/target_mean"] = state._replace(safety=refined), target.mean()

    for name in ("actor", "reward", "safety"):
        pair = getattr(state, name), getattr(state, f"target_{name}")
        state = state._replace(**{f"target_{name}": optax.incremental_update(*pair, config.tau)})
    return state._replace(key=key, step=state.step + 1), scaling.in_task_units(metrics, sizes)


def policy(state: State, obs: Array, config: PaperSettings, explore: bool = False) -> Array:
    return networks.actor(state.actor, inputs(state, obs, config)[0])


def act(
    state: State, obs: Array, cost_so_far: Array, config: PaperSettings, explore: bool
) -> tuple[Array, Carry, Metrics]:
    """Algorithm 1, lines 5 to 9: the action (A,) for one observation."""
    key, key_noise, key_others = jax.random.split(state.key, 3)
    action, noise = policy(state, obs[None], config)[0], state.noise
    if explore:
        noise = ornstein_uhlenbeck(noise, key_noise, config.noise_sigma, NOISE_PULL)
        action = jnp.clip(action + noise, -1.0, 1.0)
    if not config.safety_critic:
        return action, {"key": key, "noise": noise}, {}
    others = action + STD * jax.random.normal(key_others, (CANDIDATES, len(action)), jnp.float32)
    actions = jnp.concatenate([action[None], jnp.clip(others, -1.0, 1.0)])
    near = jnp.tile(inputs(state, obs, config)[1], (len(actions), 1))
    q = scaling.unit_sizes(state.units).cost * q_cost(state.safety, near, actions, config)
    screened = config.screen & (q[0] > config.tolerance)
    best = jnp.where(screened, jnp.argmin(q), 0)
    info = {"q_cost": q[best], "screened": screened, "changed": best > 0}
    info |= {"proposed": action, "q_proposed": q[0]}
    return actions[best], {"key": key, "noise": noise}, info


def observe(state: State, transition: Transition, config: PaperSettings) -> State:
    if config.as_used:
        units = scaling.units_update(state.units, transition, config.gamma)
        state = state._replace(units=units)
    return state._replace(scaler=scaling.scaler_update(state.scaler, transition.obs))


def end_episode(
    state: State, episode_cost: Array, decisions: Array, config: PaperSettings
) -> tuple[State, Metrics]:
    """Eq. 7: lambda <- max(0, lambda - eta_lambda (limit - C)), C the episode's cost."""
    lam = state.multiplier - config.multiplier_lr * (config.cost_limit - episode_cost)
    lam = config.safety_critic * jnp.maximum(0.0, lam).astype(jnp.float32)
    return state._replace(multiplier=lam, noise=0.0 * state.noise), {"dual/multiplier": lam}


def init(key: Array, spec: EnvSpec, config: PaperSettings) -> State:
    """Algorithm 1, line 1."""
    key, key_actor, key_reward, key_safety = jax.random.split(key, 4)
    if not config.as_used:
        spec = spec._replace(proximity=())  # no inputs but the observation
    size, width = scaling.input_size(spec), config.hidden[-1] + 1
    joint = (size + spec.action_dim, *config.hidden, 1)
    actor = networks.init(key_actor, (size, *config.hidden, spec.action_dim))
    reward = networks.init_members(key_reward, joint, 1, normalise=config.as_used)
    safety = networks.init_members(key_safety, joint, 1)
    online = (actor, reward, safety)
    copies: tuple[Params, Members, Members] = jax.tree.map(jnp.copy, online)
    actor_opt, reward_opt, safety_opt = (optax.adam(1.0).init(params) for params in online)
    lam, step = jnp.float32(config.safety_critic), jnp.zeros((), jnp.int32)
    curvature = (jnp.zeros((width, width), jnp.float32), jnp.zeros((), jnp.float32))
    scales = (scaling.scaler_init(spec), scaling.units_init())
    rest: Any = (lam, curvature, *scales, jnp.zeros(spec.action_dim, jnp.float32), key, step)
    return State(*online, *copies, actor_opt, reward_opt, safety_opt, *rest)


def values(state: State, obs: Array, action: Array, config: PaperSettings) -> Metrics:
    """Return Q_R and Q_C in the task's units and, if there is one, the influence."""
    seen, near = inputs(state, obs, config)
    sizes = scaling.unit_sizes(state.units)
    found = {"q_reward": sizes.reward * networks.critic(state.reward[0], seen, action)}
    if config.safety_critic:
        found["q_cost"] = sizes.cost * q_cost(state.safety, near, action, config)
    if config.influence:
        eq_1 = influence_used if config.as_used else influence_printed
        found["influence"] = eq_1(state, join(near, action), config.damping)[0]
    return found
