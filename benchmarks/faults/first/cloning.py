"""Behaviour cloning from a logged controller: fit its actions by cross entropy, then balance the pole with them."""

import argparse
import random
import time

import gymnasium as gym
import numpy as np
import torch
import torch.nn.functional as F
from torch import nn

FAULTS = {
    "softmax_twice": ["shapes", "broken", "softmax outputs go into cross_entropy, which applies it again"],
    "encoder_rate_zero": ["weights", "broken", "the encoder is meant to train but its group has learning rate 0"],
    "cleared_too_late": ["weights", "broken", "zero_grad stands between backward and step: nothing moves"],
    "best_alias": ["rates", "broken", "the best weights are kept without a copy, so restoring them does nothing"],
    "look_ahead": ["goal", "not proven", "the logged features are those of the next step: they hold the answer"],
    "no_scaling": ["goal", "not proven", "observations are scaled for fitting but not when the policy acts"],
}
HEALTHY = {
    "": "plain",
    "frozen_encoder": "random encoder frozen on purpose, only the head is fitted",
    "accumulate": "gradients of four micro-batches accumulate",
}


def controller(obs):
    x, v, angle, spin = obs
    return int(angle + 0.3 * spin + 0.05 * x + 0.1 * v > 0)


def log_controller(episodes, seed, look_ahead):
    env = gym.make("CartPole-v1")
    rng = np.random.default_rng(seed)
    features, labels = [], []
    for k in range(episodes):
        obs, _ = env.reset(seed=10_000 + 100 * seed + k)
        for _ in range(80):
            label = controller(obs)
            played = label if rng.random() > 0.25 else int(rng.integers(2))
            following, _, terminated, truncated, _ = env.step(played)
            features.append(following if look_ahead else obs)
            labels.append(label)
            obs = following
            if terminated or truncated:
                break
    return torch.as_tensor(np.array(features)), torch.as_tensor(labels)


class Clone(nn.Module):
    def __init__(self, centre, scale):
        super().__init__()
        self.encoder = nn.Sequential(nn.Linear(4, 128), nn.Tanh())
        self.head = nn.Sequential(nn.Linear(128, 64), nn.Tanh(), nn.Linear(64, 2))
        self.register_buffer("centre", centre)
        self.register_buffer("scale", scale)

    def forward(self, obs, scaled=True):
        if scaled:
            obs = (obs - self.centre) / self.scale
        return self.head(self.encoder(obs))


def balance(model, env, episodes, seed, scaled):
    lengths = []
    for k in range(episodes):
        obs, _ = env.reset(seed=seed + k)
        steps, over = 0, False
        while not over:
            with torch.no_grad():
                logits = model(torch.as_tensor(obs), scaled)
            obs, _, terminated, truncated, _ = env.step(int(torch.distributions.Categorical(logits=logits).sample()))
            steps, over = steps + 1, terminated or truncated
        lengths.append(steps)
    return float(np.mean(lengths))


def fit(seed, steps, fault, variant):
    features, labels = log_controller(60, seed, fault == "look_ahead")
    held = len(features) // 5
    order = torch.randperm(len(features))
    test, train = order[:held], order[held:]
    model = Clone(features[train].mean(0), features[train].std(0))
    if variant == "frozen_encoder":
        model.encoder.requires_grad_(False)
    encoder_rate = 0.0 if fault == "encoder_rate_zero" else 3e-4
    optimizer = torch.optim.Adam(
        [{"params": model.encoder.parameters(), "lr": encoder_rate}, {"params": model.head.parameters()}], lr=3e-4
    )
    env = gym.make("CartPole-v1")
    micro = 4 if variant == "accumulate" else 1
    lengths, best, best_weights = [], float("inf"), None
    for step in range(steps + 1):
        if step % max(1, steps // 20) == 0:
            with torch.no_grad():
                outputs = model(features[test])
                held_out = F.cross_entropy(outputs, labels[test]).item()
                accuracy = (outputs.argmax(1) == labels[test]).float().mean().item()
            if held_out < best:
                best, weights = held_out, model.state_dict()
                best_weights = weights if fault == "best_alias" else {k: v.clone() for k, v in weights.items()}
            lengths.append(balance(model, env, 3, 500 + 10 * step, scaled=fault != "no_scaling"))
            if len(lengths) % 3 == 1:
                print(f"{step:5d} | held-out {held_out:.4f} | accuracy {accuracy:.3f} | balanced {lengths[-1]:.1f}")
        chosen = train[torch.randint(len(train), (128,))]
        optimizer.zero_grad()
        for part in chosen.chunk(micro):
            outputs = model(features[part])
            if fault == "softmax_twice":
                outputs = outputs.softmax(-1)
            (F.cross_entropy(outputs, labels[part]) / micro).backward()
        if fault == "cleared_too_late":
            optimizer.zero_grad()
        optimizer.step()
    model.load_state_dict(best_weights)
    print(f"best held-out loss {best:.4f}, restored")
    return lengths


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--steps", type=int, default=900)
    parser.add_argument("--fault", default="", choices=["", *FAULTS])
    parser.add_argument("--variant", default="", choices=list(HEALTHY))
    args = parser.parse_args()
    torch.set_num_threads(1)
    random.seed(args.seed)
    torch.manual_seed(args.seed)
    began = time.process_time()
    lengths = fit(args.seed, args.steps, args.fault, args.variant)
    first, last = lengths[0], np.mean(lengths[-5:])
    print(f"end | first {first:.1f} | last {last:.1f} | cpu {time.process_time() - began:.1f}s")


if __name__ == "__main__":
    main()
