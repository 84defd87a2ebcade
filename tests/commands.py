"""The commands that the pages tell a reader to type, each judged by the program it calls.

A page holds commands in fenced or indented blocks and between backticks. A block must be a complete command line.
Between backticks a page may also only mention a command (`pylog topic create`): arguments may be missing there.
"""

import re
import shlex
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

PROGRAMS = frozenset(
    {"pylog", "fab", "make", "pytest", "python", "python3"}
    | {"ansible", "ansible-playbook", "ansible-vault", "ansible-inventory"}
)
"""The programs whose command lines can be judged; a path before the name does not count."""

EXAMPLES: Mapping[str, str] = {
    "inventories/NAME": "inventories/example",
    "inventories/mine": "inventories/small",
    "INVENTORY": "inventories/example",
    "HOST:PORT": "localhost:9092",
    "HOST:9092": "localhost:9092",
    "$HOSTNAME$": "all",
    "VERB": "site",
    "SCENARIO=…": "SCENARIO=cluster",
    "TIMESTAMP": "2026-01-31T10:00",
    "DURATION": "1h",
    "ID": "1",
    "N": "1",
    "COMMAND": "topic",
}
"""What stands for something else on a page -> an example of it."""

_FENCED = re.compile(r"^( *)```(\w*)\n(.*?)^ *```$", re.MULTILINE | re.DOTALL)
_INDENTED = re.compile(r"(?<=\n\n)(?: {4}.*\n)+")
_INLINE = re.compile(r"(?<!`)`([^`]+)`(?!`)")
_WORDS_OF_THE_SHELL = frozenset({"do", "then", "else", "if", "while", "until", "!", "time", "exec", "sudo", "env", "$"})
_DRAWING = re.compile("[─│┌┐└┘├┤┬┴┼►▼]")
_OPERATOR = re.compile(r"[();<>|&]+")


@dataclass(frozen=True, slots=True, order=True)
class Command:
    """One call of a program on a page.

    Attributes:
        place: page and line, as ``README.md:12``.
        words: name of the program, without its directory, and its arguments; examples stand for placeholders.
        is_whole: the page shows it to be typed; it does not only mention it.
    """

    place: str
    words: tuple[str, ...]
    is_whole: bool


def commands_of(page: Path, root: Path) -> list[Command]:
    """Return the commands of *page*, in order."""
    text, found = page.read_text(), []
    for start, source, is_whole in _sources(text):
        place = f"{page.relative_to(root)}:{text.count(chr(10), 0, start) + 1}"
        found += [Command(place, words, is_whole) for words in calls_of(source)]
    return found


def _sources(text: str) -> Iterator[tuple[int, str, bool]]:
    """Yield (position, shell source, whether it is whole)."""

    def blank(match: re.Match[str]) -> str:
        return re.sub(r"[^\n]", " ", match[0])

    for match in _FENCED.finditer(text):
        if match[2] in ("", "sh", "bash", "console"):
            yield match.start(3), match[3], True
    text = _FENCED.sub(blank, text)
    for match in _INDENTED.finditer(text):
        yield match.start(), match[0], True
    for match in _INLINE.finditer(_INDENTED.sub(blank, text)):
        yield match.start(), re.sub(r"\s*\n\s*", " ", match[1].replace("\\|", "|")), False


def calls_of(source: str) -> list[tuple[str, ...]]:
    """Return the calls of `PROGRAMS` in shell *source*, also those in pipes, loops and substitutions."""
    found = []
    for line in re.sub(r"\\\n\s*", "", source).splitlines():
        if _DRAWING.search(line):
            continue
        try:
            found += list(_calls(line.strip()))
        except ValueError:
            continue  # a quote that is none: prose, or a drawing
    return found


def _calls(line: str) -> Iterator[tuple[str, ...]]:
    lexer = shlex.shlex(line, posix=True, punctuation_chars="();<>|&")
    lexer.whitespace_split = True
    words: list[str] = []
    for word in [*lexer, ";"]:
        for inside in re.findall(r"\$\(([^()]*)\)", word):
            yield from _calls(inside)
        if not _OPERATOR.fullmatch(word):
            words.append(word)
            continue
        # The number of a redirected stream is no argument; what a redirection names begins no command.
        if word[0] in "<>" and words and words[-1] in ("1", "2"):
            words.pop()
        yield from _call(words)
        words = [">"] if word[0] in "<>" and not word.endswith("(") else []


def _call(words: list[str]) -> Iterator[tuple[str, ...]]:
    while words and (words[0] in _WORDS_OF_THE_SHELL or re.fullmatch(r"[A-Za-z_]+=.*", words[0])):
        words = words[1:]
    # `command_line` is Nagios's word for it.
    if words and words[0] == "command_line":
        words = words[1:]
    # A summary of the usage is made from the program itself, and is nothing to type.
    if words and (name := words[0].rpartition("/")[2]) in PROGRAMS and "[OPTIONS]" not in words:
        yield (name, *[_example(word) for word in words[1:] if word != "…"])


def _example(word: str) -> str:
    for placeholder, example in EXAMPLES.items():
        word = re.sub(rf"(?<![\w]){re.escape(placeholder)}(?![\w])", lambda _, value=example: value, word)
    return word
