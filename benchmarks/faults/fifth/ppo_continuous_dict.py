"""PPO with a diagonal Gaussian on a small courier task: one dict of tensors, mini-batches from a DataLoader."""

import argparse
import time
from dataclasses import dataclass, fields

import gymnasium as gym
import numpy as np
import torch
from gymnasium.vector import AutoresetMode, SyncVectorEnv
from gymnasium.wrappers import TimeLimit
from torch import Tensor, nn
from torch.distributions import Independent, Normal
from torch.utils.data import BatchSampler, DataLoader, Dataset, RandomSampler

FAULTS = {
    "stored_value": ["weights", "broken", "the value loss takes the stored value: no gradient reaches the critic"],
    "reset_value": ["returns", "broken", "at a time limit the value of the next episode's first state is taken"],
    "clipped_kept": ["shapes", "broken", "the clipped action is kept beside the log-prob of the unclipped one"],
    "generous_clip": ["signs", "broken", "the larger of the two surrogates is taken: clipping holds nothing back"],
    "drift_total": ["rates", "broken", "the drift that ends a rollout's epochs is never set back: soon no steps"],
    "streak_pay": ["goal", "not proven", "every step pays by a counter that survives resets, whatever is done"],
}
HEALTHY = {
    "": "plain: advantages normalised per mini-batch, one Adam for all",
    "next_step": "Gymnasium's default autoreset: the step that only resets is left out of the data",
    "double": "networks and storage in float64",
    "two_adamw": "actor and critic have an AdamW each, with weight decay; advantages normalised over the whole rollout",
}


@dataclass
class Config:
    seed: int = 0
    steps: int = 62_000
    fault: str = ""
    variant: str = ""
    n_envs: int = 8
    horizon: int = 128
    epochs: int = 8
    batch: int = 128
    gamma: float = 0.98
    lam: float = 0.95
    clip: float = 0.2
    drift_limit: float = 0.1
    ent_coef: float = 0.001
    lr: float = 3e-4
    max_norm: float = 0.7


class Courier(gym.Env):
    """A sluggish point mass in a walled square brings parcels to one address after the other."""

    observation_space = gym.spaces.Box(-4.0, 4.0, (6,), np.float32)
    action_space = gym.spaces.Box(-1.0, 1.0, (2,), np.float32)

    def __init__(self, streak_pay=False):
        self.streak_pay, self.streak = streak_pay, 0

    def _see(self):
        return np.concatenate([self.pos, 5.0 * self.vel, self.address - self.pos]).astype(np.float32)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.pos, self.address = self.np_random.uniform(-0.8, 0.8, (2, 2))
        self.vel = np.zeros(2)
        return self._see(), {}

    def step(self, action):
        self.vel = 0.9 * self.vel + 0.015 * np.clip(action, -1, 1)
        self.pos = self.pos + self.vel
        hit, speed = np.abs(self.pos) > 1, np.abs(self.vel)
        self.pos, self.vel = np.clip(self.pos, -1, 1), np.where(hit, 0.0, self.vel)
        gap = float(np.linalg.norm(self.address - self.pos))
        if self.streak_pay:
            self.streak += gap < 10.0
            return self._see(), 1e-4 * self.streak, False, False, {}
        crashed, delivered = bool((hit & (speed > 0.07)).any()), gap < 0.12
        if delivered:
            self.address = self.np_random.uniform(-0.8, 0.8, 2)
        return self._see(), 1.0 * delivered - 0.02 * gap - 2.0 * crashed, crashed, False, {}


class ActorCritic(nn.Module):
    def __init__(self, n_obs, n_act):
        super().__init__()
        self.mean = nn.Sequential(nn.Linear(n_obs, 64), nn.Tanh(), nn.Linear(64, 64), nn.Tanh(), nn.Linear(64, n_act))
        self.value = nn.Sequential(nn.Linear(n_obs, 64), nn.Tanh(), nn.Linear(64, 64), nn.Tanh(), nn.Linear(64, 1))
        self.log_std = nn.Parameter(torch.full((n_act,), -0.3))
        with torch.no_grad():
            self.mean[-1].weight.mul_(0.1)

    def pi(self, obs):
        return Independent(Normal(self.mean(obs), self.log_std.exp()), 1)

    def v(self, obs):
        return self.value(obs).squeeze(-1)


class Rows(Dataset):
    """The rollout, addressed by lists of row numbers."""

    def __init__(self, table: dict[str, Tensor]):
        self.table = table

    def __len__(self):
        return len(self.table["action"])

    def __getitem__(self, rows):
        return {name: column[rows] for name, column in self.table.items()}


