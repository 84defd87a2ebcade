"""Every request can be answered with an error, in every version, for everything it asked."""

import dataclasses
from collections.abc import Iterator

import pytest

from pylog.errors import ErrorCode
from pylog.wire.api.cluster import DescribeLogDirsRequest
from pylog.wire.api.message import Request
from pylog.wire.api.metadata import MetadataRequest
from pylog.wire.api.versions import ApiVersionsRequest
from tests.unit.wire.api.catalogue import case_id, cases, sample

REQUESTS = [case for case in cases() if issubclass(case[0], Request)]

WORDLESS = {(DescribeLogDirsRequest, 1), (DescribeLogDirsRequest, 2)}
"""Their answers have a code only beside a directory; Kafka, too, answers them with no directory at all."""


def codes_at_leaves(value: object) -> Iterator[list[int]]:
    """Yield, for each innermost result, the error codes on the way to it."""
    if not dataclasses.is_dataclass(value):
        return
    own = [getattr(value, field.name) for field in dataclasses.fields(value) if field.name.endswith("error_code")]
    inner = [
        codes
        for field in dataclasses.fields(value)
        if isinstance(elements := getattr(value, field.name), list)
        for element in elements
        for codes in codes_at_leaves(element)
    ]
    yield from ([*own, *codes] for codes in inner) if inner else iter([own])


@pytest.mark.parametrize(("cls", "version"), REQUESTS, ids=case_id)
def test_a_refusal_says_its_code_for_everything_asked(cls: type[Request], version: int) -> None:
    request = cls.decode(version, memoryview(sample(cls, version).encode(version)))
    refusal = request.error_response(ErrorCode.CLUSTER_AUTHORIZATION_FAILED, "not today")
    answer = type(refusal).decode(version, memoryview(refusal.encode(version)))
    assert refusal.api_key == cls.api_key
    if (cls, version) in WORDLESS:
        assert answer == type(refusal)()
        return
    for codes in codes_at_leaves(answer):
        assert ErrorCode.CLUSTER_AUTHORIZATION_FAILED in codes
        assert set(codes) <= {ErrorCode.CLUSTER_AUTHORIZATION_FAILED, ErrorCode.NONE}


def test_a_refused_request_for_all_topics_names_none() -> None:
    refusal = MetadataRequest(topics=None).error_response(ErrorCode.UNKNOWN_SERVER_ERROR)
    assert refusal.topics == []
    assert refusal.brokers == []


def test_a_refused_api_versions_request_tells_no_table() -> None:
    assert ApiVersionsRequest().error_response(ErrorCode.INVALID_REQUEST).api_keys == []
