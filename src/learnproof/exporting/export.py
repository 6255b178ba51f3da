"""From a run to an ONNX file that was seen to act as its policy does. No file is left behind that was not.

report = export_policy("runs/cartpole")              # runs/cartpole/policy.onnx
session = onnxruntime.InferenceSession(report.path)  # session.run(["action"], {"observation": observations})
"""

from __future__ import annotations

import json
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from ..errors import UsageError
from ..runs.about import package_version
from ..runs.atomic import write_file
from ..training.loading import KeptPolicy, open_policy
from .checking import Agreement, compare, met_observations, random_inputs, with_memory
from .graph import PolicyGraph
from .writing import require_onnx, to_onnx

Array = np.ndarray[Any, Any]
INSTANCES = 8
LEAST = 10


@dataclass(frozen=True)
class ExportReport:
    """What was written, and how far it is from the policy."""

    path: Path
    bytes: int
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    environment: str
    algorithm: str
    step: int
    verdict: str | None
    met: Agreement
    """On observations of the environment."""
    random: Agreement
    """On random ones."""

    @property
    def largest_difference(self) -> float:
        return max(self.met.largest_difference, self.random.largest_difference)

    def to_json(self) -> dict[str, Any]:
        return {**vars(self), "path": str(self.path), "met": vars(self.met), "random": vars(self.random)}


def export_policy(
    run: str | os.PathLike[str], out: str | os.PathLike[str] | None = None, *, observations: int = 1_000
) -> ExportReport:
    """Write a run's best policy as ONNX, after its answers were compared with the policy's on 2 x `observations`."""
    if observations < LEAST:
        raise UsageError(f"observations = {observations}: compare on at least {LEAST}.")
    require_onnx()
    kept = open_policy(run, device="cpu")
    path = Path(out) if out is not None else kept.folder.path / "policy.onnx"
    if path.is_dir():
        raise UsageError(f"{path} is a folder: give the name of the file, e.g. --out {path / 'policy.onnx'}")
    graph = PolicyGraph(kept.actor)
    body = to_onnx(graph, _notes(kept, graph))
    session = _open(body)

    def answer(inputs: Any) -> list[Array]:
        return list(session.run(graph.output_names, dict(inputs)))

    env = kept.source.evaluation(INSTANCES)
    assert env is not None
    batches = met_observations(env, kept.actor, kept.settings.seed, observations)
    env.close()
    parts = zip(*(kept.actor.observations.parts(kept.actor.seen(batch)) for batch in batches), strict=True)
    seed = kept.settings.seed
    seen = {key: np.concatenate(own) for key, own in zip(graph.observation_names, parts, strict=True)}
    made_up = with_memory(graph, random_inputs(graph, seen, seed, observations), seed)
    met = with_memory(graph, seen, seed)
    single = {key: value[:1] for key, value in met.items()}
    name = kept.settings.env.id
    compare(kept.actor, graph, answer, single, f"a single observation of {name}")
    on_met = compare(kept.actor, graph, answer, met, f"observations of {name}")
    on_random = compare(kept.actor, graph, answer, made_up, "random observations")
    path.parent.mkdir(parents=True, exist_ok=True)
    write_file(path, body)
    return ExportReport(
        path=path,
        bytes=len(body),
        inputs=tuple(_signature(one) for one in session.get_inputs()),
        outputs=tuple(_signature(one) for one in session.get_outputs()),
        environment=name,
        algorithm=kept.settings.algorithm,
        step=kept.step,
        verdict=kept.verdict,
        met=on_met,
        random=on_random,
    )


def _open(body: bytes) -> Any:
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    options.log_severity_level = 3
    return onnxruntime.InferenceSession(body, options, providers=["CPUExecutionProvider"])


def _signature(one: Any) -> str:
    kind = one.type.removeprefix("tensor(").removesuffix(")")
    shape = ", ".join(str(size) for size in one.shape)
    return f"{one.name}  {'float32' if kind == 'float' else 'float64' if kind == 'double' else kind} [{shape}]"


def _notes(kept: KeptPolicy, graph: PolicyGraph) -> dict[str, str]:
    """Where the file comes from, for whoever finds it without its run."""
    settings = kept.settings
    return {
        "learnproof": package_version("learnproof") or "unknown",
        "environment": settings.env.id,
        "environment_arguments": json.dumps(settings.env.kwargs, sort_keys=True),
        "algorithm": settings.algorithm,
        "seed": str(settings.seed),
        "step": str(kept.step),
        "evaluation_score": "" if kept.score is None else repr(kept.score),
        "policy_sha256": kept.digest,
        "verdict": kept.verdict or "not judged",
        "memory_size": str(graph.memory_size),
        "observations_normalised": str(graph.normalizes).lower(),
        "rewards_normalised": str(settings.env.normalize_rewards).lower(),
        "observation_space": str(kept.actor.observations.space),
        "action_space": str(kept.actor.actions.space),
        "action_columns": json.dumps(
            {f"{part.name}: {type(part.head).__name__}": part.columns for part in graph.parts}
        ),
    }
