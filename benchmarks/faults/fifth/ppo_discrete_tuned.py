"""PPO with the usual tuning on CartPole: plain functions, a vector environment, one namespace of settings."""

import argparse
import time
from itertools import chain
from types import SimpleNamespace

import gymnasium as gym
import numpy as np
import torch
import torch.nn.functional as F
from gymnasium.vector import AutoresetMode, SyncVectorEnv

FAULTS = {
    "filtered_once": ["weights", "broken", "the filter of parameters is used up by the optimizer: clipping sees none"],
    "limit_counted_twice": ["returns", "broken", "a cut episode gets its tail's value in the reward and in the target"],
    "outer_index": ["shapes", "broken", "log-probs are picked as a square: every state with every other's action"],
    "ratio_from_self": ["signs", "broken", "old log-probs come from the current net, so the ratio is always one"],
    "rate_squared": ["rates", "broken", "LambdaLR gets the rate where it wants a factor: the rate is squared"],
    "percent": ["goal", "not proven", "stickiness is given in percent: an episode repeats its first action for ever"],
}
HEALTHY = {
    "": "plain: next-step autoreset with the idle step left out, advantages scaled per minibatch",
    "same_step": "same-step autoreset, the true last observation taken from the infos",
    "whole_rollout": "advantages scaled once per rollout, surrogate spelt as a maximum, critic with its own optimizer",
    "double_by_value": "float64 networks, gradients clipped by value, weight decay, rewards scaled by a tenth",
    "ramp_and_stop": "the rate climbs from zero first, and the epochs end early when the policy has moved far",
}


class StickyActions(gym.Wrapper):
    """With some probability the motor repeats its last command."""

    def __init__(self, env, stickiness):
        super().__init__(env)
        self.stickiness, self.last = stickiness, None

    def reset(self, **kwargs):
        self.last = None
        return self.env.reset(**kwargs)

    def step(self, action):
        if self.last is not None and self.np_random.random() < self.stickiness:
            action = self.last
        self.last = action
        return self.env.step(action)


def make_envs(hp):
    def thunk():
        env = gym.make("CartPole-v1", max_episode_steps=400)
        return StickyActions(env, stickiness=25) if hp.fault == "percent" else env

    mode = AutoresetMode.SAME_STEP if hp.variant == "same_step" else AutoresetMode.NEXT_STEP
    return SyncVectorEnv([thunk] * hp.n_envs, autoreset_mode=mode)


def make_net(n_in, n_out, last_gain, hp):
    net = torch.nn.Sequential(
        torch.nn.Linear(n_in, hp.width), torch.nn.Tanh(), torch.nn.Linear(hp.width, hp.width), torch.nn.Tanh()
    )
    net.append(torch.nn.Linear(hp.width, n_out))
    for layer, gain in ((net[0], 2**0.5), (net[2], 2**0.5), (net[4], last_gain)):
        torch.nn.init.orthogonal_(layer.weight, gain)
        torch.nn.init.zeros_(layer.bias)
    return net.to(hp.dtype)


def make_optimizers(actor, critic, hp):
    both = chain(actor.parameters(), critic.parameters())
    if hp.fault == "filtered_once":
        trainable = filter(lambda p: p.requires_grad, both)
    else:
        trainable = [p for p in both if p.requires_grad]
    if hp.variant == "whole_rollout":
        optimizers = [
            torch.optim.Adam(actor.parameters(), lr=hp.lr, eps=1e-5),
            torch.optim.Adam(critic.parameters(), lr=hp.lr, eps=1e-5),
        ]
    elif hp.variant == "double_by_value":
        optimizers = [torch.optim.AdamW(trainable, lr=hp.lr, eps=1e-5, weight_decay=1e-3)]
    else:
        optimizers = [torch.optim.Adam(trainable, lr=hp.lr, eps=1e-5)]

    def linear(done):
        left = 1.0 - done / hp.n_rollouts
        if hp.fault == "rate_squared":
            return hp.lr * left
        if hp.variant == "ramp_and_stop":
            return min(done / 10, left)
        return left

    return trainable, optimizers, [torch.optim.lr_scheduler.LambdaLR(opt, linear) for opt in optimizers]


@torch.no_grad()
def collect(envs, state, actor, hp):
    """One rollout of hp.n_steps x hp.n_envs; `real` is false where the vector env only resets itself."""
    roll = {key: [] for key in ("obs", "act", "logp", "rew", "term", "trunc", "succ", "real")}
    for _ in range(hp.n_steps):
        obs = torch.as_tensor(state.obs, dtype=hp.dtype)
        logp_all = F.log_softmax(actor(obs), dim=-1)
        act = torch.multinomial(logp_all.exp(), 1).squeeze(1)
        nxt, rew, term, trunc, infos = envs.step(act.numpy())
        succ = nxt.copy()
        if "final_obs" in infos:
            for i in np.flatnonzero(term | trunc):
                succ[i] = infos["final_obs"][i]
        state.running += rew
        for i in np.flatnonzero(term | trunc):
            state.history.append(state.running[i])
            state.running[i] = 0.0
        roll["obs"].append(obs)
        roll["act"].append(act)
        roll["logp"].append(logp_all.gather(1, act[:, None]).squeeze(1))
        roll["rew"].append(torch.as_tensor(rew * hp.reward_scale, dtype=hp.dtype))
        roll["term"].append(torch.as_tensor(term))
        roll["trunc"].append(torch.as_tensor(trunc))
        roll["succ"].append(torch.as_tensor(succ, dtype=hp.dtype))
        roll["real"].append(torch.as_tensor(~state.idle))
        state.obs = nxt
        state.idle = (term | trunc) if hp.variant != "same_step" else np.zeros(hp.n_envs, dtype=bool)
    return {key: torch.stack(parts) for key, parts in roll.items()}


