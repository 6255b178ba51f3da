"""An exported file acts as its policy does, for every algorithm and space; one that does not is never written."""

import sys

import numpy as np
import onnxruntime
import pytest
import torch
from small_runs import RUNS, train_small

import learnproof
from learnproof.errors import ExportFault, MissingExtra, RunFolderError, UnsupportedSpace, UsageError
from learnproof.exporting import export as exporting
from learnproof.exporting.checking import TOLERANCE, by_the_policy, compare, random_inputs, with_memory
from learnproof.exporting.graph import PolicyGraph

SOON = ("ppo everything", "ppo recurrent camera")
"""The others differ in one head each; their graphs are compared without ONNX below."""


def load(run):
    return learnproof.load_policy(run, device="cpu")


def inputs_for(graph, count=64, seed=1):
    examples = {name: example.numpy() for name, example in zip(graph.input_names, graph.examples(count), strict=True)}
    return with_memory(graph, random_inputs(graph, examples, seed, count), seed)


def by_the_graph(graph):
    def answer(inputs):
        with torch.no_grad():
            return [out.numpy() for out in graph(*(torch.from_numpy(inputs[name]) for name in graph.input_names))]

    return answer


@pytest.mark.parametrize("name", RUNS)
def test_the_graph_of_every_policy_acts_as_the_policy_does(small_run, name):
    actor = load(small_run(name))
    graph = PolicyGraph(actor)
    inputs = inputs_for(graph)
    agreement = compare(actor, graph, by_the_graph(graph), inputs, "random observations")
    assert agreement.observations == 64
    assert agreement.largest_difference < TOLERANCE
    behind = by_the_policy(actor, graph, inputs)[len(graph.actions)]
    assert len(np.unique(behind)) > 1, "a constant policy would compare well with anything"


def test_pictures_that_nobody_normalised_are_scaled_in_the_graph(tmp_path):
    actor = load(train_small("dqn camera", tmp_path / "run", **{"env.normalize_observations": False}))
    graph = PolicyGraph(actor)
    agreement = compare(actor, graph, by_the_graph(graph), inputs_for(graph), "random observations")
    assert agreement.largest_difference < TOLERANCE
    assert actor.normalizer is None


def test_a_memory_goes_round_through_the_file(small_run):
    """Fed with its own next_memory, the graph plays an episode as the called policy does."""
    actor = load(small_run("ppo recurrent"))
    graph = PolicyGraph(actor)
    memory = np.zeros((4, 8), np.float32)
    actor.reset()
    for step in range(6):
        inputs = inputs_for(graph, 4, seed=step) | {"memory": memory}
        given = dict(zip(graph.output_names, by_the_graph(graph)(inputs), strict=True))
        action = actor(actor.observations.nest([inputs[name] for name in graph.observation_names]))
        assert given["action.shelf"].tolist() == action["shelf"].tolist()
        np.testing.assert_allclose(given["action.pour"], action["pour"], atol=1e-5)
        memory = given["next_memory"]


@pytest.mark.slow
@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=[] if name in SOON else pytest.mark.thorough) for name in RUNS]
)
def test_onnxruntime_acts_as_the_policy_does_one_by_one_and_in_batches(tmp_path, small_run, name):
    report = exporting.export_policy(small_run(name), tmp_path / "policy.onnx", observations=200)
    assert report.met.observations >= 200
    assert report.random.observations == 200
    assert report.largest_difference < 1e-4
    assert report.bytes == (tmp_path / "policy.onnx").stat().st_size

    body = (tmp_path / "policy.onnx").read_bytes()
    assert str(tmp_path).encode() not in body
    assert b"site-packages" not in body
    session = onnxruntime.InferenceSession(body, providers=["CPUExecutionProvider"])
    notes = session.get_modelmeta().custom_metadata_map
    assert notes["algorithm"] == name.split()[0]
    assert notes["observations_normalised"] == "true"
    actor = load(small_run(name))
    graph = PolicyGraph(actor)
    for count in (1, 7):
        inputs = inputs_for(graph, count, seed=count)
        names = [one.name for one in session.get_outputs()]
        given = dict(zip(names, session.run(names, inputs), strict=True))
        own = dict(zip(graph.output_names, by_the_policy(actor, graph, inputs), strict=True))
        assert given.keys() == own.keys()
        for key in own:
            np.testing.assert_allclose(given[key], own[key], rtol=1e-4, atol=1e-4)


