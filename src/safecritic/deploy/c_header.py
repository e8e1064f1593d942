"""The deployed network as one plain C header: C99 or C++, no library but math.h, no allocation.

    #include "policy.h"
    safecritic_decision out;
    int fault = safecritic_decide(observation, left, 1, &out);   // 0: out.action is valid

A fault leaves `out` untouched: the caller's fallback answers.
"""

from pathlib import Path
from typing import Any

import numpy as np

from safecritic import files
from safecritic.deploy.export import Exported
from safecritic.runtime.network import NORM_EPSILON, Network

TEMPLATE = r"""/* {title}
   Written by `safecritic export`. Observations and actions are in the environment's own units;
   names, units and order are in contract.json of the policy file with the same hash. */
#ifndef SAFECRITIC_POLICY_H
#define SAFECRITIC_POLICY_H

#include <math.h>

#define SAFECRITIC_POLICY_SHA256 "{sha}"
#define SAFECRITIC_OBSERVATION {obs}
#define SAFECRITIC_ACTION {act}
#define SAFECRITIC_ACTION_REPEAT {repeat}
#define SAFECRITIC_COST_LIMIT {limit}
#define SAFECRITIC_PERIOD {period} /* s, 0 if unknown */

enum {{
  SAFECRITIC_OK = 0,
  SAFECRITIC_NOT_FINITE = 1,
  SAFECRITIC_OUT_OF_RANGE = 2,
  SAFECRITIC_FAILED = 3
}};

typedef struct {{
  double action[SAFECRITIC_ACTION];     /* in the environment's own unit */
  float unit_action[SAFECRITIC_ACTION]; /* the same in [-1, 1] */
  float proposed[SAFECRITIC_ACTION];    /* the actor's own, before the screen */
  float q_cost;                         /* NaN without a safety critic */
  float influence;                      /* NaN if unknown */
  int screened, changed;
}} safecritic_decision;

{arrays}

static void sc_layer(const float *x, int n, const float *w, const float *b, const float *g,
                     const float *o, int m, const float *start, float *out) {{
  int i, j;
  for (j = 0; j < m; j++) out[j] = start ? start[j] : 0.0f;
  for (i = 0; i < n; i++) {{
    const float xi = x[i];
    const float *row = w + (long)i * m;
    if (xi == 0.0f) continue; /* half of the hidden units, after a relu */
    for (j = 0; j < m; j++) out[j] += xi * row[j];
  }}
  if (b) for (j = 0; j < m; j++) out[j] += b[j];
  if (g) {{
    float mean = 0.0f, var = 0.0f;
    for (j = 0; j < m; j++) mean += out[j];
    mean /= (float)m;
    for (j = 0; j < m; j++) {{ out[j] -= mean; var += out[j] * out[j]; }}
    var = sqrtf(var / (float)m + {epsilon}f);
    for (j = 0; j < m; j++) out[j] = out[j] / var * g[j] + o[j];
  }}
}}

static void sc_relu(float *x, int n) {{
  int i;
  for (i = 0; i < n; i++) if (!(x[i] > 0.0f)) x[i] = 0.0f;
}}

static float sc_clip(float x, float low, float high) {{
  return x < low ? low : (x > high ? high : x);
}}

static float sc_raised(float x) {{
{raised}
}}

static float sc_softplus(float x) {{ return x > 20.0f ? x : log1pf(expf(x)); }}

{critics}
/* Return SAFECRITIC_OK, or why the fallback has to answer. `left` is what is left of the budget. */
static int safecritic_decide(const double *observation, float left, int screen,
                             safecritic_decision *out) {{
  float obs[SAFECRITIC_OBSERVATION], x[{inputs}], a[{width}], b[{width}];
  float action[SAFECRITIC_ACTION];
  int i;
  for (i = 0; i < SAFECRITIC_OBSERVATION; i++) {{
    if (!isfinite(observation[i])) return SAFECRITIC_NOT_FINITE;
    if (observation[i] < sc_low[i] || observation[i] > sc_high[i]) return SAFECRITIC_OUT_OF_RANGE;
    obs[i] = (float)observation[i];
  }}
{body}
  for (i = 0; i < SAFECRITIC_ACTION; i++) if (!isfinite(action[i])) return SAFECRITIC_FAILED;
  for (i = 0; i < SAFECRITIC_ACTION; i++) {{
    const double unit = action[i] < -1.0f ? -1.0 : (action[i] > 1.0f ? 1.0 : (double)action[i]);
    const double share = (unit + 1.0) / 2.0;
    out->unit_action[i] = action[i];
    out->action[i] = (1.0 - share) * sc_action_low[i] + share * sc_action_high[i];
  }}
  return SAFECRITIC_OK;
}}

#endif
"""


