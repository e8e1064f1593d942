"""adapt: any environment with a cost, either convention, any bounded box of actions.

What it does with the tasks of the package is in test_tasks.py.
"""

import re

import gymnasium
import numpy as np
import pytest
from gymnasium.spaces import Box, Dict, Discrete, MultiBinary, Sequence
from gymnasium.utils.env_checker import check_env

from own_envs import Hall
from safecritic.api import describe
from safecritic.tasks import make
from safecritic.tasks.adapter import (
    FiveValues,
    NoCostError,
    SixValues,
    adapt,
    declared_of,
    make_again,
    make_env,
    proximity_of,
)
from safecritic.tasks.checks import name_of
from safecritic.tasks.observations import UnfitEnvError


class Toy(gymnasium.Env):
    """Counts to 5; keeps the action it got. `extra` goes into info, `six` adds a value."""

    def __init__(self, observation=None, action=None, extra=None, six=None):
        self.observation_space = observation or Box(-9.0, 9.0, (2,), np.float64)
        self.action_space = action or Box(-1.0, 1.0, (2,), np.float32)
        self.extra = extra or {}
        self.six = six
        self.count = 0
        self.seen = None

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.observation_space.seed(0)
        self.count = 0
        return self.observation_space.sample(), {}

    def step(self, action):
        self.seen = action
        self.count += 1
        obs, done = self.observation_space.sample(), self.count == 5
        if self.six is None:
            return obs, 1.0, done, False, dict(self.extra)
        return obs, 1.0, self.six, done, False, dict(self.extra)


class OldToy(Toy):
    """Before Gymnasium: reset returns the observation alone."""

    def reset(self, **_):
        return np.zeros(2)


class FourValues(Toy):
    def step(self, action):
        return np.zeros(2), 0.0, False, {}


# ------------------------------------------------------------------------ what comes back


def test_an_environment_that_needs_nothing_is_not_wrapped_and_twice_is_once():
    env = Toy(extra={"cost": 0.0, "success": False})
    assert adapt(env) is env
    wrapped = adapt(Toy(extra={"cost": np.float32(0.0)}))
    assert adapt(wrapped) is wrapped


def test_cost_in_info():
    env = adapt(Toy(extra={"cost": np.array([0.25], dtype=np.float32), "other": 3}))
    env.reset(seed=0)
    *_, info = env.step(np.zeros(2))
    assert info == {"cost": 0.25, "other": 3}
    assert type(info["cost"]) is float


def test_cost_under_another_key_comes_before_the_usual_one():
    env = adapt(Toy(extra={"cost": 9.0, "success": False, "speeding": 2}), cost_key="speeding")
    env.reset()
    assert env.step(np.zeros(2))[4]["cost"] == 2.0


def test_cost_as_a_sixth_value():
    toy = Toy(six=np.float64(0.5), extra={"cost_sum": 0.5, "goal_met": True})
    env = adapt(toy)
    env.reset(seed=0)
    _, reward, terminated, truncated, info = env.step(np.zeros(2))
    assert (reward, terminated, truncated) == (1.0, False, False)
    assert info == {"cost_sum": 0.5, "goal_met": True, "cost": 0.5, "success": True}


def test_a_key_can_be_chosen_beside_a_sixth_value():
    env = adapt(Toy(six=1.0, extra={"cost_hazards": 0.25}), cost_key="cost_hazards")
    env.reset()
    assert env.step(np.zeros(2))[4]["cost"] == 0.25


def test_cost_from_a_function_sees_the_environments_own_form():
    seen = []

    def cost(obs, action, info):
        seen.append((obs, action, info))
        return abs(float(action[0]))

    space = Dict({"a": Box(0.0, 1.0, (2,), np.float64), "b": Box(5.0, 6.0, (1,), np.float64)})
    toy = Toy(space, Box(0.0, 10.0, (1,), np.float64), extra={"cost": 99.0})
    env = adapt(toy, cost=cost)
    env.reset(seed=0)
    obs, *_, info = env.step(np.array([0.5]))
    own_obs, own_action, own_info = seen[-1]
    assert info["cost"] == 7.5
    np.testing.assert_array_equal(own_action, [7.5])
    np.testing.assert_array_equal(np.concatenate([own_obs["a"], own_obs["b"]]), obs)
    assert own_info["cost"] == 99.0


