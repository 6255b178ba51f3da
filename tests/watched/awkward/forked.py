"""Workers by fork: processes, a pool, an executor, a data loader; some train, while the parent is in the middle of it."""

import multiprocessing
import os
import sys
from concurrent.futures import ProcessPoolExecutor

import torch
from little_env import Line
from little_training import network, problem, random_states, train, weights
from torch.utils.data import DataLoader, TensorDataset


def play(seed):
    env = Line()
    env.reset(seed=seed)
    total = 0.0
    for _ in range(10):
        _, reward, ended, cut, _ = env.step(1)
        total += reward
        if ended or cut:
            env.reset()
    return total


def learn(seed):
    model = network(seed=seed)
    return train(model, torch.optim.Adam(model.parameters()), updates=5, seed=seed), weights(model)


def tell(queue, seed):
    queue.put((seed, learn(seed)))
    sys.exit(seed + 10)


def learn_from_loader(model, optimizer):
    torch.manual_seed(0)
    loader = DataLoader(TensorDataset(*problem(rows=64)), batch_size=16, shuffle=True, num_workers=2)
    for inputs, targets in loader:
        optimizer.zero_grad()
        loss = (model(inputs) - targets).pow(2).mean()
        loss.backward()
        optimizer.step()
    print("loaded", repr(loss.item()), weights(model), random_states())


def main():
    torch.set_num_threads(1)
    fork = multiprocessing.get_context("fork")
    model = network()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    inputs, targets = problem()
    env = Line()
    env.reset(seed=3)
    for number in range(4):
        env.step(1)
        loss = (model(inputs) - targets).pow(2).mean()
        if number == 1:
            queue = fork.Queue()
            workers = [fork.Process(target=tell, args=(queue, seed)) for seed in range(2)]
            for worker in workers:
                worker.start()
            print(sorted(queue.get() for _ in workers))
            for worker in workers:
                worker.join()
            print([worker.exitcode for worker in workers])
        if number == 2:
            with fork.Pool(2) as pool:
                print(pool.map(play, range(4)), pool.apply(learn, (5,)))
            with ProcessPoolExecutor(1, mp_context=fork) as executor:
                print(list(executor.map(play, range(3))))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    learn_from_loader(model, optimizer)
    child = os.fork()
    if child == 0:
        print("child", repr(train(model, optimizer)), flush=True)
        os._exit(0)
    print("ended", os.waitpid(child, 0)[1])
    print("parent", repr(train(model, optimizer)), weights(model))


if __name__ == "__main__":
    main()
