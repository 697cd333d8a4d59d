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


def status(url: str, cookie: str = "") -> int:
    try:
        query = urllib.request.Request(url, headers={"Cookie": cookie})
        with urllib.request.urlopen(query, timeout=20) as answer:
            return int(answer.status)
    except urllib.error.HTTPError as refused:
        return refused.code


def test_the_printed_link_opens_once_and_ctrl_c_ends_it_without_a_word_of_the_link(tmp_path: Path) -> None:
    rig = rigged(tmp_path)
    words = [*command_line("eigenveil-site"), "console", "--config", str(rig.config_file)]
    with subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            message = [process.stdout.readline() for _ in range(2)]
            found = re.search(r"(http://127\.0\.0\.1:\d+)(/\S+)/enter/\S+", message[1])
            assert found is not None, message
            with urllib.request.urlopen(found[0], timeout=20) as entered:
                cookie = entered.headers["set-cookie"]
            assert f"Path={found[2]}/;" in cookie  # it goes to no other port of this address
            assert status(found[0]) == 401
            assert status(f"{found[1]}{found[2]}/", cookie.partition(";")[0]) == 200
            assert status(f"{found[1]}/", cookie.partition(";")[0]) == 404
            process.send_signal(signal.SIGINT)
            _, errors = process.communicate(timeout=30)
        finally:
            process.kill()
    assert process.returncode == 0
    assert errors == ""