@pytest.mark.parametrize(
    ("extra", "success"),
    [
        ({"success": True}, True),
        ({"is_success": np.float32(1.0)}, True),
        ({"goal_met": True}, True),
        ({"is_success": 0.0}, False),
        ({}, None),
        ({"arrived": True}, None),
    ],
)
def test_success_under_its_usual_names(extra, success):
    env = adapt(Toy(extra={"cost": 0, **extra}))
    env.reset()
    assert env.step(np.zeros(2))[4].get("success") is success


def test_a_declared_success_is_false_where_it_is_absent():
    toy = Toy(extra={"cost": 0.0, "success": True, "arrived": 1})
    env = adapt(toy, success_key="arrived")
    env.reset()
    assert env.step(np.zeros(2))[4]["success"] is True
    toy.extra = {"cost": 0.0, "success": True}
    assert env.step(np.zeros(2))[4]["success"] is False


def test_safety_gymnasium_reports_a_goal_only_when_it_is_met():
    class Task:
        goal_achieved = False

    toy = Toy(six=0.0)
    assert "success" not in FiveValues(toy).step(np.zeros(2))[4]  # a task without a goal
    toy.task = Task()
    env = adapt(toy)
    env.reset()
    assert env.step(np.zeros(2))[4]["success"] is False
    toy.extra = {"goal_met": True}
    assert env.step(np.zeros(2))[4]["success"] is True


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_actions_are_rescaled_to_the_environments_bounds(dtype):
    low, high = np.array([0.1, -0.3, 5.0]), np.array([0.7, 0.3, 5.0])
    space = Box(low.astype(dtype), high.astype(dtype), dtype=dtype)
    env = adapt(Toy(action=space, extra={"cost": 0.0}))
    assert env.action_space == Box(-1.0, 1.0, (3,), np.float32)
    env.reset()
    for action, expected in [
        ([-1, -1, -1], space.low),
        ([1, 1, 1], space.high),
        ([9, -9, 0], [0.7, -0.3, 5.0]),
        ([0, 0.5, 0.3], [0.4, 0.15, 5.0]),
    ]:
        env.step(action)
        np.testing.assert_allclose(env.unwrapped.seen, expected, rtol=1e-6, atol=1e-7)
        assert env.unwrapped.seen.dtype == dtype
        assert space.contains(env.unwrapped.seen)


def test_actions_and_observations_of_many_dimensions_become_vectors():
    toy = Toy(Box(0, 255, (4, 9), np.int16), Box(-2.0, 2.0, (2, 2)), extra={"cost": 0.0})
    env = adapt(toy)
    obs, _ = env.reset(seed=0)
    assert obs.shape == env.observation_space.shape == (36,)
    assert obs.dtype == env.observation_space.dtype == np.float32
    assert env.action_space.shape == (4,)
    env.step(np.array([0.0, 0.5, 1.0, -1.0]))
    np.testing.assert_array_equal(toy.seen, [[0.0, 1.0], [2.0, -2.0]])


def test_a_dict_observation_keeps_its_numbers():
    env = adapt(gymnasium.make("Pendulum-v1"), cost=lambda obs, action, info: 0.0)
    assert env.observation_space.shape == (3,)
    space = Dict({"flag": Discrete(3), "x": Box(-1.0, 1.0, (2,), np.float32), "m": MultiBinary(2)})
    env = adapt(Toy(space, extra={"cost": 0.0}))
    obs, _ = env.reset(seed=0)
    space.seed(0)
    expected = gymnasium.spaces.flatten(space, space.sample())
    np.testing.assert_allclose(obs, expected)
    assert env.observation_space.contains(obs)


