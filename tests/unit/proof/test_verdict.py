"""The verdict: two positive things prove, a defect breaks, all else is unproven and says what is missing."""

from __future__ import annotations

import dataclasses
import json
from typing import Any

import numpy as np
import pytest
from synthetic import ToyRun, train

from learnproof.errors import EvidenceError, SettingsError
from learnproof.evidence import Evidence, Inspection, RunStarted
from learnproof.proof import Verdict, judge
from learnproof.proof.check import Check
from learnproof.proof.quorum import MIN_INSPECTED_STEPS
from learnproof.proof.verdict import DECLARED_CHECKS

DESIGNED_KEYS = {
    "verdict",
    "error_rate",
    "performance",
    "findings",
    "mechanism",
    "controls",
    "waived",
    "accusation_rate",
    "checklist",
    "learning_verification",
    "issues_found",
    "fixes_applied",
    "final_status",
    "digests",
}


def verdict_of(run: ToyRun, **settings: Any) -> Verdict:
    return judge(run.evidence, run.scores, **settings)


def without(run: ToyRun, kind: str) -> ToyRun:
    for position, event in enumerate(run.evidence.inspections):
        if event.kind == kind:
            run.evidence.held.pop(position)
    return run


def status_of(verdict: Verdict, check: str) -> str:
    return next(finding.status for finding in verdict.findings if finding.check == check)


class TestProven:
    def test_a_better_policy_and_a_working_mechanism_are_proven(self) -> None:
        verdict = verdict_of(train())
        assert verdict.verdict == "proven"
        assert bool(verdict) is True
        assert verdict.exit_code == 0
        assert verdict.missing == []
        assert verdict.mechanism.updates_inspected == verdict.mechanism.updates == 16
        assert verdict.mechanism.gradient_steps_inspected == 64
        assert {"policy_direction", "advantages_recomputed", "ratio_is_one"} <= set(verdict.mechanism.passed)

    def test_a_working_mechanism_alone_proves_nothing(self) -> None:
        run = train()
        verdict = judge(run.evidence, None)
        assert verdict.verdict == "unproven"
        assert verdict.performance is None
        assert "not compared on fresh seeds" in verdict.missing[0]

    def test_a_better_policy_alone_proves_nothing(self) -> None:
        run = train()
        run.evidence.held.clear()
        run.evidence.inspections.clear()
        verdict = verdict_of(run)
        assert verdict.verdict == "unproven"
        assert status_of(verdict, "performance") == "pass"
        assert status_of(verdict, "policy_direction") == "not_applicable"
        assert any(f"{MIN_INSPECTED_STEPS} more" in sentence for sentence in verdict.missing)

    def test_a_policy_optimal_from_the_start_is_unproven_and_not_broken(self) -> None:
        verdict = verdict_of(train(start="optimal", rewards="none"))
        assert verdict.verdict == "unproven"
        assert verdict.exit_code == 3
        assert "optimal from the start" in verdict.missing[0]

    def test_where_the_advantages_cannot_be_recomputed_nothing_is_proven(self) -> None:
        run = train()
        constants = {name: value for name, value in run.evidence.run.constants.items() if name != "gae_lambda"}
        run.evidence.run = dataclasses.replace(run.evidence.run, constants=constants)
        verdict = verdict_of(run)
        assert status_of(verdict, "advantages_recomputed") == "not_applicable"
        assert status_of(verdict, "ratio_is_one") == "pass"
        assert verdict.verdict == "unproven"
        assert any("could not be recomputed" in sentence for sentence in verdict.missing)

    def test_few_inspected_steps_are_not_enough(self) -> None:
        run = train(iterations=16, inspected_steps=1)
        inspected = [event for event in run.evidence.inspections if event.kind == "gradient_step"]
        for event in inspected[7:]:
            position = run.evidence.inspections.index(event)
            run.evidence.inspections[position] = dataclasses.replace(event, kind="iteration", roles=[])
            run.evidence.held.pop(position)
        verdict = verdict_of(run)
        assert verdict.verdict == "unproven"
        assert "7 gradient steps were inspected and 8 are needed: 1 more." in verdict.missing


