"""Settings of [notify] are validated before any message is sent."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any

import pytest

from eigenveil.errors import Code, RequestError
from eigenveil_common.config import keys, load
from eigenveil_common.examples import example
from eigenveil_common.notify.config import Notify
from eigenveil_server.config import Config

MAIL: dict[str, Any] = {"mail_host": "mail.example", "mail_tls": "starttls", "mail_from": "ev@h.example"}


def written(folder: Path, notify: str) -> Config:
    path = folder / "coordinator.toml"
    path.write_text(f'federation = "north"\nstate = "."\n{notify}')
    return load(path, Config)


def test_a_table_is_read_with_its_files_relative_to_the_configuration(tmp_path: Path) -> None:
    found = written(
        tmp_path,
        '[notify]\nmail_host = "m"\nmail_tls = "tls"\nmail_from = "a@b.example"\nmail_user = "u"\n'
        'mail_password = "secret"\nto = ["o@b.example"]\n[notify.analysts]\nada = "ada@b.example"\n',
    ).notify
    assert found.channels.secrets == [tmp_path / "secret"]
    assert (found.channels.to, dict(found.analysts)) == (("o@b.example",), {"ada": "ada@b.example"})


@pytest.mark.parametrize(
    "table",
    [
        'to = ["o@b.example"]',  # by which server?
        'mail_host = "m"\nmail_from = "a@b.example"',  # encrypted or not?
        'mail_host = "m"\nmail_tls = "tls"',  # from whom?
        'mail_host = "m"\nmail_tls = "none"\nmail_from = "a@b.example"\nmail_user = "u"\nmail_password = "p"',
        'mail_host = "m"\nmail_tls = "tls"\nmail_from = "a@b.example"\nmail_user = "u"',
        'mail_host = "m"\nmail_tls = "tls"\nmail_from = "a@b.example\\nBcc: x@y.example"',
        'mail_host = "m"\nmail_tls = "tls"\nmail_from = "a@b.example"\nto = ["x@y.example, z@y.example"]',
        'mail_host = "m\\n"',
        'webhook = "http://h.example/"',
        'webhook = "https://user:word@h.example/"',
        'webhook = "https:///path"',
        'webhook = "https://h.example/a b"',
        'webhook = "https://h.example:x/"',
        'webhook_header = "file"',
        'unknown = "key"',
        '[notify.analysts]\nada = "ada@b.example"',
        'mail_host = "m"\nmail_tls = "tls"\nmail_from = "a@b.example"\n[notify.analysts]\nada = 1',
        'mail_host = "m"\nmail_tls = "tls"\nmail_from = "a@b.example"\n[notify.analysts]\n"A!" = "a@b.c"',
    ],
)
def test_invalid_notification_settings_are_refused_without_their_secrets(tmp_path: Path, table: str) -> None:
    with pytest.raises(RequestError) as refused:
        written(tmp_path, f"[notify]\n{table}\n")
    assert refused.value.code is Code.BAD_CONFIG
    assert "word@" not in str(refused.value)


@pytest.mark.parametrize("name", ["site", "coordinator"])
def test_an_example_explains_every_key_and_notifies_no_address(name: str) -> None:
    text = example(name)
    table = text[text.index("\n[notify]\n") :]
    assert [key for key in keys(Notify) if f"# {key} = " not in table] == []
    assert tomllib.loads(text)["notify"].keys() <= {"analysts"}
