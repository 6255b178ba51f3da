"""Vanilla policy gradient with a GAE-lambda buffer, separate optimizers and many value steps per epoch (CartPole)."""

import argparse
import time
from copy import deepcopy

import gymnasium as gym
import numpy as np
import torch
import torch.nn as nn
from torch.distributions.categorical import Categorical
from torch.optim import Adam

FAULTS = {
    "v_never_cleared": ["weights", "broken", "value gradients are cleared once per epoch, not once per iteration"],
    "path_start_kept": [
        "returns",
        "broken",
        "path_start_idx is never moved: each path is summed from the epoch's start",
    ],
    "cut_worth_nothing": ["returns", "broken", "a path cut by the epoch or the time limit is closed with value 0"],
    "value_column": ["shapes", "broken", "the critic's output keeps its last axis: (N, 1) minus (N,)"],
    "baseline_added": ["signs", "broken", "the TD residual adds the value of the present state"],
    "whirl": ["goal", "not proven", "pay is the pole's angular speed and a fall does not end the episode: it whirls"],
}
HEALTHY = {
    "": "plain: two optimizers, forty value iterations after one policy step",
    "popart_like": "the value net learns returns scaled by a fixed 1/50 and is unscaled on use",
    "value_warmup": "in the first four epochs only the value function is trained",
    "ema_actor": "Huber loss, weight decay on the critic; a moving average of the actor is kept beside it",
}


class Whirl(gym.Wrapper):
    def step(self, action):
        obs, _, _, truncated, info = self.env.step(action)
        return obs, min(1.0, abs(float(obs[3])) / 10.0), False, truncated, info


def mlp(sizes, activation, output_activation=nn.Identity):
    layers = []
    for j in range(len(sizes) - 1):
        act = activation if j < len(sizes) - 2 else output_activation
        layers += [nn.Linear(sizes[j], sizes[j + 1]), act()]
    return nn.Sequential(*layers)


def discount_cumsum(x, discount):
    """[x0 + d x1 + d^2 x2, x1 + d x2, x2]"""
    out, running = np.zeros(len(x), dtype=np.float32), 0.0
    for i in range(len(x) - 1, -1, -1):
        running = x[i] + discount * running
        out[i] = running
    return out


class CategoricalActor(nn.Module):
    def __init__(self, obs_dim, act_dim, hidden_sizes, activation):
        super().__init__()
        self.logits_net = mlp([obs_dim, *hidden_sizes, act_dim], activation)

    def _distribution(self, obs):
        return Categorical(logits=self.logits_net(obs))

    def forward(self, obs, act=None):
        pi = self._distribution(obs)
        return pi, None if act is None else pi.log_prob(act)


class Critic(nn.Module):
    def __init__(self, obs_dim, hidden_sizes, activation, squeeze=True):
        super().__init__()
        self.v_net = mlp([obs_dim, *hidden_sizes, 1], activation)
        self.squeeze = squeeze

    def forward(self, obs):
        v = self.v_net(obs)
        return torch.squeeze(v, -1) if self.squeeze else v


class ActorCritic(nn.Module):
    def __init__(self, obs_dim, act_dim, hidden_sizes=(64, 64), activation=nn.Tanh, squeeze=True):
        super().__init__()
        self.pi = CategoricalActor(obs_dim, act_dim, hidden_sizes, activation)
        self.v = Critic(obs_dim, hidden_sizes, activation, squeeze)

    def step(self, obs):
        with torch.no_grad():
            pi = self.pi._distribution(obs)
            a = pi.sample()
            return a.item(), self.v(obs).item(), pi.log_prob(a).item()


class VPGBuffer:
    def __init__(self, obs_dim, size, gamma=0.99, lam=0.95, fault=""):
        self.obs_buf = np.zeros((size, obs_dim), dtype=np.float32)
        self.act_buf, self.adv_buf, self.rew_buf, self.ret_buf, self.val_buf, self.logp_buf = (
            np.zeros(size, dtype=np.float32) for _ in range(6)
        )
        self.gamma, self.lam, self.fault = gamma, lam, fault
        self.ptr, self.path_start_idx, self.max_size = 0, 0, size

    def store(self, obs, act, rew, val, logp):
        assert self.ptr < self.max_size
        self.obs_buf[self.ptr], self.act_buf[self.ptr], self.rew_buf[self.ptr] = obs, act, rew
        self.val_buf[self.ptr], self.logp_buf[self.ptr] = val, logp
        self.ptr += 1

    def finish_path(self, last_val=0.0):
        path_slice = slice(self.path_start_idx, self.ptr)
        rews = np.append(self.rew_buf[path_slice], last_val)
        vals = np.append(self.val_buf[path_slice], last_val)
        deltas = rews[:-1] + self.gamma * vals[1:] - vals[:-1]
        if self.fault == "baseline_added":
            deltas = rews[:-1] + self.gamma * vals[1:] + vals[:-1]
        self.adv_buf[path_slice] = discount_cumsum(deltas, self.gamma * self.lam)
        self.ret_buf[path_slice] = discount_cumsum(rews, self.gamma)[:-1]
        if self.fault != "path_start_kept":
            self.path_start_idx = self.ptr

    def get(self):
        assert self.ptr == self.max_size
        self.ptr, self.path_start_idx = 0, 0
        self.adv_buf = (self.adv_buf - self.adv_buf.mean()) / (self.adv_buf.std() + 1e-8)
        data = {
            "obs": self.obs_buf,
            "act": self.act_buf,
            "ret": self.ret_buf,
            "adv": self.adv_buf,
            "logp": self.logp_buf,
        }
        return {k: torch.as_tensor(v, dtype=torch.float32) for k, v in data.items()}


