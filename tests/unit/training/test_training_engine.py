"""The engine's promises to its caller: what it trains on, what it answers, what it refuses, and that calls never interleave."""

import asyncio
import logging
import threading
from dataclasses import replace

import gymnasium as gym
import numpy as np
import pytest
from collecting import collect
from gymnasium import spaces
from toy_environments import Beam, Corridor, Pantry

import learnproof
from learnproof import EngineSettings, EpisodeResult, PairedScores, TrainingEngine
from learnproof.config import parsed, to_toml
from learnproof.errors import (
    CheckpointError,
    CheckpointMismatch,
    EpisodeRefused,
    EvidenceError,
    RunFolderError,
    SettingsError,
    TrainingFault,
    UnsupportedSpace,
    UsageError,
)
from learnproof.evidence import EpisodesGiven, Evidence
from learnproof.training.episode_batches import ImportanceStatistics
from learnproof.training.episode_metrics import foreign

SMALL = {"policy.hidden": (16,), "ppo.learning_rate": 1e-3}
WORLD = Corridor(1).single_observation_space, Corridor(1).single_action_space


def small_engine(folder, algorithm="ppo", **changes):
    return TrainingEngine(*WORLD, out=folder, algorithm=algorithm, **{**SMALL, **changes})


def made_up(lengths, seed=0, **changes):
    """Episodes of a corridor's form in which a coin acted."""
    source = np.random.default_rng(seed)
    return [
        EpisodeResult(
            source.random((length, 9)),
            source.integers(0, 2, length),
            source.random(length),
            np.full(length, np.log(0.5)),
            terminated=True,
            **changes,
        )
        for length in lengths
    ]


@pytest.fixture
def engine(tmp_path):
    with small_engine(tmp_path / "engine") as made:
        yield made


