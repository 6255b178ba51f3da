"""`learnproof watch -- ...` as a user types it: exit codes, where output goes, stopping, bad input."""

import json
import subprocess
import sys
import textwrap

import pytest

LOOP = """
import sys, torch
torch.manual_seed(0)
rate, updates = float(sys.argv[1]), int(sys.argv[2])
model = torch.nn.Linear(4, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=rate)
for update in range(updates):
    x = torch.randn(8, 4)
    loss = (model(x).squeeze(1) - x.sum(1)).pow(2).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
print("done", update + 1)
"""


@pytest.fixture
def loop(tmp_path):
    path = tmp_path / "loop.py"
    path.write_text(LOOP)
    return path


def watch(folder, *words, timeout=120):
    return subprocess.run(
        [sys.executable, "-m", "learnproof", "watch", *words],
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=timeout,
    )


def test_a_healthy_loop_keeps_its_output_and_code_and_gets_a_verdict(tmp_path, loop):
    done = watch(tmp_path, "--out", "run", "--json", "verdict.json", "--", sys.executable, str(loop), "0.1", "40")
    assert done.returncode == 0
    assert done.stdout == "done 40\n"
    assert "UNPROVEN" in done.stderr
    verdict = json.loads((tmp_path / "verdict.json").read_text())
    weights = next(f for f in verdict["findings"] if f["check"] == "weights_changing")
    assert weights["status"] == "pass", weights["summary"]
    assert (tmp_path / "run" / "report.html").exists()


@pytest.mark.parametrize(
    ("ending", "said"),
    [
        ("raise KeyboardInterrupt", "was ended by SIGINT"),
        ("raise SystemExit(7)", "ended with exit code 7"),
        ("import os, signal; os.kill(os.getpid(), signal.SIGTERM)", "was ended by SIGTERM"),
    ],
)
def test_a_script_that_ended_early_is_judged_and_that_it_did_is_said(tmp_path, loop, ending, said):
    loop.write_text(LOOP + ending + "\n")
    done = watch(tmp_path, "--", sys.executable, str(loop), "0.1", "20")
    assert f"The script {said}; what it did until then was judged." in done.stderr
    assert "UNPROVEN" in done.stderr


def test_strict_gives_the_verdicts_code(tmp_path, loop):
    assert watch(tmp_path, "--strict", "--quiet", "--", sys.executable, str(loop), "0.1", "20").returncode == 3
    broken = watch(tmp_path, "--strict", "--", sys.executable, str(loop), "0.0", "20")
    assert broken.returncode == 1
    assert "learning rate is 0" in broken.stderr
    assert watch(tmp_path, "--quiet", "--", sys.executable, str(loop), "0.0", "20").returncode == 0


@pytest.mark.parametrize(
    ("forgotten", "check", "words"),
    [
        ("    optimizer.step()\n", "optimizers_step", "cleared 40 times"),
        ("    optimizer.zero_grad()\n", "gradients_cleared", "still held gradients"),
    ],
)
def test_a_forgotten_line_is_named(tmp_path, loop, forgotten, check, words):
    loop.write_text(LOOP.replace(forgotten, ""))
    done = watch(tmp_path, "--strict", "--out", "run", "--", sys.executable, str(loop), "0.01", "40")
    assert done.returncode == 1
    findings = json.loads((tmp_path / "run" / "verdict.json").read_text())["findings"]
    failed = {finding["check"]: finding["summary"] for finding in findings if finding["status"] == "fail"}
    assert words in failed[check]


def test_what_trains_nothing_is_told_so_in_the_first_sentence(tmp_path):
    done = watch(tmp_path, "--json", "deep/er/verdict.json", "--", sys.executable, "-c", "import torch")
    assert done.returncode == 0
    assert "No training was seen" in done.stderr
    assert (tmp_path / "deep" / "er" / "verdict.json").exists()


def test_a_certain_defect_ends_the_script_early(tmp_path, loop):
    done = watch(tmp_path, "--stop-on", "broken", "--", sys.executable, str(loop), "0.0", "100000000")
    assert done.returncode == 1
    assert "stopping the script" in done.stderr
    assert "done" not in done.stdout


def test_a_healthy_loop_is_not_stopped(tmp_path, loop):
    done = watch(tmp_path, "--stop-on", "broken", "--quiet", "--", sys.executable, str(loop), "0.01", "12000")
    assert done.returncode == 0
    assert done.stdout == "done 12000\n"


@pytest.mark.parametrize(
    ("words", "says"),
    [
        ([], "nothing to watch"),
        (["--"], "nothing to watch"),
        (["--", "train.py"], "Give the interpreter too"),
        (["--", "no-such-program-here"], "no program"),
    ],
)
def test_bad_commands_are_explained(tmp_path, words, says):
    done = watch(tmp_path, *words)
    assert done.returncode == 2
    assert says in done.stderr
    assert not (tmp_path / "runs").exists()


def test_an_interpreter_that_shuts_us_out_is_named(tmp_path, loop):
    done = watch(tmp_path, "--", sys.executable, "-I", str(loop), "0.1", "5")
    assert done.returncode == 0
    assert done.stdout == "done 5\n"
    verdict = json.loads(next(tmp_path.glob("runs/*/verdict.json")).read_text())
    assert verdict["verdict"] == "unproven"


def test_a_watched_run_can_be_judged_again_and_shown(tmp_path, loop):
    watch(tmp_path, "--out", "run", "--quiet", "--", sys.executable, str(loop), "0.0", "20")
    again = subprocess.run(
        [sys.executable, "-m", "learnproof", "verify", "run"], cwd=tmp_path, capture_output=True, text=True
    )
    assert again.returncode == 1
    assert "learning rate is 0" in again.stdout
    shown = subprocess.run(
        [sys.executable, "-m", "learnproof", "follow", "run"], cwd=tmp_path, capture_output=True, text=True
    )
    assert shown.returncode == 0
    assert "SGD" in shown.stdout


