"""Returns of a curriculum's stages are of different tasks: nothing that reads a trend takes them for one curve."""

from __future__ import annotations

from sample_run import episode, run_started, update, verdict

from learnproof.evidence import Evidence, StageBegan
from learnproof.proof.advice import curve
from learnproof.proof.classic import records_of
from learnproof.proof.monitor import ChecklistMonitor
from learnproof.show.report import render_report


def test_checks_that_read_a_trend_see_one_stage_only() -> None:
    """Easy episodes of return 100, then hard ones of 10: no collapse, and no fall of performance."""
    evidence = Evidence(run=run_started())
    monitor = ChecklistMonitor(evidence.run)
    began = {"stages": 2, "reason": "a test"}
    looks = []
    for event in (
        StageBegan(step=0, stage=1, full=False, **began),
        *(episode(i, 100.0) for i in range(60)),
        *(update(i, step=40 * i, loss=[0.0]) for i in range(60)),
        StageBegan(step=2400, stage=2, full=True, **began),
        *(episode(60 + i, 10.0) for i in range(60)),
        *(update(60 + i, step=2400 + 40 * (i + 1), loss=[9.0]) for i in range(60)),
    ):
        evidence.add(event)
        looks += [look.look for look in [monitor.feed(event)] if look is not None]
    page = render_report(evidence, verdict("proven"), None, None)
    assert "from step 2,400 stage 2, the full task: a test" in page
    assert set(curve(evidence)) == {10.0}
    records = records_of(evidence)
    assert set(records["performance_improving"]) == {10.0}
    assert set(records["loss_improving"]) == {9.0}
    assert len(records["weights_changing"]) == 120
    assert looks[6].performance_improving is None, "the first look after the change has too few records again"
