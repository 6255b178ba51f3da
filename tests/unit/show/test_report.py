"""report.html: whole, alone, harmless."""

from __future__ import annotations

import base64
import io
import re
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest
from PIL import Image
from sample_run import compared, finding, healthy, run_started, sparse, update, verdict

from learnproof.evidence import Episode, Evidence, Fault, NotSeen
from learnproof.evidence.events import ModuleChange
from learnproof.show import report
from learnproof.show.plots import learning_progress_png
from learnproof.show.report import render_report, write_report

ABOUT = {"learnproof": "0.1.0", "host": {"cores": 2}, "command": ["learnproof", "train"]}
CONFIG = 'seed = 7\n\n[env]\nid = "CartPole-v1"\nhidden = [\n    256,\n]\n'
SCRIPT = "<script>alert(1)</script>"
VOID = {"meta", "img", "source", "line", "circle", "path", "rect"}


ONE_PICTURE = learning_progress_png(healthy(), None)


class Page(HTMLParser):
    """What a browser would see: tags in balance, attributes, and the text between them."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.attributes: list[tuple[str, str, str]] = []
        self.text: list[str] = []
        self._open: list[str] = []
        self.feed(text)
        assert not self._open, f"never closed: {self._open}"

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.attributes += [(tag, name, value or "") for name, value in attrs]
        if tag not in VOID:
            self._open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        if tag not in VOID:
            assert self._open.pop() == tag

    def handle_data(self, data: str) -> None:
        if not (self._open and self._open[-1] == "style"):
            self.text.append(data)

    @property
    def words(self) -> str:
        return " ".join(" ".join(self.text).split())


@pytest.fixture(autouse=True)
def quick_pictures(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Drawing is tested elsewhere and takes most of the time: only tests marked so draw anew."""
    if "real_pictures" not in request.fixturenames:
        monkeypatch.setattr(report, "learning_progress_png", lambda evidence, verdict: ONE_PICTURE)


@pytest.fixture
def real_pictures() -> None:
    """For a test that looks at the pictures themselves."""


def page(evidence: Evidence | None = None, body: dict[str, Any] | None = None, **options: Any) -> str:
    return render_report(
        evidence or healthy(), body or verdict("proven"), options.get("about", ABOUT), options.get("config", CONFIG)
    )


def test_the_report_is_written_whole_into_the_folder(tmp_path: Path) -> None:
    path = write_report(tmp_path, healthy(), verdict("proven"), ABOUT, CONFIG)
    assert path == tmp_path / "report.html"
    assert path.read_text(encoding="utf-8") == page()
    assert [found.name for found in tmp_path.iterdir()] == ["report.html"]


def test_it_refers_to_nothing_outside_itself_and_runs_nothing() -> None:
    text = page()
    assert not re.search(r"https?:|//[a-z]", re.sub(r"base64,[A-Za-z0-9+/=]+", "", text))
    seen = Page(text)
    assert not {"script", "iframe", "object", "embed", "link", "base", "form", "a"} & set(seen.tags)
    assert not [name for _, name, _ in seen.attributes if name.startswith("on")]
    assert all(value.startswith("data:image/png") for _, name, value in seen.attributes if name in ("src", "srcset"))
    assert "url(" not in text
    assert "@import" not in text
    policy = [value for tag, name, value in seen.attributes if tag == "meta" and name == "content"]
    assert any(value.startswith("default-src 'none'") for value in policy)


def test_it_carries_the_picture_and_turns_it_for_a_dark_page(real_pictures: None) -> None:
    text = page()
    (uri,) = [value for _, name, value in Page(text).attributes if name == "src"]
    picture = Image.open(io.BytesIO(base64.b64decode(uri.removeprefix("data:image/png;base64,"))))
    assert picture.width >= 1_200
    dark = text[text.index("prefers-color-scheme: dark") : text.index("box-sizing")]
    assert "img { filter: invert" in dark


@pytest.mark.parametrize("kind", ["proven", "broken", "unproven"])
def test_it_says_the_verdict_and_what_that_means(kind: str) -> None:
    words = Page(page(body=verdict(kind))).words
    meaning = {
        "proven": "Two things were established.",
        "broken": "At least one check found a defect",
        "unproven": "Nothing is wrong that could be seen, and nothing is proven either.",
    }
    for other, sentence in meaning.items():
        assert (sentence in words) == (other == kind)
    assert ("What is still missing" in words) == (kind == "unproven")
    assert ("what to do" in words) == (kind == "broken")


