"""PPO of a language model, its tokens flattened by a mask: targets, ratios and masks, right and wrong."""

from types import SimpleNamespace

import numpy as np
import pytest
from made_losses import made_loss, made_view

from learnproof.proof.seen.losses import Loss
from learnproof.proof.seen.token_rollouts import left_out, reward_means, token_rollouts
from learnproof.proof.seen.tokens import Tokens, token_losses
from learnproof.proof.watched.direction import PolicyDirection
from learnproof.proof.watched.language import TokensMasked
from learnproof.proof.watched.ratio import RatioIsOne, _clipped_sides
from learnproof.proof.watched.returns import ReturnsRecomputed
from learnproof.proof.watched.sampling import SampledAsScored

SEQUENCES, POSITIONS, WORDS, GAMMA, LAMBDA, CLIP = 48, 6, 7, 0.98, 0.9, 0.2
END, NEVER_WRITTEN = 1, 0


class Batch:
    """Sampled sequences with values, rewards and old log-probabilities, as a script would hold them."""

    def __init__(self, seed: int, fault: str) -> None:
        rng = np.random.default_rng(seed)
        self.rng, self.fault = rng, fault
        self.logits = rng.normal(size=(SEQUENCES, POSITIONS, WORDS)).astype(np.float32)
        self.value = rng.normal(size=(SEQUENCES, POSITIONS)).astype(np.float32)
        self.log_probs = self.scored(self.logits)
        drawn_from = self.log_probs + (3 * rng.normal(size=self.log_probs.shape) if fault == "other sampler" else 0.0)
        drawn_from[..., NEVER_WRITTEN] = -np.inf
        self.action = (drawn_from + rng.gumbel(size=drawn_from.shape)).argmax(axis=2)
        ended = np.cumsum(self.action == END, axis=1) - (self.action == END) > 0
        self.mask = ~ended
        self.reward = rng.random(SEQUENCES).astype(np.float32)
        rewards = np.zeros((SEQUENCES, POSITIONS))
        rewards[np.arange(SEQUENCES), self.mask.sum(axis=1) - 1] = self.reward
        turn = fault == "along the batch"
        tables = (rewards, self.value.astype(float), self.mask)
        found = returns(*((t.T for t in tables) if turn else tables))
        self.target = found.T if turn else found
        self.advantage = np.where(self.mask, self.target - self.value, 0.0)
        self.used = self.mask & (self.action != END) if fault == "end dropped" else self.mask

    def scored(self, logits: np.ndarray) -> np.ndarray:
        table = logits.astype(float).copy()
        table[..., NEVER_WRITTEN] = -1e9
        return table - np.logaddexp.reduce(table, axis=2, keepdims=True)

    def loss(self, update: int, rows: np.ndarray, moved: float) -> Loss:
        logits = self.logits[rows] + np.float32(moved) * self.rng.normal(size=self.logits[rows].shape).astype(
            np.float32
        )
        at = self.action[rows][..., None]
        new = np.take_along_axis(self.scored(logits), at, axis=2)[..., 0]
        old = np.take_along_axis(self.log_probs[rows], at, axis=2)[..., 0]
        old = new if self.fault == "compared with itself" else old
        ratio, asked, used = np.exp(new - old), self.advantage[rows], self.used[rows]
        outside = np.abs(ratio - 1) > CLIP
        further = (ratio > 1) == (asked > 0)
        held = outside & (~further if self.fault == "clip turned" else further)
        gradient = np.where(used & ~held, -ratio * asked, 0.0)
        value = self.value[rows] + np.float32(moved) * self.rng.normal(size=self.value[rows].shape).astype(np.float32)
        difference = value - self.target[rows]
        arrays = {
            "p0.value": new.reshape(-1).astype(np.float32),
            "p0.action": at.reshape(-1),
            "p0.gradient": gradient[..., None].astype(np.float32),
            "k0": difference[used].astype(np.float32),
            "k1": asked[used].astype(np.float32),
            "k2": ratio[used].astype(np.float32),
            "c0.output": logits,
            "c1.output": value[..., None],
            "c1.gradient": np.where(used, difference, 0.0)[..., None].astype(np.float32),
        }
        if self.fault in ("whole sequences", "values read late"):
            self.widen(arrays, len(rows))
        silent = []
        if moved == 0:
            noise = 1 + 1e-7 * self.rng.normal(size=self.logits.shape).astype(np.float32)
            known = self.logits * noise
            if self.fault in ("whole sequences", "values read late"):  # the batch's other rows are asked about too
                known = self.rng.normal(size=(SEQUENCES, POSITIONS + 3, WORDS)).astype(np.float32)
                known[rows] = arrays["c0.output"]
            arrays |= {"n0.output": known, "r0": self.reward, "r1": self.value.mean(axis=1)}
            silent = [{"module": "head", "shape": list(self.logits.shape)}]
        shape = [len(rows), POSITIONS]
        return made_loss(
            arrays, update, terms=[{"coefficient": -1.0}, {"coefficient": 0.5}], n_terms=2, clips=[[1 - CLIP, 1 + CLIP]],
            constants=[
                {"role": "difference", "sign": 1, "beside": "SqueezeBackward1", "terms": [1], "calls": [1]},
                {"role": "weight", "sign": 1, "beside": "ExpBackward0", "terms": [0], "calls": [0]},
                {"role": "ratio", "sign": 1, "beside": "IndexBackward0", "terms": [0], "calls": [0]},
            ],
            silent=silent,
            calls=[{"module": "head", "shape": [*shape, WORDS]}, {"module": "value", "shape": [*shape, 1]}],
            log_probs=[{"kind": "log_softmax", "shape": [*shape, 1], "terms": [0]}], transitions_of=None,
        )  # fmt: skip

    def widen(self, arrays: dict[str, np.ndarray], count: int) -> None:
        """The networks answered for whole sequences: two tokens of a prompt before, one after."""
        for name, before in (("c0.output", 2), ("c1.output", 3 if self.fault == "values read late" else 2)):
            inner = arrays[name]
            outer = self.rng.normal(size=(count, POSITIONS + 3, inner.shape[2])).astype(np.float32)
            outer[:, before : before + POSITIONS] = inner
            arrays[name] = outer
            if name == "c1.output":
                gradient = np.zeros((count, POSITIONS + 3, 1), np.float32)
                gradient[:, before : before + POSITIONS] = arrays["c1.gradient"]
                arrays["c1.gradient"] = gradient