@pytest.mark.filterwarnings("ignore:.*different from the unwrapped")
def test_an_adapted_environment_passes_the_checker():
    env = adapt("Pendulum-v1", cost=lambda obs, action, info: float(abs(obs[2]) > 4.0))
    check_env(env, skip_render_check=True)
    env.reset(seed=0)
    costs = {env.step([1.0])[4]["cost"] for _ in range(100)}
    assert costs == {0.0, 1.0}


def test_adapted_environments_vectorise():
    envs = gymnasium.vector.SyncVectorEnv([lambda: adapt(Toy(six=0.5))] * 2)
    envs.reset(seed=0)
    *_, info = envs.step(np.zeros((2, 2)))
    np.testing.assert_array_equal(info["cost"], [0.5, 0.5])


# ------------------------------------------------------------------------ what is declared


def test_bounds_alone_declare_no_proximity():
    space = Box(0.0, 1.0, (3,), np.float32)
    env = adapt(Toy(space, extra={"cost": 0.0, "success": False}))
    assert proximity_of(env) == ()
    assert describe(env, "Toy", env)["spec"]["proximity"] == ()


def test_the_car_tasks_declare_their_lidars():
    for name, size in (("CarGoal1", 72), ("CarButton2", 88)):
        env, _ = make_env(name)
        places = tuple(range(24, size))
        assert proximity_of(env) == env.proximity == places
        assert proximity_of(gymnasium.make(f"safecritic/{name}-v0")) == places
        obs, _ = env.reset(seed=0)
        assert obs[24:].min() >= 0
        assert obs[24:].max() <= 1
    assert proximity_of(make("HalfCheetah")) == proximity_of(make("FetchReach")) == ()


def test_a_proximity_is_declared_for_any_environment():
    env = adapt(Hall(), cost_key="damage", proximity=["lidar"])
    assert env.proximity == proximity_of(env) == (0, 1)
    assert declared_of(env) == {"cost_key": "damage", "proximity": [0, 1]}
    assert describe(env, "Hall", env)["spec"]["proximity"] == (0, 1)
    assert proximity_of(gymnasium.wrappers.TimeLimit(env, 3)) == (0, 1)
    with pytest.raises(ValueError, match=r"proximity 2 \(in 'speed'\) is bounded to \[-2, 2\]"):
        adapt(Hall(), cost_key="damage", proximity=[2])


def test_an_environment_declares_its_own_and_adapt_overrides_it():
    space = Box(0.0, 1.0, (3,), np.float64)
    toy = Toy(space, extra={"cost": 0.0, "success": False})
    toy.proximity = "1-2"
    assert adapt(toy) is toy
    assert proximity_of(toy) == (1, 2)
    assert adapt(toy, proximity=[]).proximity == ()
    assert proximity_of(adapt(toy, cost_key="cost", proximity=[0])) == (0,)
    toy.proximity = [3]
    with pytest.raises(ValueError, match="proximity 3 is out of range"):
        adapt(toy)


def test_a_wrapper_that_changes_the_observation_drops_the_declaration():
    longer = Box(-np.inf, np.inf, (144,), np.float64)
    env = gymnasium.wrappers.TransformObservation(
        make("CarGoal1"), lambda obs: np.concatenate([obs, obs]), longer
    )
    assert proximity_of(env) == proximity_of(adapt(env)) == ()


def test_an_environment_without_cost_costs_nothing():
    env = adapt(Hall(), no_cost=True)
    env.reset(seed=0)
    costs = [env.step([1.0])[4]["cost"] for _ in range(15)]
    assert costs == [0.0] * 15
    assert declared_of(env) == {"no_cost": True}


def test_declarations_that_contradict_another_are_refused():
    with pytest.raises(ValueError, match="cost_key contradicts no_cost"):
        adapt(Hall(), cost_key="damage", no_cost=True)
    with pytest.raises(ValueError, match="cost contradicts no_cost"):
        adapt(Hall(), cost=lambda *_: 0.0, no_cost=True)
    with pytest.raises(ValueError, match="cost_key contradicts cost"):
        adapt(Hall(), cost=lambda *_: 0.0, cost_key="damage")


