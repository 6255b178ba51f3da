"""PPO on CartPole-v1, eight environments in one SyncVectorEnv, everything in one flat file.

The vector environment resets on the step *after* an episode ends (Gymnasium's default), so one row per
episode is a mere reset and is left out of the update.
"""

import argparse
import random
import time

import gymnasium as gym
import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.distributions import Categorical

FAULTS = {
    "trunk_left_out": ["weights", "broken", "The shared trunk is in no parameter group, so only the two heads train."],
    "value_broadcast": [
        "shapes",
        "broken",
        "Predicted values of shape (N, 1) meet returns of shape (N,), so the value loss is taken over an (N, N) grid.",
    ],
    "ratio_of_itself": [
        "signs",
        "broken",
        "The old log-prob is taken from the network being updated, so the ratio is always 1 and never clips.",
    ],
    "limit_as_terminal": [
        "returns",
        "broken",
        "A time limit cuts the bootstrap as if the pole had fallen.",
    ],
    "reset_rows_kept": [
        "returns",
        "broken",
        "The autoreset rows, which lead from one episode's last state to the next one's first, are trained on.",
    ],
    "anneal_per_minibatch": [
        "rates",
        "broken",
        "The learning-rate schedule is sized in iterations but stepped per minibatch, so it is zero early.",
    ],
    "flipped_reward": ["goal", "not proven", "The reward wrapper has the wrong sign: falling over soon pays best."],
}

HEALTHY = {
    "": "plain: PPO with a shared trunk, GAE, clipped ratio, linearly falling learning rate",
    "frozen_backbone": "The trunk's first layer is a random feature map frozen on purpose; the rest trains.",
    "warmup": "The learning rate climbs from exactly 0 for some iterations before it falls.",
    "micro_batches": "Every minibatch is fed in four chunks whose gradients are accumulated before one step.",
}

parser = argparse.ArgumentParser()
parser.add_argument("--seed", type=int, default=0)
parser.add_argument("--fault", default="", choices=["", *FAULTS])
parser.add_argument("--variant", default="", choices=list(HEALTHY))
parser.add_argument("--steps", type=int, default=90_000, help="environment steps in total")
args = parser.parse_args()

