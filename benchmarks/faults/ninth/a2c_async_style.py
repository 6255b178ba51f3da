"""
Advantage actor-critic after the old A3C tutorials: a global net, workers with nets of their own that push their
gradients and pull the weights. The workers are no processes here, they take turns, so that a run can be repeated.
"""

import argparse
import copy
import time

import gymnasium as gym
import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
from gymnasium.wrappers import TimeLimit

FAULTS = {
    "global_zero_grad": [
        "weights",
        "broken",
        "only the global optimizer's gradients are cleared; those of the workers' nets add up from push to push",
    ],
    "td_detached": [
        "weights",
        "broken",
        "the values are detached where the td error is made, so that the critic's loss has no gradient",
    ],
    "not_reversed": [
        "returns",
        "broken",
        "the targets are collected from the last step backwards and never turned round: first and last are swapped",
    ],
    "softmax_twice": [
        "shapes",
        "broken",
        "the loss hands probabilities over as logits, so the log-probs are not of the policy that was sampled",
    ],
    "entropy_added": [
        "signs",
        "broken",
        "the entropy is added to the loss instead of being taken away, so that exploration is punished",
    ],
    "best_by_reference": [
        "rates",
        "broken",
        "the best weights are kept as a state dict without a copy, so that restoring them at the end does nothing",
    ],
    "put_up_again": [
        "goal",
        "not proven",
        "a wrapper quietly puts the fallen pole up again and hides the end: every episode scores the maximum",
    ],
}
HEALTHY = {
    "": "plain: four workers, Adam, ten-step returns, the time limit bootstraps",
    "gather": "the global net gathers the gradients of three pushes, each divided by three, before it moves",
    "warm": "the learning rate climbs from zero over the first 300 pushes, AdamW with weight decay",
    "shadow": "a moving average of the global weights is kept aside and used for the test games only",
}

GAMMA = 0.97
BETA = 0.01
UPDATE_GLOBAL_ITER = 10
N_WORKERS = 4
MAX_STEPS = 80_000
EP_LIMIT = 200
LR = 6e-4


class PutUpAgain(gym.Wrapper):
    def step(self, action):
        s, r, terminated, truncated, info = self.env.step(action)
        if terminated:
            s, info = self.env.reset()
        return s, r, False, truncated, info


def make_env(fault):
    env = gym.make("CartPole-v1").unwrapped
    if fault == "put_up_again":
        env = PutUpAgain(env)
    return TimeLimit(env, EP_LIMIT)


def v_wrap(np_array, dtype=np.float32):
    return torch.from_numpy(np.asarray(np_array, dtype=dtype))


def set_init(layers):
    for layer in layers:
        nn.init.normal_(layer.weight, mean=0.0, std=0.1)
        nn.init.constant_(layer.bias, 0.0)


class Net(nn.Module):
    def __init__(self, s_dim, a_dim, fault=""):
        super().__init__()
        self.fault = fault
        self.pi1 = nn.Linear(s_dim, 128)
        self.pi2 = nn.Linear(128, a_dim)
        self.v1 = nn.Linear(s_dim, 128)
        self.v2 = nn.Linear(128, 1)
        set_init([self.pi1, self.pi2, self.v1, self.v2])

    def forward(self, x):
        pi1 = torch.tanh(self.pi1(x))
        v1 = F.relu(self.v1(x))
        return self.pi2(pi1), self.v2(v1)

    @torch.no_grad()
    def choose_action(self, s, greedy=False):
        logits, _ = self.forward(s)
        if greedy:
            return logits.argmax(1).item()
        return torch.multinomial(F.softmax(logits, dim=1), 1).item()

    def loss_func(self, s, a, v_t):
        logits, values = self.forward(s)
        values = values.squeeze(1)
        td = v_t - (values.detach() if self.fault == "td_detached" else values)
        c_loss = td.pow(2)

        if self.fault == "softmax_twice":
            m = torch.distributions.Categorical(logits=F.softmax(logits, dim=1))
        else:
            m = torch.distributions.Categorical(probs=F.softmax(logits, dim=1))
        exp_v = m.log_prob(a) * td.detach()
        bonus = BETA * m.entropy()
        a_loss = -exp_v + bonus if self.fault == "entropy_added" else -exp_v - bonus
        return (a_loss + 0.5 * c_loss).mean()


