"""The proof of a run, from what lies on disk: policies are evaluated anew and evidence is judged anew.

Nothing that the run wrote of itself is believed: the untrained and the trained policy come out of their digest-checked
checkpoints and play fresh seeds, which no choice during training has seen; the evidence must be the bytes that the last
checkpoint noted.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import shlex
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

from ..config import Settings
from ..envs.making import AnyVectorEnv, EnvironmentSource
from ..errors import EvidenceError, RunFolderError
from ..evidence import Evidence
from ..policies.actor import Actor, NetworkActor, RandomActor
from ..proof.performance import PairedScores
from ..proof.verdict import Verdict, judge
from ..runs.atomic import write_file
from ..runs.folder import RunFolder
from ..seeding import episode_seeds
from ..show.progress import Display
from ..show.report import show_run
from .assembly import environment_facts, make_actor
from .evaluation import Evaluator
from .saving import load_policy_checkpoint

Say = Callable[[str], None]


@dataclass(frozen=True)
class Policies:
    """The two policies of a run that the proof compares, and the digests of their checkpoints."""

    initial: NetworkActor
    trained: NetworkActor
    digests: dict[str, str]


def prove(
    folder: RunFolder,
    settings: Settings,
    source: EnvironmentSource | None,
    display: Display,
    make: Callable[[AnyVectorEnv], NetworkActor] | None = None,
    *,
    keep: bool = True,
) -> Verdict:
    """Evaluate, judge, and, unless `keep` is False, write verdict.json, learning_progress.png and report.html.

    `make` gives an untrained actor, where the settings alone do not say how it is made.
    """
    evidence = read_evidence(folder)
    digests = {"evidence.jsonl": _sha256(folder.evidence.read_bytes())}
    scores = None
    env = None if source is None else source.evaluation(1)
    if source is not None and env is not None:
        policies = load_policies(folder, make or partial(make_actor, settings), env)
        digests |= policies.digests
        scores = paired_scores(settings, source, env, policies, display)
    return conclude(folder, settings, evidence, scores, digests, keep=keep)


def conclude(
    folder: RunFolder,
    settings: Settings,
    evidence: Evidence,
    scores: PairedScores | None,
    digests: dict[str, str],
    *,
    report: bool = True,
    keep: bool = True,
) -> Verdict:
    """Judge what there is and, unless `keep` is False, write it down; `report` = with the picture and the page."""
    verdict = judge(
        evidence,
        scores,
        profile=settings.proof.profile,
        error_rate=settings.proof.error_rate,
        accusation_rate=settings.proof.accusation_rate,
        waive=settings.proof.waive,
    )
    verdict = dataclasses.replace(verdict, digests=digests)
    if not keep:
        return verdict
    body = verdict.to_json()
    write_file(folder.verdict, json.dumps(body, indent=2, allow_nan=False).encode() + b"\n")
    if report:
        show_run(folder, evidence, body)
    return verdict


def read_evidence(folder: RunFolder) -> Evidence:
    """The evidence, if it still is what the newest checkpoint noted; nothing may be added to that of a finished run."""
    newest = folder.checkpoints().newest()
    if newest is None:
        raise EvidenceError(
            f"{folder.path} has no checkpoint, and only a checkpoint says which evidence the run wrote: a verdict on it "
            f"would prove nothing. Go on with the run: learnproof resume {shlex.quote(str(folder.path))}"
        )
    newest.verify()
    state = newest.state()
    noted = state["evidence"]
    body = folder.evidence.read_bytes() if folder.evidence.exists() else b""
    if not state["progress"]["finished"]:
        body = body[: int(noted["position"])]
    if len(body) != noted["position"] or _sha256(body) != noted["sha256"]:
        raise EvidenceError(
            f"{folder.evidence} is not what the run wrote: the checkpoint at step {newest.step} noted "
            f"{noted['position']} bytes with sha256 {noted['sha256'][:12]}…. Somebody or something changed it; "
            "a verdict on it would prove nothing."
        )
    return Evidence.read(folder.path)


def load_policies(folder: RunFolder, make: Callable[[AnyVectorEnv], NetworkActor], env: AnyVectorEnv) -> Policies:
    initial, trained = folder.initial.newest(), folder.best.newest()
    if initial is None or trained is None:
        missing = "initial" if initial is None else "best"
        raise RunFolderError(
            f"{folder.path} has no {missing}/ policy: it was removed, or the run was stopped before its first evaluation. "
            f"Go on with it: learnproof resume {shlex.quote(str(folder.path))}"
        )
    actors = [make(env), make(env)]
    for actor, checkpoint in zip(actors, (initial, trained), strict=True):
        load_policy_checkpoint(actor, checkpoint)
    return Policies(actors[0], actors[1], {"initial": initial.digest, "best": trained.digest})


def paired_scores(
    settings: Settings, source: EnvironmentSource, env: AnyVectorEnv, policies: Policies, display: Display
) -> PairedScores:
    """Untrained, random and trained policy on the same fresh seeds."""
    metric = environment_facts(env).metric
    evaluator = Evaluator(source, metric, settings.evaluation.max_episode_steps)
    seeds = episode_seeds(settings.seed, "proof", settings.proof.episodes)
    mode = settings.evaluation.mode
    actors: dict[str, Actor] = {
        "untrained": policies.initial,
        "random": RandomActor(env.single_action_space),
        "trained": policies.trained,
    }
    scores = {}
    for name, actor in actors.items():

        def show(done: int, name: str = name) -> None:
            display.phase(f"proving: {name} policy on fresh seeds, {done} of {len(seeds)}")

        scores[name] = evaluator.scores(actor, seeds, mode, show)
    display.phase("")
    evaluator.close()
    return PairedScores(
        metric=metric,
        seeds=seeds,
        initial=scores["untrained"].tolist(),
        trained=scores["trained"].tolist(),
        random=scores["random"].tolist(),
        mode=mode,
    )


def _sha256(body: bytes) -> str:
    return hashlib.sha256(body).hexdigest()
