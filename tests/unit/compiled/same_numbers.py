"""A network of any shape, in float32 or float64, as torch and as the kernels know it, with a rollout's worth of made-up rows."""

from dataclasses import dataclass

import numpy as np
import torch
from hypothesis import strategies as st

from learnproof.compiled.adam import Moments
from learnproof.compiled.descending import Rows
from learnproof.compiled.network import Net, head_table, layer_table
from learnproof.config import PolicySettings
from learnproof.policies.flat import FlatParameters
from learnproof.policies.heads import BernoulliHead, BetaHead, CategoricalHead, GaussianHead, ProductHead
from learnproof.policies.networks import ActorCritic


def make_head(kinds):
    """A head with one part for each of these kinds, on columns that are dealt out in turn."""
    parts, first = [], 0
    for kind in kinds:
        match kind:
            case "choice":
                part = CategoricalHead([3])
            case "choices":
                part = CategoricalHead([2, 4])
            case "bernoulli":
                part = BernoulliHead(np.array([0.0, -1.0]), np.array([1.0, 2.0]))
            case "gaussian":
                part = GaussianHead(2, -0.3)
            case "beta":
                part = BetaHead(np.array([0.0, 1.0]), np.array([1.0, 4.0]))
        parts.append((part, list(range(first, first + part.n_actions))))
        first += part.n_actions
    return parts[0][0] if len(parts) == 1 else ProductHead(parts)


KINDS = ("choice", "choices", "bernoulli", "gaussian", "beta")

shapes = st.fixed_dictionaries(
    {
        "size": st.integers(1, 9),
        "hidden": st.lists(st.integers(1, 20), min_size=1, max_size=3).map(tuple),
        "activation": st.sampled_from(("relu", "tanh")),
        "kinds": st.lists(st.sampled_from(KINDS), min_size=1, max_size=3),
        "central": st.booleans(),
        "rows": st.integers(3, 60),
        "weighted": st.booleans(),
        "seed": st.integers(0, 2**20),
    }
)


@dataclass
class Case:
    network: ActorCritic
    net: Net
    rows: Rows
    tensors: dict[str, torch.Tensor]
    moments: Moments


def make_case(size, hidden, activation, kinds, central, rows, weighted, seed, real=torch.float32):
    noise = torch.Generator().manual_seed(seed)
    settings = PolicySettings(hidden=hidden, activation=activation)
    own = max(1, size // 2) if central else None
    network = ActorCritic(size, make_head(kinds), settings, noise, policy_size=own)
    flat = FlatParameters(network)
    with torch.no_grad():
        flat.vector.add_(0.3 * torch.randn(flat.vector.shape, generator=noise))
    vector = flat.vector.detach().numpy().astype(np.float32 if real is torch.float32 else np.float64)
    dimensions, bounds, parts = head_table(network.head, flat)
    net = Net(
        vector, np.zeros_like(vector), layer_table(flat, network.policy), layer_table(flat, network.value),
        activation == "tanh", network.policy_size, dimensions, bounds, parts,
    )  # fmt: skip
    for parameter in network.parameters():  # independent of the flat vector from here on
        parameter.data, parameter.grad = parameter.data.to(real).clone(), None
    network.to(real)
    generator = np.random.default_rng(seed)
    observation = torch.from_numpy(generator.standard_normal((rows, size))).to(real)
    with torch.no_grad():
        params = network.policy_params(observation)
        action = network.to(torch.float32).head.sample(params.float(), generator).to(real)
        network.to(real)
        log_prob, _, value = network(observation, action)
    drawn = {name: torch.from_numpy(generator.standard_normal(rows)).to(real) for name in ("advantage", "target")}
    tensors = {
        "observation": observation,
        "action": action,
        "old_log_prob": log_prob + 0.2 * torch.from_numpy(generator.standard_normal(rows)).to(real),
        "value": value + 0.3 * torch.from_numpy(generator.standard_normal(rows)).to(real),
        **drawn,
    }
    weight = torch.from_numpy(generator.random(rows)).to(real) if weighted else torch.empty(0, dtype=real)
    tensors["weight"] = weight
    columns = {name: tensor.numpy() for name, tensor in tensors.items()}
    return Case(network, net, Rows(**columns), tensors, Moments(np.zeros_like(vector), np.zeros_like(vector)))


def flat_gradient(network):
    return torch.cat([p.grad.flatten() for p in network.parameters()]).numpy()


def flat_weights(network):
    return torch.cat([p.detach().flatten() for p in network.parameters()]).numpy()
