// The explorer's page: observations, networks and maps of a scene that is dragged about.
"use strict";
const DATA = JSON.parse(document.getElementById("data").textContent);
const TASK = DATA.task, CELLS = DATA.cells, EXTENT = TASK.extent;
const clip = (x, low, high) => Math.min(Math.max(x, low), high);
const sum = list => list.reduce((a, b) => a + b, 0);

function unpack({ index, bytes }) {
  const raw = Uint8Array.from(atob(bytes), letter => letter.charCodeAt(0));
  const all = new Float32Array(raw.buffer);
  return Object.fromEntries(Object.entries(index).map(([name, [start, shape]]) => {
    const size = shape.reduce((a, b) => a * b, 1);
    return [name, { shape, data: all.subarray(start, start + size) }];
  }));
}

// ---------------------------------------------------------------- what the robot observes

// As `lidar` in tasks/navigation/lidar.py, of one kind: the nearest object wins a bin.
function lidar(points, position, rotation, out, at) {
  const { bins, range } = TASK, perRadian = bins / (2 * Math.PI);
  const r00 = rotation[0], r01 = rotation[1], r10 = rotation[3], r11 = rotation[4];
  const liftX = position[2] * rotation[6], liftY = position[2] * rotation[7];
  out.fill(0, at, at + bins);
  for (const point of points) {
    const dx = point[0] - position[0], dy = point[1] - position[1];
    const x = dx * r00 + dy * r10 - liftX, y = dx * r01 + dy * r11 - liftY;
    const value = 1 - Math.sqrt(x * x + y * y) / range;
    if (value <= 0) continue;
    const angle = Math.atan2(y, x) * perRadian, low = Math.floor(angle);
    const after = (angle - low) * value, own = (low + bins) % bins;
    const before = at + (own + bins - 1) % bins, next = at + (own + 1) % bins;
    if (value > out[at + own]) out[at + own] = value;
    if (value - after > out[before]) out[before] = value - after;
    if (after > out[next]) out[next] = after;
  }
}

// Where the lidar of a kind sees something.
function pointsOf(scene, kind) {
  if (kind === "circle") return [[0, 0]];
  if (kind === "buttons" && !scene.seen) return [];
  if (kind === "goal" && scene.things.buttons) return [scene.things.buttons[scene.button]];
  return scene.things[kind];
}

// What the robot senses before its lidars; its compass turns with it, the rest is its own.
function sensed(scene) {
  const sensors = Float64Array.from(scene.sensors), r = scene.rotation, field = TASK.field;
  for (let axis = 0; axis < 3; axis++)
    sensors[TASK.magnetometer + axis] =
      r[axis] * field[0] + r[3 + axis] * field[1] + r[6 + axis] * field[2];
  return sensors;
}

function observe(scene) {
  const sensors = sensed(scene), first = sensors.length;
  const obs = new Float64Array(first + TASK.bins * TASK.kinds.length);
  obs.set(sensors);
  TASK.kinds.forEach((kind, at) =>
    lidar(pointsOf(scene, kind), scene.position, scene.rotation, obs, first + TASK.bins * at));
  return obs;
}

const headingOf = scene => Math.atan2(scene.rotation[3], scene.rotation[0]);

function turn(scene, angle) {
  const c = Math.cos(angle), s = Math.sin(angle), r = scene.rotation;
  scene.rotation = [0, 1, 2].map(k => c * r[k] - s * r[3 + k])
    .concat([0, 1, 2].map(k => s * r[k] + c * r[3 + k]), r.slice(6));
}

// ---------------------------------------------------------------- products of matrices

// out = max(a w + b, floor), 4 rows by 8 columns at a time, in WebAssembly: an instruction works on
// four floats, ten times as fast as a loop here. The module is assembled from its instructions.
// dense(a, w, b, out, end, k, n, floor): pointers; the rows of a, k bytes each, end at `end`; rows of out
// are n bytes; w comes in panels of 8 columns. `fused`: to multiply and to add are one instruction.
function assembled(fused) {
  const [a, w, b, out, end, k, n, floor, col, row, stop, panel, to] = Array(13).keys();
  const pointers = [13, 14, 15, 16], sums = [17, 18, 19, 20, 21, 22, 23, 24];
  const [left, right, one, least] = [25, 26, 27, 28];
  const leb = x => x < 128 ? [x] : [(x & 127) | 128, ...leb(x >> 7)];
  const simd = code => [0xfd, leb(code)], get = at => [0x20, at], set = (at, ...code) => [code, 0x21, at];
  const plus = (x, y) => [x, y, 0x6a], number = x => [0x41, x < 64 ? x : [x | 128, 0]]; // up to 127
  const load = (place, offset) => [place, simd(0x00), 2, offset];
  const spread = (place, offset) => [place, simd(0x09), 2, offset];
  const store = (place, value, offset) => [place, value, simd(0x0b), 2, offset];
  const most = (x, y) => [x, y, simd(0xe9)];
  const madd = (x, y, z) => fused ? [x, y, z, simd(0x105)] : [x, y, simd(0xe6), z, simd(0xe4)];
  const until = (x, y, ...code) => [0x03, 0x40, code, get(x), get(y), 0x49, 0x0d, 0, 0x0b]; // x >= y
  const inner = half => [
    set(left, load(get(panel), 32 * half)), set(right, load(get(panel), 32 * half + 16)),
    pointers.map((pointer, at) => [
      set(one, spread(get(pointer), 4 * half)),
      set(sums[2 * at], madd(get(one), get(left), get(sums[2 * at]))),
      set(sums[2 * at + 1], madd(get(one), get(right), get(sums[2 * at + 1])))])];
  const body = [
    set(least, get(floor), simd(0x13)),
    until(col, n,
      set(row, get(a)), set(to, plus(get(out), get(col))),
      until(row, end,
        set(pointers[0], get(row)), set(panel, get(w)),
        [1, 2, 3].map(at => set(pointers[at], plus(get(pointers[at - 1]), get(k)))),
        set(stop, get(pointers[1])),
        sums.map((at, number) => set(at, load(plus(get(b), get(col)), number % 2 * 16))),
        until(pointers[0], stop,
          inner(0), inner(1),
          pointers.map(at => set(at, plus(get(at), number(8)))),
          set(panel, plus(get(panel), number(64)))),
        [0, 2, 4, 6].map(at => [
          store(get(to), most(get(sums[at]), get(least)), 0),
          store(get(to), most(get(sums[at + 1]), get(least)), 16),
          set(to, plus(get(to), get(n)))]),
        set(row, get(pointers[3]))),
      set(w, get(panel)), set(col, plus(get(col), number(32)))),
    0x0b].flat(Infinity);
  const code = [2, 9, 0x7f, 12, 0x7b, ...body]; // nine integers and twelve vectors of its own
  const section = (id, ...bytes) => [id, ...leb(bytes.length), ...bytes];
  return new Uint8Array([0, 0x61, 0x73, 0x6d, 1, 0, 0, 0,
    ...section(1, 1, 0x60, 8, ...Array(7).fill(0x7f), 0x7d, 0), // its parameters: integers, a float
    ...section(2, 1, 1, 0x6d, 1, 0x6d, 2, 0, 1), // the memory m.m
    ...section(3, 1, 0), ...section(7, 1, 1, 0x64, 0, 0), // exported as d
    ...section(10, 1, ...leb(code.length), ...code)]);
}
const CODE = [true, false].map(assembled).find(bytes => WebAssembly.validate(bytes));
const MODULE = new WebAssembly.Module(CODE);

