"""The network of a policy file in NumPy: inputs, actor, critics, influence and screen.

    raw observation (N, O) and what is left of the budget (N,)  ->  `Decision`

It computes what `act` of the agent computes without exploration, see docs/deploy.md.
"""

from typing import Any, NamedTuple, cast

import numpy as np

NORM_EPSILON = np.float32(1e-5)  # of a normalised layer
LARGEST_EXPONENT = np.float32(80.0)
ZERO, ONE = np.float32(0.0), np.float32(1.0)

Array = np.ndarray
Layers = list[dict[str, Array]]


class Decision(NamedTuple):
    """What was decided for one observation (A,) or for N of them (N, A)."""

    action: Array  # in the environment's own unit, shape and type
    unit_action: Array  # the same in [-1, 1]^A, flat
    proposed: Array  # the actor's own, before the screen
    q_cost: Any  # Q_C of the action; NaN without a safety critic
    influence: Any  # u of the action: near 1 if unlike the training data; NaN if unknown
    screened: Any  # whether Q_C of the proposed action exceeded the tolerance
    changed: Any  # whether the screen took another action
    fault: Any = None  # why the fallback answered, None where it did not


class Network:
    """The network described in a contract, on the arrays of the same file."""

    def __init__(self, about: dict[str, Any], arrays: dict[str, Array]):
        self.about = about
        self.obs_dim, self.action_dim = int(about["observation"]), int(about["action"])
        self.inputs = int(about["inputs"])
        self.closeness = np.array(about["closeness"], np.intp)
        beside = len(self.closeness) if about["sharpened"] == "beside" else 0
        if self.inputs != self.obs_dim + beside:
            raise ValueError(f"{self.inputs} inputs from {self.obs_dim} numbers and {beside} more")
        self.arrays = arrays
        self.actor = self._layers("actor", about["actor"]["layers"], self.inputs, self.action_dim)
        self.safety: list[Layers] = []
        joint = self.inputs + self.action_dim
        safety, reward = about["safety"], about["reward"]
        if safety is not None:
            for member in range(safety["members"]):
                self.safety.append(self._layers(f"safety/{member}", safety["layers"], joint, 1))
        self.reward = None if reward is None else self._layers("reward", reward["layers"], joint, 1)
        self.whiteners: list[Array] = []
        if about["influence"]:
            for member, layers in enumerate(self.safety):
                size = layers[-1]["w"].shape[0] + 1
                # transposed once: g W^T is then a product of rows
                whitener = self._array(f"influence/{member}/whitener", (size, size))
                self.whiteners.append(np.ascontiguousarray(whitener.T))
        self.low = np.array(about["action_low"], np.float64)
        self.high = np.array(about["action_high"], np.float64)
        if not self.low.shape == self.high.shape == (self.action_dim,):
            raise ValueError("action bounds of another length than the action")
        self.unit_box = bool((self.low == -1.0).all() and (self.high == 1.0).all())
        if about["scaling"] == "running":
            self.mean = self._array("scaler/mean", (self.inputs,))
            self.spread = self._array("scaler/spread", (self.inputs,))
        screen = about["screen"]
        if screen is not None:
            if not self.safety or self.reward is None:
                raise ValueError("a screen without critics")
            self.candidates = self._array("screen/candidates", (None, self.action_dim))
            self.price = np.float32(screen["price"])
        self._split_first_layers()

    def _array(self, name: str, shape: tuple[int | None, ...]) -> Array:
        array = self.arrays[name]
        fits = array.ndim == len(shape) and all(
            n is None or n == m for n, m in zip(shape, array.shape, strict=True)
        )
        if not fits or array.dtype != np.float32:
            raise ValueError(f"{name} is {array.dtype} {array.shape}, expected float32 {shape}")
        return np.ascontiguousarray(array)

    def _layers(self, name: str, number: int, size: int, last: int) -> Layers:
        layers: Layers = []
        for at in range(number):
            w = self._array(f"{name}/{at}/w", (size, last if at == number - 1 else None))
            size = w.shape[1]
            layers.append({"w": w, "b": self._array(f"{name}/{at}/b", (size,))})
            if f"{name}/{at}/g" in self.arrays:
                # the mean of the sums is taken out of the weights, once
                b = layers[-1]["b"]
                layers[-1] = {"w": w - w.mean(axis=1, keepdims=True), "b": b - b.mean()}
                layers[-1]["g"] = self._array(f"{name}/{at}/g", (size,))
                layers[-1]["o"] = self._array(f"{name}/{at}/o", (size,))
        if not layers:
            raise ValueError(f"{name} has no layers")
        return layers

    def _split_first_layers(self) -> None:
        """Part the first layer of the critics in what sees the observation and the action."""
        for layers in (*self.safety, *([] if self.reward is None else [self.reward])):
            w = layers[0]["w"]
            layers[0]["seen"] = np.ascontiguousarray(w[: self.inputs])
            layers[0]["done"] = np.ascontiguousarray(w[self.inputs :])
            if self.about["screen"] is not None and self.about["screen"]["candidates"] == "fixed":
                layers[0]["tried"] = self.candidates @ layers[0]["done"]

    # ------------------------------------------------------------ inputs

    def actor_inputs(self, obs: Array) -> Array:
        """Return what actor and reward critic see, (N, I)."""
        x = obs
        if self.about["sharpened"] == "beside" and len(self.closeness):
            near = raised(obs[:, self.closeness], self.about["sharpening"])
            x = np.concatenate([obs, near], axis=-1)
        if self.about["scaling"] == "none":
            return x
        clip = np.float32(self.about["clip"])
        return np.minimum(np.maximum((x - self.mean) / self.spread, -clip), clip)

    def critic_inputs(self, obs: Array, x: Array) -> Array:
        """Return what the safety critic sees, (N, I), from `x`, what the actor sees."""
        if self.about["sharpened"] == "no" or not len(self.closeness):
            return x
        gain = np.float32(self.about["gain"])
        seen = gain * x
        if self.about["sharpened"] == "beside":
            seen[:, self.obs_dim :] = x[:, self.obs_dim :]
        else:
            near = raised(obs[:, self.closeness], self.about["sharpening"])
            seen[:, self.closeness] = np.float32(self.about["sharp_size"]) * near
        return seen

    # ------------------------------------------------------------ networks

    def act(self, x: Array) -> Array:
        """Return the actor's actions (N, A) in [-1, 1]."""
        activation = np.tanh if self.about["actor"]["activation"] == "tanh" else relu
        for layer in self.actor[:-1]:
            x = activation(shift(x @ layer["w"], layer))
        out = x @ self.actor[-1]["w"] + self.actor[-1]["b"]
        return np.tanh(out) if self.about["actor"]["output"] == "tanh" else np.clip(out, -1.0, 1.0)

    def cost_output(self, z: Array) -> Array:
        """Return Q_C of one member, in the agent's units of cost."""
        about = self.about["safety"]
        kind, k = about["output"], np.float32(about["sharpness"])
        if kind == "linear":
            return z
        if kind == "clipped":
            return np.maximum(z, ZERO)
        positive = cast(Array, np.logaddexp(np.float32(0.0), k * z) / k)
        if kind == "softplus":
            return positive
        bound = np.float32(about["bound"])
        return -bound * np.expm1(-positive / bound)

    def slope(self, z: Array) -> Array:
        """Return the derivative of what the influence sees: Q_C, its clip made smooth."""
        about = self.about["safety"]
        kind, k = about["output"], np.float32(about["sharpness"])
        if kind == "linear":
            return np.ones_like(z)
        slope = 1.0 / (
            1.0 + np.exp(np.minimum(np.maximum(-k * z, -LARGEST_EXPONENT), LARGEST_EXPONENT))
        )
        if kind == "bounded":
            positive = np.logaddexp(np.float32(0.0), k * z) / k
            slope = slope * np.exp(-positive / np.float32(about["bound"]))
        return cast(Array, slope)

    def aggregate(self, q: list[Array]) -> Array:
        """Return the Q_C of all members."""
        if len(q) == 1:
            return q[0]
        return cast(Array, np.max(q, axis=0) if self.value == "max" else np.mean(q, axis=0))

    @property
    def value(self) -> str:
        return str(self.about["safety"]["value"])

    def influence(self, hidden: list[Array], raw: list[Array]) -> Array:
        """Return u (N,) of Eq. 1 from each member's last hidden layer and raw output."""
        us = []
        for features, z, whitener in zip(hidden, raw, self.whiteners, strict=True):
            white = features @ whitener[:-1]
            white += whitener[-1]
            slope = self.slope(z)
            outside = slope * slope * np.einsum("...i,...i->...", white, white)
            us.append(outside / (1.0 + outside))
        return us[0] if len(us) == 1 else cast(Array, np.mean(us, axis=0))

    # ------------------------------------------------------------ decisions

    def tolerance(self, left: Array) -> Array:
        """Return the screen's tolerance (N,) in the agent's units of cost."""
        screen, size = self.about["screen"], np.float32(self.about["cost_unit"])
        if not screen["active"]:
            return np.full(left.shape, np.inf, np.float32)
        tolerance = np.float32(screen["tolerance"])
        if screen["tolerance_in"] == "budget":
            budget = np.maximum(left, np.float32(0.0)) / size
            return np.maximum(tolerance * budget, np.float32(screen["least"]))
        return np.full(left.shape, tolerance / size, np.float32)

    def decide(self, obs: Array, left: Array, screen: bool = True) -> Decision:
        """Return the decisions for observations (N, O), both arrays float32."""
        x = self.actor_inputs(obs)
        proposed = action = self.act(x)
        n = len(obs)
        unknown = np.full(n, np.nan, np.float32)
        no = np.zeros(n, bool)
        if not self.safety:
            own = self.own_actions(action)
            return Decision(own, action, proposed, unknown, unknown, no, no)
        seen = self.critic_inputs(obs, x)
        firsts = [first_sums(layers, seen) for layers in self.safety]
        if n == 1 and screen and self.about["screen"] is not None:
            return self._decide_one(x, firsts, proposed, left)
        passes = [
            critic(layers, first + action @ layers[0]["done"])
            for layers, first in zip(self.safety, firsts, strict=True)
        ]
        raw, hidden = [z for z, _ in passes], [h for _, h in passes]
        q = self.aggregate([self.cost_output(z) for z in raw])
        screened, changed = no, no
        if screen and self.about["screen"] is not None:
            tolerance = self.tolerance(left)
            screened = q > tolerance
            rows = np.flatnonzero(screened)
            if len(rows):
                whole = len(rows) == n
                taken = slice(None) if whole else rows
                search = self._search(
                    x[taken], [first[taken] for first in firsts], action[taken], q[taken],
                    tolerance[taken],
                )  # fmt: skip
                action, changed, q = action.copy(), no.copy(), q.copy()
                best, others, q_others, raw_others, hidden_others, helps = search
                at = rows[helps]
                place = (np.flatnonzero(helps), best[helps])
                changed[at] = True
                action[at] = others[place] if others.ndim == 3 else others[place[1]]
                q[at] = q_others[place]
                if self.whiteners:
                    for member in range(len(raw)):
                        raw[member] = raw[member].copy()
                        hidden[member] = hidden[member].copy()
                        raw[member][at] = raw_others[member][place]
                        hidden[member][at] = hidden_others[member][place]
        u = self.influence(hidden, raw) if self.whiteners else unknown
        q = np.float32(self.about["cost_unit"]) * q
        return Decision(self.own_actions(action), action, proposed, q, u, screened, changed)

    def _decide_one(self, x: Array, firsts: list[Array], proposed: Array, left: Array) -> Decision:
        """Return the screened decision of one row, the proposed action among those tried.

        It is that of `_search` with half as many calls of NumPy, which take most of the time.
        """
        place = 0
        others = self._tried(proposed).reshape(-1, self.action_dim)
        passes = [
            self._one_pass(layers, first, proposed, others)
            for layers, first in zip(self.safety, firsts, strict=True)
        ]
        q = self.aggregate([self.cost_output(z) for z, _ in passes])  # (K + 1,)
        tolerance = self.tolerance(left)[0]
        screened = bool(q[0] > tolerance)
        if screened and self.about["screen"]["choice"] == "cost":
            place = int(q.argmin())
        elif screened:
            assert self.reward is not None
            reward, _ = self._one_pass(self.reward, first_sums(self.reward, x), proposed, others)
            within = q <= tolerance
            if within.any():
                reward[~within] = -np.inf
            else:
                reward -= self.price * q
            place = int(reward.argmax())
        u = np.full(1, np.nan, np.float32)
        if self.whiteners:
            chosen = slice(place, place + 1)
            u = self.influence([h[chosen] for _, h in passes], [z[chosen] for z, _ in passes])
        action = proposed if place == 0 else others[place - 1 : place].copy()
        q_cost = np.float32(self.about["cost_unit"]) * q[place : place + 1]
        flags = np.array([screened]), np.array([place > 0])
        return Decision(self.own_actions(action), action, proposed, q_cost, u, *flags)

    def _one_pass(
        self, layers: Layers, first: Array, proposed: Array, others: Array
    ) -> tuple[Array, Array]:
        """Return raw values (K + 1,) and hidden layers of a row's proposed action and others."""
        share = layers[0].get("tried")
        sums = np.empty((len(others) + 1, first.shape[-1]), np.float32)
        np.matmul(proposed, layers[0]["done"], out=sums[:1])
        sums[1:] = others @ layers[0]["done"] if share is None else share
        sums += first
        return critic(layers, sums)

    def _tried(self, action: Array) -> Array:
        """Return the candidates (K, A) or, around actions (N, A), (N, K, A)."""
        if self.about["screen"]["candidates"] != "around":
            return self.candidates
        return cast(Array, np.clip(action[:, None, :] + self.candidates, -1.0, 1.0))

    def _search(
        self, x: Array, firsts: list[Array], action: Array, q: Array, tolerance: Array
    ) -> tuple[Array, Array, Array, list[Array], list[Array], Array]:
        """Return the best candidate of each row, what the candidates are worth, and if it helps.

        It is the one of best Q_R within the tolerance; where none is within, of best
        Q_R - price Q_C, which helps if it is better than the proposed action. With the choice
        "cost" it is the one of least Q_C.
        """
        others = self._tried(action)
        around = others.ndim == 3

        def tried(layers: Layers, first: Array, last: Array | None = None) -> tuple[Array, Array]:
            share = others @ layers[0]["done"] if around else layers[0]["tried"]
            number = share.shape[-2]
            sums = np.empty((len(x), number + (last is not None), share.shape[-1]), np.float32)
            np.add(first[:, None, :], share, out=sums[:, :number])
            if last is not None:
                np.add(first, last, out=sums[:, -1])
            return critic(layers, sums)

        passes = [tried(layers, f) for layers, f in zip(self.safety, firsts, strict=True)]
        raw, hidden = [z for z, _ in passes], [h for _, h in passes]
        q_others = self.aggregate([self.cost_output(z) for z in raw])
        each = np.arange(len(x))
        if self.about["screen"]["choice"] == "cost":
            best = np.argmin(q_others, axis=-1)
            helps = q_others[each, best] < q
        else:
            assert self.reward is not None
            # one pass, with the proposed action in the last place
            first = first_sums(self.reward, x)
            q_all, _ = tried(self.reward, first, action @ self.reward[0]["done"])
            q_reward, own = q_all[:, :-1], q_all[:, -1]
            within = q_others <= tolerance[:, None]
            helps = np.asarray(within.any(axis=-1))
            worth = np.where(within, q_reward, -np.inf)
            if not helps.all():
                worth = np.where(helps[:, None], worth, q_reward - self.price * q_others)
                helps = helps | (worth.max(axis=-1) > own - self.price * q)
            best = np.argmax(worth, axis=-1)
        return best, others, q_others, raw, hidden, helps

    def own_actions(self, action: Array) -> Array:
        """Return actions (N, A) in [-1, 1] within the environment's own bounds, as float64."""
        unit = np.minimum(np.maximum(action, -1.0), 1.0).astype(np.float64)
        if self.unit_box:
            return unit
        share = (unit + 1.0) / 2.0
        return cast(Array, (1.0 - share) * self.low + share * self.high)


