"""Episodes that fit are read as numbers; each kind that does not is refused, with its index, its id and what to do."""

from dataclasses import replace

import numpy as np
import pytest
from gymnasium import spaces
from toy_environments import Pantry

from learnproof import EpisodeResult
from learnproof.errors import EpisodeRefused, UsageError
from learnproof.policies.spaces import ActionLayout, ObservationLayout
from learnproof.training.episode_results import EpisodeReader

BOX = spaces.Box(-10, 10, (3,), np.float32)
STEPS = 4


def reader(observation=BOX, action=None, **changes):
    action = spaces.Discrete(5) if action is None else action
    options = {"needs_log_probs": True, "within_bounds": True, "metric": "return", **changes}
    return EpisodeReader(ObservationLayout(observation), ActionLayout(action), **options)


def episode(**changes):
    given = {
        "observations": np.arange(12.0).reshape(STEPS, 3),
        "actions": [0, 4, 2, 1],
        "rewards": [1.0, 0.0, -1.0, 2.0],
        "log_probs": [-1.0, -0.5, -2.0, 0.0],
        "terminated": False,
        "final_observation": [1.0, 2.0, 3.0],
        "id": "campaign 7",
    }
    return EpisodeResult(**{**given, **changes})


def with_nan(array, *place):
    array = np.array(array, np.float64)
    array[place] = np.nan
    return array


def test_an_episode_that_fits_becomes_rows_of_numbers():
    (read,) = reader().read([episode(metrics={"roas": 2}, env=3)])
    assert read.observation.dtype == np.float32
    assert read.observation.tolist() == np.arange(12.0).reshape(STEPS, 3).tolist()
    assert read.action.tolist() == [[0], [4], [2], [1]]
    assert read.reward.tolist() == [1.0, 0.0, -1.0, 2.0]
    assert read.log_prob.tolist() == [-1.0, -0.5, -2.0, 0.0]
    assert read.final_observation.tolist() == [1.0, 2.0, 3.0]
    assert (read.terminated, read.env, read.metrics, len(read)) == (False, 3, {"roas": 2.0}, STEPS)


REFUSALS = {
    "another width": ({"observations": np.zeros((STEPS, 4))}, r"observations has shape \(4, 4\).*wants \(4, 3\)"),
    "one observation too many": ({"observations": np.zeros((5, 3))}, "observations has 5 entries and rewards has 4"),
    "observations of several shapes": ({"observations": [[1, 2, 3], [1, 2], [1, 2, 3], [1, 2, 3]]}, "observations"),
    "text": ({"observations": [["a", "b", "c"]] * STEPS}, "not numbers"),
    "NaN seen": ({"observations": with_nan(np.zeros((STEPS, 3)), 2, 1)}, "observations at step 2, number 1 is nan"),
    "infinite": ({"observations": np.full((STEPS, 3), np.inf)}, r"is inf.*\(12 such in all\)"),
    "beyond float32": ({"observations": np.full((STEPS, 3), 1e39)}, "not a number of float32"),
    "no such action": ({"actions": [0, 5, 2, 1]}, r"actions at step 1 is 5, not among those of Discrete\(5\)"),
    "half an action": ({"actions": [0, 0.5, 2, 1]}, "actions at step 1 is 0.5"),
    "too few actions": ({"actions": [0, 1, 2]}, "actions has 3 entries and rewards has 4"),
    "wide actions": ({"actions": np.zeros((STEPS, 2))}, r"actions has shape \(4, 2\)"),
    "NaN reward": ({"rewards": [1, np.nan, 0, 0]}, "rewards at step 1 is nan"),
    "a table of rewards": ({"rewards": np.zeros((STEPS, 1))}, r"rewards has shape \(4, 1\)"),
    "no steps": ({"observations": np.zeros((0, 3)), "actions": [], "rewards": [], "log_probs": []}, "at least one step"),
    "no log-probabilities": ({"log_probs": None}, "it has no log_probs, and PPO needs"),
    "probabilities": ({"log_probs": [0.5, 0.2, 0.1, 0.9]}, "above 0, which no discrete action has.*logarithm"),
    "impossible actions": ({"log_probs": [-1, -np.inf, -1, -1]}, "log_probs at step 1 is -inf"),
    "log-probabilities by dimension": ({"log_probs": np.zeros((STEPS, 2))}, r"log_probs has shape \(4, 2\)"),
    "cut, and nothing after it": ({"final_observation": None}, "has no final_observation"),
    "last observation of another width": ({"final_observation": [1.0, 2.0]}, "final_observation has shape"),
    "NaN at last": ({"final_observation": [1.0, np.nan, 0.0]}, "final_observation at step 0, number 1 is nan"),
    "an end that is neither": ({"terminated": None}, "terminated is None"),
    "a metric that is no number": ({"metrics": {"roas": float("nan")}}, "its metric 'roas' is nan"),
}  # fmt: skip