// ---------------------------------------------------------------- the deployed network
// As runtime/decide.py, for up to ROWS rows at a time.

const ROWS = 64;
const upTo = (multiple, x) => Math.ceil(x / multiple) * multiple;

// What a proximity c adds behind the observation: a ramp between each two edges.
const sharpened = ({ edges }, c) =>
  edges.slice(1).map((high, at) => clip((c - edges[at]) / (high - edges[at]), 0, 1));

class Network {
  constructor(about) {
    Object.assign(this, about);
    const arrays = unpack(about.arrays);
    const of = name => arrays[name] && arrays[name].data;
    [this.mean, this.std, this.gains, this.near] = [of("mean"), of("std"), of("gains"), about.encoding.near];
    this.size = arrays["actor/0/w"].shape[0];
    this.places = new Map(this.near.map((place, at) => [place, at]));
    this.stride = upTo(2, this.size + TASK.actions.length); // of a row of inputs, the action behind the state
    const dims = ["actor", "safety", "reward"].map(name => {
      const list = [];
      while (arrays[`${name}/${list.length}/w`]) list.push(arrays[`${name}/${list.length}/w`].shape);
      return list;
    });
    const units = Math.max(8, ...dims.flat().map(([, cols]) => upTo(8, cols + 1)));
    const floats = sum(Object.values(arrays).map(({ data }) => data.length));
    const bytes = 4 * (2 * floats + 64 * units * 8 + ROWS * (this.stride + 3 * units) + 4096);
    this.memory = new WebAssembly.Memory({ initial: Math.ceil(bytes / 65536) + 8 });
    this.floats = new Float32Array(this.memory.buffer);
    this.dense = new WebAssembly.Instance(MODULE, { m: { m: this.memory } }).exports.d;
    this.free = 16; // floats, where the memory is not used yet
    [this.actor, this.safety, this.reward] = dims.map((list, which) => {
      const name = ["actor", "safety", "reward"][which];
      let inputs = this.stride;
      return list.length ? list.map((shape, at) => {
        const part = key => of(`${name}/${at}/${key}`);
        const gains = at === 0 && name === "safety" ? this.gains : null;
        const layer = this.layer(shape, part("w"), part("b"), inputs, gains);
        inputs = layer.n;
        return Object.assign(layer, { g: part("g"), o: part("o") });
      }) : null;
    });
    if (arrays.whitener) { // white = W [hidden, 1]: the transposed, as a layer
      const { shape: [out, cols], data } = arrays.whitener, rows = cols - 1;
      const w = new Float32Array(rows * out), b = new Float32Array(out);
      for (let p = 0; p < out; p++) {
        for (let h = 0; h < rows; h++) w[h * out + p] = data[p * cols + h];
        b[p] = data[p * cols + rows];
      }
      this.whitener = this.layer([rows, out], w, b, upTo(8, rows));
    }
    this.x = this.take(ROWS * this.stride);
    this.buffers = [0, 1, 2].map(() => this.take(ROWS * units));
    this.candidates = null;
    if (arrays.candidates) {
      const { shape: [number, dim], data } = arrays.candidates;
      this.candidates = Array.from({ length: number }, (_, at) => [...data.subarray(at * dim, at * dim + dim)]);
    }
  }

  take(floats) {
    const at = this.free;
    this.free += upTo(16, floats);
    return at;
  }

  // Weights (rows, cols) in panels of 8 columns, for inputs of `k` numbers.
  layer([rows, cols], weights, bias, k, gains = null) {
    const n = upTo(8, cols), w = this.take(k * n), b = this.take(n);
    for (let row = 0; row < rows; row++) for (let col = 0; col < cols; col++)
      this.floats[w + (Math.floor(col / 8) * k + row) * 8 + col % 8] =
        weights[row * cols + col] * (gains && row < gains.length ? gains[row] : 1);
    this.floats.set(bias, b);
    return { w, b, k, n, cols };
  }

  apply(layer, from, to, rows, floor = -Infinity) {
    const { w, b, k, n } = layer;
    this.dense(4 * from, 4 * w, 4 * b, 4 * to, 4 * (from + upTo(4, rows) * k), 4 * k, 4 * n, floor);
  }

  // Where the outputs of a network are, for the first rows of `x`; those before them stay in `hidden`.
  run(layers, rows, activation = "relu") {
    let from = this.x, to = this.buffers[0];
    layers.forEach((layer, at) => {
      const last = at === layers.length - 1, plain = !last && !layer.g && activation === "relu";
      to = this.buffers[at % 2];
      this.apply(layer, from, to, rows, plain ? 0 : -Infinity);
      if (!last && !plain) this.activate(layer, to, rows, activation);
      if (!last) this.hidden = to;
      from = to;
    });
    return to;
  }

  activate({ n, cols, g, o }, at, rows, activation) {
    const { floats } = this;
    for (let row = 0; row < rows; row++, at += n) {
      let factor = 1;
      if (g) { // the mean over the units is out of the weights already
        let squares = 0;
        for (let j = 0; j < cols; j++) squares += floats[at + j] * floats[at + j];
        factor = 1 / Math.sqrt(squares / cols + DATA.decide.epsilon);
      }
      for (let j = 0; j < cols; j++) {
        const value = g ? floats[at + j] * factor * g[j] + o[j] : floats[at + j];
        floats[at + j] = activation === "tanh" ? Math.tanh(value) : value > 0 ? value : 0;
      }
    }
  }

  scaled(value, column) {
    if (!this.mean) return value;
    return clip((value - this.mean[column]) / this.std[column], -DATA.decide.clip, DATA.decide.clip);
  }

  // Write what the networks see of an observation into a row of `x`.
  see(obs, row) {
    const { floats, near } = this, at = this.x + row * this.stride;
    for (let place = 0; place < obs.length; place++) {
      floats[at + place] = this.scaled(obs[place], place);
      const nearest = this.places.get(place);
      if (nearest === undefined) continue;
      const made = sharpened(this.encoding, obs[place]);
      for (let k = 0; k < made.length; k++) {
        const column = obs.length + k * near.length + nearest;
        floats[at + column] = this.scaled(made[k], column);
      }
    }
  }

  setAction(row, action) { this.floats.set(action, this.x + row * this.stride + this.size); }

  // The policy's own actions for rows of `x`.
  act(rows) {
    const at = this.run(this.actor, rows, this.activation), { n, cols } = this.actor.at(-1);
    return Array.from({ length: rows }, (_, row) => Array.from(
      this.floats.subarray(at + row * n, at + row * n + cols),
      y => this.squash === "tanh" ? Math.tanh(y) : clip(y, -1, 1)));
  }

  // A critic's raw values of the actions behind rows of `x`.
  values(critic, rows) {
    const at = this.run(critic, rows), { n } = critic.at(-1);
    return Array.from({ length: rows }, (_, row) => this.floats[at + row * n]);
  }

  // The same for any number of actions in the state of the first row.
  valuesOf(critic, actions) {
    const state = this.floats.slice(this.x, this.x + this.size), made = [];
    for (let start = 0; start < actions.length; start += ROWS) {
      const chunk = actions.slice(start, start + ROWS);
      chunk.forEach((action, row) => {
        this.floats.set(state, this.x + row * this.stride);
        this.setAction(row, action);
      });
      made.push(...this.values(critic, chunk.length));
    }
    return made;
  }

