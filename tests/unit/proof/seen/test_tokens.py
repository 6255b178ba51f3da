"""Losses on a language model's tokens: scored where they were sampled, in the order of their rewards."""

from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
from made_losses import follows, made_loss, made_view

from learnproof.proof.seen.losses import Loss
from learnproof.proof.seen.token_rewards import misordered, mixed_groups, rewarded
from learnproof.proof.seen.tokens import Tokens, token_losses
from learnproof.proof.watched.language import ReferenceApart, TokensMasked, _beyond
from learnproof.proof.watched.sampling import SampledAsScored

GROUPS, SAMPLES, PROMPT, NEW, WORDS = 8, 4, 6, 7, 12
SEQUENCES = GROUPS * SAMPLES


def answered(
    update: int, shift: int = 0, padding: float = 0.0, turned: bool = False, divergence=None, tiled: bool | None = None
) -> Loss:
    """A loss of the answers' tokens alone: the network was asked for sequences that grow by one, then for the whole."""
    rng = np.random.default_rng(update)
    whole = rng.normal(size=(SEQUENCES, PROMPT + NEW, WORDS)).astype(np.float32)
    if tiled is not None:  # answers to GROUPS questions, each asked SAMPLES times: all in turn, or each next to itself
        question = np.arange(SEQUENCES) % GROUPS if tiled else np.arange(SEQUENCES) // SAMPLES
        whole[:, :PROMPT] = whole[question, :PROMPT]
    used = whole[:, PROMPT - 1 + shift : PROMPT - 1 + shift + NEW].astype(np.float64)
    table = used - np.logaddexp.reduce(used, axis=2, keepdims=True)
    sampled_from = whole[:, PROMPT - 1 : -1].astype(np.float64)
    chance = np.exp(sampled_from - np.logaddexp.reduce(sampled_from, axis=2, keepdims=True))
    action = np.array([[rng.choice(WORDS, p=p / p.sum()) for p in row] for row in chance])
    reward = rng.random(SEQUENCES)
    group = reward.reshape(GROUPS, SAMPLES)
    weight = group - group.mean(axis=1, keepdims=True)
    weight = (weight.T if turned else weight).reshape(-1)
    value = np.take_along_axis(table, action[..., None], axis=2)[..., 0]
    arrays = {
        "p0.value": value.reshape(-1).astype(np.float32),
        "p0.action": action.reshape(-1),
        "p0.gradient": np.repeat(-weight, NEW).astype(np.float32),
        "k0": weight.astype(np.float32),
        "r0": reward.astype(np.float32),
        "c0.output": whole,
        **{
            f"n{i}.output": whole[:, : PROMPT + i] + padding * rng.normal(size=(SEQUENCES, 1, 1)).astype(np.float32)
            for i in range(NEW)
        },
    }
    constants = [{"role": "weight", "shape": [SEQUENCES], "terms": [0]}]
    if divergence is not None:
        coefficient, size = divergence
        constants.append({"role": "divergence", "shape": [SEQUENCES, NEW, WORDS], "terms": [1]})
        arrays["k1"] = size * rng.normal(size=(SEQUENCES, NEW, WORDS)).astype(np.float32)
    else:
        coefficient = 0.1
    return made_loss(
        arrays,
        update,
        terms=[{"coefficient": -1.0}, {"coefficient": coefficient}],
        n_terms=2,
        constants=constants,
        silent=[{"module": "model", "shape": [SEQUENCES, PROMPT + i, WORDS]} for i in range(NEW)],
        calls=[{"module": "model", "shape": [SEQUENCES, PROMPT + NEW, WORDS]}],
        log_probs=[{"kind": "gather", "shape": [SEQUENCES, NEW], "terms": [0]}],
        transitions_of=None,
    )


def seen(**options):
    return made_view([answered(update, **options) for update in range(12)])


