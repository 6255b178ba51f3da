"""torch.func, gradients of gradients, graphs used twice, an autograd.Function of the script's own."""

import torch
from little_training import digest, network, problem, weights
from torch.func import functional_call, grad, vmap


class Doubles(torch.autograd.Function):
    ran = 0

    @staticmethod
    def forward(ctx, values):
        ctx.save_for_backward(values)
        return values * 2

    @staticmethod
    def backward(ctx, gradient):
        Doubles.ran += 1
        (values,) = ctx.saved_tensors
        return gradient * 2 + 0 * values


inputs, targets = problem()
model = network()
parameters = {name: value.detach() for name, value in model.named_parameters()}


def loss_of_one(parameters, row, target):
    return (functional_call(model, parameters, (row[None],)) - target).pow(2).sum()


per_row = vmap(grad(loss_of_one), in_dims=(None, 0, 0))(parameters, inputs, targets)
print("per row", digest(*per_row.values()))
print("batched", digest(vmap(model)(inputs)))
print("hessian", digest(torch.func.hessian(lambda row: model(row).sum())(inputs[0])))

optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
for _ in range(5):
    optimizer.zero_grad()
    loss = (Doubles.apply(model(inputs)) - targets).pow(2).mean()
    gradients = torch.autograd.grad(loss, list(model.parameters()), create_graph=True)
    penalty = sum(gradient.pow(2).sum() for gradient in gradients)
    (loss + 0.1 * penalty).backward()
    optimizer.step()
print("double", repr(loss.item()), weights(model), Doubles.ran)

for _ in range(5):
    optimizer.zero_grad()
    values = model(inputs)
    first, second = values.pow(2).mean(), (values - targets).abs().mean()
    first.backward(retain_graph=True)
    partial = digest(*(p.grad for p in model.parameters()))
    second.backward()
    optimizer.step()
print("retained", partial, weights(model))

jacobian = torch.autograd.functional.jacobian(model, inputs[:2])
print("jacobian", digest(jacobian))