  cost(raw) { return this.unit * (this.clipped ? Math.max(raw, 0) : raw); }

  // Eq. 1 of the rows whose Q_C, raw, was computed last.
  influence(raw) {
    const { n, cols } = this.whitener, { sharpness, largest } = DATA.decide, to = this.buffers[2];
    this.apply(this.whitener, this.hidden, to, raw.length);
    return raw.map((value, row) => {
      let v = 0;
      for (let p = to + row * n; p < to + row * n + cols; p++) v += this.floats[p] * this.floats[p];
      if (this.clipped) v *= (1 / (1 + Math.exp(clip(-sharpness * value, -largest, largest)))) ** 2;
      return v / (1 + v);
    });
  }

  toleranceLeft(tolerance, remaining) {
    if (!this.budget) return tolerance;
    const share = this.limit > 0 ? clip(remaining / this.limit, 0, 1) : Number(remaining >= 0);
    return tolerance * (DATA.decide.spent + (1 - DATA.decide.spent) * share);
  }
}

// The decision for an observation: proposed and taken action, and what was tried. Q_C in the task's unit.
function decide(network, obs, remaining, tolerance = network.tolerance) {
  network.see(obs, 0);
  const [proposed] = network.act(1);
  if (!network.safety) return { action: proposed, proposed, screened: false, changed: false };
  const most = network.toleranceLeft(tolerance, remaining);
  const around = c => network.around ? c.map((y, k) => clip(proposed[k] + y, -1, 1)) : c;
  const tried = [proposed, ...(network.candidates || []).map(around)];
  const raw = network.valuesOf(network.safety, tried);
  const q = network.clipped ? raw.map(value => Math.max(value, 0)) : raw;
  const rewards = network.reward && network.valuesOf(network.reward, tried);
  const screened = network.candidates !== null && q[0] > most;
  const place = screened ? best(q, rewards, most, network.price) : 0;
  const again = network.valuesOf(network.safety, [tried[place]]);
  return {
    action: tried[place], proposed, screened, changed: place > 0, tried,
    tolerance: most * network.unit,
    qCost: q[place] * network.unit, qProposed: q[0] * network.unit, qTried: q.map(y => y * network.unit),
    qReward: rewards && rewards[place],
    influence: network.whitener ? network.influence(again)[0] : null,
  };
}

function best(q, rewards, tolerance, price) {
  const largest = list => list.indexOf(Math.max(...list));
  if (!rewards) return largest(q.map(value => -value));
  const place = largest(rewards.map((value, at) => q[at] <= tolerance ? value : -Infinity));
  return place > 0 ? place : largest(rewards.map((value, at) => value - price * q[at]));
}

// ---------------------------------------------------------------- maps over the arena

// Every cell, in an order that spreads over the map: what time does not suffice for is not one part.
const ORDER = Array.from({ length: CELLS * CELLS }, (_, at) => at * 1597 % (CELLS * CELLS));
const SIDE = 2 * EXTENT / CELLS;
const CENTRES = Array.from({ length: CELLS }, (_, at) => (at + 0.5) * SIDE - EXTENT);

class Maps {
  constructor(network) {
    const size = CELLS * CELLS;
    this.network = network;
    this.actions = new Float32Array(2 * size); // the policy's own
    this.values = new Float32Array(size);
    this.costs = new Float32Array(size); // Q_C, where it was asked
    this.stale = new Uint8Array(size);
    this.seen = TASK.kinds.map(() => new Float32Array(size * TASK.bins)); // the lidars
    this.keys = {};
  }

  // Bring `values` and `actions` up to date, for as many milliseconds; return how many cells are left.
  compute(scene, quantity, most = Infinity) {
    const started = performance.now(), { network, stale } = this;
    const reward = quantity === "q_reward", critic = reward ? network.reward : network.safety;
    const sensors = sensed(scene), { bins } = TASK;
    if (this.isNew("all", [quantity, ...sensors])) stale.fill(1);
    TASK.kinds.forEach((kind, at) => this.look(scene, kind, this.seen[at]));
    const obs = new Float32Array(sensors.length + bins * TASK.kinds.length), cells = [];
    obs.set(sensors);
    let left = sum([...stale]);
    const flush = () => {
      const actions = network.act(cells.length);
      actions.forEach((action, row) => { this.actions.set(action, 2 * cells[row]); network.setAction(row, action); });
      if (critic) {
        const raw = network.values(critic, cells.length);
        const u = quantity === "influence" && network.whitener ? network.influence(raw) : null;
        cells.forEach((cell, row) => {
          if (!reward) this.costs[cell] = network.cost(raw[row]);
          this.values[cell] = reward ? raw[row] : u ? u[row] : this.costs[cell];
        });
      }
      cells.forEach(cell => { stale[cell] = 0; });
      left -= cells.length;
      cells.length = 0;
    };
    for (const cell of ORDER) {
      if (!stale[cell]) continue;
      this.seen.forEach((seen, at) =>
        obs.set(seen.subarray(cell * bins, (cell + 1) * bins), sensors.length + bins * at));
      network.see(obs, cells.length);
      cells.push(cell);
      if (cells.length < ROWS) continue;
      flush();
      if (performance.now() - started > most) return left;
    }
    if (cells.length) flush();
    return 0;
  }

  isNew(name, value) {
    const key = value.join();
    if (this.keys[name] === key) return false;
    this.keys[name] = key;
    return true;
  }

  // Where the lidar of a kind sees something else than before, the cell is stale.
  look(scene, kind, seen) {
    const points = pointsOf(scene, kind), { rotation } = scene, position = [0, 0, scene.position[2]];
    if (!this.isNew(kind, [...points.flatMap(([x, y]) => [x, y]), ...rotation, position[2]])) return;
    const { bins } = TASK, now = new Float32Array(bins);
    for (let cell = 0; cell < CELLS * CELLS; cell++) {
      position[0] = CENTRES[cell % CELLS];
      position[1] = CENTRES[Math.floor(cell / CELLS)];
      lidar(points, position, rotation, now, 0);
      for (let bin = 0, at = cell * bins; bin < bins; bin++, at++) if (now[bin] !== seen[at]) {
        this.stale[cell] = 1;
        seen[at] = now[bin];
      }
    }
  }
}

// ---------------------------------------------------------------- scenes and episodes

const RUNS = DATA.runs.map(run => {
  const network = new Network(run.network);
  return { ...run, network, maps: new Maps(network),
    episodes: run.episodes.map(episode => ({ ...episode, columns: unpack(episode.columns) })) };
});
const copyThings = things => Object.fromEntries(
  Object.entries(things).map(([kind, places]) => [kind, places.map(place => [...place])]));

function sceneAtRest({ agent: [x, y, heading], things, button }) {
  const { sensors, position, rotation } = TASK.rest;
  const scene = { things: copyThings(things), button, seen: true, sensors,
    position: [x, y, position[2]], rotation: [...rotation] };
  turn(scene, heading);
  return scene;
}

function row(episode, name, step) {
  const { shape: [, ...rest], data } = episode.columns[name];
  const size = rest.reduce((a, b) => a * b, 1);
  return data.subarray(step * size, (step + 1) * size);
}

