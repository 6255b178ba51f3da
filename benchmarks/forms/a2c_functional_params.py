"""A2C with explicit functional parameters: torch.func.functional_call + torch.func.grad, Adam on leaf tensors."""

import argparse
from collections import deque

import gymnasium as gym
import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.func import functional_call, grad

GAMMA = 0.99
ENT_COEF = 0.01
VF_COEF = 0.5
N_ENVS = 8
N_STEPS = 8


class Net(nn.Module):
    """Only a recipe for the computation; its own parameters are never trained."""

    def __init__(self):
        super().__init__()
        self.actor = nn.Sequential(nn.Linear(4, 64), nn.Tanh(), nn.Linear(64, 2))
        self.critic = nn.Sequential(nn.Linear(4, 64), nn.Tanh(), nn.Linear(64, 1))

    def forward(self, obs):
        return self.actor(obs), self.critic(obs).squeeze(-1)


def init_params(net):
    return {name: p.detach().clone().requires_grad_(True) for name, p in net.named_parameters()}


def make_loss(net):
    def loss_fn(params, obs, act, targets, adv):
        logits, value = functional_call(net, params, (obs,))
        logp_all = F.log_softmax(logits, dim=-1)
        logp = logp_all.gather(1, act.unsqueeze(1)).squeeze(1)
        entropy = -(logp_all.exp() * logp_all).sum(-1).mean()
        pg_loss = -(logp * adv).mean()
        v_loss = (value - targets).pow(2).mean()
        loss = pg_loss + VF_COEF * v_loss - ENT_COEF * entropy
        return loss, (pg_loss, v_loss, entropy)

    return loss_fn


def sample_actions(net, params, obs):
    with torch.no_grad():
        logits, _ = functional_call(net, params, (obs,))
        gumbel = -torch.log(torch.empty_like(logits).exponential_())  # Gumbel-max sampling
        return (logits + gumbel).argmax(dim=-1)


class Envs:
    """Plain list of environments; step() gives the true next observation and the one to act on next."""

    def __init__(self, n, seed):
        self.envs = [gym.make("CartPole-v1") for _ in range(n)]
        self.acc = np.zeros(n)
        self.returns = deque(maxlen=40)
        self.obs = np.stack([e.reset(seed=seed + 10 * i)[0] for i, e in enumerate(self.envs)])

    def step(self, actions):
        true_next, rewards, terms, ends = [], [], [], []
        act_on = []
        for i, (env, a) in enumerate(zip(self.envs, actions)):
            o, r, terminated, truncated, _ = env.step(int(a))
            true_next.append(o)
            rewards.append(r)
            terms.append(terminated)
            ends.append(terminated or truncated)
            self.acc[i] += r
            if terminated or truncated:
                self.returns.append(self.acc[i])
                self.acc[i] = 0.0
                o, _ = env.reset()
            act_on.append(o)
        self.obs = np.stack(act_on)
        as_f = lambda x: torch.as_tensor(np.asarray(x), dtype=torch.float32)
        return as_f(true_next), as_f(rewards), as_f(terms), as_f(ends)


def n_step_targets(net, params, obs, next_obs, rewards, terms, ends):
    """Bootstrapped n-step returns: restart from V(true next obs) at each cut, from nothing on termination."""
    with torch.no_grad():
        _, values = functional_call(net, params, (obs,))
        _, next_values = functional_call(net, params, (next_obs,))
    targets = torch.zeros_like(rewards)
    following = next_values[-1]
    for t in reversed(range(rewards.shape[0])):
        following = torch.where(ends[t] > 0, next_values[t], following)
        following = rewards[t] + GAMMA * (1.0 - terms[t]) * following
        targets[t] = following
    return targets, targets - values


def apply_gradients(optimizer, params, grads):
    optimizer.zero_grad()
    for name, p in params.items():
        p.grad = grads[name].detach().clone()
    optimizer.step()  # in-place update of the leaves


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--updates", type=int, default=1300)
    args = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(args.seed)
    np.random.seed(args.seed)

    net = Net()
    params = init_params(net)
    optimizer = torch.optim.Adam(
        [
            {"params": [p for n, p in params.items() if n.startswith("actor")], "lr": 1e-3},
            {"params": [p for n, p in params.items() if n.startswith("critic")], "lr": 5e-3},
        ]
    )
    grad_fn = grad(make_loss(net), argnums=0, has_aux=True)
    envs = Envs(N_ENVS, args.seed)

    for update in range(1, args.updates + 1):
        cols = []
        for _ in range(N_STEPS):
            obs = torch.as_tensor(envs.obs, dtype=torch.float32)
            act = sample_actions(net, params, obs)
            cols.append((obs, act, *envs.step(act.tolist())))
        obs, act, next_obs, rewards, terms, ends = (torch.stack(c) for c in zip(*cols))
        targets, adv = n_step_targets(net, params, obs, next_obs, rewards, terms, ends)

        point = {name: p.detach() for name, p in params.items()}
        grads, (pg_loss, v_loss, entropy) = grad_fn(
            point, obs.flatten(0, 1), act.flatten(), targets.flatten(), adv.flatten()
        )
        apply_gradients(optimizer, params, grads)

        if update % 100 == 0:
            ret = np.mean(envs.returns) if envs.returns else float("nan")
            print(
                f"update {update:5d}  return {ret:6.1f}  pg {pg_loss.item():7.3f}  "
                f"vf {v_loss.item():8.2f}  ent {entropy.item():.3f}",
                flush=True,
            )


if __name__ == "__main__":
    main()
