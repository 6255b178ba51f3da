# PPO in one file, for Acrobot-v1, with the wrappers that one usually puts around an environment.
# Eight environments in step, generalised advantages, clipped objective, annealed learning rate.
import argparse
import time

import gymnasium as gym
import numpy as np
import torch
import torch.nn as nn
import torch.optim as optim
from torch.distributions.categorical import Categorical

FAULTS = {
    "adv_env_first": [
        "shapes",
        "broken",
        "the advantages are flattened environment by environment, all other arrays step by step",
    ],
    "lambda_over_the_end": [
        "returns",
        "broken",
        "the bootstrap stops at the end of an episode, the running sum of the advantages does not",
    ],
    "old_is_new": [
        "signs",
        "broken",
        "the old log-probabilities are computed again in every minibatch: the ratio is always one and nothing is clipped",
    ],
    "anneal_compounds": [
        "rates",
        "broken",
        "the annealing multiplies the rate of the last iteration, not the first one: it is zero long before the end",
    ],
    "clip_for_scores": [
        "goal",
        "not proven",
        "the reward wrapper clips to 0..10, which is meant for games with scores: here every reward becomes zero",
    ],
}
HEALTHY = {
    "": "plain: four epochs of four minibatches, normalised observations and rewards, time limits bootstrapped",
    "kl_stop": "up to ten epochs over each rollout, left early as soon as the policy has moved too far",
    "accumulate": "each minibatch goes through in four pieces whose gradients are added up, with a shared trunk",
}