function sceneOf(episode, step) {
  const things = copyThings(episode.start.things);
  for (const name of Object.keys(episode.columns)) if (name.startsWith("things/")) {
    const [, , width] = episode.columns[name].shape, flat = row(episode, name, step);
    const places = [];
    for (let at = 0; at < flat.length; at += width) places.push([...flat.subarray(at, at + width)]);
    things[name.slice(7)] = places;
  }
  return { things, button: row(episode, "button", step)[0], seen: row(episode, "seen", step)[0] > 0,
    sensors: row(episode, "sensors", step), position: [...row(episode, "position", step)],
    rotation: [...row(episode, "rotation", step)] };
}

const lengthOf = episode => episode.columns.cost.data.length;

const state = {
  scene: null, source: 0, edited: false, // source: a number of a scene, or { run, episode }
  step: 0, playing: false, quantity: "q_cost", arrows: true, lidars: true,
  tolerance: RUNS[0].network.tolerance, share: 1, // of the budget
  selected: { kind: "robot", at: 0 }, dragging: null, hover: null, turnOfOthers: 0,
};
const episodeNow = () =>
  typeof state.source === "object" ? RUNS[state.source.run].episodes[state.source.episode] : null;

function putBack() {
  const episode = episodeNow();
  state.scene = episode ? sceneOf(episode, state.step) : sceneAtRest(DATA.scenes[state.source]);
  state.edited = false;
  if (episode) {
    const { limit } = RUNS[state.source.run].network;
    const remaining = limit - sum([...episode.columns.cost.data.subarray(0, state.step)]);
    state.share = limit > 0 ? clip(remaining / limit, 0, 1) : Number(remaining >= 0);
  }
  changed();
}

function choose(source) {
  Object.assign(state, { source, step: 0, playing: false, selected: { kind: "robot", at: 0 } });
  $("source").value = typeof source === "object" ? `${source.run}/${source.episode}` : `${source}`;
  putBack();
  rescale();
}

// ---------------------------------------------------------------- colours

const page = document.documentElement;
const colours = {}; // of the theme, from the style sheet
const ramps = {};
const rgb = hex => [1, 3, 5].map(at => parseInt(hex.slice(at, at + 2), 16));
const mix = (a, b, share) => a.map((x, k) => x + (b[k] - x) * share);
const css = (colour, alpha = 1) => `rgba(${colour.map(Math.round).join()},${alpha})`;

function readTheme() {
  const style = getComputedStyle(page);
  for (const name of ["ink", "soft", "line", "arena", "paper", "goal", "hazards", "vases", "buttons",
    "gremlins", "pillars", "push-box", "circle", "walls", "body", "front", "outline", "cost", "accent",
    "predicted"])
    colours[name] = rgb(style.getPropertyValue(`--${name}`).trim());
  const dark = sum(colours.arena) < 380;
  for (const [name, hex] of Object.entries(DATA.quantities)) {
    const colour = rgb(hex), white = [255, 255, 255], black = [0, 0, 0];
    ramps[name] = dark
      ? [colours.arena, mix(colour, black, 0.35), mix(colour, white, 0.3), mix(colour, white, 0.85)]
      : [colours.arena, mix(colour, white, 0.55), colour, mix(colour, black, 0.5)];
  }
}

function shade(ramp, share) {
  const at = clip(share, 0, 1) * (ramp.length - 1), low = Math.min(Math.floor(at), ramp.length - 2);
  return mix(ramp[low], ramp[low + 1], at - low);
}

// ---------------------------------------------------------------- views

const $ = id => document.getElementById(id);
const FORMAT = new Intl.NumberFormat("en", { maximumSignificantDigits: 3 });
const number = x => x === null || Number.isNaN(x) ? "unknown" : FORMAT.format(Math.abs(x) < 5e-4 ? 0 : x);
const views = RUNS.map((run, at) => {
  const card = $("card").content.firstElementChild.cloneNode(true);
  const part = name => card.querySelector(`.${name}`);
  part("name").textContent = run.name;
  part("about").textContent = run.about;
  $("cards").append(card);
  const view = { run, at, card, part, arena: part("arena"), square: part("square"), range: [0, 1] };
  view.image = new OffscreenCanvas(CELLS, CELLS);
  if (!run.network.safety) part("note").textContent = "This method has no safety critic: arrows alone.";
  return view;
});

// The canvas' context, cleared, in CSS pixels; and its size.
function ready(canvas) {
  const { clientWidth: width, clientHeight: height } = canvas;
  const ratio = Math.min(window.devicePixelRatio || 1, 2);
  const [w, h] = [Math.round(width * ratio), Math.round(height * ratio)];
  if (canvas.width !== w || canvas.height !== h) [canvas.width, canvas.height] = [w, h];
  const pen = canvas.getContext("2d");
  pen.setTransform(ratio, 0, 0, ratio, 0, 0);
  pen.clearRect(0, 0, width, height);
  return [pen, width, height];
}

function frameOf(scene, size) { // from metres to pixels; more is shown where the robot has left
  const far = Math.max(...scene.position.slice(0, 2).map(Math.abs));
  const half = Math.max(1.05 * EXTENT, Math.ceil(2 * (far + 0.25)) / 2);
  return { scale: size / 2 / half, half, x: x => (x / half + 1) * size / 2, y: y => (1 - y / half) * size / 2 };
}

function available(network, quantity) {
  return { q_cost: network.safety, influence: network.whitener, q_reward: network.reward, none: null }[quantity];
}

// The range of colours: kept while something is dragged, so that a change is seen as one.
function rescale() {
  const { quantity } = state;
  for (const view of views) {
    if (!available(view.run.network, quantity)) continue;
    view.run.maps.compute(state.scene, quantity);
    const values = view.run.maps.values.slice().sort();
    const at = share => values[Math.round(share * (values.length - 1))];
    view.range = { q_cost: [0, Math.max(at(0.99), 1e-3)], influence: [0, 1],
      q_reward: [at(0.01), Math.max(at(0.99), at(0.01) + 1e-3)] }[quantity];
  }
  if (quantity === "q_cost") { // costs are of one unit, so critics are compared on one scale
    const top = Math.max(...views.filter(v => v.run.network.safety).map(v => v.range[1]));
    for (const view of views) view.range = [0, top];
  }
  changed();
}

const FRAME = 18; // ms for the maps of a frame: what is left is done in the next ones
function updateMaps() {
  const started = performance.now();
  const left = sum(views.map(view => paintMap(view, FRAME / views.length)));
  if (left > 0) changed();
  return [performance.now() - started, left];
}

function paintMap(view, most) {
  const { maps, network } = view.run, { quantity } = state, has = available(network, quantity);
  view.mapped = Boolean(has);
  const left = maps.compute(state.scene, quantity, most), { values } = maps;
  if (!has) return left;
  const [low, high] = view.range, ramp = ramps[quantity];
  if (view.ramp !== ramp) {
    view.ramp = ramp;
    view.levels = Array.from({ length: 256 }, (_, at) => shade(ramp, at / 255).map(Math.round));
  }
  const pixels = new ImageData(CELLS, CELLS);
  for (let cell = 0; cell < values.length; cell++) {
    const level = view.levels[Math.round(255 * clip((values[cell] - low) / (high - low), 0, 1))];
    const at = 4 * ((CELLS - 1 - Math.floor(cell / CELLS)) * CELLS + cell % CELLS); // y is up
    pixels.data[at] = level[0];
    pixels.data[at + 1] = level[1];
    pixels.data[at + 2] = level[2];
    pixels.data[at + 3] = 255;
  }
  view.image.getContext("2d").putImageData(pixels, 0, 0);
  return left;
}