def test_adapting_again_adds_to_what_was_declared():
    first = adapt(Hall(), cost_key="damage", proximity="lidar")
    second = adapt(first, no_cost=True)
    assert second.env is first.env
    assert declared_of(second) == {"no_cost": True, "proximity": [0, 1]}
    outer = adapt(gymnasium.wrappers.TimeLimit(first, 5), no_cost=True)
    assert declared_of(outer) == {"no_cost": True, "proximity": [0, 1]}


def test_the_largest_cost_is_that_of_the_environments_own_cost():
    env = make("CarGoal1")
    assert describe(env, "CarGoal1", adapt(env))["spec"]["cost_max"] == pytest.approx(1.8)
    other = adapt(env, cost=lambda obs, action, info: 100.0)
    assert describe(env, "CarGoal1", other)["spec"]["cost_max"] is None


def test_an_environment_is_made_again_from_its_description():
    env, task = make_env("own_envs:Hall-v0", cost_key="damage", proximity="lidar")
    description = describe("own_envs:Hall-v0", task, env)
    again, name = make_again(description)
    assert (name, declared_of(again)) == (task, declared_of(env))
    assert proximity_of(again) == (0, 1)
    assert declared_of(make_again(description, Hall())[0]) == declared_of(env)
    plain = adapt(Hall(), no_cost=True)
    assert make_again(description, plain)[0] is plain


def test_an_environment_with_a_cost_function_cannot_be_made_from_a_file():
    env = adapt(Hall(), cost=lambda *_: 1.0)
    description = describe(env, "Hall", env)
    assert description["declared"] == {"cost": "<lambda>"}
    with pytest.raises(ValueError, match=r"a cost function, which no file holds: .* cost=\.\.\.\)"):
        make_again(description, Hall())
    assert make_again(description, env)[0] is env


# ------------------------------------------------------------------------ what is refused


@pytest.mark.parametrize(
    ("env", "error", "message"),
    [
        (
            Toy(),
            ValueError,
            r"Toy reports no cost.*sixth value.*info\['cost'\].*no keys.*cost_key=",
        ),
        (Toy(extra={"costs": 1, "b": 2}), ValueError, r"info has \['b', 'costs'\].*cost=lambda"),
        (Toy(extra={"cost": -0.5}), ValueError, "finite and >= 0, got -0.5"),
        (Toy(extra={"cost": np.nan}), ValueError, "finite and >= 0, got nan"),
        (Toy(six=np.inf), ValueError, "finite and >= 0, got inf"),
        (Toy(extra={"cost": "high"}), ValueError, "must be one number, .* got 'high'"),
        (Toy(extra={"cost": np.zeros(2)}), ValueError, "must be one number"),
        (Toy(action=Discrete(3)), TypeError, r"must be continuous.*Discrete\(3\)"),
        (Toy(action=Box(0, 4, (1,), np.int64)), TypeError, "must be continuous"),
        (Toy(action=Box(-np.inf, np.inf, (2,))), ValueError, "finite bounds"),
        (Toy(observation=Sequence(Discrete(2))), TypeError, "fixed length"),
        (OldToy(), TypeError, r"reset of OldToy must return .* return \(observation, \{\}\)"),
        (
            FourValues(),
            TypeError,
            "step of FourValues must return five values .* got 4: .* split done",
        ),
        (object(), TypeError, "must be a gymnasium.Env, got object"),
        ("CartPole-v1", TypeError, "must be continuous"),
        ("Pendulum-v1", ValueError, "Pendulum-v1 reports no cost"),
    ],
)
def test_what_cannot_be_used_is_refused_at_once(env, error, message):
    with pytest.raises(error, match=message):
        adapt(env)