class Master:
    """The global net with its optimizer, and the record of all games."""

    def __init__(self, gnet, fault, variant):
        self.gnet, self.fault, self.variant = gnet, fault, variant
        if variant == "warm":
            self.opt = torch.optim.AdamW(gnet.parameters(), lr=LR, betas=(0.92, 0.999), weight_decay=1e-2)
            self.sched = torch.optim.lr_scheduler.LambdaLR(self.opt, lambda n: min(1.0, n / 300))
        else:
            self.opt = torch.optim.Adam(gnet.parameters(), lr=LR, betas=(0.92, 0.999))
            self.sched = None
        self.shadow = copy.deepcopy(gnet) if variant == "shadow" else None
        self.pushes, self.steps = 0, 0
        self.ep_r, self.moving, self.best_r, self.best = [], None, 0.0, None

    def take(self, lnet):
        share = 3 if self.variant == "gather" else 1
        nn.utils.clip_grad_norm_(lnet.parameters(), 5.0)
        for lp, gp in zip(lnet.parameters(), self.gnet.parameters(), strict=True):
            if share == 1:
                gp.grad = lp.grad
            elif gp.grad is None:
                gp.grad = lp.grad / share
            else:
                gp.grad += lp.grad / share
        self.pushes += 1
        if self.pushes % share:
            return
        self.opt.step()
        if share > 1 or self.fault == "global_zero_grad":
            self.opt.zero_grad()
        if self.sched is not None:
            self.sched.step()
        if self.shadow is not None:
            with torch.no_grad():
                for slow, fast in zip(self.shadow.parameters(), self.gnet.parameters(), strict=True):
                    slow += 0.005 * (fast - slow)

    def record(self, ep_r, name):
        self.ep_r.append(ep_r)
        self.moving = ep_r if self.moving is None else self.moving * 0.95 + ep_r * 0.05
        if len(self.ep_r) > 50 and self.moving > self.best_r:
            self.best_r = self.moving
            weights = self.gnet.state_dict()
            self.best = weights if self.fault == "best_by_reference" else copy.deepcopy(weights)
        if len(self.ep_r) % 40 == 0:
            print(f"{name} step {self.steps:6d} ep {len(self.ep_r):4d} | ep_r {self.moving:.1f}", flush=True)


def push_and_pull(master, lnet, terminated, s_, bs, ba, br):
    if terminated:
        v_s_ = 0.0
    else:  # the game goes on, or only the clock has stopped it
        with torch.no_grad():
            v_s_ = lnet.forward(v_wrap(s_[None, :]))[-1].item()

    buffer_v_target = []
    for r in br[::-1]:
        v_s_ = r + GAMMA * v_s_
        buffer_v_target.append(v_s_)
    if master.fault != "not_reversed":
        buffer_v_target.reverse()

    loss = lnet.loss_func(v_wrap(np.vstack(bs)), v_wrap(ba, np.int64), v_wrap(buffer_v_target))
    if master.fault != "global_zero_grad":
        lnet.zero_grad()
    loss.backward()
    master.take(lnet)
    lnet.load_state_dict(master.gnet.state_dict())
    return loss.item()


class Worker:
    def __init__(self, master, index, seed):
        self.name = f"w{index}"
        self.master = master
        self.lnet = copy.deepcopy(master.gnet)
        self.env = make_env(master.fault)
        self.seed = seed * 100 + index

    def run(self):
        """Plays for ever; every push to the global net hands the turn to the next worker."""
        s, _ = self.env.reset(seed=self.seed)
        buffer_s, buffer_a, buffer_r = [], [], []
        ep_r = 0.0
        while True:
            a = self.lnet.choose_action(v_wrap(s[None, :]))
            s_, r, terminated, truncated, _ = self.env.step(a)
            over = terminated or truncated
            ep_r += r
            buffer_s.append(s)
            buffer_a.append(a)
            buffer_r.append(r / 10.0)
            self.master.steps += 1

            if over or len(buffer_s) == UPDATE_GLOBAL_ITER:
                push_and_pull(self.master, self.lnet, terminated, s_, buffer_s, buffer_a, buffer_r)
                buffer_s, buffer_a, buffer_r = [], [], []
                if over:
                    self.master.record(ep_r, self.name)
                    ep_r = 0.0
                    s_, _ = self.env.reset()
                yield
            s = s_


def play(net, seed, n_games=5):
    env = make_env("")
    scores = []
    for i in range(n_games):
        s, _ = env.reset(seed=seed + i)
        scores.append(0.0)
        over = False
        while not over:
            s, r, terminated, truncated, _ = env.step(net.choose_action(v_wrap(s[None, :]), greedy=True))
            scores[-1] += r
            over = terminated or truncated
    return float(np.mean(scores))


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--fault", choices=["", *FAULTS], default="")
    parser.add_argument("--variant", choices=[*HEALTHY], default="")
    args = parser.parse_args()

    torch.manual_seed(args.seed)
    torch.set_num_threads(1)
    t0 = time.time()
    probe = make_env("")
    gnet = Net(probe.observation_space.shape[0], int(probe.action_space.n), args.fault)
    master = Master(gnet, args.fault, args.variant)
    turns = [Worker(master, i, args.seed).run() for i in range(N_WORKERS)]
    while master.steps < MAX_STEPS:
        for turn in turns:
            next(turn)

    if master.shadow is not None:
        print(f"shadow weights play {play(master.shadow, 9000):.1f}")
    if master.best is not None:
        gnet.load_state_dict(master.best)
        print(f"best weights (moving return {master.best_r:.1f}) play {play(gnet, 9000):.1f}")
    games = master.ep_r
    print(f"first 50: {np.mean(games[:50]):.1f}, last 50: {np.mean(games[-50:]):.1f}, {time.time() - t0:.1f} s")
