"""Count the steps of a backtracking matcher on texts that are derived from the pattern itself.

`re` is a backtracking matcher, so a pattern can cost much more than the length of the text. Tools such as regexploit look
for ambiguous repeats inside the pattern only. They miss the most frequent case: `search` begins at each of n positions,
and each beginning reads on to the end of the text before it fails, as `x.*y` does on "xxxx".

The matcher here executes the tree of `re._parser` and counts every node and every character that it reads. It is as
naive as the C code in the cases that matter: the order of the alternatives, possessive repeats and atomic groups, and the
check against repeats of nothing. It has none of the shortcuts (literal prefixes, character sets of the first position),
which divide the cost by a constant.

Attacks are `prefix + pump * n + suffix`. A pump is an example of a repeat's body, of the pattern up to the repeat, or a
pair of characters that the pattern distinguishes. A suffix may satisfy a lookahead, which then reads to the end each time.
The growth from n to 2n to 4n tells linear cost from the rest. Bounded repeats have a bounded cost for each character,
which must not be astronomical, as for `(a{0,30}){0,30}b`.
"""

import re
import re._constants as op
import re._parser as parser
from collections.abc import Callable, Iterator
from functools import cache
from itertools import product
from typing import NamedTuple

UNBOUNDED = 5_000  # repeats with this maximum, or a larger one; a smaller one costs a constant factor
MANY = 100  # the same for repeats inside repeats, which multiply
LONG = 10  # bounded repeats that are pumped; fewer iterations of two alternatives are at most 1,024 ways
SMALL, MIDDLE, LARGE = 16, 48, 160  # the first n of three sizes; a large one shows repeats with a maximum as linear
SUSPICIOUS = 2.05  # growth of the steps from n to 2n that is worth a closer look; at most 2 for linear cost
DOUBTFUL = 2.2  # the same for the growth of the increase
SUPER_LINEAR = 3.0  # growth of the increase for large n: 2 for linear cost, 4 for quadratic cost
MAX_STEPS = 2_000_000  # more than any linear pattern needs at the largest n; for short texts UNBOUNDED per character
MAX_PAIRED = 6  # characters that are combined to pairs: 30 pumps
COMMON = "aZ0_-. \n\t,:;/\\\"'`<>[](){}|=+*#@é\u200b\x00～"
FAILING = "\x01\u2603\x07"  # characters that few patterns accept
REPEATS = (op.MAX_REPEAT, op.MIN_REPEAT, op.POSSESSIVE_REPEAT)

Matcher = Callable[[int], int]
"""Match from a position on. Return the end of the match, or -1."""


class TooManySteps(Exception):
    """The matcher used more steps than any linear pattern needs for the text."""


class Attack(NamedTuple):
    prefix: str
    pump: str
    suffix: str

    def text(self, n):
        return self.prefix + self.pump * n + self.suffix


def parse(pattern, flags=0):
    """Parse a pattern; bytes are read as characters below 256, with the classes of ASCII."""
    if isinstance(pattern, bytes):
        return parser.parse(pattern.decode("latin-1"), (flags & ~re.UNICODE) | re.ASCII)
    return parser.parse(pattern, flags)


_CATEGORIES = {
    op.CATEGORY_DIGIT: r"\d",
    op.CATEGORY_NOT_DIGIT: r"\D",
    op.CATEGORY_SPACE: r"\s",
    op.CATEGORY_NOT_SPACE: r"\S",
    op.CATEGORY_WORD: r"\w",
    op.CATEGORY_NOT_WORD: r"\W",
}


@cache
def _in_category(category, char, flags):
    return re.match(_CATEGORIES[category], char, flags) is not None


def _in_item(item, char, flags):
    kind, value = item
    if kind is op.LITERAL:
        return ord(char) == value
    if kind is op.RANGE:
        return value[0] <= ord(char) <= value[1]
    return _in_category(value, char, flags & re.ASCII)


