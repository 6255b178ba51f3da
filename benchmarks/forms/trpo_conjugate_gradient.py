"""TRPO on CartPole: conjugate gradient, Fisher-vector products by double backward, backtracking line search."""

import argparse
from collections import deque

import gymnasium as gym
import numpy as np
import torch
from torch import nn


def mlp(sizes):
    layers = []
    for a, b in zip(sizes[:-2], sizes[1:-1]):
        layers += [nn.Linear(a, b), nn.Tanh()]
    return nn.Sequential(*layers, nn.Linear(sizes[-2], sizes[-1]))


def flatten(tensors):
    return torch.cat([t.reshape(-1) for t in tensors])


def get_flat_params(params):
    return flatten([p.detach() for p in params]).clone()


@torch.no_grad()
def set_flat_params(params, flat):
    offset = 0
    for p in params:
        n = p.numel()
        p.copy_(flat[offset : offset + n].view_as(p))
        offset += n


def conjugate_gradient(matvec, b, iters=10, tol=1e-10):
    x = torch.zeros_like(b)
    r = b.clone()
    d = b.clone()
    rr = r @ r
    for _ in range(iters):
        ad = matvec(d)
        alpha = rr / (d @ ad)
        x = x + alpha * d
        r = r - alpha * ad
        new_rr = r @ r
        if new_rr < tol:
            break
        d = r + (new_rr / rr) * d
        rr = new_rr
    return x


def categorical_kl(logp_old, logp_new):
    return (logp_old.exp() * (logp_old - logp_new)).sum(-1).mean()


def trpo_step(policy, obs, act, adv, max_kl=0.01, damping=0.05, backtracks=10):
    params = list(policy.parameters())
    with torch.no_grad():
        old_logp_all = torch.log_softmax(policy(obs), dim=-1)
        old_logp = old_logp_all.gather(1, act[:, None]).squeeze(1)

    def surrogate():
        logp = torch.log_softmax(policy(obs), dim=-1).gather(1, act[:, None]).squeeze(1)
        return (torch.exp(logp - old_logp) * adv).mean()

    surr_before = surrogate()
    g = flatten(torch.autograd.grad(surr_before, params)).detach()
    if g.norm() < 1e-8:
        return 0.0, 0.0, False

    kl = categorical_kl(old_logp_all, torch.log_softmax(policy(obs), dim=-1))
    kl_grad = flatten(torch.autograd.grad(kl, params, create_graph=True))

    def fisher_vector(v):
        hv = torch.autograd.grad(kl_grad @ v, params, retain_graph=True)
        return flatten(hv).detach() + damping * v

    direction = conjugate_gradient(fisher_vector, g)
    curvature = direction @ fisher_vector(direction)
    full_step = direction * torch.sqrt(2.0 * max_kl / curvature)

    start = get_flat_params(params)
    for k in range(backtracks):
        set_flat_params(params, start + 0.8**k * full_step)
        with torch.no_grad():
            gain = (surrogate() - surr_before).item()
            new_kl = categorical_kl(old_logp_all, torch.log_softmax(policy(obs), dim=-1)).item()
        if gain > 0 and new_kl <= max_kl:
            return gain, new_kl, True
    set_flat_params(params, start)
    return 0.0, 0.0, False


def fit_critic(critic, opt, obs, targets, epochs=15, batch=256):
    for _ in range(epochs):
        for idx in torch.randperm(obs.shape[0]).split(batch):
            opt.zero_grad()
            loss = (critic(obs[idx]).squeeze(-1) - targets[idx]).pow(2).mean()
            loss.backward()
            opt.step()
    return loss.item()


@torch.no_grad()
def collect(policy, envs, current, horizon, running, finished):
    rows = []
    for _ in range(horizon):
        obs = torch.as_tensor(np.stack(current), dtype=torch.float32)
        actions = torch.multinomial(torch.softmax(policy(obs), dim=-1), 1).squeeze(1)
        nxt, rew, term, end = [], [], [], []
        for i, (env, a) in enumerate(zip(envs, actions.tolist())):
            o, r, te, tr, _ = env.step(a)
            nxt.append(o), rew.append(r), term.append(float(te)), end.append(float(te or tr))
            running[i] += r
            if te or tr:
                finished.append(running[i])
                running[i] = 0.0
                o, _ = env.reset()
            current[i] = o
        rows.append(
            (
                obs,
                torch.as_tensor(np.stack(nxt), dtype=torch.float32),
                actions,
                torch.tensor(rew, dtype=torch.float32),
                torch.tensor(term),
                torch.tensor(end),
            )
        )
    return [torch.stack(col) for col in zip(*rows)]


@torch.no_grad()
def advantages(critic, obs, nxt, rew, term, end, gamma=0.99, lam=0.95):
    v, v_next = critic(obs).squeeze(-1), critic(nxt).squeeze(-1)
    delta = rew + gamma * v_next * (1 - term) - v
    adv, acc = torch.zeros_like(delta), torch.zeros_like(delta[0])
    for t in reversed(range(len(delta))):
        acc = delta[t] + gamma * lam * (1 - end[t]) * acc
        adv[t] = acc
    return adv, adv + v


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--seed", type=int, default=0)
    ap.add_argument("--iterations", type=int, default=30)
    args = ap.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(args.seed)
    np.random.seed(args.seed)

    n_envs, horizon = 8, 256
    envs = [gym.make("CartPole-v1") for _ in range(n_envs)]
    current = [env.reset(seed=args.seed * 31 + i)[0] for i, env in enumerate(envs)]
    running, finished = [0.0] * n_envs, deque(maxlen=40)
    policy, critic = mlp([4, 64, 2]), mlp([4, 64, 64, 1])
    critic_opt = torch.optim.Adam(critic.parameters(), lr=2e-3)

    for it in range(1, args.iterations + 1):
        obs, nxt, act, rew, term, end = collect(policy, envs, current, horizon, running, finished)
        adv, ret = advantages(critic, obs, nxt, rew, term, end)
        flat_obs, flat_adv = obs.flatten(0, 1), adv.flatten()
        flat_adv = (flat_adv - flat_adv.mean()) / (flat_adv.std() + 1e-8)
        gain, kl, accepted = trpo_step(policy, flat_obs, act.flatten(), flat_adv)
        v_loss = fit_critic(critic, critic_opt, flat_obs, ret.flatten())
        if it % 3 == 0:
            print(
                f"iter {it:3d}  return {np.mean(finished):6.1f}  gain {gain:.4f}  kl {kl:.4f}  "
                f"accepted {accepted}  critic loss {v_loss:.2f}",
                flush=True,
            )


if __name__ == "__main__":
    main()
