"""Names of tools of several servers."""

from toolwire.mcp.client.entries import assign_names, is_legal, make_legal


def test_legal_name_is_unchanged():
    assert make_legal("get-weather_2") == "get-weather_2"


def test_illegal_names_become_legal_and_stay_distinct():
    names = ["a.b", "a/b", "a b", "1st", "", "é", "x" * 200, "x" * 201]
    found = [make_legal(name) for name in names]
    assert all(is_legal(name) for name in found)
    assert len(set(found)) == len(names)
    assert found == [make_legal(name) for name in names]


def test_only_names_shared_by_servers_get_a_server_prefix():
    found = assign_names({"mail": ["send", "list"], "post": ["send", "stamp"]})
    assert list(found.values()) == ["mail_send", "list", "post_send", "stamp"]


def test_the_order_of_servers_does_not_matter():
    one, other = {"a": ["x", "y"], "b": ["x"]}, {"b": ["x"], "a": ["x", "y"]}
    assert assign_names(one) == assign_names(other)


def test_names_that_look_prefixed_stay_distinct():
    found = assign_names({"a": ["b_c", "x"], "a_b": ["c", "x"], "d": ["a_x"]})
    assert len(set(found.values())) == len(found)
    assert all(is_legal(name) for name in found.values())


def test_a_server_cannot_take_the_prefixed_name_of_another_server():
    servers = {"b": ["x", "a_x"], "a": ["x"]}
    found = assign_names(servers)
    assert found["b", "a_x"] != "a_x"
    assert found["a", "x"] != "a_x"
    assert found == assign_names(dict(reversed(servers.items())))
