"""Reservations of memory: one for a whole request has the result of several, also if it fails."""

from hypothesis import given
from hypothesis import strategies as st

from toolwire.gateway.memory import MemoryBound, MemoryExhausted, MemoryReservation, admit_small_document

DATA = b'{"model": "m", "messages": []}'


def outcome_of(reserve, limit, used, used_by_client, client):
    """The numbers after a reservation, or its error."""
    bound = MemoryBound(limit)
    bound.used, bound.used_by = used, {client: used_by_client}
    memory = MemoryReservation(bound)
    memory.client = client
    try:
        reserve(memory)
    except MemoryExhausted as error:
        result = error.message
    else:
        result = bound.used, dict(bound.used_by)
    memory.release()
    assert (bound.used, bound.used_by.get(client, 0)) == (used, used_by_client)
    return result


@given(
    limit=st.integers(1, 1000), others=st.integers(0, 400), own=st.integers(0, 400), client=st.sampled_from(["", "ann"])
)
def test_one_reservation_for_a_request_has_the_result_of_two(limit, others, own, client):
    def reserve_twice(memory):
        memory.add(len(DATA))
        admit_small_document(DATA, memory)

    def reserve_once(memory):
        admit_small_document(DATA, memory, received=len(DATA))

    state = (limit, others + own, own, client)
    assert outcome_of(reserve_once, *state) == outcome_of(reserve_twice, *state)
