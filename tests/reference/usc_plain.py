"""One whole update of USC, read top to bottom: no parts, no custom gradients, no sampling tricks.

The first thing to read, and the oracle of the fast update: `safety_critic.update` with
`conservative_gradient="exact"`, `conservative_share=1`, `curvature_every=1`, `curvature_refresh=1`
equals it to rounding (tests/reference/test_usc_plain.py). Everything else is at its default: one
safety critic with clipped output, a band margin, the replay buffer as reference of the influence.

Notation: B samples, m alternatives, n refined samples, K neighbours; s, a are observation and
action, `near` the observation as the safety critic sees it: lidars raised to a power stand out.
"""

import jax
import jax.numpy as jnp
import optax


def mlp(params, x):
    for layer in params[:-1]:
        x = jax.nn.relu(x @ layer["w"] + layer["b"])
    return x @ params[-1]["w"] + params[-1]["b"]


def reward_critic(params, s, a):
    """Q_R, whose hidden layers are normalised: mean 0 and variance 1 over the units."""
    x = jnp.concatenate([s, a], axis=-1)
    for layer in params[:-1]:
        x = x @ layer["w"] + layer["b"]
        x = (x - x.mean(axis=-1, keepdims=True)) / jnp.sqrt(x.var(axis=-1, keepdims=True) + 1e-5)
        x = jax.nn.relu(layer["g"] * x + layer["o"])
    return (x @ params[-1]["w"] + params[-1]["b"])[..., 0]


def actor(params, s):
    return jnp.tanh(mlp(params, s))


def critic(params, s, a):
    return mlp(params, jnp.concatenate([s, a], axis=-1))[..., 0]


def scaled(scaler, s, c):
    """The observation and, behind it, its lidars raised to a power; all by mean and spread."""
    lidars = jnp.clip(s[..., scaler.closeness], 0.0, 1.0)
    x = jnp.concatenate([s, lidars**c.sharpening], axis=-1)
    spread = jnp.sqrt(jnp.maximum(scaler.var, 1e-4))
    return jnp.clip((x - scaler.mean) / spread, -10.0, 10.0)


def sharpened(scaler, s, c):
    """The same with the plain observation made small beside the raised lidars."""
    x = scaled(scaler, s, c)
    return x.at[..., : s.shape[-1]].multiply(c.sharpening_gain)


def size(unit):
    """The unit of a signal: E[G^2] / E[|G|], the typical discounted sum where there is any."""
    return unit.square / unit.size


def adam(params, gradient, opt, lr):
    updates, opt = optax.adam(lr).update(gradient, opt)
    return optax.apply_updates(params, updates), opt


def influence(params, near, a, curvature, c):
    """Eq. 1: u = g^T (B C + g g^T + dI)^-1 g, C the running mean of g g^T, g by the last layer."""
    x = jnp.concatenate([near, a], axis=-1)
    for layer in params[:-1]:
        x = jax.nn.relu(x @ layer["w"] + layer["b"])
    z = (x @ params[-1]["w"] + params[-1]["b"])[:, 0]
    slope = jax.nn.sigmoid(c.output_sharpness * z)  # of softplus(k z) / k, Q_C made smooth
    g = slope[:, None] * jnp.concatenate([x, jnp.ones((len(x), 1))], axis=-1)
    rate = 1.0 - c.influence.curvature_decay
    moment = (1.0 - rate) * curvature.moment + rate * g.T @ g / len(g)
    weight = (1.0 - rate) * curvature.weight + rate
    total = len(g) * moment / weight
    ridge = c.influence.replay_damping * jnp.trace(total) / len(total)
    v = jnp.sum(g * jnp.linalg.solve(total + ridge * jnp.eye(len(total)), g.T).T, axis=-1)
    q = jax.nn.softplus(c.output_sharpness * z) / c.output_sharpness
    return q, v / (1.0 + v), curvature._replace(moment=moment, weight=weight)


