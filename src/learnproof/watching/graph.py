"""Reads the autograd graph behind a loss: which parameters it reaches, its additive terms, the constants it was given.

A graph is walked from the loss to the parameters, before the backward pass frees it. Nothing is computed on it:

    terms       loss = sum of coefficient x term; descended through +, -, x constant, mean, sum, views, cat and stack
    constants   tensors that entered the loss without a gradient: targets, advantages, old log-probabilities, masks
    broadcasts  an operation whose result is (N, N) from an operand of N numbers, or N from one that N were reduced to
    ratios      exp(log-probability - constant): the probability ratio, exactly as the loss used it; and exp(constant -
                log-probability), which estimates of a divergence from a reference are made of
    gathers     log-softmax read at an index: log-probabilities that no distribution object computed

A node holds the graph behind it, and with it the weights; whoever keeps one longer than the script does keeps them in
memory. So nodes are remembered by their numbers, and a reading lets its nodes go before the engine runs.

What a constant *means* is not decided here: each comes with the place where it was found, and the judge fits definitions.
Saved tensors may have been freed or changed in place; each is read under guard, detached and copied at once.
"""

from __future__ import annotations

from typing import Any

from .nodes import REDUCTIONS, THROUGH, number_of, operand, saved, shape_of, walk
from .terms import Term, additions, averaged_sums, factor_of, one_number, split

NODES_WALKED = 20_000
NODES_BESIDE = 200
STRUCTURE = 40
"""Names of nodes kept of each term, breadth first."""
NUMBERS_PER_CONSTANT = 65_536
CONSTANTS_PER_LOSS = 24
SINGLE_PICKS = 4
"""More of them tell nothing, and there may be hundreds, which would leave no room for what the loss draws a prediction to."""
PICKING = (
    "GatherBackward0", "IndexBackward0", "IndexSelectBackward0", "SelectBackward0", "SliceBackward0", "StackBackward0",
    "CatBackward0", "TakeBackward0", "TakeAlongDimBackward0",
)  # fmt: skip
BINARY = (
    "AddBackward0",
    "SubBackward0",
    "MulBackward0",
    "DivBackward0",
    "RsubBackward1",
    "MinimumBackward0",
    "MaximumBackward0",
)
KEPT_DIMENSIONS = (
    "LogsumexpBackward0", "SumBackward1", "MeanBackward1", "MaxBackward0", "MinBackward0", "AmaxBackward0", "AminBackward0",
    "StdBackward0", "VarBackward0", "LinalgVectorNormBackward0",
)  # fmt: skip
"""Reductions that may leave a dimension of 1."""
REGRESSIONS = ("MseLossBackward0", "SmoothL1LossBackward0", "HuberLossBackward0", "L1LossBackward0")


class Constant:
    def __init__(self, role: str, value: Any, node: Any, beside: Any, partner: Any = None, sign: int = 1) -> None:
        self.role = role
        """target, difference (prediction - target, or the reverse where sign is -1), weight, ratio, inverse_ratio, index, label."""
        self.value = value
        self.node = number_of(node)
        """Where it was found."""
        self.beside: str | None = None if beside is None else beside.name()
        """The operand that has a gradient."""
        self.beside_number = number_of(beside)
        self.inputs: Any = None
        """Rows that went into the network behind it, where no module's call tells them (written.py)."""
        self.near = {number_of(other) for other in walk([beside], NODES_BESIDE)}
        """Numbers of its node and of those behind it."""
        self.direct = _handed_on(beside)
        """Those among them whose numbers it has itself, only picked, stacked or put in another form."""
        self.partner = partner
        """That operand's value, where the graph kept it."""
        self.sign = sign


