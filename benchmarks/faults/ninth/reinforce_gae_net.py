"""Vanilla policy gradient on CartPole: batches of whole episodes, GAE, and a value network of its own."""

import argparse
import copy
import time
from dataclasses import dataclass, field

import gymnasium as gym
import numpy as np
import torch
from torch import nn
from torch.distributions import Categorical

FAULTS = {
    "copied_optimizer": [
        "weights",
        "broken",
        "the value optimizer was copied from the line above and still holds the policy's weights: the baseline is dead",
    ],
    "runs_on": [
        "returns",
        "broken",
        "the advantage recursion is not cut between episodes, so each ends with what the next one began with",
    ],
    "column_of_values": [
        "shapes",
        "broken",
        "the value network's (N, 1) output meets (N,) returns: an N by N loss that teaches it the mean only",
    ],
    "temperature_forgotten": [
        "shapes",
        "broken",
        "actions are sampled at a temperature that the log-probabilities of the loss leave out",
    ],
    "entropy_punished": [
        "signs",
        "broken",
        "the entropy term is added to the loss instead of being taken off, so exploration is pressed out",
    ],
    "decay_per_epoch": [
        "rates",
        "broken",
        "the decay, sized in batches, is stepped in every epoch of the value fit: the policy's rate is zero early",
    ],
    "degrees": [
        "goal",
        "not proven",
        "the angle that ends an episode is set in degrees where radians are read: a fallen pole goes on being paid",
    ],
}
HEALTHY = {
    "": "plain: Adam on both networks, linear decay, entropy bonus, values bootstrapped at the time limit",
    "piecewise": "gradients accumulated episode by episode, warm-up of the policy's rate from zero",
    "frozen": "both networks stand on a random first layer frozen on purpose; weight decay on the value network",
    "averaged": "a moving average of the policy's weights is kept beside it and tried at the end; lambda is 1",
}


@dataclass
class Config:
    batches: int = 80
    episodes: int = 10
    limit: int = 250
    gamma: float = 0.97
    lam: float = 0.95
    temperature: float = 1.5
    policy_lr: float = 4e-3
    value_lr: float = 5e-3
    value_epochs: int = 5
    entropy_coef: float = 0.03


@dataclass
class Episode:
    obs: list = field(default_factory=list)  # one more than actions: the state it stopped in is kept
    actions: list = field(default_factory=list)
    rewards: list = field(default_factory=list)
    terminated: bool = False


def make_env(cfg, fault):
    env = gym.make("CartPole-v1", max_episode_steps=cfg.limit)
    env.unwrapped.theta_threshold_radians = 12.0 if fault == "degrees" else np.deg2rad(12.0)
    return env


def make_net(n_in, n_out, frozen):
    first = nn.Linear(n_in, 64)
    if frozen:
        nn.init.normal_(first.weight)
        first.requires_grad_(False)
    return nn.Sequential(first, nn.Tanh(), nn.Linear(64, 64), nn.Tanh(), nn.Linear(64, n_out))


@torch.no_grad()
def run_episode(env, policy, temperature):
    episode = Episode()
    obs, _ = env.reset()
    episode.obs.append(obs)
    over = False
    while not over:
        logits = policy(torch.from_numpy(obs))
        action = Categorical(logits=logits / temperature, validate_args=False).sample().item()
        obs, reward, terminated, truncated, _ = env.step(action)
        episode.obs.append(obs)
        episode.actions.append(action)
        episode.rewards.append(float(reward))
        over = terminated or truncated
    episode.terminated = terminated
    return episode


@torch.no_grad()
def advantages_and_returns(batch, value_net, cfg, fault):
    rewards, values, next_values, last = [], [], [], []
    for episode in batch:
        v = value_net(torch.from_numpy(np.stack(episode.obs))).squeeze(-1).numpy()
        if episode.terminated:
            v[-1] = 0.0
        rewards.append(np.array(episode.rewards, dtype=np.float32))
        values.append(v[:-1])
        next_values.append(v[1:])
        last.append(np.arange(len(episode.rewards)) == len(episode.rewards) - 1)
    rewards, values, next_values, last = (np.concatenate(x) for x in (rewards, values, next_values, last))

    deltas = rewards + cfg.gamma * next_values - values
    advantages = np.zeros_like(deltas)
    running = 0.0
    for t in reversed(range(len(deltas))):
        if last[t] and fault != "runs_on":
            running = 0.0
        running = deltas[t] + cfg.gamma * cfg.lam * running
        advantages[t] = running
    return torch.from_numpy(advantages), torch.from_numpy(advantages + values)