def test_everything_known_of_the_run_is_in_it() -> None:
    words = Page(page(body=verdict("broken", waived=[{"check": "time_limit", "reason": "meant so"}]))).words
    for part in (
        "CartPole-v1",
        "ppo · seed 7 · 15,360 steps · 30 updates · 300 training episodes",
        "+466.2 to +486.9",
        "Call optimizer.step() after backward().",
        "largest_step = 0",
        "24 of 30 updates were inspected",
        "Do the weights move away from where they started?",
        "40 numbers in 2 tensors",
        "first 100 last 100",
        "★ kept",
        "the step budget of 15,360 is spent",
        "it cannot be saved",
        "meant so",
        'id = "CartPole-v1"',
        "host.cores",
        "sha256:00ff",
        "LEARNING",
    ):
        assert part in words, part


def test_equal_runs_give_equal_reports() -> None:
    assert page() == page()


def test_settings_keep_their_lines_and_indentation() -> None:
    assert "hidden = [\n    256,\n]" in page()


@pytest.mark.parametrize(
    "hostile", [SCRIPT, '"><img src=x onerror=alert(1)>', "{{ 7 * 7 }}", "</title></style><b>", "\ud800"]
)
def test_foreign_text_stays_text(hostile: str, tmp_path: Path) -> None:
    module = ModuleChange(weight_norm=1.0, weight_change=1.0, weight_step=1.0, grad_norm=1.0, learning_rate=1.0)
    evidence = Evidence(
        run=run_started(environment=hostile, algorithm=hostile, metric=hostile, constants={hostile: hostile})
    )
    evidence.add(update(0, modules={hostile: module}))
    evidence.add(Episode(step=1, env=0, return_=1.0, length=1, terminated=True, metrics={hostile: 1.0}))
    evidence.add(NotSeen(what=hostile, reason=hostile))
    evidence.add(Fault(step=1, kind=hostile, where=hostile, summary=hostile))
    failed = finding(hostile, "fail", hostile, figures={hostile: hostile}, where=hostile, cause=hostile, advice=hostile)
    body = verdict(
        hostile,
        findings=[failed, compared(mode=hostile), finding("x", hostile, hostile, question=hostile)],
        performance={**verdict("proven")["performance"], "metric": hostile},
        waived=[{"check": hostile, "reason": hostile}],
        missing=[hostile],
        controls=[{"name": hostile, "summary": hostile}],
        mechanism={"passed": [hostile]},
        final_status=hostile,
        digests={hostile: hostile},
    )
    path = write_report(tmp_path, evidence, body, {hostile: {"deep": [hostile]}}, f'x = "{hostile}"')
    seen = Page(path.read_text(encoding="utf-8"))
    assert not {"script", "b"} & set(seen.tags)
    assert seen.tags.count("img") == 1
    assert "onerror" not in [name for _, name, _ in seen.attributes]
    if hostile.isprintable():
        assert seen.words.count(hostile) >= 15


@pytest.mark.parametrize("name", list(sparse()))
def test_little_evidence_gives_a_report_too(name: str) -> None:
    Page(page(sparse()[name], verdict("unproven"), about=None, config=None))


@pytest.mark.parametrize("body", [{"verdict": "odd"}, {"verdict": "proven", "performance": {"metric": None}}])
def test_half_a_verdict_gives_a_report_too(body: dict[str, Any]) -> None:
    Page(page(body=body))


def test_many_modules_are_shown_up_to_a_limit_and_the_rest_is_counted() -> None:
    module = ModuleChange(weight_norm=1.0, weight_change=1.0, weight_step=1.0, grad_norm=1.0, learning_rate=1.0)
    evidence = Evidence(run=run_started())
    evidence.add(update(0, modules={f"block{index}": module for index in range(30)}))
    words = Page(page(evidence)).words
    assert "block23" in words
    assert "block24" not in words
    assert "6 more modules are in evidence.jsonl." in words
