"""What a line of input holds."""

import pytest

from pylog.cli.failure import Failure
from pylog.cli.input import InputRecord, compile_input
from pylog.cli.template import as_json
from pylog.client.consumer import ConsumedRecord


@pytest.mark.parametrize(
    ("template", "line", "record"),
    [
        ("%s", b"a b", InputRecord(b"a b")),
        (r"%v\n", b"a", InputRecord(b"a")),
        ("text", b"%k a", InputRecord(b"%k a")),
        ("%k %v", b"k v w", InputRecord(b"v w", b"k")),
        ("%k:%v", b":", InputRecord(b"", b"")),
        (r"%p\t%T\t%k=%s", b"3\t1700\ta=b=c", InputRecord(b"b=c", b"a", 3, 1700)),
        ("%h|%s", b"a=1,b=,c=x=y|v", InputRecord(b"v", headers=[("a", b"1"), ("b", b""), ("c", b"x=y")])),
        ("100%% [%s]", b"100% [v]", InputRecord(b"v")),
        (r"%k\x00%s", b"\xff\x00\n", InputRecord(b"\n", b"\xff")),
        (
            "json",
            b'{"key": null, "value": "v", "timestamp_ms": 5, "headers": [["a", null]], "topic": "t", "offset": 9}',
            InputRecord(b"v", None, None, 5, [("a", None)]),
        ),
        ("json", b'{"value": {"base64": "/w=="}}', InputRecord(b"\xff")),
        ("json", b'{"value": {"a": [1, 2.5]}}', InputRecord(b'{"a":[1,2.5]}')),
    ],
)
def test_lines(template: str, line: bytes, record: InputRecord) -> None:
    assert compile_input(template)(line) == record


@pytest.mark.parametrize(
    ("template", "line"),
    [
        ("%k:%s", b"no colon"),
        ("[%s]", b"[v"),
        ("%p %s", b"x v"),
        ("%T %s", b"- v"),
        ("json", b"[]"),
        ("json", b"{"),
        ("json", b'{"vlaue": 1}'),
        ("json", b'{"partition": "1"}'),
        ("json", b'{"partition": true}'),
        ("json", b'{"headers": {"a": 1}}'),
        ("json", b'{"value": {"base64": "?"}}'),
    ],
)
def test_a_line_that_does_not_fit_is_refused(template: str, line: bytes) -> None:
    with pytest.raises(ValueError, match=r"\w"):
        compile_input(template)(line)


@pytest.mark.parametrize("template", ["%q", "%", "%k%v", r"%k\n%v", "%o", r"\q"])
def test_a_template_that_cannot_be_read_by_is_refused(template: str) -> None:
    with pytest.raises(Failure, match="the format string is wrong"):
        compile_input(template)


def test_what_consume_writes_produce_reads() -> None:
    record = ConsumedRecord("t", 2, 7, 1234, b"\xfe", None, [("a", b"\xff"), ("b", None)])
    assert compile_input("json")(as_json(record)) == InputRecord(None, b"\xfe", 2, 1234, [("a", b"\xff"), ("b", None)])
