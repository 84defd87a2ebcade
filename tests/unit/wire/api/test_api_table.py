"""The table against kio's definitions, against itself, and against what ApiVersions says."""

from typing import Any

import pytest
from kio.index import load_request_schema, load_response_schema
from kio.serial import entity_reader

from pylog.wire.api.message import Request
from pylog.wire.api.table import KNOWN, PLANNED, SERVED, ApiKey, is_flexible, is_served
from pylog.wire.api.versions import table_response
from tests.unit.wire.api.catalogue import HOT_PATH, message_classes


@pytest.mark.parametrize("key", KNOWN, ids=lambda key: key.name)
def test_flexible_versions_are_those_of_the_protocol(key: ApiKey) -> None:
    row = KNOWN[key]
    for version in range(row.min_served, row.max_advertised + 1):
        assert is_flexible(key, version) == load_request_schema(int(key), version).__flexible__
        assert is_flexible(key, version) == load_response_schema(int(key), version).__flexible__


@pytest.mark.parametrize("key", ApiKey, ids=lambda key: key.name)
def test_keys_have_the_numbers_of_the_protocol(key: ApiKey) -> None:
    name = load_request_schema(int(key), KNOWN[key].max_advertised).__name__.removesuffix("Request")
    assert name.lower() == key.name.replace("_", "").lower()


def test_every_known_api_has_its_two_messages() -> None:
    classes = message_classes()
    for key in KNOWN.keys() - HOT_PATH:
        assert sorted(issubclass(cls, Request) for cls in classes if cls.api_key == key) == [False, True]


def test_rows_are_ordered_and_in_one_table_only() -> None:
    assert not SERVED.keys() & PLANNED.keys()
    assert SERVED.keys() | PLANNED.keys() == set(ApiKey)
    for row in KNOWN.values():
        assert 0 <= row.min_advertised <= row.min_served <= row.max_advertised


def test_this_release_serves_what_its_notes_say() -> None:
    assert {(int(key), row.min_advertised, row.max_advertised, row.min_served) for key, row in SERVED.items()} == {
        (0, 0, 12, 3),
        (1, 4, 17, 4),
        (2, 1, 9, 1),
        (3, 0, 12, 0),
        (10, 0, 4, 0),
        (17, 0, 1, 0),
        (18, 0, 4, 0),
        (36, 0, 2, 0),
        (19, 2, 7, 2),
        (20, 1, 6, 1),
        (22, 0, 4, 0),
        (32, 1, 4, 1),
        (8, 2, 8, 2),
        (9, 1, 8, 1),
        (11, 0, 9, 0),
        (12, 0, 4, 0),
        (13, 0, 5, 0),
        (14, 0, 5, 0),
        (15, 0, 5, 0),
        (16, 0, 5, 0),
        (42, 0, 2, 0),
        (47, 0, 0, 0),
        (24, 0, 3, 0),
        (25, 0, 4, 0),
        (26, 0, 5, 0),
        (28, 0, 5, 0),
        (27, 1, 1, 1),
        (65, 0, 0, 0),
        (66, 0, 1, 0),
        (21, 0, 2, 0),
        (23, 2, 4, 2),
        (29, 1, 3, 1),
        (30, 1, 3, 1),
        (31, 1, 3, 1),
        (33, 0, 2, 0),
        (35, 1, 4, 1),
        (37, 0, 3, 0),
        (44, 0, 1, 0),
        (60, 0, 1, 0),
        (61, 0, 0, 0),
        (43, 0, 2, 0),
        (48, 0, 1, 0),
        (49, 0, 1, 0),
        (50, 0, 0, 0),
        (51, 0, 0, 0),
        (45, 0, 0, 0),
        (46, 0, 0, 0),
    }


@pytest.mark.parametrize("version", range(5))
def test_api_versions_says_the_table(version: int) -> None:
    theirs: type[Any] = load_response_schema(int(ApiKey.API_VERSIONS), version)
    answer, _ = entity_reader(theirs)(table_response().encode(version), 0)
    told = {api.api_key: (api.min_version, api.max_version) for api in answer.api_keys}
    assert told == {int(key): (row.min_advertised, row.max_advertised) for key, row in SERVED.items()}
    assert answer.error_code.value == 0


@pytest.mark.parametrize(
    ("key", "version", "expected"),
    [
        (0, 2, False),
        (0, 3, True),
        (0, 12, True),
        (0, 13, False),
        (3, 0, True),
        (3, -1, False),
        (9_999, 0, False),
        (ApiKey.ALTER_PARTITION_REASSIGNMENTS, 1, False),
    ],
)
def test_served_versions(key: int, version: int, expected: bool) -> None:
    assert is_served(key, version) is expected
