"""`eigenveil-site console` as a process: from the link that it prints to Ctrl-C."""

from __future__ import annotations

import re
import signal
import subprocess
import urllib.error
import urllib.request
from pathlib import Path

from eigenveil_client.demo.processes import command_line
from tests.client.site.commands.console.rig import rigged


def status(url: str) -> int:
    try:
        with urllib.request.urlopen(url, timeout=20) as answer:
            return int(answer.status)
    except urllib.error.HTTPError as refused:
        return refused.code


def test_the_printed_link_opens_once_and_ctrl_c_ends_it_without_a_word_of_the_link(tmp_path: Path) -> None:
    rig = rigged(tmp_path)
    words = [*command_line("eigenveil-site"), "console", "--config", str(rig.config_file)]
    with subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            said = [process.stdout.readline() for _ in range(2)]
            found = re.search(r"http://127\.0\.0\.1:\d+/enter/(\S+)", said[1])
            assert found is not None, said
            assert [status(found[0]), status(found[0])] == [200, 401]
            process.send_signal(signal.SIGINT)
            _, errors = process.communicate(timeout=30)
        finally:
            process.kill()
    assert process.returncode == 0
    assert errors == ""
