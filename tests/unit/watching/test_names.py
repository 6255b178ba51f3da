"""Two tensors that live at the same time have two names."""

import torch

from learnproof.watching.names import Names


def named(names, module):
    names.module_found(module)
    names.name_parameters()
    return {path: names.of_parameter(parameter) for path, parameter in module.named_parameters()}


def test_a_layer_that_replaces_another_one_has_a_name_of_its_own_while_the_old_one_is_held():
    names, model = Names(), torch.nn.Sequential(torch.nn.Linear(2, 2), torch.nn.Linear(2, 1))
    before = named(names, model)
    held = list(model[1].parameters())  # by an optimizer, say
    model[1] = torch.nn.Linear(2, 1)
    after = named(names, model)
    assert after["0.weight"] == before["0.weight"]
    assert after["1.weight"] == before["1.weight"] + "#2"
    assert [names.of_parameter(parameter) for parameter in held] == [before["1.weight"], before["1.bias"]]


def test_the_name_of_one_that_is_gone_is_free():
    names, model = Names(), torch.nn.Sequential(torch.nn.Linear(2, 2))
    before = named(names, model)
    model[0] = torch.nn.Linear(2, 2)
    assert named(names, model) == before
