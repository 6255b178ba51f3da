# %% [markdown]
# # Chapter 3: REINFORCE with a baseline
# We solve CartPole with the oldest trick in the book: play a few episodes, look at how well things went after
# each action, and make the actions that went better than expected more likely.

# %%
import argparse
import copy
import random

import gymnasium as gym
import numpy as np
import torch
import torch.nn as nn

FAULTS = {
    "rewards_pile_up": [
        "returns",
        "broken",
        "the list of rewards is not cleared after an episode, so every later episode gets the returns of the first ones",
    ],
    "not_reversed": [
        "returns",
        "broken",
        "returns are appended while walking backwards and never reversed: the first step gets the last return",
    ],
    "baseline_on_advantage": ["returns", "broken", "the baseline is fitted to the advantages instead of the returns"],
    "softmax_over_time": [
        "shapes",
        "broken",
        "Softmax(dim=0): right for one observation, but in the update it normalises over the time steps",
    ],
    "logp_as_floats": [
        "weights",
        "broken",
        "log-probs kept as floats and put into torch.tensor(): only the entropy term still reaches the policy",
    ],
    "entropy_no_minus": [
        "signs",
        "broken",
        "sum p log p is taken for the entropy: the bonus rewards a policy for being certain",
    ],
    "best_by_reference": [
        "rates",
        "broken",
        "the best weights are kept as state_dict() without a copy, so restoring them does nothing",
    ],
    "int_observation": ["goal", "not proven", "observations are cast to int, which leaves nearly nothing of them"],
}
HEALTHY = {
    "": "plain",
    "batch_mean": "no value network at all: the baseline is the mean return of the batch",
    "double": "everything in float64",
    "alternating": "policy and baseline are never trained in the same batch, they take turns",
    "sum_loss": "the policy loss is a sum over all steps of the batch, so it is large and grows with the score",
}

parser = argparse.ArgumentParser()
parser.add_argument("--seed", type=int, default=0)
parser.add_argument("--episodes", "--steps", type=int, default=280, dest="episodes")
parser.add_argument("--fault", default="", choices=["", *FAULTS])
parser.add_argument("--variant", default="", choices=list(HEALTHY))
args = parser.parse_args()

# %% [markdown]
# ## Setup

# %%
random.seed(args.seed)
np.random.seed(args.seed)  # noqa: NPY002
torch.manual_seed(args.seed)
torch.set_num_threads(1)
if args.variant == "double":
    torch.set_default_dtype(torch.float64)
dtype = torch.get_default_dtype()

GAMMA = 0.99
BATCH_EPISODES = 4
ENTROPY = 0.01

env = gym.make("CartPole-v1")

policy = nn.Sequential(
    nn.Linear(4, 64),
    nn.Tanh(),
    nn.Linear(64, 2),
    nn.Softmax(dim=0 if args.fault == "softmax_over_time" else -1),
)
baseline = nn.Sequential(nn.Linear(4, 64), nn.Tanh(), nn.Linear(64, 1))

policy_optimizer = torch.optim.Adam(policy.parameters(), lr=1e-2)
baseline_optimizer = torch.optim.Adam(baseline.parameters(), lr=1e-2)
RETURN_SCALE = 50.0  # the baseline works in units of 50 so that its output stays near 1


# %%
def to_tensor(observation):
    if args.fault == "int_observation":
        observation = np.asarray(observation, dtype=int)
    return torch.as_tensor(observation, dtype=dtype)


def pick(observation):
    with torch.no_grad():
        probs = policy(to_tensor(observation))
    action = torch.multinomial(probs, 1).item()
    return action, torch.log(probs[action]).item()


def returns_to_go(rewards, after_the_end):
    """G_t = r_t + gamma * G_{t+1}; `after_the_end` is what the state behind the last reward is worth."""
    out = []
    G = after_the_end
    for r in reversed(rewards):
        G = r + GAMMA * G
        out.append(G)
    if args.fault != "not_reversed":
        out.reverse()
    return out


# %% [markdown]
# ## One update
# The policy gradient is the mean of $\nabla \log \pi(a_t | s_t) (G_t - b(s_t))$. The baseline is a plain regression
# of the returns on the states.


