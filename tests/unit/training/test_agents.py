"""Agents in the loop: what is counted, what the policy may see, what is done with it afterwards."""

import json

import numpy as np
import pytest
import torch
from small_runs import settings_of, train_small
from team_environments import Leaving, Matching

import learnproof
from learnproof.algorithms.learner import Inspect
from learnproof.config import PolicySettings, Settings
from learnproof.envs.agents import OWN, STATE
from learnproof.envs.parallel_agents import ParallelAgents
from learnproof.envs.task_allocation import TaskAllocationAgentsV1, parallel_env
from learnproof.envs.team_making import environment_source
from learnproof.errors import SettingsError, UnknownEnvironment
from learnproof.exporting.export import export_policy
from learnproof.exporting.graph import PolicyGraph
from learnproof.policies.flat import FlatParameters
from learnproof.policies.heads import CategoricalHead
from learnproof.policies.networks import ActorCritic
from learnproof.policies.normalization import RewardScaler
from learnproof.training.assembly import make_actor, make_learner
from learnproof.training.evaluation import Evaluator
from learnproof.training.playing import play
from learnproof.training.rollout import Collector

SMALL = {
    "steps": 256,
    "policy.hidden": (16,),
    "ppo.n_steps": 16,
    "ppo.minibatch_size": 32,
    "evaluation.every_steps": 128,
    "evaluation.episodes": 4,
    "proof.episodes": 10,
}


def collector_of(env, **changes):
    settings = Settings().replace({"policy.hidden": (8,), **changes})
    return Collector(env, "teams", make_actor(settings, env), RewardScaler(env.num_envs, 0.9), 0)


# ---------------------------------------------------------------------- counting


def test_steps_and_episodes_are_those_of_teams():
    collector = collector_of(ParallelAgents(Leaving, 2))
    collector.start()
    rollout, episodes = collector.collect(11)
    assert collector.steps == 22
    assert rollout.teams_ended == 4
    assert rollout.reward.shape == (11, 6)
    assert [(e.step, e.env, e.return_, e.length, e.terminated) for e in episodes] == [
        (step, team, 20.0, 5, False) for step in (10, 20) for team in (0, 1)
    ]


def test_rows_of_agents_who_left_are_invalid_and_get_no_credit():
    collector = collector_of(ParallelAgents(Leaving, 1), **{"env.normalize_observations": True})
    collector.start()
    rollout, _ = collector.collect(10)
    there = [[True] * 3, [False, True, True], *[[False, False, True]] * 3] * 2
    assert rollout.valid.tolist() == there
    assert rollout.terminated.sum() == 4
    assert rollout.truncated.tolist()[4] == [False, False, True]
    assert rollout.final_rows.tolist() == [4 * 3 + 2, 9 * 3 + 2]
    assert collector.actor.normalizer.moments.count[0] == pytest.approx(np.array(there).sum() + 3, abs=1e-3)


def test_a_joint_run_and_one_agent_by_agent_spend_the_same_budget(tmp_path):
    for per_agent in (False, True):
        result = learnproof.train(
            "learnproof/TaskAllocation-v1",
            out=tmp_path / str(per_agent),
            **SMALL,
            **{"env.per_agent": per_agent, "env.kwargs": {"n_agents": 3, "episode_steps": 20}},
        )
        evidence = learnproof.Evidence.read(result.path)
        assert result.steps == 256
        assert evidence.run.n_envs == 4
        assert len(evidence.episodes) == 256 // 20 // 4 * 4
        assert all(len(e.deterministic) == 4 for e in evidence.evaluations)
        assert {e.length for e in evidence.episodes} == {20}
        for episode in evidence.episodes:
            assert 0 <= episode.metrics["completion_rate"] <= 1
            assert episode.return_ == pytest.approx(round(episode.return_)), "the team's: 1 for each task"


def test_reinforce_lets_its_entropy_decay_by_episodes_of_teams():
    settings = Settings().replace({"algorithm": "reinforce", "policy.hidden": (8,), "reinforce.n_steps": 11})
    collector = collector_of(ParallelAgents(Leaving, 2), algorithm="reinforce")
    learner = make_learner(settings, collector.actor)
    collector.start()
    learner.learn(iter([collector.collect(11)[0]]), 1e-3, Inspect())
    assert learner.episodes == 4


