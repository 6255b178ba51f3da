"""What an engine says is logged when it is new, and handed on every time."""

import logging

from learnproof.show.logged import LoggedDisplay


def test_a_warning_is_logged_when_it_begins_and_when_it_comes_back(caplog):
    display = LoggedDisplay("learnproof.test")
    taken = []
    with caplog.at_level(logging.WARNING, "learnproof.test"):
        for sentences in (["too few: 3"], ["too few: 12"], [], ["too few: 1.5e-3", "another"]):
            display.warn(sentences)
            taken.append(display.take_warnings())
    assert taken == [["too few: 3"], ["too few: 12"], [], ["too few: 1.5e-3", "another"]]
    assert [record.message for record in caplog.records] == ["too few: 3", "too few: 1.5e-3", "another"]


def test_what_is_said_goes_to_the_log_at_its_level(caplog):
    display = LoggedDisplay("learnproof.test")
    with caplog.at_level(logging.DEBUG, "learnproof.test"):
        display.say("begun")
        display.say("odd", "warning")
        display.phase("playing, 3 of 10")
    assert [(r.levelname, r.message) for r in caplog.records] == [
        ("INFO", "begun"),
        ("WARNING", "odd"),
        ("DEBUG", "playing, 3 of 10"),
    ]
    assert display.take_warnings() == ["odd"]
