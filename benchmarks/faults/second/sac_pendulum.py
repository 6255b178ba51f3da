# soft actor-critic, pendulum swing-up, one flat file. python sac_pendulum.py --seed 1
import argparse
import copy
import math
import random
import time

import gymnasium as gym
import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F

FAULTS = {
    "jacobian_sign": [
        "shapes",
        "broken",
        "the log-determinant of the tanh is added to the log-prob instead of subtracted",
    ],
    "stale_log_alpha": [
        "weights",
        "broken",
        "log_alpha is rebound to its start value after the optimizer was built: the temperature never moves",
    ],
    "target_entropy_sign": [
        "signs",
        "broken",
        "target entropy is +dim instead of -dim: more than the action space can have, so the temperature only grows",
    ],
    "policy_at_obs": ["returns", "broken", "the next action of the TD target is drawn at obs instead of next_obs"],
    "no_rsample": ["weights", "broken", "sample() instead of rsample(): the Q value gives no gradient to the actor"],
    "polyak_at_episode_end": [
        "targets",
        "broken",
        "the soft target update is indented under the end of an episode, so the targets hardly move",
    ],
    "late_reward": ["returns", "broken", "the transition is stored with the reward of the step before"],
    "units_mixed": [
        "goal",
        "broken",
        "the replay holds torques (-2..2) while the actor's actions for the critic are in -1..1",
    ],
}
HEALTHY = {
    "": "plain",
    "alpha_direct": "the temperature loss uses alpha instead of log_alpha",
    "fixed_alpha": "a constant temperature, no tuning of it",
    "bursts": "no update for 50 steps, then 50 updates in a row",
    "rare_target": "hard copy of the critics into the targets every 150 updates",
}

ap = argparse.ArgumentParser()
ap.add_argument("--seed", type=int, default=0)
ap.add_argument("--steps", type=int, default=4000)
ap.add_argument("--fault", type=str, default="", choices=["", *FAULTS])
ap.add_argument("--variant", type=str, default="", choices=list(HEALTHY))
args = ap.parse_args()
FAULT, VARIANT = args.fault, args.variant

torch.set_num_threads(1)
random.seed(args.seed)
np.random.seed(args.seed)  # noqa: NPY002
torch.manual_seed(args.seed)

GAMMA, TAU, LR, BATCH, START, WIDTH = 0.98, 0.01, 1e-3, 128, 500, 64


class ActionRepeat(gym.Wrapper):
    def step(self, action):
        total = 0.0
        for _ in range(2):
            obs, reward, terminated, truncated, info = self.env.step(action)
            total += float(reward)
            if terminated or truncated:
                break
        return obs, total, terminated, truncated, info


env = ActionRepeat(gym.make("Pendulum-v1"))
n_obs, n_act = env.observation_space.shape[0], env.action_space.shape[0]
torque = float(env.action_space.high[0])
obs_scale = torch.tensor([1.0, 1.0, 1.0 / 8.0])


def mlp(n_in, n_out):
    return nn.Sequential(nn.Linear(n_in, WIDTH), nn.ReLU(), nn.Linear(WIDTH, WIDTH), nn.ReLU(), nn.Linear(WIDTH, n_out))


actor = mlp(n_obs, 2 * n_act)
q1, q2 = mlp(n_obs + n_act, 1), mlp(n_obs + n_act, 1)
q1_targ, q2_targ = copy.deepcopy(q1), copy.deepcopy(q2)
for p in [*q1_targ.parameters(), *q2_targ.parameters()]:
    p.requires_grad = False
critic_params = [*q1.parameters(), *q2.parameters()]
actor_opt = torch.optim.Adam(actor.parameters(), lr=LR)
critic_opt = torch.optim.Adam(critic_params, lr=LR)

# temperature
target_entropy = float(n_act) if FAULT == "target_entropy_sign" else -float(n_act)
autotune = VARIANT != "fixed_alpha"
log_alpha = torch.zeros(1, requires_grad=autotune)
alpha_opt = torch.optim.Adam([log_alpha], lr=LR) if autotune else None
# exp(0) = 1 is a lot for this reward scale, begin lower
if FAULT == "stale_log_alpha":
    log_alpha = torch.tensor([math.log(0.2)], requires_grad=True)
else:
    with torch.no_grad():
        log_alpha.fill_(math.log(0.2 if autotune else 0.05))


def pi(obs):
    """squashed gaussian: action in (-1, 1) and its log-prob, shapes (B, n_act) and (B, 1)"""
    mu, log_std = actor(obs).chunk(2, dim=-1)
    dist = torch.distributions.Normal(mu, log_std.clamp(-5, 2).exp())
    u = dist.sample() if FAULT == "no_rsample" else dist.rsample()
    # log(1 - tanh(u)^2), written so that it does not blow up
    log_det = 2.0 * (math.log(2.0) - u - F.softplus(-2.0 * u))
    if FAULT == "jacobian_sign":
        logp = dist.log_prob(u) + log_det
    else:
        logp = dist.log_prob(u) - log_det
    return torch.tanh(u), logp.sum(-1, keepdim=True)


