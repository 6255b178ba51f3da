"""Records of trials as a sweep notes them, without a training."""

from learnproof.config import Settings
from learnproof.sweeping.plan import SweepPlan
from learnproof.sweeping.records import results

SPACE = {
    "ppo.learning_rate": "1e-4..1e-3:log",
    "policy.activation": ["relu", "tanh"],
    "ppo.n_steps": "512..4096:doubling",
}


def plan(**changes):
    return SweepPlan(**{"space": SPACE, "settings": Settings().replace({"env.id": "CartPole-v1"}), **changes})


def trial(number, score=1.0, state="finished", verdict="proven", rate=3e-4, note=""):
    evaluations = [[1000.0 * k, (score or 0.0) * k / 4] for k in range(5)]
    run = {
        "seed": 0,
        "folder": f"trials/{number:04d}/seed0",
        "verdict": verdict or "unproven",
        "score": score,
        "proof_score": score,
        "steps": 4000,
        "stopped": "budget",
        "evaluations": evaluations,
    }
    return {
        "number": number,
        "state": state,
        "verdict": verdict,
        "score": score,
        "values": {"ppo.learning_rate": rate, "policy.activation": ["relu", "tanh"][number % 2], "ppo.n_steps": 512 * 2 ** (number % 4)},
        "runs": [] if state in ("failed", "paused") else [run],
        "seconds": 12.0,
        "interrupted": [],
        "note": note,
    }  # fmt: skip


def mixed():
    """One of each kind; trial 3 scores highest, but only trial 1 is the best of the proven ones."""
    return [
        trial(0, 10.0),
        trial(1, 40.0, rate=8e-4),
        trial(2, None, "broken", "broken"),
        trial(3, 90.0, verdict="unproven"),
        trial(4, 60.0, "pruned", "unproven"),
        trial(5, None, "failed", None, note="the simulator fell over"),
        trial(6, 70.0, "pruned", "proven"),
        trial(7, None, "paused", None),
    ]


def mixed_results(records=None, **changes):
    return results(plan(**changes), mixed() if records is None else records, "return")
