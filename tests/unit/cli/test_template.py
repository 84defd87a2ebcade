"""How one record is written."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pylog.cli.failure import Exit, Failure
from pylog.cli.template import as_json, compile_template
from pylog.client.consumer import ConsumedRecord

RECORD = ConsumedRecord("clicks", 3, 42, 1700000000123, b"k", b"value", [("a", b"1"), ("b", None)])
NULLS = ConsumedRecord("clicks", 0, 0, -1, None, None, [])


@pytest.mark.parametrize(
    ("template", "wanted"),
    [
        (r"%s\n", b"value\n"),
        (r"%t[%p]@%o %T\n", b"clicks[3]@42 1700000000123\n"),
        (r"%k:%K %S", b"k:1 5"),
        (r"%h", b"a=1,b=NULL"),
        (r"100%% \\ \t\x00\xfF", b"100% \\ \t\x00\xff"),
        (r"ü%s", "üvalue".encode()),
        ("", b""),
    ],
)
def test_each_letter(template: str, wanted: bytes) -> None:
    assert compile_template(template)(RECORD) == wanted


def test_nulls_have_no_bytes_and_size_minus_one() -> None:
    assert compile_template("[%k|%s|%K|%S|%h]")(NULLS) == b"[||-1|-1|]"


@pytest.mark.parametrize("template", ["%", "%q", "a\\", r"\q", r"\x1", r"\xzz", r"\x"])
def test_an_unknown_letter_is_refused(template: str) -> None:
    with pytest.raises(Failure, match="format string") as caught:
        compile_template(template)
    assert caught.value.exit_code is Exit.USAGE


def test_json_is_one_object_a_line() -> None:
    assert json.loads(compile_template("json")(RECORD)) == {
        "topic": "clicks",
        "partition": 3,
        "offset": 42,
        "timestamp_ms": 1700000000123,
        "key": "k",
        "value": "value",
        "headers": [["a", "1"], ["b", None]],
    }


@given(st.binary())
def test_json_keeps_every_byte(value: bytes) -> None:
    line = as_json(ConsumedRecord("t", 0, 0, 0, None, value, []))
    assert line.count(b"\n") == 1
    found = json.loads(line)["value"]
    if isinstance(found, dict):
        import base64

        assert base64.b64decode(found["base64"]) == value
    else:
        assert found.encode() == value