# replay
cap = 20_000
R_obs, R_next = torch.zeros(cap, n_obs), torch.zeros(cap, n_obs)
R_act, R_rew, R_end = torch.zeros(cap, n_act), torch.zeros(cap, 1), torch.zeros(cap, 1)
ptr = filled = 0

obs, _ = env.reset(seed=args.seed)
env.action_space.seed(args.seed)
obs = torch.as_tensor(obs) * obs_scale
ep_ret, ep_rets, updates, last_reward = 0.0, [], 0, 0.0
q_loss_avg = 0.0
t0 = time.time()

for step in range(args.steps):
    # ---- act
    if step < START:
        act = torch.rand(n_act) * 2 - 1
    else:
        with torch.no_grad():
            act = pi(obs[None])[0][0]
    nobs, reward, terminated, truncated, _ = env.step((act * torque).numpy())
    ep_ret += reward
    nobs = torch.as_tensor(nobs) * obs_scale

    # ---- store
    R_obs[ptr], R_next[ptr] = obs, nobs
    R_act[ptr] = act * torque if FAULT == "units_mixed" else act
    R_rew[ptr] = 0.1 * (last_reward if FAULT == "late_reward" else reward)
    R_end[ptr] = float(terminated)  # running out of time is no end
    ptr, filled = (ptr + 1) % cap, min(filled + 1, cap)
    last_reward = reward
    obs = nobs

    episode_over = terminated or truncated
    if episode_over:
        ep_rets.append(ep_ret)
        if len(ep_rets) % 10 == 0:
            print(
                f"ep {len(ep_rets):3d} step {step + 1:5d} ret {np.mean(ep_rets[-10:]):8.1f} "
                f"alpha {log_alpha.exp().item():.3f} qloss {q_loss_avg:.4f} {time.time() - t0:5.1f}s"
            )
        ep_ret = 0.0
        obs, _ = env.reset()
        obs = torch.as_tensor(obs) * obs_scale

    # ---- learn
    if step < START:
        continue
    if VARIANT == "bursts":
        todo = 50 if step % 50 == 49 else 0
    else:
        todo = 1
    for _ in range(todo):
        idx = torch.randint(0, filled, (BATCH,))
        o, a, r, o2, end = R_obs[idx], R_act[idx], R_rew[idx], R_next[idx], R_end[idx]
        alpha = log_alpha.exp().detach()

        # critics
        with torch.no_grad():
            a2, logp2 = pi(o if FAULT == "policy_at_obs" else o2)
            x2 = torch.cat([o2, a2], -1)
            soft_v = torch.min(q1_targ(x2), q2_targ(x2)) - alpha * logp2
            y = r + GAMMA * (1 - end) * soft_v
        x = torch.cat([o, a], -1)
        q_loss = F.mse_loss(q1(x), y) + F.mse_loss(q2(x), y)
        critic_opt.zero_grad()
        q_loss.backward()
        critic_opt.step()
        q_loss_avg = 0.99 * q_loss_avg + 0.01 * q_loss.item()

        # actor (the critics collect gradients here as well, they are cleared before the next critic step)
        ap_, logp = pi(o)
        xp = torch.cat([o, ap_], -1)
        actor_loss = (alpha * logp - torch.min(q1(xp), q2(xp))).mean()
        actor_opt.zero_grad()
        actor_loss.backward()
        actor_opt.step()

        # temperature
        if autotune:
            coef = log_alpha.exp() if VARIANT == "alpha_direct" else log_alpha
            alpha_loss = -(coef * (logp + target_entropy).detach()).mean()
            alpha_opt.zero_grad()
            alpha_loss.backward()
            alpha_opt.step()

        # targets
        updates += 1
        if VARIANT == "rare_target":
            if updates % 150 == 0:
                q1_targ.load_state_dict(q1.state_dict())
                q2_targ.load_state_dict(q2.state_dict())
        elif FAULT != "polyak_at_episode_end" or episode_over:
            with torch.no_grad():
                for net, targ in ((q1, q1_targ), (q2, q2_targ)):
                    for w, wt in zip(net.parameters(), targ.parameters(), strict=True):
                        wt.mul_(1 - TAU).add_(TAU * w)

k = max(1, len(ep_rets) // 5)
print(f"{len(ep_rets)} episodes: first fifth {np.mean(ep_rets[:k]):.1f}, last fifth {np.mean(ep_rets[-k:]):.1f}")
env.close()