@torch.no_grad()
def advantages_and_targets(roll, critic, hp):
    values, after = critic(roll["obs"]).squeeze(-1), critic(roll["succ"]).squeeze(-1)
    alive = 1.0 - roll["term"].to(hp.dtype)
    going_on = 1.0 - (roll["term"] | roll["trunc"]).to(hp.dtype)
    rew = roll["rew"]
    if hp.fault == "limit_counted_twice":
        rew = rew + hp.gamma * after * (roll["trunc"] & ~roll["term"])
    delta = rew + hp.gamma * alive * after - values
    adv, carry = torch.zeros_like(delta), torch.zeros(hp.n_envs, dtype=hp.dtype)
    for t in reversed(range(hp.n_steps)):
        carry = delta[t] + hp.gamma * hp.lam * going_on[t] * carry
        adv[t] = carry
    return adv, adv + values


def surrogate(ratio, adv, hp):
    clipped = ratio.clamp(1 - hp.clip, 1 + hp.clip)
    if hp.variant == "whole_rollout":
        return torch.maximum(-adv * ratio, -adv * clipped).mean()
    return -torch.minimum(ratio * adv, clipped * adv).mean()


def improve(roll, actor, critic, trainable, optimizers, hp):
    adv, targets = advantages_and_targets(roll, critic, hp)
    keep = roll["real"].flatten().nonzero().squeeze(1)
    obs = roll["obs"].flatten(0, 1)[keep]
    act, old, adv, targets = (x.flatten()[keep] for x in (roll["act"], roll["logp"], adv, targets))
    if hp.variant == "whole_rollout":
        adv = (adv - adv.mean()) / (adv.std() + 1e-8)
    for _ in range(hp.epochs):
        for idx in torch.randperm(len(keep)).chunk(hp.minibatches):
            logp_all = F.log_softmax(actor(obs[idx]), dim=-1)
            if hp.fault == "outer_index":
                logp = logp_all[:, act[idx]]
            else:
                logp = logp_all[torch.arange(len(idx)), act[idx]]
            reference = old[idx]
            if hp.fault == "ratio_from_self":
                with torch.no_grad():
                    reference = F.log_softmax(actor(obs[idx]), dim=-1).gather(1, act[idx][:, None]).squeeze(1)
            a = adv[idx]
            if hp.variant != "whole_rollout":
                a = (a - a.mean()) / (a.std() + 1e-8)
            pi_loss = surrogate((logp - reference).exp(), a, hp)
            v_loss = F.mse_loss(critic(obs[idx]).squeeze(-1), targets[idx])
            entropy = -(logp_all.exp() * logp_all).sum(-1).mean()
            for opt in optimizers:
                opt.zero_grad()
            (pi_loss + hp.v_coef * v_loss - hp.ent_coef * entropy).backward()
            if hp.variant == "double_by_value":
                torch.nn.utils.clip_grad_value_(trainable, 0.05)
            else:
                torch.nn.utils.clip_grad_norm_(trainable, hp.max_norm)
            for opt in optimizers:
                opt.step()
        if hp.variant == "ramp_and_stop":
            with torch.no_grad():
                moved = old - F.log_softmax(actor(obs), dim=-1)[torch.arange(len(act)), act]
            if moved.mean() > 0.015:
                break
    return pi_loss.item(), v_loss.item(), entropy.item()


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--steps", type=int, default=200_000)
    parser.add_argument("--fault", default="", choices=["", *FAULTS])
    parser.add_argument("--variant", default="", choices=[*HEALTHY])
    hp = SimpleNamespace(n_envs=8, n_steps=256, gamma=0.99, lam=0.95, clip=0.2, epochs=5, minibatches=8, lr=4e-4)
    hp.__dict__.update(v_coef=0.5, ent_coef=0.005, max_norm=0.5, width=64, **vars(parser.parse_args()))
    hp.dtype = torch.float64 if hp.variant == "double_by_value" else torch.float32
    hp.reward_scale = 0.1 if hp.variant == "double_by_value" else 1.0
    hp.n_rollouts = hp.steps // (hp.n_envs * hp.n_steps)
    torch.manual_seed(hp.seed)
    envs = make_envs(hp)
    state = SimpleNamespace(obs=envs.reset(seed=hp.seed)[0], idle=np.zeros(hp.n_envs, dtype=bool))
    state.running, state.history = np.zeros(hp.n_envs), []
    actor = make_net(envs.single_observation_space.shape[0], int(envs.single_action_space.n), 0.01, hp)
    critic = make_net(envs.single_observation_space.shape[0], 1, 1.0, hp)
    trainable, optimizers, schedules = make_optimizers(actor, critic, hp)
    shown = time.time()
    for k in range(hp.n_rollouts):
        roll = collect(envs, state, actor, hp)
        pi_loss, v_loss, entropy = improve(roll, actor, critic, trainable, optimizers, hp)
        for schedule in schedules:
            schedule.step()
        if time.time() - shown > 3:
            shown = time.time()
            recent = np.mean(state.history[-30:])
            print(f"{k + 1}/{hp.n_rollouts} return {recent:.1f} pi {pi_loss:.4f} v {v_loss:.2f} H {entropy:.3f}")
    tenth = max(1, len(state.history) // 10)
    print(f"first tenth {np.mean(state.history[:tenth]):.1f}, last tenth {np.mean(state.history[-tenth:]):.1f}")


if __name__ == "__main__":
    main()
