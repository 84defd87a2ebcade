"""Files of Java properties, and which settings of the worker an inventory may give."""

import subprocess
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pylog.connect.properties import for_all_clients, login_line, properties, wrong_settings

ODD = ' = :#!\\ "ü€😀\t\n${file:/x:y}'
PROGRAM = """
import java.io.*; import java.util.*; import java.nio.charset.*;
public class Read { public static void main(String[] a) throws Exception {
  Properties p = new Properties(), q = new Properties();
  p.load(new FileInputStream(a[0]));
  q.load(new InputStreamReader(new FileInputStream(a[0]), StandardCharsets.UTF_8));
  if (!p.equals(q)) throw new Exception("differs by encoding");
  var line = new StreamTokenizer(new StringReader(p.getProperty("jaas")));
  line.slashSlashComments(true); line.slashStarComments(true); line.wordChars('-', '-'); line.wordChars('_', '_');
  line.wordChars('$', '$');
  String last = ""; while (line.nextToken() != StreamTokenizer.TT_EOF) if (line.ttype == '"') last = line.sval;
  p.remove("jaas");
  var one = p.entrySet().iterator().next();
  var all = String.join("\\0", one.getKey().toString(), one.getValue().toString(), last);
  System.out.write(all.getBytes(StandardCharsets.UTF_8)); System.out.flush();
}}
"""


def test_java_reads_odd_texts_as_they_were_and_the_login_line_holds_its_password(tmp_path: Path) -> None:
    password = "a\"b\\c;d'ü\n"
    file, program = tmp_path / "one.properties", tmp_path / "Read.java"
    file.write_text(properties({ODD: ODD, "jaas": login_line("pylog-connect", password)}))
    program.write_text(PROGRAM)
    done = subprocess.run(["java", "-Xshare:auto", str(program), str(file)], capture_output=True, check=True)
    assert done.stdout.decode().split("\0") == [ODD, ODD, password]


@given(st.dictionaries(st.text(), st.text()))
def test_each_setting_is_one_line_of_ascii(settings: dict[str, str]) -> None:
    lines = properties(settings).split("\n")
    assert len(lines) == len(settings) + 1
    assert "".join(lines).isascii()


def test_true_and_numbers_are_texts_as_java_writes_them() -> None:
    assert properties({"a": True, "b": 3}) == "a=true\nb=3\n"


def test_settings_of_clients_are_given_to_those_of_connectors_too() -> None:
    assert for_all_clients({"security.protocol": "SSL"}) == {
        f"{who}security.protocol": "SSL" for who in ("", "producer.", "consumer.", "admin.")
    }


@pytest.mark.parametrize(
    ("name", "found", "wanted"),
    [
        ("offset.flush.intervall.ms", "no setting of the worker", "offset.flush.interval.ms?"),
        ("group.id", "set", "not set: the role writes it"),
        ("listeners.https.ssl.client.auth", "set", "not set: the role writes it"),
        ("producer.security.protocol", "set", "not set: the role writes it"),
        ("producer.", "no setting of the worker", "a setting of Kafka Connect's worker"),
        ("offset.flush.interval.ms", "list", "a text, a number, true or false"),
    ],
)
def test_a_setting_that_the_worker_lacks_or_the_role_writes_is_named(name: str, found: str, wanted: str) -> None:
    assert list(wrong_settings({name: [1] if found == "list" else 1})) == [(name, found, wanted)]


def test_settings_of_the_worker_and_of_its_clients_are_allowed() -> None:
    given = {
        "offset.flush.interval.ms": 5000,
        "producer.compression.type": "zstd",
        "value.converter.schemas.enable": False,
    }
    assert list(wrong_settings(given)) == []
