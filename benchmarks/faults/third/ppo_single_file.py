"""PPO on CartPole-v1, one file. Vectorised with Gymnasium 1.x, GAE, minibatches, annealed learning rate."""

import argparse
import time
from dataclasses import dataclass, fields

import gymnasium as gym
import numpy as np
import torch
import torch.nn as nn
from gymnasium.vector import AutoresetMode, SyncVectorEnv
from torch.distributions.categorical import Categorical

FAULTS = {
    "reset_rows": ["returns", "broken", "the step on which the vector env resets is trained on as a real transition"],
    "resampled": ["shapes", "broken", "the update draws fresh actions, so the ratio is not that of the stored actions"],
    "transposed": ["shapes", "broken", "advantages are flattened env-major, observations and actions time-major"],
    "min_losses": ["signs", "broken", "min instead of max of the two negated surrogates: the optimistic one is kept"],
    "lr_units": ["rates", "broken", "schedule counted in iterations is stepped per epoch: rate 0 after a quarter"],
    "late_head": ["weights", "broken", "the critic's output layer is replaced after the optimizer was built"],
}
HEALTHY = {
    "": "plain",
    "same_step": "same-step autoreset, final observations taken from the infos",
    "accumulate": "each minibatch is split in two micro-batches whose gradients are accumulated with weights",
    "target_kl": "the epochs of an iteration stop early when the policy has moved far enough",
}


@dataclass
class Args:
    seed: int = 0
    steps: int = 140_000
    fault: str = ""
    variant: str = ""
    env_id: str = "CartPole-v1"
    learning_rate: float = 1e-3
    num_envs: int = 8
    num_steps: int = 128
    gamma: float = 0.99
    gae_lambda: float = 0.95
    num_minibatches: int = 4
    update_epochs: int = 4
    clip_coef: float = 0.2
    ent_coef: float = 0.01
    vf_coef: float = 0.5
    max_grad_norm: float = 0.5
    target_kl: float = 0.015


def parse_args():
    parser = argparse.ArgumentParser()
    for f in fields(Args):
        choices = {"fault": ["", *FAULTS], "variant": list(HEALTHY)}.get(f.name)
        parser.add_argument("--" + f.name.replace("_", "-"), type=f.type, default=f.default, choices=choices)
    return Args(**vars(parser.parse_args()))


def layer_init(layer, std=2**0.5, bias_const=0.0):
    nn.init.orthogonal_(layer.weight, std)
    nn.init.constant_(layer.bias, bias_const)
    return layer


class Agent(nn.Module):
    def __init__(self, envs):
        super().__init__()
        obs_dim = int(np.prod(envs.single_observation_space.shape))
        self.critic = self.mlp(obs_dim, 1, std=1.0)
        self.actor = self.mlp(obs_dim, envs.single_action_space.n, std=0.01)

    @staticmethod
    def mlp(n_in, n_out, std):
        first, second = layer_init(nn.Linear(n_in, 64)), layer_init(nn.Linear(64, 64))
        return nn.Sequential(first, nn.Tanh(), second, nn.Tanh(), layer_init(nn.Linear(64, n_out), std=std))

    def get_value(self, x):
        return self.critic(x).squeeze(-1)

    def get_action_and_value(self, x, action=None):
        dist = Categorical(logits=self.actor(x))
        if action is None:
            action = dist.sample()
        return action, dist.log_prob(action), dist.entropy(), self.get_value(x)


