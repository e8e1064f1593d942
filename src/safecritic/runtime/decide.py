"""THE decision (Algorithm 1, lines 4 to 9), written once: NumPy, JAX and the ONNX graph run it.

    observation -> inputs -> proposed action -> Q_C of it and of K candidates -> the action taken

`xp` is an array module of the Python array API: `numpy` on a robot, `jax.numpy` in training,
`ndonnx` while the graph of a policy file is traced. Everything is over N rows; a network is a
sequence of layers {"w", "b"}, normalised if it has a gain "g" and an offset "o" besides.
"""

import itertools
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

Array = Any
Layers = Sequence[Mapping[str, Any]]

CLIP = 10.0  # scaled inputs stay within +-10 stds
# Between two of these a proximity input is seen as a ramp of its own. Of a lidar that reaches 3 m
# they are 1.8, 0.9, 0.45, 0.22 and 0 m.
EDGES = (0.4, 0.7, 0.85, 0.925, 1.0)
RAMPS = len(EDGES) - 1
GAIN = 0.3  # of the plain inputs of a safety critic, so that what is near stands out
NORM_EPSILON = 1e-5  # of a normalised layer
# Share of the tolerance that is left with the budget spent; with 0 the screen would take the place
# of the policy for the rest of the episode.
SPENT = 0.5
SHARPNESS = 5.0  # of the softplus that stands for the clip of Q_C where a slope is needed
LARGEST_EXPONENT = 80.0  # float32 overflows beyond 88


class Network(NamedTuple):
    """What a policy decides with; None for what its method does not have."""

    actor: Layers = ()
    activation: str = "relu"  # between the actor's layers: "relu" or "tanh"
    squash: str = "tanh"  # behind them: "tanh" or "clip"
    mean: Array = None  # (I,) of the inputs; None: they are not scaled
    std: Array = None  # (I,)
    near: Array = None  # (L,) places of the proximity inputs in the observation
    gains: Array = None  # (I,) of the safety critic's inputs; None: it sees them as they are
    safety: Layers | None = None
    clipped: bool = True  # Q_C cannot be negative
    cost_unit: Any = 1.0  # of Q_C
    whitener: Array = None  # (P, P) of the influence (Eq. 1)
    reward: Layers | None = None  # None: the screen takes the least Q_C
    candidates: Array = None  # (K, A); None: there is no screen
    around: bool = False  # candidates are offsets from the proposed action
    tolerance: Any = 0.0  # Q_C that the screen lets through with the whole budget left
    budget: bool = True  # the tolerance falls with the remaining budget
    price: Any = 1.0  # of Q_C in Q_R where nothing is within the tolerance
    limit: float = 0.0  # budget of an episode


class Choice(NamedTuple):
    """What was decided for N rows; None for what is not known. Q_C is in the agent's units."""

    action: Array  # (N, A) in [-1, 1]
    proposed: Array  # (N, A) the actor's own
    q_cost: Array = None  # (N,) of the action
    q_proposed: Array = None  # (N,)
    influence: Array = None  # (N,) u of Eq. 1, of the action
    screened: Array = None  # (N,) whether the proposed action exceeded the tolerance
    changed: Array = None  # (N,) whether another one was taken


def always(screened: Array, then: Callable[[], Array], otherwise: Array) -> Array:
    """Return `then()`, which equals `otherwise` in rows that are not screened."""
    return then()


# Inputs


def widen(xp: Any, obs: Array, near: Array) -> Array:
    """Return observations (..., O) with RAMPS ramps of their proximity inputs behind them.

    A lidar changes by hundredths where a hazard begins; the ramp clip((c - low) / (high - low))
    spreads one range of distances over [0, 1].
    """
    if near is None or near.shape[0] == 0:
        return obs
    close = xp.take(obs, near, axis=-1)
    edges = itertools.pairwise(EDGES)
    ramps = [xp.minimum(xp.maximum((close - a) / (b - a), 0.0), 1.0) for a, b in edges]
    return xp.concat([obs, *ramps], axis=-1)