def character_test(node, flags):
    """Return a test of one character, or None if the node does not match exactly one."""
    kind, value = node
    if kind is op.ANY:
        return (lambda char: True) if flags & re.DOTALL else (lambda char: char != "\n")
    if kind is op.LITERAL or kind is op.NOT_LITERAL:
        items, is_negated = [(op.LITERAL, value)], kind is op.NOT_LITERAL
    elif kind is op.IN:
        is_negated = value[0][0] is op.NEGATE
        items = value[1:] if is_negated else value
    else:
        return None

    class Known(dict[str, bool]):
        def __missing__(self, char):
            spellings = {char, char.lower(), char.upper()} if flags & re.IGNORECASE else {char}
            found = any(
                _in_item(item, spelling, flags) for item in items for spelling in spellings if len(spelling) == 1
            )
            self[char] = found is not is_negated
            return self[char]

    return Known().__getitem__


class StepCounter:
    """A matcher for one parsed pattern. `count` returns the steps for a text."""

    def __init__(self, parsed, flags):
        self._text = ""
        self._steps = 0
        self._max_steps = MAX_STEPS
        self._groups = {}
        self._root = self._sequence(list(parsed), flags | parsed.state.flags, lambda position: position)
        self._whole = self._sequence(
            list(parsed), flags | parsed.state.flags, lambda position: position if position == len(self._text) else -1
        )

    def count(self, text, method):
        """Return the steps of `match`, `fullmatch` or `search`, or of all matches in the text."""
        self._text, self._steps, self._groups = text, 0, {}
        self._max_steps = min(MAX_STEPS, UNBOUNDED * len(text))
        if method in ("match", "fullmatch"):
            (self._whole if method == "fullmatch" else self._root)(0)
            return self._steps
        start = 0
        while start <= len(text):
            end = self._root(start)
            if end >= 0 and method == "search":
                break
            start = end if end > start else start + 1
        return self._steps

    def find(self, text):
        """Return the end of a match at the beginning, or -1; to compare the matcher with `re`."""
        self._text, self._steps, self._max_steps, self._groups = text, 0, MAX_STEPS, {}
        return self._root(0)

    def _step(self, steps=1):
        self._steps += steps
        if self._steps > self._max_steps:
            raise TooManySteps

    def _sequence(self, nodes, flags, following):
        for node in reversed(nodes):
            following = self._node(node, flags, following)
        return following

    def _node(self, node, flags, following) -> Matcher:
        kind, value = node
        test = character_test(node, flags)
        if test is not None:
            return self._character(test, following)
        if kind in REPEATS:
            return self._repeat(kind, value, flags, following)
        if kind is op.SUBPATTERN:
            group, added, removed, inner = value
            return self._group(group, list(inner), (flags | added) & ~removed, following)
        if kind is op.ATOMIC_GROUP:
            return self._atomic(self._sequence(list(value), flags, lambda position: position), following)
        if kind is op.BRANCH:
            branches = [(list(nodes), self._sequence(list(nodes), flags, following)) for nodes in value[1]]
            return self._branch([(nodes and character_test(nodes[0], flags), match) for nodes, match in branches])
        if kind in (op.ASSERT, op.ASSERT_NOT):
            return self._look(kind is op.ASSERT, value, flags, following)
        if kind is op.AT:
            return self._at(value, flags, following)
        if kind is op.GROUPREF:
            return self._reference(value, following)
        if kind is op.GROUPREF_EXISTS:
            group, yes, no = value
            given, missing = (self._sequence(list(part or []), flags, following) for part in (yes, no))
            return lambda position: (given if group in self._groups else missing)(position)
        if kind is op.FAILURE:
            return lambda position: -1
        raise NotImplementedError(f"the node {kind}")

    def _character(self, test, following):
        def match(position):
            self._steps += 1  # without the check of `_step`, which every repeat and every branch makes
            if position < len(self._text) and test(self._text[position]):
                return following(position + 1)
            return -1

        return match

    def _atomic(self, inner, following):
        def match(position):
            self._step()
            end = inner(position)
            return -1 if end < 0 else following(end)

        return match

    def _branch(self, branches):
        """`branches` are pairs: the test of the first character, if the branch begins with one, and its matcher.

        Most branches fail at their first character, in two steps. They are counted without being tried.
        """
        known = {}

        def plan(char):
            steps, tried = 0, []
            for test, branch in branches:
                if test and not (char and test(char)):
                    steps += 2
                else:
                    tried.append((steps + 1, branch))
                    steps = 0
            return tried, steps

        def match(position):
            char = self._text[position : position + 1]
            tried, rest = known.get(char) or known.setdefault(char, plan(char))
            for steps, branch in tried:
                self._step(steps)
                end = branch(position)
                if end >= 0:
                    return end
            self._step(rest)
            return -1

        return match

    def _group(self, group, nodes, flags, following):
        if group is None:
            return self._sequence(nodes, flags, following)
        starts = []

        def close(position):
            start, previous = starts.pop(), self._groups.get(group)
            self._groups[group] = self._text[start:position]
            end = following(position)
            if end < 0:
                starts.append(start)
                if previous is None:
                    self._groups.pop(group, None)
                else:
                    self._groups[group] = previous
            return end

        inner = self._sequence(nodes, flags, close)

        def match(position):
            starts.append(position)
            depth = len(starts)
            end = inner(position)
            del starts[depth - 1 :]
            return end

        return match

    def _repeat(self, kind, value, flags, following):
        low, high, inner = value
        nodes = list(inner)
        test = character_test(nodes[0], flags) if len(nodes) == 1 else None
        if kind is op.POSSESSIVE_REPEAT:
            return self._possessive(self._sequence(nodes, flags, lambda position: position), low, high, following)
        if test is not None:
            return self._character_repeat(test, low, high, kind is op.MAX_REPEAT, following)
        return self._group_repeat(nodes, flags, (low, high, kind is op.MAX_REPEAT), following)

    def _possessive(self, body, low, high, following):
        def match(position):
            count = 0
            while count < high:
                self._step()
                end = body(position)
                if end < 0 or (end == position and count >= low):
                    break
                position, count = end, count + 1
            return following(position) if count >= low else -1

        return match

    def _character_repeat(self, test, low, high, greedy, following):
        def match(position):
            last = position
            if not greedy:
                return match_lazily(position)
            text, length = self._text, len(self._text)
            limit = min(length, position + high)
            while last < limit and test(text[last]):
                last += 1
            self._step(last - position + (last - position < high))
            for end in range(last, position + low - 1, -1):
                self._step()
                result = following(end)
                if result >= 0:
                    return result
            return -1

        def match_lazily(position):
            last, text, length = position, self._text, len(self._text)
            while True:
                self._step()
                result = following(last) if last - position >= low else -1
                if result >= 0 or last - position >= high:
                    return result
                if last == length or not test(text[last]):
                    return -1
                last += 1

        return match

    def _group_repeat(self, nodes, flags, bounds, following):
        low, high, greedy = bounds
        state = [0, -1]  # iterations so far, and the beginning of the last

        def again(position):
            count, start = state
            if count >= high or (position == start and count >= low):
                return -1
            state[:] = count + 1, position
            end = body(position)
            if end < 0:
                state[:] = count, start
            return end

        def leave(position):
            return following(position) if state[0] >= low else -1

        def loop(position):
            self._step()
            count, start = state
            for choice in (again, leave) if greedy else (leave, again):
                end = choice(position)
                if end >= 0:
                    return end
                state[:] = count, start
            return -1

        body = self._sequence(nodes, flags, loop)

        def match(position):
            outer = tuple(state)
            state[:] = 0, -1
            end = loop(position)
            state[:] = outer
            return end

        return match

    def _look(self, is_wanted, value, flags, following):
        direction, inner = value
        width = inner.getwidth()[0] if direction < 0 else 0
        body = self._sequence(list(inner), flags, lambda position: position)

        def match(position):
            self._step()
            found = position >= width and body(position - width) >= 0
            return following(position) if found is is_wanted else -1

        return match

    def _at(self, place, flags, following):
        # operations on flags of `re` cost more than all others, so they are done once
        is_ascii, is_multiline = flags & re.ASCII, bool(flags & re.MULTILINE)

        def is_word(position):
            return 0 <= position < len(self._text) and _in_category(op.CATEGORY_WORD, self._text[position], is_ascii)

        def holds(position):
            text, length = self._text, len(self._text)
            if place in (op.AT_BOUNDARY, op.AT_NON_BOUNDARY):
                return (is_word(position - 1) is not is_word(position)) is (place is op.AT_BOUNDARY)
            if place in (op.AT_BEGINNING, op.AT_BEGINNING_STRING):
                is_line = place is op.AT_BEGINNING and is_multiline
                return position == 0 or (is_line and text[position - 1] == "\n")
            if place is op.AT_END_STRING:
                return position == length
            return position == length or ((position == length - 1 or is_multiline) and text[position] == "\n")

        def match(position):
            self._step()
            return following(position) if holds(position) else -1

        return match

    def _reference(self, group, following):
        def match(position):
            self._step()
            value = self._groups.get(group)
            if value is None:
                return -1
            for offset, char in enumerate(value, position):
                self._step()
                if self._text[offset : offset + 1] != char:
                    return -1
            return following(position + len(value))

        return match


