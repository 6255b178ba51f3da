"""From a rollout to sequences: the memory that was there when the policy acted, whatever the autoreset mode, and every row once."""

import numpy as np
import pytest
import torch
from gymnasium.vector import AutoresetMode
from hidden_and_pictured import Cue, Dots

from learnproof.algorithms.learner import Inspect
from learnproof.algorithms.sequences import SequenceTable, remember
from learnproof.config import Settings
from learnproof.training.assembly import make_actor, make_learner
from learnproof.training.rollout import Collector

MODES = [AutoresetMode.SAME_STEP, AutoresetMode.NEXT_STEP, AutoresetMode.DISABLED]
SETTINGS = Settings().replace(
    {"policy.hidden": (8,), "policy.recurrent": True, "policy.memory_size": 6, "ppo.sequence_length": 5}
)


def tensor(array):
    return torch.from_numpy(np.ascontiguousarray(array))


def collector_of(env, settings=SETTINGS):
    actor = make_actor(settings, env)
    with torch.no_grad():  # a fresh policy's layers are too flat to tell one memory from another
        for parameter in actor.network.parameters():
            parameter += 0.4 * torch.randn(parameter.shape, generator=torch.Generator().manual_seed(1))
    collector = Collector(env, "toy", actor, None, seed=0)
    collector.start()
    return collector


def by_hand(actor, rollouts):
    """Every episode from its own first observation: value and log-probability of each valid step of the last rollout, the values
    of what time limits hid, and that of where it stopped."""
    network, last = actor.network, rollouts[-1]
    values, log_probs = np.zeros(last.valid.shape), np.zeros(last.valid.shape)
    finals, stopped = {}, np.zeros(last.valid.shape[1])
    with torch.no_grad():
        for n in range(last.valid.shape[1]):
            memory = network.memory.empty(1)
            for rollout in rollouts:
                for t in range(len(rollout.valid)):
                    if not rollout.valid[t, n]:
                        memory = network.memory.empty(1)
                        continue
                    fed, memory = network.look(tensor(rollout.observation[t, n][None]), memory)
                    if rollout is last:
                        values[t, n] = network.values_of(fed)
                        params = network.policy_of(fed)
                        action = tensor(rollout.action[t, n][None])
                        log_probs[t, n] = network.head.log_prob_and_entropy(params, action)[0]
                    row = t * rollout.valid.shape[1] + n
                    if rollout is last and row in rollout.final_rows:
                        hidden = rollout.final_observation[rollout.final_rows.tolist().index(row)]
                        finals[t, n] = float(network.values_of(network.look(tensor(hidden[None]), memory)[0]))
                    if rollout.terminated[t, n] or rollout.truncated[t, n]:
                        memory = network.memory.empty(1)
            fed, _ = network.look(tensor(last.last_observation[n][None]), memory)
            stopped[n] = network.values_of(fed)
    return values, log_probs, finals, stopped


@pytest.mark.parametrize("cut", [False, True], ids=["terminated", "truncated"])
@pytest.mark.parametrize("mode", MODES, ids=lambda mode: mode.name)
def test_a_rollout_is_remembered_as_it_was_lived(mode, cut):
    collector = collector_of(Cue(3, delay=3, mode=mode, cut=cut))
    rollouts = [collector.collect(steps)[0] for steps in (6, 17)]
    rollout = rollouts[-1]
    told = remember(collector.actor.network, rollout, tensor)
    values, log_probs, finals, stopped = by_hand(collector.actor, rollouts)
    valid = rollout.valid
    assert valid.all() == (mode is not AutoresetMode.NEXT_STEP)
    np.testing.assert_allclose(told.value[valid], values[valid], atol=1e-6)
    np.testing.assert_allclose(rollout.log_prob[valid], log_probs[valid], atol=1e-6)
    assert len(finals) == (len(rollout.final_rows) if cut else 0)
    for place, value in finals.items():
        assert told.final_value[place] == pytest.approx(value, abs=1e-6)
    assert (told.final_value != 0).sum() == len(finals)
    goes_on = ~(rollout.terminated | rollout.truncated)[-1]
    np.testing.assert_allclose(told.last_value[goes_on], stopped[goes_on], atol=1e-6)


