"""Where a program may lead a connector: hosts that it names, and those that nobody reaches (X12).

    who wrote the program     may reach
    ------------------------  -----------------------------------------------------------------
    the owner of the process  any host but link-local ones and those that give out credentials
                              of a machine (metadata services): these only if they are listed
    somebody that is served   hosts that are listed, and no other

A list is written `kafka.example.com:9092, *.internal.example.com, 10.0.0.0/8, [fd00::7]:5432`:
without a port any port is meant. A name counts as it is written and by the addresses that it has
when it is checked: a listed name that leads to a link-local address is refused, unless that
address is listed as well. To where a secret is sent, only a listed host may be.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from ipaddress import IPv4Address, IPv6Address, ip_address, ip_network
from typing import TYPE_CHECKING
from urllib.parse import parse_qsl, urlsplit

from strandline.errors import UsageError
from strandline.model.ids import printable

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from ipaddress import IPv4Network, IPv6Network

    from strandline.connectors.source import ResolveSecret

VARIABLE = "STRANDLINE_ALLOW_HOSTS"
"""Where the list comes from, for errors."""

IP = IPv4Address | IPv6Address
Lookup = Callable[[str], Sequence[str]]
"""The addresses that a name has now; none if it has none."""

_NEVER = tuple(
    ip_network(each)
    for each in (
        "169.254.0.0/16",
        "fe80::/10",
        "fd00:ec2::254/128",
        "fd20:ce::254/128",
        "100.100.100.200/32",
        "168.63.129.16/32",
        "192.0.0.192/32",
    )
)
_NEVER_NAMES = (
    "metadata",
    "metadata.goog",
    "metadata.google.internal",
    "instance-data",
    "instance-data.ec2.internal",
)
_EMBEDDED = (ip_network("::ffff:0:0/96"), ip_network("64:ff9b::/96"), ip_network("::/96"))
_NAME = re.compile(r"[a-z0-9_]([a-z0-9_.-]*[a-z0-9_])?")
_PART = re.compile(r"0x[0-9a-f]+|[0-9]+")
_UNCLEAR = re.compile(r"[\\\s\x00-\x1f]")
_ZONED = re.compile(r"[0-9a-f.]*:[0-9a-f:.]*%(25[a-z0-9_-]+|[a-z][a-z0-9_-]*)")
"""An address with a zone; who decodes `%2e` or `%61` in it would read another host than we do."""
_LEADS = re.compile(r"(^|[._-])(endpoint|host|uri|url)$", re.IGNORECASE)
"""How the name of an option ends that leads somewhere, with a scheme in its value or without."""
_LOADS_CODE = re.compile(r"catalog\..*-impl", re.IGNORECASE)
_DSN = re.compile(r"(\w+)\s*=\s*('(?:[^'\\]|\\.)*'|\S*)")

_PORTS = {"http": 80, "https": 443, "postgres": 5432, "postgresql": 5432, "thrift": 9083}
_KAFKA_PORT = 9092
_FOLDERS = ("catalog.warehouse", "path")
_CONNECTING = ("files", "iceberg", "kafka", "postgresql")
_SERVERS = ("kafka.bootstrap.servers", "kafka.metadata.broker.list")
_HERE_UNLESS_TOLD = ("mariadb", "mysql", "postgres", "postgresql")
_CATALOGS = ("rest", "sql")
"""Catalogs that go where their `uri` says; others find their service by what is around them."""
_SENDS_SECRETS = ("kafka.sasl.oauthbearer.token.endpoint.url",)
_ASKS_METADATA = "kafka.sasl.oauthbearer.metadata.authentication.type"
_METADATA = "169.254.169.254"


@dataclass(frozen=True, slots=True)
class Address:
    """A host and a port as somebody wrote them."""

    host: str
    port: int | None = None

    def __str__(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return host if self.port is None else f"{host}:{self.port}"


@dataclass(frozen=True)
class Listed:
    """One entry of a list: a name, all names below one, an address or a network."""

    host: str
    port: int | None = None

    def __str__(self) -> str:
        host, slash, length = self.host.partition("/")
        host = f"[{host}]" if ":" in host else host
        return f"{host}{slash}{length}" + ("" if self.port is None else f":{self.port}")

    @cached_property
    def network(self) -> IPv4Network | IPv6Network | None:
        literal = literal_of(self.host)
        if literal is not None:
            return ip_network(literal)
        return ip_network(self.host) if "/" in self.host else None

    def names(self, host: str, port: int | None) -> bool:
        if self.network is not None or self.port not in {None, port}:
            return False
        if self.host.startswith("*."):
            return host.endswith(self.host[1:])
        return host == self.host

    def holds(self, address: IP, port: int | None) -> bool:
        known = self.network
        return known is not None and self.port in {None, port} and _within(address, known)


def _nowhere(name: str) -> Sequence[str]:  # noqa: ARG001 - the port
    return ()


@dataclass(frozen=True, slots=True)
class Reach:
    """What may be reached from this process by what a program says."""

    listed: tuple[Listed, ...] = ()
    only: bool = False
    """Whether nothing but what is listed may be."""
    lookup: Lookup = _nowhere

    def __str__(self) -> str:
        """For whoever reads in another process; see `reach_of`."""
        return " ".join(["only" if self.only else "any", ", ".join(map(str, self.listed))])


def reach_of(text: str, lookup: Lookup) -> Reach:
    """The reach that was written as a text, with who looks names up there.

    >>> str(reach_of("only *.example.com:9092, [fd00::]/8:80", _nowhere))
    'only *.example.com:9092, [fd00::]/8:80'
    """
    word, _, listed = text.partition(" ")
    return Reach(listed_hosts(listed), only=word != "any", lookup=lookup)


def listed_hosts(text: str) -> tuple[Listed, ...]:
    """A list of hosts, or which entry of it can't be right.

    >>> [str(each.host) for each in listed_hosts("kafka.example.com:9092, 10.0.0.0/8")]
    ['kafka.example.com', '10.0.0.0/8']
    """
    return tuple(_entry(each.strip()) for each in text.split(",") if each.strip())


def check_address(reach: Reach, option: str, address: Address, *, secret: bool = False) -> None:
    """Refuse an address that an option leads to and that may not be reached.

    `secret`: a secret would be sent there, so that it must be listed, whoever wrote the program.
    """
    reason = refusal(reach, address, secret=secret)
    if reason is not None:
        raise UsageError(
            f"option {printable(option)} leads to {printable(str(address))}, {reason}: name it in "
            f"{VARIABLE} if it may be reached"
        )


def refusal(reach: Reach, address: Address, *, secret: bool = False) -> str | None:
    """Why an address may not be reached; `None` if it may."""
    host, port = _plain(address.host), address.port
    literal = literal_of(host)
    unclear = "%" in host and _ZONED.fullmatch(host) is None
    if unclear or (literal is None and _NAME.fullmatch(host) is None):
        return "which is no name of a host and no address"
    named = any(each.names(host, port) for each in reach.listed)
    if host in _NEVER_NAMES and not named:
        return "a metadata service, which gives out credentials of this machine"
    found = [literal] if literal is not None else _looked_up(reach, host)
    for each in found:
        if any(_within(each, never) for never in _NEVER) and not _is_listed(reach, each, port):
            return "a link-local address or a metadata service"
    if not (reach.only or secret) or named:
        return None
    if found and all(_is_listed(reach, each, port) for each in found):
        return None
    return "and a secret goes only to hosts that are listed" if secret else "which is not listed"


def check_options(
    reach: Reach, connector: str, options: Mapping[str, str], resolve: ResolveSecret
) -> None:
    """Refuse options of a connector that lead to where it may not go, by the option's name."""
    if connector not in _CONNECTING:
        return
    for name, value in options.items():
        known = f"kafka.{name[6:].lower()}" if name.startswith("kafka.") else name
        if known == _ASKS_METADATA and value.lower() != "none":
            check_address(reach, name, Address(_METADATA, 80), secret=True)
        if connector == "iceberg":
            _check_catalog(reach, name, value, resolve)
        for address in _addresses(connector, known, value, resolve):
            check_address(reach, name, address, secret=known in _SENDS_SECRETS)


