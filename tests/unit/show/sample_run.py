"""A run in memory and the verdicts on it, for the tests of what people see."""

from __future__ import annotations

from typing import Any

import numpy as np

from learnproof.evidence import Episode, Evaluation, Evidence, Fault, NotSeen, RunStarted, RunStopped, Update
from learnproof.evidence.events import ModuleChange

NAN = float("nan")


def run_started(**changes: Any) -> RunStarted:
    body: dict[str, Any] = {
        "producer": "learnproof",
        "algorithm": "ppo",
        "environment": "CartPole-v1",
        "seed": 7,
        "metric": "return",
        "n_envs": 4,
        "constants": {"gamma": 0.99, "max_grad_norm": 0.5},
        "parameters": {"policy.0.weight": 32, "policy.0.bias": 8, "value.0.weight": 32},
        "max_entropy": float(np.log(2)),
    }
    return RunStarted(**{**body, **changes})


def update(index: int, **changes: Any) -> Update:
    module = ModuleChange(
        weight_norm=5.0, weight_change=0.4 * index, weight_step=0.1, grad_norm=1.0 / (1 + index), learning_rate=3e-4
    )
    body: dict[str, Any] = {
        "index": index,
        "step": 512 * (index + 1),
        "optimizer_steps": 40 * (index + 1),
        "learning_rate": 3e-4,
        "loss": [0.5, 0.4],
        "policy_loss": [-0.01, -0.02],
        "value_loss": [1.0 / (1 + index), 0.9 / (1 + index)],
        "entropy": [0.69 - 0.01 * index, 0.68 - 0.01 * index],
        "grad_norm": [1.0, 1.1],
        "grad_norm_max": [2.0, 2.1],
        "approx_kl": [0.01, 0.01],
        "clip_fraction": [0.1, 0.1],
        "explained_variance": 0.5,
        "advantage_mean": 0.0,
        "advantage_std": 1.0,
        "weight_change": 0.8 * index,
        "weight_step": 0.1,
        "modules": {"policy": module, "value": module},
    }
    return Update(**{**body, **changes})


def episode(index: int, score: float, **changes: Any) -> Episode:
    body: dict[str, Any] = {"step": 40 * (index + 1), "env": 0, "return_": score, "length": 40, "terminated": True}
    return Episode(**{**body, **changes})


def healthy(**changes: Any) -> Evidence:
    """Thirty updates, 300 episodes that get better, five evaluations."""
    draw = np.random.default_rng(0)
    evidence = Evidence(run=run_started(**changes))
    for index in range(300):
        score = float(20 + index + 10 * draw.standard_normal())
        evidence.add(episode(index, score, metrics={"roas": score / 100}))
    for index in range(30):
        evidence.add(update(index))
    for index in range(5):
        scores = [50.0 * index + 20, 50.0 * index + 30]
        evidence.add(Evaluation(step=3_000 * (index + 1), deterministic=scores, sampled=scores, best=index == 4))
    evidence.add(NotSeen(what="the environment's state", reason="it cannot be saved"))
    evidence.add(RunStopped(step=15_360, rule="budget", reason="the step budget of 15,360 is spent"))
    return evidence


