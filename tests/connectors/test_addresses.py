"""Where a program may lead a connector."""

import pytest

from strandline.connectors.addresses import (
    Address,
    Reach,
    address_of,
    check_address,
    check_options,
    listed_hosts,
    literal_of,
    reach_of,
    refusal,
)
from strandline.errors import UsageError

ANY = Reach()
NONE = Reach(only=True)
DISGUISED = [
    "169.254.169.254",
    "2852039166",
    "0xa9fea9fe",
    "0251.0376.0251.0376",
    "169.254.43518",
    "[::ffff:169.254.169.254]",
    "[::ffff:a9fe:a9fe]",
    "[64:ff9b::a9fe:a9fe]",
    "[2002:a9fe:a9fe::]",
    "[fe80::1%eth0]",
    "fd00:ec2::254",
    "metadata.google.internal",
    "METADATA.google.internal.",
    "100.100.100.200",
]


@pytest.mark.parametrize("host", DISGUISED)
def test_x12_a_metadata_service_is_refused_in_every_form_it_can_be_written_in(host):
    assert refusal(ANY, address_of(host, 80)) is not None


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost", "10.1.2.3", "kafka.example.com", "::1"])
def test_x12_the_owner_of_a_program_reaches_the_rest_and_somebody_served_nothing(host):
    assert refusal(ANY, address_of(host, 9092)) is None
    assert "not listed" in str(refusal(NONE, address_of(host, 9092)))


@pytest.mark.parametrize(
    ("listed", "host", "may"),
    [
        ("kafka.example.com", "kafka.example.com:9092", True),
        ("kafka.example.com:9092", "KAFKA.example.com.:9092", True),
        ("kafka.example.com:9092", "kafka.example.com:9093", False),
        ("kafka.example.com", "kafka.example.com.evil.org:9092", False),
        ("*.example.com", "a.b.example.com:1", True),
        ("*.example.com", "example.com:1", False),
        ("*.example.com", "evilexample.com:1", False),
        ("10.0.0.0/8", "10.9.8.7:1", True),
        ("10.0.0.0/8:5432", "10.9.8.7:1", False),
        ("10.0.0.0/8", "11.0.0.1:1", False),
        ("10.0.0.0/8", "[::ffff:10.0.0.1]:1", True),
        ("[fd00::7]:5432", "[fd00::7]:5432", True),
        ("fd00::/8", "[fd12::1]:1", True),
        ("169.254.169.254", "169.254.169.254:80", True),
        ("*", "anywhere:1", False),
    ],
)
def test_x12_what_is_listed_may_be_reached_and_nothing_that_looks_like_it(listed, host, may):
    try:
        reach = Reach(listed_hosts(listed), only=True)
    except UsageError:
        assert listed == "*"
        return
    assert (refusal(reach, address_of(host)) is None) == may


def test_x12_a_name_counts_by_the_addresses_that_it_has():
    book = {"rebound.example.com": ["10.0.0.7", "169.254.169.254"], "inside": ["10.0.0.8"]}
    listed = listed_hosts("rebound.example.com, 10.0.0.0/8")
    reach = Reach(listed, only=True, lookup=lambda name: book.get(name, []))
    assert "link-local" in str(refusal(reach, Address("rebound.example.com", 1)))
    assert refusal(reach, Address("inside", 1)) is None
    assert refusal(reach, Address("unknown", 1)) is not None
    book["inside"] = ["10.0.0.8", "8.8.8.8"]
    assert refusal(reach, Address("inside", 1)) is not None, "one of its addresses is not listed"
    anywhere = Reach(lookup=lambda name: book.get(name, []))
    assert refusal(anywhere, Address("rebound.example.com", 1)) is not None


@pytest.mark.parametrize(
    "text", ["a b", "x/8", "10.0.0.0/99", "host:port", "ex*mple.com", "*", "\uff4b"]
)
def test_a_list_that_cannot_be_right_is_refused_by_its_entry(text):
    with pytest.raises(UsageError):
        listed_hosts(f"good.example.com,{text}")


def test_a_list_may_be_empty():
    assert listed_hosts("  ") == ()


