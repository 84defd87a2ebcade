"""ApiVersions: the one request whose answer must be readable by clients that know nothing yet."""

import pytest

from pylog.cluster.formats import features_of
from pylog.errors import ErrorCode, ProtocolError
from pylog.wire.api.header import RequestHeader
from pylog.wire.api.table import SERVED, ApiKey
from pylog.wire.api.versions import ApiVersionsRequest, ApiVersionsResponse, answer_api_versions


def header(version: int) -> RequestHeader:
    return RequestHeader(ApiKey.API_VERSIONS, version, 7, "client", 0)


def answer(version: int, body: bytes) -> ApiVersionsResponse:
    """Return the answer as a client reads it: header v0, body in the version it asked for."""
    payload = answer_api_versions(header(version), memoryview(body))
    assert payload[:4] == b"\x00\x00\x00\x07"
    return ApiVersionsResponse.decode(version, memoryview(payload)[4:])


@pytest.mark.parametrize("version", [5, 99, 32767, -1])
def test_an_unknown_version_is_answered_in_version_0(version: int) -> None:
    payload = answer_api_versions(header(version), memoryview(b"\xff not looked at"))
    # correlation id 7; error 35; one entry: key 18, versions 0 to 4
    assert payload == bytes.fromhex("00000007002300000001001200000004")


@pytest.mark.parametrize("version", [0, 1, 2])
def test_old_clients_are_told_the_table(version: int) -> None:
    assert len(answer(version, b"").api_keys) == len(SERVED)


@pytest.mark.parametrize("version", [3, 4])
@pytest.mark.parametrize(
    ("name", "is_accepted"),
    [
        ("librdkafka", True),
        ("apache-kafka-java", True),
        ("a", True),
        ("3.9.2", True),
        ("", False),
        ("-x", False),
        ("x-", False),
        ("two words", False),
        ("naïve", False),
        ("x\n", False),
    ],
)
def test_names_are_checked(version: int, name: str, is_accepted: bool) -> None:
    expected = ErrorCode.NONE if is_accepted else ErrorCode.INVALID_REQUEST
    for request in (
        ApiVersionsRequest(client_software_name=name, client_software_version="1.0"),
        ApiVersionsRequest(client_software_name="client", client_software_version=name),
    ):
        response = answer(version, request.encode(version))
        assert response.error_code == expected
        assert bool(response.api_keys) is is_accepted


def test_a_broken_body_is_a_protocol_error() -> None:
    with pytest.raises(ProtocolError, match="ApiVersionsRequest v3"):
        answer_api_versions(header(3), memoryview(b"\x7fshort"))


def test_features_travel_as_tags_only_when_there_are_any() -> None:
    assert ApiVersionsResponse().encode(3) == bytes.fromhex("0000010000000000")
    with_epoch = ApiVersionsResponse(finalized_features_epoch=2)
    # tag 1, eight bytes
    assert with_epoch.encode(3) == bytes.fromhex("000001000000000101080000000000000002")
    assert ApiVersionsResponse.decode(3, memoryview(with_epoch.encode(3))) == with_epoch


@pytest.mark.parametrize("version", [3, 4])
def test_clients_are_told_whether_each_transaction_may_have_an_epoch(version: int) -> None:
    request = ApiVersionsRequest(client_software_name="client", client_software_version="1.0")
    told = {}
    for level in (4, 5):
        payload = answer_api_versions(header(version), memoryview(request.encode(version)), features_of(level))
        found = ApiVersionsResponse.decode(version, memoryview(payload)[4:])
        assert found.finalized_features_epoch == level, "a client believes the newest"
        told[level] = [(row.name, row.max_version_level, row.min_version_level) for row in found.finalized_features]
        # A version of 0 ends old Java clients (KAFKA-17011).
        assert [(row.name, row.min_version, row.max_version) for row in found.supported_features] == (
            [("transaction.version", 0, 2)] if version == 4 else []
        )
    assert told == {4: [], 5: [("transaction.version", 2, 2)]}