def test_answers_alone_are_no_trained_prompt():
    view = seen()
    assert all(tokens.prompt is None for tokens in token_losses(view))
    assert TokensMasked().look(view).status == "pass"
    assert SampledAsScored().look(view).status == "pass"
    assert misordered(view) == []


def test_a_token_scored_after_it_was_read_is_named():
    found = TokensMasked().look(seen(shift=1))
    assert found.status == "fail"
    assert "after it had read" in found.summary


def test_other_answers_when_sampling_are_named():
    found = SampledAsScored().look(seen(padding=0.5))
    assert found.status == "fail"
    assert "other answers when the tokens were sampled" in found.summary


@pytest.mark.parametrize(("tiled", "named"), [(True, 12), (False, 0)])
def test_groups_of_answers_to_different_questions_are_named(tiled, named):
    view = seen(tiled=tiled)
    for tokens in token_losses(view):
        tokens.prompt = PROMPT
    assert len(mixed_groups(view)) == named


def test_rewards_are_found_for_a_part_of_a_batch_in_another_order():
    view = seen()
    explained = {each.source for each in rewarded(view)}
    losses = []
    for loss in view.training_losses:
        part = np.random.default_rng(loss.update).permutation(SEQUENCES)[:20]
        arrays = dict(loss.arrays)
        for name in ("p0.value", "p0.action", "p0.gradient"):
            arrays[name] = arrays[name].reshape(SEQUENCES, NEW)[part].reshape(-1)
        arrays |= {
            "k0": arrays["k0"][part],
            "c0.output": arrays["c0.output"][part],
            "n0.output": loss.arrays["c0.output"],
        }
        about = {"silent": [{"module": "model", "shape": [SEQUENCES, PROMPT + NEW, WORDS]}]}
        about["calls"] = [{"module": "model", "shape": [20, PROMPT + NEW, WORDS]}]
        about["constants"] = [{"role": "weight", "shape": [20], "terms": [0]}]
        about["log_probs"] = [{"kind": "gather", "shape": [20, NEW], "terms": [0]}]
        losses.append(made_loss(arrays, loss.update, **about))
    view.training_losses, view.notes = losses, {}
    found = rewarded(view)
    assert len(found) == 12
    assert {each.source for each in found} == explained == {"r0"}
    assert all(each.agreement > 0.99 and each.group == SAMPLES for each in found)


def in_two_parts(view, by_length: bool, advantages_too: bool):
    """The losses of a batch whose sequences were put in another order and cut in two."""
    losses = []
    for loss in view.training_losses:
        order = np.random.default_rng(loss.update).permutation(SEQUENCES) if by_length else np.arange(SEQUENCES)
        for at in (slice(0, 16), slice(16, 32)):
            part, weight = order[at], order[at] if advantages_too else np.arange(SEQUENCES)[at]
            arrays = dict(loss.arrays)
            for name in ("p0.value", "p0.action"):
                arrays[name] = arrays[name].reshape(SEQUENCES, NEW)[part].reshape(-1)
            arrays["k0"] = -loss.arrays["k0"][weight]  # as -advantage * log_prob has it
            arrays["p0.gradient"] = np.repeat(arrays["k0"], NEW)
            arrays["c0.output"] = arrays["c0.output"][part]
            about = {"silent": loss.event.silent, "constants": [{"role": "weight", "shape": [16], "terms": [0]}]}
            about["calls"] = [{"module": "model", "shape": [16, PROMPT + NEW, WORDS]}]
            about["log_probs"] = [{"kind": "gather", "shape": [16, NEW], "terms": [0]}]
            losses.append(made_loss(arrays, loss.update, **about))
    view.training_losses, view.notes = losses, {}
    return view


def test_sequences_in_another_order_find_their_rewards_again():
    view = in_two_parts(seen(), by_length=True, advantages_too=True)
    assert len(rewarded(view)) == 24
    assert misordered(view) == []


