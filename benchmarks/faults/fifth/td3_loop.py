"""TD3 as one long loop: a ball is kept at a mark on a tilting beam."""

import argparse
import time

import gymnasium as gym
import numpy as np
import torch
from torch import nn

FAULTS = {
    "copied_line": ["weights", "broken", "the second critic's optimizer was given the first critic's parameters"],
    "actor_left_behind": ["targets", "broken", "the target actor is left out of the soft update: it stays as born"],
    "late_row": ["returns", "broken", "the row is written after moving on: state and next state are the same"],
    "noise_unseen": ["shapes", "broken", "replay holds the actor's action, the environment got the noisy one"],
    "best_of_twins": ["signs", "broken", "the target takes the larger of the twins instead of the smaller"],
    "assist_always": ["goal", "not proven", "a safety assist, meant for the ends of the beam, steers everywhere"],
}
HEALTHY = {
    "": "plain: one update per step, delayed actor, soft targets",
    "after_episode": "no update within an episode; at its end as many as it had steps",
    "hard_targets": "targets are copied whole every 200 updates; gradients clipped by value; AdamW",
    "whitened": "observations are whitened by running moments, with a frozen random layer beside them",
}


class BallBeam(gym.Env):
    """The action turns the beam, gravity rolls the ball, and a gust pushes now and then."""

    observation_space = gym.spaces.Box(-10.0, 10.0, (4,), np.float32)
    action_space = gym.spaces.Box(-1.0, 1.0, (1,), np.float32)

    def __init__(self, assist_from=np.inf):
        self.assist_from = assist_from

    def sense(self):
        return np.array([self.ball, 5 * self.speed, 4 * self.tilt, self.mark], dtype=np.float32)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.ball, self.mark = self.np_random.uniform(-0.5, 0.5, 2)
        self.speed, self.tilt = self.np_random.uniform(-0.05, 0.05, 2)
        return self.sense(), {}

    def step(self, action):
        turn = float(np.clip(action, -1, 1).item())
        if abs(self.ball) >= self.assist_from:
            wanted = 0.5 * (self.mark - self.ball) - 4 * self.speed
            turn = float(np.clip((wanted - self.tilt) / 0.08, -1, 1))
        self.tilt = float(np.clip(self.tilt + 0.08 * turn, -0.4, 0.4))
        gust = self.np_random.normal(0, 0.05) if self.np_random.random() < 0.1 else 0.0
        self.speed = 0.98 * self.speed + 0.08 * self.tilt + 0.3 * gust
        self.ball += self.speed
        fallen = abs(self.ball) > 1.0
        reward = 1.0 - abs(self.ball - self.mark) - 0.05 * turn**2
        return self.sense(), 0.0 if fallen else reward, fallen, False, {}


def net(n_in, n_out, *end, hidden=64):
    return nn.Sequential(
        nn.Linear(n_in, hidden), nn.ReLU(), nn.Linear(hidden, hidden), nn.ReLU(), nn.Linear(hidden, n_out), *end
    )