@pytest.mark.slow
@pytest.mark.thorough
def test_equal_policies_give_equal_files(tmp_path, small_run):
    for name in ("one", "two"):
        exporting.export_policy(small_run("dqn"), tmp_path / f"{name}.onnx", observations=50)
    assert (tmp_path / "one.onnx").read_bytes() == (tmp_path / "two.onnx").read_bytes()


class Unnormalised(PolicyGraph):
    """Forgets the normalisation: what a hand-written export does most often. Its healthy twin is in tests/cli/test_policy_commands.py."""

    def __init__(self, actor):
        super().__init__(actor)
        self.normalizes = False


@pytest.mark.slow
def test_a_file_that_acts_otherwise_is_not_left_behind(tmp_path, small_run, monkeypatch):
    monkeypatch.setattr(exporting, "PolicyGraph", Unnormalised)
    with pytest.raises(ExportFault, match="is not the policy"):
        exporting.export_policy(small_run("dqn"), tmp_path / "policy.onnx", observations=50)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("name", ["ppo dict", "dqn", "sac", "reinforce"])
def test_small_changes_of_a_policy_are_seen(small_run, name):
    actor = load(small_run(name))
    graph = PolicyGraph(actor)
    inputs = inputs_for(graph)
    compare(actor, graph, by_the_graph(graph), inputs, "random observations")
    with torch.no_grad():
        other = PolicyGraph(load(small_run(name)))
        next(p for p in other.network.parameters() if p.dim() == 2).mul_(1.02)
    with pytest.raises(ExportFault):
        compare(actor, graph, by_the_graph(other), inputs, "random observations")


def test_a_choice_may_differ_only_where_the_policy_is_undecided(small_run):
    actor = load(small_run("dqn"))
    graph = PolicyGraph(actor)
    inputs = inputs_for(graph)
    honest = by_the_graph(graph)

    def turned(inputs):
        action, *rest = honest(inputs)
        return [1 - action, *rest]

    with pytest.raises(ExportFault, match="action differs by 1"):
        compare(actor, graph, turned, inputs, "random observations")
    with torch.no_grad():
        actor.network.advantage.weight.zero_()
        actor.network.advantage.bias.zero_()
    assert compare(actor, graph, turned, inputs, "random observations").ties == 64


def test_an_answer_of_another_type_is_refused(small_run):
    actor = load(small_run("dqn"))
    graph = PolicyGraph(actor)
    honest = by_the_graph(graph)

    def narrowed(inputs):
        action, *rest = honest(inputs)
        return [action.astype(np.int32), *rest]

    with pytest.raises(ExportFault, match="int32"):
        compare(actor, graph, narrowed, inputs_for(graph), "random observations")


def test_a_space_without_a_counterpart_is_refused_and_said_why(tmp_path):
    run = train_small("ppo everything", tmp_path / "odd", **{"env.kwargs": {"odd": True}, "steps": 128})
    with pytest.raises(UnsupportedSpace, match="uint32"):
        exporting.export_policy(run)
    assert not (run / "policy.onnx").exists()


@pytest.mark.parametrize("package", ["onnx", "onnxscript", "onnxruntime"])
def test_a_missing_package_names_the_extra(monkeypatch, small_run, package):
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(MissingExtra, match=rf"'{package}'.*learnproof\[export\]"):
        exporting.export_policy(small_run("dqn"))


def test_bad_usage_is_refused(tmp_path, small_run):
    with pytest.raises(UsageError, match="is a folder"):
        exporting.export_policy(small_run("dqn"), tmp_path)
    with pytest.raises(UsageError, match="at least 10"):
        exporting.export_policy(small_run("dqn"), observations=3)
    with pytest.raises(RunFolderError, match="no run folder"):
        exporting.export_policy(tmp_path / "nowhere")