def test_sequences_that_were_sorted_without_their_advantages_are_named():
    view = in_two_parts(seen(), by_length=True, advantages_too=False)
    assert rewarded(view) == []
    assert len(misordered(view)) == 12


@pytest.mark.parametrize(("trained", "status"), [(True, "pass"), (False, "fail")])
def test_the_token_that_ends_a_sequence_must_be_trained(trained, status):
    view = seen()
    ending, padding = WORDS - 1, WORDS - 2
    for loss in view.training_losses:
        action = loss.arrays["p0.action"].reshape(SEQUENCES, NEW)
        action[:] = np.minimum(action, WORDS - 3)
        gradient = loss.arrays["p0.gradient"].reshape(SEQUENCES, NEW)
        for row in range(SEQUENCES):
            end = 2 + row % 3
            action[row, end], action[row, end + 1 :] = ending, padding
            gradient[row, end + int(trained) :] = 0
    found = TokensMasked().look(view)
    assert found.status == status, found.summary
    if not trained:
        assert f"token {ending}" in found.summary


@pytest.mark.parametrize("drawn", [True, False])
def test_an_ending_that_is_the_padding_too_must_be_trained_where_it_was_drawn(drawn):
    """Sequences end where the policy says so, with a token that is then repeated; or after as many tokens as the task has."""
    view, ending = seen(), WORDS - 1
    for update, loss in enumerate(view.training_losses):
        rng = np.random.default_rng(100 + update)
        whole = loss.arrays["c0.output"][:, PROMPT - 1 : -1].astype(np.float64)
        p = np.exp(whole - np.logaddexp.reduce(whole, axis=2, keepdims=True))
        action = loss.arrays["p0.action"].reshape(SEQUENCES, NEW)
        gradient = loss.arrays["p0.gradient"].reshape(SEQUENCES, NEW)
        for row in range(SEQUENCES):
            action[row] = np.where(action[row] == ending, 0, action[row])
            ends = np.flatnonzero(rng.random(NEW) < p[row, :, ending]) if drawn else np.array([3])
            if len(ends):
                action[row, ends[0] :], gradient[row, ends[0] :] = ending, 0
        chosen = np.take_along_axis(np.log(p), action[..., None], axis=2)[..., 0]
        loss.arrays["p0.value"] = chosen.reshape(-1).astype(np.float32)
    found = TokensMasked().look(view)
    assert found.status == ("fail" if drawn else "pass"), found.summary


def across_questions(loss):
    """Rewards less the mean of every GROUPS-th one, though answers to one question stand next to each other."""
    table = loss.arrays["r0"].reshape(SAMPLES, GROUPS).astype(np.float64)
    loss.arrays["k0"] = (table - table.mean(axis=0)).reshape(-1).astype(np.float32)
    loss.arrays["p0.gradient"] = np.repeat(-loss.arrays["k0"], NEW)
    return loss


def test_rewards_compared_across_questions_are_named():
    view = seen(tiled=False)
    assert mixed_groups(view) == []
    view.training_losses, view.notes = [across_questions(loss) for loss in view.training_losses], {}
    assert len(mixed_groups(view)) == 12


@pytest.mark.parametrize("across", [True, False])
def test_equal_answers_of_different_groups_hide_nothing_and_accuse_nobody(across):
    """Which of two equal sequences one is cannot be told, and their groups give them different weights."""
    view = seen(tiled=False)
    for loss in view.training_losses:
        for array in (loss.arrays["c0.output"], *(loss.arrays[f"n{i}.output"] for i in range(NEW))):
            array[-SAMPLES:] = array[:SAMPLES]
        loss.arrays["r0"][-SAMPLES:] = loss.arrays["r0"][:SAMPLES]
        group = loss.arrays["r0"].reshape(GROUPS, SAMPLES)
        group[-2] += 0.5  # else both groups compare alike
        loss.arrays["k0"] = (group - group.mean(axis=1, keepdims=True)).reshape(-1)
    if across:
        view.training_losses, view.notes = [across_questions(loss) for loss in view.training_losses], {}
    for loss in view.training_losses:  # the batch was shuffled: the last answers stand first
        order = np.r_[SEQUENCES - SAMPLES : SEQUENCES, SAMPLES : SEQUENCES - SAMPLES, :SAMPLES]
        loss.arrays["k0"] = loss.arrays["k0"][order]
        loss.arrays["p0.gradient"] = np.repeat(-loss.arrays["k0"], NEW)
    assert len(mixed_groups(view)) == (12 if across else 0)