def inputs(xp: Any, obs: Array, near: Array, mean: Array, std: Array) -> Array:
    """Return what actor and reward critic see, (..., I): scaled by running mean and std."""
    x = widen(xp, obs, near)
    if mean is None:
        return x
    return xp.minimum(xp.maximum((x - mean) / std, -CLIP), CLIP)


def critic_gains(xp: Any, size: int, near: int) -> Array:
    """Return the factors (I,) of a safety critic's inputs: ramps of `near` of them stand out."""
    plain = xp.full(size - RAMPS * near, GAIN if near else 1.0, dtype=xp.float32)
    return xp.concat([plain, xp.ones(RAMPS * near, dtype=xp.float32)])


# Networks


def relu(xp: Any, x: Array) -> Array:
    return xp.maximum(x, 0.0)


def normalise(xp: Any, sums: Array, layer: Mapping[str, Any]) -> Array:
    """Return a layer's sums (..., out), bias included, normalised if it has a gain."""
    if "g" not in layer:
        return sums
    if "centred" not in layer:  # the mean over the units is still in the weights
        sums = sums - xp.mean(sums, axis=-1, keepdims=True)
    var = xp.expand_dims(xp.vecdot(sums, sums), axis=-1) / layer["b"].shape[0]
    return sums * (1.0 / xp.sqrt(var + NORM_EPSILON)) * layer["g"] + layer["o"]


def forward(xp: Any, layers: Layers, x: Array, activation: str) -> Array:
    """Return the outputs (N, out) of a network."""
    *hidden, last = layers
    for layer in hidden:
        sums = normalise(xp, xp.matmul(x, layer["w"]) + layer["b"], layer)
        x = xp.tanh(sums) if activation == "tanh" else relu(xp, sums)
    return xp.matmul(x, last["w"]) + last["b"]


def act(xp: Any, network: Network, x: Array) -> Array:
    """Return the actor's actions (N, A) in [-1, 1]."""
    out = forward(xp, network.actor, x, network.activation)
    return xp.tanh(out) if network.squash == "tanh" else xp.minimum(xp.maximum(out, -1.0), 1.0)


def values(xp: Any, layers: Layers, x: Array, actions: Array) -> tuple[Array, Array]:
    """Return a critic's raw values (N, K) of actions (N, K, A), and its last hidden layer."""
    first, *rest, last = layers
    size = x.shape[1]  # the state's share of the first layer is computed once for all K
    state = xp.matmul(x, first["w"][:size, :]) + first["b"]
    sums = state[:, None, :] + xp.matmul(actions, first["w"][size:, :])
    hidden = relu(xp, normalise(xp, sums, first))
    for layer in rest:
        sums = xp.matmul(hidden, layer["w"]) + layer["b"]
        hidden = relu(xp, normalise(xp, sums, layer))
    raw = xp.matmul(hidden, last["w"]) + last["b"]
    return raw[:, :, 0], hidden


def influence(xp: Any, hidden: Array, raw: Array, network: Network) -> Array:
    """Eq. 1: u = v / (1 + v) (N,), v = |W g|^2, g the gradient by the last layer's parameters.

    Where Q_C is clipped, g is that of a smooth clip: far below 0 it would be 0 otherwise.
    """
    weights, bias = network.whitener[:, :-1], network.whitener[:, -1]
    white = xp.matmul(hidden, xp.matrix_transpose(weights)) + bias
    outside = xp.vecdot(white, white)
    if network.clipped:
        exponent = xp.minimum(xp.maximum(-SHARPNESS * raw, -LARGEST_EXPONENT), LARGEST_EXPONENT)
        slope = 1.0 / (1.0 + xp.exp(exponent))
        outside = outside * slope * slope
    return outside / (1.0 + outside)


# The screen


def tolerance_left(xp: Any, tolerance: Any, remaining: Array, limit: float) -> Array:
    """Return the tolerance (N,) with a remaining budget (N,): once it is spent, SPENT of it."""
    if limit > 0.0:
        share = xp.minimum(xp.maximum(remaining / limit, 0.0), 1.0)
    else:
        share = xp.astype(remaining >= 0.0, xp.float32)
    return tolerance * (SPENT + (1.0 - SPENT) * share)