def sparse() -> dict[str, Evidence]:
    """Runs of which little is known, or nothing good."""
    nothing = Evidence(run=run_started(max_entropy=None, constants={}, parameters={}))
    one_episode = Evidence(run=run_started())
    one_episode.add(episode(0, 21.0))
    one_update = Evidence(run=run_started())
    one_update.add(update(0))
    not_finite = healthy()
    spoilt = {"loss": [NAN], "value_loss": [float("inf")], "entropy": [NAN, 0.6], "grad_norm": [NAN]}
    not_finite.add(update(30, weight_change=NAN, grad_norm_max=[float("inf")], **spoilt))
    not_finite.add(episode(300, NAN))
    not_finite.add(Evaluation(step=16_000, deterministic=[NAN], sampled=[], best=False))
    not_finite.add(Fault(step=16_000, kind="not_finite", where="policy.0.weight", summary="the loss is NaN"))
    only_nan = Evidence(run=run_started())
    for index in range(3):
        only_nan.add(update(index, weight_change=NAN, grad_norm_max=[NAN], **spoilt))
    no_lists = Evidence(run=run_started())
    no_lists.add(update(0, loss=[], value_loss=[], entropy=[], grad_norm=[], grad_norm_max=[], modules={}))
    no_lists.add(Evaluation(step=1, deterministic=[], sampled=[], best=False))
    huge = healthy()
    huge.add(update(30, loss=[1e300], value_loss=[1e90], grad_norm=[3e38], grad_norm_max=[3e38]))
    flat = Evidence(run=run_started())
    for index in range(40):
        flat.add(update(index, weight_change=0.0, loss=[0.0], value_loss=[0.0], entropy=[0.0], grad_norm=[0.0]))
        flat.add(episode(index, -5.0))
    return {
        "nothing": nothing,
        "one episode": one_episode,
        "one update": one_update,
        "values that are not finite": not_finite,
        "no finite value at all": only_nan,
        "empty lists": no_lists,
        "huge values": huge,
        "nothing moves": flat,
        "a metric that no episode has": healthy(metric="completion_rate", higher_is_better=False),
    }


def finding(check: str, status: str, summary: str, **more: Any) -> dict[str, Any]:
    body: dict[str, Any] = {"question": f"What of {check}?", "figures": {}, "where": "", "cause": "", "advice": ""}
    return {"check": check, "status": status, "summary": summary, **body, **more}


def compared(**changes: Any) -> dict[str, Any]:
    """The finding on performance, which tells both comparisons."""
    figures: dict[str, Any] = {
        "metric": "return",
        "mode": "deterministic",
        "higher_is_better": True,
        "interval_confidence": 0.9,
        "against_initial": {"lead": 477.78, "interval": [466.2, 486.9], "p_value": 1e-12},
        "against_random": {"lead": 464.89, "interval": [452.1, 476.4], "p_value": 0.013},
    }
    return finding("performance", "pass", "The trained policy is better than both.", figures={**figures, **changes})


def verdict(kind: str, **changes: Any) -> dict[str, Any]:
    """As verdict.json has it."""
    findings = [
        compared() if kind != "unproven" else {**compared(), "status": "undecided"},
        finding("finiteness", "pass", "All 900 recorded numbers are finite.", figures={"numbers": 900}),
        finding("entropy_decreasing", "undecided", "There are 30 records; 100 are needed."),
        finding("target_network", "not_applicable", "This could not be asked: no target network was recorded."),
    ]
    missing: list[str] = []
    if kind == "broken":
        findings.append(
            finding(
                "weights_move",
                "fail",
                "No weight moved in 30 updates.",
                figures={"largest_step": 0.0},
                where="updates 0 to 29, policy.0.weight",
                cause="The optimizer's step is missing.",
                advice="Call optimizer.step() after backward().",
            )
        )
    else:
        findings.append(finding("update_direction", "pass", "The objective rose on 90 of 90 inspected steps."))
    if kind == "unproven":
        missing.append("The trained policy is not shown to be better than random. About 410 episodes would settle it.")
    body: dict[str, Any] = {
        "verdict": kind,
        "error_rate": 0.05,
        "accusation_rate": 0.001,
        "performance": {
            "metric": "return",
            "initial": 9.42,
            "random": 22.31,
            "trained": 487.2,
            "difference": 464.89,
            "interval": [452.1, 476.4],
            "p_value": 0.013,
            "episodes": 100,
            "seeds": [1, 2, 3],
        },
        "findings": findings,
        "mechanism": {
            "passed": ["update_direction"],
            "updates_inspected": 24,
            "updates": 30,
            "gradient_steps_inspected": 90,
            "gradient_steps": 1_200,
            "missing": [],
        },
        "controls": [],
        "waived": [],
        "missing": missing,
        "checklist": {
            "weights_changing": kind != "broken",
            "gradients_flowing": True,
            "entropy_decreasing": None,
            "loss_improving": True,
            "performance_improving": True,
        },
        "issues_found": [],
        "fixes_applied": [],
        "final_status": "LEARNING",
        "digests": {"evidence.jsonl": "sha256:00ff"},
    }
    return {**body, **changes}