def parse_args():
    parser = argparse.ArgumentParser()
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--steps", type=int, default=80_000, help="environment steps in all")
    parser.add_argument("--fault", default="", choices=["", *FAULTS])
    parser.add_argument("--variant", default="", choices=list(HEALTHY))
    parser.add_argument("--env-id", default="Acrobot-v1")
    parser.add_argument("--learning-rate", type=float, default=1e-3)
    parser.add_argument("--num-envs", type=int, default=8)
    parser.add_argument("--num-steps", type=int, default=128)
    parser.add_argument("--gamma", type=float, default=0.99)
    parser.add_argument("--gae-lambda", type=float, default=0.95)
    parser.add_argument("--num-minibatches", type=int, default=4)
    parser.add_argument("--update-epochs", type=int, default=4)
    parser.add_argument("--clip-coef", type=float, default=0.2)
    parser.add_argument("--ent-coef", type=float, default=0.01)
    parser.add_argument("--vf-coef", type=float, default=0.5)
    parser.add_argument("--max-grad-norm", type=float, default=0.5)
    parser.add_argument("--target-kl", type=float, default=None)
    args = parser.parse_args()
    if args.variant == "kl_stop":
        args.update_epochs, args.target_kl = 10, 0.015
    args.batch_size = args.num_envs * args.num_steps
    args.minibatch_size = args.batch_size // args.num_minibatches
    args.num_iterations = max(1, args.steps // args.batch_size)
    args.grad_pieces = 4 if args.variant == "accumulate" else 1
    return args


def make_env(args):
    lowest = 0.0 if args.fault == "clip_for_scores" else -10.0

    def thunk():
        env = gym.make(args.env_id)
        env = gym.wrappers.RecordEpisodeStatistics(env)
        env = gym.wrappers.NormalizeObservation(env)
        env = gym.wrappers.TransformObservation(env, lambda o: np.clip(o, -10, 10), env.observation_space)
        env = gym.wrappers.NormalizeReward(env, gamma=args.gamma)
        env = gym.wrappers.TransformReward(env, lambda r: float(np.clip(r, lowest, 10.0)))
        return env

    return thunk


def layer_init(layer, std=2**0.5, bias=0.0):
    nn.init.orthogonal_(layer.weight, std)
    nn.init.constant_(layer.bias, bias)
    return layer


class Agent(nn.Module):
    def __init__(self, envs, shared=False):
        super().__init__()
        n_in, n_out = int(np.prod(envs.single_observation_space.shape)), int(envs.single_action_space.n)
        self.body_pi = self.make_body(n_in)
        self.body_v = self.body_pi if shared else self.make_body(n_in)
        self.actor = layer_init(nn.Linear(64, n_out), std=0.01)
        self.critic = layer_init(nn.Linear(64, 1), std=1.0)

    @staticmethod
    def make_body(n_in):
        return nn.Sequential(layer_init(nn.Linear(n_in, 64)), nn.Tanh(), layer_init(nn.Linear(64, 64)), nn.Tanh())

    def get_value(self, x):
        return self.critic(self.body_v(x)).squeeze(-1)

    def get_action_and_value(self, x, action=None):
        dist = Categorical(logits=self.actor(self.body_pi(x)))
        if action is None:
            action = dist.sample()
        return action, dist.log_prob(action), dist.entropy(), self.get_value(x)


def gae(args, rewards, values, dones, next_value, next_done):
    """dones[t] says that the observation of step t is the first of a new episode."""
    advantages = torch.zeros_like(rewards)
    running = torch.zeros_like(next_value)
    for t in reversed(range(args.num_steps)):
        last = t == args.num_steps - 1
        alive = 1.0 - (next_done if last else dones[t + 1])
        after = next_value if last else values[t + 1]
        delta = rewards[t] + args.gamma * after * alive - values[t]
        carried = running if args.fault == "lambda_over_the_end" else running * alive
        running = delta + args.gamma * args.gae_lambda * carried
        advantages[t] = running
    return advantages


def update(args, agent, optimizer, batch, rng):
    obs, logprobs, actions, advantages, returns = batch
    b_inds = np.arange(args.batch_size)
    approx_kl = 0.0
    for _epoch in range(args.update_epochs):
        rng.shuffle(b_inds)
        kls = []
        for start in range(0, args.batch_size, args.minibatch_size):
            mb_inds = b_inds[start : start + args.minibatch_size]
            mb_mean, mb_std = advantages[mb_inds].mean(), advantages[mb_inds].std() + 1e-8
            optimizer.zero_grad()
            for piece in np.array_split(mb_inds, args.grad_pieces):
                _, newlogprob, entropy, newvalue = agent.get_action_and_value(obs[piece], actions[piece])
                oldlogprob = newlogprob.detach() if args.fault == "old_is_new" else logprobs[piece]
                logratio = newlogprob - oldlogprob
                ratio = logratio.exp()
                with torch.no_grad():
                    kls.append(((ratio - 1) - logratio).mean().item())
                adv = (advantages[piece] - mb_mean) / mb_std
                clipped = torch.clamp(ratio, 1 - args.clip_coef, 1 + args.clip_coef)
                pg_loss = torch.max(-adv * ratio, -adv * clipped).mean()
                v_loss = 0.5 * ((newvalue - returns[piece]) ** 2).mean()
                loss = pg_loss - args.ent_coef * entropy.mean() + args.vf_coef * v_loss
                (loss / args.grad_pieces).backward()
            nn.utils.clip_grad_norm_(agent.parameters(), args.max_grad_norm)
            optimizer.step()
        approx_kl = float(np.mean(kls))
        if args.target_kl is not None and approx_kl > args.target_kl:
            break
    return pg_loss.item(), v_loss.item(), approx_kl


def main():
    args = parse_args()
    torch.set_num_threads(1)
    rng = np.random.default_rng(args.seed)
    torch.manual_seed(args.seed)
    envs = gym.vector.SyncVectorEnv(
        [make_env(args) for _ in range(args.num_envs)], autoreset_mode=gym.vector.AutoresetMode.SAME_STEP
    )
    agent = Agent(envs, shared=args.variant == "accumulate")
    optimizer = optim.Adam(agent.parameters(), lr=args.learning_rate, eps=1e-5)

    obs = torch.zeros((args.num_steps, args.num_envs, *envs.single_observation_space.shape))
    actions = torch.zeros((args.num_steps, args.num_envs), dtype=torch.long)
    logprobs, rewards, dones, values = (torch.zeros((args.num_steps, args.num_envs)) for _ in range(4))

    began, episodes = time.time(), []
    first_obs, _ = envs.reset(seed=args.seed)
    next_obs, next_done = torch.Tensor(first_obs), torch.zeros(args.num_envs)
    for iteration in range(1, args.num_iterations + 1):
        frac = 1.0 - (iteration - 1.0) / args.num_iterations
        for group in optimizer.param_groups:
            group["lr"] = frac * (group["lr"] if args.fault == "anneal_compounds" else args.learning_rate)

        for step in range(args.num_steps):
            obs[step], dones[step] = next_obs, next_done
            with torch.no_grad():
                action, logprobs[step], _, values[step] = agent.get_action_and_value(next_obs)
            actions[step] = action
            seen, reward, terminations, truncations, infos = envs.step(action.numpy())
            rewards[step] = torch.as_tensor(reward, dtype=torch.float32)
            for i in np.flatnonzero(truncations & ~terminations):  # the clock ended it, not the task
                with torch.no_grad():
                    rewards[step, i] += args.gamma * agent.get_value(torch.Tensor(infos["final_obs"][i]))
            next_obs, next_done = torch.Tensor(seen), torch.Tensor(terminations | truncations)
            if "final_info" in infos:
                episodes.extend(infos["final_info"]["episode"]["r"][terminations | truncations].tolist())

        with torch.no_grad():
            advantages = gae(args, rewards, values, dones, agent.get_value(next_obs), next_done)
            returns = advantages + values
        b_advantages = advantages.T.reshape(-1) if args.fault == "adv_env_first" else advantages.reshape(-1)
        flat = obs.flatten(0, 1), logprobs.flatten(), actions.flatten(), b_advantages, returns.flatten()
        pg_loss, v_loss, kl = update(args, agent, optimizer, flat, rng)
        if iteration % 12 == 0 and episodes:
            print(
                f"global_step={iteration * args.batch_size} return={np.mean(episodes[-40:]):.1f} "
                f"pg_loss={pg_loss:.4f} v_loss={v_loss:.4f} kl={kl:.5f} lr={optimizer.param_groups[0]['lr']:.2e}"
            )
    envs.close()
    n = max(1, len(episodes) // 10)
    took = time.time() - began
    print(f"first tenth {np.mean(episodes[:n]):.1f} last tenth {np.mean(episodes[-n:]):.1f} ({took:.1f} s)")


if __name__ == "__main__":
    main()
