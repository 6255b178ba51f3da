"""Settings read back as they were written, and whatever is wrong in them is named with what to do."""

import pytest

from learnproof.config import Settings, load_settings, parse_settings, setting_names, to_toml
from learnproof.errors import SettingsError


def test_settings_survive_a_trip_through_toml(tmp_path):
    settings = Settings().replace(
        {"env.id": "CartPole-v1", "env.kwargs": {"n": 3, "fast": True}, "ppo.gamma": 0.5, "seed": 7}
    )
    path = tmp_path / "config.toml"
    path.write_text(to_toml(settings))
    assert load_settings(path) == settings


def test_the_written_file_is_complete_but_for_other_algorithms(tmp_path):
    text = to_toml(Settings(algorithm="dqn"))
    assert "[ppo]" not in text
    for name in setting_names():
        if name.split(".")[0] in ("ppo", "sac", "reinforce"):
            continue
        leaf = name.rsplit(".", 1)[-1]
        default = Settings().model_dump()
        for part in name.split("."):
            default = default[part]
        assert default is None or leaf in text


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"ppo.learning_rat": 1}, "ppo.learning_rate"),
        ({"learning_rate": 1}, "ppo.learning_rate"),
        ({"nonsense.deep.name": 1}, "There is no setting 'nonsense.deep.name'"),
        ({"ppo.gamma": 1.5}, "ppo.gamma = 1.5 cannot be used"),
        ({"ppo.epochs": "ten"}, "ppo.epochs = 'ten'"),
        ({"steps": 0}, "steps = 0"),
        ({"algorithm": "pppo"}, "'ppo'"),
        ({"dqn.replay_size": 8}, "raise replay_size"),
        ({"dqn.prioritised": True, "dqn.replay_recent": 100}, "cannot be combined"),
        ({"checkpoint.mirror": "s3://me:secret@bucket/x"}, "password"),
    ],
)
def test_wrong_settings_are_refused_by_name(changes, words):
    with pytest.raises(SettingsError) as caught:
        Settings().replace(changes)
    assert words in str(caught.value)


def test_wrong_files_are_refused_with_the_reason(tmp_path):
    with pytest.raises(SettingsError, match="no settings file"):
        load_settings(tmp_path / "nowhere.toml")
    with pytest.raises(SettingsError, match="folder"):
        load_settings(tmp_path)
    broken = tmp_path / "broken.toml"
    broken.write_text("a = = 1")
    with pytest.raises(SettingsError, match="not valid TOML"):
        load_settings(broken)
    broken.write_bytes(b"\xff\xfe\x00")
    with pytest.raises(SettingsError, match="not a text file"):
        load_settings(broken)


def test_settings_cannot_be_changed_in_place():
    with pytest.raises(Exception, match="frozen"):
        Settings().seed = 3


def test_the_source_of_an_error_is_said():
    with pytest.raises(SettingsError, match=r"In my\.toml"):
        parse_settings({"sed": 1}, "my.toml")