def policy_step(policy, optimizer, batch, obs, actions, advantages, cfg, fault, variant):
    temperature = 1.0 if fault == "temperature_forgotten" else cfg.temperature
    advantages = (advantages - advantages.mean()) / (advantages.std() + 1e-8)
    if variant == "piecewise":
        pieces = torch.arange(len(obs)).split([len(episode.actions) for episode in batch])
    else:
        pieces = [torch.arange(len(obs))]

    optimizer.zero_grad()
    total_entropy = 0.0
    for piece in pieces:
        dist = Categorical(logits=policy(obs[piece]) / temperature)
        gain = (dist.log_prob(actions[piece]) * advantages[piece]).sum()
        entropy = dist.entropy().sum()
        if fault == "entropy_punished":
            loss = -gain + cfg.entropy_coef * entropy
        else:
            loss = -gain - cfg.entropy_coef * entropy
        (loss / len(obs)).backward()
        total_entropy += entropy.item()
    nn.utils.clip_grad_norm_(policy.parameters(), 1.0)
    optimizer.step()
    return total_entropy / len(obs)


def fit_values(value_net, optimizer, scheduler, obs, returns, cfg, fault):
    for _ in range(cfg.value_epochs):
        for rows in torch.randperm(len(obs)).split(256):
            predicted = value_net(obs[rows])
            if fault != "column_of_values":
                predicted = predicted.squeeze(-1)
            loss = ((predicted - returns[rows]) ** 2).mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        if fault == "decay_per_epoch":
            scheduler.step()
    return loss.item()


def explained(predicted, returns):
    return 1.0 - ((returns - predicted).var() / (returns.var() + 1e-8)).item()


def train(seed, fault, variant):
    cfg = Config(lam=1.0) if variant == "averaged" else Config()
    torch.manual_seed(seed)
    env = make_env(cfg, fault)
    env.reset(seed=seed)
    n_obs, n_act = env.observation_space.shape[0], int(env.action_space.n)

    policy = make_net(n_obs, n_act, variant == "frozen")
    value_net = make_net(n_obs, 1, variant == "frozen")
    average = copy.deepcopy(policy).requires_grad_(False) if variant == "averaged" else None
    policy_opt = torch.optim.Adam((p for p in policy.parameters() if p.requires_grad), lr=cfg.policy_lr)
    if fault == "copied_optimizer":
        value_opt = torch.optim.Adam((p for p in policy.parameters() if p.requires_grad), lr=cfg.value_lr)
    else:
        decay = 1e-2 if variant == "frozen" else 0.0
        trained = (p for p in value_net.parameters() if p.requires_grad)
        value_opt = torch.optim.AdamW(trained, lr=cfg.value_lr, weight_decay=decay)

    def rate(k):
        warm = min(1.0, k / 10) if variant == "piecewise" else 1.0
        return warm * max(0.0, 1.0 - k / cfg.batches)

    scheduler = torch.optim.lr_scheduler.LambdaLR(policy_opt, rate)
    scores = []
    for i in range(cfg.batches):
        batch = [run_episode(env, policy, cfg.temperature) for _ in range(cfg.episodes)]
        scores += [sum(episode.rewards) for episode in batch]
        obs = torch.from_numpy(np.concatenate([np.stack(episode.obs[:-1]) for episode in batch]))
        actions = torch.tensor([a for episode in batch for a in episode.actions])
        advantages, returns = advantages_and_returns(batch, value_net, cfg, fault)

        entropy = policy_step(policy, policy_opt, batch, obs, actions, advantages, cfg, fault, variant)
        value_loss = fit_values(value_net, value_opt, scheduler, obs, returns, cfg, fault)
        if fault != "decay_per_epoch":
            scheduler.step()
        if average is not None:
            with torch.no_grad():
                for slow, fast in zip(average.parameters(), policy.parameters(), strict=True):
                    slow.lerp_(fast, 0.1)

        if (i + 1) % 10 == 0:
            with torch.no_grad():
                fit = explained(value_net(obs).squeeze(-1), returns)
            recent = np.mean(scores[-3 * cfg.episodes :])
            print(
                f"batch {i + 1:4d} | return {recent:6.1f} | entropy {entropy:.3f} | "
                f"value loss {value_loss:7.2f} | explained {fit:5.2f}"
            )
    if average is not None:
        trial = [sum(run_episode(env, average, cfg.temperature).rewards) for _ in range(20)]
        print(f"averaged policy: {np.mean(trial):.1f}")
    return scores


def parse():
    parser = argparse.ArgumentParser()
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--fault", default="", choices=["", *FAULTS])
    parser.add_argument("--variant", default="", choices=list(HEALTHY))
    return parser.parse_args()


if __name__ == "__main__":
    args = parse()
    torch.set_num_threads(1)
    start = time.process_time()
    scores = train(args.seed, args.fault, args.variant)
    print(
        f"first 50 episodes: {np.mean(scores[:50]):.1f}, last 50: {np.mean(scores[-50:]):.1f}, "
        f"{time.process_time() - start:.1f} CPU s"
    )
