"""The explorer in a browser: what it computes is what the task and the policy compute."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import safecritic
from deploy.ready import make
from helpers.browser import Page, needs_browser, opened
from safecritic.report import explorer
from safecritic.runtime import decide
from safecritic.runtime.network import xp
from safecritic.tasks.navigation.pictures import robot_at_rest, sensed_at_rest
from safecritic.tasks.navigation.poses import costs, observations

TASKS = ("SafetyCarGoal2-v0", "SafetyPointGoal1-v0", "CarButton1", "SafetyCarButton1-v0")
MORE_TASKS = ("SafetyPointPush2-v0", "SafetyCarCircle1-v0")  # pillars and a box; a circle
POINT = "SafetyPointGoal1-v0"
LARGEST = 5_000_000  # bytes of a page
FRAME = 1 / 30  # s


def teach(agent: Any) -> None:
    """Fit the last layer of Q_C to the cost of standing somewhere, so that it knows hazards."""
    env = safecritic.make(agent.environment["task"]).unwrapped
    rng = np.random.default_rng(0)
    rows, paid = [], []
    still = sensed_at_rest(env.robot)[0][:9]  # what does not depend on the heading
    for seed in range(12):
        env.reset(seed=seed)
        poses = rng.uniform(-1.0, 1.0, (400, 3)) * (env.arena.extent, env.arena.extent, np.pi)
        seen = observations(env, poses).astype(np.float32)
        seen[:, :9] = still
        rows.append(seen)
        env.reset(seed=seed)
        paid.append(costs(env, poses))
    network = agent.policy().network.parts
    x = decide.inputs(xp, np.concatenate(rows), network.near, network.mean, network.std)
    gained = x if network.gains is None else x * network.gains
    _, hidden = decide.values(xp, network.safety, gained, decide.act(xp, network, x)[:, None])
    features = np.concatenate([hidden[:, 0], np.ones((len(x), 1))], axis=1)
    best = np.linalg.lstsq(features, np.concatenate(paid), rcond=None)[0].astype(np.float32)
    device = agent.training.device
    *first, last = device.agent.safety[0]
    fitted = {**last, "w": best[:-1, None], "b": best[-1:]}
    state = device.agent._replace(safety=((*first, fitted),))
    agent.training.device = device._replace(agent=state)


@pytest.fixture(scope="module")
def car(tmp_path_factory: pytest.TempPathFactory) -> tuple[Any, Path]:
    """A run with networks of the usual size whose critic knows hazards, and its page."""
    agent = make("usc", "SafetyCarGoal2-v0", small=False, buffer_size=512)
    teach(agent)
    path = tmp_path_factory.mktemp("explorer") / "car.html"
    return agent, explorer.write([agent], path, episodes=1)


@pytest.fixture
def page(car: tuple[Any, Path]) -> Iterator[Page]:
    with opened(car[1]) as page:
        yield page


def close(actual: Any, expected: Any, most: float, what: str = "") -> None:
    np.testing.assert_allclose(
        np.array(actual, float), np.array(expected, float), rtol=0, atol=most, err_msg=what
    )


def observed(env: Any, scene: dict[str, Any]) -> np.ndarray:
    """The task's own observation of a scene of the page."""
    env.reset(seed=0)
    things, layout = scene["things"], env.layout
    state = {"qpos": env.state["qpos"]}
    size = len(robot := robot_at_rest(env.robot))
    x, y, heading = scene["pose"]
    if env.robot.free:
        robot[:2] = x, y
        w, i, j, k = robot[3:7]
        c, s = np.cos(heading / 2), np.sin(heading / 2)
        robot[3:7] = c * w - s * k, c * i - s * j, c * j + s * i, c * k + s * w
    else:
        robot[:] = x, y, heading
    state["qpos"][:size] = robot
    layout["agent"] = np.array([50.0, 50.0, 0.0])  # a state overrides it, and is not checked
    for kind in ("hazards", "buttons", "pillars"):
        if kind in layout:
            layout[kind] = np.array(things[kind])
    boxes = env.arena.boxes
    if boxes:
        layout[boxes] = np.array([(60.0 + 9 * at, 60.0, 0.0) for at in range(len(layout[boxes]))])
        state["qpos"][size:].reshape(-1, 7)[:, :2] = np.array(things[boxes])[:, :2]
    if "goal" in things:
        layout["goal"], state["goal"] = np.array([50.0, 60.0]), np.array(things["goal"][0])
    if env.arena.buttons:
        state["goal_button"] = np.array(scene["button"])
    return env.reset(options={"layout": layout, "state": state})[0]


