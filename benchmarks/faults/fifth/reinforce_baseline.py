"""REINFORCE with a learned baseline: a puck is pushed to a mark, whole episodes are collected one by one."""

import argparse
import time

import gymnasium as gym
import numpy as np
import torch
from torch import nn
from torch.distributions import Normal

FAULTS = {
    "loose_log_std": ["weights", "broken", "log_std is a bare tensor, no parameter: it gets gradients, never a step"],
    "not_turned_back": ["returns", "broken", "reward-to-go is gathered from the end and not put back in order"],
    "rsample": ["shapes", "broken", "the action keeps its path to the mean, which cancels the mean's gradient"],
    "square_of_mean": ["signs", "broken", "the baseline minimises the square of the mean error, not the mean square"],
    "warmup_restarts": ["rates", "broken", "the warm-up counter starts anew every epoch: the rate never gets up"],
    "speed_paid": ["goal", "not proven", "a bonus on speed outweighs the distance: the return rises, no mark is met"],
}
HEALTHY = {
    "": "plain: log-probs kept while acting, advantages standardised over the batch",
    "recomputed": "float64; log-probs are recomputed in one pass before the update, gradients clipped by value",
    "functional": "the policy's gradient comes from torch.func and is written into .grad by hand",
    "per_dimension": "log-probs stay one per action dimension and meet the advantage as a column; joint optimizer",
    "sgd_momentum": "the policy learns with momentum SGD and weight decay, the advantage is only centred by the baseline",
}
CONFIG = {
    "env": {"limit": 40, "force": 0.05, "drag": 0.85, "edge": 2.0, "speed_bonus": 0.0},
    "net": {"hidden": 48, "log_std": -0.3, "dtype": torch.float32},
    "optim": {"policy_lr": 4e-3, "baseline_lr": 5e-3, "max_norm": 1.0, "warmup": 40, "entropy": 1e-3},
    "train": {"episodes": 1_200, "per_batch": 8, "batches_per_epoch": 10, "gamma": 0.97},
}


class Puck(gym.Env):
    """Observation: the way to the mark and the own velocity; action: a force, cut to [-1, 1] per axis."""

    observation_space = gym.spaces.Box(-np.inf, np.inf, (4,), np.float64)
    action_space = gym.spaces.Box(-1.0, 1.0, (2,), np.float64)

    def __init__(self, force, drag, edge, speed_bonus):
        self.force, self.drag, self.edge, self.speed_bonus = force, drag, edge, speed_bonus

    def observe(self):
        return np.concatenate([self.mark - self.pos, 4.0 * self.vel])

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.pos, self.mark = self.np_random.uniform(-1.0, 1.0, (2, 2))
        self.vel = np.zeros(2)
        return self.observe(), {}

    def step(self, action):
        push = np.clip(action, -1.0, 1.0)
        self.vel = self.drag * self.vel + self.force * push
        self.pos = self.pos + self.vel
        distance = np.linalg.norm(self.mark - self.pos)
        reward = -0.05 * distance - 0.003 * push @ push + self.speed_bonus * np.linalg.norm(self.vel)
        outside = bool(np.abs(self.pos).max() > self.edge)
        return self.observe(), reward - 5.0 * outside, outside, False, {"is_success": distance < 0.2}


class GaussianPolicy(nn.Module):
    def __init__(self, n_obs, n_act, hidden, log_std, loose):
        super().__init__()
        self.mean = nn.Sequential(nn.Linear(n_obs, hidden), nn.Tanh(), nn.Linear(hidden, n_act))
        start = torch.full((n_act,), log_std)
        self.log_std = start.requires_grad_() if loose else nn.Parameter(start)

    def forward(self, obs):
        mean = self.mean(obs)
        return mean, self.log_std.exp().expand_as(mean)


def play(env, policy, cfg):
    """One whole episode; `cut` says that the clock ended it, not the task."""
    episode = {"obs": [], "act": [], "logp": [], "rew": []}
    obs, _ = env.reset()
    ended = False
    while not ended:
        x = torch.as_tensor(obs, dtype=cfg["net"]["dtype"])
        dist = Normal(*policy(x), validate_args=False)
        action = dist.rsample() if cfg["fault"] == "rsample" else dist.sample()
        obs, reward, terminated, truncated, info = env.step(action.detach().numpy())
        ended = terminated or truncated
        for key, item in zip(episode, (x, action, dist.log_prob(action), reward), strict=True):
            episode[key].append(item)
    last = torch.as_tensor(obs, dtype=cfg["net"]["dtype"])
    return episode | {"last": last, "cut": truncated and not terminated, "success": info["is_success"]}


def reward_to_go(episode, baseline, cfg):
    with torch.no_grad():
        ahead = baseline(episode["last"]).item() if episode["cut"] else 0.0
    togo = []
    for reward in reversed(episode["rew"]):
        ahead = reward + cfg["train"]["gamma"] * ahead
        togo.append(ahead)
    if cfg["fault"] != "not_turned_back":
        togo.reverse()
    return togo


