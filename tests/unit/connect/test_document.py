"""Connectors as code: what follows from a document and the connectors there are."""

import pytest

from pylog.connect.document import Action, Found, State, Wanted, compare, read
from pylog.errors import ConfigError

FILE_SOURCE = {"connector.class": "FileStreamSource", "file": "/var/log/a", "topic": "lines", "name": "a"}


def wanted(name: str = "a", state: State = State.RUNNING, **config: str) -> Wanted:
    return Wanted(name=name, config={**FILE_SOURCE, "name": name, **config}, state=state)


def found(name: str = "a", state: str = "running", **config: str) -> Found:
    return Found(config={**FILE_SOURCE, "name": name, **config}, state=state)


def test_numbers_and_truths_of_yaml_become_the_texts_that_connect_keeps() -> None:
    document = {"connectors": [{"name": "a", "config": {"connector.class": "X", "tasks.max": 2, "is.on": True}}]}
    assert read(document) == (
        [Wanted(name="a", config={"connector.class": "X", "tasks.max": "2", "is.on": "true", "name": "a"})],
        [],
    )


@pytest.mark.parametrize(
    ("document", "message"),
    [
        ([], "the document: found []"),
        ({"conectors": []}, "found the key 'conectors'"),
        ({"connectors": {}, "absent": []}, None),
        ({"connectors": {"a": 1}}, "connectors: found {'a': 1}, wanted a list"),
        ({"connectors": ["a"]}, "connector number 1: found 'a', wanted a mapping"),
        ({"connectors": [{"name": "", "config": {"connector.class": "X"}}]}, "name: found '', wanted a name"),
        ({"connectors": [{"name": "a"}]}, "connector a: config: found None"),
        ({"connectors": [{"name": "a", "config": {}}]}, "connector a: config: found no connector.class"),
        ({"connectors": [{"name": "a", "config": {"connector.class": "X", "t": [1]}}]}, "config t: found list"),
        ({"connectors": [{"name": "a", "config": {"connector.class": "X", "name": "b"}}]}, "config name: found 'b'"),
        ({"connectors": [{"name": "a", "state": "off", "config": {"connector.class": "X"}}]}, "state: found 'off'"),
        ({"connectors": [{"name": "a", "config": {"connector.class": "X"}}] * 2}, "connector a: found twice"),
        (
            {"connectors": [{"name": "a", "config": {"connector.class": "X"}}], "absent": ["a"]},
            "found under connectors and absent",
        ),
        ({"absent": [1]}, "absent: found 1, wanted the name of a connector"),
    ],
)
def test_a_wrong_document_is_refused_with_what_was_found(document: object, message: str | None) -> None:
    if message is None:
        assert read(document) == ([], [])
        return
    with pytest.raises(ConfigError) as refused:
        read(document)
    assert message in str(refused.value)


def test_what_is_as_wanted_changes_nothing() -> None:
    assert compare([wanted()], ["gone"], {"a": found(), "other": found("other")}) == []


def test_a_connector_that_is_not_there_is_created_in_its_state() -> None:
    [change] = compare([wanted(state=State.PAUSED)], [], {})
    assert (change.action, change.connector, change.state) == (Action.CREATE, "a", State.PAUSED)
    assert change.config == FILE_SOURCE
    assert [str(one) for one in change.differences][:2] == [
        "a: connector: found none, wanted paused",
        "a: connector.class: found none, wanted FileStreamSource",
    ]


def test_settings_become_exactly_those_of_the_document() -> None:
    [change] = compare([wanted(file="/var/log/b")], [], {"a": found(extra="1")})
    assert change.action is Action.CONFIGURE
    assert change.config == {**FILE_SOURCE, "file": "/var/log/b"}
    assert [str(one) for one in change.differences] == [
        "a: extra: found 1, wanted none",
        "a: file: found /var/log/a, wanted /var/log/b",
    ]


@pytest.mark.parametrize(
    ("state", "there", "action"),
    [
        (State.RUNNING, "paused", Action.RUN),
        (State.PAUSED, "running", Action.PAUSE),
        (State.STOPPED, "paused", Action.STOP),
        (State.PAUSED, "failed", Action.PAUSE),
    ],
)
def test_a_state_that_differs_is_changed(state: State, there: str, action: Action) -> None:
    assert [one.action for one in compare([wanted(state=state)], [], {"a": found(state=there)})] == [action]


@pytest.mark.parametrize("there", ["failed", "unassigned", "restarting"])
def test_a_connector_that_should_run_and_has_failed_is_no_difference(there: str) -> None:
    assert compare([wanted()], [], {"a": found(state=there)}) == []


def test_what_is_absent_is_deleted_first() -> None:
    changes = compare([wanted("b")], ["a"], {"a": found()})
    assert [(one.action, one.connector) for one in changes] == [(Action.DELETE, "a"), (Action.CREATE, "b")]


def test_secrets_are_masked_and_where_they_are_is_shown() -> None:
    secrets = {"database.password": "new-secret", "sasl.jaas.config": "${file:/etc/pylog/s:jaas}"}
    there = Found(config={**FILE_SOURCE, "database.password": "old-secret"}, state="running")
    [change] = compare([Wanted(name="a", config=FILE_SOURCE | secrets)], [], {"a": there})
    text = "\n".join(map(str, change.differences))
    assert "secret" not in text.replace("****", "")
    assert "a: database.password: found ****, wanted ****" in text
    assert "wanted ${file:/etc/pylog/s:jaas}" in text