class Whitener(nn.Module):
    """Running moments, then a fixed random layer beside the inputs; not trained on purpose."""

    def __init__(self, n_in, n_extra):
        super().__init__()
        self.register_buffer("mean", torch.zeros(n_in))
        self.register_buffer("square", torch.ones(n_in))
        self.register_buffer("count", torch.tensor(1.0))
        self.extra = nn.Linear(n_in, n_extra).requires_grad_(False)

    def watch(self, x):
        self.count += 1
        self.mean += (x - self.mean) / self.count
        self.square += (x**2 - self.square) / self.count

    def forward(self, x):
        x = (x - self.mean) / (self.square - self.mean**2).clamp(min=1e-4).sqrt()
        x = x.clamp(-5, 5)
        return torch.cat([x, torch.tanh(self.extra(x))], -1)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--steps", type=int, default=9_000)
    parser.add_argument("--fault", choices=["", *FAULTS], default="")
    parser.add_argument("--variant", choices=list(HEALTHY), default="")
    args = parser.parse_args()
    fault, variant = args.fault, args.variant
    gamma, tau, delay, batch_size, lr, explore, start = 0.98, 0.01, 2, 96, 1e-3, 0.2, 800

    torch.manual_seed(args.seed)
    rng = np.random.default_rng(args.seed)
    env = gym.wrappers.TimeLimit(BallBeam(0.0 if fault == "assist_always" else np.inf), 60)

    view = Whitener(4, 8) if variant == "whitened" else nn.Identity()
    n_view = 12 if variant == "whitened" else 4
    actor, actor_t = net(n_view, 1, nn.Tanh()), net(n_view, 1, nn.Tanh())
    q1, q1_t = net(n_view + 1, 1), net(n_view + 1, 1)
    q2, q2_t = net(n_view + 1, 1), net(n_view + 1, 1)
    couples = [(actor, actor_t), (q1, q1_t), (q2, q2_t)]
    for live, slow in couples:
        slow.load_state_dict(live.state_dict())
        slow.requires_grad_(False)
    if fault == "actor_left_behind":
        couples = couples[1:]

    make_opt = torch.optim.AdamW if variant == "hard_targets" else torch.optim.Adam
    actor_opt = make_opt(actor.parameters(), lr=lr)
    q1_opt = make_opt(q1.parameters(), lr=lr)
    if fault == "copied_line":
        q2_opt = make_opt(q1.parameters(), lr=lr)
    else:
        q2_opt = make_opt(q2.parameters(), lr=lr)

    obs_mem = np.zeros((args.steps, 4), np.float32)
    act_mem = np.zeros((args.steps, 1), np.float32)
    rew_mem = np.zeros((args.steps, 1), np.float32)
    next_mem = np.zeros((args.steps, 4), np.float32)
    end_mem = np.zeros((args.steps, 1), np.float32)

    obs, _ = env.reset(seed=args.seed)
    returns, total, length, updates, critic_loss, said = [], 0.0, 0, 0, torch.zeros(()), time.time()
    for step in range(args.steps):
        if variant == "whitened":
            view.watch(torch.as_tensor(obs))
        with torch.no_grad():
            chosen = actor(view(torch.as_tensor(obs)[None]))[0].numpy()
        if step < start:
            action = rng.uniform(-1, 1, 1).astype(np.float32)
            chosen = action
        else:
            action = np.clip(chosen + rng.normal(0, explore, 1), -1, 1).astype(np.float32)
        next_obs, reward, terminated, truncated, _ = env.step(action)
        total, length = total + reward, length + 1
        if fault == "late_row":
            obs = next_obs
        obs_mem[step] = obs
        act_mem[step] = chosen if fault == "noise_unseen" else action
        rew_mem[step] = reward
        next_mem[step] = next_obs
        end_mem[step] = terminated
        obs = next_obs

        over = terminated or truncated
        if step < start:
            todo = 0
        elif variant == "after_episode":
            todo = length if over else 0
        else:
            todo = 1
        if over:
            returns.append(total)
            total, length = 0.0, 0
            obs, _ = env.reset()

        for _ in range(todo):
            rows = rng.integers(step + 1, size=batch_size)
            s, s2 = view(torch.from_numpy(obs_mem[rows])), view(torch.from_numpy(next_mem[rows]))
            a, r, end = (torch.from_numpy(mem[rows]) for mem in (act_mem, rew_mem, end_mem))
            with torch.no_grad():
                blur = (0.2 * torch.randn_like(a)).clamp(-0.4, 0.4)
                a2 = (actor_t(s2) + blur).clamp(-1, 1)
                sa2 = torch.cat([s2, a2], 1)
                if fault == "best_of_twins":
                    ahead = torch.max(q1_t(sa2), q2_t(sa2))
                else:
                    ahead = torch.min(q1_t(sa2), q2_t(sa2))
                y = r + gamma * (1 - end) * ahead
            sa = torch.cat([s, a], 1)
            critic_loss = (q1(sa) - y).square().mean() + (q2(sa) - y).square().mean()
            q1_opt.zero_grad()
            q2_opt.zero_grad()
            critic_loss.backward()
            if variant == "hard_targets":
                nn.utils.clip_grad_value_([*q1.parameters(), *q2.parameters()], 0.5)
            q1_opt.step()
            q2_opt.step()
            updates += 1
            if updates % delay == 0:
                actor_loss = -q1(torch.cat([s, actor(s)], 1)).mean()
                actor_opt.zero_grad()
                actor_loss.backward()
                if variant == "hard_targets":
                    nn.utils.clip_grad_value_(actor.parameters(), 0.5)
                actor_opt.step()
                rate = tau if variant != "hard_targets" else float(updates % 200 == 0)
                with torch.no_grad():
                    for live, slow in couples if rate else []:
                        for p, p_slow in zip(live.parameters(), slow.parameters(), strict=True):
                            p_slow.mul_(1 - rate).add_(p, alpha=rate)

        if time.time() - said > 3:
            said = time.time()
            recent = np.mean(returns[-20:])
            print(f"step {step} updates {updates} return {recent:.1f} critic loss {critic_loss.item():.4f}", flush=True)

    tenth = max(1, len(returns) // 10)
    first, last = np.mean(returns[:tenth]), np.mean(returns[-tenth:])
    print(f"{len(returns)} episodes, first tenth {first:.2f}, last tenth {last:.2f}")


if __name__ == "__main__":
    main()