@needs_browser
@pytest.mark.slow
@pytest.mark.parametrize("task", [*TASKS, *MORE_TASKS])
def test_the_observation_of_a_dragged_scene_is_the_tasks(task: str, tmp_path: Path) -> None:
    env = safecritic.make(task).unwrapped
    agent = make("usc", task)
    rng = np.random.default_rng(1)
    with opened(explorer.write([agent], tmp_path / "page.html", episodes=1)) as page:
        for number in range(4):
            things = page.js(f"choose({number}), state.scene.things")
            movable = [(kind, at) for kind, places in things.items() if kind != "centres"
                       for at in range(len(places))]  # fmt: skip
            chosen = rng.permutation(len(movable))[:4]
            for kind, at in (movable[place] for place in chosen):
                x, y = rng.uniform(-1.0, 1.0, 2) * env.arena.extent
                # solid ones that cannot be carried must not meet: the task refuses such a layout
                if kind in ("hazards", "buttons", "pillars"):
                    x, y = np.array(things[kind][at][:2]) + rng.uniform(-0.02, 0.02, 2)
                page.js(f"moveTo({{kind: '{kind}', at: {at}}}, [{x}, {y}])")
            # where it touches nothing: in a vase no robot is at rest
            solid = [place[:2] for kind in ("vases", "gremlins", "buttons", "pillars", "push_box")
                     for place in page.js("state.scene.things").get(kind, ())]  # fmt: skip
            free = rng.uniform(-1.0, 1.0, (500, 2)) * env.arena.extent
            away = np.linalg.norm(free[:, None] - np.reshape(solid, (1, -1, 2)), axis=2)
            x, y = free[np.argmax(away.min(axis=1, initial=9.0) > 0.6)]
            page.js(f"moveTo({{kind: 'robot', at: 0}}, [{x}, {y}])")
            page.js(f"turnTo({{kind: 'robot', at: 0}}, {rng.uniform(-3, 3)})")
            if env.arena.buttons:
                page.js(f"state.scene.button = {rng.integers(env.arena.buttons)}")
            made = page.js(
                "({things: state.scene.things, button: state.scene.button,"
                " pose: placeOf({kind: 'robot', at: 0}), obs: [...observe(state.scene)]})"
            )
            close(made["obs"], observed(env, made), 1e-5, f"scene {number}")
        assert page.console == []


RUNS = [("usc", {}), ("sc", {}), ("csc", {"screen": False}), ("cpo", {}), ("ddpg", {}),
        ("usc", {"paper_defaults": True})]  # fmt: skip


@needs_browser
@pytest.mark.slow
def test_critics_and_decisions_are_the_policys(tmp_path: Path) -> None:
    agents = [make(method, POINT, **settings) for method, settings in RUNS]
    path = explorer.write(agents, tmp_path / "page.html", episodes=1)
    changed = []
    with opened(path) as page:
        for at, agent in enumerate(agents):
            network = agent.policy().network
            for scene, share in [(0, 1.0), (1, 0.4), (2, 0.0), (3, 1.0)]:
                remaining = share * agent.config.cost_limit
                made = page.js(
                    f"choose({scene}), turn(state.scene, {scene}),"
                    f"({{obs: [...observe(state.scene)], ...decide(RUNS[{at}].network,"
                    f" observe(state.scene), {remaining})}})"
                )
                obs = np.array([made["obs"]], np.float32)
                expected = network.decide(obs, np.array([remaining], np.float32))
                what = f"{RUNS[at]}, scene {scene}"
                close(made["proposed"], expected.proposed[0], 1e-4, what)
                close(made["action"], expected.unit_action[0], 1e-4, what)
                if network.parts.safety is None:
                    assert "qCost" not in made
                    continue
                close(made["qCost"], expected.q_cost[0], 1e-4, what)
                close(made["qProposed"], expected.q_proposed[0], 1e-4, what)
                assert made["screened"] == expected.screened[0]
                assert made["changed"] == expected.changed[0]
                changed.append(made["changed"])
                if network.parts.whitener is not None:
                    close(made["influence"], expected.influence[0], 1e-4, what)
                if network.parts.reward is not None:
                    parts = network.parts
                    x = decide.inputs(xp, obs, parts.near, parts.mean, parts.std)
                    tried = expected.unit_action[:, None]
                    reward, _ = decide.values(xp, parts.reward, x, tried)
                    close(made["qReward"], reward[0, 0], 1e-4, what)
        assert True in changed
        assert False in changed
        assert page.console == []


