"""PPO on CartPole-v1 with a pair of optimizers, one for the actor and one for the critic.

Form: two networks that share nothing, each with its own Adam and its own learning rate. The actor takes at most
``ACTOR_EPOCHS`` passes over the rollout and stops early once the approximate KL to the behaviour policy is too
large; the critic always takes ``CRITIC_EPOCHS`` passes, which is more. Minibatches come from a DataLoader over a
TensorDataset (actor) and from a SubsetRandomSampler wrapped in a BatchSampler (critic).

Why it is right: the critic's loss does not reach the actor nor the other way round, so the unequal number of steps
is a matter of taste. The true next observation is stored for each step, so a time limit bootstraps from the state
it cut off while a fall does not, and the GAE recursion is cut at both.
"""

import argparse
from typing import NamedTuple

import gymnasium as gym
import numpy as np
import torch
from torch import nn
from torch.distributions import Categorical
from torch.utils.data import BatchSampler, DataLoader, SubsetRandomSampler, TensorDataset

ITERATIONS = 14
STEPS = 1536
GAMMA, LAM = 0.99, 0.95
CLIP = 0.2
ACTOR_LR, CRITIC_LR = 1e-3, 2e-3
ACTOR_EPOCHS, CRITIC_EPOCHS = 8, 16
TARGET_KL = 0.02
ENTROPY_COEF = 0.005


class Rollout(NamedTuple):
    obs: torch.Tensor
    act: torch.Tensor
    logp: torch.Tensor
    rew: torch.Tensor
    next_obs: torch.Tensor
    terminated: torch.Tensor
    ended: torch.Tensor


def mlp(n_in, n_out, gain):
    layers = [nn.Linear(n_in, 64), nn.Tanh(), nn.Linear(64, 64), nn.Tanh(), nn.Linear(64, n_out)]
    for layer in layers[:-1:2]:
        nn.init.orthogonal_(layer.weight, 2**0.5)
        nn.init.zeros_(layer.bias)
    nn.init.orthogonal_(layers[-1].weight, gain)
    nn.init.zeros_(layers[-1].bias)
    return nn.Sequential(*layers)


def play(env, actor, obs, running, finished):
    """Collect STEPS steps; return the rollout, the observation to go on from and the return so far."""
    rows = []
    for _ in range(STEPS):
        with torch.no_grad():
            dist = Categorical(logits=actor(torch.from_numpy(obs)), validate_args=False)
            action = dist.sample()
            logp = dist.log_prob(action)
        nxt, reward, terminated, truncated, _ = env.step(action.item())
        running += reward
        ended = terminated or truncated
        rows.append((obs, action.item(), logp.item(), reward, nxt, float(terminated), float(ended)))
        if ended:
            finished.append(running)
            running = 0.0
            nxt, _ = env.reset()
        obs = nxt
    obs_, act, logp, rew, next_obs, terminated, ended = zip(*rows, strict=True)
    rollout = Rollout(
        torch.from_numpy(np.stack(obs_)),
        torch.tensor(act),
        torch.tensor(logp),
        torch.tensor(rew, dtype=torch.float32),
        torch.from_numpy(np.stack(next_obs)),
        torch.tensor(terminated),
        torch.tensor(ended),
    )
    return rollout, obs, running


@torch.no_grad()
def gae(critic, r: Rollout):
    value = critic(r.obs).squeeze(-1)
    next_value = critic(r.next_obs).squeeze(-1)
    delta = r.rew + GAMMA * (1 - r.terminated) * next_value - value
    adv = torch.zeros_like(delta)
    acc = torch.zeros(())
    for t in range(len(delta) - 1, -1, -1):
        acc = delta[t] + GAMMA * LAM * (1 - r.ended[t]) * acc
        adv[t] = acc
    return adv, adv + value


def fit_actor(actor, optimizer, r: Rollout, adv):
    loader = DataLoader(TensorDataset(r.obs, r.act, r.logp, adv), batch_size=256, shuffle=True)
    epoch, kl = 0, 0.0
    while epoch < ACTOR_EPOCHS and kl <= TARGET_KL:
        epoch += 1
        for obs, act, old_logp, a in loader:
            dist = Categorical(logits=actor(obs), validate_args=False)
            ratio = (dist.log_prob(act) - old_logp).exp()
            surrogate = torch.minimum(ratio * a, ratio.clamp(1 - CLIP, 1 + CLIP) * a).mean()
            loss = -surrogate - ENTROPY_COEF * dist.entropy().mean()
            optimizer.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(actor.parameters(), 0.5)
            optimizer.step()
        with torch.no_grad():
            log_ratio = Categorical(logits=actor(r.obs), validate_args=False).log_prob(r.act) - r.logp
            kl = (log_ratio.exp() - 1 - log_ratio).mean().item()
    return epoch, kl


def fit_critic(critic, optimizer, r: Rollout, target):
    batches = BatchSampler(SubsetRandomSampler(range(len(target))), batch_size=256, drop_last=False)
    for _ in range(CRITIC_EPOCHS):
        for idx in batches:
            loss = nn.functional.mse_loss(critic(r.obs[idx]).squeeze(-1), target[idx])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
    return loss.item()


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--seed", type=int, default=0)
    seed = parser.parse_args().seed
    torch.manual_seed(seed)
    torch.set_num_threads(1)

    env = gym.make("CartPole-v1")
    nets = actor, critic = mlp(4, 2, 0.01), mlp(4, 1, 1.0)
    optimizers = tuple(
        torch.optim.Adam(net.parameters(), lr=lr) for net, lr in zip(nets, (ACTOR_LR, CRITIC_LR), strict=True)
    )

    finished, running = [], 0.0
    obs, _ = env.reset(seed=seed)
    for it in range(1, ITERATIONS + 1):
        rollout, obs, running = play(env, actor, obs, running, finished)
        adv, target = gae(critic, rollout)
        adv = (adv - adv.mean()) / (adv.std() + 1e-8)
        epochs, kl = fit_actor(actor, optimizers[0], rollout, adv)
        v_loss = fit_critic(critic, optimizers[1], rollout, target)
        recent = np.mean(finished[-10:])
        print(f"iter {it:2d}  return {recent:6.1f}  actor epochs {epochs}  kl {kl:.4f}  v_loss {v_loss:8.2f}")
    env.close()


if __name__ == "__main__":
    main()