class _Writer:
    """Collects arrays and statements."""

    def __init__(self) -> None:
        self.arrays: list[str] = []
        self.lines: list[str] = []

    def array(self, name: str, values: Any, kind: str = "float") -> str:
        """Add an array and return its name."""
        suffix = "f" if kind == "float" else ""
        flat = np.ravel(values)
        if kind == "int":
            numbers = [str(int(x)) for x in flat]
        else:
            numbers = [_number(x, 9 if kind == "float" else 17) + suffix for x in flat]
        rows = [", ".join(numbers[at : at + 8]) for at in range(0, len(numbers), 8)]
        body = ",\n  ".join(rows)
        self.arrays.append(f"static const {kind} {name}[{len(numbers)}] = {{\n  {body}}};")
        return name

    def layer(self, name: str, layer: dict[str, np.ndarray], key: str = "w") -> str:
        """Add a layer's arrays; return the arguments `w, b, g, o, m` of a call."""
        w = self.array(f"{name}_{key}", layer[key])
        return f"{w}, {self.rest(name, layer)}, {layer[key].shape[1]}"

    def rest(self, name: str, layer: dict[str, np.ndarray]) -> str:
        """Add bias, gain and offset of a layer; return the arguments `b, g, o` of a call."""
        names = [self.array(f"{name}_{k}", layer[k]) if k in layer else "0" for k in "bgo"]
        return ", ".join(names)


def _number(value: Any, digits: int) -> str:
    text = f"{float(value):.{digits}g}"
    return text if any(mark in text for mark in ".en") else text + ".0"


def _raised(power: float) -> str:
    """Return statements for a closeness to a power, a whole one by squares."""
    lines = ["  x = sc_clip(x, 0.0f, 1.0f);"]
    if power != int(power) or power < 1:
        return "\n".join([*lines, f"  return powf(x, {_number(power, 9)}f);"])
    lines.append("  { float r = 1.0f;")
    rest = int(power)
    while rest:
        if rest & 1:
            lines.append("    r *= x;")
        rest >>= 1
        if rest:
            lines.append("    x *= x;")
    return "\n".join([*lines, "    return r; }"])


def write(path: str | Path, exported: Exported) -> Path:
    """Write the header of an exported policy."""
    path = Path(path)
    files.write_text(path, source(exported))
    return path


def source(exported: Exported) -> str:
    """Return the header as text."""
    contract = exported.contract
    network = Network(contract["network"], exported.arrays)
    about, w = network.about, _Writer()
    observation = contract["observation"]
    w.array("sc_low", [-1e308 if x is None else x for x in observation["low"]], "double")
    w.array("sc_high", [1e308 if x is None else x for x in observation["high"]], "double")
    w.array("sc_action_low", network.low, "double")
    w.array("sc_action_high", network.high, "double")
    everything = [network.actor, *network.safety, *([network.reward] if network.reward else [])]
    width = max(layer["w"].shape[1] for layers in everything for layer in layers)
    body: list[str] = []
    _inputs(w, network, body)
    _actor(w, network, body)
    critics = _critics(w, network, width)
    _decide(w, network, body)
    return TEMPLATE.format(
        title=f"{contract['method']} on {contract['task']}, {contract['steps']} steps",
        sha=contract["policy_sha256"],
        obs=network.obs_dim,
        act=network.action_dim,
        repeat=contract["action_repeat"],
        limit=_number(contract["cost_limit"], 17),
        period=_number(contract["period"] or 0.0, 17),
        arrays="\n".join(w.arrays),
        epsilon=_number(NORM_EPSILON, 9),
        raised=_raised(about["sharpening"]),
        critics=critics,
        inputs=network.inputs,
        width=width,
        body="\n".join(f"  {line}" for line in body),
    )


