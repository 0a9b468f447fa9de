"""Names of hosts are looked up, and one that has no address is none of anybody's trouble."""

from strandline.connectors.hosts import addresses_of


def test_a_name_has_addresses_or_none():
    assert "127.0.0.1" in addresses_of("localhost")
    assert addresses_of("no-such-host.invalid") == []
    assert addresses_of("x" * 300) == []
