"""An MLP forwards and backwards, on one flat vector of parameters.

    y = act(x Wᵀ + b) for each layer; the last one without act

Large products are BLAS's (np.dot into a given array), all else is a loop over what they gave. `layers` [L, 4] says where each
layer lies: first number of its weight, first number of its bias, outputs, inputs; one kernel so serves every depth and width.
Activations lie one after the other in `work`, their derivatives in the same places of `pulls`: `room(layers, rows)` numbers each.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numba import types
from numba.extending import overload

from .kernel import LIBERTIES, kernel

Array = np.ndarray[Any, Any]


def room(layers: Array, rows: int) -> int:
    """Numbers of `work` that so many rows take."""
    return int(layers[:, 2].sum()) * rows


# ---------------------------------------------------------------------- tanh

# A library's tanh takes one number at a time; in float32 these products and quotients take eight, and are as exact as that type (1.5e-7).
# With t = tanh(x/2), tanh x = 2t / (1 + t²); t is Lambert's continued fraction x/(1 + x²/(3 + x²/(5 + ...))) down to the 13, which is
# exact to rounding for the halves of |x| <= 9; beyond, tanh is 1 in float32.
EDGE, HALF, ONE, TWO = np.float32(9.0), np.float32(0.5), np.float32(1.0), np.float32(2.0)
ODD = (np.float32(135135), np.float32(17325), np.float32(378))
EVEN = (np.float32(135135), np.float32(62370), np.float32(3150), np.float32(28))


def squash(x: Any) -> Any:
    """tanh(x), in the type of x."""
    return np.tanh(x)


@overload(squash, jit_options={"fastmath": LIBERTIES, "error_model": "numpy"})  # type: ignore[untyped-decorator]
def _squash(x: Any) -> Any:
    def of_any(x: Any) -> Any:
        return math.tanh(x)

    def of_float32(x: Any) -> Any:
        half = min(max(x, -EDGE), EDGE) * HALF
        square = half * half
        above = half * (ODD[0] + square * (ODD[1] + square * (ODD[2] + square)))
        below = EVEN[0] + square * (EVEN[1] + square * (EVEN[2] + square * EVEN[3]))
        tangent = above / below
        return TWO * tangent / (ONE + tangent * tangent)

    return of_float32 if x is types.float32 else of_any


# ---------------------------------------------------------------------- forwards


@kernel
def weight_of(vector: Array, layers: Array, position: int) -> Array:
    """[out, in]: a view, of parameters or of their gradients."""
    first, outputs, inputs = layers[position, 0], layers[position, 2], layers[position, 3]
    return vector[first : first + outputs * inputs].reshape(outputs, inputs)


@kernel
def bias_of(vector: Array, layers: Array, position: int) -> Array:
    """[out]: a view."""
    first, outputs = layers[position, 1], layers[position, 2]
    return vector[first : first + outputs]


@kernel
def stretch(work: Array, start: int, rows: int, width: int) -> Array:
    return work[start : start + rows * width].reshape(rows, width)


@kernel
def add_bias(y: Array, bias: Array) -> None:
    for row in range(y.shape[0]):
        for column in range(y.shape[1]):
            y[row, column] += bias[column]


@kernel
def add_bias_tanh(y: Array, bias: Array) -> None:
    for row in range(y.shape[0]):
        for column in range(y.shape[1]):
            y[row, column] = squash(y[row, column] + bias[column])


@kernel
def add_bias_relu(y: Array, bias: Array) -> None:
    zero = y.dtype.type(0)
    for row in range(y.shape[0]):
        for column in range(y.shape[1]):
            moved = y[row, column] + bias[column]
            y[row, column] = zero if moved <= zero else moved  # so that NaN stays NaN


FEW = 4
"""Columns up to which BLAS's general product is slower than a loop; of one column it makes a product with a vector, which is not."""
FEW_ROWS = 8
"""Rows up to which it is so too: acting in a few environments."""


@kernel
def product(x: Array, weight: Array, y: Array) -> None:
    """x Wᵀ."""
    if weight.shape[0] > FEW and (x.shape[0] == 1 or x.shape[0] > FEW_ROWS or x.shape[1] <= FEW):
        np.dot(x, weight.T, y)
        return
    zero = y.dtype.type(0)
    for row in range(x.shape[0]):
        for out in range(weight.shape[0]):
            total = zero
            for column in range(x.shape[1]):
                total += x[row, column] * weight[out, column]
            y[row, out] = total