# %%
def update(number, batch):
    states = to_tensor(np.array([s for s, _, _, _ in batch]))
    actions = torch.tensor([a for _, a, _, _ in batch])
    returns = torch.tensor([g for _, _, _, g in batch], dtype=dtype) / RETURN_SCALE

    with torch.no_grad():
        if args.variant == "batch_mean":
            expected = returns.mean().expand_as(returns)
        else:
            expected = baseline(states).squeeze(1)
    advantages = returns - expected
    weights = (advantages - advantages.mean()) / (advantages.std() + 1e-8)

    train_policy = args.variant != "alternating" or number % 2 == 1
    train_baseline = args.variant != "alternating" or number % 2 == 0

    if train_policy:
        probs = policy(states)
        log_all = torch.log(probs + 1e-8)
        log_probs = log_all[torch.arange(len(actions)), actions]
        if args.fault == "logp_as_floats":
            log_probs = torch.tensor([lp for _, _, lp, _ in batch], dtype=dtype)
        entropy = -(probs * log_all).sum(1).mean()
        if args.fault == "entropy_no_minus":
            entropy = (probs * log_all).sum(1).mean()
        if args.variant == "sum_loss":
            loss = -(log_probs * weights).sum() - ENTROPY * len(actions) * entropy
        else:
            loss = -(log_probs * weights).mean() - ENTROPY * entropy
        policy_optimizer.zero_grad()
        loss.backward()
        policy_optimizer.step()

    if train_baseline and args.variant != "batch_mean":
        goal = advantages if args.fault == "baseline_on_advantage" else returns
        for _ in range(8):
            error = nn.functional.mse_loss(baseline(states).squeeze(1), goal)
            baseline_optimizer.zero_grad()
            error.backward()
            baseline_optimizer.step()


# %% [markdown]
# ## Training loop

# %%
scores = []
best_score, best_weights = -float("inf"), None
states, actions, log_probs, rewards, batch = [], [], [], [], []
updates = 0

for episode in range(1, args.episodes + 1):
    observation, _ = env.reset(seed=args.seed if episode == 1 else None)
    terminated = truncated = False
    score = 0.0
    while not (terminated or truncated):
        action, log_prob = pick(observation)
        states.append(observation)
        actions.append(action)
        log_probs.append(log_prob)
        observation, reward, terminated, truncated, _ = env.step(action)
        rewards.append(reward)
        score += reward
    scores.append(score)

    # When the time is up (500 steps) the pole is still standing, so there would have been more reward to come.
    future = 0.0
    if truncated and not terminated:
        if args.variant == "batch_mean":
            future = 1.0 / (1.0 - GAMMA)
        else:
            with torch.no_grad():
                future = RETURN_SCALE * baseline(to_tensor(observation)).item()
    for row in zip(states, actions, log_probs, returns_to_go(rewards, future), strict=False):
        batch.append(row)
    states.clear()
    actions.clear()
    log_probs.clear()
    if args.fault != "rewards_pile_up":
        rewards.clear()

    if episode % BATCH_EPISODES == 0:
        recent = np.mean(scores[-20:])
        if len(scores) >= 20 and recent > best_score:
            best_score = recent
            if args.fault == "best_by_reference":
                best_weights = policy.state_dict()
            else:
                best_weights = copy.deepcopy(policy.state_dict())
        updates += 1
        update(updates, batch)
        batch.clear()
    if episode % 40 == 0:
        print(f"episode {episode:4d}   average of the last 20: {np.mean(scores[-20:]):6.1f}")

# %% [markdown]
# ## Results
# Restore the best policy we have seen and watch it play.

# %%
fifth = max(1, len(scores) // 5)
print(
    "first fifth:", round(float(np.mean(scores[:fifth])), 1), " last fifth:", round(float(np.mean(scores[-fifth:])), 1)
)

if best_weights is not None:
    policy.load_state_dict(best_weights)
test_scores = []
for k in range(5):
    observation, _ = env.reset(seed=10_000 + args.seed + k)
    over, score = False, 0.0
    while not over:
        with torch.no_grad():
            action = policy(to_tensor(observation)).argmax().item()
        observation, reward, terminated, truncated, _ = env.step(action)
        score += reward
        over = terminated or truncated
    test_scores.append(score)
print("test games of the best policy:", test_scores)
env.close()