def _inputs(w: _Writer, network: Network, body: list[str]) -> None:
    about, n = network.about, len(network.closeness)
    body.append(f"for (i = 0; i < {network.obs_dim}; i++) x[i] = obs[i];")
    if n:
        w.array("sc_closeness", network.closeness, "int")
    if n and about["sharpened"] == "beside":
        target = f"x[{network.obs_dim} + i]"
        body.append(f"for (i = 0; i < {n}; i++) {target} = sc_raised(obs[sc_closeness[i]]);")
    if about["scaling"] == "running":
        w.array("sc_mean", network.mean)
        w.array("sc_spread", network.spread)
        clip = _number(about["clip"], 9)
        scaled = "(x[i] - sc_mean[i]) / sc_spread[i]"
        body.append(
            f"for (i = 0; i < {network.inputs}; i++) x[i] = sc_clip({scaled}, -{clip}f, {clip}f);"
        )


def _actor(w: _Writer, network: Network, body: list[str]) -> None:
    about, source, size = network.about["actor"], "x", network.inputs
    for at, layer in enumerate(network.actor):
        target = "action" if at == len(network.actor) - 1 else ("a" if source != "a" else "b")
        m = layer["w"].shape[1]
        body.append(f"sc_layer({source}, {size}, {w.layer(f'sc_actor_{at}', layer)}, 0, {target});")
        size = m
        if target != "action":
            body.append(
                f"for (i = 0; i < {m}; i++) {target}[i] = tanhf({target}[i]);"
                if about["activation"] == "tanh"
                else f"sc_relu({target}, {m});"
            )
        source = target
    last = "tanhf(action[i])" if about["output"] == "tanh" else "sc_clip(action[i], -1.0f, 1.0f)"
    body.append(f"for (i = 0; i < SAFECRITIC_ACTION; i++) action[i] = {last};")
    body.append("for (i = 0; i < SAFECRITIC_ACTION; i++) out->proposed[i] = action[i];")


def _critics(w: _Writer, network: Network, width: int) -> str:
    """Return the functions of the critics: (first, action) -> raw value and hidden layer."""
    functions = []
    named = [(f"safety_{m}", layers) for m, layers in enumerate(network.safety)]
    named += [("reward", network.reward)] if network.reward else []
    for name, layers in named:
        first = layers[0]
        size = first["seen"].shape[1]
        w.array(f"sc_{name}_seen", first["seen"])
        w.array(f"sc_{name}_done", first["done"])
        rest = w.rest(f"sc_{name}_0", first)
        lines = [
            f"static float sc_{name}(const float *first, const float *action, float *hidden) {{",
            f"  float other[{width}], value;",
            f"  sc_layer(action, {network.action_dim}, sc_{name}_done, {rest}, {size}, first, "
            "hidden);",
            f"  sc_relu(hidden, {size});",
        ]
        for at, layer in enumerate(layers[1:-1], 1):
            m = layer["w"].shape[1]
            lines += [
                f"  sc_layer(hidden, {size}, {w.layer(f'sc_{name}_{at}', layer)}, 0, other);",
                f"  sc_relu(other, {m});",
                f"  {{ int i; for (i = 0; i < {m}; i++) hidden[i] = other[i]; }}",
            ]
            size = m
        lines += [
            f"  sc_layer(hidden, {size}, {w.layer(f'sc_{name}_last', layers[-1])}, 0, &value);",
            "  (void)other;",
            "  return value;",
            "}",
        ]
        functions.append("\n".join(lines))
    if network.safety:
        functions.append(_q_cost(network, width))
    if network.whiteners:
        functions.append(_influence(w, network, width))
    return "\n\n".join(functions)


