"""Where an answer goes, and in which form."""

from __future__ import annotations

import json

import pytest
from rich.text import Text

from strandline.cli.output import Output, SeenEnoughError, complain
from strandline.cli.render import Column, table

WIDE = table([Column("a"), Column("b")], [["x" * 300, "end"]])


def test_into_a_pipe_nothing_is_cut_coloured_or_padded(capsys):
    Output().answer({}, WIDE, Text("next", style="red"))
    out = capsys.readouterr().out
    assert out == f"{'a':<300}  b\n{'x' * 300}  end\n\nnext\n"


def test_json_is_one_document_and_nothing_else(capsys):
    Output(as_json=True).answer({"n": float("nan"), "text": "\x1bé"}, WIDE)
    out = capsys.readouterr().out
    assert json.loads(out) == {"n": "nan", "text": "\x1bé"}
    assert out.isascii()
    assert "\x1b" not in out


def test_events_are_lines(capsys):
    for as_json, expected in ((True, '{"time": 1}\n'), (False, "one\n")):
        Output(as_json=as_json).event({"time": 1}, Text("one"))
        assert capsys.readouterr().out == expected


def test_progress_says_nothing_where_there_is_no_terminal(capsys):
    with Output().progress("working") as step:
        step(1, 10, "on \x1b[31m")
    said = capsys.readouterr()
    assert (said.out, said.err) == ("", "")


@pytest.mark.parametrize("text", ["error: [red]a\nb\x1b[31m", "no colon"])
def test_a_complaint_is_one_harmless_line(capsys, text):
    complain(text)
    said = capsys.readouterr()
    assert said.out == ""
    assert said.err.count("\n") == 1
    assert "\x1b" not in said.err
    assert text.split("\n", maxsplit=1)[0] in said.err


def test_a_pipe_that_was_closed_is_told_apart_from_trouble(monkeypatch):
    class Closed:
        def write(self, _):
            raise BrokenPipeError

        def isatty(self):
            return False

    monkeypatch.setattr("sys.stdout", Closed())
    with pytest.raises(SeenEnoughError):
        Output().answer({}, Text("a"))


@pytest.mark.process
def test_a_terminal_gets_colours_and_its_own_width(filled):
    import fcntl
    import os
    import pty
    import struct
    import subprocess
    import sys
    import termios

    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 40, 80, 0, 0))
    command = [sys.executable, "-m", "strandline.cli.main", "shards", filled]
    environment = {**os.environ, "TERM": "xterm-256color"}
    for name in ("NO_COLOR", "COLUMNS", "LINES"):
        environment.pop(name, None)
    done = subprocess.run(command, stdout=theirs, stderr=theirs, env=environment, check=False)
    os.close(theirs)
    seen = b""
    try:
        while chunk := os.read(ours, 65536):
            seen += chunk
    except OSError:
        pass  # the other end is closed: that is how a terminal ends
    os.close(ours)
    assert done.returncode == 0
    assert b"\x1b[36morders" in seen
    assert b"updates" in seen