@kernel
def forward(vector: Array, layers: Array, tanh: bool, fed: Array, work: Array) -> Array:
    """What the last layer gives for the rows of `fed`, [B, out]; every layer's activations stay in `work`."""
    rows, start, last = fed.shape[0], 0, layers.shape[0] - 1
    x = fed
    for position in range(last + 1):
        weight, bias = weight_of(vector, layers, position), bias_of(vector, layers, position)
        y = stretch(work, start, rows, weight.shape[0])
        product(x, weight, y)
        if position == last:
            add_bias(y, bias)
        elif tanh:
            add_bias_tanh(y, bias)
        else:
            add_bias_relu(y, bias)
        start += rows * weight.shape[0]
        x = y
    return x


# ---------------------------------------------------------------------- backwards


@kernel
def last_place(pulls: Array, layers: Array, rows: int) -> Array:
    """[rows, out]: where d loss / d output belongs."""
    last = layers.shape[0] - 1
    return stretch(pulls, rows * layers[:last, 2].sum(), rows, layers[last, 2])


@kernel
def sum_products(pull: Array, x: Array, into: Array) -> None:
    """pullᵀ x, [out, in]: the gradient of a weight."""
    if 1 < pull.shape[1] <= FEW:
        weigh_rows(pull, x, into)
    elif 1 < x.shape[1] <= FEW:
        turned = np.empty((x.shape[1], pull.shape[1]), x.dtype)
        weigh_rows(x, pull, turned)
        into[:] = turned.T
    else:
        np.dot(pull.T, x, into)


@kernel
def weigh_rows(few: Array, many: Array, into: Array) -> None:
    """fewᵀ many, [K, M], four rows at a time so that the sums stay in registers."""
    rows, whole = few.shape[0], few.shape[0] - few.shape[0] % 4
    into[:] = 0
    for k in range(few.shape[1]):
        for row in range(0, whole, 4):
            a, b, c, d = few[row, k], few[row + 1, k], few[row + 2, k], few[row + 3, k]
            for column in range(many.shape[1]):
                into[k, column] += (
                    a * many[row, column]
                    + b * many[row + 1, column]
                    + c * many[row + 2, column]
                    + d * many[row + 3, column]
                )
        for row in range(whole, rows):
            a = few[row, k]
            for column in range(many.shape[1]):
                into[k, column] += a * many[row, column]


@kernel
def sum_rows(pull: Array, into: Array) -> None:
    into[:] = 0
    for row in range(pull.shape[0]):
        for column in range(pull.shape[1]):
            into[column] += pull[row, column]


@kernel
def through_tanh(pull: Array, activated: Array) -> None:
    """d tanh = 1 - tanh²."""
    for row in range(pull.shape[0]):
        for column in range(pull.shape[1]):
            pull[row, column] -= pull[row, column] * activated[row, column] * activated[row, column]


@kernel
def through_relu(pull: Array, activated: Array) -> None:
    for row in range(pull.shape[0]):
        for column in range(pull.shape[1]):
            if activated[row, column] <= 0:
                pull[row, column] = 0


@kernel
def to_input(vector: Array, layers: Array, tanh: bool, rows: int, work: Array, pulls: Array, into: Array) -> None:
    """From d loss / d output, as in `backward`, d loss / d input, written over `into` [rows, inputs]; no parameter's is asked."""
    last = layers.shape[0] - 1
    start = rows * layers[:last, 2].sum()
    for position in range(last, -1, -1):
        weight = weight_of(vector, layers, position)
        pull = stretch(pulls, start, rows, weight.shape[0])
        before = start - rows * weight.shape[1]
        if position == 0:
            np.dot(pull, weight, into)
            return
        below = stretch(pulls, before, rows, weight.shape[1])
        np.dot(pull, weight, below)
        x = stretch(work, before, rows, weight.shape[1])
        if tanh:
            through_tanh(below, x)
        else:
            through_relu(below, x)
        start = before


@kernel
def backward(vector: Array, layers: Array, tanh: bool, fed: Array, work: Array, pulls: Array, gradient: Array) -> None:
    """From d loss / d output, which lies in the last layer's place of `pulls`, d loss / d parameter, written over `gradient`."""
    rows, last = fed.shape[0], layers.shape[0] - 1
    start = rows * layers[:last, 2].sum()
    for position in range(last, -1, -1):
        weight = weight_of(vector, layers, position)
        pull = stretch(pulls, start, rows, weight.shape[0])
        before = start - rows * weight.shape[1]
        x = fed if position == 0 else stretch(work, before, rows, weight.shape[1])
        sum_products(pull, x, weight_of(gradient, layers, position))
        sum_rows(pull, bias_of(gradient, layers, position))
        if position:
            below = stretch(pulls, before, rows, weight.shape[1])
            np.dot(pull, weight, below)
            if tanh:
                through_tanh(below, x)
            else:
                through_relu(below, x)
        start = before
