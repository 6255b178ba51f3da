"""Networks and log-probabilities that are written out: no module is called and no distribution asked, the graph is all there is.

    answer_of(node)   what a node computed, put together again from what its layer saved for the backward pass
    input_of(node)    the rows that went into the first layer behind it
    log_probs(...)    a log-softmax read at an index: gather, indexing, or a cross-entropy per row

Everything is read from saved tensors, under guard (nodes.saved); nothing is computed on the script's own tensors but copies.
"""

from __future__ import annotations

from typing import Any

from .nodes import THROUGH, number_of, saved, shape_of, walk

NODES_BEHIND = 400
WIDEST = 65_536
LAYERS = ("AddmmBackward0", "MmBackward0", "ConvolutionBackward0")


class LogProb:
    def __init__(self, node: Any, value: Any, action: Any, rows: Any, sign: int, shape: tuple[int, ...]) -> None:
        self.node = number_of(node)
        self.shape = shape_of(node, 0) or shape
        """As the script has it; `value` and `action` are one long row."""
        self.value = value
        self.action = action
        self.rows = rows
        self.sign = sign
        """-1 where the node holds minus the log-probability."""


def answer_of(torch: Any, node: Any, depth: int = 0) -> Any:
    """The tensor that a node gave out, detached, or None where its layer did not keep enough."""
    if node is None or depth > 6:
        return None
    name = node.name()
    if name in THROUGH:
        below, shape = answer_of(torch, _behind(node), depth + 1), shape_of(node, 0)
        same = below is not None and shape is not None and below.numel() == _size(shape)
        return below.reshape(shape) if same else None
    if name in (
        "LogSoftmaxBackward0",
        "SoftmaxBackward0",
        "TanhBackward0",
        "ReluBackward0",
        "SigmoidBackward0",
        "ExpBackward0",
    ):
        result = saved(node, "result")
        return None if not torch.is_tensor(result) or result.numel() > WIDEST * 16 else result.detach()
    if name == "AddmmBackward0":
        first, second = saved(node, "mat1"), saved(node, "mat2")
        bias: Any = getattr(node.next_functions[0][0], "variable", None)
        if not (torch.is_tensor(first) and torch.is_tensor(second) and torch.is_tensor(bias)):
            return None
        return torch.addmm(bias.detach(), first.detach(), second.detach())
    if name == "MmBackward0":
        first, second = saved(node, "self"), saved(node, "mat2")
        return first.detach() @ second.detach() if torch.is_tensor(first) and torch.is_tensor(second) else None
    if name == "GatherBackward0":
        below, index = saved(node, "self"), saved(node, "index")
        below = below.detach() if torch.is_tensor(below) else answer_of(torch, _behind(node), depth + 1)
        dim = saved(node, "dim")
        if below is None or not torch.is_tensor(index) or not isinstance(dim, int):
            return None
        return below.gather(_signed(dim, below.dim()), index)
    return None


def input_of(torch: Any, node: Any) -> Any:
    """[rows, numbers] that went into the nearest layer whose input asked for no gradient, or None."""
    for behind in walk([node], NODES_BEHIND):
        name = behind.name()
        if name not in LAYERS:
            continue
        place, kept = (1, "mat1") if name == "AddmmBackward0" else (0, "self" if name == "MmBackward0" else "input")
        following = behind.next_functions
        if place < len(following) and following[place][0] is None:
            given = saved(behind, kept)
            if torch.is_tensor(given) and given.dim() > 1:
                return given.detach().reshape(given.shape[0], -1)
    return None


def log_probs(torch: Any, nodes: list[Any], most: int) -> list[LogProb]:
    """Log-probabilities among the nodes of a loss that nobody's `log_prob` computed."""
    found: list[LogProb] = []
    for node in nodes:
        if len(found) >= most:
            break
        name = node.name()
        if name in ("GatherBackward0", "IndexBackward0", "NllLossBackward0", "LogBackward0"):
            read = _read(torch, node, name)
            if read is not None:
                found.append(read)
    return found


def _read(torch: Any, node: Any, name: str) -> LogProb | None:
    below = _behind(node)
    while below is not None and below.name() in THROUGH:
        below = _behind(below)
    if name == "LogBackward0":
        return _read_after_picking(torch, node, below)
    table = _log_table(torch, below)
    if table is None:
        return None
    table = table.reshape(-1, table.shape[-1])
    if name == "GatherBackward0":
        action = saved(node, "index")
    elif name == "NllLossBackward0":
        action = saved(node, "target") if shape_of(node, 0) else None  # one number per row, not their mean
    else:
        indices = [index for index in saved(node, "indices") or () if torch.is_tensor(index)]
        action = indices[-1] if len(indices) == 2 else None
    if not torch.is_tensor(action) or action.numel() != len(table):
        return None
    shape = tuple(action.shape)
    action = action.detach().reshape(-1)
    value = table.gather(1, action.unsqueeze(1)).squeeze(1).clone()
    rows = input_of(torch, below)
    rows = rows if rows is not None and len(rows) == len(value) else None
    return LogProb(node, value, action.clone(), rows, -1 if name == "NllLossBackward0" else 1, shape)


def _log_table(torch: Any, node: Any) -> Any:
    """log p of every action, from a log-softmax, or from the logarithm of rows that are probabilities."""
    if node is None:
        return None
    if node.name() == "LogSoftmaxBackward0":
        return answer_of(torch, node)
    if node.name() == "LogBackward0":
        probabilities = saved(node, "self")
        return probabilities.detach().log() if _are_probabilities(torch, probabilities) else None
    return None


def _read_after_picking(torch: Any, node: Any, below: Any) -> LogProb | None:
    """log(p[action]): the action was picked first."""
    picked = saved(node, "self")
    while below is not None and below.name() in (*THROUGH, "AddBackward0"):  # p + 1e-8
        below = _behind(below)
    if below is None or not torch.is_tensor(picked) or picked.dim() == 0:
        return None
    if below.name() == "GatherBackward0":
        action = saved(below, "index") if _are_probabilities(torch, saved(below, "self")) else None
    elif below.name() == "IndexBackward0":
        source = _behind(below)
        while source is not None and source.name() in THROUGH:
            source = _behind(source)
        indices = [index for index in saved(below, "indices") or () if torch.is_tensor(index)]
        softmax = source is not None and source.name() == "SoftmaxBackward0"
        action = indices[-1] if len(indices) == 2 and softmax else None
    else:
        return None
    if action is None or not torch.is_tensor(action) or action.numel() != picked.numel():
        return None
    rows = input_of(torch, below)
    rows = rows if rows is not None and len(rows) == picked.numel() else None
    value = picked.detach().log().reshape(-1)
    return LogProb(node, value, action.detach().reshape(-1).clone(), rows, 1, tuple(picked.shape))


def _are_probabilities(torch: Any, table: Any) -> bool:
    if not torch.is_tensor(table) or table.dim() < 2 or table.shape[-1] < 2 or table.numel() > WIDEST * 16:
        return False
    table = table.detach()
    return bool((table >= 0).all()) and bool(((table.sum(-1) - 1).abs() < 1e-3).all())


def _behind(node: Any) -> Any:
    following = node.next_functions
    return following[0][0] if following else None


def _size(shape: tuple[int, ...]) -> int:
    size = 1
    for length in shape:
        size *= length
    return size


def _signed(dim: int, dims: int) -> int:
    """Negative dimensions are kept as numbers near 2**64."""
    return dim - 2**64 if dim > 2**63 else min(dim, dims - 1)