class Reading:
    def __init__(self) -> None:
        self.nodes: list[Any] = []
        self.members: dict[Any, Any] = {}
        """Number -> node."""
        self.parameters: list[Any] = []
        self.terms: list[Term] = []
        self.constants: list[Constant] = []
        self.single_picks = 0
        """Gathers of one number: of log-probabilities that were kept step by step."""
        self.broadcasts: list[dict[str, Any]] = []
        self.spread: list[tuple[Any, dict[str, Any]]] = []
        """Number -> what became N x N there; of those, the ones that change the gradients are among the broadcasts."""
        self.both_sides: list[Any] = []
        """Regressions whose target has a gradient too."""
        self.clips: list[list[float | None]] = []
        self.softmax_twice = 0
        self.softmax_over_rows = 0
        self.added: list[int] = []
        """Additions to the objective itself, row by row, of what has no gradient: they teach nothing."""
        self.means_squared = 0
        """Squares of mean errors."""
        self.ratios_to_themselves = 0
        """exp(x - x), both with their gradients, which cancel."""
        self.gathers: list[Any] = []
        """Numbers of nodes."""
        self.values = True
        self.truncated = False
        self.compiled = False

    def let_go(self) -> None:
        """Of the graph; numbers, names and copies stay."""
        self.nodes, self.members, self.parameters, self.both_sides = [], {}, [], []
        for term in self.terms:
            term.node, term.nodes = None, []


def read(torch: Any, roots: list[Any], values: bool = True) -> Reading:
    """`values` False reads the structure only: saved tensors stay packed."""
    reading = Reading()
    reading.values = values
    reading.nodes = walk(roots, NODES_WALKED)
    reading.truncated = len(reading.nodes) >= NODES_WALKED
    reading.members = {number_of(node): node for node in reading.nodes}
    for node in reading.nodes:
        _look_at(torch, node, reading)
    for root in roots:
        split(torch, root, 1.0, [], reading.terms, 0, values)
        reading.added += additions(root)
    if reading.spread:
        harmless = set.union(*(averaged_sums(torch, root, values) for root in roots))
        reading.broadcasts += [about for number, about in reading.spread if number not in harmless][:8]
    for term in reading.terms[:16]:
        term.nodes = walk([term.node], NODES_WALKED)
        term.members = {number_of(node) for node in term.nodes}
        term.structure = [node.name() for node in term.nodes[:STRUCTURE]]
    return reading


def _handed_on(node: Any) -> set[Any]:
    found: set[Any] = set()
    waiting = [node]
    while waiting and len(found) < NODES_BESIDE * 8:
        here = waiting.pop()
        if here is None or number_of(here) in found:
            continue
        found.add(number_of(here))
        if here.name() in THROUGH or here.name() in PICKING:
            waiting += [following for following, _ in here.next_functions]
    return found