def policy_gradient(policy, batch, cfg):
    """Leaves the gradient of the policy's loss in its parameters."""

    def objective(logp, adv, std):
        return -(logp.sum(-1) * adv).mean() - cfg["optim"]["entropy"] * std.log().sum(-1).mean()

    if cfg["variant"] == "functional":
        params = {name: p.detach() for name, p in policy.named_parameters()}

        def loss_of(params):
            mean, std = torch.func.functional_call(policy, params, (batch["obs"],))
            return objective(Normal(mean, std, validate_args=False).log_prob(batch["act"]), batch["adv"], std)

        grads, loss = torch.func.grad_and_value(loss_of)(params)
        for name, p in policy.named_parameters():
            p.grad = grads[name]
        return loss.item()
    mean, std = policy(batch["obs"])
    logp = batch["logp"]
    if cfg["variant"] == "recomputed":
        logp = Normal(mean, std).log_prob(batch["act"])
    if cfg["variant"] == "per_dimension":
        loss = (-logp * batch["adv"].unsqueeze(1)).mean(0).sum() - cfg["optim"]["entropy"] * std.log().sum(-1).mean()
    else:
        loss = objective(logp, batch["adv"], std)
    loss.backward()
    return loss.item()


def learn(episodes, policy, baseline, optimizers, cfg):
    togo = [g for ep in episodes for g in reward_to_go(ep, baseline, cfg)]
    togo = torch.tensor(togo, dtype=cfg["net"]["dtype"])
    batch = {key: torch.stack([x for ep in episodes for x in ep[key]]) for key in ("obs", "act", "logp")}
    values = baseline(batch["obs"]).squeeze(-1)
    adv = togo - values.detach()
    batch["adv"] = adv if cfg["variant"] == "sgd_momentum" else (adv - adv.mean()) / (adv.std() + 1e-8)
    for opt in optimizers:
        opt.zero_grad()
    pi_loss = policy_gradient(policy, batch, cfg)
    error = togo - values
    fit = error.mean() ** 2 if cfg["fault"] == "square_of_mean" else (error**2).mean()
    fit.backward()
    for net in (policy, baseline):
        if cfg["variant"] == "recomputed":
            nn.utils.clip_grad_value_(net.parameters(), 0.2)
        else:
            nn.utils.clip_grad_norm_(net.parameters(), cfg["optim"]["max_norm"])
    for opt in optimizers:
        opt.step()
    return pi_loss, fit.item()


def make_optimizers(policy, baseline, cfg):
    pi = {"params": list(policy.parameters()), "lr": cfg["optim"]["policy_lr"]}
    base = {"params": list(baseline.parameters()), "lr": cfg["optim"]["baseline_lr"]}
    if cfg["variant"] == "per_dimension":
        return [torch.optim.Adam([pi, base])]
    if cfg["variant"] == "sgd_momentum":
        pi["lr"] = 0.05
        return [torch.optim.SGD([pi], momentum=0.9, weight_decay=1e-4), torch.optim.Adam([base])]
    return [torch.optim.Adam([pi]), torch.optim.Adam([base])]


def train(cfg):
    torch.manual_seed(cfg["seed"])
    limit = cfg["env"].pop("limit")
    env = gym.wrappers.TimeLimit(Puck(**cfg["env"]), limit)
    hidden, dtype = cfg["net"]["hidden"], cfg["net"]["dtype"]
    policy = GaussianPolicy(4, 2, hidden, cfg["net"]["log_std"], cfg["fault"] == "loose_log_std").to(dtype)
    baseline = nn.Sequential(nn.Linear(4, hidden), nn.Tanh(), nn.Linear(hidden, hidden), nn.Tanh()).append(
        nn.Linear(hidden, 1)
    )
    baseline.to(dtype)
    optimizers = make_optimizers(policy, baseline, cfg)
    base_rates = [[group["lr"] for group in opt.param_groups] for opt in optimizers]
    history, successes, shown, warm = [], [], time.time(), 0
    plan = cfg["train"]
    env.reset(seed=cfg["seed"])
    for epoch in range(plan["episodes"] // (plan["per_batch"] * plan["batches_per_epoch"])):
        if cfg["fault"] == "warmup_restarts":
            warm = 0
        for _ in range(plan["batches_per_epoch"]):
            warm += 1
            for opt, rates in zip(optimizers, base_rates, strict=True):
                for group, rate in zip(opt.param_groups, rates, strict=True):
                    group["lr"] = rate * min(1.0, warm / cfg["optim"]["warmup"])
            episodes = [play(env, policy, cfg) for _ in range(plan["per_batch"])]
            pi_loss, fit = learn(episodes, policy, baseline, optimizers, cfg)
            history += [sum(ep["rew"]) for ep in episodes]
            successes += [ep["success"] for ep in episodes]
            if time.time() - shown > 3:
                shown = time.time()
                print(
                    f"epoch {epoch} return {np.mean(history[-80:]):.2f} success {np.mean(successes[-80:]):.2f} "
                    f"pi {pi_loss:.3f} fit {fit:.3f} std {policy.log_std.exp().mean().item():.2f}"
                )
    tenth = max(1, len(history) // 10)
    print(f"first tenth {np.mean(history[:tenth]):.2f}, last tenth {np.mean(history[-tenth:]):.2f}")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--steps", type=int, default=CONFIG["train"]["episodes"], help="episodes to play")
    parser.add_argument("--fault", default="", choices=["", *FAULTS])
    parser.add_argument("--variant", default="", choices=list(HEALTHY))
    args = parser.parse_args()
    CONFIG |= {"seed": args.seed, "fault": args.fault, "variant": args.variant}
    CONFIG["train"]["episodes"] = args.steps
    if args.variant == "recomputed":
        CONFIG["net"]["dtype"] = torch.float64
    if args.fault == "speed_paid":
        CONFIG["env"]["speed_bonus"] = 1.0
    train(CONFIG)