def _parts(value) -> Iterator[parser.SubPattern]:
    """Yield the sub-patterns in a node's argument."""
    if isinstance(value, parser.SubPattern):
        yield value
    elif isinstance(value, (tuple, list)):
        for item in value:
            yield from _parts(item)


def nodes_of(parsed, flags=0):
    """Yield every node of a pattern, with its flags."""
    for node in parsed:
        kind, value = node
        yield node, flags
        inner = (flags | value[1]) & ~value[2] if kind is op.SUBPATTERN else flags
        if kind is not op.IN:
            for part in _parts(value):
                yield from nodes_of(part, inner)


def _maxima(parsed):
    return [node[1][1] for node, _ in nodes_of(parsed) if node[0] in REPEATS]


class Attacks:
    """Texts that may be expensive for one pattern."""

    def __init__(self, parsed, flags, is_bytes, is_pumped):
        self._is_pumped = is_pumped  # by the maximum of a repeat
        self._flags = flags | parsed.state.flags
        self._largest = "\xff" if is_bytes else "\U0010ffff"
        self._tests = [test for node, own in nodes_of(parsed, self._flags) if (test := character_test(node, own))]
        self._places = {value for (kind, value), _ in nodes_of(parsed) if kind is op.AT}
        self._characters = self._distinct_characters(parsed)
        ahead = [value[1] for (kind, value), _ in nodes_of(parsed) if kind is op.ASSERT and value[0] > 0]
        self._satisfying = [self._example(list(inner), self._flags) for inner in ahead]
        self._found = list(self._walk(list(parsed), self._flags, ""))

    def _distinct_characters(self, parsed):
        """Return a character for each set of tests that it passes. Anchors and boundaries distinguish characters, too."""
        tests = list(self._tests)
        if self._places - {op.AT_BEGINNING_STRING, op.AT_END_STRING}:
            is_ascii = self._flags & re.ASCII
            tests += [lambda char: char == "\n", lambda char: _in_category(op.CATEGORY_WORD, char, is_ascii)]
        candidates = list(COMMON)
        for node, _ in nodes_of(parsed):
            for item in node[1] if node[0] is op.IN else [node]:
                if item[0] in (op.LITERAL, op.NOT_LITERAL):
                    candidates.append(chr(item[1]))
                elif item[0] is op.RANGE:
                    candidates += map(chr, item[1])
        distinct = {}
        for char in candidates:
            if char <= self._largest and not 0xD800 <= ord(char) <= 0xDFFF:
                distinct.setdefault(tuple(test(char) for test in tests), char)
        return list(distinct.values())

    def _example(self, nodes, flags, repeats=0, choice=0):
        """Return a text for a sequence; each repeat has its minimum, or `repeats` items if that is more."""
        text = ""
        for node in nodes:
            kind, value = node
            test = character_test(node, flags)
            if test is not None:
                fitting = [char for char in self._characters if test(char)] or [
                    chr(value) if kind is op.LITERAL else ""
                ]
                text += fitting[choice % len(fitting)]
            elif kind in REPEATS:
                times = min(max(value[0], repeats), value[1])
                text += self._example(list(value[2]), flags, repeats, choice) * times
            elif kind is op.SUBPATTERN:
                text += self._example(list(value[3]), (flags | value[1]) & ~value[2], repeats, choice)
            elif kind is op.ATOMIC_GROUP:
                text += self._example(list(value), flags, repeats, choice)
            elif kind is op.BRANCH:
                text += self._example(list(value[1][choice % len(value[1])]), flags, repeats, choice)
        return text

    def _walk(self, nodes, flags, prefix):
        """Yield each pumped repeat as the text before it, and examples of its body."""
        for index, node in enumerate(nodes):
            kind, value = node
            if kind in REPEATS:
                body = list(value[2])
                if self._is_pumped(value[1]):
                    examples = {
                        self._example(body, flags, repeats, choice) for repeats in (0, 1) for choice in range(4)
                    }
                    following = self._example(nodes[index + 1 :], flags)
                    yield prefix, examples - {""}, following
                yield from self._walk(body, flags, prefix)
            elif kind is op.SUBPATTERN:
                yield from self._walk(list(value[3]), (flags | value[1]) & ~value[2], prefix)
            elif kind is op.BRANCH:
                for branch in value[1]:
                    yield from self._walk(list(branch), flags, prefix)
            elif kind in (op.ASSERT, op.ASSERT_NOT):
                yield from self._walk(list(value[1]), flags, prefix)
            elif kind is op.ATOMIC_GROUP:
                yield from self._walk(list(value), flags, prefix)
            prefix += self._example([node], flags)

    def __iter__(self):
        failing = next((char for char in FAILING if not any(test(char) for test in self._tests)), FAILING[0])
        failing = failing if failing <= self._largest else FAILING[0]
        prefixes = dict.fromkeys(["", failing, *(prefix for prefix, _, _ in self._found)])
        bodies = dict.fromkeys(example for _, examples, _ in self._found for example in sorted(examples))
        starts = dict.fromkeys(
            text
            for prefix, examples, following in self._found
            for example in ["", *sorted(examples)]
            for text in (
                *(prefix + example, prefix + example + following[:-1]),
                *(example + following[:-1], example + following),
            )
            if text
        )
        paired = sorted(self._characters, key=lambda char: not any(char in body for body in bodies))[:MAX_PAIRED]
        pairs = ["".join(pair) for pair in product(paired, repeat=2) if pair[0] != pair[1]]
        mixed = [first + second for first, second in product(list(bodies)[:6], repeat=2) if first != second]
        apart = [start + " " for start in starts] if self._places & {op.AT_BOUNDARY, op.AT_NON_BOUNDARY} else []
        pumps = dict.fromkeys([*self._characters, *bodies, *starts, *mixed, *pairs, *apart])
        suffixes = dict.fromkeys(["", failing, *self._satisfying])
        return (Attack(*parts) for parts in product(prefixes, pumps, suffixes))


