"""A client is identified by the first known key of its request, in whatever header it is."""

from hypothesis import given
from hypothesis import strategies as st

from toolwire.gateway.config.settings import KeyRow
from toolwire.gateway.keys import ClientKeys, UnknownKey, hash_key, keys_in_request

KEYS = {"ann": "sk-a", "bob": "sk-b", "nobody": ""}
CLIENTS = ClientKeys({name: KeyRow(hash_key(key)) for name, key in KEYS.items()})
keys = st.sampled_from(["sk-a", "sk-b", "sk-c", "", " ", " sk-a", "sk-b ", "sk-a sk-b", "\u00e9"])
schemes = st.sampled_from(["Bearer ", "bearer ", "Bearer", "Bearer  ", "Basic ", ""])
headers = st.fixed_dictionaries(
    {},
    optional={
        "authorization": st.builds(str.__add__, schemes, keys),
        "x-api-key": keys,
        "x-goog-api-key": keys,
        "api-key": keys,
    },
)


@given(headers, st.fixed_dictionaries({}, optional={"key": keys}))
def test_first_known_key_identifies_the_client(given_headers, query):
    by_key = {key: name for name, key in KEYS.items()}
    expected = next((by_key[key] for key in keys_in_request(given_headers, query) if key in by_key), None)
    try:
        found = CLIENTS.identify(given_headers, query).name
    except UnknownKey:
        found = None
    assert found == expected
