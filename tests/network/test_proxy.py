"""A real daemon behind a plain CONNECT proxy; what is configured, and what it says when it is refused."""

from __future__ import annotations

import asyncio
import tomllib
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import replace
from pathlib import Path

import pytest

from eigenveil.errors import Code
from eigenveil.study.applicant import LABELS
from eigenveil_client.analyst.profile import ProfileConfig, load_profile, proxy_rule
from eigenveil_client.connection.channel import call
from eigenveil_client.connection.identity import load_identity, open_channel
from eigenveil_client.connection.proxy import DIRECT, ProxyRule
from eigenveil_client.site.daemon.service import SiteDaemon
from eigenveil_common import config
from eigenveil_common.files import write_secret
from eigenveil_proto.v1 import eigenveil_pb2 as pb
from eigenveil_proto.v1 import eigenveil_pb2_grpc as rpc
from tests.client.site.support import FEDERATION, SITE, Coordinator, Stage, store_identity, until
from tests.network.forwarders import ConnectProxy
from tests.support import a_hello, refused


@asynccontextmanager
async def at_work(stage: Stage, rule: ProxyRule) -> AsyncIterator[None]:
    store = stage.store()
    identity = stage.config.identity
    daemon = SiteDaemon(stage.worker(store), lambda: replace(load_identity(identity), proxy=rule))
    task = asyncio.create_task(daemon.run())
    try:
        yield
    finally:
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task
        store.close()


async def hello(stage: Stage, rule: ProxyRule) -> pb.HelloResponse:
    async with await open_channel(replace(load_identity(stage.config.identity), proxy=rule)) as channel:
        query = a_hello()
        return await call(rpc.CoordinatorStub(channel).Hello, query, attempts=1)


def by_name(stage: Stage, port: int) -> None:
    """Dial localhost: a name of the coordinator's certificate, which the proxy has no part in."""
    uri = f"eigenveil://{FEDERATION}/site/{SITE}"
    store_identity(stage.authority, stage.config.identity, f"localhost:{port}", uri=uri)


@pytest.mark.parametrize("user", ["", "site-a:s3:cret %41"])
async def test_every_byte_of_a_daemon_goes_through_the_proxy(stage: Stage, user: str) -> None:
    credentials = stage.folder / "proxy.credentials"
    write_secret(credentials, f"{user}\n".encode())

    coordinator, proxy = Coordinator(), ConnectProxy(user=user)
    async with stage.serving(coordinator) as port, proxy.listening(host="127.0.0.2") as proxy_port:
        by_name(stage, port)
        url = f"http://127.0.0.2:{proxy_port}"
        rule = ProxyRule(proxy=url, proxy_credentials=credentials if user else None)
        async with at_work(stage, rule):
            await until(lambda: coordinator.requests)
    assert coordinator.hellos == 1
    assert proxy.seen >= 2  # the handshake that checks, and the channel
    assert all(
        request.startswith(f"CONNECT localhost:{port} HTTP/1.1\r\n".encode()) for request in proxy.requests
    )
    assert all((b"Proxy-Authorization" in request) == bool(user) for request in proxy.requests)


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        (b"HTTP/1.1 407 Proxy Authentication Required\r\n\r\n", ["407 Proxy Auth", "proxy_credentials"]),
        (
            b"HTTP/1.1 403 Forbidden by \x1b[31mpolicy\r\n\r\n",
            ["403 Forbidden by ?[31mpolicy", "allow CONNECT"],
        ),
        (b"HTTP/1.0 503 Service Unavailable\r\n\r\n", ["503", "cannot reach the coordinator"]),
        (b"HTTP/1.1 200 OK", ["closed the connection"]),
        (b"x" * 40_000 + b"\r\n\r\n", ["closed the connection"]),
        (b"SSH-2.0-dropbear\r\n\r\n", ["SSH-2.0-dropbear"]),
    ],
)
async def test_a_refusal_names_the_proxy_and_its_status_line(
    stage: Stage, answer: bytes, words: list[str]
) -> None:
    proxy = ConnectProxy(answer=answer)
    async with proxy.listening() as port:
        with refused(Code.UNREACHABLE, f"the proxy 127.0.0.1:{port}", "127.0.0.1:1", *words):
            await hello(stage, ProxyRule(proxy=f"http://127.0.0.1:{port}"))