def test_rewards_compared_across_questions_are_named_where_tokens_are_sampled_with_a_cache():
    view = seen(tiled=False)
    for loss in view.training_losses:
        for about in loss.event.silent[1:]:
            about["shape"] = [about["shape"][0], 1, *about["shape"][2:]]  # each call is given the newest token alone
    assert mixed_groups(view) == []
    view.training_losses, view.notes = [across_questions(loss) for loss in view.training_losses], {}
    assert len(mixed_groups(view)) == 12


def test_a_divergence_without_gradient_is_named_where_a_reference_is_asked():
    def view(added, followers):
        made = seen()
        made.followers = [SimpleNamespace(name=name) for name in followers]
        for loss in made.training_losses:
            loss.event = replace(loss.event, added_without_gradient=added)
            loss.event.silent.append({"module": "reference", "shape": [SEQUENCES, PROMPT + NEW, WORDS]})
        return made

    check = ReferenceApart()
    assert check.look(view(1, ["reference"])).status == "fail"
    for harmless in (view(0, ["reference"]), view(1, [])):
        assert check.lacks(harmless)


def test_weights_of_other_sequences_are_named():
    assert len(misordered(seen(turned=True))) == 12


@pytest.mark.parametrize(
    ("divergence", "status"),
    [((0.1, 0.3), "pass"), ((-0.1, 0.3), "fail"), ((0.1, 0.0), "fail")],
    ids=["punished", "sought", "from itself"],
)
def test_a_divergence_that_is_written_out(divergence, status):
    assert ReferenceApart().look(seen(divergence=divergence)).status == status


@pytest.mark.parametrize("inner", [False, True])
def test_layers_that_are_attended_to_are_no_logits_of_padding(inner):
    loss = answered(0)
    logits = np.zeros((SEQUENCES, PROMPT + NEW, WORDS), np.float32)
    logits[:, PROMPT - 1 : -1] = 1.0
    everywhere = np.ones((SEQUENCES, PROMPT + NEW, 16), np.float32)
    used = np.zeros((SEQUENCES, PROMPT + NEW - 1), bool)
    used[:, PROMPT - 1 :] = True
    calls = [{"module": "model.blocks.0", "shape": list(everywhere.shape)}] if inner else []
    loss.event = replace(loss.event, calls=[*calls, *loss.event.calls])
    arrays = [everywhere, logits] if inner else [logits]
    loss.arrays.update({f"c{at}.gradient": array for at, array in enumerate(arrays)})
    tokens = Tokens(loss, None)
    tokens.shape = used.shape
    assert not _beyond(SimpleNamespace(used=used, logits_gradient=tokens.logits_gradient))


def test_sequences_without_an_advantage_are_no_padding():
    used = np.ones((8, 6), bool)
    used[4:] = False  # whole sequences of advantage 0: their entropy still has a gradient
    everywhere = np.ones((8, 6), bool)
    assert not _beyond(SimpleNamespace(used=used, logits_gradient=everywhere))
    used[:4, 3:] = False  # padding of sequences that count
    assert _beyond(SimpleNamespace(used=used, logits_gradient=everywhere))
    assert not _beyond(SimpleNamespace(used=used, logits_gradient=used))


MICRO = 4


