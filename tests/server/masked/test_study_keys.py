"""The coordinator stores the sites' keys for a study [R36] and passes them on to invited sites, also
later."""

from __future__ import annotations

from eigenveil.errors import Code
from eigenveil.identity import Role
from eigenveil_proto.v1 import eigenveil_pb2 as pb
from eigenveil_server.studies.contributions import MOST_STUDY_KEYS
from tests.server.masked.sites import MaskedSite, key_of, masked_sites, masked_toml, sent_key, study_key
from tests.server.rig import SITES, Client, Rig, refusal


async def keys_for(client: Client, study: str, *digests: str) -> list[pb.SignedStudyKey]:
    wanted = pb.GetStudyKeysRequest(
        plan_digest=bytes.fromhex(study), digests=[bytes.fromhex(one) for one in digests]
    )
    return list((await client.stub.GetStudyKeys(wanted)).keys)


async def all_ready(sites: dict[str, MaskedSite]) -> None:
    for site in sites.values():
        await site.ready((await site.round_query())[0])


async def test_invited_sites_get_the_keys_that_they_name(rig: Rig) -> None:
    sites, ada = await masked_sites(rig), await rig.client(Role.ANALYST, "ada")
    digest = await ada.submit(masked_toml())
    await all_ready(sites)
    named = [key_of(name, digest) for name in reversed(SITES)]
    expected = [sent_key(study_key(name, digest)) for name in reversed(SITES)]
    found = await keys_for(sites["anna"].client, digest, *named)
    assert sorted(found, key=str) == sorted(expected, key=str)
    assert await keys_for(sites["anna"].client, digest, "00" * 32, named[0]) == expected[:1]
    assert (await refusal(keys_for(sites["anna"].client, digest))).code is Code.PROTOCOL
    dora = await rig.client(Role.SITE, "dora")
    assert (await refusal(keys_for(dora, digest, *named))).code is Code.NOT_FOUND
    assert (await refusal(keys_for(sites["anna"].client, "00" * 32, *named))).code is Code.NOT_FOUND
    assert (await refusal(keys_for(ada, digest, *named))).code is not Code.BUG


async def test_a_key_is_stored_once_and_a_site_has_few(rig: Rig) -> None:
    sites, ada = await masked_sites(rig), await rig.client(Role.ANALYST, "ada")
    digest = await ada.submit(masked_toml())
    anna, studies = sites["anna"], rig.repository.studies
    round_query, _ = await anna.round_query()
    for _ in range(3):
        await anna.ready(round_query)
    assert studies.keys_of_site(digest, "anna") == [key_of("anna", digest)]
    for number in range(1, MOST_STUDY_KEYS):
        await anna.ready(round_query, f"card-{number}")
    refused = await refusal(anna.ready(round_query, "one-too-many"))
    assert (refused.code, "keys for this study already" in str(refused)) == (Code.CONFLICT, True)
    await anna.ready(round_query)  # a known one is no new one
    assert len(studies.keys_of_site(digest, "anna")) == MOST_STUDY_KEYS