@needs_browser
@pytest.mark.slow
def test_a_map_has_what_the_network_says_with_the_robot_in_the_cell(page: Page) -> None:
    for quantity, name in (("q_cost", "qProposed"), ("influence", "influence")):
        page.js(f"state.quantity = '{quantity}', choose(1)")
        page.js("moveTo({kind: 'hazards', at: 2}, [0.3, 0.2])")  # only what it changes is made anew
        page.js(f"RUNS[0].maps.compute(state.scene, '{quantity}')")
        for cell in (0, 700, 2080, 4095):
            mapped, here, action, proposed = page.js(
                f"(() => {{ const cell = {cell}, {{ maps, network }} = RUNS[0];"
                " const [x, y] = [CENTRES[cell % CELLS], CENTRES[Math.floor(cell / CELLS)]];"
                " const scene = {...state.scene, position: [x, y, state.scene.position[2]]};"
                " const made = decide(network, observe(scene), network.limit, 1e9);"
                f" return [maps.values[cell], made.{name},"
                " [...maps.actions.subarray(2 * cell, 2 * cell + 2)], made.proposed]; })()"
            )
            close(mapped, here, 1e-4)
            close(action, proposed, 1e-4)


@needs_browser
@pytest.mark.slow
def test_an_episode_on_the_page_is_the_one_that_was_driven(car: Any, page: Page) -> None:
    agent, _ = car
    evaluation = agent.evaluate(1, seed=10_000)
    (trace,) = evaluation.traces
    page.js("choose({run: 0, episode: 0})")
    cost = page.js("[...episodeNow().columns.cost.data]")
    close(cost, trace.column("cost"), 1e-6)
    spent = np.cumsum([0.0, *cost])
    for step in range(0, len(cost), max(1, len(cost) // 12)):
        page.js(f"goTo({step})")
        remaining = agent.config.cost_limit - spent[step]
        made = page.js(
            f"({{...decide(RUNS[0].network, observe(state.scene), {remaining}),"
            f" done: [...row(episodeNow(), 'action', {step})], obs: [...observe(state.scene)]}})"
        )
        close(made["obs"], evaluation.observations[step], 1e-5, f"step {step}")
        close(made["action"], made["done"], 1e-4, f"step {step}")
        close(made["qCost"], trace.column("q_cost")[step], 1e-4 * max(1.0, made["qCost"]))


def place_on_screen(page: Page, x: float, y: float) -> tuple[float, float]:
    return tuple(
        page.js(
            "(() => { const { left, top } = views[0].arena.getBoundingClientRect();"
            f" return [left + views[0].frame.x({x}), top + views[0].frame.y({y})]; }})()"
        )
    )


@needs_browser
@pytest.mark.slow
def test_a_hazard_dragged_under_the_robot_raises_q_cost_there(car: Any, page: Page) -> None:
    page.settle()
    # away from all hazards: there are some, and none is within their reach
    page.js(
        "state.scene.things.hazards.forEach((place, at) => {"
        " place[0] = at / 3 - 1.6; place[1] = 1.8; })"
    )
    page.js("moveTo({kind: 'robot', at: 0}, [0, -0.9]), turnTo({kind: 'robot', at: 0}, 0.3)")
    page.settle()
    before = page.js("views[0].decision.qProposed")
    start, end = ((*page.js("state.scene.things.hazards[4]"),), (0.0, -0.9))
    page.drag(place_on_screen(page, *start), place_on_screen(page, end[0] + 0.19, end[1]))
    page.settle()
    page.drag(place_on_screen(page, 0.19, -0.9), place_on_screen(page, 0.05, -0.9))
    page.settle()
    assert page.js("state.edited")
    moved = page.js("state.scene.things.hazards[4]")
    assert np.hypot(moved[0] - end[0], moved[1] - end[1]) < 0.2
    assert page.js("views[0].decision.qProposed") > before + 0.05
    cell = "Math.floor((-0.9 + EXTENT) / SIDE) * CELLS + CELLS / 2"
    assert page.js(f"RUNS[0].maps.values[{cell}]") > before + 0.05
    page.js("$('back').click()")
    assert not page.js("state.edited")
    assert page.console == []


@needs_browser
@pytest.mark.slow
def test_thirty_frames_a_second_while_something_is_dragged(page: Page) -> None:
    """In time of the page's own thread: the processors of a test are busy with others."""
    page.call("Performance.enable", timeDomain="threadTicks")

    def used() -> float:
        numbers = page.call("Performance.getMetrics")["metrics"]
        return next(x["value"] for x in numbers if x["name"] == "TaskDuration")

    page.js("choose(0)")
    page.settle()
    assert page.js("CELLS") == 64
    for moved in ("hazards", "vases", "goal"):
        frame = f"state.scene.things.{moved}[0][0] += 0.01; render();"
        page.js(f"for (let k = 0; k < 5; k++) {{ {frame} }}")
        start = used()
        page.js(f"for (let k = 0; k < 20; k++) {{ {frame} }}")
        assert (used() - start) / 20 < FRAME, moved
    page.js("new Promise(done => { const wait = () => RUNS[0].maps.stale.some(x => x)"
            " ? requestAnimationFrame(wait) : done(); wait(); })")  # fmt: skip


@needs_browser
@pytest.mark.slow
def test_the_page_fits_and_asks_for_nothing(car: Any, page: Page) -> None:
    text = car[1].read_text(encoding="utf-8")
    assert car[1].stat().st_size < LARGEST
    assert "http://" not in text
    assert "https://" not in text
    for width, dark in ((1400, False), (1400, True), (420, False), (420, True)):
        page.size(width, 1000, dark)
        page.js("choose({run: 0, episode: 0})")
        page.settle()
        assert page.js("document.documentElement.scrollWidth") <= width
    for control in ("[data-quantity=influence]", "[data-quantity=q_reward]", "[data-quantity=none]",
                    "#theme", "#play", "#back", "#arrows", "#lidars"):  # fmt: skip
        page.js(f"document.querySelector('{control}').click()")
        page.settle()
    page.js("$('tolerance').value = 0, $('tolerance').dispatchEvent(new Event('input'))")
    page.settle()
    assert page.js("state.tolerance") == 0
    assert page.js("views[0].decision.tolerance") == 0  # the episode still plays
    assert page.console == []


def test_runs_that_cannot_be_explored_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "page.html"
    with pytest.raises(ValueError, match="only runs of one task have the same scenes"):
        explorer.write([make("sc", POINT), make("sc", "CarGoal1")], path)
    with pytest.raises(ValueError, match="only tasks on the floor with lidars can"):
        explorer.write([make("sc", "HalfCheetah")], path)
    assert not path.exists()


def test_what_is_packed_is_found_again() -> None:
    import base64

    packed = json.loads(json.dumps(explorer.pack({"a": np.eye(2), "none": None, "b": [1.5]})))
    floats = np.frombuffer(base64.b64decode(packed["bytes"]), "<f4")
    assert packed["index"] == {"a": [0, [2, 2]], "b": [4, [1]]}
    assert floats.tolist() == [1.0, 0.0, 0.0, 1.0, 1.5]