def micro_batches(known: int, unknown: int):
    """Losses on a few sequences each of shuffled batches: of the first ones a network told where they stand, of the others nothing does, and
    their weights fit some rewards of the batch by chance."""
    losses = []
    for update in range(known + unknown):
        loss = answered(update)
        part = np.random.default_rng(500 + update).permutation(SEQUENCES)[:MICRO]
        arrays = {
            name: loss.arrays[name].reshape(SEQUENCES, NEW)[part].reshape(-1)
            for name in ("p0.value", "p0.action", "p0.gradient")
        }
        arrays |= {"k0": loss.arrays["k0"][part], "c0.output": loss.arrays["c0.output"][part], "r0": loss.arrays["r0"]}
        silent = []
        if update < known:
            arrays["n0.output"] = loss.arrays["c0.output"]
            silent = [{"module": "model", "shape": [SEQUENCES, PROMPT + NEW, WORDS]}]
        losses.append(
            made_loss(
                arrays, update, silent=silent, calls=[{"module": "model", "shape": [MICRO, PROMPT + NEW, WORDS]}],
                constants=[{"role": "weight", "shape": [MICRO], "terms": [0]}],
                log_probs=[{"kind": "gather", "shape": [MICRO, NEW], "terms": [0]}], transitions_of=None,
            )
        )  # fmt: skip
    return made_view(losses)


def test_where_places_are_known_rewards_that_fit_elsewhere_by_chance_are_dropped():
    by_chance = rewarded(micro_batches(known=0, unknown=40))
    assert len(by_chance) >= 10
    assert min(each.agreement for each in by_chance) < -0.9  # some of them the wrong way round
    view = micro_batches(known=8, unknown=40)
    found = rewarded(view)
    assert [each.tokens.loss.update for each in found] == list(range(8))
    assert all(each.agreement > 0.99 for each in found)
    assert misordered(view) == []


def test_a_few_known_places_do_not_silence_the_other_losses():
    assert len(rewarded(micro_batches(known=4, unknown=40))) >= 14


REFERENCE = {"module": "reference", "shape": [SEQUENCES, PROMPT + NEW, WORDS]}


def pretrained(copied: int = 0, moves: int = 0, first: str = "examples", updates: int = 8, asked: str = "reference"):
    """Steps without a divergence, then those that have one; the reference is a copy from before some update."""
    losses = []
    for update in range(updates):
        loss = answered(update)
        if first == "examples":
            loss.event.silent.clear()
            loss.arrays["p0.gradient"] = np.full(SEQUENCES * NEW, -1 / (SEQUENCES * NEW), np.float32)
        if first == "rewards of 0 and 1":
            solved = np.random.default_rng(update).random(SEQUENCES) < 0.4
            loss.arrays["p0.gradient"] = np.repeat(solved / -SEQUENCES, NEW).astype(np.float32)
        losses.append(loss)
    for update in range(updates, updates + 12):
        loss = answered(update, divergence=(0.1, 0.3))
        loss.event.silent.append({**REFERENCE, "module": asked})
        losses.append(loss)
    return ReferenceApart().look(made_view(losses, followers=[follows("reference", "model", copied, moves)]))


def test_a_reference_that_was_copied_before_the_pretraining_is_named():
    found = pretrained()
    assert found.status == "fail"
    assert "before that was trained on examples" in found.summary
    assert found.figures["copied_at_update"] == 0


@pytest.mark.parametrize(
    "about",
    [
        {"copied": 8},
        {"copied": 4},
        {"moves": 1},
        {"first": "rewards"},
        {"first": "rewards of 0 and 1"},
        {"updates": 3},
        {"asked": "something else"},
    ],
    ids=[
        "copied after it",
        "a few examples after it",
        "loaded after it",
        "rewards without a divergence at first",
        "rewards without a baseline and without a divergence at first",
        "hardly any examples",
        "the divergence is from another network",
    ],
)
def test_a_reference_as_the_examples_left_it_and_one_without_examples_are_no_fault(about):
    found = pretrained(**about)
    assert found.status == "pass", found.summary