def address_of(text: str, port: int | None = None) -> Address:
    """What `host`, `host:port` or `[address]:port` says.

    >>> address_of("[fd00::7]:5432"), address_of("fd00::7", 80)
    (Address(host='fd00::7', port=5432), Address(host='fd00::7', port=80))
    """
    told = ""
    if text.startswith("["):
        host, _, rest = text[1:].partition("]")
        told = rest.removeprefix(":")
    elif text.count(":") > 1:
        host = text
    else:
        host, _, told = text.partition(":")
    if told and not (told.isascii() and told.isdigit()):
        raise UsageError(f"{printable(text)} has no port that is a number: write host:port")
    return Address(_plain(host), int(told) if told else port)


def literal_of(host: str) -> IP | None:
    """The address that a text is, in all forms that the system's own functions understand.

    >>> literal_of("2130706433"), literal_of("0x7f.1"), literal_of("localhost")
    (IPv4Address('127.0.0.1'), IPv4Address('127.0.0.1'), None)
    """
    try:
        # Only the newer kind has zones; before a name's `%` may stand what looks like an address.
        return ip_address(host.partition("%")[0] if ":" in host else host)
    except ValueError:
        return _short_form(host)


def _short_form(host: str) -> IPv4Address | None:
    """`127.1`, `0x7f000001`, `0177.0.0.1`: the last part fills what the others leave."""
    parts = host.split(".")
    if len(parts) > 4 or not all(_PART.fullmatch(each) for each in parts):
        return None
    try:
        numbers = [int(each, 8 if re.fullmatch("0[0-7]+", each) else 0) for each in parts]
        high = bytes(numbers[:-1])
        return IPv4Address(high + numbers[-1].to_bytes(4 - len(high)))
    except (ValueError, OverflowError):
        return None