// Where the map of Q_C crosses a value, as line segments in cells: marching squares.
function contour(values, level) {
  const segments = [], v = (i, j) => values[j * CELLS + i] - level;
  for (let j = 0; j < CELLS - 1; j++) for (let i = 0; i < CELLS - 1; i++) {
    const [a, b, c, d] = [v(i, j), v(i + 1, j), v(i + 1, j + 1), v(i, j + 1)];
    const cuts = [];
    if (a > 0 !== b > 0) cuts.push([i + a / (a - b), j]);
    if (b > 0 !== c > 0) cuts.push([i + 1, j + b / (b - c)]);
    if (c > 0 !== d > 0) cuts.push([i + d / (d - c), j + 1]);
    if (d > 0 !== a > 0) cuts.push([i, j + a / (a - d)]);
    for (let k = 0; k + 1 < cuts.length; k += 2) segments.push([cuts[k], cuts[k + 1]]);
  }
  return segments;
}

function drawArena(view) {
  const { scene } = state, [pen, size] = ready(view.arena), to = frameOf(scene, size);
  const network = view.run.network, left = to.x(-EXTENT), top = to.y(EXTENT), side = 2 * EXTENT * to.scale;
  view.frame = to;
  pen.fillStyle = css(colours.arena);
  pen.fillRect(left, top, side, side);
  if (view.mapped) {
    pen.imageSmoothingEnabled = true;
    pen.imageSmoothingQuality = "high";
    pen.drawImage(view.image, left, top, side, side);
  }
  pen.strokeStyle = css(colours.soft, 0.5);
  pen.lineWidth = 1;
  pen.strokeRect(left, top, side, side);
  if (state.quantity === "q_cost" && network.candidates && view.mapped) {
    const tolerance = network.toleranceLeft(state.tolerance, state.share * network.limit) * network.unit;
    const place = at => (at + 0.5) / CELLS * side;
    pen.beginPath();
    for (const [[a, b], [c, d]] of contour(view.run.maps.costs, tolerance)) {
      pen.moveTo(left + place(a), top + side - place(b));
      pen.lineTo(left + place(c), top + side - place(d));
    }
    pen.strokeStyle = css(colours.ink, 0.75);
    pen.lineWidth = 1.3;
    pen.setLineDash([5, 3]);
    pen.stroke();
    pen.setLineDash([]);
  }
  drawThings(pen, to, scene);
  if (state.arrows) drawArrows(pen, to, scene, view.run.maps.actions);
  const episode = episodeNow();
  if (episode && state.source.run === view.at) drawTrail(pen, to, episode);
  if (state.lidars) drawLidars(pen, to, scene);
  drawRobot(pen, to, scene);
  drawHandle(pen, to);
}

function disc(pen, to, [x, y], radius, fill, line, width = 1.5) {
  pen.beginPath();
  pen.arc(to.x(x), to.y(y), radius * to.scale, 0, 2 * Math.PI);
  if (fill) { pen.fillStyle = fill; pen.fill(); }
  if (line) { pen.strokeStyle = line; pen.lineWidth = width; pen.stroke(); }
}

function polygon(pen, to, points, [x, y, angle = 0], fill, line) {
  const c = Math.cos(angle), s = Math.sin(angle);
  pen.beginPath();
  for (const [a, b] of points) pen.lineTo(to.x(x + c * a - s * b), to.y(y + s * a + c * b));
  pen.closePath();
  pen.fillStyle = fill;
  pen.fill();
  if (line) { pen.strokeStyle = line; pen.lineWidth = 1; pen.stroke(); }
}

const box = half => [[-half, -half], [half, -half], [half, half], [-half, half]];

function drawThings(pen, to, { things, button }) {
  const { radii } = TASK, ink = css(colours.ink, 0.9);
  for (const wall of TASK.walls) for (const sign of [-1, 1]) {
    const across = TASK.walls.indexOf(wall) === 0, at = sign * wall;
    pen.beginPath();
    pen.moveTo(...(across ? [to.x(at), to.y(-to.half)] : [to.x(-to.half), to.y(at)]));
    pen.lineTo(...(across ? [to.x(at), to.y(to.half)] : [to.x(to.half), to.y(at)]));
    pen.strokeStyle = css(colours.walls);
    pen.lineWidth = 3;
    pen.stroke();
  }
  if (TASK.kinds.includes("circle")) disc(pen, to, [0, 0], radii.circle, null, css(colours.circle), 2);
  for (const place of things.hazards || [])
    disc(pen, to, place, radii.hazards, css(colours.hazards, 0.3), css(colours.hazards), 2);
  for (const place of things.goal || []) {
    disc(pen, to, place, radii.goal, css(colours.goal, 0.3), css(colours.goal), 2);
    disc(pen, to, place, radii.goal * 0.12, css(colours.goal));
  }
  pen.setLineDash([1, 5]);
  for (const place of things.centres || [])
    disc(pen, to, place, radii.path, null, css(colours.gremlins), 1.6);
  pen.setLineDash([]);
  (things.buttons || []).forEach((place, at) => {
    const goal = at === button;
    if (goal) disc(pen, to, place, radii.buttons + 0.1, css(colours.goal, 0.3), css(colours.goal), 2);
    disc(pen, to, place, radii.buttons, css(goal ? colours.goal : colours.buttons), ink, 1);
  });
  for (const kind of ["vases", "gremlins", "push_box"]) for (const place of things[kind] || [])
    polygon(pen, to, box(radii[kind]), place, css(colours[kind.replace("_", "-")]), ink);
  for (const place of things.pillars || [])
    disc(pen, to, place, radii.pillars, css(colours.pillars), ink, 1);
}

// Where the robot would go: an arrow that bends as it turns, back where it drives backwards.
function drawArrows(pen, to, scene, actions) {
  const heading = headingOf(scene), base = heading + Math.atan2(TASK.ahead[1], TASK.ahead[0]);
  const step = 4, length = 0.85 * step * SIDE;
  pen.strokeStyle = pen.fillStyle = css(colours.ink, 0.6);
  pen.lineWidth = 1.2;
  for (let j = step / 2; j < CELLS; j += step) for (let i = step / 2; i < CELLS; i += step) {
    const cell = j * CELLS + i, action = [actions[2 * cell], actions[2 * cell + 1]];
    const [speed, bend] = TASK.mix.map(share => share[0] * action[0] + share[1] * action[1]);
    let x = CENTRES[i], y = CENTRES[j], angle = base;
    x -= 0.4 * length * speed * Math.cos(angle);
    y -= 0.4 * length * speed * Math.sin(angle);
    pen.beginPath();
    pen.moveTo(to.x(x), to.y(y));
    for (let k = 0; k < 6; k++) {
      angle += bend * 0.22;
      x += length / 6 * speed * Math.cos(angle);
      y += length / 6 * speed * Math.sin(angle);
      pen.lineTo(to.x(x), to.y(y));
    }
    pen.stroke();
    const way = speed < 0 ? angle + Math.PI : angle, size = 0.021 * EXTENT * Math.min(1, 0.3 + Math.abs(speed));
    pen.beginPath();
    for (const [along, off] of [[1, 0], [-1, 0.7], [-1, -0.7]])
      pen.lineTo(to.x(x + size * (along * Math.cos(way) - off * Math.sin(way))),
        to.y(y + size * (along * Math.sin(way) + off * Math.cos(way))));
    pen.fill();
  }
}

