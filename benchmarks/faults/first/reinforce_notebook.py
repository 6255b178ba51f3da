"""REINFORCE with a learned baseline on CartPole, as it would stand in a notebook exported to a script."""

# %% what can go wrong here, and what is only unusual
import argparse
import random
import time

import gymnasium as gym
import numpy as np
import torch
from torch import nn, optim
from torch.distributions import Categorical

FAULTS = {
    "first_return": ["returns", "broken", "the return of the first step is used for all steps (deep-rl-class #95)"],
    "mean_logprob": ["returns", "broken", "mean log-prob times mean advantage: no credit per step (Gymnasium #1337)"],
    "probs_as_logits": ["shapes", "broken", "probabilities handed over as logits (reverse of Tianshou #1193)"],
    "other_distribution": ["shapes", "broken", "samples another policy than the log-prob's (CleanRL 50ea896c)"],
    "cleared_per_episode": ["weights", "broken", "gradients cleared for each episode of a batch (alpaca_farm #57)"],
    "baseline_attached": ["signs", "broken", "the advantage keeps its graph, so the policy loss drives the baseline"],
    "baseline_frozen": ["weights", "broken", "the baseline network is frozen though its loss is computed and stepped"],
    "reward_mirror": ["goal", "not proven", "the reward's sign is turned: falling early is the aim"],
}
HEALTHY = {
    "": "plain; gradients of four episodes accumulate",
    "mean_baseline": "the batch's mean return serves as baseline; no baseline network is trained",
    "biased_start": "the policy starts sure of one action, so its entropy rises first",
    "warmup": "learning rate warmed up from 0",
}

# %% settings
cli = argparse.ArgumentParser()
cli.add_argument("--seed", type=int, default=0)
cli.add_argument("--steps", type=int, default=70_000)
cli.add_argument("--fault", default="", choices=["", *FAULTS])
cli.add_argument("--variant", default="", choices=[*HEALTHY])
opt = cli.parse_args()

GAMMA = 0.99
EPISODES_PER_UPDATE = 4
LR_POLICY, LR_BASELINE = 4e-3, 4e-3

torch.set_num_threads(1)
random.seed(opt.seed)
torch.manual_seed(opt.seed)

# %% environment
env = gym.make("CartPole-v1")
env.action_space.seed(opt.seed)
state, _ = env.reset(seed=opt.seed)
n_in, n_out = env.observation_space.shape[0], int(env.action_space.n)

# %% the two networks
policy = nn.Sequential(nn.Linear(n_in, 64), nn.Tanh(), nn.Linear(64, n_out))
baseline = nn.Sequential(nn.Linear(n_in, 64), nn.Tanh(), nn.Linear(64, 1))
if opt.variant == "biased_start":
    with torch.no_grad():
        policy[2].bias += torch.tensor([1.5, 0.0])
if opt.fault == "baseline_frozen":
    baseline.requires_grad_(False)
policy_opt = optim.Adam(policy.parameters(), lr=LR_POLICY)
baseline_opt = optim.Adam(baseline.parameters(), lr=LR_BASELINE)
warmup = optim.lr_scheduler.LambdaLR(policy_opt, lambda k: min(1.0, k / 10) if opt.variant == "warmup" else 1.0)


# %% helpers
def distribution(x):
    out = policy(x)
    if opt.fault == "probs_as_logits":
        out = torch.softmax(out, dim=-1)
    return Categorical(logits=out)


def play_episode():
    """One episode: states, actions, rewards, and the state after the last step if a time limit cut it."""
    x, _ = env.reset()
    xs, acts, rews = [], [], []
    while True:
        with torch.no_grad():
            dist = distribution(torch.as_tensor(x))
            if opt.fault == "other_distribution":
                dist = Categorical(logits=2.0 * dist.logits)
        a = dist.sample().item()
        nxt, r, terminated, truncated, _ = env.step(a)
        xs.append(x)
        acts.append(a)
        rews.append(-r if opt.fault == "reward_mirror" else r)
        x = nxt
        if terminated or truncated:
            return np.array(xs), np.array(acts), rews, (x if truncated and not terminated else None)


def returns_to_go(rews, tail):
    """Discounted return from each step on; what lies beyond a time limit is estimated by the baseline."""
    g = 0.0
    if tail is not None:
        with torch.no_grad():
            g = baseline(torch.as_tensor(tail)).item() * SCALE
    out = []
    for r in reversed(rews):
        g = r + GAMMA * g
        out.insert(0, g)
    if opt.fault == "first_return":
        out = [out[0]] * len(out)
    return torch.tensor(out)


# %% training
SCALE = 50.0  # brings returns of up to 100 near to 1 for the baseline
started = time.process_time()
scores, seen, round_no, batch_mean = [], 0, 0, 0.0
while seen < opt.steps:
    batch = [play_episode() for _ in range(EPISODES_PER_UPDATE)]
    if opt.variant == "mean_baseline":
        batch = [(xs, acts, rews, None) for xs, acts, rews, _ in batch]
        batch_mean = torch.cat([returns_to_go(rews, None) for _, _, rews, _ in batch]).mean()
    policy_opt.zero_grad()
    baseline_opt.zero_grad()
    entropies = []
    for xs, acts, rews, tail in batch:
        if opt.fault == "cleared_per_episode":
            policy_opt.zero_grad()
            baseline_opt.zero_grad()
        xs, acts = torch.as_tensor(xs), torch.as_tensor(acts)
        g = returns_to_go(rews, tail)
        dist = distribution(xs)
        logp = dist.log_prob(acts)
        if opt.variant == "mean_baseline":
            adv, baseline_loss = (g - batch_mean) / SCALE, 0.0
        else:
            guess = baseline(xs).squeeze(-1)
            adv = g / SCALE - guess
            baseline_loss = nn.functional.mse_loss(guess, g / SCALE)
            if opt.fault != "baseline_attached":
                adv = adv.detach()
        if opt.fault == "mean_logprob":
            policy_loss = -logp.mean() * adv.mean()
        else:
            policy_loss = -(logp * adv).mean()
        ((policy_loss - 0.005 * dist.entropy().mean() + baseline_loss) / EPISODES_PER_UPDATE).backward()
        entropies.append(dist.entropy().mean().item())
        scores.append(float(len(rews)))
        seen += len(rews)
    nn.utils.clip_grad_norm_(policy.parameters(), 1.0)
    policy_opt.step()
    warmup.step()
    if opt.variant != "mean_baseline":
        baseline_opt.step()
    round_no += 1
    if round_no % 20 == 0:
        print(f"round {round_no:4d}  steps {seen:6d}  length {np.mean(scores[-20:]):6.1f}  H {np.mean(entropies):.3f}")

# %% result
env.close()
print(
    f"first 20 episodes {np.mean(scores[:20]):.1f}, last 20 {np.mean(scores[-20:]):.1f},"
    f" cpu {time.process_time() - started:.1f}s"
)
