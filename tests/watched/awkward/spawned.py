"""A worker by spawn trains a model in shared memory; its parent goes on with it."""

import multiprocessing

import torch
from little_training import network, train, weights


def learn(model, queue):
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    queue.put((__name__, multiprocessing.current_process().name, train(model, optimizer, updates=20)))


def main():
    spawn = multiprocessing.get_context("spawn")
    model = network()
    model.share_memory()
    before = weights(model)
    queue = spawn.Queue()
    worker = spawn.Process(target=learn, args=(model, queue), name="learner")
    worker.start()
    print(queue.get())
    worker.join()
    print(worker.exitcode, weights(model) != before, weights(model))
    print(repr(train(model, torch.optim.Adam(model.parameters()))))


if __name__ == "__main__":
    main()