def _entry(text: str) -> Listed:
    host, slash, length = text.partition("/")
    if slash:
        length, colon, port = length.partition(":")
        address = address_of(f"[{host.strip('[]')}]{colon}{port}")
        host = f"{address.host}/{length}"
    else:
        address = address_of(text)
        host = address.host
    entry = Listed(host, address.port)
    plain = host.removeprefix("*.")
    try:
        if entry.network is not None or _NAME.fullmatch(plain):
            return entry
    except ValueError:
        pass
    raise UsageError(
        f"{VARIABLE} has {printable(text)}: write names, *.names, addresses or networks "
        "(10.0.0.0/8), each with :port or without, and commas between them"
    )


def _addresses(connector: str, name: str, value: str, resolve: ResolveSecret) -> Iterator[Address]:
    """What an option leads to; a reference is looked behind, and never shown."""
    if connector == "kafka" and name in _SERVERS:
        for each in resolve(value).split(","):
            server = each.strip().rpartition("://")[2]
            if server:
                yield address_of(server.rstrip("/"), _KAFKA_PORT)
    elif name in _FOLDERS:
        # No reference, although `file:///data` looks like one; a bucket is named like a host.
        yield from _of_url(value) if "://" in value else ()
    elif "://" in value or _LEADS.search(name):
        told = resolve(value)
        if "://" in told:
            yield from _of_url(told)
        elif connector == "postgresql":
            yield from _of_pairs(_DSN.findall(told), [], _PORTS[connector], here=True)
        else:
            yield address_of(told.strip().partition("/")[0])


def _check_catalog(reach: Reach, name: str, value: str, resolve: ResolveSecret) -> None:
    """Refuse what makes a catalog load code, or go where no option says."""
    if _LOADS_CODE.fullmatch(name):
        raise UsageError(f"option {printable(name)} loads code, which no program may: leave it out")
    if reach.only and name == "catalog.type" and resolve(value).lower() not in _CATALOGS:
        raise UsageError(
            f"option {printable(name)} is for a catalog whose hosts can't be checked against "
            f"{VARIABLE}: write {' or '.join(_CATALOGS)}"
        )


def _of_url(text: str) -> Iterator[Address]:
    if _UNCLEAR.search(text):
        # Who connects might read another host in it than we do.
        raise UsageError("an address has a backslash, a space or a control character: leave it out")
    told = urlsplit(text.removeprefix("jdbc:"))
    # A driver's name may follow the scheme: `postgresql+psycopg`.
    scheme = told.scheme.partition("+")[0].lower()
    port = _PORTS.get(scheme)
    written = told.netloc.rpartition("@")[2]
    hosts = [address_of(each, port) for each in written.split(",") if each]
    pairs = parse_qsl(told.query, keep_blank_values=True)
    yield from _of_pairs(pairs, hosts, port, here=scheme in _HERE_UNLESS_TOLD)


def _of_pairs(
    pairs: Sequence[tuple[str, str]], before: Sequence[Address], port: int | None, *, here: bool
) -> Iterator[Address]:
    """Hosts in the words of libpq, and those before; paths are sockets of this machine.

    `here`: who names no host means this machine. A port in the pairs holds for all hosts.
    """
    hosts, ports = list(before), list[int | None]()
    for name, value in pairs:
        for each in value.strip("'").split(","):
            if name.lower() in {"host", "hostaddr"}:
                socket = each.startswith(("/", "@"))
                hosts.append(Address("localhost" if socket else _plain(each), port))
            elif name.lower() == "port" and each:
                ports.append(address_of(f"[]:{each}").port)
    for host in hosts or ([Address("localhost", port)] if here else []):
        for each_port in ports or [host.port]:
            yield Address(host.host, each_port)


def _plain(host: str) -> str:
    return host.strip().lower().removesuffix(".")


def _looked_up(reach: Reach, host: str) -> list[IP]:
    found = [literal_of(each) for each in reach.lookup(host)]
    return [each for each in found if each is not None]


def _is_listed(reach: Reach, address: IP, port: int | None) -> bool:
    return any(each.holds(address, port) for each in reach.listed)


def _within(address: IP, network: IPv4Network | IPv6Network) -> bool:
    """An address of the older kind may be hidden in one of the newer."""
    if address in network:
        return True
    if isinstance(address, IPv4Address) or network.version == 6:
        return False
    if address.sixtofour is not None:
        return address.sixtofour in network
    hidden = any(address in each for each in _EMBEDDED)
    return hidden and IPv4Address(int(address) & 0xFFFF_FFFF) in network