// A ring of bins round the robot for each kind of object, as bright as the lidar's number.
function drawLidars(pen, to, scene) {
  const obs = observe(scene), first = scene.sensors.length, heading = headingOf(scene), { bins } = TASK;
  const [x, y] = scene.position, width = 2 * Math.PI / bins;
  TASK.kinds.forEach((kind, ring) => {
    const radius = (0.27 + 0.05 * ring) * to.scale;
    for (let bin = 0; bin < bins; bin++) {
      const value = obs[first + bins * ring + bin];
      if (value <= 0) continue;
      const angle = -(heading + (bin + 0.5) * width); // up is down on a canvas
      pen.beginPath();
      pen.arc(to.x(x), to.y(y), radius, angle - 0.42 * width, angle + 0.42 * width);
      pen.strokeStyle = css(colours[kind.replace("_", "-")], 0.15 + 0.85 * value);
      pen.lineWidth = 0.036 * to.scale;
      pen.stroke();
    }
  });
}

function drawRobot(pen, to, scene) {
  const pose = [scene.position[0], scene.position[1], headingOf(scene)], ink = css(colours.outline);
  for (const [points, fill, outlined] of TASK.shapes)
    polygon(pen, to, points, pose, fill === "ink" ? ink : css(colours[fill]), outlined ? ink : null);
}

function drawTrail(pen, to, episode) {
  const at = step => row(episode, "position", step);
  const costs = episode.columns.cost.data;
  for (let step = 1; step < lengthOf(episode); step++) {
    const [x, y] = at(step - 1), [u, v] = at(step), costly = costs[step - 1] > 0;
    pen.beginPath();
    pen.moveTo(to.x(x), to.y(y));
    pen.lineTo(to.x(u), to.y(v));
    pen.strokeStyle = costly ? css(colours.cost) : css(colours.ink, step <= state.step ? 0.75 : 0.2);
    pen.lineWidth = costly ? 3.5 : 2;
    if (costly && step > state.step) pen.strokeStyle = css(colours.cost, 0.35);
    pen.stroke();
  }
}

// What is selected has a ring, and a handle to turn it by.
function placeOf({ kind, at }, scene = state.scene) {
  return kind === "robot" ? [scene.position[0], scene.position[1], headingOf(scene)] : scene.things[kind][at];
}
const turns = place => place.length > 2;
function handleOf(place, kind) {
  const angle = place[2] + (kind === "robot" ? Math.atan2(TASK.ahead[1], TASK.ahead[0]) : 0);
  const reach = kind === "robot" ? 0.3 + 0.05 * (state.lidars ? TASK.kinds.length : 0) : 0.26;
  return [place[0] + reach * Math.cos(angle), place[1] + reach * Math.sin(angle)];
}
function drawHandle(pen, to) {
  const { selected } = state, place = placeOf(selected);
  if (selected.kind !== "robot")
    disc(pen, to, place, (TASK.radii[selected.kind] || 0.2) * 1.25 + 0.03, null, css(colours.ink), 1.5);
  if (!turns(place)) return;
  const [x, y] = handleOf(place, selected.kind);
  pen.beginPath();
  pen.moveTo(to.x(place[0]), to.y(place[1]));
  pen.lineTo(to.x(x), to.y(y));
  pen.strokeStyle = css(colours.ink, 0.5);
  pen.lineWidth = 1;
  pen.stroke();
  disc(pen, to, [x, y], 5.5 / to.scale, css(colours.paper), css(colours.ink), 2);
}

// ---------------------------------------------------------------- the square of actions

const EDGE = 21; // actions along an edge
const ACTIONS = Array.from({ length: EDGE * EDGE }, (_, at) =>
  [2 * (at % EDGE) / (EDGE - 1) - 1, 1 - 2 * Math.floor(at / EDGE) / (EDGE - 1)]);
function drawSquare(view, decision, obs) {
  const [pen, size] = ready(view.square), { network } = view.run;
  view.card.classList.toggle("plain", !network.safety);
  const x = a => (a + 1) / 2 * size, y = a => (1 - a) / 2 * size;
  if (network.safety) {
    network.see(obs, 0);
    const values = network.valuesOf(network.safety, ACTIONS).map(raw => network.cost(raw));
    const low = Math.min(...values), high = Math.max(...values, low + 1e-6), cell = size / EDGE;
    values.forEach((value, at) => {
      pen.fillStyle = css(shade(ramps.q_cost, (value - low) / (high - low)));
      pen.fillRect(at % EDGE * cell, Math.floor(at / EDGE) * cell, cell + 0.7, cell + 0.7);
    });
    if (network.candidates) { // what the screen refuses is hatched
      pen.save();
      pen.beginPath();
      values.forEach((value, at) => {
        if (value > decision.tolerance)
          pen.rect(at % EDGE * cell, Math.floor(at / EDGE) * cell, cell + 0.5, cell + 0.5);
      });
      pen.clip();
      pen.beginPath();
      for (let at = -size; at < size; at += 9) { pen.moveTo(at, size); pen.lineTo(at + size, 0); }
      pen.strokeStyle = css(colours.hazards, 0.95);
      pen.lineWidth = 2;
      pen.stroke();
      pen.restore();
    }
    view.part("low").textContent = number(low);
    view.part("high").textContent = number(high);
  }
  const mark = ([a, b], radius, fill, line) => {
    pen.beginPath();
    pen.arc(clip(x(a), 6, size - 6), clip(y(b), 6, size - 6), radius, 0, 2 * Math.PI);
    if (fill) { pen.fillStyle = fill; pen.fill(); }
    if (line) { pen.strokeStyle = line; pen.lineWidth = 2; pen.stroke(); }
  };
  (decision.tried || []).slice(1).forEach((action, at) => {
    const refused = decision.qTried[at + 1] > decision.tolerance;
    mark(action, 3, refused ? null : css(colours.ink), null);
    if (refused) { mark(action, 2.6, css(colours.arena), css(colours.ink, 0.7)); }
  });
  mark(decision.proposed, 7, null, css(colours.paper));
  mark(decision.proposed, 8.5, null, css(colours.ink));
  mark(decision.action, 4.5, css(colours.front), css(colours.outline));
}

function describe(view, decision) {
  const { network } = view.run, { part } = view;
  const write = (name, text) => { part(name).textContent = text; };
  if (!network.safety) return;
  write("q", number(decision.qProposed));
  write("u", number(decision.influence));
  write("r", number(decision.qReward));
  write("tolerated", network.candidates ? number(decision.tolerance) : "no screen");
  const verdict = part("verdict");
  verdict.className = `verdict ${decision.screened ? "refused" : "allowed"}`;
  verdict.textContent = !network.candidates ? "no screen: it is done"
    : !decision.screened ? "the screen lets it through"
      : decision.changed ? `refused; taken instead: Q_C ${number(decision.qCost)}`
        : "refused, but nothing better was found";
}

// ---------------------------------------------------------------- the time line