def _q_cost(network: Network, width: int) -> str:
    """Return the function of Q_C in the agent's units; it leaves raw values and hidden layers."""
    about = network.about["safety"]
    members, k = about["members"], _number(about["sharpness"], 9)
    output = {
        "linear": "z",
        "clipped": "(z > 0.0f ? z : 0.0f)",
        "softplus": f"sc_softplus({k}f * z) / {k}f",
    }.get(about["output"])
    if output is None:
        bound = _number(about["bound"], 9)
        output = f"-{bound}f * expm1f(-(sc_softplus({k}f * z) / {k}f) / {bound}f)"
    lines = [
        f"static float sc_q_cost(float first[{members}][{width}], const float *action,",
        f"                       float raw[{members}], float hidden[{members}][{width}]) {{",
        "  float q = 0.0f, z, one;",
    ]
    for member in range(members):
        lines.append(f"  z = raw[{member}] = sc_safety_{member}(first[{member}], action, "
                     f"hidden[{member}]);")  # fmt: skip
        lines.append(f"  one = {output};")
        if member == 0:
            lines.append("  q = one;")
        else:
            joined = "one > q ? one : q" if about["value"] == "max" else "q + one"
            lines.append(f"  q = {joined};")
    if members > 1 and about["value"] != "max":
        lines.append(f"  q /= {members}.0f;")
    return "\n".join([*lines, "  return q;", "}"])


def _influence(w: _Writer, network: Network, width: int) -> str:
    """Return the function of u, the mean over the members."""
    about = network.about["safety"]
    k, members = _number(about["sharpness"], 9), about["members"]
    slope = "1.0f" if about["output"] == "linear" else f"1.0f / (1.0f + expf(-{k}f * z))"
    if about["output"] == "bounded":
        bound = _number(about["bound"], 9)
        slope = f"({slope}) * expf(-(sc_softplus({k}f * z) / {k}f) / {bound}f)"
    lines = [
        f"static float sc_influence(const float raw[{members}],",
        f"                          float hidden[{members}][{width}]) {{",
        f"  float g[{width + 1}], white[{width + 1}], sum = 0.0f, v, slope, z;",
        "  int i;",
    ]
    for member, whitener in enumerate(network.whiteners):
        size = len(whitener)
        name = w.array(f"sc_whitener_{member}", whitener)
        lines += [
            f"  z = raw[{member}]; slope = {slope};",
            f"  for (i = 0; i < {size - 1}; i++) g[i] = hidden[{member}][i] * slope;",
            f"  g[{size - 1}] = slope;",
            f"  sc_layer(g, {size}, {name}, 0, 0, 0, {size}, 0, white);",
            f"  for (v = 0.0f, i = 0; i < {size}; i++) v += white[i] * white[i];",
            "  sum += v / (1.0f + v);",
        ]
    return "\n".join([*lines, f"  return sum / {members}.0f;", "}"])


def _decide(w: _Writer, network: Network, body: list[str]) -> None:
    """Add the statements after the actor: Q_C, screen and influence."""
    about = network.about
    body += ["out->screened = out->changed = 0;", "out->q_cost = out->influence = NAN;"]
    if not network.safety:
        body.append("(void)left; (void)screen; (void)a; (void)b; (void)sc_raised;")
        body.append("(void)sc_softplus; (void)sc_relu;")
        return
    members = len(network.safety)
    width = max(layer["w"].shape[1] for layers in network.safety for layer in layers)
    everything = [network.actor, *network.safety, *([network.reward] if network.reward else [])]
    width = max(layer["w"].shape[1] for layers in everything for layer in layers)
    n, size = len(network.closeness), _number(about["cost_unit"], 9)
    body.append("{")
    body.append(f"static float seen[{network.inputs}], first[{members}][{width}];")
    body.append(f"static float hidden[{members}][{width}], raw[{members}];")
    body.append("float q;")
    gain = _number(about["gain"], 9) if n and about["sharpened"] != "no" else "1.0"
    body.append(f"for (i = 0; i < {network.inputs}; i++) seen[i] = {gain}f * x[i];")
    if n and about["sharpened"] == "beside":
        body.append(f"for (i = {network.obs_dim}; i < {network.inputs}; i++) seen[i] = x[i];")
    elif n and about["sharpened"] == "in place":
        sharp = f"{_number(about['sharp_size'], 9)}f * sc_raised(obs[sc_closeness[i]])"
        body.append(f"for (i = 0; i < {n}; i++) seen[sc_closeness[i]] = {sharp};")
    for member, layers in enumerate(network.safety):
        m = layers[0]["seen"].shape[1]
        body.append(
            f"sc_layer(seen, {network.inputs}, sc_safety_{member}_seen, 0, 0, 0, {m}, 0, "
            f"first[{member}]);"
        )
    body.append("q = sc_q_cost(first, action, raw, hidden);")
    if about["screen"] is not None and about["screen"]["active"]:
        _screen(w, network, body, width)
    else:
        body.append("(void)left; (void)screen;")
    body.append(f"out->q_cost = {size}f * q;")
    if network.whiteners:
        body.append("out->influence = sc_influence(raw, hidden);")
    body.append("(void)sc_raised; (void)sc_softplus;")
    body.append("}")


