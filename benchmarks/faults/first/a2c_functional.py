"""Advantage actor-critic in functions and dictionaries: eight CartPoles, n-step returns, RMSprop."""

import argparse
import random
import time

import gymnasium as gym
import numpy as np
import torch
import torch.nn.functional as F

FAULTS = {
    "cross_episode": ["returns", "broken", "the return runs on across the end of an episode (CleanRL #494)"],
    "autoreset_stored": ["returns", "broken", "the ignored reset step is stored as a transition (CleanRL #499)"],
    "along_batch": ["rates", "broken", "the backward sum runs along the environments instead of along time"],
    "logprob_rebuilt": ["weights", "broken", "log-probs rebuilt with torch.tensor: the graph is cut (SLM-Lab #133)"],
    "features_left_out": ["weights", "broken", "the shared feature layer is in no optimizer (genrl #315)"],
    "entropy_summed": ["rates", "not proven", "entropy summed over the batch, not averaged (shape of rsl_rl #65)"],
    "values_attached": ["signs", "broken", "the advantage keeps its graph, so the actor loss trains the critic"],
}
HEALTHY = {
    "": "plain",
    "accumulate": "gradients of two rollouts are accumulated before each step",
    "decay": "weight decay in RMSprop",
    "frozen_features": "random features frozen on purpose and kept out of the optimizer; only the heads train",
}


def linear(inputs, outputs, gain=1.0):
    weight = torch.empty(outputs, inputs)
    torch.nn.init.orthogonal_(weight, gain)
    return {"w": weight.requires_grad_(), "b": torch.zeros(outputs, requires_grad=True)}


def make_network(n_obs, n_actions, width):
    return {
        "features": linear(n_obs, width, 2**0.5),
        "policy": linear(width, n_actions, 0.01),
        "value": linear(width, 1),
    }


def forward(net, x):
    hidden = torch.tanh(F.linear(x, net["features"]["w"], net["features"]["b"]))
    logits = F.linear(hidden, net["policy"]["w"], net["policy"]["b"])
    value = F.linear(hidden, net["value"]["w"], net["value"]["b"])
    return F.log_softmax(logits, dim=-1), value.squeeze(-1)


def as_float(array):
    return torch.as_tensor(np.asarray(array), dtype=torch.float32)


def make_sampler(net, envs, seed, n_steps, fault):
    """Returns a function that plays n steps in each environment and gives them back as one dictionary."""
    first, _ = envs.reset(seed=seed)
    memory = {"obs": first, "returns": np.zeros(envs.num_envs), "episodes": []}

    def play():
        rows = {key: [] for key in ("obs", "action", "reward", "terminated", "ended", "cut_value")}
        for _ in range(n_steps):
            with torch.no_grad():
                log_probs, _ = forward(net, as_float(memory["obs"]))
            action = torch.multinomial(log_probs.exp(), 1).squeeze(-1)
            obs, reward, terminated, truncated, info = envs.step(action.numpy())
            ended = terminated | truncated
            cut_value = np.zeros(envs.num_envs)
            for i in np.flatnonzero(truncated & ~terminated):
                reached = obs[i] if fault == "autoreset_stored" else info["final_obs"][i]
                with torch.no_grad():
                    cut_value[i] = forward(net, as_float(reached))[1].item()
            for key, item in zip(rows, (memory["obs"], action, reward, terminated, ended, cut_value), strict=True):
                rows[key].append(item)
            memory["obs"] = obs
            memory["returns"] += reward
            for i in np.flatnonzero(ended):
                memory["episodes"].append(memory["returns"][i])
                memory["returns"][i] = 0.0
        batch = {key: as_float(np.stack([np.asarray(x) for x in column])) for key, column in rows.items()}
        return {**batch, "last_obs": as_float(memory["obs"])}

    return play, memory


def n_step_returns(batch, last_value, gamma, fault):
    reward = batch["reward"] + gamma * batch["cut_value"]
    keep = 1.0 - batch["ended"]
    if fault == "cross_episode":
        keep = torch.ones_like(keep)
    out = torch.zeros_like(reward)
    if fault == "along_batch":
        running = last_value.mean()
        for i in reversed(range(reward.shape[1])):
            running = reward[:, i] + gamma * keep[:, i] * running
            out[:, i] = running
        return out
    running = last_value
    for t in reversed(range(reward.shape[0])):
        running = reward[t] + gamma * keep[t] * running
        out[t] = running
    return out


