"""Which addresses a webhook may go to: the registries of special addresses, held against the rule."""

import ipaddress
import random

import pytest

import pgqrs
from pgqrs.engine.outbox.publishers.addresses import is_public
from rig.outbox import an_event

# IANA's registries of special-purpose addresses, IPv4 and IPv6, whether or not they are globally reachable: none of
# them is the address of a company's web server. Then multicast, and what left the registries without being handed out.
REGISTERED = (
    "0.0.0.0/8", "10.0.0.0/8", "100.64.0.0/10", "127.0.0.0/8", "169.254.0.0/16", "172.16.0.0/12", "192.0.0.0/24",
    "192.0.2.0/24", "192.31.196.0/24", "192.52.193.0/24", "192.88.99.0/24", "192.168.0.0/16", "192.175.48.0/24",
    "198.18.0.0/15", "198.51.100.0/24", "203.0.113.0/24", "240.0.0.0/4", "255.255.255.255/32",
    "::/128", "::1/128", "::ffff:0:0/96", "64:ff9b::/96", "64:ff9b:1::/48", "100::/64", "100:0:0:1::/64", "2001::/23",
    "2001::/32", "2001:1::1/128", "2001:2::/48", "2001:3::/32", "2001:4:112::/48", "2001:10::/28", "2001:20::/28",
    "2001:30::/28", "2001:db8::/32", "2002::/16", "2620:4f:8000::/48", "3fff::/20", "5f00::/16", "fc00::/7", "fe80::/10",
    "224.0.0.0/4", "ff00::/8", "fec0::/10", "3ffe::/16", "::/96", "4000::/2", "8000::/1", "::/3",
)  # fmt: skip
# In ranges that belong to a cloud, and answered only inside it.
CLOUDS = ("168.63.129.16/32", "161.26.0.0/16", "166.8.0.0/14", "199.36.153.4/30", "199.36.153.8/30")
SPECIAL = [ipaddress.ip_network(each) for each in REGISTERED + CLOUDS]


def is_special(address):
    return any(address in each for each in SPECIAL if each.version == address.version)


def _inside(network, chosen):
    first, last = int(network[0]), int(network[-1])
    numbers = {first, last, *(chosen.randint(first, last) for _ in range(20))}
    return [_address(number, network.version) for number in numbers]


def _address(number, version):
    return (ipaddress.IPv4Address if version == 4 else ipaddress.IPv6Address)(number)


@pytest.mark.parametrize("network", SPECIAL, ids=str)
def test_no_special_address_is_public(network):
    assert [str(each) for each in _inside(network, random.Random(16)) if is_public(each)] == []


@pytest.mark.parametrize("network", SPECIAL, ids=str)
def test_their_neighbours_are_as_public_as_the_registries_say(network):
    most = 2 ** (32 if network.version == 4 else 128)
    around = [n for n in (int(network[0]) - 1, int(network[-1]) + 1) if 0 <= n < most]
    found = [_address(number, network.version) for number in around]

    assert [str(each) for each in found if is_public(each) == is_special(each)] == []


def test_any_other_address_is_public():
    chosen = random.Random(16)
    found = [_address(chosen.getrandbits(32), 4) for _ in range(20_000)]
    # All that is handed out begins with these three bits.
    found += [_address((1 << 125) | chosen.getrandbits(125), 6) for _ in range(20_000)]

    assert [str(each) for each in found if is_public(each) == is_special(each)] == []


EMBEDDINGS = {
    "mapped": lambda inner: (0xFFFF << 32) | inner,
    "compatible": lambda inner: inner,
    "translated": lambda inner: (0xFFFF << 48) | inner,
    "6to4": lambda inner: (0x2002 << 112) | (inner << 80) | 1,
    "NAT64": lambda inner: (0x0064_FF9B << 96) | inner,
    "NAT64 of one's own": lambda inner: (0x0064_FF9B_0001 << 80) | inner,
    "Teredo server": lambda inner: (0x2001_0000 << 96) | (inner << 64),
    "Teredo client": lambda inner: (0x2001_0000 << 96) | (inner ^ 0xFFFF_FFFF),
}


@pytest.mark.parametrize("how", EMBEDDINGS)
def test_no_address_that_holds_an_ipv4_address_is_public(how):
    """Whatever the inner address is: nobody publishes a web server so."""
    inner = ["127.0.0.1", "10.0.0.1", "169.254.169.254", "168.63.129.16", "8.8.8.8", "0.0.0.0"]
    found = [ipaddress.IPv6Address(EMBEDDINGS[how](int(ipaddress.IPv4Address(each)))) for each in inner]

    assert [str(each) for each in found if is_public(each)] == []


ZONED = ("2606:4700:4700::1111%eth0", "2606:4700:4700::1111%1", "fe80::1%eth0", "::1%lo")


@pytest.mark.parametrize("address", ZONED)
async def test_an_address_with_a_zone_is_never_public(address):
    """A zone names an interface of this machine: the packet goes where that leads."""

    async def resolve(host, port):
        return [address]

    publisher = pgqrs.HttpPublisher("https://hooks.example.org/", resolver=resolve)

    with pytest.raises(pgqrs.PublishFailed, match="not public"):
        await publisher.publish(an_event())
    with pytest.raises(pgqrs.ConfigError, match="not a public address"):
        pgqrs.HttpPublisher(f"https://[{address}]/")
