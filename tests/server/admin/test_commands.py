"""eigenveil-coordinator as an operator types it."""

from __future__ import annotations

import asyncio
import json
import signal
import subprocess
import tomllib
from contextlib import closing
from pathlib import Path

import grpc
import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from eigenveil.protocol.authorities import list_from_json
from eigenveil_common.config import load
from eigenveil_proto.v1 import eigenveil_pb2 as pb
from eigenveil_proto.v1.eigenveil_pb2_grpc import EnrolmentStub
from eigenveil_server.config import Config
from eigenveil_server.pki.authority import key_to_pem, new_key
from eigenveil_server.storage.database import existing_store
from tests.repo.tree import ROOT
from tests.server.process import Coordinator, command, exit_of_serve, process
from tests.server.rig import Credentials, request_for
from tests.support import a_hello


async def joined(coordinator: Coordinator, join: dict[str, str]) -> Credentials:
    key = new_key()
    trusted = list_from_json(join["authorities"].encode()).issuers_pem
    credentials = grpc.ssl_channel_credentials(trusted)
    address = f"127.0.0.1:{coordinator.serving['enrol_port']}"
    async with grpc.aio.secure_channel(address, credentials) as channel:
        request = pb.EnrolRequest(token=join["token"], csr_der=request_for(key))
        answer = await EnrolmentStub(channel).Enrol(request)
    return Credentials(name=join["name"], key=key_to_pem(key), certificate=answer.certificate_pem, ca=trusted)


def handshake(port: object, version: str) -> str:
    """Output of a TLS client of one version."""
    line = ["openssl", "s_client", "-connect", f"127.0.0.1:{port}", version, "-alpn", "h2"]
    done = subprocess.run(line, input=b"", capture_output=True, timeout=20, check=False)
    return (done.stdout + done.stderr).decode(errors="replace")


async def test_from_init_to_a_clean_stop(tmp_path: Path) -> None:
    folder = tmp_path / "fed"
    config = str(folder / "coordinator.toml")
    init = ("init", "--dir", str(folder), "--federation", "fed", "--port", "0", "--enrol-port", "0")

    code, out, _ = command(*init, "--json")
    assert (code, json.loads(out)) == (0, {"config": config})
    assert command(*init)[0] == 9
    secret = Ed25519PrivateKey.from_private_bytes((folder / "release.key").read_bytes())
    release_key = secret.public_key().public_bytes_raw().hex()
    async with process(Path(config)) as coordinator:
        line = coordinator.serving
        assert (line["event"], line["federation"]) == ("serving", "fed")
        assert await exit_of_serve(Path(config)) == 9
        assert "Cipher is (NONE)" in await asyncio.to_thread(handshake, line["port"], "-tls1_2")
        assert "New, TLSv1.3" in await asyncio.to_thread(handshake, line["port"], "-tls1_3")
        out_file = tmp_path / "anna.json"
        query = ("token", "--config", config, "--role", "site", "--name", "anna")
        assert command(*query, "--out", str(out_file))[0] == 0
        assert out_file.stat().st_mode & 0o777 == 0o600
        join = json.loads(out_file.read_text())
        assert (join["role"], join["name"], join["federation"]) == ("site", "anna", "fed")
        stored = await joined(coordinator, join)
        hello = a_hello()
        anna = coordinator.connect(stored)
        await anna.stub.Hello(hello)
        code, out, _ = command("status", "--config", config, "--json")
        found = json.loads(out)
        assert found["budget"]["spent_micro_rho"] == 0
        assert found["release_key"] == release_key
        assert [(i["role"], i["name"]) for i in found["identities"]] == [("site", "anna")]
        assert command("deny", "--config", config, "--role", "site", "--name", "anna")[0] == 0
        with pytest.raises(grpc.aio.AioRpcError, match="deny-list"):
            await anna.stub.Hello(hello)
        assert await coordinator.end(signal.SIGTERM) == 0
    code, out, _ = command("status", "--config", config)
    assert (code, "DENIED" in out, release_key in out) == (0, True, True)


def test_errors_have_their_exit_codes(tmp_path: Path) -> None:
    missing = str(tmp_path / "none.toml")
    for arguments in (("serve",), ("status",), ("token", "--role", "site", "--name", "a")):
        code, out, err = command(*arguments, "--config", missing, "--json")
        assert (code, json.loads(out)["error"]) == (4, "bad-config")
        assert "error [bad-config]" in err
    code, _, err = command("init", "--dir", str(tmp_path / "x"), "--federation", "Bad Name")
    assert (code, "federation" in err) == (4, True)
    assert not (tmp_path / "x").exists()


def test_a_token_lives_for_a_while(tmp_path: Path) -> None:
    for hours in ("0", "-1", "1e-9", "nan", "inf"):
        token = ("token", "--config", "c", "--role", "site", "--name", "a", "--valid-hours", hours)
        code, _, err = command(*token)
        assert (code, "error [usage]" in err) == (2, True), hours


def test_join_files_of_several_names_are_made_together_or_not_at_all(tmp_path: Path) -> None:
    folder = tmp_path / "fed"
    command("init", "--dir", str(folder), "--federation", "fed")
    query = ("token", "--config", str(folder / "coordinator.toml"), "--role", "site")
    both = ("--name", "anna", "--name", "bert")
    assert command(*query, *both)[0] == 2
    (tmp_path / "bert.join").touch()
    assert command(*query, *both, "--out", str(tmp_path))[0] == 9
    assert not (tmp_path / "anna.join").exists()
    (tmp_path / "bert.join").unlink()
    assert command(*query, *both, "--out", str(tmp_path))[0] == 0
    for name in ("anna", "bert"):
        assert json.loads((tmp_path / f"{name}.join").read_text())["name"] == name


def test_the_example_configuration_shows_every_key() -> None:
    example = ROOT / "deploy" / "config" / "coordinator.example.toml"
    config = load(example, Config)
    assert set(tomllib.loads(example.read_text())) == set(Config.__dataclass_fields__)
    assert config == Config(
        federation=config.federation, state=config.state, host=config.host, listen=config.listen
    )


def test_a_join_file_that_cannot_be_written_voids_none(tmp_path: Path) -> None:
    config, file = str(tmp_path / "fed" / "coordinator.toml"), tmp_path / "file"
    assert command("init", "--dir", str(tmp_path / "fed"), "--federation", "fed")[0] == 0
    token = ("token", "--config", config, "--role", "site", "--name", "anna")
    assert command(*token, "--out", str(file))[0] == 0
    with closing(existing_store(load(Path(config), Config))) as store:
        before = [row["hash"] for row in store.reader.rows("SELECT hash FROM tokens")]
        for place in (tmp_path / "none" / "x.join", file / "x.join", tmp_path / ("x" * 300)):
            code, out, _ = command(*token, "--out", str(place), "--json")
            assert (code, json.loads(out)["error"]) == (70, "storage")
            assert str(place) in json.loads(out)["message"]
        assert [row["hash"] for row in store.reader.rows("SELECT hash FROM tokens")] == before
    code, out, _ = command("init", "--dir", str(file), "--federation", "fed", "--json")
    assert (code, f"cannot make {file}" in json.loads(out)["message"]) == (70, True)