def a2c_loss(net, batch, settings, fault):
    with torch.no_grad():
        _, last_value = forward(net, batch["last_obs"])
    target = n_step_returns(batch, last_value, settings["gamma"], fault)
    log_probs, value = forward(net, batch["obs"])
    chosen = log_probs.gather(-1, batch["action"].long().unsqueeze(-1)).squeeze(-1)
    if fault == "logprob_rebuilt":
        chosen = torch.tensor([[x.item() for x in row] for row in chosen])
    advantage = target - value
    weight = advantage if fault == "values_attached" else advantage.detach()
    entropy = -(log_probs.exp() * log_probs).sum(-1)
    bonus = entropy.sum() if fault == "entropy_summed" else entropy.mean()
    policy_loss = -(chosen * weight).mean()
    value_loss = advantage.pow(2).mean()
    loss = policy_loss + settings["value_weight"] * value_loss - settings["entropy_weight"] * bonus
    return loss, entropy.mean().item()


def make_updater(net, settings, fault, variant):
    trained = ["features", "policy", "value"]
    if fault == "features_left_out":
        trained.remove("features")
    if variant == "frozen_features":
        trained.remove("features")
        for tensor in net["features"].values():
            tensor.requires_grad_(False)
    tensors = [tensor for name in trained for tensor in net[name].values()]
    decay = 1e-4 if variant == "decay" else 0.0
    optimizer = torch.optim.RMSprop(tensors, lr=settings["lr"], alpha=0.99, eps=1e-5, weight_decay=decay)
    every = 2 if variant == "accumulate" else 1
    calls = {"n": 0}

    def update(batch):
        loss, entropy = a2c_loss(net, batch, settings, fault)
        (loss / every).backward()
        calls["n"] += 1
        if calls["n"] % every == 0:
            torch.nn.utils.clip_grad_norm_(tensors, settings["max_norm"])
            optimizer.step()
            optimizer.zero_grad()
        return loss.item(), entropy

    return update


def train(seed, steps, fault, variant):
    settings = {
        "n_envs": 8,
        "n_steps": 16,
        "gamma": 0.98,
        "lr": 2e-3,
        "value_weight": 0.25,
        "entropy_weight": 0.005,
        "max_norm": 0.5,
    }
    mode = gym.vector.AutoresetMode.NEXT_STEP if fault == "autoreset_stored" else gym.vector.AutoresetMode.SAME_STEP
    envs = gym.vector.SyncVectorEnv([lambda: gym.make("CartPole-v1")] * settings["n_envs"], autoreset_mode=mode)
    net = make_network(4, 2, 256 if variant == "frozen_features" else 64)
    play, memory = make_sampler(net, envs, seed, settings["n_steps"], fault)
    update = make_updater(net, settings, fault, variant)
    per_update = settings["n_envs"] * settings["n_steps"]
    for n in range(1, max(2, steps // per_update) + 1):
        loss, entropy = update(play())
        if n % 100 == 0:
            recent = np.mean(memory["episodes"][-30:])
            print(f"update {n:5d} | loss {loss:8.3f} | entropy {entropy:.3f} | return {recent:6.1f}")
    envs.close()
    return memory["episodes"]


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--steps", type=int, default=120_000)
    parser.add_argument("--fault", default="", choices=["", *FAULTS])
    parser.add_argument("--variant", default="", choices=[*HEALTHY])
    args = parser.parse_args()
    torch.set_num_threads(1)
    for seeder in (random.seed, np.random.seed, torch.manual_seed):
        seeder(args.seed)
    clock = time.process_time()
    episodes = train(args.seed, args.steps, args.fault, args.variant)
    early, late = np.mean(episodes[:30]), np.mean(episodes[-30:])
    print(f"end | first 30 episodes {early:.1f} | last 30 {late:.1f} | cpu {time.process_time() - clock:.1f}s")


if __name__ == "__main__":
    main()