def test_evaluation_plays_a_team_for_each_seed():
    env = TaskAllocationAgentsV1(2, n_agents=3)
    settings = Settings().replace(
        {"env.id": "learnproof/TaskAllocation-v1", "env.per_agent": True, "policy.hidden": (8,)}
    )
    source = environment_source(settings.env)
    actor = make_actor(settings, env)
    evaluator = Evaluator(source, "return", 1000)
    together = evaluator.scores(actor, [5, 6, 7], "deterministic")
    assert together.shape == (3,)
    assert (evaluator.scores(actor, [7], "deterministic") == together[2:]).all()


# ---------------------------------------------------------------------- what the policy may see


def test_the_policy_does_not_depend_on_the_state_and_the_value_does():
    noise = torch.Generator().manual_seed(0)
    network = ActorCritic(7, CategoricalHead([3]), PolicySettings(hidden=(6, 4)), noise, policy_size=4)
    rows = torch.randn((5, 7), generator=noise, requires_grad=True)
    (policy,) = torch.autograd.grad(network.policy_params(rows).square().sum(), rows)
    assert policy[:, 4:].abs().max() == 0
    assert policy[:, :4].abs().min() > 0
    (value,) = torch.autograd.grad(network.values(rows).sum(), rows)
    assert value.abs().min() > 0


@pytest.mark.parametrize("layer_norm", [False, True])
def test_the_derivative_written_out_is_autograds_with_a_central_critic_too(layer_norm):
    noise = torch.Generator().manual_seed(3)
    settings = PolicySettings(hidden=(6, 4), layer_norm=layer_norm)
    network = ActorCritic(7, CategoricalHead([3]), settings, noise, policy_size=4)
    flat = FlatParameters(network)
    with torch.no_grad():
        flat.vector += 0.3 * torch.randn(flat.vector.shape, generator=noise)
    rows, action = torch.randn((9, 7), generator=noise), torch.ones(9, 1)
    to_log_prob, to_entropy, to_value = torch.randn((3, 9), generator=noise)
    log_prob, entropy, value = network(rows, action)
    flat.gradient.zero_()
    (log_prob * to_log_prob + entropy * to_entropy + value * to_value).sum().backward()
    expected = flat.gradient.clone()
    flat.gradient.fill_(float("nan"))
    outputs = network.keeping(rows)
    said = network.head.log_prob_and_entropy(outputs.params, action)
    network.backward(outputs, *said, to_log_prob, to_entropy, to_value)
    torch.testing.assert_close(flat.gradient, expected, rtol=1e-4, atol=1e-6)


def test_without_a_central_critic_nothing_has_changed():
    first, second = (
        ActorCritic(
            5, CategoricalHead([3]), PolicySettings(hidden=(4,)), torch.Generator().manual_seed(0), policy_size=size
        )
        for size in (None, 5)
    )
    assert all((a == b).all() for a, b in zip(first.parameters(), second.parameters(), strict=True))
    rows = torch.ones(2, 5)
    assert first.seen_by_policy(rows) is rows


# ---------------------------------------------------------------------- settings


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"algorithm": "dqn", "env.per_agent": True}, "ppo or reinforce"),
        ({"algorithm": "sac", "env.per_agent": True}, "ppo or reinforce"),
        ({"policy.shared_trunk": True, "env.per_agent": True}, "shared_trunk"),
        ({"env.rewards": "shared"}, "env.per_agent"),
        ({"env.per_agent": True, "env.vectorization": "async"}, "vectorization"),
        ({"env.per_agent": True, "env.kwargs": {"n_agent": 3}}, "n_agents"),
    ],
)
def test_settings_that_do_not_fit_are_refused(tmp_path, changes, says):
    with pytest.raises(SettingsError, match=says):
        learnproof.train("learnproof/TaskAllocation-v1", out=tmp_path / "run", **{**SMALL, **changes})
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    ("env", "says"),
    [
        ("CartPole-v1", "has no form"),
        ("no_such_module:make", "no_such_module"),
        ("team_environments:make_matches", "make_matches"),
        ("team_environments:np", "makes nothing"),
    ],
)
def test_an_id_without_agents_says_which_ones_have_them(env, says):
    with pytest.raises(UnknownEnvironment, match=says):
        environment_source(Settings().replace({"env.id": env, "env.per_agent": True}).env)