class TestBroken:
    @pytest.mark.parametrize(
        ("fault", "check"),
        [
            ("stale log-probs", "ratio_is_one"),
            ("time limit as terminal", "advantages_recomputed"),
            ("crossing episodes", "advantages_recomputed"),
            ("ends shifted", "advantages_recomputed"),
            ("shuffled minibatch", "advantages_recomputed"),
            ("no step", "weights_changing"),
            ("learning rate 0", "weights_changing"),
            ("nan", "finiteness"),
            ("value without gradient", "gradients_flowing"),
        ],
    )
    def test_a_defect_breaks_however_good_the_return_looks(self, fault: str, check: str) -> None:
        verdict = verdict_of(train(fault=fault))
        assert verdict.verdict == "broken"
        assert not verdict
        assert verdict.exit_code == 1
        assert status_of(verdict, check) == "fail"
        assert check in verdict.final_status
        assert any(issue.startswith(check) for issue in verdict.issues_found)

    def test_a_healthy_twin_is_not_broken(self) -> None:
        assert verdict_of(train()).issues_found == ()

    def test_every_finding_can_be_read_aloud(self) -> None:
        for fault in ("", "no step", "time limit as terminal", "stale log-probs", "nan"):
            for finding in verdict_of(train(fault=fault)).findings:
                assert finding.question.endswith("?")
                assert finding.summary.endswith("."), finding.summary
                if finding.status == "fail":
                    assert finding.cause, finding.check
                    assert finding.advice, finding.check
                    assert finding.where, finding.check


class TestWaivers:
    def test_a_defect_that_is_meant_can_be_waived_and_the_reason_is_printed(self) -> None:
        run = train(fault="time limit as terminal")
        verdict = verdict_of(run, waive={"advantages_recomputed": "the task really ends there"})
        assert verdict.verdict == "proven"  # ratio_is_one stands in for the target
        assert verdict.waived[0].check == "advantages_recomputed"
        assert verdict.to_json()["waived"][0]["reason"] == "the task really ends there"
        assert status_of(verdict, "advantages_recomputed") == "fail"

    def test_a_waiver_excuses_only_its_own_check(self) -> None:
        run = train(fault="no step")
        assert verdict_of(run, waive={"weights_changing": "frozen on purpose"}).verdict == "broken"

    def test_a_waiver_of_what_passed_is_no_waiver(self) -> None:
        verdict = verdict_of(train(), waive={"weights_changing": "not needed"})
        assert status_of(verdict, "weights_changing") == "pass"
        assert verdict.waived == ()

    def test_a_waived_direction_is_no_proof(self) -> None:
        run = train(fault="policy sign", iterations=24)
        verdict = verdict_of(run, waive={"policy_direction": "an experiment"})
        assert verdict.verdict == "unproven"

    def test_an_unknown_check_is_refused_with_a_suggestion(self) -> None:
        with pytest.raises(SettingsError, match="Did you mean 'advantages_recomputed'"):
            verdict_of(train(), waive={"advantage_recomputed": "x"})

    def test_a_check_that_never_accuses_cannot_be_waived(self) -> None:
        with pytest.raises(SettingsError, match="no check 'flat_curve' to waive"):
            verdict_of(train(), waive={"flat_curve": "x"})

    def test_a_waiver_without_a_reason_is_refused(self) -> None:
        with pytest.raises(SettingsError, match="has no reason"):
            verdict_of(train(), waive={"ratio_is_one": " "})


