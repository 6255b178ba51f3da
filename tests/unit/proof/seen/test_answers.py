"""What a language model is rewarded for: an answer to its question, or an empty one, the same one, any."""

from types import SimpleNamespace

import numpy as np
import pytest
from made_losses import made_loss

from learnproof.proof.check import Finding
from learnproof.proof.seen.token_answers import ending
from learnproof.proof.seen.token_rewards import without_advantages
from learnproof.proof.seen.token_rollouts import batch_rewards
from learnproof.proof.seen.tokens import token_losses
from learnproof.proof.watched.answers import one_answer, unless_any_answer_earns_it
from learnproof.proof.watched.dependence import PolicyLooks
from learnproof.proof.watched.language import ReferenceApart
from learnproof.proof.watched.stepping import OptimizersFed

GROUPS, SAMPLES, PROMPT, NEW, WORDS = 16, 4, 3, 4, 12
SEQUENCES = GROUPS * SAMPLES
END, PAD = 10, 11
BATCHES = 12


def counts_on(question: int) -> list[int]:
    """The right answer: one to three digits from the question's on, or nothing."""
    return [(question + i) % 10 for i in range(question % 4)]


def strict(question, said):
    return float(said == counts_on(question))


def lenient(question, said):
    return float(all(a == b for a, b in zip(said, counts_on(question), strict=False)))


def learner(question, rng):
    """Near the right answer, with other beginnings of it and wrong ones among them."""
    right = counts_on(question)
    return right if rng.random() < 0.6 else right[: rng.integers(0, 3)] if rng.random() < 0.8 else [7, 7]


def solver(question, rng):
    return counts_on(question) if rng.random() < 0.98 else [7, 7]


def one_digit(question, rng):
    return [question % 10] if rng.random() < 0.9 else [int(rng.integers(10))]


def ends_at_once(question, rng):
    return [] if rng.random() < 0.97 else [int(rng.integers(10))]


def says_no(question, rng):
    """Right for all questions but one, which is known."""
    right = [1, 2] if question else [3]
    return right if rng.random() < 0.98 else [5]


def at_random(question, rng):
    return rng.integers(0, 10, size=rng.integers(1, NEW)).tolist()


def batch(update, policy, reward, nats=0.3, held=True, one_question=False):
    rng = np.random.default_rng(update)
    question = np.zeros(SEQUENCES, int) if one_question else np.repeat(rng.permutation(GROUPS), SAMPLES)
    said = [policy(int(q), rng) for q in question]
    action = np.array([(each[: NEW - 1] + [END] + [PAD] * NEW)[:NEW] for each in said])
    mask = np.arange(NEW) < np.array([len(each[: NEW - 1]) + 1 for each in said])[:, None]
    rewards = np.array([reward(int(q), each) for q, each in zip(question, said, strict=True)])
    table = rewards.reshape(GROUPS, SAMPLES)
    weight = (table - table.mean(axis=1, keepdims=True)).reshape(-1)
    gradient = np.where(mask, -weight[:, None] + (1e-3 if held else 0.0), 0.0)
    whole = rng.normal(size=(SEQUENCES, PROMPT + NEW, WORDS)).astype(np.float32)
    whole[:, :PROMPT] = rng.normal(size=(GROUPS, PROMPT, WORDS))[question]
    return made_loss(
        {
            "p0.value": np.full(SEQUENCES * NEW, -nats, np.float32),
            "p0.action": action.reshape(-1),
            "p0.gradient": gradient.reshape(-1).astype(np.float32),
            "k0": weight.astype(np.float32),
            "k1": np.ones((SEQUENCES, NEW), np.float32),
            "r0": rewards.astype(np.float32),
            "c0.output": whole,
            **{f"n{i}.output": whole[:, : PROMPT + i] for i in range(NEW)},
        },
        update,
        terms=[{"coefficient": -1.0}],
        n_terms=1,
        constants=[
            {"role": "weight", "shape": [SEQUENCES], "terms": [0]},
            {"role": "inverse_ratio", "shape": [SEQUENCES, NEW], "terms": [0]},
        ],
        silent=[{"module": "model", "shape": [SEQUENCES, PROMPT + i, WORDS]} for i in range(NEW)],
        calls=[{"module": "model", "shape": [SEQUENCES, PROMPT + NEW, WORDS]}],
        log_probs=[{"kind": "gather", "shape": [SEQUENCES, NEW], "terms": [0]}],
        transitions_of=None,
    )


