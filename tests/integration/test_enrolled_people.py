"""View of two people at enrolment, and uses of an operator's certificate [R1] [R2]."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from pathlib import Path

import pytest

from eigenveil.errors import Code, EigenveilError
from eigenveil.identity import Role, grouped_digest
from eigenveil_client.analyst.client import Analyst
from eigenveil_client.connection.identity import key_comparison_text, load_identity
from eigenveil_client.site.config import load
from tests.integration.running_site import SITE, enrolled, invited
from tests.server.process import command
from tests.server.rig import made, serving, study_toml


async def test_both_ends_show_the_same_digest_of_the_key(tmp_path: Path) -> None:
    config = made(tmp_path / "c")
    where = ("--config", str(config.files.folder / "coordinator.toml"))
    async with serving(config) as rig:
        stored = await enrolled(rig, tmp_path / "anna")
        shown = json.loads(command("status", *where, "--json")[1])["identities"]
        assert [one["key_sha256"] for one in shown] == [stored.key_print]
        text = command("status", *where)[1]
        assert grouped_digest(stored.key_print, 17) in text
        assert grouped_digest(stored.key_print, 21) in key_comparison_text(stored.key_print)
        again = await enrolled(rig, tmp_path / "anna")
        shown = json.loads(command("status", *where, "--json")[1])["identities"]
        assert [one["key_sha256"] for one in shown] == [again.key_print] != [stored.key_print]
    pair = (tmp_path / "anna" / "key.pem").read_bytes()
    public = ("openssl", "pkey", "-pubout", "-outform", "DER")
    der = subprocess.run(public, input=pair, capture_output=True, check=True).stdout
    digest = subprocess.run(("openssl", "sha256", "-r"), input=der, capture_output=True, check=True)
    assert digest.stdout.decode().split()[0] == again.key_print


async def test_one_file_and_one_command_make_a_site_and_the_file_is_of_no_use_after(tmp_path: Path) -> None:
    records = tmp_path / "r.csv"

    async def init(folder: str, join: Path) -> tuple[int, str, str]:
        words = ("init", "--dir", str(tmp_path / folder), "--records", str(records), "--join", str(join))
        line = (sys.executable, "-m", "eigenveil_client.site.commands.main", *words)
        done = await asyncio.to_thread(subprocess.run, line, capture_output=True, text=True, check=False)
        return done.returncode, done.stdout, done.stderr

    async with serving(made(tmp_path / "c")) as rig:
        join = invited(rig, tmp_path / "anna.join")
        code, _, message = await init("here", join)
        assert (code, "r.csv" in message, (tmp_path / "here").exists()) == (2, True, False)
        records.write_text("a\n1\n")
        code, result, _ = await init("here", join)  # the token is as good as before
        assert code == 0
        assert f"/{SITE} until" in result
        config = load(tmp_path / "here" / "site.toml")
        assert config.name == load_identity(config.identity).identity.name == SITE
        code, _, message = await init("there", join)
        assert (code, "eigenveil-site enrol --config" in message) == (20, True)


async def test_an_operator_reads_the_list_of_studies_and_does_nothing_else(tmp_path: Path) -> None:
    async with serving(made(tmp_path / "c")) as rig:
        await rig.client(Role.SITE, "anna")
        ada = await enrolled(rig, tmp_path / "ada", "ada", Role.ANALYST)
        olga = await enrolled(rig, tmp_path / "olga", "olga", Role.OPERATOR)
        async with Analyst(ada) as analyst, Analyst(olga) as operator:
            plan, _ = await analyst.submit(study_toml(sites=("anna",)), "one")
            assert [row.plan_digest.hex() for row in await operator.studies()] == [plan.digest]
            for attempt in (
                operator.cancel(bytes.fromhex(plan.digest)),
                operator.submit(study_toml(sites=("anna",)), "two"),
                operator.release(bytes.fromhex(plan.digest)),
            ):
                with pytest.raises(EigenveilError, match="role operator") as refused:
                    await attempt
                assert refused.value.code is Code.IDENTITY