@pytest.mark.parametrize(
    ("connector", "options"),
    [
        ("kafka", {"kafka.bootstrap.servers": "good:9092, 169.254.169.254"}),
        ("kafka", {"kafka.bootstrap.servers": "SASL_SSL://metadata.google.internal:80"}),
        ("kafka", {"kafka.bootstrap.servers": "env:SERVERS"}),
        ("kafka", {"kafka.Metadata.Broker.List": "169.254.169.254:80"}),
        ("kafka", {"kafka.sasl.oauthbearer.token.endpoint.url": "https://auth.example.com/token"}),
        ("kafka", {"kafka.sasl.oauthbearer.metadata.authentication.type": "azure_imds"}),
        ("postgresql", {"url": "postgresql://me@good,169.254.169.254:5432/db"}),
        ("postgresql", {"url": "postgresql://good/db?hostaddr=169.254.169.254"}),
        ("postgresql", {"url": "host=good hostaddr='169.254.169.254' dbname=d"}),
        ("postgresql", {"url": "env:SERVERS_URL"}),
        ("iceberg", {"uri": "http://169.254.169.254/latest/meta-data"}),
        ("iceberg", {"s3.endpoint": "http://user@169.254.169.254:80"}),
        ("iceberg", {"catalog.s3.endpoint": "169.254.169.254"}),
        ("iceberg", {"catalog.s3.endpoint": "169.254.169.254:80/?host=good"}),
        ("iceberg", {"catalog.s3.endpoint": "env:SERVERS"}),
        ("iceberg", {"catalog.s3.proxy-uri": "169.254.169.254:80"}),
        ("iceberg", {"catalog.hdfs.host": "169.254.169.254"}),
        ("iceberg", {"catalog.uri": "mysql+pymysql://good/db?host=169.254.169.254"}),
        ("files", {"storage.endpoint": "169.254.169.254"}),
        ("files", {"storage.AWS_ENDPOINT": "169.254.169.254:80"}),
        ("files", {"path": "http://169.254.169.254/"}),
    ],
)
def test_x12_each_option_that_leads_somewhere_is_looked_at_and_named(connector, options):
    values = {
        "env:SERVERS": "169.254.169.254:9092",
        "env:SERVERS_URL": "postgresql://u:hunter2@169.254.169.254/d",
    }
    with pytest.raises(UsageError, match="STRANDLINE_ALLOW_HOSTS") as caught:
        check_options(ANY, connector, options, lambda value: values.get(value, value))
    assert next(iter(options)) in str(caught.value)
    assert "hunter2" not in str(caught.value)


@pytest.mark.parametrize(
    ("connector", "options"),
    [
        ("kafka", {"kafka.bootstrap.servers": "a:9092,b:9092", "subscribe": "http://x"}),
        ("postgresql", {"url": "postgresql://me@db.example.com/shop"}),
        ("postgresql", {"url": "postgresql:///shop?host=/var/run/postgresql"}),
        ("iceberg", {"uri": "sqlite:////data/catalog.db", "warehouse": "file:///data"}),
        ("iceberg", {"catalog.type": "glue", "catalog.s3.endpoint": "storage:9000"}),
        ("postgresql", {"url": "postgresql:///shop"}),
        ("files", {"path": "/data/169.254.169.254"}),
    ],
)
def test_what_leads_nowhere_forbidden_is_left_alone(connector, options):
    check_options(ANY, connector, options, str)


def test_x12_a_secret_goes_only_to_a_host_that_is_listed():
    options = {"kafka.sasl.oauthbearer.token.endpoint.url": "https://auth.example.com/token"}
    reach = Reach(listed_hosts("auth.example.com:443"))
    check_options(reach, "kafka", options, str)
    with pytest.raises(UsageError, match="secret"):
        check_address(reach, "url", Address("other.example.com", 443), secret=True)


def test_what_is_no_host_is_refused():
    for host in ("good@evil", "a b", "", "x\ny", "http"):
        assert (refusal(ANY, Address(host, 1)) is None) == (host == "http")
    for url in ("http://good\\@169.254.169.254/", "http://good\t.example.com/"):
        with pytest.raises(UsageError, match="backslash"):
            check_options(ANY, "iceberg", {"uri": url}, str)
    with pytest.raises(UsageError, match="port"):
        address_of("host:http")


