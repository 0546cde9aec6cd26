"""Statistics of a stream do not depend on when its deltas are counted, and equal those of its events."""

from itertools import chain, repeat

from hypothesis import given
from hypothesis import strategies as st

from canonical import any_responses
from toolwire.gateway.observe.answer_stats import AnswerStats
from toolwire.ir import CallDelta, CallStart, ReasoningDelta, ResponseStart, TextDelta, fold
from toolwire.ir.folding import unfold_end, unfold_part
from toolwire.testing import same

DELTAS = (TextDelta, ReasoningDelta, CallDelta)


def small_deltas(events):
    """Split the escaped text of deltas, between any two bytes."""
    for event in events:
        if isinstance(event, DELTAS):
            section = () if event.section is None else (event.section,)
            for at in range(0, len(event.escaped), 4):
                yield type(event)(event.key, event.escaped[at : at + 4], *section)
        else:
            yield event


def interleaved_events(response, picks):
    """Return the events of the first choice; `picks` selects the item of the next event."""
    items = [list(small_deltas(unfold_part(key, 0, part))) for key, part in enumerate(response.parts)]
    starts = [item.pop(0) for item in items]  # parts are in the order of their starts
    yield ResponseStart(response.id, response.model)
    yield from starts
    for pick in chain(picks, repeat(0)):
        items = [item for item in items if item]
        if not items:
            break
        yield items[pick % len(items)].pop(0)
    yield unfold_end(response)


def figures(stats):
    return (stats.content_bytes, stats.open_call_bytes, stats.ended_calls, tuple(stats.calls), stats.stop, stats.turn)


@given(any_responses, st.lists(st.integers(0, 3), max_size=40))
def test_deltas_may_be_counted_together(response, picks):
    events = list(interleaved_events(response, picks))
    single, together = AnswerStats(), AnswerStats()
    for event in events:
        single.add_event(event)
        if isinstance(event, DELTAS):
            assert single.new_deltas and figures(single)  # they are counted when they are read
            assert not single.new_deltas
            together.new_deltas.append(event)
        else:
            together.add_event(event)
            assert same(figures(together), figures(single))
    assert single.content_bytes == sum(len(event.escaped) for event in events if isinstance(event, DELTAS))
    assert single.open_call_bytes == 0
    assert single.calls == [event.name for event in events if isinstance(event, CallStart)]
    assert same(single.turn.parts, fold(events).parts)