class TestTraining:
    def test_a_call_answers_with_typed_figures(self, engine):
        metrics = engine.train_step_now(collect(Corridor(4), engine.act_many, 8), 32, 3)
        assert (metrics.call, metrics.episodes >= 8, metrics.corrected) == (0, True, False)
        assert metrics.gradient_steps == 3 * -(-metrics.transitions // 32)
        for name in ("loss", "policy_loss", "value_loss", "gradient_norm", "entropy", "approx_kl", "mean_return"):
            assert np.isfinite(getattr(metrics, name)), name
        assert metrics.weight_change == pytest.approx(metrics.weight_step)
        assert metrics.weight_change > 0
        assert metrics.gradient_norm_max >= metrics.gradient_norm > 0
        assert metrics.importance.kl == pytest.approx(0, abs=1e-9)
        assert metrics.importance.effective_share == pytest.approx(1)
        assert metrics.verdict.verdict == "unproven"
        assert engine.progress.transitions == metrics.transitions

    @pytest.mark.parametrize("algorithm", ["ppo", "dqn", "sac"])
    @pytest.mark.parametrize(
        ("lengths", "steps"), [([32, 33], 3), ([1], 1), ([31], 1), ([64], 2)], ids=["leftover", "one", "few", "even"]
    )
    def test_a_leftover_smaller_than_a_minibatch_is_trained_on_too(self, tmp_path, algorithm, lengths, steps):
        with small_engine(tmp_path / "engine", algorithm) as engine:
            metrics = engine.train_step_now(made_up(lengths), 32, 2)
            assert metrics.transitions == sum(lengths)
            assert metrics.gradient_steps == 2 * steps
            assert metrics.weight_step > 0

    def test_every_transition_is_in_every_epoch_of_ppo(self, tmp_path):
        seen = []
        with small_engine(tmp_path / "engine", backend="torch") as engine:
            step = engine._learning.learner.gradient_step
            engine._learning.learner.gradient_step = lambda batch: (
                seen.append(batch.observation.numpy()),
                step(batch),
            )[1]
            episodes = made_up([5, 20, 12])
            engine.train_step_now(episodes, 16, 2)
        assert [len(batch) for batch in seen] == [16, 16, 5] * 2
        wanted = sorted(map(tuple, np.concatenate([e.observations for e in episodes]).astype(np.float32)))
        for epoch in (seen[:3], seen[3:]):
            assert sorted(map(tuple, np.concatenate(epoch))) == wanted

    @pytest.mark.parametrize("algorithm", ["dqn", "sac"])
    def test_every_transition_goes_into_the_memory(self, tmp_path, algorithm):
        with small_engine(tmp_path / "engine", algorithm) as engine:
            for call in range(3):
                engine.train_step_now(made_up([5, 8], seed=call), 64, 1)
            memory = engine._learning.learner.replay
            assert len(memory) == 39
            assert memory.terminated.sum() == 6

    @pytest.mark.parametrize("algorithm", ["ppo", "dqn", "sac"])
    def test_minibatches_may_change_from_call_to_call_on_either_backend(self, tmp_path, algorithm):
        weights = []
        for backend in ("torch", "compiled"):
            actions = spaces.Box(-2.0, 2.0, (1,), np.float32) if algorithm == "sac" else WORLD[1]
            settings = {**SMALL, "algorithm": algorithm, "backend": backend}
            with TrainingEngine(WORLD[0], actions, out=tmp_path / backend, **settings) as engine:
                for call, size in enumerate((16, 64, 7)):
                    episodes = made_up([25, 38], seed=call)
                    if algorithm == "sac":
                        episodes = [replace(e, actions=e.actions[:, None] * 1.5 - 0.7) for e in episodes]
                    engine.train_step_now(episodes, size, 2)
                weights += [engine._learning.learner.tensors()["weights"]]
        for name, array in weights[0].items():
            np.testing.assert_allclose(weights[1][name], array, atol=1e-4, err_msg=name)

    def test_defaults_are_those_of_the_settings(self, engine):
        metrics = engine.train_step_now(made_up([130]))
        assert metrics.gradient_steps == 4 * 3
        (given,) = engine.journal.evidence.of(EpisodesGiven)
        assert (given.batch_size, given.epochs, given.transitions) == (64, 4, 130)

    @pytest.mark.parametrize(("name", "value"), [("batch_size", 1), ("batch_size", 2.5), ("num_epochs", 0)])
    def test_numbers_that_cannot_be_are_refused(self, engine, name, value):
        with pytest.raises(UsageError, match=f"{name} = {value}"):
            engine.train_step_now(made_up([4]), **{name: value})
        engine.train_step_now(made_up([4]), 2, 1)

    def test_a_refused_episode_leaves_everything_as_it_was(self, tmp_path):
        with small_engine(tmp_path / "calm") as calm, small_engine(tmp_path / "troubled") as troubled:
            bad = replace(made_up([6], seed=9)[0], rewards=[np.nan] * 6, id="no 9")
            for call in range(2):
                with pytest.raises(EpisodeRefused, match=r"Episode 2 \(id 'no 9'\)"):
                    troubled.train_step_now([*made_up([5, 7]), bad])
                assert calm.train_step_now(made_up([40], seed=call)) == troubled.train_step_now(
                    made_up([40], seed=call)
                )
            assert calm.folder.evidence.read_bytes() == troubled.folder.evidence.read_bytes()

    def test_gradients_that_overflow_are_refused_written_down_and_judged(self, engine):
        engine.train_step_now(made_up([40]))
        huge = [replace(e, rewards=np.full(40, 1e30)) for e in made_up([40])]
        with pytest.raises(TrainingFault, match="not finite"):
            engine.train_step_now(huge)
        metrics = engine.train_step_now(made_up([40]))
        assert np.isfinite(metrics.loss)
        assert metrics.verdict.verdict == "broken"
        assert any("finiteness" in warning for warning in metrics.warnings)

    def test_a_memory_that_is_too_small_for_a_call_is_said(self, tmp_path):
        with small_engine(tmp_path / "engine", "dqn", **{"dqn.replay_size": 64}) as engine:
            with pytest.raises(SettingsError, match="65 transitions at once do not fit into a memory of 64"):
                engine.train_step_now(made_up([65]))
            engine.train_step_now(made_up([64]))

    def test_episodes_of_another_policy_are_corrected_and_counted(self, engine):
        own = engine.train_step_now(collect(Corridor(4), engine.act_many, 8))
        other = engine.train_step_now(
            [replace(e, log_probs=np.array(e.log_probs) - 0.4) for e in collect(Corridor(4), engine.act_many, 8)]
        )
        assert (own.corrected, other.corrected) == (False, True)
        assert other.importance.mean == pytest.approx(np.exp(0.4), rel=1e-4)
        assert other.importance.truncated_share == 1
        given = engine.journal.evidence.of(EpisodesGiven)
        assert [event.corrected for event in given] == [False, True]
        assert given[1].importance["mean"] == other.importance.mean

    @pytest.mark.parametrize("algorithm", ["ppo", "dqn"])
    def test_normalised_rows_are_those_that_the_policy_saw(self, tmp_path, algorithm):
        """The scale is set by the first episodes; from then on each call reads its rows as they were when it was acted."""
        options = {"normalize_observations": True, "normalize_rewards": True}
        with small_engine(tmp_path / "engine", algorithm, **options) as engine:
            for call in range(4):
                metrics = engine.train_step_now(collect(Corridor(4), engine.act_many, 8))
                assert metrics.importance.kl < 0.05
                if call:
                    assert not metrics.corrected
            assert engine.policy.normalizer.moments.count[0] > 100


class TestAwaited:
    def test_an_awaited_call_gives_the_same_numbers_and_bytes(self, tmp_path):
        async def awaited(engine):
            answers = [await engine.train_step(made_up([30, 9], seed=i), 16, 2) for i in range(3)]
            return [*answers, await engine.verify_learning()]

        with small_engine(tmp_path / "now") as now, small_engine(tmp_path / "later") as later:
            at_once = [now.train_step_now(made_up([30, 9], seed=i), 16, 2) for i in range(3)]
            assert [*at_once, now.verify_learning_now()] == asyncio.run(awaited(later))
            assert now.folder.evidence.read_bytes() == later.folder.evidence.read_bytes()
            weights = [engine._learning.learner.flat.vector for engine in (now, later)]
            assert (weights[0] == weights[1]).all()

    def test_calls_begun_together_work_one_after_the_other(self, tmp_path):
        async def together(engine):
            return await asyncio.gather(*(engine.train_step(made_up([30], seed=i)) for i in range(5)))

        with small_engine(tmp_path / "now") as now, small_engine(tmp_path / "later") as later:
            at_once = [now.train_step_now(made_up([30], seed=i)) for i in range(5)]
            assert asyncio.run(together(later)) == at_once

    def test_threads_do_not_interleave(self, engine):
        inside, most = [], []
        learn = engine._learning.learn

        def counted(*arguments):
            inside.append(1)
            most.append(len(inside))
            learnt = learn(*arguments)
            inside.pop()
            return learnt

        engine._learning.learn = counted
        threads = [threading.Thread(target=engine.train_step_now, args=(made_up([40], seed=i),)) for i in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert most == [1] * 4
        assert engine.progress.calls == 4

    def test_the_event_loop_and_acting_go_on_while_a_call_trains(self, engine):
        async def both():
            training = asyncio.create_task(engine.train_step(made_up([600]), 16, 4))
            turns, before = 0, engine.policy
            while not training.done():
                choice = engine.act(np.zeros(9, np.float32))
                assert choice.log_prob < 0
                assert engine.policy is before or training.done() or turns
                turns += 1
                await asyncio.sleep(0)
            await training
            return turns, before

        turns, before = asyncio.run(both())
        assert turns > 3
        assert engine.policy is not before


class TestActing:
    def test_what_is_drawn_is_scored_as_the_policy_that_learns_scores_it(self, engine):
        for _ in range(3):
            metrics = engine.train_step_now(collect(Corridor(4), engine.act_many, 6))
            assert not metrics.corrected
        one = engine.act(np.eye(9, dtype=np.float32)[2])
        assert one.action in (0, 1)
        assert one.log_prob < 0
        assert engine.act(np.zeros(9, np.float32), "deterministic").log_prob is None

    def test_a_continuous_policy_draws_inside_of_its_bounds(self, tmp_path):
        with TrainingEngine(evaluation_env=Beam(2), out=tmp_path / "e", **SMALL) as engine:
            choice = engine.act_many(np.zeros((500, 2), np.float32))
            assert np.array_equal(choice.action, choice.drawn)
            assert np.abs(choice.action).max() <= 1
            assert not engine.train_step_now(collect(Beam(4), engine.act_many, 8)).corrected

    def test_what_a_gaussian_drew_beyond_the_bounds_is_kept_as_drawn(self, tmp_path):
        options = {**SMALL, "policy.box_head": "gaussian"}
        with TrainingEngine(evaluation_env=Beam(2), out=tmp_path / "e", **options) as engine:
            choice = engine.act_many(np.zeros((500, 2), np.float32))
            assert np.abs(choice.drawn).max() > 1 >= np.abs(choice.action).max()
            assert not engine.train_step_now(collect(Beam(4), engine.act_many, 8)).corrected

    def test_dict_spaces(self, tmp_path):
        env = Pantry()
        with TrainingEngine(env.observation_space, env.action_space, out=tmp_path / "e", **SMALL) as engine:
            observation, _ = env.reset(seed=1)
            steps, done = [], False
            while not done:
                choice = engine.act(observation)
                assert env.action_space.contains(choice.action)
                following, reward, terminated, truncated, _ = env.step(choice.action)
                steps.append((observation, choice.drawn, reward, choice.log_prob))
                observation, done = following, terminated or truncated
            episode = EpisodeResult(*zip(*steps, strict=True), terminated=terminated, final_observation=observation)
            assert not engine.train_step_now([episode], 4, 1).corrected

    def test_without_spaces_it_reads_256_numbers_and_chooses_among_64(self, tmp_path):
        with TrainingEngine(out=tmp_path / "e") as engine:
            assert engine.settings.learning.learning_rate == 3e-4
            assert 0 <= engine.act(np.zeros(256, np.float32)).action < 64
            with pytest.raises(EpisodeRefused, match=r"wants \(4, 256\)"):
                engine.train_step_now(made_up([4]))
        with TrainingEngine(out=tmp_path / "c", actions="continuous", algorithm="sac") as engine:
            assert engine.act(np.zeros(256, np.float32)).action.shape == (64,)


class TestWarnings:
    def test_log_probabilities_of_other_actions_are_noticed(self, engine, caplog):
        episodes = collect(Corridor(8), engine.act_many, 64)
        assert not engine.train_step_now(episodes).warnings
        halved = [replace(e, log_probs=np.array(e.log_probs) + np.log(0.5)) for e in episodes]
        with caplog.at_level(logging.WARNING, "learnproof.engine"):
            metrics = engine.train_step_now(halved)
        assert any("log_probs given do not fit" in warning for warning in metrics.warnings)
        assert "log_probs given do not fit" in caplog.text

    def test_a_policy_from_far_away_is_noticed(self):
        near = ImportanceStatistics(0.9, 0.1, 0.01, 2.0, 0.4, 0.5, 0.7)
        assert not foreign(near)
        assert not foreign(None)
        (warning,) = foreign(replace(near, effective_share=0.04, kl=3.2))
        assert "KL 3.2 per action" in warning
        assert "4.0%" in warning

    def test_a_bandit_is_called_one(self, engine):
        assert any("which is a bandit" in w for w in engine.train_step_now(made_up([1, 1, 1])).warnings)
        blind = [replace(e, observations=np.ones((7, 9))) for e in made_up([7, 7])]
        assert any("nothing to decide by" in w for w in engine.train_step_now(blind).warnings)
        assert not engine.train_step_now(made_up([7, 7])).warnings

    def test_gamma_0_is_refused(self):
        with pytest.raises(SettingsError, match="which is a bandit"):
            EngineSettings().replace({"ppo.gamma": 0.0})
        EngineSettings().replace({"dqn.gamma": 0.0})  # not the algorithm that is chosen


class TestVerifying:
    def test_without_an_environment_the_verdict_says_what_it_rests_on(self, engine):
        engine.train_step_now(collect(Corridor(4), engine.act_many, 8))
        verdict = engine.verify_learning_now()
        assert verdict.performance is None
        assert (engine.folder.path / "verdict.json").exists()
        assert not (engine.folder.path / "report.html").exists()
        assert verdict.digests["evidence.jsonl"]

    def test_scores_of_the_caller_count(self, engine):
        engine.train_step_now(made_up([20]))
        better = PairedScores("return", range(30), [0.0] * 30, list(np.linspace(1, 2, 30)), [0.1] * 30, "deterministic")
        assert engine.verify_learning_now(scores=better).findings[0].status == "pass"
        equal = PairedScores("return", range(30), [0.0] * 30, [0.0] * 30, [0.0] * 30, "deterministic")
        assert engine.verify_learning_now(scores=equal).findings[0].status == "undecided"

    def test_with_an_environment_untrained_random_and_trained_policy_are_played(self, tmp_path):
        options = {**SMALL, "proof.episodes": 12, "evaluation.max_episode_steps": 100}
        with TrainingEngine(evaluation_env=Corridor(4), out=tmp_path / "e", **options) as engine:
            metrics = engine.train_step_now(collect(Corridor(4), engine.act_many, 8))
            assert metrics.verdict.performance is None
            assert engine.verify_learning_now().performance.episodes == 12
            assert engine.verify_learning_now(play=False).performance is None

    def test_a_registered_environment_is_played_by_its_id(self, tmp_path):
        options = {**SMALL, "proof.episodes": 10}
        with TrainingEngine(evaluation_env="CartPole-v1", out=tmp_path / "e", **options) as engine:
            assert engine.verify_learning_now().performance.random > 10
            engine.save()
        with TrainingEngine.load(tmp_path / "e") as engine:
            assert engine.verify_learning_now().performance.episodes == 10

    def test_a_report_is_drawn_on_request(self, engine):
        engine.train_step_now(collect(Corridor(4), engine.act_many, 8))
        engine.verify_learning_now(report=True)
        assert (engine.folder.path / "report.html").exists()
        assert (engine.folder.path / "learning_progress.png").exists()

    def test_learnproof_verify_judges_an_engines_folder(self, tmp_path):
        with small_engine(tmp_path / "e") as engine:
            engine.train_step_now(collect(Corridor(4), engine.act_many, 8))
            engine.save()
            with pytest.raises(RunFolderError, match="in use"):
                learnproof.verify(tmp_path / "e")
            before = engine.verify_learning_now()
        played = learnproof.verify(tmp_path / "e", evaluation_env=Corridor(3))
        assert played.performance.episodes == 100
        assert played.findings[1:] == before.findings[1:]
        with pytest.raises(UsageError, match=r"learnproof\.TrainingEngine\.load"):
            learnproof.resume(tmp_path / "e")

    def test_evidence_that_was_not_saved_is_not_judged_from_disk(self, tmp_path):
        with small_engine(tmp_path / "e") as engine:
            engine.train_step_now(made_up([20]))
        with pytest.raises(EvidenceError, match=r"engine\.save\(\)"):
            learnproof.verify(tmp_path / "e")

    def test_the_evidence_in_memory_is_that_on_disk(self, engine):
        for _ in range(3):
            engine.train_step_now(collect(Corridor(4), engine.act_many, 8))
        engine.journal.written.recorder.flush()
        read = Evidence.read(engine.folder.path)
        live = engine.journal.evidence
        assert (read.run, read.episodes, read.updates) == (live.run, live.episodes, live.updates)
        assert (read.inspections, read.others, read.looks) == (live.inspections, live.others, live.looks)
        for kind in ("rollout", "gradient_step", "iteration"):
            for one, other in zip(read.samples(kind), live.samples(kind), strict=True):
                assert one.arrays.keys() == other.arrays.keys()
                assert all(np.array_equal(one[role], other[role], equal_nan=True) for role in one.arrays)


class TestWeights:
    def test_distances_between_snapshots(self, engine):
        engine.snapshot("untouched")
        assert engine.distance("start", "untouched").total == 0
        first = engine.train_step_now(made_up([40]))
        assert engine.distance("start").total == pytest.approx(first.weight_change, rel=1e-5)
        engine.snapshot("after one")
        second = engine.train_step_now(made_up([40], seed=1))
        assert engine.distance("after one").total == pytest.approx(second.weight_step, rel=1e-5)
        apart = engine.distance("untouched", "after one")
        assert set(apart.modules) == {"policy", "value"}
        assert sum(apart.modules.values()) == pytest.approx(apart.total)
        assert 0 < apart.relative < 1
        assert engine.snapshots == ["start", "untouched", "after one"]

    def test_names_that_are_not_there_are_refused_with_a_suggestion(self, engine):
        engine.snapshot("phase one")
        with pytest.raises(UsageError, match="Did you mean 'phase one'"):
            engine.distance("phase on")
        with pytest.raises(UsageError, match="untrained weights"):
            engine.snapshot("start")
        engine.drop_snapshot("phase one")
        assert engine.snapshots == ["start"]

    def test_more_than_allowed_are_refused(self, tmp_path):
        with small_engine(tmp_path / "e", max_snapshots=1) as engine:
            engine.snapshot("one")
            engine.snapshot("one")
            with pytest.raises(UsageError, match="There are 1 snapshots already"):
                engine.snapshot("two")


class TestMaking:
    def test_settings_survive_a_trip_through_toml(self):
        import tomllib

        settings = EngineSettings().replace({"algorithm": "dqn", "dqn.n_step": 3, "seed": 7, "name": "ads"})
        assert parsed(EngineSettings, tomllib.loads(to_toml(settings)), "toml") == settings

    @pytest.mark.parametrize(
        ("changes", "says"),
        [
            ({"stat_dim": 3}, "Did you mean 'state_dim'"),
            ({"algorithm": "reinforce"}, "algorithm = 'reinforce'"),
            ({"dqn.learning_starts": 100}, r"dqn\.learning_starts = 100"),
            ({"schedule.kind": "plateau"}, "waits for evaluations"),
            ({"batch_size": 1}, "batch_size = 1"),
        ],
    )
    def test_settings_that_cannot_be_are_refused(self, changes, says):
        with pytest.raises(SettingsError, match=says):
            EngineSettings().replace(changes)

    def test_spaces_that_an_algorithm_cannot_take_are_refused(self, tmp_path):
        with pytest.raises(UnsupportedSpace, match="DQN values"):
            TrainingEngine(WORLD[0], spaces.Box(-1, 1, (2,)), out=tmp_path / "e", algorithm="dqn")
        with pytest.raises(UsageError, match="it is another task"):
            TrainingEngine(spaces.Box(-1, 1, (4,)), None, evaluation_env=Corridor(1), out=tmp_path / "e")
        with pytest.raises(UsageError, match="is a single one"):
            TrainingEngine(evaluation_env=gym.make("CartPole-v1"), out=tmp_path / "e")
        assert not (tmp_path / "e").exists()

    def test_a_folder_that_is_taken_is_not_written_into(self, tmp_path):
        with small_engine(tmp_path / "e") as engine:
            engine.save()
        with pytest.raises(RunFolderError, match=r"TrainingEngine\.load"):
            small_engine(tmp_path / "e")

    def test_an_engine_is_loaded_as_what_it_is(self, tmp_path):
        with small_engine(tmp_path / "e"):
            pass
        with pytest.raises(CheckpointError, match=r"engine\.save\(\) was not called"):
            TrainingEngine.load(tmp_path / "e", *WORLD)
        with small_engine(tmp_path / "f") as engine:
            engine.train_step_now(made_up([20]))
            engine.save()
        with pytest.raises(CheckpointMismatch, match="action_space"):
            TrainingEngine.load(tmp_path / "f", WORLD[0], spaces.Discrete(3))
        with TrainingEngine.load(tmp_path / "f", *WORLD) as engine:
            assert engine.progress.transitions == 20

    def test_what_save_gives_can_be_loaded(self, tmp_path):
        with small_engine(tmp_path / "e") as engine:
            engine.train_step_now(made_up([20]))
            saved = engine.save()
            engine.train_step_now(made_up([30]))
            engine.save()
        with TrainingEngine.load(saved, *WORLD) as engine:
            assert engine.progress.transitions == 20

    def test_what_nobody_can_act_on_is_refused(self, engine):
        with pytest.raises(UsageError, match="finite numbers"):
            engine.act(np.full(9, np.nan))
        with pytest.raises(UsageError, match="one observation of Box"):
            engine.act(np.zeros(3))
        with pytest.raises(UsageError, match="act_many"):
            engine.act(np.zeros((2, 9)))
        with pytest.raises(UsageError, match="act\\(\\) acts on one"):
            engine.act_many(np.zeros(9))

    def test_one_episode_is_no_list_of_them(self, engine):
        with pytest.raises(UsageError, match=r"give \[episode\]"):
            engine.train_step_now(made_up([5])[0])

    def test_a_log_probability_that_is_missing_is_named_by_its_step(self, engine):
        episode = made_up([3])[0]
        with pytest.raises(EpisodeRefused, match="log_probs of step 1 is None"):
            engine.train_step_now([replace(episode, log_probs=[-0.7, None, -0.7])])

    def test_a_closed_engine_says_so(self, tmp_path):
        engine = small_engine(tmp_path / "e")
        engine.close()
        engine.close()
        with pytest.raises(UsageError, match="closed"):
            engine.train_step_now(made_up([4]))
        with pytest.raises(UsageError, match="closed"):
            asyncio.run(engine.train_step(made_up([4])))

    def test_changed_evidence_is_refused(self, tmp_path):
        with small_engine(tmp_path / "e") as engine:
            engine.train_step_now(made_up([20]))
            engine.save()
            path = engine.folder.evidence
        path.write_bytes(path.read_bytes().replace(b'"length":20', b'"length":21'))
        with pytest.raises(EvidenceError, match="not what the engine wrote"):
            TrainingEngine.load(tmp_path / "e", *WORLD)