class TestClassicProfile:
    def test_the_five_rules_decide_alone(self) -> None:
        run = train(iterations=40)
        for position, update in enumerate(run.evidence.updates):
            run.evidence.updates[position] = dataclasses.replace(update, loss=[1.0 - position / 100] * 4)
        verdict = verdict_of(without(run, "rollout"), profile="classic")
        assert [finding.check for finding in verdict.findings] == list(verdict.checklist.to_json())
        assert verdict.verdict == "proven"

    def test_one_of_the_first_four_breaks(self) -> None:
        verdict = verdict_of(train(fault="learning rate 0", iterations=30), profile="classic")
        assert verdict.verdict == "broken"
        assert verdict.checklist.weights_changing is False

    def test_performance_only_warns(self) -> None:
        run = train(iterations=40)
        for position, update in enumerate(run.evidence.updates):
            run.evidence.updates[position] = dataclasses.replace(update, loss=[1.0 - position / 100] * 4)
        run.evidence.episodes.reverse()
        verdict = verdict_of(run, profile="classic")
        assert verdict.verdict == "unproven"
        assert any(issue.startswith("performance_improving") for issue in verdict.issues_found)

    def test_too_few_records_are_unproven_and_it_is_said(self) -> None:
        verdict = verdict_of(train(iterations=3), profile="classic")
        assert verdict.verdict == "unproven"
        assert any("needs 101" in sentence for sentence in verdict.missing)


class TestJson:
    def test_the_keys_are_the_designed_ones(self) -> None:
        body = verdict_of(train()).to_json()
        assert set(body) == DESIGNED_KEYS | {"missing"}
        assert set(body["findings"][0]) == {
            "check",
            "status",
            "question",
            "summary",
            "figures",
            "where",
            "cause",
            "advice",
        }
        assert set(body["performance"]) == {
            "metric",
            "initial",
            "trained",
            "random",
            "difference",
            "interval",
            "p_value",
            "episodes",
            "seeds",
        }
        assert set(body["learning_verification"]) == {
            "weights_updating",
            "entropy_tracking",
            "gradient_flow",
            "loss_tracking",
            "performance_metrics",
        }

    @pytest.mark.parametrize("fault", ["", "nan", "time limit as terminal"])
    def test_a_verdict_survives_json(self, fault: str) -> None:
        verdict = dataclasses.replace(verdict_of(train(fault=fault)), digests={"evidence.jsonl": "ab12"})
        body = json.loads(json.dumps(verdict.to_json(), allow_nan=False))
        again = Verdict.from_json(body)
        assert again.to_json() == body
        assert again.missing == verdict.missing
        assert again.exit_code == verdict.exit_code
        assert again.digests == {"evidence.jsonl": "ab12"}

    @pytest.mark.parametrize("spoil", [{"findings": [{}]}, {"mechanism": None}, {"checklist": {"x": True}}])
    def test_another_form_is_refused(self, spoil: dict[str, Any]) -> None:
        with pytest.raises(EvidenceError, match="not a verdict of the known form"):
            Verdict.from_json({**verdict_of(train()).to_json(), **spoil})

    def test_the_same_evidence_always_gets_the_same_verdict(self) -> None:
        assert verdict_of(train()).to_json() == verdict_of(train()).to_json()


def test_checks_have_unique_names_and_only_mechanism_checks_accuse() -> None:
    assert len({check.name for check in DECLARED_CHECKS}) == len(DECLARED_CHECKS)
    for check in DECLARED_CHECKS:
        assert isinstance(check, Check)
        assert (check.accuses != "never") == check.family.startswith("mechanism")


def test_watched_evidence_whose_batches_do_not_fit_is_refused_with_words():
    columns = ("time", "stream", "copy", "observation", "next_observation", "final_observation", "reward", "terminated",
               "truncated", "resets")  # fmt: skip
    seen = Evidence(
        run=RunStarted(
            producer="watch", algorithm="unknown", environment="unknown", seed=0, metric="return", n_envs=0, constants={},
            parameters={}, marked="inferred",
        )
    )  # fmt: skip
    seen.add(Inspection(kind="transitions", update=0, optimizer_step=0))
    seen.add(Inspection(kind="calls", update=0, optimizer_step=0, modules=["not a dictionary"]))  # type: ignore[list-item]
    seen.held[0] = {name: np.zeros(4, np.int64) for name in columns}
    seen.held[1] = {"m0.output": np.zeros((4, 1)), "m0.rows": np.zeros(4)}
    with pytest.raises(EvidenceError, match="does not fit together"):
        judge(seen, None)
