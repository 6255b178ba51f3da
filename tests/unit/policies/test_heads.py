"""Heads agree with torch.distributions, sample what they say, and their entropy is what samples show."""

import numpy as np
import pytest
import torch
from gymnasium import spaces
from torch import distributions as D

from learnproof.errors import SettingsError, UnsupportedSpace
from learnproof.policies.heads import BernoulliHead, BetaHead, CategoricalHead, GaussianHead, ProductHead, make_head
from learnproof.policies.spaces import ActionLayout


def head_for(space, box_head="auto", suggested=None):
    return make_head(ActionLayout(space), box_head, 0.0, suggested)


def params_for(head, batch=5, seed=0):
    return torch.randn(batch, head.n_params, generator=torch.Generator().manual_seed(seed))


def test_entropy_of_logits_of_shape_2_10_1000():
    """As users of the first system asked: batch 2, 10 positions, 1,000 choices each."""
    logits = torch.randn(2, 10, 1000, generator=torch.Generator().manual_seed(1))
    head = CategoricalHead([1000] * 10)
    _, entropy = head.log_prob_and_entropy(logits.reshape(2, -1), torch.zeros(2, 10))
    expected = D.Categorical(logits=logits).entropy().sum(1)
    assert entropy.shape == (2,)
    assert torch.allclose(entropy, expected, rtol=1e-5)
    assert bool((entropy < head.max_entropy).all())
    _, uniform = head.log_prob_and_entropy(torch.zeros(2, 10_000), torch.zeros(2, 10))
    assert uniform[0].item() == pytest.approx(10 * np.log(1000), rel=1e-5)


def test_log_probs_and_entropies_equal_those_of_torch_distributions():
    categorical = CategoricalHead([3, 4])
    p = params_for(categorical)
    actions = categorical.sample(p, np.random.default_rng(0))
    log_prob, entropy = categorical.log_prob_and_entropy(p, actions)
    parts = [D.Categorical(logits=p[:, :3]), D.Categorical(logits=p[:, 3:])]
    assert torch.allclose(log_prob, sum(d.log_prob(actions[:, i]) for i, d in enumerate(parts)), atol=1e-5)
    assert torch.allclose(entropy, sum(d.entropy() for d in parts), atol=1e-5)

    gaussian = GaussianHead(3, -0.5)
    p = params_for(gaussian)
    actions = gaussian.sample(p, np.random.default_rng(0)).detach()
    log_prob, entropy = gaussian.log_prob_and_entropy(p, actions)
    normal = D.Normal(p, np.exp(-0.5))
    assert torch.allclose(log_prob, normal.log_prob(actions).sum(1), atol=1e-5)
    assert torch.allclose(entropy, normal.entropy().sum(1), atol=1e-5)

    bernoulli = BernoulliHead(np.zeros(3), np.ones(3))
    p = params_for(bernoulli)
    actions = bernoulli.sample(p, np.random.default_rng(0))
    log_prob, entropy = bernoulli.log_prob_and_entropy(p, actions)
    assert torch.allclose(log_prob, D.Bernoulli(logits=p).log_prob(actions).sum(1), atol=1e-5)
    assert torch.allclose(entropy, D.Bernoulli(logits=p).entropy().sum(1), atol=1e-5)

    beta = BetaHead(np.full(2, -1.0), np.full(2, 3.0))
    p = params_for(beta)
    actions = beta.sample(p, np.random.default_rng(0))
    log_prob, entropy = beta.log_prob_and_entropy(p, actions)
    shapes = 1 + torch.nn.functional.softplus(p)
    scaled = D.TransformedDistribution(D.Beta(shapes[:, :2], shapes[:, 2:]), D.AffineTransform(-1.0, 4.0))
    assert torch.allclose(log_prob, scaled.log_prob(actions).sum(1), atol=1e-4)
    expected_entropy = (D.Beta(shapes[:, :2], shapes[:, 2:]).entropy() + np.log(4)).sum(1)
    assert torch.allclose(entropy, expected_entropy, atol=1e-4)


@pytest.mark.parametrize(
    "head",
    [
        CategoricalHead([4]),
        CategoricalHead([2, 3]),
        BernoulliHead(np.zeros(2), np.ones(2)),
        GaussianHead(2, -1.0),
        BetaHead(np.zeros(2), np.ones(2)),
        ProductHead([(CategoricalHead([3]), [0]), (BetaHead(np.zeros(1), np.ones(1)), [1])]),
    ],
    ids=lambda h: type(h).__name__,
)
def test_samples_follow_the_distribution_that_scores_them(head):
    """The mean of -log p over samples is the entropy: false for a head that samples from one distribution and scores another."""
    p = params_for(head, batch=1, seed=3).repeat(20_000, 1)
    with torch.no_grad():
        actions = head.sample(p, np.random.default_rng(0))
        log_prob, entropy = head.log_prob_and_entropy(p, actions)
    error = 4 * log_prob.std().item() / np.sqrt(len(p)) + 1e-3
    assert -log_prob.mean().item() == pytest.approx(entropy[0].item(), abs=error)


def test_the_same_generator_state_gives_the_same_sample_and_the_next_draw_another():
    head = GaussianHead(4, 0.0)
    p = torch.zeros(3, 4)
    rng = np.random.default_rng(5)
    with torch.no_grad():
        first, second = head.sample(p, rng), head.sample(p, rng)
        again = head.sample(p, np.random.default_rng(5))
    assert torch.equal(first, again)
    assert not torch.equal(first, second)


def test_the_head_that_fits_a_space_is_chosen():
    assert isinstance(head_for(spaces.Discrete(3)), CategoricalHead)
    assert isinstance(head_for(spaces.MultiDiscrete([3, 4])), CategoricalHead)
    assert isinstance(head_for(spaces.MultiBinary(4)), BernoulliHead)
    box = spaces.Box(0, 1, (3,), np.float32)
    assert isinstance(head_for(box), GaussianHead)
    assert isinstance(head_for(box, "beta"), BetaHead)
    mixed = head_for(box, "auto", ("bernoulli", "beta", "bernoulli"))
    assert isinstance(mixed, ProductHead)
    assert [type(h) for h in mixed.heads] == [BernoulliHead, BetaHead]
    nested = head_for(spaces.Dict({"arm": spaces.Box(-1, 1, (2,), np.float32), "grip": spaces.Discrete(2)}))
    assert isinstance(nested, ProductHead)
    assert nested.n_actions == 3


def test_a_mixed_head_puts_each_part_in_its_own_columns():
    head = head_for(spaces.Box(0, 1, (3,), np.float32), "auto", ("bernoulli", "beta", "bernoulli"))
    p = params_for(head, batch=200)
    actions = head.sample(p, np.random.default_rng(0))
    ends = (actions == 0) | (actions == 1)
    assert bool(ends[:, [0, 2]].all())
    assert not bool(ends[:, 1].any())


def test_what_no_head_can_do_is_refused_with_a_reason():
    with pytest.raises(SettingsError, match="finite bounds"):
        head_for(spaces.Box(-np.inf, np.inf, (2,), np.float32), "beta")
    with pytest.raises(UnsupportedSpace, match="Supported"):
        ActionLayout(spaces.Text(5))
    with pytest.raises(UnsupportedSpace):
        ActionLayout(spaces.Box(0, 255, (2,), np.uint8))