def test_a_function_that_makes_teams_is_trained_by_its_name(tmp_path):
    settings = {**SMALL, "env.per_agent": True, "env.kwargs": {"n": 2}}
    result = learnproof.train("team_environments:make_matching", out=tmp_path / "run", **settings)
    assert result.verdict is not None
    assert json.loads((result.path / "verdict.json").read_text())["verdict"] in ("proven", "unproven")
    policy = learnproof.load_policy(result.path)
    assert set(policy({"worker_0": 1, "worker_1": 2})) == {"worker_0", "worker_1"}
    assert len(learnproof.evaluate(result.path, episodes=3)["sampled"]) == 3
    with pytest.raises(SettingsError, match="arguments"):
        learnproof.train("team_environments:make_matching", out=tmp_path / "no", **settings | {"env.kwargs": {"m": 2}})


def test_teams_that_are_given_as_objects(tmp_path):
    result = learnproof.train(
        ParallelAgents(Matching, 4), evaluation_env=ParallelAgents(Matching, 3), out=tmp_path / "run", **SMALL
    )
    assert result.steps == 256
    policy = learnproof.load_policy(result.path, ParallelAgents(Matching, 1))
    assert policy(2) in (0, 1, 2)


# ---------------------------------------------------------------------- afterwards


@pytest.fixture(scope="module")
def allocation_run(tmp_path_factory):
    return train_small(
        "ppo allocation",
        tmp_path_factory.mktemp("agents") / "run",
        **{"env.per_agent": True, "env.kwargs": {"n_agents": 3}},
    )


def test_a_loaded_policy_acts_on_what_an_agent_sees_itself(allocation_run):
    policy = learnproof.load_policy(allocation_run)
    env = environment_source(
        settings_of("ppo allocation", **{"env.per_agent": True, "env.kwargs": {"n_agents": 3}}).env
    )
    rows, _ = env.training(2).reset(seed=0)
    actions = policy(rows[OWN])
    assert actions.shape == (6, 3)
    assert (policy(rows) == actions).all(), "as the training environment shows them, the state left away"
    np.testing.assert_allclose(policy(rows[OWN][4]), actions[4], rtol=1e-5, atol=1e-6)
    noise = np.random.default_rng(0)
    assert (policy.act({OWN: rows[OWN], STATE: rows[STATE] * 0}, noise, "deterministic").action == actions).all()


def test_it_acts_in_the_pettingzoo_form_too(allocation_run):
    policy = learnproof.load_policy(allocation_run)
    env = parallel_env("v1", view="compact", n_agents=3, episode_steps=5)
    seen, _ = env.reset(seed=0)
    while env.agents:
        seen, *_ = env.step(policy(seen))


def test_it_is_the_policy_that_was_trained(allocation_run):
    kept = learnproof.load_policy(allocation_run)
    settings = settings_of("ppo allocation", **{"env.per_agent": True, "env.kwargs": {"n_agents": 3}})
    from learnproof.runs.folder import RunFolder
    from learnproof.training.saving import load_policy_checkpoint

    env = environment_source(settings.env).training(2)
    whole = make_actor(settings, env)
    load_policy_checkpoint(whole, RunFolder.open(allocation_run).best.newest())
    rows, _ = env.reset(seed=1)
    noise = np.random.default_rng(0)
    expected = whole.act(rows, noise, "deterministic").action
    np.testing.assert_allclose(kept(rows), expected, rtol=1e-5, atol=1e-6)


def test_a_team_is_played_for_people(allocation_run):
    played = play(allocation_run, episodes=2)
    assert [len(episode.steps) for episode in played.episodes] == [100, 100]
    assert played.names[0] == "agent_0.obs[0]"
    assert len(played.names) == played.episodes[0].steps[0].observation.size
    assert played.episodes[0].metric is not None
    assert played.episodes[0].steps[0].action.shape == (3, 3)


def test_the_graph_of_an_agent_acts_as_the_agent_does(allocation_run):
    policy = learnproof.load_policy(allocation_run, device="cpu")
    graph = PolicyGraph(policy)
    rows = np.random.default_rng(0).random((64, policy.observations.size), dtype=np.float32)
    with torch.no_grad():
        actions = dict(zip(graph.output_names, graph(torch.from_numpy(rows)), strict=True))["action"].numpy()
    np.testing.assert_allclose(actions, policy(rows), atol=1e-5)
    assert "value" not in graph.output_names


@pytest.mark.slow
def test_an_agent_is_exported_without_the_critic(allocation_run, tmp_path):
    onnxruntime = pytest.importorskip("onnxruntime")
    report = export_policy(allocation_run, tmp_path / "agent.onnx", observations=50)
    assert report.largest_difference < 1e-4
    session = onnxruntime.InferenceSession(str(tmp_path / "agent.onnx"))
    assert [one.name for one in session.get_inputs()] == ["observation"]
    assert "value" not in [one.name for one in session.get_outputs()]