def _growth(counter, attack, method, n):
    """Return how much the increase of the steps grows when the text doubles."""
    first, second, third = (counter.count(attack.text(size), method) for size in (n, 2 * n, 4 * n))
    return (third - second) / max(second - first, 1)


def _is_unbounded(maximum):
    return maximum >= UNBOUNDED


def _is_long(maximum):
    return LONG <= maximum < UNBOUNDED


def _grows(counter, attack, method):
    """Return whether the cost is super-linear."""
    return (
        counter.count(attack.text(2 * SMALL), method) >= SUSPICIOUS * counter.count(attack.text(SMALL), method)
        and _growth(counter, attack, method, MIDDLE) >= DOUBTFUL
        and _growth(counter, attack, method, LARGE) >= SUPER_LINEAR
    )


def _costs_much(counter, attack, method):
    text = attack.text(MIDDLE)
    return counter.count(text, method) > UNBOUNDED * len(text)


def find_expensive(pattern, flags, method, guard=None):
    """Return an attack on which a pattern has super-linear cost, or None.

    `guard` matches every text on which the pattern is used.
    """
    parsed = parse(pattern, flags)
    maxima = _maxima(parsed)
    flags = parsed.state.flags
    counter = StepCounter(parsed, flags)
    is_possible = re.compile(guard.decode("latin-1") if isinstance(guard, bytes) else guard or "(?s).*").fullmatch
    for is_pumped, is_expensive in ((_is_unbounded, _grows), (_is_long, _costs_much)):
        if not any(map(is_pumped, maxima)):
            continue
        for attack in Attacks(parsed, flags, isinstance(pattern, bytes), is_pumped):
            if is_possible(attack.text(SMALL)) is None:
                continue
            try:
                if is_expensive(counter, attack, method):
                    return attack
            except TooManySteps:
                return attack
    return None


def nests_backtracking(parsed, inside=False):
    """Return whether a repetition that may backtrack is inside another one: without that, no pattern is exponential."""
    for kind, value in parsed:
        if kind in (op.MAX_REPEAT, op.MIN_REPEAT):
            if value[1] >= MANY and inside:
                return True
            inner, is_inside = [value[2]], inside or value[1] >= MANY
        else:
            inner, is_inside = list(_parts(value)), inside and kind in (op.SUBPATTERN, op.BRANCH)
        if any(nests_backtracking(part, is_inside) for part in inner):
            return True
    return False