def _screen(w: _Writer, network: Network, body: list[str], width: int) -> None:
    about, members = network.about["screen"], len(network.safety)
    size, k = _number(network.about["cost_unit"], 9), len(network.candidates)
    w.array("sc_candidates", network.candidates)
    tolerance = _number(about["tolerance"], 9)
    if about["tolerance_in"] == "budget":
        budget = f"{tolerance}f * ((left > 0.0f ? left : 0.0f) / {size}f)"
        body.append(f"float tolerance = {budget};")
        body.append(f"tolerance = fmaxf(tolerance, {_number(about['least'], 9)}f);")
    else:
        body.append(f"float tolerance = {tolerance}f / {size}f;")
        body.append("(void)left;")
    assert network.reward is not None
    m = network.reward[0]["seen"].shape[1]
    price = _number(network.price, 9)
    around = about["candidates"] == "around"
    candidate = f"sc_candidates[t * {network.action_dim} + i]"
    if around:
        candidate = f"sc_clip(action[i] + {candidate}, -1.0f, 1.0f)"
    body += [
        "if (screen && q > tolerance) {",
        f"  static float tried_hidden[{members}][{width}], tried_raw[{members}];",
        f"  static float reward_first[{width}], reward_hidden[{width}];",
        "  float best[SAFECRITIC_ACTION], candidate[SAFECRITIC_ACTION], best_q = q, worth = -q;",
        "  int t, have = 0, within = 0;",
        "  out->screened = 1;",
    ]
    if about["choice"] == "reward":
        body += [
            f"  sc_layer(x, {network.inputs}, sc_reward_seen, 0, 0, 0, {m}, 0, reward_first);",
            f"  worth = sc_reward(reward_first, action, reward_hidden) - {price}f * q;",
        ]
    body += [
        f"  for (t = 0; t < {k}; t++) {{",
        "    float tried_q, value;",
        "    int inside = 0;",
        f"    for (i = 0; i < SAFECRITIC_ACTION; i++) candidate[i] = {candidate};",
        "    tried_q = sc_q_cost(first, candidate, tried_raw, tried_hidden);",
    ]
    if about["choice"] == "reward":
        body += [
            "    inside = tried_q <= tolerance;",
            "    if (within && !inside) continue;",
            "    value = sc_reward(reward_first, candidate, reward_hidden);",
            # the first within replaces whatever was best by its price
            f"    if (!inside) value -= {price}f * tried_q;",
            "    if ((inside == within) && !(value > worth)) continue;",
            "    within = inside;",
        ]
    else:
        body += [
            "    value = -tried_q;",
            "    if (!(value > worth)) continue;",
            "    (void)reward_first; (void)reward_hidden; (void)sc_reward;",
            "    (void)inside; (void)within;",
        ]
    body += [
        "    have = 1; worth = value; best_q = tried_q;",
        "    for (i = 0; i < SAFECRITIC_ACTION; i++) best[i] = candidate[i];",
        "  }",
        "  if (have) {",
        "    out->changed = 1; q = best_q;",
        "    for (i = 0; i < SAFECRITIC_ACTION; i++) action[i] = best[i];",
        "    sc_q_cost(first, action, raw, hidden);",
        "  }",
        "}",
    ]
