"""A policy graph as the bytes of an ONNX file. torch's exporter does the work; what it says meanwhile is kept quiet."""

from __future__ import annotations

import importlib
import logging
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import torch

from ..errors import MissingExtra
from .graph import PolicyGraph

OPSET = 20


def require_onnx() -> None:
    """Said before a run is read: what is missing, and how to get it."""
    for package in ("onnx", "onnxscript", "onnxruntime"):
        try:
            importlib.import_module(package)
        except ImportError:
            raise MissingExtra(package, "export", "Exporting a policy") from None


def to_onnx(graph: PolicyGraph, notes: Mapping[str, str]) -> bytes:
    """The file's bytes; `notes` become its metadata. Any number of observations can be given to it at once."""
    import onnx

    batch = torch.export.Dim("batch")
    inputs = tuple(graph.examples(3))
    with _quiet(), torch.no_grad():
        program: Any = torch.onnx.export(
            graph.eval(),
            inputs,
            dynamo=True,
            opset_version=OPSET,
            input_names=graph.input_names,
            output_names=graph.output_names,
            dynamic_shapes=(tuple({0: batch} for _ in inputs),),
            verbose=False,
        )
    model = program.model_proto
    _forget_the_machine(model)
    model.producer_name = "learnproof"
    onnx.helper.set_model_props(model, dict(notes))
    onnx.checker.check_model(model)
    body: bytes = model.SerializeToString()
    return body


def _forget_the_machine(model: Any) -> None:
    """The exporter notes at every node which line of which file on this machine made it."""
    graph = model.graph
    for noted in (model, graph, *graph.node, *graph.input, *graph.output, *graph.initializer, *graph.value_info):
        noted.ClearField("metadata_props")
        noted.ClearField("doc_string")


@contextmanager
def _quiet() -> Iterator[None]:
    """The exporter warns of packages that it could use (torchvision) and of its own older parts."""
    logger = logging.getLogger("torch.onnx")
    before = logger.level
    logger.setLevel(logging.ERROR)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        logger.setLevel(before)