if __name__ == "__main__":
    args = parse_args()
    torch.manual_seed(args.seed)
    rng = np.random.default_rng(args.seed)
    torch.set_num_threads(1)

    mode = AutoresetMode.SAME_STEP if args.variant == "same_step" else AutoresetMode.NEXT_STEP
    envs = SyncVectorEnv([lambda: gym.make(args.env_id)] * args.num_envs, autoreset_mode=mode)
    agent = Agent(envs)
    optimizer = torch.optim.Adam(agent.parameters(), lr=args.learning_rate, eps=1e-5)
    if args.fault == "late_head":
        agent.critic[-1] = layer_init(nn.Linear(64, 1), std=1.0)
    num_iterations = max(1, args.steps // (args.num_steps * args.num_envs))
    scheduler = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda n: max(0.0, 1.0 - n / num_iterations))

    # ALGO Logic: storage
    shape = (args.num_steps, args.num_envs)
    obs = torch.zeros(shape + envs.single_observation_space.shape)
    successors = torch.zeros_like(obs)
    actions = torch.zeros(shape, dtype=torch.long)
    logprobs, rewards, values = torch.zeros(shape), torch.zeros(shape), torch.zeros(shape)
    terminated, dones = torch.zeros(shape), torch.zeros(shape)
    valid = torch.ones(shape, dtype=torch.bool)

    next_obs, _ = envs.reset(seed=args.seed)
    resetting = np.zeros(args.num_envs, dtype=bool)  # next-step mode: this step only resets, the action is ignored
    running = np.zeros(args.num_envs)
    history = []
    start = last_print = time.time()

    for iteration in range(1, num_iterations + 1):
        for step in range(args.num_steps):
            obs[step] = torch.as_tensor(next_obs)
            valid[step] = torch.as_tensor(~resetting)
            with torch.no_grad():
                actions[step], logprobs[step], _, values[step] = agent.get_action_and_value(obs[step])
            next_obs, reward, term, trunc, infos = envs.step(actions[step].numpy())
            done = term | trunc
            successor = next_obs
            if args.variant == "same_step":
                if done.any():
                    successor = next_obs.copy()
                    for i in np.flatnonzero(done):
                        successor[i] = infos["final_obs"][i]
            else:
                resetting = done
            successors[step] = torch.as_tensor(successor)
            rewards[step] = torch.as_tensor(reward)
            terminated[step], dones[step] = torch.as_tensor(term), torch.as_tensor(done)
            running += reward
            history.extend(running[done].tolist())
            running[done] = 0.0

        # advantages; a time limit ends the trace but is bootstrapped
        with torch.no_grad():
            next_values = agent.get_value(successors)
        deltas = rewards + args.gamma * next_values * (1.0 - terminated) - values
        advantages = torch.zeros_like(rewards)
        lastgaelam = torch.zeros(args.num_envs)
        for t in reversed(range(args.num_steps)):
            lastgaelam = deltas[t] + args.gamma * args.gae_lambda * (1.0 - dones[t]) * lastgaelam
            advantages[t] = lastgaelam
        returns = advantages + values

        # flatten the batch
        b_obs = obs.reshape((-1, *envs.single_observation_space.shape))
        b_actions, b_logprobs = actions.reshape(-1), logprobs.reshape(-1)
        b_advantages, b_returns = advantages.reshape(-1), returns.reshape(-1)
        if args.fault == "transposed":
            b_advantages = advantages.T.reshape(-1)
        b_inds = np.flatnonzero(valid.reshape(-1).numpy())
        if args.fault == "reset_rows":
            b_inds = np.arange(args.num_steps * args.num_envs)

        for _epoch in range(args.update_epochs):
            rng.shuffle(b_inds)
            kls = []
            for minibatch in np.array_split(b_inds, args.num_minibatches):
                adv_mean, adv_std = b_advantages[minibatch].mean(), b_advantages[minibatch].std()
                optimizer.zero_grad()
                for mb in np.array_split(minibatch, 2 if args.variant == "accumulate" else 1):
                    given = None if args.fault == "resampled" else b_actions[mb]
                    _, newlogprob, entropy, newvalue = agent.get_action_and_value(b_obs[mb], given)
                    logratio = newlogprob - b_logprobs[mb]
                    ratio = logratio.exp()
                    mb_adv = (b_advantages[mb] - adv_mean) / (adv_std + 1e-8)
                    pg_loss1 = -mb_adv * ratio
                    pg_loss2 = -mb_adv * torch.clamp(ratio, 1 - args.clip_coef, 1 + args.clip_coef)
                    keep = torch.min if args.fault == "min_losses" else torch.max
                    pg_loss = keep(pg_loss1, pg_loss2).mean()
                    v_loss = 0.5 * ((newvalue - b_returns[mb]) ** 2).mean()
                    loss = pg_loss - args.ent_coef * entropy.mean() + args.vf_coef * v_loss
                    (loss * len(mb) / len(minibatch)).backward()
                    kls.append(((ratio - 1) - logratio).mean().item())
                nn.utils.clip_grad_norm_(agent.parameters(), args.max_grad_norm)
                optimizer.step()
            if args.fault == "lr_units":
                scheduler.step()
            if args.variant == "target_kl" and np.mean(kls) > args.target_kl:
                break
        if args.fault != "lr_units":
            scheduler.step()

        if time.time() - last_print > 3:
            last_print = time.time()
            losses = f"pg {pg_loss.item():+.4f}  v {v_loss.item():8.3f}  kl {np.mean(kls):.4f}"
            global_step = iteration * args.num_steps * args.num_envs
            print(f"step {global_step:7d}  return {np.mean(history[-40:]):7.1f}  {losses}", flush=True)

    envs.close()
    tenth = max(1, len(history) // 10)
    print(f"episodes {len(history)}  seconds {time.time() - start:.0f}")
    print(f"mean return: first tenth {np.mean(history[:tenth]):.1f}, last tenth {np.mean(history[-tenth:]):.1f}")