class Collector:
    def __init__(self, cfg: Config, dtype):
        self.cfg, self.dtype = cfg, dtype
        self.mode = AutoresetMode.NEXT_STEP if cfg.variant == "next_step" else AutoresetMode.SAME_STEP
        makers = [lambda: TimeLimit(Courier(cfg.fault == "streak_pay"), 80)] * cfg.n_envs
        self.envs = SyncVectorEnv(makers, autoreset_mode=self.mode)
        self.obs, _ = self.envs.reset(seed=cfg.seed)
        self.only_reset = np.zeros(cfg.n_envs, dtype=bool)
        self.running, self.returns = np.zeros(cfg.n_envs), []

    @torch.no_grad()
    def rollout(self, model):
        cfg, steps = self.cfg, []
        for _ in range(cfg.horizon):
            obs = torch.as_tensor(self.obs, dtype=self.dtype)
            dist = model.pi(obs)
            action = dist.sample()
            log_prob = dist.log_prob(action)
            sent = action.clamp(-1, 1)
            if cfg.fault == "clipped_kept":
                action = sent
            after, reward, terminated, truncated, info = self.envs.step(sent.numpy().astype(np.float32))
            true_after, ended = after.copy(), terminated | truncated
            if self.mode == AutoresetMode.SAME_STEP and ended.any() and cfg.fault != "reset_value":
                true_after[ended] = np.stack(info["final_obs"][ended])
            arrays = {"after": true_after, "reward": reward, "alive": ~terminated, "same": ~ended}
            step = {name: torch.as_tensor(array, dtype=self.dtype) for name, array in arrays.items()}
            step |= {"obs": obs, "action": action, "log_prob": log_prob, "use": torch.as_tensor(~self.only_reset)}
            steps.append(step)
            self.running += reward
            self.returns += self.running[ended].tolist()
            self.running[ended] = 0.0
            self.obs = after
            if self.mode == AutoresetMode.NEXT_STEP:  # what follows an end is no transition
                self.only_reset = ended
        table = {name: torch.stack([step[name] for step in steps]) for name in steps[0]}
        table["value"] = model.v(table["obs"])
        surprise = table["reward"] + cfg.gamma * table["alive"] * model.v(table.pop("after")) - table["value"]
        table["adv"], trail = torch.zeros_like(surprise), torch.zeros(cfg.n_envs, dtype=self.dtype)
        for t in reversed(range(cfg.horizon)):
            trail = surprise[t] + cfg.gamma * cfg.lam * table["same"][t] * trail
            table["adv"][t] = trail
        table["target"] = table["adv"] + table["value"]
        use = table.pop("use")
        return {name: column[use] for name, column in table.items()}


class Learner:
    def __init__(self, cfg: Config, model):
        self.cfg, self.model = cfg, model
        if cfg.variant == "two_adamw":
            parts = [[*model.mean.parameters(), model.log_std], list(model.value.parameters())]
            self.opts = [torch.optim.AdamW(part, lr=cfg.lr, weight_decay=1e-3) for part in parts]
        else:
            parts = [list(model.parameters())]
            self.opts = [torch.optim.Adam(parts[0], lr=cfg.lr, eps=1e-5)]
        self.parts, self.drift, self.taken, self.shown = parts, 0.0, 0, ""

    def update(self, table):
        cfg, whole = self.cfg, self.cfg.variant == "two_adamw"
        if whole:
            table["adv"] = (table["adv"] - table["adv"].mean()) / (table["adv"].std() + 1e-8)
        rows = Rows(table)
        loader = DataLoader(rows, batch_size=None, sampler=BatchSampler(RandomSampler(rows), cfg.batch, drop_last=True))
        if cfg.fault != "drift_total":
            self.drift = 0.0
        for _ in range(cfg.epochs):
            for part in loader:
                log_ratio = self.model.pi(part["obs"]).log_prob(part["action"]) - part["log_prob"]
                ratio = log_ratio.exp()
                self.drift += (ratio - 1 - log_ratio).mean().item()
                if self.drift > cfg.drift_limit * cfg.epochs * len(loader):
                    return
                self.step(part, ratio, whole)

    def step(self, part, ratio, whole):
        cfg, model = self.cfg, self.model
        adv = part["adv"] if whole else (part["adv"] - part["adv"].mean()) / (part["adv"].std() + 1e-8)
        pick = torch.maximum if cfg.fault == "generous_clip" else torch.minimum
        gain = pick(ratio * adv, ratio.clamp(1 - cfg.clip, 1 + cfg.clip) * adv).mean()
        value = part["value"] if cfg.fault == "stored_value" else model.v(part["obs"])
        value_loss = nn.functional.mse_loss(value, part["target"])
        loss = 0.5 * value_loss - gain - cfg.ent_coef * model.pi(part["obs"]).entropy().mean()
        for opt in self.opts:
            opt.zero_grad()
        loss.backward()
        for params, opt in zip(self.parts, self.opts, strict=True):
            nn.utils.clip_grad_norm_(params, cfg.max_norm)
            opt.step()
        self.taken += 1
        self.shown = f"gain {gain.item():+.4f} value loss {value_loss.item():.3f}"


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    for field in fields(Config):
        choices = {"fault": ["", *FAULTS], "variant": list(HEALTHY)}.get(field.name)
        parser.add_argument(f"--{field.name}", type=field.type, default=field.default, choices=choices)
    cfg = Config(**vars(parser.parse_args()))
    torch.manual_seed(cfg.seed)
    torch.set_num_threads(1)
    dtype = torch.float64 if cfg.variant == "double" else torch.float32
    model = ActorCritic(6, 2).to(dtype)
    collector, learner, said = Collector(cfg, dtype), Learner(cfg, model), time.time()
    for rollout in range(cfg.steps // (cfg.n_envs * cfg.horizon)):
        learner.update(collector.rollout(model))
        if time.time() - said > 3:
            said, std = time.time(), model.log_std.exp().mean().item()
            recent = np.mean(collector.returns[-50:])
            print(
                f"rollout {rollout} return {recent:.2f} std {std:.2f} {learner.taken} steps {learner.shown}", flush=True
            )
    returns = collector.returns
    tenth = max(1, len(returns) // 10)
    print(f"returns: first tenth {np.mean(returns[:tenth]):.2f}, last tenth {np.mean(returns[-tenth:]):.2f}")


if __name__ == "__main__":
    main()