def test_judged_again_without_torch_and_with_its_waivers(tmp_path, loop):
    waivers = [f"{name}=the rate is 0 on purpose" for name in ("weights_changing", "learning_rate_alive")]
    words = [word for waiver in waivers for word in ("--waive", waiver)]
    watch(tmp_path, "--out", "run", "--quiet", *words, "--", sys.executable, str(loop), "0.0", "20")
    first = json.loads((tmp_path / "run" / "verdict.json").read_text())
    code = "import sys; from learnproof.cli import main; main(['verify', 'run']); sys.exit('torch' in sys.modules)"
    again = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True)
    assert again.returncode == 0, again.stderr
    assert json.loads((tmp_path / "run" / "verdict.json").read_text())["waived"] == first["waived"] != []


MERGED = """
import sys
import gymnasium as gym

class Merged(gym.Wrapper):
    def step(self, action):
        observation, reward, terminated, truncated, info = self.env.step(action)
        return observation, reward, terminated or truncated, False, info

env = gym.make("CartPole-v1", max_episode_steps=12)
env = Merged(env) if sys.argv[1] == "merged" else env
for episode in range(40):
    env.reset(seed=episode)
    env.action_space.seed(episode)
    over = False
    while not over:
        _, _, terminated, truncated, _ = env.step(env.action_space.sample())
        over = terminated or truncated
"""


def test_a_time_limit_that_a_wrapper_calls_an_end_is_known_for_what_it_is(tmp_path):
    from learnproof.evidence import Evidence
    from learnproof.evidence.watched import EnvironmentTotals

    path = tmp_path / "episodes.py"
    path.write_text(MERGED)
    ends = {}
    for form in ("plain", "merged"):
        watch(tmp_path, "--out", form, "--quiet", "--", sys.executable, str(path), form)
        evidence = Evidence.read(tmp_path / form)
        (totals,) = evidence.of(EnvironmentTotals)
        assert (totals.hidden_limits > 0) == (form == "merged")
        ends[form] = [(episode.length, episode.terminated) for episode in evidence.episodes]
    assert len({terminated for _, terminated in ends["plain"]}) == 2
    shorter = next(i for i, (length, _) in enumerate(ends["plain"]) if length < 12)
    pairs = list(zip(ends["merged"][shorter:], ends["plain"][shorter:], strict=True))
    assert sum(a != b for a, b in pairs) <= 0.1 * len(pairs)  # some poles fall with the last step that is allowed


BURSTS = """
import random
import gymnasium as gym, numpy as np, torch
random.seed(0), torch.manual_seed(0)
env = gym.make("CartPole-v1")
net = torch.nn.Sequential(torch.nn.Linear(4, 32), torch.nn.ReLU(), torch.nn.Linear(32, 2))
optimizer = torch.optim.Adam(net.parameters(), lr=1e-3)
memory, (obs, _) = [], env.reset(seed=0)
for step in range(1, 1201):
    action = random.randrange(2)
    following, reward, terminated, truncated, _ = env.step(action)
    memory.append((obs, action, reward, following, terminated))
    obs = env.reset()[0] if terminated or truncated else following
    for _ in range(40 if step % 40 == 0 and step > 200 else 0):
        o, a, r, n, t = (torch.as_tensor(np.array(column)) for column in zip(*random.sample(memory, 32)))
        with torch.no_grad():
            target = r.float() + 0.99 * (1 - t.float()) * net(n).max(1).values
        loss = (net(o).gather(1, a[:, None]).squeeze(1) - target).pow(2).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
"""


def test_a_memory_is_known_though_updates_come_in_bursts(tmp_path):
    path = tmp_path / "bursts.py"
    path.write_text(BURSTS)
    watch(tmp_path, "--out", "run", "--quiet", "--no-report", "--", sys.executable, str(path))
    verdict = json.loads((tmp_path / "run" / "verdict.json").read_text())
    found = {finding["check"]: finding["status"] for finding in verdict["findings"]}
    assert found["memory_true"] == "pass"
    assert found["bootstrap_recomputed"] == "pass"


def test_secrets_on_the_command_line_do_not_reach_the_folder(tmp_path):
    path = tmp_path / "quiet.py"
    path.write_text(textwrap.dedent("import sys; print(len(sys.argv))"))
    watch(tmp_path, "--out", "run", "--quiet", "--", sys.executable, str(path), "--api-key", "sk-verysecret123")
    for file in (tmp_path / "run").rglob("*"):
        if file.is_file():
            assert b"verysecret" not in file.read_bytes(), file.name


@pytest.mark.parametrize("place", [".", "/proc/verdict.json"])
def test_a_verdict_that_could_not_be_written_is_refused_before_the_script_runs(tmp_path, place):
    done = watch(tmp_path, "--json", place, "--", sys.executable, "-c", "open('ran', 'w')")
    assert done.returncode == 2
    assert f"--json {place}" in done.stderr
    assert "Traceback" not in done.stderr
    assert not (tmp_path / "ran").exists()


def test_a_run_folder_that_cannot_be_made_is_told_in_one_sentence(tmp_path):
    done = watch(tmp_path, "--out", "/proc/here", "--", sys.executable, "-c", "print(1)")
    assert done.returncode != 0
    assert "/proc/here cannot be made" in done.stderr
    assert "Traceback" not in done.stderr