function criticsOn(episode) { // every critic's Q_C of what was done
  episode.critics = RUNS.map(({ network }, at) => {
    if (!network.safety) return null;
    if (at === state.source.run) return episode.columns.q_cost.data;
    return Float32Array.from({ length: lengthOf(episode) }, (_, step) => {
      network.see(observe(sceneOf(episode, step)), 0);
      return network.cost(network.valuesOf(network.safety, [[...row(episode, "action", step)]])[0]);
    });
  });
}

function drawTimeline() {
  const episode = episodeNow();
  $("time").hidden = !episode;
  if (!episode) return;
  if (!episode.critics) criticsOn(episode);
  const [pen, width, height] = ready($("timeline")), steps = lengthOf(episode);
  const left = 52, right = 12, bottom = 58, top = 10, events = height - 20;
  const { realised, cost, changed: replaced, screened } = episode.columns;
  const finite = [...realised.data].filter(value => !Number.isNaN(value));
  const most = Math.max(1e-3, ...finite, ...episode.critics.flatMap(q => q ? [...q] : []));
  const x = step => left + (step + 0.5) / steps * (width - left - right);
  const y = value => height - bottom - value / most * (height - bottom - top);
  state.stepAt = px => clip(Math.floor((px - left) / (width - left - right) * steps), 0, steps - 1);
  pen.font = "11px system-ui, sans-serif";
  pen.textBaseline = "middle";
  pen.textAlign = "right";
  for (const share of [0, 0.5, 1]) {
    pen.fillStyle = css(colours.soft);
    pen.fillText(number(share * most), left - 6, y(share * most));
    pen.fillStyle = css(colours.line);
    pen.fillRect(left, y(share * most), width - left - right, 1);
  }
  const bar = (width - left - right) / steps;
  const largest = Math.max(...cost.data, 1e-9);
  for (let step = 0; step < steps; step++) {
    if (cost.data[step] > 0) {
      pen.fillStyle = css(colours.cost, 0.85);
      const tall = 5 + 9 * cost.data[step] / largest;
      pen.fillRect(x(step) - bar / 2, height - bottom + 22 - tall, Math.max(bar - 0.5, 1), tall);
    }
    if (!screened.data[step]) continue;
    pen.fillStyle = css(colours.accent, replaced.data[step] ? 1 : 0.4);
    pen.fillRect(x(step) - bar / 2, events - 4, Math.max(bar - 0.5, 1), 9);
  }
  const line = (values, colour, wide, dash = []) => {
    pen.beginPath();
    let down = false;
    values.forEach((value, step) => {
      if (Number.isNaN(value)) { down = false; return; }
      pen[down ? "lineTo" : "moveTo"](x(step), y(value));
      down = true;
    });
    pen.setLineDash(dash);
    pen.strokeStyle = colour;
    pen.lineWidth = wide;
    pen.stroke();
    pen.setLineDash([]);
  };
  line(realised.data, css(colours.cost), 2);
  episode.critics.forEach((q, at) => {
    if (q && at !== state.source.run) line(q, css(rgb(RUNS[at].colour), 0.9), 1.4, [5, 3]);
  });
  const own = episode.critics[state.source.run];
  if (own) line(own, css(colours.predicted), 2.2);
  pen.fillStyle = css(colours.ink, 0.85);
  pen.fillRect(x(state.step) - 1, top - 6, 2, height - top - 8);
  pen.fillStyle = css(colours.soft);
  pen.textAlign = "left";
  pen.fillText("cost", 8, height - bottom + 15);
  pen.fillText("screen", 8, events);
  const so = (name, from = 0) => sum([...episode.columns[name].data.subarray(from, state.step + 1)]);
  const { repeat, network } = RUNS[state.source.run];
  $("clock").textContent = `${(state.step * repeat * TASK.seconds).toFixed(1)} s`;
  $("so-far").textContent = `decision ${state.step + 1} of ${steps} · cost so far ${number(so("cost"))} of ${number(network.limit)}`
    + ` · reward ${number(so("reward"))} · ${number(so("changed"))} replaced by the screen`;
}

// ---------------------------------------------------------------- drawing when something changed

let asked = false;
function changed() {
  if (!asked) requestAnimationFrame(() => { asked = false; render(); });
  asked = true;
}

function render() {
  const [spent, left] = updateMaps();
  const obs = observe(state.scene);
  for (const view of views) {
    const { network } = view.run;
    view.decision = decide(network, obs, state.share * network.limit, state.tolerance);
    drawArena(view);
    drawSquare(view, view.decision, obs);
    describe(view, view.decision);
    const shown = view.mapped && state.quantity !== "none";
    view.part("scale").hidden = !shown;
    view.part("from").textContent = number(view.range[0]);
    view.part("to").textContent = number(view.range[1]);
    if (shown) view.part("bar").style.background =
      `linear-gradient(90deg, ${ramps[state.quantity].map(colour => css(colour)).join()})`;
    view.part("what").textContent = WORDS[state.quantity];
    view.part("squarebar").style.background =
      `linear-gradient(90deg, ${ramps.q_cost.map(colour => css(colour)).join()})`;
  }
  drawTimeline();
  $("back").disabled = !state.edited;
  $("make-goal").hidden = state.selected.kind !== "buttons" || state.selected.at === state.scene.button;
  $("tolerance-value").textContent = number(state.tolerance);
  $("tolerance").value = Math.sqrt(state.tolerance / MOST_TOLERANCE);
  const limit = RUNS[0].network.limit;
  $("budget").value = state.share;
  $("budget-value").textContent = `${number(state.share * limit)} of ${number(limit)}`;
  $("speed").textContent = `${CELLS} × ${CELLS} cells${left ? `, ${left} to follow` : ""}: ${spent.toFixed(0)} ms`;
  $("selected").textContent = NAMES[state.selected.kind] || state.selected.kind.replace(/s$/, "");
  for (const button of document.querySelectorAll("[data-quantity]"))
    button.setAttribute("aria-pressed", String(button.dataset.quantity === state.quantity));
}

const WORDS = {
  q_cost: "Q_C: cost expected from there", influence: "u: how unlike its data (1: unknown)",
  q_reward: "Q_R: reward expected from there", none: "",
};
const NAMES = { robot: TASK.robot, push_box: "box" };
const MOST_TOLERANCE = 10 * Math.max(state.tolerance, 0.05);

// ---------------------------------------------------------------- pointer, keys and controls

function nearest(scene, [x, y], slack) { // what is under the pointer; the smallest wins
  const away = ([u, v]) => Math.hypot(u - x, v - y);
  if (away(scene.position) < 0.17 + slack) return { kind: "robot", at: 0 };
  const sizes = { ...TASK.radii, vases: 0.14, gremlins: 0.14, push_box: 1.5 * TASK.radii.push_box };
  let found = null, least = Infinity;
  for (const [kind, places] of Object.entries(scene.things)) if (kind !== "centres")
    places.forEach((place, at) => {
      if (away(place) < sizes[kind] + slack && sizes[kind] + away(place) / 100 < least)
        [found, least] = [{ kind, at }, sizes[kind] + away(place) / 100];
    });
  return found;
}

function metres(view, event) {
  const { left, top } = view.arena.getBoundingClientRect(), { scale, half } = view.frame;
  return [(event.clientX - left) / scale - half, half - (event.clientY - top) / scale];
}