def margin(z_data, z_alt, z_top):
    """Eq. 3, the band: alternatives up while they look safer, down above the batch's largest."""
    m = z_alt.shape[-1]
    hinge = jnp.maximum(jax.nn.logsumexp(-z_alt, axis=-1) - jnp.log(m) + z_data, 0.0)
    return hinge + jnp.maximum(jax.nn.logsumexp(z_alt, axis=-1) - jnp.log(m) - z_top, 0.0)


def neighbours(store, start, rows, points, see, c):
    """Eq. 8: the K nearest rows of the candidates to each of the n points, one point at a time."""
    r, reach = c.refinement, c.refinement.refine_reach
    block = start + jnp.arange(min(r.refine_block, len(store.cost)))
    places, distances = [], []
    for row, point in zip(rows, points, strict=True):
        candidates = jnp.concatenate([row + jnp.arange(-reach, reach + 1), block])
        own = jnp.abs(block - row) <= reach  # counted once, in the first part
        usable = (candidates >= 0) & (candidates < store.size) & (candidates != row)
        usable &= jnp.concatenate([jnp.ones(2 * reach + 1, bool), ~own])
        usable &= ~(candidates[:, None] == rows).any(axis=1)  # only confident neighbours
        at = jnp.where(usable, candidates, 0)
        x = jnp.concatenate([see(store.obs[at]), store.action[at]], axis=-1)
        distance = jnp.where(usable, jnp.sqrt(jnp.sum((x - point) ** 2, axis=-1)), jnp.inf)
        order = jnp.argsort(distance)[: r.refine_neighbours]
        places.append(at[order])
        distances.append(distance[order])
    return jnp.stack(places), jnp.stack(distances)


def costs_ahead(store, row, c):
    """The last row of a window of `safety_n_step` steps, its discounted cost, and its discount.

    It ends with the episode and with the newest row.
    """
    last, cost, discount = row, store.cost[row], jnp.full(row.shape, c.gamma)
    running = jnp.ones(row.shape, bool)
    for step in range(1, c.safety_n_step):
        running &= ~(store.terminated[last] | store.truncated[last]) & (row + step < store.size)
        last = jnp.where(running, row + step, last)
        cost = cost + jnp.where(running, discount * store.cost[last], 0.0)
        discount = jnp.where(running, discount * c.gamma, discount)
    return last, cost, discount