def vpg(args, steps_per_epoch=2000, gamma=0.99, lam=0.97, pi_lr=1e-2, vf_lr=2e-3, train_v_iters=40):
    torch.manual_seed(args.seed)
    env = gym.make("CartPole-v1")
    if args.fault == "whirl":
        env = Whirl(env)
    ac = ActorCritic(env.observation_space.shape[0], env.action_space.n, squeeze=args.fault != "value_column")
    ema = deepcopy(ac.pi).requires_grad_(False)
    buf = VPGBuffer(env.observation_space.shape[0], steps_per_epoch, gamma, lam, args.fault)
    pi_optimizer = Adam(ac.pi.parameters(), lr=pi_lr)
    decay = 1e-3 if args.variant == "ema_actor" else 0.0
    vf_optimizer = Adam(ac.v.parameters(), lr=vf_lr, weight_decay=decay)
    scale = 50.0 if args.variant == "popart_like" else 1.0
    epochs = max(1, args.steps // steps_per_epoch)

    def compute_loss_pi(data):
        pi, logp = ac.pi(data["obs"], data["act"])
        loss_pi = -(logp * data["adv"]).mean()
        info = {"kl": (data["logp"] - logp).mean().item(), "ent": pi.entropy().mean().item()}
        return loss_pi, info

    def compute_loss_v(data):
        if args.variant == "ema_actor":
            return nn.functional.smooth_l1_loss(ac.v(data["obs"]), data["ret"], beta=10.0)
        return ((ac.v(data["obs"]) - data["ret"] / scale) ** 2).mean()

    def update(epoch):
        data = buf.get()
        pi_optimizer.zero_grad()
        loss_pi, info = compute_loss_pi(data)
        if args.variant != "value_warmup" or epoch >= 4:
            loss_pi.backward()
            pi_optimizer.step()
        vf_optimizer.zero_grad()
        for _ in range(train_v_iters):
            if args.fault != "v_never_cleared":
                vf_optimizer.zero_grad()
            loss_v = compute_loss_v(data)
            loss_v.backward()
            vf_optimizer.step()
        for slow, fast in zip(ema.parameters(), ac.pi.parameters(), strict=True):
            slow.data.lerp_(fast.data, 0.1)
        return loss_pi.item(), loss_v.item(), info

    history, shown = [], time.time()
    (o, _), ep_ret, ep_len = env.reset(seed=args.seed), 0.0, 0
    for epoch in range(epochs):
        for t in range(steps_per_epoch):
            a, v, logp = ac.step(torch.as_tensor(o, dtype=torch.float32))
            next_o, r, terminated, truncated, _ = env.step(a)
            ep_ret += float(r)
            ep_len += 1
            buf.store(o, a, r, v * scale, logp)
            o = next_o
            epoch_ended = t == steps_per_epoch - 1
            if terminated or truncated or epoch_ended:
                if terminated or args.fault == "cut_worth_nothing":
                    v = 0.0
                else:
                    _, v, _ = ac.step(torch.as_tensor(o, dtype=torch.float32))
                buf.finish_path(v * scale)
                if terminated or truncated:
                    history.append(ep_ret)
                (o, _), ep_ret, ep_len = env.reset(), 0.0, 0
        loss_pi, loss_v, info = update(epoch)
        if time.time() - shown > 3 and history:
            shown = time.time()
            print(
                f"Epoch {epoch + 1:3d}/{epochs}  EpRet {np.mean(history[-20:]):7.2f}  LossPi {loss_pi:8.4f}  "
                f"LossV {loss_v:9.3f}  KL {info['kl']:.5f}  Entropy {info['ent']:.3f}",
                flush=True,
            )
    n = max(1, len(history) // 10)
    print(f"first tenth {np.mean(history[:n]):.2f}, last tenth {np.mean(history[-n:]):.2f}")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seed", "-s", type=int, default=0)
    parser.add_argument("--steps", type=int, default=50_000)
    parser.add_argument("--fault", default="", choices=["", *FAULTS])
    parser.add_argument("--variant", default="", choices=list(HEALTHY))
    torch.set_num_threads(1)
    vpg(parser.parse_args())