def test_the_advice_for_unbounded_actions_works():
    env = Toy(action=Box(-np.inf, np.inf, (2,)), extra={"cost": 0.0})
    with pytest.raises(ValueError, match="finite bounds") as refused:
        adapt(env)
    advice = re.search(r"bound them first, (.*)$", str(refused.value)).group(1)
    bounded = adapt(eval(advice, {"gymnasium": gymnasium, "env": env}))
    bounded.reset(seed=0)
    bounded.step(np.ones(2))
    np.testing.assert_array_equal(env.seen, np.ones(2))


def test_the_advice_for_observations_of_changing_length_works():
    toy = Toy(observation=Sequence(Discrete(2)), extra={"cost": 0.0})
    fixed = gymnasium.wrappers.TransformObservation(
        toy, lambda obs: np.array([len(obs)], np.float32), Box(0.0, np.inf, (1,))
    )
    obs, _ = adapt(fixed).reset(seed=0)
    assert obs.shape == (1,)


def test_six_values_of_an_environment_without_cost_are_refused():
    costless = SixValues(Toy())
    costless.reset()
    with pytest.raises(ValueError, match=r"no 'cost' in info, .*SixValues\(adapt\(env, ...\)\)"):
        costless.step(np.zeros(2))


def test_a_vector_environment_is_refused():
    envs = gymnasium.vector.SyncVectorEnv([lambda: Toy(six=0.5)])
    with pytest.raises(TypeError, match="one environment at a time; pass one of those inside"):
        adapt(envs)
    adapt(envs.envs[0]).reset(seed=0)  # as it says


def test_a_negative_cost_function_is_refused():
    with pytest.raises(ValueError, match="finite and >= 0, got -1"):
        adapt(Toy(), cost=lambda obs, action, info: -1.0)


def test_costs_are_watched_after_the_probe_too():
    toy = Toy(extra={"cost": 1})
    env = adapt(toy)
    env.reset()
    toy.extra = {}
    with pytest.raises(ValueError, match="left 'cost' out of info in this step"):
        env.step(np.zeros(2))
    toy.extra = {"cost": -1}
    with pytest.raises(ValueError, match="finite and >= 0"):
        env.step(np.zeros(2))
    toy.extra = {"cost": 2}
    assert env.step(np.zeros(2))[4]["cost"] == 2.0


def test_bad_actions_are_refused():
    env = adapt(Toy(action=Box(-2.0, 2.0, (2,)), extra={"cost": 0.0}))
    env.reset()
    for action in (np.zeros(3), [0.0, np.nan], [[0.0, 0.0]]):
        with pytest.raises(ValueError, match="2 finite numbers"):
            env.step(action)


def test_an_environment_of_six_values_is_made_by_its_id() -> None:
    env = adapt("own_envs:Sixfold-v0")
    env.reset(seed=0)
    steps = [env.step(np.ones(1, np.float32)) for _ in range(20)]
    assert [step[3] for step in steps] == [False] * 19 + [True]
    assert [step[4]["cost"] for step in steps[-3:]] == [1.0] * 3
    assert name_of(env) == "Sixfold-v0"


def test_a_missing_cost_can_be_declared_zero() -> None:
    with pytest.raises(NoCostError, match="--missing-cost zero"):
        adapt("own_envs:Sparing-v0", cost_key="damage")
    env = adapt("own_envs:Sparing-v0", cost_key="damage", missing_cost="zero")
    env.reset(seed=0)
    costs = [env.step(np.ones(1, np.float32))[4]["cost"] for _ in range(20)]
    assert (costs[0], costs[-1]) == (0.0, 1.0)
    assert declared_of(env) == {"cost_key": "damage", "missing_cost": "zero"}
    with pytest.raises(ValueError, match="missing_cost contradicts no_cost"):
        adapt("own_envs:Sparing-v0", no_cost=True, missing_cost="zero")


def test_discrete_actions_are_refused_with_a_way_out() -> None:
    with pytest.raises(UnfitEnvError, match=r"a preference for each choice, Box\(-1, 1, \(3,\)\)"):
        adapt("own_envs:Levers-v0")