def update(state, batch, c):
    """Algorithm 1, lines 13 to 31; `c` are the settings."""
    s, near = scaled(state.scaler, batch.obs, c), sharpened(state.scaler, batch.obs, c)
    a, cost_unit = batch.action, size(state.units.cost)
    safety, target_safety = state.safety[0], state.target_safety[0]
    key, key_actions, _ = jax.random.split(state.key, 3)

    # Eq. 1 and 2: influence and caution
    q, u, curvature = influence(safety, near, a, state.curvature[0], c)
    caution = jnp.log1p(u) * (1.0 + (q > q.mean()))

    # Eq. 3 and 4: the safety critic
    next_s = scaled(state.scaler, batch.cost_next_obs, c)
    next_near = sharpened(state.scaler, batch.cost_next_obs, c)
    q_next = critic(target_safety, next_near, actor(state.target_actor, next_s))
    y = own = batch.cost / cost_unit + batch.cost_discount * jnp.maximum(q_next, 0.0)
    shape = (len(a), c.conservative.alternatives, a.shape[-1])
    others = jax.random.uniform(key_actions, shape, jnp.float32, -1.0, 1.0)

    def safety_loss(params):
        q = critic(params, near, a)
        q_alt = critic(params, jnp.repeat(near[:, None], shape[1], axis=1), others)
        fixed = jax.lax.stop_gradient(q)
        mu, sigma = fixed.mean(), fixed.std() + c.conservative.sigma_epsilon
        z = (fixed - mu) / sigma
        conservative = margin(z, (q_alt - mu) / sigma, z.max())
        weight = c.conservative.conservative_weight
        return jnp.mean(0.5 * (q - y) ** 2 + weight * 0.5 * caution * conservative)

    safety, safety_opt = adam(
        (safety,), (jax.grad(safety_loss)(safety),), state.safety_opt, c.safety_lr
    )
    safety = safety[0]

    # The reward critic
    next_s = scaled(state.scaler, batch.next_obs, c)
    q_next = reward_critic(state.target_reward[0], next_s, actor(state.target_actor, next_s))
    y = batch.reward / size(state.units.reward) + batch.discount * q_next
    gradient = jax.grad(lambda p: 0.5 * jnp.mean((reward_critic(p[0], s, a) - y) ** 2))
    reward, reward_opt = adam(state.reward, gradient(state.reward), state.reward_opt, c.critic_lr)

    # Eq. 5 and 6: the actor
    def actor_loss(params):
        action = actor(params, s)
        q_cost = jnp.maximum(critic(safety, near, action), 0.0)
        distance = jnp.sum((action - actor(state.target_actor, s)) ** 2, axis=-1)
        kl = distance / (2.0 * c.kl_sigma**2)
        return jnp.mean(
            -reward_critic(reward[0], s, action) + state.multiplier * q_cost + c.kl_weight * kl
        )

    policy, actor_opt = adam(
        state.actor, jax.grad(actor_loss)(state.actor), state.actor_opt, c.actor_lr
    )

    # Eq. 8: what the neighbours of the most uncertain samples say
    r, store = c.refinement, batch.neighbours.store
    top = jnp.argsort(-u, stable=True)[: r.refine_top]
    points = jnp.concatenate([near[top], a[top]], axis=-1)
    at, distance = neighbours(
        store,
        batch.neighbours.start,
        batch.index[top],
        points,
        lambda obs: sharpened(state.scaler, obs, c),
        c,
    )
    last, cost, discount = costs_ahead(store, at, c)
    next_s = scaled(state.scaler, store.next_obs[last], c)
    next_near = sharpened(state.scaler, store.next_obs[last], c)
    q_next = jnp.maximum(critic(target_safety, next_near, actor(state.target_actor, next_s)), 0.0)
    final = store.terminated[last] & store.success[last]  # costs go on after a failure
    y = cost / cost_unit + discount * (1.0 - final) * q_next
    weights = 1.0 / jnp.maximum(distance, 1e-6)  # 0 where there is no neighbour
    y = jnp.sum(weights / weights.sum(axis=-1, keepdims=True) * y, axis=-1)
    y = r.refine_own * own[top] + (1.0 - r.refine_own) * y

    # Eq. 9 and 10: refinement, a plain gradient step
    q_old = critic(target_safety, near[top], a[top])

    def refinement_loss(params):
        q = critic(params, near[top], a[top])
        kl = 0.5 * (q - q_old) ** 2
        far = jnp.maximum(kl - r.refine_epsilon, 0.0)
        return jnp.mean(0.5 * (q - y) ** 2 + r.refine_beta * far**2)

    gradient = jax.grad(refinement_loss)(safety)
    length = optax.tree.norm(gradient)
    factor = r.refine_lr * jnp.minimum(1.0, r.refine_clip / length)
    safety = jax.tree.map(lambda p, g: p - factor * g, safety, gradient)

    # Targets follow
    return state._replace(
        actor=policy,
        reward=reward,
        safety=(safety,),
        target_actor=optax.incremental_update(policy, state.target_actor, c.tau),
        target_reward=optax.incremental_update(reward, state.target_reward, c.tau),
        target_safety=optax.incremental_update((safety,), state.target_safety, c.safety_tau),
        actor_opt=actor_opt,
        reward_opt=reward_opt,
        safety_opt=safety_opt,
        curvature=(curvature,),
        key=key,
        step=state.step + 1,
    )