@pytest.mark.parametrize("mode", MODES, ids=lambda mode: mode.name)
@pytest.mark.parametrize("length", [1, 5, 17, 100])
def test_sequences_say_of_every_row_what_the_policy_said_when_it_acted(mode, length):
    collector = collector_of(Cue(3, delay=3, mode=mode))
    collector.collect(6)
    rollout, _ = collector.collect(17)
    network = collector.actor.network
    told = remember(network, rollout, tensor)
    table = SequenceTable(rollout, told, length, tensor)
    parts = table.shuffled(np.random.default_rng(0), 12)
    assert len(parts) == table.minibatches(12)
    rows = np.flatnonzero(rollout.valid.ravel())
    index = np.concatenate([part.index for part in parts])
    assert sorted(index.tolist()) == list(range(len(rows)))
    for part in parts:
        own = rows[part.index]
        action = tensor(rollout.action.reshape(-1, 1)[own])
        with torch.no_grad():
            log_prob, _, value = network(part.sequences(), action)
        np.testing.assert_allclose(log_prob, rollout.log_prob.ravel()[own], atol=1e-6)
        np.testing.assert_allclose(value, told.value.ravel()[own], atol=1e-6)
    some = rows[[7, 0, 20, 3]]
    with torch.no_grad():
        again = network.values(table.of_rows(some))
    np.testing.assert_allclose(again, told.value.ravel()[some], atol=1e-6)


def test_rows_that_stand_for_nothing_are_in_no_sequence():
    collector = collector_of(Cue(2))
    rollout, _ = collector.collect(10)
    rollout.valid[:, 1] = False
    rollout.valid[7:, 0] = False
    told = remember(collector.actor.network, rollout, tensor)
    table = SequenceTable(rollout, told, 5, tensor)
    assert len(table) == 2
    assert sum(len(part.index) for part in table.shuffled(np.random.default_rng(0), 5)) == 7


@pytest.mark.parametrize("algorithm", ["ppo", "reinforce"])
def test_the_first_ratio_is_one_and_later_ones_are_not(algorithm):
    settings = SETTINGS.replace({"algorithm": algorithm, f"{algorithm}.minibatch_size": 16})
    if algorithm == "ppo":
        settings = settings.replace({"ppo.epochs": 2})
    collector = collector_of(Cue(3), settings)
    learner = make_learner(settings, collector.actor)
    collector.collect(7)
    rollout, _ = collector.collect(20)
    report = learner.update(rollout, 0.01, Inspect(gradient_steps=3, rows=30))
    first, *others = report.inspected
    apart = np.abs(first.arrays["log_prob_before"] - first.arrays["old_log_prob"])
    assert apart.max() < 1e-6
    assert all(np.abs(o.arrays["log_prob_before"] - o.arrays["old_log_prob"]).max() > 1e-4 for o in others)
    assert len(report.iteration["row"]) == 30
    assert {"memory", "policy", "value"} <= set(report.modules)
    assert all(module.weight_step > 0 for name, module in report.modules.items())


def test_pictures_stay_bytes_until_the_network_reads_them():
    settings = SETTINGS.replace({"policy.recurrent": False})
    collector = collector_of(Dots(3), settings)
    rollout, _ = collector.collect(20)
    assert rollout.observation.dtype == rollout.last_observation.dtype == rollout.final_observation.dtype == np.uint8
    report = make_learner(settings, collector.actor).update(rollout, 0.01, Inspect(2, 10))
    first = report.inspected[0].arrays
    assert first["observation"].dtype == np.uint8
    assert np.abs(first["log_prob_before"] - first["old_log_prob"]).max() < 1e-5
    assert report.modules["encoder"].weight_step > 0


@pytest.mark.parametrize("normalise", [False, True])
@pytest.mark.parametrize("algorithm", ["dqn", "sac"])
def test_a_memory_of_pictures_is_a_memory_of_bytes(algorithm, normalise):
    settings = Settings().replace(
        {
            "algorithm": algorithm,
            "policy.hidden": (8,),
            "env.normalize_observations": normalise,
            f"{algorithm}.replay_size": 200,
            f"{algorithm}.minibatch_size": 16,
            f"{algorithm}.learning_starts": 0,
            f"{algorithm}.report_every": 30,
        }
    )
    env = Dots(3)
    actor = make_actor(settings, env)
    learner = make_learner(settings, actor)
    collector = Collector(env, "toy", actor, None, seed=0, raw_rows=True)
    collector.start()
    report = learner.learn((collector.collect(10)[0] for _ in range(4)), 1e-3, Inspect(1))
    assert learner.replay.observation.dtype == learner.replay.next_observation.dtype == np.uint8
    assert learner.replay.observation.max() == 255
    seen = report.inspected[0].arrays["observation"]
    assert seen.dtype == (np.float32 if normalise else np.uint8)
    trained = {name for name, module in report.modules.items() if module.weight_step > 0}
    assert {"encoder", *({"critic.encoder"} if algorithm == "sac" else ())} <= trained