# ---------------------------------------------------------------- settings
num_envs = 8
num_steps = 128
iterations = max(1, args.steps // (num_envs * num_steps))
epochs = 4
minibatch = 256
gamma, lam = 0.99, 0.95
clip_eps = 0.2
ent_coef, vf_coef = 0.005, 0.5
max_grad_norm = 0.5
base_lr = 1e-3
time_limit = 300
reward_scale = 0.05  # keeps the value loss from drowning the policy loss in the shared trunk
chunks = 4 if args.variant == "micro_batches" else 1

random.seed(args.seed)
np.random.seed(args.seed)  # noqa: NPY002
torch.manual_seed(args.seed)
torch.set_num_threads(1)


def make_env():
    env = gym.make("CartPole-v1", max_episode_steps=time_limit)
    if args.fault == "flipped_reward":
        env = gym.wrappers.TransformReward(env, lambda r: -r)
    return env


envs = gym.vector.SyncVectorEnv([make_env for _ in range(num_envs)])
obs_dim = envs.single_observation_space.shape[0]
n_actions = envs.single_action_space.n


# ---------------------------------------------------------------- networks
def ortho(layer, gain):
    nn.init.orthogonal_(layer.weight, gain)
    nn.init.zeros_(layer.bias)
    return layer


trunk = nn.Sequential(
    ortho(nn.Linear(obs_dim, 64), 2**0.5),
    nn.Tanh(),
    ortho(nn.Linear(64, 64), 2**0.5),
    nn.Tanh(),
)
pi_head = ortho(nn.Linear(64, n_actions), 0.01)
v_head = ortho(nn.Linear(64, 1), 1.0)

if args.variant == "frozen_backbone":
    trunk[0].requires_grad_(False)

modules = [pi_head, v_head] if args.fault == "trunk_left_out" else [trunk, pi_head, v_head]
params = [p for m in modules for p in m.parameters() if p.requires_grad]
optimizer = torch.optim.Adam(params, lr=base_lr, eps=1e-5)


def lr_factor(k):
    fall = max(0.0, 1.0 - k / iterations)
    if args.variant == "warmup":
        return min(k / 8, fall)
    return fall


scheduler = torch.optim.lr_scheduler.LambdaLR(optimizer, lr_factor)

# ---------------------------------------------------------------- storage, (steps, envs)
obs_buf = torch.zeros(num_steps, num_envs, obs_dim)
act_buf = torch.zeros(num_steps, num_envs, dtype=torch.long)
logp_buf = torch.zeros(num_steps, num_envs)
rew_buf = torch.zeros(num_steps, num_envs)
val_buf = torch.zeros(num_steps, num_envs)
term_buf = torch.zeros(num_steps, num_envs)  # the pole fell: no future
done_buf = torch.zeros(num_steps, num_envs)  # episode over, for whatever reason
live_buf = torch.ones(num_steps, num_envs, dtype=torch.bool)  # False on rows that are only a reset

obs_np, _ = envs.reset(seed=args.seed)
obs = torch.as_tensor(obs_np, dtype=torch.float32)
was_done = np.zeros(num_envs, dtype=bool)
running = np.zeros(num_envs)
finished = []
t0 = time.process_time()

for it in range(iterations):
    # ------------------------------------------------------------ rollout
    for t in range(num_steps):
        with torch.no_grad():
            h = trunk(obs)
            dist = Categorical(logits=pi_head(h))
            action = dist.sample()
            val_buf[t] = v_head(h).squeeze(-1)
            logp_buf[t] = dist.log_prob(action)
        obs_buf[t] = obs
        act_buf[t] = action
        live_buf[t] = torch.from_numpy(~was_done)

        obs_np, reward, terminated, truncated, _ = envs.step(action.numpy())
        obs = torch.as_tensor(obs_np, dtype=torch.float32)
        rew_buf[t] = torch.as_tensor(reward, dtype=torch.float32) * reward_scale
        was_done = terminated | truncated
        done_buf[t] = torch.from_numpy(was_done).float()
        term_buf[t] = torch.from_numpy(terminated).float()

        running += reward
        for i in np.flatnonzero(was_done):
            finished.append(running[i])
            running[i] = 0.0

    # ------------------------------------------------------------ advantages
    # the row after a truncation holds the true final observation, so V(row t+1) is the right bootstrap there too
    with torch.no_grad():
        last_val = v_head(trunk(obs)).squeeze(-1)
    no_future = done_buf if args.fault == "limit_as_terminal" else term_buf
    adv = torch.zeros_like(rew_buf)
    gae = torch.zeros(num_envs)
    for t in reversed(range(num_steps)):
        next_val = last_val if t == num_steps - 1 else val_buf[t + 1]
        delta = rew_buf[t] + gamma * next_val * (1 - no_future[t]) - val_buf[t]
        gae = delta + gamma * lam * (1 - done_buf[t]) * gae
        adv[t] = gae
    ret = adv + val_buf

    # ------------------------------------------------------------ update
    if args.fault == "reset_rows_kept":
        rows = torch.arange(num_steps * num_envs)
    else:
        rows = live_buf.flatten().nonzero().squeeze(-1)
    f_obs, f_act, f_logp = obs_buf.reshape(-1, obs_dim), act_buf.reshape(-1), logp_buf.reshape(-1)
    f_adv, f_ret = adv.reshape(-1), ret.reshape(-1)

    for _ in range(epochs):
        order = rows[torch.randperm(len(rows))]
        for mb in order.split(minibatch):
            if len(mb) < minibatch // 2:
                continue
            a_mb = f_adv[mb]
            mean, std = a_mb.mean(), a_mb.std()
            optimizer.zero_grad()
            for part in mb.chunk(chunks):
                h = trunk(f_obs[part])
                dist = Categorical(logits=pi_head(h))
                logp = dist.log_prob(f_act[part])
                old_logp = logp.detach() if args.fault == "ratio_of_itself" else f_logp[part]
                ratio = (logp - old_logp).exp()
                a = (f_adv[part] - mean) / (std + 1e-8)
                pg_loss = torch.max(-a * ratio, -a * ratio.clamp(1 - clip_eps, 1 + clip_eps)).mean()

                v = v_head(h) if args.fault == "value_broadcast" else v_head(h).squeeze(-1)
                v_loss = 0.5 * ((v - f_ret[part]) ** 2).mean()
                entropy = dist.entropy().mean()

                loss = pg_loss + vf_coef * v_loss - ent_coef * entropy
                (loss * (len(part) / len(mb))).backward()
            nn.utils.clip_grad_norm_(params, max_grad_norm)
            optimizer.step()
            if args.fault == "anneal_per_minibatch":
                scheduler.step()
    if args.fault != "anneal_per_minibatch":
        scheduler.step()

    if it % 8 == 7 or it == iterations - 1:
        recent = np.mean(finished[-30:]) if finished else float("nan")
        with torch.no_grad():
            fit = F.mse_loss(val_buf[live_buf], ret[live_buf]) / ret[live_buf].var()
        print(
            f"iter {it + 1:3d}/{iterations}  steps {(it + 1) * num_steps * num_envs:6d}  return {recent:7.1f}  "
            f"entropy {entropy.item():.3f}  unexplained {fit.item():.2f}  {time.process_time() - t0:.1f}s",
            flush=True,
        )

envs.close()
print(f"first 30 episodes {np.mean(finished[:30]):.1f}, last 30 episodes {np.mean(finished[-30:]):.1f}")