def best(
    xp: Any, q_cost: Array, q_reward: Array, tolerance: Array, price: Any, keep: Any = False
) -> Array:
    """Return the place (N,) of the best of K actions (N, K); the first is above the tolerance.

    It has the best Q_R within the tolerance, or else the best Q_R - price Q_C; with `keep` it is
    the first. Without a reward critic it has the least Q_C.
    """
    if q_reward is None:
        return xp.argmin(q_cost, axis=1)
    within = q_cost <= tolerance[:, None]
    place = xp.argmax(xp.where(within, q_reward, -xp.inf), axis=1)  # 0 if none is within
    otherwise = xp.argmax(q_reward - price * q_cost, axis=1)
    if keep is not False:
        otherwise = xp.where(keep, 0, otherwise)
    return xp.where(place == 0, otherwise, place)


def screen(
    xp: Any,
    network: Network,
    x: Array,
    proposed: Array,
    tolerance: Array,
    keep: Any = False,
    switch: Any = True,
    when: Callable[..., Array] = always,
) -> Choice:
    """Algorithm 1, lines 6 to 9: another action where Q_C of the proposed one is not tolerated.

    `x` (N, I) is what the reward critic sees. `keep`, `switch` and `when` are for training: to keep
    the proposed action where nothing is within the tolerance (N,), to let everything through with
    False, and to answer `when(screened, then, otherwise)` with less work than `then()`.
    """
    assert network.safety is not None
    tried = proposed[:, None, :]
    if network.candidates is not None:
        others = network.candidates[None, :, :] + 0.0 * tried  # as many rows as there are
        if network.around:
            others = xp.minimum(xp.maximum(tried + others, -1.0), 1.0)
        tried = xp.concat([tried, others], axis=1)
    seen = x if network.gains is None else x * network.gains
    raw, hidden = values(xp, network.safety, seen, tried)
    q_cost = relu(xp, raw) if network.clipped else raw
    q_proposed = q_cost[:, 0]
    screened = (q_proposed > tolerance) & (network.candidates is not None and switch)

    def search() -> Array:
        q_reward = None
        if network.reward is not None:
            q_reward, _ = values(xp, network.reward, x, tried)
        place = best(xp, q_cost, q_reward, tolerance, network.price, keep)
        return xp.where(screened, place, 0)

    place = xp.argmin(q_cost[:, :1], axis=1)  # 0, in the type of places
    number = 1
    if network.candidates is not None:
        place = when(screened, search, place)
        number += network.candidates.shape[0]
    # 1 at the place of each row and 0 elsewhere, (N, 1, K): products with it select
    share = xp.astype(place[:, None] == xp.arange(number), xp.float32)[:, None, :]
    raw_taken = xp.matmul(share, raw[:, :, None])[:, 0, 0]
    u = None
    if network.whitener is not None:
        u = influence(xp, xp.matmul(share, hidden)[:, 0, :], raw_taken, network)
    return Choice(
        xp.matmul(share, tried)[:, 0, :],
        proposed,
        relu(xp, raw_taken) if network.clipped else raw_taken,
        q_proposed,
        u,
        screened,
        place > 0,
    )


def decide(
    xp: Any,
    network: Network,
    obs: Array,
    remaining: Array,
    switch: Any = True,
    when: Callable[..., Array] = always,
) -> Choice:
    """Return the decisions for observations (N, O) and what remains of their budgets (N,)."""
    x = inputs(xp, obs, network.near, network.mean, network.std)
    proposed = act(xp, network, x)
    if network.safety is None:
        return Choice(proposed, proposed)
    if network.budget:
        tolerance = tolerance_left(xp, network.tolerance, remaining, network.limit)
    else:
        tolerance = network.tolerance + 0.0 * remaining
    return screen(xp, network, x, proposed, tolerance, switch=switch, when=when)