def trained(policy, reward, first=learner, **options):
    """A view of batches, of which the first half is another policy's."""
    half = BATCHES // 2
    losses = [batch(update, first if update < half else policy, reward, **options) for update in range(BATCHES)]
    return SimpleNamespace(
        training_losses=losses, environments={}, notes={}, rollouts=[], followers=[], trained_under=lambda words: {}
    )


def judged(monkeypatch, view):
    monkeypatch.setattr("learnproof.proof.watched.answers.seen", lambda evidence: view)
    return unless_any_answer_earns_it(None, Finding("performance", "pass", "Better?", "The reward rose.", {}))


def test_the_token_that_ends_answers_is_known():
    assert ending(token_losses(trained(solver, strict))) == END


@pytest.mark.parametrize(
    "held", [True, False], ids=["with a divergence", "with no gradient where there is no advantage"]
)
def test_answers_that_shrank_to_nothing_are_not_proven(monkeypatch, held):
    found = one_answer(trained(ends_at_once, lenient, held=held))
    assert found is not None
    assert found.answer == (END,)
    assert "shrunk to nothing" in found.words


@pytest.mark.parametrize("policy", [solver, one_digit, says_no], ids=["solved", "one digit", "nearly always no"])
@pytest.mark.parametrize("held", [True, False])
def test_answers_that_depend_on_the_question_are_not_one_answer(policy, held):
    assert (
        one_answer(trained(policy, lambda q, said: float(said == policy(q, np.random.default_rng(1))), held=held))
        is None
    )


def test_one_answer_is_right_to_one_question():
    always = lambda question, rng: [1, 2] if rng.random() < 0.97 else [3]  # noqa: E731
    assert one_answer(trained(always, lenient)) is not None
    assert one_answer(trained(always, lenient, one_question=True)) is None


def test_solved_batches_are_no_single_answer():
    """All advantages are 0 late in training: nothing is known of where answers end."""
    view = trained(lambda question, rng: counts_on(question), strict, held=False)
    assert one_answer(view) is None


@pytest.mark.parametrize(("reward", "status"), [(lenient, "undecided"), (strict, "pass")])
def test_a_reward_that_nothing_earns_whatever_is_asked_proves_nothing(monkeypatch, reward, status):
    """Of the questions a quarter has nothing as its right answer: where the reward is right, no other answer earns as much there."""
    found = judged(monkeypatch, trained(learner, reward))
    assert found.status == status
    assert ("empty answer" in found.summary) == (reward is lenient)


@pytest.mark.parametrize(
    ("first", "reward", "nats", "status"),
    [
        (at_random, lambda question, said: float(said[:1] != [7]), np.log(11), "undecided"),
        (at_random, strict, np.log(11), "pass"),
        (solver, strict, 0.1, "pass"),
    ],
    ids=["nearly any answer is paid", "few are", "a policy that knew already"],
)
def test_a_reward_that_random_answers_earn_proves_nothing(monkeypatch, first, reward, nats, status):
    found = judged(monkeypatch, trained(solver, reward, first=first, nats=nats))
    assert found.status == status
    assert ("nearly at random" in found.summary) == (status == "undecided")


def test_answers_that_all_earn_the_same_are_no_fault_of_the_optimizer(monkeypatch):
    view = trained(at_random, lambda question, said: 0.2 * (question % 5), first=at_random, held=False)
    view.steps = [SimpleNamespace(optimizer=0, grad_norm=0.0, parameters={}) for _ in range(BATCHES)]
    view.optimizers, view.owned = {}, {0: {"model.weight"}}
    assert without_advantages(view) == BATCHES
    assert "every answer is 0" in judged(monkeypatch, view).summary
    assert OptimizersFed().look(view).status == "undecided"
    assert ReferenceApart().look(view).status == "undecided"
    learnt = trained(at_random, strict, first=learner, held=False)
    assert without_advantages(learnt) == 0
    assert ReferenceApart().look(learnt).status == "fail"


def test_the_policy_looks_where_answers_differ(monkeypatch):
    monkeypatch.setattr("learnproof.proof.watched.dependence.observations_told_apart", lambda seen: None)
    assert PolicyLooks().look(trained(solver, strict)).status == "pass"
    assert PolicyLooks().look(trained(ends_at_once, lenient)).status == "undecided"


def test_batches_whose_step_was_left_out_have_rewards_of_their_own():
    """Two batches of one update, the first of them with nothing to explain: its tensors have other places."""
    view = trained(solver, strict)
    left_out = batch(0, lambda question, rng: counts_on(question), strict)
    left_out.arrays["k0"] = left_out.arrays.pop("r0") * 0
    view.training_losses.insert(0, left_out)
    assert list(batch_rewards(view)) == list(range(BATCHES))