def returns(rewards: np.ndarray, value: np.ndarray, mask: np.ndarray) -> np.ndarray:
    advantage = np.zeros_like(rewards)
    last = np.zeros(len(rewards))
    for t in reversed(range(rewards.shape[1])):
        alive = mask[:, t + 1].astype(float) if t + 1 < rewards.shape[1] else np.zeros(len(rewards))
        following = value[:, t + 1] * alive if t + 1 < rewards.shape[1] else 0.0
        last = rewards[:, t] + GAMMA * following - value[:, t] + GAMMA * LAMBDA * alive * last
        advantage[:, t] = last
    return advantage + value


def seen(fault: str = ""):
    """Eight batches; of each a first half before any step, the other half after one, and the first half again."""
    losses = []
    for number in range(8):
        batch = Batch(number, fault)
        order = batch.rng.permutation(SEQUENCES)
        halves = order[: SEQUENCES // 2], order[SEQUENCES // 2 :]
        for step, (rows, moved) in enumerate([(halves[0], 0.0), (halves[1], 0.2), (halves[0], 0.5)]):
            losses.append(batch.loss(3 * number + step, rows, moved))
    return SimpleNamespace(
        training_losses=losses, environments={}, notes={}, rollouts=[], pooled_rollouts=[], on_policy=False,
        on_policy_cycles=set(), limits_told=True, by_cycle={}, steps=[],
    )  # fmt: skip


def test_a_healthy_loop_is_explained_and_passes():
    view = seen()
    assert len(token_rollouts(view)) == 8
    recomputed = ReturnsRecomputed().look(view)
    assert recomputed.status == "pass"
    assert recomputed.figures["gamma"] == pytest.approx(GAMMA, abs=1e-5)
    assert recomputed.figures["lambda"] == pytest.approx(LAMBDA, abs=1e-5)
    assert left_out(view)[0] == 0 < left_out(view)[1]
    for check in (PolicyDirection(), TokensMasked(), RatioIsOne(), SampledAsScored()):
        assert check.look(view).status == "pass", check.look(view).summary


@pytest.mark.parametrize(
    ("fault", "check", "words"),
    [
        ("along the batch", ReturnsRecomputed(), "instead of along time"),
        ("end dropped", TokensMasked(), "last token"),
        ("clip turned", RatioIsOne(), "wrong side"),
        ("compared with itself", RatioIsOne(), "exactly 1"),
        ("other sampler", SampledAsScored(), "less likely"),
    ],
)
def test_a_fault_is_named(fault, check, words):
    found = check.look(seen(fault))
    assert found.status == "fail"
    assert words in found.summary


@pytest.mark.parametrize(
    ("picks", "coefficient", "status"),
    [("Minimum", -1.0, "pass"), ("Maximum", 1.0, "pass"), ("Maximum", -1.0, "fail"), ("Minimum", 1.0, "fail")],
)
def test_the_larger_of_two_surrogates_is_named_though_no_row_has_reached_the_clip(picks, coefficient, status):
    view = seen()
    surrogates = ["MulBackward0", "MulBackward0", "ExpBackward0", "ClampBackward1"]
    for loss in view.training_losses:
        loss.event.terms[0] |= {"coefficient": coefficient, "structure": [picks + "Backward0", *surrogates]}
    found = RatioIsOne().look(view)
    assert found.status == status
    assert ("larger of the two" in found.summary) == (status == "fail")


def test_values_of_whole_sequences_are_cut_where_they_get_a_gradient():
    view = seen("whole sequences")
    assert ReturnsRecomputed().look(view).status == "pass"
    assert RatioIsOne().look(view).status == "pass"
    found = ReturnsRecomputed().look(seen("values read late"))
    assert found.status == "fail"
    assert "after the token was read" in found.summary


def test_the_rewards_are_told_from_other_means_and_counted_once_a_batch():
    view = seen()
    assert {rollout.told.rewards for rollout in token_rollouts(view) if rollout.told} == {"r0"}
    means = reward_means(view)
    assert means == pytest.approx([float(Batch(number, "").reward.mean()) for number in range(8)])


def test_without_values_there_are_no_such_rollouts():
    view = seen()
    for loss in view.training_losses:
        loss.event.constants[:] = loss.event.constants[1:]
    assert token_rollouts(view) == []
    assert "rollout" in ReturnsRecomputed().lacks(view)


PULL = 0.04
"""Coefficient of the divergence."""
MEANS = ("whole", "of tokens", "of sequences")


def beside_a_divergence(number: int, moved: float, turned: bool, pull: float = PULL, mean: str = "whole") -> Loss:
    """GRPO: one advantage for each sequence, and k3 = q/p - log(q/p) - 1 of the reference's q at every token. Sequences are whole, or end in
    padding: then the mean is that of all tokens, or of the means of all sequences."""
    rng = np.random.default_rng(number)
    lengths = np.full(SEQUENCES, POSITIONS) if mean == "whole" else rng.integers(2, POSITIONS + 1, SEQUENCES)
    mask = np.arange(POSITIONS) < lengths[:, None]
    old = rng.normal(-1.5, 0.3, mask.shape)
    new = old + moved * rng.normal(size=mask.shape)
    asked = rng.normal(size=(SEQUENCES, 1))
    ratio, inverse = np.exp(new - old), np.exp(old + 0.3 * rng.normal(size=mask.shape) - new)
    outside, further = np.abs(ratio - 1) > CLIP, (ratio > 1) == (asked > 0)
    held = outside & (~further if turned else further)
    gradient = np.where(held, 0.0, -ratio * asked) + pull * (1 - inverse)
    gradient = np.where(mask, gradient, 0.0) / tokens_averaged(mask, mean)
    arrays = {
        "p0.value": new.reshape(-1).astype(np.float32),
        "p0.action": rng.integers(0, WORDS, mask.size),
        "p0.gradient": gradient.reshape(-1).astype(np.float32),
        "k0": asked.astype(np.float32),
        "k1": ratio.astype(np.float32),
        "k2": inverse.astype(np.float32),
        "c0.output": rng.normal(size=(*mask.shape, WORDS)).astype(np.float32),
    }
    return made_loss(
        arrays, number, terms=[{"coefficient": -1.0}], n_terms=1, clips=[[1 - CLIP, 1 + CLIP]],
        constants=[
            {"role": "weight", "sign": 1, "beside": "ExpBackward0", "terms": [0], "calls": [0]},
            {"role": "ratio", "sign": 1, "beside": "SubBackward0", "terms": [0], "calls": [0]},
            {"role": "inverse_ratio", "sign": 1, "beside": "SubBackward0", "terms": [0], "calls": [0]},
        ],
        silent=[{"module": "head", "shape": [*mask.shape, WORDS]}] if moved == 0 else [],
        calls=[{"module": "head", "shape": [*mask.shape, WORDS]}],
        log_probs=[{"kind": "log_softmax", "shape": [*mask.shape, 1], "terms": [0]}], transitions_of=None,
    )  # fmt: skip


def tokens_averaged(mask: np.ndarray, mean: str) -> np.ndarray:
    return SEQUENCES * mask.sum(axis=1, keepdims=True) if mean == "of sequences" else mask.sum(keepdims=True)


def diverging(**about):
    """Before each third loss the tokens are sampled anew."""
    return made_view([beside_a_divergence(number, 0.3 * (number % 3 > 0), **about) for number in range(12)])


def beyond_and_within(number: int = 1, **about) -> tuple[Tokens, np.ndarray, np.ndarray, np.ndarray]:
    (tokens,) = token_losses(made_view([beside_a_divergence(number, 0.3, **about)]))
    advantages, ratios = tokens.advantages(), tokens.ratio()
    assert advantages is not None
    assert ratios is not None
    return tokens, advantages, ratios, np.abs(ratios - 1) < CLIP


def test_one_advantage_for_each_sequence_is_that_of_all_its_tokens():
    tokens, advantages, *_ = beyond_and_within(turned=False)
    given = tokens.loss.arrays["k0"]
    assert given.shape == (SEQUENCES, 1)
    assert advantages.shape == (SEQUENCES, POSITIONS)
    assert np.array_equal(advantages, np.repeat(given, POSITIONS, axis=1))


@pytest.mark.parametrize("turned", [False, True])
@pytest.mark.parametrize("mean", MEANS)
def test_the_part_of_a_divergence_is_taken_out_of_a_tokens_gradient(turned, mean):
    tokens, advantages, ratios, inside = beyond_and_within(turned=turned, mean=mean)
    count = tokens_averaged(np.isfinite(ratios), mean) + 0 * ratios
    assert (tokens.gradient[np.isfinite(ratios)] != 0).all()  # the divergence leaves one everywhere
    found = tokens.surrogate_gradient(advantages, ratios, inside)
    beyond = np.isfinite(ratios) & ~inside
    held = beyond & (((ratios > 1) == (advantages > 0)) != turned)
    assert np.abs(count * found)[held].max() < 1e-5
    free = np.isfinite(ratios) & ~held
    assert np.allclose((count * found)[free], (-ratios * advantages)[free], rtol=1e-4, atol=1e-5)


def test_a_gradient_without_a_divergence_in_it_is_left_as_it_is():
    tokens, advantages, ratios, inside = beyond_and_within(turned=False, pull=0.0)
    assert np.allclose(tokens.surrogate_gradient(advantages, ratios, inside), tokens.gradient, atol=1e-9)
    tokens.loss.event.constants[:] = tokens.loss.event.constants[:2]
    assert tokens.surrogate_gradient(advantages, ratios, inside) is tokens.gradient


@pytest.mark.parametrize("mean", MEANS)
def test_a_clip_on_the_wrong_side_is_named_beside_a_divergence(mean):
    view = diverging(turned=True, mean=mean)
    sides = _clipped_sides(view)
    assert sides.outward == sides.pushed > 100
    assert sides.inward == sides.held > 100
    found = RatioIsOne().look(view)
    assert found.status == "fail"
    assert "wrong side" in found.summary


@pytest.mark.parametrize("mean", MEANS)
@pytest.mark.parametrize("pull", [PULL, 0.5])
def test_a_clip_on_the_right_side_is_accepted_beside_a_divergence(pull, mean):
    view = diverging(turned=False, pull=pull, mean=mean)
    sides = _clipped_sides(view)
    assert sides.pushed == sides.held == 0
    assert min(sides.outward, sides.inward) > 100
    assert RatioIsOne().look(view).status == "pass"