async def test_a_proxy_that_is_not_there_is_named(stage: Stage) -> None:
    with refused(Code.UNREACHABLE, "the proxy 127.0.0.1:1 cannot be reached"):
        await hello(stage, ProxyRule(proxy="http://127.0.0.1:1"))


def test_the_environment_is_obeyed_only_when_it_is_configured(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def seen(rule: ProxyRule | None, no_proxy: str) -> int:
        proxy = ConnectProxy()
        async with stage.serving(Coordinator()), proxy.listening() as port:
            for name in ("https_proxy", "http_proxy", "grpc_proxy"):
                monkeypatch.setenv(name, f"http://127.0.0.1:{port}")
            for name in ("no_proxy", "no_grpc_proxy"):
                monkeypatch.setenv(name, no_proxy)
            await hello(stage, rule or ProxyRule(proxy=f"http://127.0.0.1:{port}"))
        return proxy.seen

    environment, configured = ProxyRule(proxy="environment"), None
    assert asyncio.run(seen(DIRECT, "")) == 0
    assert asyncio.run(seen(environment, "")) == 2
    assert asyncio.run(seen(environment, "127.0.0.1")) == 0
    assert asyncio.run(seen(configured, "127.0.0.1")) == 2  # a configured proxy is not overruled


@pytest.mark.parametrize(
    "url",
    [
        "https://proxy:1", "proxy:3128", "http://", "http://h:0", "http://h:99999", "http://h/path",
        "socks5://h",
    ],
)  # fmt: skip
def test_a_url_that_is_no_plain_proxy_is_refused(url: str) -> None:
    with refused(Code.BAD_CONFIG, "http://host:port"):
        ProxyRule(proxy=url)


def test_credentials_live_in_a_private_file_and_in_no_message(tmp_path: Path) -> None:
    with refused(Code.BAD_CONFIG, "proxy_credentials"):
        ProxyRule(proxy="http://joe:hunter2@proxy:3128")
    path = tmp_path / "credentials"
    write_secret(path, b"joe:hunter2\n")
    rule = ProxyRule(proxy="http://proxy:3128", proxy_credentials=path)
    proxy = rule.proxy_for("c:1")
    assert proxy is not None
    assert proxy.authorization == "Basic am9lOmh1bnRlcjI="
    assert "am9l" not in repr(proxy)
    path.chmod(0o640)
    with refused(Code.BAD_CONFIG, "chmod 600"):
        rule.proxy_for("c:1")
    for bad in (b"joe", b"joe:a\r\nEvil: 1", "jö:x".encode()):
        write_secret(path, bad)
        with refused(Code.BAD_CONFIG, "one line of ASCII"):
            rule.proxy_for("c:1")
    with refused(Code.BAD_CONFIG, "set both or neither"):
        ProxyRule(proxy_credentials=path)


def test_the_example_profile_shows_every_key() -> None:
    example = Path(__file__).parents[2] / "deploy" / "config" / "profile.example.toml"
    loaded = config.load(example, ProfileConfig)
    assert set(tomllib.loads(example.read_text())) == config.keys(ProfileConfig).keys()
    assert len(loaded.applicant.stated) == len(tomllib.loads(example.read_text())["applicant"]) == len(LABELS)
    assert loaded.proxy_rule == ProxyRule(
        proxy="http://proxy.hospital.example:3128", proxy_credentials=example.with_name("proxy.credentials")
    )


def test_an_analyst_s_profile_names_its_proxy(stage: Stage) -> None:
    folder = stage.config.identity
    with refused(Code.BAD_CONFIG, "a site's identity"):
        load_profile(folder)
    assert proxy_rule(folder) == DIRECT
    (folder / "profile.toml").write_text('proxy = "http://proxy:3128"\n')
    assert proxy_rule(folder) == ProxyRule(proxy="http://proxy:3128")
    (folder / "profile.toml").write_text('color = "red"\n')
    with refused(Code.BAD_CONFIG, "unknown key color"):
        proxy_rule(folder)