@pytest.mark.parametrize(
    "url",
    [
        "postgresql://10.0.0.5%2Eevil.example/db",
        "postgresql://10.0.0.5%25/db",
        "postgresql://[fd00::5%2Eevil.example]/db",
        "postgresql://[fd00::5%61]/db",
    ],
)
def test_x12_a_host_that_is_decoded_to_another_is_refused(url):
    reach = Reach(listed_hosts("10.0.0.0/8, fd00::/8"), only=True)
    for each in (reach, ANY):
        with pytest.raises(UsageError, match="no name of a host and no address"):
            check_options(each, "postgresql", {"url": url}, str)
    check_options(reach, "postgresql", {"url": "postgresql://[fd00::5%25eth0]/db"}, str)


def test_x12_a_zone_hides_no_address_that_a_name_has():
    reach = Reach(lookup=lambda _: ["fe80::1%2"])
    assert "link-local" in str(refusal(reach, Address("near.example.com", 1)))


@pytest.mark.parametrize(
    ("connector", "options"),
    [
        ("iceberg", {"catalog.s3.endpoint": "evil:9000"}),
        ("files", {"storage.endpoint": "evil:9000"}),
        ("files", {"storage.aws_endpoint_url": "evil"}),
        ("postgresql", {"url": "postgresql:///db"}),
        ("postgresql", {"url": "postgresql://me@/db"}),
        ("postgresql", {"url": "dbname=postgres"}),
        ("postgresql", {"url": "postgresql://good/db?port=22"}),
        ("postgresql", {"url": "host=good port=22"}),
        ("iceberg", {"catalog.uri": "postgresql+psycopg2:///db"}),
        ("iceberg", {"catalog.uri": "mysql+pymysql://good:5432/db?host=evil"}),
    ],
)
def test_x12_what_is_not_listed_is_refused_however_it_is_told(connector, options):
    reach = Reach(listed_hosts("good:5432"), only=True)
    with pytest.raises(UsageError, match="not listed"):
        check_options(reach, connector, options, str)


@pytest.mark.parametrize(
    ("listed", "url"),
    [
        ("localhost:5432", "postgresql:///db"),
        ("localhost:5432", "dbname=postgres"),
        ("good:5432", "host=good dbname=d"),
        ("good:6000", "postgresql://good/db?port=6000"),
    ],
)
def test_a_host_and_port_that_are_meant_may_be_listed(listed, url):
    check_options(Reach(listed_hosts(listed), only=True), "postgresql", {"url": url}, str)


@pytest.mark.parametrize("reach", [ANY, NONE])
@pytest.mark.parametrize("name", ["py-io-impl", "py-catalog-impl", "s3.retry-strategy-impl"])
def test_x12_no_option_loads_code(reach, name):
    with pytest.raises(UsageError, match=f"{name}' loads code"):
        check_options(reach, "iceberg", {f"catalog.{name}": "evil.Module"}, str)


def test_x12_a_program_that_is_served_has_catalogs_that_go_where_they_are_told():
    for kind in ("rest", "SQL", "env:KIND"):
        check_options(
            NONE, "iceberg", {"catalog.type": kind}, lambda it: it.replace("env:KIND", "sql")
        )
    for kind in ("glue", "dynamodb", "hive", "bigquery", "in-memory"):
        with pytest.raises(UsageError, match="rest or sql"):
            check_options(NONE, "iceberg", {"catalog.type": kind}, str)
        check_options(ANY, "iceberg", {"catalog.type": kind}, str)


def test_addresses_are_read_as_the_system_reads_them():
    assert str(literal_of("127.1")) == "127.0.0.1"
    assert str(literal_of("0x7f.0.0.1")) == "127.0.0.1"
    assert literal_of("1.2.3.4.5") is None
    assert literal_of("256.1.1.1") is None
    assert literal_of("08.1") is None
    assert literal_of("10.0.0.5%2eevil.example") is None


def _nobody(_: str) -> list[str]:
    return []


@pytest.mark.parametrize("only", [True, False])
@pytest.mark.parametrize(
    "text",
    [
        "",
        "kafka.example.com:9092, *.internal.example.com",
        "10.0.0.0/8, 10.0.0.0/8:80, 127.0.0.1:1",
        "[fd00::7]:5432, [fd00::7], [fd00::]/8, [fd00::]/8:443",
    ],
)
def test_what_may_be_reached_is_the_same_in_another_process(text, only):
    reach = Reach(listed_hosts(text), only=only, lookup=_nobody)
    again = reach_of(str(reach), reach.lookup)
    assert again == reach


def test_who_is_told_nothing_reaches_nothing():
    assert reach_of("", lambda _: ()).only