@pytest.mark.parametrize("name", REFUSALS)
def test_what_does_not_fit_is_refused_by_name(name):
    changes, says = REFUSALS[name]
    good = episode(id="campaign 6")
    with pytest.raises(EpisodeRefused, match=says) as refused:
        reader().read([good, episode(**changes)])
    assert (refused.value.index, refused.value.id) == (1, "campaign 7")
    assert str(refused.value).startswith("Episode 1 (id 'campaign 7') was refused: ")
    assert str(refused.value).endswith("Nothing of this call was trained on or kept.")
    reader().read([good, episode()])


def test_what_is_no_episode_is_refused():
    with pytest.raises(EpisodeRefused, match="Episode 0 was refused: it is a dict"):
        reader().read([{"rewards": [1.0]}])
    with pytest.raises(UsageError, match="no episodes"):
        reader().read([])


def test_an_episode_given_twice_is_refused():
    with pytest.raises(EpisodeRefused, match="episode 0 of this call has the same id"):
        reader().read([episode(), episode()])
    assert len(reader().read([episode(id=""), episode(id="")])) == 2


def test_the_metric_that_judges_must_come_with_each_episode():
    with pytest.raises(EpisodeRefused, match=r"its metrics are \[\], and performance is judged by 'roas'"):
        reader(metric="roas").read([episode()])
    reader(metric="roas").read([episode(metrics={"roas": 1.5})])


def test_a_memory_needs_no_log_probabilities_and_an_end_no_last_observation():
    (read,) = reader(needs_log_probs=False).read([episode(log_probs=None, terminated=True, final_observation=None)])
    assert read.log_prob is None
    assert not read.final_observation.any()


def test_actions_of_a_box_lie_in_it_unless_a_gaussian_may_have_drawn_them():
    box = spaces.Box(-1, 1, (2,), np.float32)
    actions = np.array([[0.0, 1.0], [-1.0, 0.5], [0.2, 0.2], [0.9, 1.5]])
    positive = [0.3, 1.2, 0.5, 2.0]  # a density may be above 1
    with pytest.raises(EpisodeRefused, match=r"actions at step 3, number 1 is 1\.5, outside of Box"):
        reader(action=box).read([episode(actions=actions, log_probs=positive)])
    (read,) = reader(action=box, within_bounds=False).read([episode(actions=actions, log_probs=positive)])
    assert read.action.tolist() == actions.astype(np.float32).tolist()
    reader(action=box).read([episode(actions=np.clip(actions, -1, 1), log_probs=positive)])


def test_discrete_kinds_count_from_where_their_space_begins():
    (read,) = reader(action=spaces.Discrete(3, start=-1)).read([episode(actions=[-1, 0, 1, 0])])
    assert read.action.tolist() == [[0], [1], [2], [1]]
    with pytest.raises(EpisodeRefused, match="actions at step 2 is 2"):
        reader(action=spaces.Discrete(3, start=-1)).read([episode(actions=[-1, 0, 2, 0])])
    levers = spaces.MultiDiscrete([2, 3])
    (read,) = reader(action=levers).read([episode(actions=[[0, 2], [1, 0], [1, 1], [0, 0]])])
    assert read.action.tolist() == [[0, 2], [1, 0], [1, 1], [0, 0]]
    with pytest.raises(EpisodeRefused, match="step 0, number 0 is 2"):
        reader(action=levers).read([episode(actions=[[2, 2], [1, 0], [1, 1], [0, 0]])])


class TestDictSpaces:
    env = Pantry()

    def reader(self):
        return reader(self.env.observation_space, self.env.action_space)

    def episode(self):
        self.env.reset(seed=3)
        seen, done = [], []
        for step in range(STEPS):
            seen.append(self.env._show())
            done.append({"shelf": step % 2, "pour": np.array([0.1 * step], np.float32)})
        return episode(observations=seen, actions=done, final_observation=self.env._show())

    def test_one_dict_per_step_and_one_dict_of_arrays_read_the_same(self):
        single = self.episode()
        stacked = replace(
            single,
            observations={key: np.stack([o[key] for o in single.observations]) for key in single.observations[0]},
            actions={key: np.stack([a[key] for a in single.actions]) for key in ("shelf", "pour")},
        )
        one, other = (self.reader().read([given])[0] for given in (single, stacked))
        assert np.array_equal(one.observation, other.observation)
        assert np.array_equal(one.action, other.action)
        assert one.observation.shape == (STEPS, 2 + 3 + 2)
        flat = ObservationLayout(self.env.observation_space).flatten(stacked.observations)
        assert np.array_equal(one.observation, flat)

    def test_a_part_that_is_missing_or_wrong_is_named(self):
        good = self.episode()
        self.reader().read([good])
        with pytest.raises(EpisodeRefused, match=r"observations\.gauge is missing"):
            self.reader().read([replace(good, observations=[{"shelves": [0, 0]}] * STEPS)])
        wrong = [{**action, "shelf": 7} for action in good.actions]
        with pytest.raises(EpisodeRefused, match=r"actions\.shelf at step 0 is 7"):
            self.reader().read([replace(good, actions=wrong)])
