"""Names of tools of several servers."""

from toolwire.mcp.client.names import LEGAL, legal, names_of


def test_a_legal_name_stays():
    assert legal("get-weather_2") == "get-weather_2"


def test_what_no_provider_takes_becomes_legal_and_stays_apart():
    names = ["a.b", "a/b", "a b", "1st", "", "é", "x" * 200, "x" * 201]
    found = [legal(name) for name in names]
    assert all(LEGAL(name) for name in found)
    assert len(set(found)) == len(names)
    assert found == [legal(name) for name in names]


def test_names_of_one_server_only_are_kept_and_shared_ones_get_it_in_front():
    found = names_of({"mail": ["send", "list"], "post": ["send", "stamp"]})
    assert list(found.values()) == ["mail_send", "list", "post_send", "stamp"]


def test_the_order_of_servers_does_not_matter():
    one, other = {"a": ["x", "y"], "b": ["x"]}, {"b": ["x"], "a": ["x", "y"]}
    assert names_of(one) == names_of(other)


def test_a_name_that_only_looks_like_a_prefixed_one():
    found = names_of({"a": ["b_c", "x"], "a_b": ["c", "x"], "d": ["a_x"]})
    assert len(set(found.values())) == len(found)
    assert all(LEGAL(name) for name in found.values())