def raised(closeness: Array, power: float) -> Array:
    """Return closenesses in [0, 1] to a power."""
    x = np.minimum(np.maximum(closeness, ZERO), ONE)  # np.clip takes three times as long
    if power != int(power) or power < 1:
        return cast(Array, x ** np.float32(power))
    result, rest = None, int(power)
    while rest:  # by squares, as XLA does
        if rest & 1:
            result = x if result is None else result * x
        x, rest = x * x, rest >> 1
    assert result is not None
    return result


def relu(x: Array) -> Array:
    """Return what is above 0 of an array that nobody else needs any more."""
    return np.maximum(x, ZERO, out=x)


def shift(sums: Array, layer: dict[str, Array]) -> Array:
    """Add a layer's bias to its sums, which nobody else needs, and normalise them."""
    sums += layer["b"]
    return normalise(sums, layer)


def normalise(sums: Array, layer: dict[str, Array]) -> Array:
    """Normalise a layer's sums in their place, if it has a gain; their mean is 0 then."""
    if "g" in layer:
        var = np.einsum("...i,...i->...", sums, sums) * np.float32(1.0 / sums.shape[-1])
        sums *= (np.float32(1.0) / np.sqrt(var + NORM_EPSILON))[..., None]
        sums *= layer["g"]
        sums += layer["o"]
    return sums


def first_sums(layers: Layers, seen: Array) -> Array:
    """Return what the observation adds to the first layer of a critic, with its bias."""
    sums = seen @ layers[0]["seen"]
    sums += layers[0]["b"]
    return cast(Array, sums)


def critic(layers: Layers, sums: Array) -> tuple[Array, Array]:
    """Return raw values (...,) and the last hidden layer (..., H) from the first layer's sums.

    The sums have their bias and are used up.
    """
    if len(layers) == 1:
        raise ValueError("a critic without a hidden layer")
    rows, shape = sums.reshape(-1, sums.shape[-1]), sums.shape[:-1]
    hidden = relu(normalise(rows, layers[0]))
    for layer in layers[1:-1]:
        hidden = relu(shift(hidden @ layer["w"], layer))
    out = hidden @ layers[-1]["w"][:, 0] + layers[-1]["b"][0]
    return out.reshape(shape), hidden.reshape(*shape, -1)