function moveTo(selected, [x, y]) {
  const { scene } = state, most = 1.1 * EXTENT;
  [x, y] = [clip(x, -most, most), clip(y, -most, most)];
  const place = selected.kind === "robot" ? scene.position : scene.things[selected.kind][selected.at];
  if (selected.kind === "gremlins") {
    const centre = scene.things.centres[selected.at]; // its circle comes along
    [centre[0], centre[1]] = [centre[0] + x - place[0], centre[1] + y - place[1]];
  }
  [place[0], place[1]] = [x, y];
  edit();
}

function turnTo(selected, angle) {
  const place = placeOf(selected);
  if (!turns(place)) return;
  if (selected.kind === "robot") turn(state.scene, angle - place[2]);
  else place[2] = angle;
  edit();
}

function edit() {
  state.edited = true;
  state.playing = false;
  changed();
}

for (const view of views) {
  const { arena } = view;
  arena.addEventListener("pointerdown", event => {
    const at = metres(view, event), slack = (event.pointerType === "touch" ? 14 : 4) / view.frame.scale;
    const place = placeOf(state.selected);
    const handle = turns(place) && handleOf(place, state.selected.kind);
    if (handle && Math.hypot(handle[0] - at[0], handle[1] - at[1]) < 9 / view.frame.scale + slack)
      state.dragging = { view: view.at, turning: true };
    else {
      const found = nearest(state.scene, at, slack);
      if (!found) return;
      const [x, y] = placeOf(found);
      state.selected = found;
      state.dragging = { view: view.at, off: [x - at[0], y - at[1]] };
    }
    arena.setPointerCapture(event.pointerId);
    arena.focus({ preventScroll: true });
    event.preventDefault();
    changed();
  });
  arena.addEventListener("pointermove", event => {
    const at = metres(view, event);
    if (!state.dragging) {
      arena.style.cursor = nearest(state.scene, at, 0.02) ? "grab" : "default";
      return;
    }
    const { off, turning } = state.dragging, { kind } = state.selected;
    if (turning) {
      const [x, y] = placeOf(state.selected);
      const ahead = kind === "robot" ? Math.atan2(TASK.ahead[1], TASK.ahead[0]) : 0;
      turnTo(state.selected, Math.atan2(at[1] - y, at[0] - x) - ahead);
    } else moveTo(state.selected, [at[0] + off[0], at[1] + off[1]]);
  });
  for (const name of ["pointerup", "pointercancel"]) arena.addEventListener(name, () => {
    state.dragging = null;
    changed();
  });
  arena.addEventListener("touchstart", event => { // a finger beside everything scrolls the page
    if (nearest(state.scene, metres(view, event.touches[0]), 14 / view.frame.scale)) event.preventDefault();
  }, { passive: false });
  arena.addEventListener("wheel", event => {
    if (document.activeElement !== arena) return;
    event.preventDefault();
    turnTo(state.selected, placeOf(state.selected)[2] - event.deltaY / 400);
  }, { passive: false });
  arena.addEventListener("keydown", event => {
    const step = event.shiftKey ? 0.2 : 0.05;
    const way = { ArrowLeft: [-step, 0], ArrowRight: [step, 0], ArrowUp: [0, step], ArrowDown: [0, -step] }[event.key];
    const angle = { q: step * 2, e: -step * 2 }[event.key.toLowerCase()];
    const place = placeOf(state.selected);
    if (way) moveTo(state.selected, [place[0] + way[0], place[1] + way[1]]);
    else if (angle) turnTo(state.selected, place[2] + angle);
    else if (event.key === "n") {
      const all = [{ kind: "robot", at: 0 }];
      for (const [kind, places] of Object.entries(state.scene.things))
        if (kind !== "centres") places.forEach((_, at) => all.push({ kind, at }));
      const { kind, at } = state.selected;
      state.selected = all[(all.findIndex(x => x.kind === kind && x.at === at) + 1) % all.length];
      changed();
    } else return;
    event.preventDefault();
  });
}

for (const button of document.querySelectorAll("[data-quantity]")) {
  const { quantity } = button.dataset;
  if (quantity !== "none" && !RUNS.some(run => available(run.network, quantity))) button.hidden = true;
  button.addEventListener("click", () => { state.quantity = quantity; rescale(); });
}
for (const name of ["arrows", "lidars"]) $(name).addEventListener("change", event => {
  state[name] = event.target.checked;
  changed();
});
$("tolerance").addEventListener("input", event => {
  state.tolerance = event.target.value ** 2 * MOST_TOLERANCE; // fine where it matters
  changed();
});
$("budget").addEventListener("input", event => { state.share = Number(event.target.value); changed(); });
$("back").addEventListener("click", putBack);
$("make-goal").addEventListener("click", () => { state.scene.button = state.selected.at; edit(); });
$("theme").addEventListener("click", () => {
  const dark = page.dataset.theme ? page.dataset.theme === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
  page.dataset.theme = dark ? "light" : "dark";
  readTheme();
  changed();
});
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => { readTheme(); changed(); });
new ResizeObserver(changed).observe($("cards"));

const options = $("source");
const group = (label, entries) => {
  const made = document.createElement("optgroup");
  made.label = label;
  for (const [text, value] of entries) made.append(new Option(text, value));
  options.append(made);
};
group("scenes, the robot at rest", DATA.scenes.map((scene, at) => [scene.name, `${at}`]));
RUNS.forEach((run, at) => group(`episodes of ${run.name}`, run.episodes.map((episode, which) =>
  [`${episode.seed}: cost ${number(sum([...episode.columns.cost.data]))}, reward `
    + number(sum([...episode.columns.reward.data])), `${at}/${which}`])));
options.addEventListener("change", () => {
  const [run, episode] = options.value.split("/").map(Number);
  choose(episode === undefined ? run : { run, episode });
});

function goTo(step) {
  state.step = clip(step, 0, lengthOf(episodeNow()) - 1);
  putBack();
}
const timeline = $("timeline");
timeline.addEventListener("pointerdown", event => {
  timeline.setPointerCapture(event.pointerId);
  state.playing = false;
  goTo(state.stepAt(event.offsetX));
});
timeline.addEventListener("pointermove", event => { if (event.buttons) goTo(state.stepAt(event.offsetX)); });
timeline.addEventListener("keydown", event => {
  const step = { ArrowLeft: -1, ArrowRight: 1, PageUp: -10, PageDown: 10 }[event.key];
  if (event.key === " ") play();
  else if (step) goTo(state.step + step);
  else return;
  event.preventDefault();
});
$("play").addEventListener("click", play);

function play() {
  state.playing = !state.playing;
  const episode = episodeNow();
  if (state.playing && state.step === lengthOf(episode) - 1) goTo(0);
  const seconds = RUNS[state.source.run].repeat * TASK.seconds;
  let last = performance.now();
  const advance = now => {
    if (!state.playing || episodeNow() !== episode) return showPlaying();
    if (now - last >= 1000 * seconds) {
      last = now;
      goTo(state.step + 1);
      if (state.step === lengthOf(episode) - 1) state.playing = false;
    }
    requestAnimationFrame(advance);
  };
  requestAnimationFrame(advance);
  showPlaying();
}
function showPlaying() { $("play").textContent = state.playing ? "Pause" : "Play"; }

readTheme();
state.quantity = RUNS.some(run => run.network.safety) ? "q_cost" : "none";
choose(0);