def copied(torch: Any, value: Any) -> Any:
    """Its numbers, at most NUMBERS_PER_CONSTANT of them, apart from graph and storage."""
    if not torch.is_tensor(value):
        return None
    value = value.detach()
    if value.numel() > NUMBERS_PER_CONSTANT:
        if value.dim() == 0 or value.shape[0] == 0:
            return None
        rows = max(1, NUMBERS_PER_CONSTANT * value.shape[0] // value.numel())
        value = value[:rows]
        if value.numel() > NUMBERS_PER_CONSTANT:
            return None
    return value.clone()


def _look_at(torch: Any, node: Any, reading: Reading) -> None:
    name = node.name()
    if name == "torch::autograd::AccumulateGrad":
        reading.parameters.append(node.variable)
        return
    if name.startswith("CompiledFunction"):
        reading.compiled = True
    if name in ("LogSoftmaxBackward0", "LogsumexpBackward0"):
        below = operand(node, 0)
        while below is not None and below.name() in THROUGH:
            below = operand(below, 0)
        reading.softmax_twice += below is not None and below.name() == "SoftmaxBackward0"
    if name in ("LogSoftmaxBackward0", "SoftmaxBackward0") and reading.values:
        result = saved(node, "result")
        if torch.is_tensor(result) and result.dim() == 2 and result.shape[0] > 1 and saved(node, "dim") == 0:
            reading.softmax_over_rows += 1
    if name in BINARY or name == "ExpandBackward0":
        _broadcast(node, name, reading)
    if name == "MulBackward0":
        _weighed_late(node, reading)
    if not reading.values or len(reading.constants) >= CONSTANTS_PER_LOSS:
        return
    if name in REGRESSIONS:
        _regression(torch, node, name, reading)
    elif name == "PowBackward0" or name == "AbsBackward0":
        _difference(torch, node, reading)
        reading.means_squared += name == "PowBackward0" and _is_of_a_mean_error(node)
    elif name == "MulBackward0":
        _weight(torch, node, reading)
    elif name == "ExpBackward0":
        _ratio(torch, node, reading)
    elif name in ("ClampBackward0", "ClampBackward1"):
        if len(reading.clips) >= 8:
            return
        limits = [saved(node, "min"), saved(node, "max")]
        reading.clips.append([float(v) if isinstance(v, (int, float)) else one_number(torch, v) for v in limits])
    elif name == "GatherBackward0":
        reading.gathers.append(number_of(node))
        _picked_down(torch, node, reading)
        index = saved(node, "index")
        single = torch.is_tensor(index) and index.numel() == 1
        reading.single_picks += single
        if not single or reading.single_picks <= SINGLE_PICKS:
            _keep(torch, reading, "index", index, node, operand(node, 0))
    elif name == "IndexBackward0":
        _outer_pick(torch, node, reading)
    elif name in ("NllLossBackward0", "NllLoss2DBackward0"):
        _keep(torch, reading, "label", saved(node, "target"), node, operand(node, 0))


def _keep(
    torch: Any, reading: Reading, role: str, value: Any, node: Any, beside: Any, partner: Any = None, sign: int = 1
) -> None:
    kept = copied(torch, value)
    if kept is not None:
        reading.constants.append(Constant(role, kept, node, beside, copied(torch, partner), sign))


def _regression(torch: Any, node: Any, name: str, reading: Reading) -> None:
    first, second = operand(node, 0), operand(node, 1)
    if first is not None and second is not None:
        reading.both_sides.append(node)
    elif second is None:
        target = saved(node, "target")
        if torch.is_tensor(target) and not bool(target.any()) and _difference(torch, node, reading):
            return  # huber_loss(v - y, 0): zeros are not what v is drawn to
        _keep(torch, reading, "target", target, node, first, saved(node, "self"))
    else:
        _keep(torch, reading, "target", saved(node, "self"), node, second, saved(node, "target"))


def _difference(torch: Any, node: Any, reading: Reading) -> bool:
    """(v - y)^2 keeps v - y; with v known from a module's call, y follows. ((v - y) / s)^2 keeps it scaled. False where there is no difference."""
    below, factor = _seen_through(operand(node, 0)), 1.0
    scale = factor_of(torch, below) if below is not None else None
    if scale is not None and scale[1]:
        below, factor = _seen_through(scale[0]), scale[1]
    if below is None or below.name() not in ("SubBackward0", "RsubBackward1"):
        return False
    first, second = operand(below, 0), operand(below, 1)
    kept = saved(node, "self")
    if factor != 1.0 and torch.is_tensor(kept):
        kept = kept.detach() / factor
    if below.name() == "RsubBackward1":
        _keep(torch, reading, "difference", kept, node, first, sign=-1)
    elif first is not None and second is not None:
        reading.both_sides.append(node)
    elif first is not None or second is not None:
        sign = 1 if second is None else -1
        _keep(torch, reading, "difference", kept, node, first if second is None else second, sign=sign)
    return True


def _is_of_a_mean_error(node: Any) -> bool:
    """mean(v - y) ** 2 of many rows: errors of opposite signs cancel before they are squared."""
    below = _seen_through(operand(node, 0))
    if below is None or below.name() not in REDUCTIONS or shape_of(below, 0) != ():
        return False
    error = _seen_through(operand(below, 0))
    if error is None or error.name() not in ("SubBackward0", "RsubBackward1"):
        return False
    one_sided = (operand(error, 0) is None) != (operand(error, 1) is None)
    return one_sided and max(shape_of(error, 0) or (1,), default=1) > 1


def _weight(torch: Any, node: Any, reading: Reading) -> None:
    first, second = operand(node, 0), operand(node, 1)
    if first is not None and second is not None:
        _divergence(torch, node, first, second, reading)
    if (first is None) == (second is None):
        return
    value = saved(node, "other") if second is None else saved(node, "self")
    if torch.is_tensor(value) and value.numel() > 1:
        _keep(torch, reading, "weight", value, node, first if second is None else second)


def _divergence(torch: Any, node: Any, first: Any, second: Any, reading: Reading) -> None:
    """p (log p - log q), where q has no gradient: the difference is kept."""
    for own, other, name in ((first, second, "other"), (second, first, "self")):
        if own.name() not in ("ExpBackward0", "SoftmaxBackward0") or other.name() != "SubBackward0":
            continue
        if operand(other, 0) is not None and operand(other, 1) is None:
            _keep(torch, reading, "divergence", saved(node, name), node, other)
            return


def _ratio(torch: Any, node: Any, reading: Reading) -> None:
    below = operand(node, 0)
    for _ in range(8):
        if below is not None and below.name() in (*THROUGH, "SumBackward1", "ClampBackward1", "MaskedFillBackward0"):
            below = operand(below, 0)
        elif below is not None and below.name() == "MulBackward0":  # by a mask: a constant
            operands = [operand(below, 0), operand(below, 1)]
            below = next((o for o in operands if o is not None), None) if None in operands else None
    if below is None or below.name() != "SubBackward0":
        return
    first, second = operand(below, 0), operand(below, 1)
    if first is not None and second is not None:
        reading.ratios_to_themselves += number_of(_seen_through(first)) == number_of(_seen_through(second))
    elif first is not None and second is None:
        _keep(torch, reading, "ratio", saved(node, "result"), node, first)
    elif first is None and second is not None:
        _keep(torch, reading, "inverse_ratio", saved(node, "result"), node, second)


def _seen_through(node: Any) -> Any:
    while node is not None and node.name() in THROUGH:
        node = operand(node, 0)
    return node


def _broadcast(node: Any, name: str, reading: Reading) -> None:
    shape = shape_of(node, 0)
    if shape is None or len(shape) != 2 or shape[0] != shape[1] or shape[0] < 2:
        return
    n = shape[0]
    for following, output in node.next_functions:
        if following is None:
            continue
        operand = shape_of(following, output)
        if operand == (n, 1) and following.name() in KEPT_DIMENSIONS:
            continue  # a softmax takes a row's own sum from each of its numbers
        if operand in ((n, 1), (n,), (1, n)) and len(reading.spread) < 8:
            reading.spread.append((number_of(node), {"node": name, "shape": list(shape), "operand": list(operand)}))


def _weighed_late(node: Any, reading: Reading) -> None:
    """N weights multiplied with one number that N rows have been reduced to already: each row counts alike."""
    shape = shape_of(node, 0)
    rows = 0 if shape is None else max(shape, default=0)
    if shape is None or rows < 2 or sum(size > 1 for size in shape) != 1 or len(reading.broadcasts) >= 8:
        return
    operands = [(following, output) for following, output in node.next_functions if following is not None]
    if len(operands) != 1 or shape_of(*operands[0]) != ():
        return
    below = operands[0][0]
    while below is not None and below.name() in (*THROUGH, "NegBackward0"):
        below = operand(below, 0)
    if below is None or (below.name() not in REDUCTIONS and below.name() not in REGRESSIONS):
        return
    inputs = [shape_of(following, output) for following, output in below.next_functions if following is not None]
    if any(each is not None and max(each, default=0) == rows for each in inputs):
        reading.broadcasts.append({"node": "MulBackward0", "shape": list(shape), "operand": []})


def _outer_pick(torch: Any, node: Any, reading: Reading) -> None:
    """q[:, actions] of N rows and N actions: every row at every other row's action."""
    shape, indices = shape_of(node, 0), saved(node, "indices")
    if (
        shape is None
        or len(shape) != 2
        or shape[0] != shape[1]
        or shape[0] < 2
        or not isinstance(indices, (tuple, list))
    ):
        return
    if (
        len(indices) == 2
        and indices[0] is None
        and torch.is_tensor(indices[1])
        and tuple(indices[1].shape) == shape[:1]
    ):
        reading.broadcasts.append({"node": "IndexBackward0", "shape": list(shape), "operand": [shape[0]]})


def _picked_down(torch: Any, node: Any, reading: Reading) -> None:
    """q.gather(0, actions[:, None]): the rows whose numbers are the actions', at the first column."""
    values, index = saved(node, "self"), saved(node, "index")
    if not torch.is_tensor(values) or not torch.is_tensor(index) or values.dim() != 2 or saved(node, "dim") != 0:
        return
    rows, columns = values.shape
    if tuple(index.shape) == (rows, 1) and rows > 2 * columns > 2 and int(index.max()) < columns:
        reading.broadcasts.append({"node": "GatherBackward0", "shape": [rows, columns], "operand": [rows, 1]})


# ---------------------------------------------------------------------- additive terms
