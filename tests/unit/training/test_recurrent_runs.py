"""Everything around training carries a recurrent policy's memory: collecting, evaluating, engines, and settings that cannot be."""

import numpy as np
import pytest
from collecting import collect
from hidden_and_pictured import Cue, Dots
from toy_environments import Corridor

from learnproof import TrainingEngine
from learnproof.config import Settings
from learnproof.errors import EpisodeRefused, SettingsError
from learnproof.policies.actor import Acted
from learnproof.training.assembly import make_actor
from learnproof.training.evaluation import Evaluator
from learnproof.training.rollout import Collector

SMALL = {"policy.hidden": (16,), "policy.recurrent": True, "policy.memory_size": 8}
SETTINGS = Settings().replace(SMALL)


class OneEnvironment:
    name = "toy"
    ours = False

    def __init__(self, env):
        self.env = env

    def evaluation(self, count):
        return self.env


class Recalling:
    """Answers the cue from its memory, which the first observation of an episode is written into."""

    def act(self, observation, generator, mode, memory=None):
        memory = np.zeros((len(observation), 2), np.float32) if memory is None else memory
        memory = np.where(observation[:, :2].any(1, keepdims=True), observation[:, :2], memory)
        return Acted(memory.argmax(1), memory=memory)


def test_an_evaluated_actor_gets_its_memory_back():
    evaluator = Evaluator(OneEnvironment(Cue(5)), "return", 100)
    assert evaluator.scores(Recalling(), list(range(20)), "deterministic").tolist() == [1.0] * 20


def test_a_collector_takes_its_memory_over_a_kill():
    def made():
        env = Cue(3, delay=5)
        collector = Collector(env, "toy", make_actor(SETTINGS, env), None, seed=0)
        collector.start()
        return collector

    first, second = made(), made()
    first.collect(8)
    kept = {name: array.copy() for name, array in first.tensors().items()}
    assert kept["collector.memory"].any()
    state = first.state()
    expected, _ = first.collect(8)
    assert second.load(state, kept)
    again, _ = second.collect(8)
    assert (again.memory == expected.memory).all()
    assert (again.log_prob == expected.log_prob).all()
    second.start()
    assert not second.memory.any()


class Remembering:
    """As somebody who collects with act_many should: rows of episodes that begin are set to zero."""

    def __init__(self, env, engine, forgetful=False):
        self.env, self.engine, self.forgetful, self.memory = env, engine, forgetful, None

    def __call__(self, observations):
        if self.memory is not None:
            self.memory[self.env.age == 0] = 0
        choice = self.engine.act_many(observations, memory=None if self.forgetful else self.memory)
        self.memory = choice.memory
        return choice


@pytest.mark.parametrize("forgetful", [False, True])
def test_an_engine_remembers_each_episode_from_its_first_step(tmp_path, forgetful):
    env = Cue(4)
    options = {**SMALL, "ppo.sequence_length": 3, "ppo.learning_rate": 0.01}
    with TrainingEngine(env.single_observation_space, env.single_action_space, out=tmp_path / "e", **options) as engine:
        for _ in range(4):
            metrics = engine.train_step_now(collect(env, Remembering(env, engine, forgetful), 12), 16, 4)
            assert metrics.corrected == forgetful, "who acts without its memory is another policy"
        one = engine.act(np.zeros(3, np.float32))
        assert one.memory.shape == (8,)
        assert (engine.act(np.zeros(3, np.float32), memory=one.memory).memory != one.memory).any()


def test_images_are_given_to_an_engine_as_bytes(tmp_path):
    env = Dots(4)
    with TrainingEngine(env.single_observation_space, env.single_action_space, out=tmp_path / "e", **SMALL) as engine:
        episodes = collect(env, Remembering(env, engine), 6)
        assert not engine.train_step_now(episodes).corrected
        scaled = [np.asarray(seen) / 255 for seen in episodes[0].observations]
        with pytest.raises(EpisodeRefused, match="scaled already"):
            engine.train_step_now([type(episodes[0])(**{**vars(episodes[0]), "observations": scaled})])


@pytest.mark.parametrize("algorithm", ["dqn", "sac"])
def test_a_memory_of_single_transitions_trains_no_memory_of_a_policy(algorithm):
    with pytest.raises(SettingsError, match="Use ppo or reinforce"):
        make_actor(SETTINGS.replace({"algorithm": algorithm}), Corridor(1))


def test_a_reference_policy_would_need_a_memory_of_its_own():
    settings = SETTINGS.replace({"algorithm": "reinforce", "reinforce.kl_coefficient": 0.1})
    with pytest.raises(SettingsError, match="kl_coefficient"):
        make_actor(settings, Corridor(1))
