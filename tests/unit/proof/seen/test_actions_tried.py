"""Which actions were tried early on: advice where some were not, and nothing where all were."""

from types import SimpleNamespace

import numpy as np
import pytest

from learnproof.proof.watched.exploration import ActionsVary


def seen(actions: np.ndarray, space: str, vector: bool = False):
    steps = len(actions)
    rollouts = [
        SimpleNamespace(
            stream=np.zeros(steps, int),
            time=np.arange(steps) + steps * number,
            copy=np.zeros(steps, int),
            action=actions,
        )
        for number in range(8)
    ]
    environment = SimpleNamespace(action_space=space, vector=vector)
    return SimpleNamespace(rollouts=rollouts, training_losses=[], environments={0: environment})


@pytest.mark.parametrize(
    ("space", "vector"), [("Discrete(4)", False), ("MultiDiscrete([4 4])", True)], ids=["one", "a vector of two"]
)
def test_an_action_that_was_never_tried_is_told(space, vector):
    rng = np.random.default_rng(0)
    found = ActionsVary().look(seen(rng.integers(0, 3, (200, 1)), space, vector))
    assert found.status == "undecided"
    assert found.figures["never_tried"] == [3]
    assert ActionsVary().look(seen(rng.integers(0, 4, (200, 1)), space, vector)).status == "pass"


def test_few_steps_tell_nothing_of_many_actions():
    found = ActionsVary().look(seen(np.zeros((20, 1)), "Discrete(4)"))
    assert found.status == "undecided"
    assert "too few" in found.summary


def test_forces_on_their_bounds_are_told():
    rng = np.random.default_rng(1)
    noise = rng.normal(size=(300, 2))
    space = "Box(-2.0, 2.0, (2,), float32)"
    assert ActionsVary().look(seen(np.clip(100 * noise, -2, 2), space)).status == "undecided"
    assert ActionsVary().look(seen(np.clip(noise, -2, 2), space)).status == "pass"


def test_other_spaces_are_not_asked():
    assert ActionsVary().lacks(seen(np.zeros((300, 2)), "MultiDiscrete([3 2])"))
