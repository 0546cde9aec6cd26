"""Names of tools of several servers."""

from toolwire.mcp.client.names import assign_names, is_legal, make_legal


def test_a_legal_name_stays():
    assert make_legal("get-weather_2") == "get-weather_2"


def test_what_no_provider_takes_becomes_legal_and_stays_apart():
    names = ["a.b", "a/b", "a b", "1st", "", "é", "x" * 200, "x" * 201]
    found = [make_legal(name) for name in names]
    assert all(is_legal(name) for name in found)
    assert len(set(found)) == len(names)
    assert found == [make_legal(name) for name in names]


def test_names_of_one_server_only_are_kept_and_shared_ones_get_it_in_front():
    found = assign_names({"mail": ["send", "list"], "post": ["send", "stamp"]})
    assert list(found.values()) == ["mail_send", "list", "post_send", "stamp"]


def test_the_order_of_servers_does_not_matter():
    one, other = {"a": ["x", "y"], "b": ["x"]}, {"b": ["x"], "a": ["x", "y"]}
    assert assign_names(one) == assign_names(other)


def test_a_name_that_only_looks_like_a_prefixed_one():
    found = assign_names({"a": ["b_c", "x"], "a_b": ["c", "x"], "d": ["a_x"]})
    assert len(set(found.values())) == len(found)
    assert all(is_legal(name) for name in found.values())
