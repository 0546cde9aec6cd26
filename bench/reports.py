"""Write the results of the benchmarks as text and tables: one function per section of RESULTS.md."""


def _table(headers: tuple[str, ...], rows: list[tuple[str, ...]]) -> str:
    lines = [f"| {' | '.join(headers)} |", f"|{'---|' * len(headers)}"]
    return "\n".join([*lines, *(f"| {' | '.join(row)} |" for row in rows)]) + "\n"


def _translate(result: dict) -> str:
    parts = [
        "## Translate one document (`bench/translate.py`)\n",
        "The second turn of the official clients' recorded conversations: two tools, two parallel calls, two results; and the",
        (
            "response with two calls. µs of CPU; in brackets the factor relative to toolwire. LiteLLM "
            f"{result['versions']['LiteLLM']}, llm-rosetta {result['versions']['llm-rosetta']}; – if a peer does not support the pair or raises."
        ),
        "LiteLLM converts by way of Chat, so between two other wires it takes two steps, as it does in its proxy.\n",
    ]
    for kind in ("request", "response"):
        rows = []
        ratios = {"LiteLLM": [], "llm-rosetta": []}
        for row in result["rows"]:
            if row["kind"] != kind:
                continue
            micros = row["micros"]
            cells = [
                f"{row['source']} → {row['target']}",
                f"{micros['toolwire']:.0f}",
                f"{micros['toolwire, bytes to bytes']:.0f}",
            ]
            for peer, found in ratios.items():
                if peer in micros:
                    found.append(micros[peer] / micros["toolwire"])
                cells.append(f"{micros[peer]:.0f} ({found[-1]:.1f}×)" if peer in micros else "–")
            rows.append(tuple(cells))
        parts.append(_table((kind, "toolwire", "bytes to bytes", "LiteLLM", "llm-rosetta"), rows))
        for peer, found in ratios.items():
            if found:
                parts.append(f"{peer}: {min(found):.1f}× to {max(found):.1f}× toolwire's CPU.\n")
    return "\n".join(parts)


def _stream(result: dict) -> str:
    rows = [
        (
            f"{row['source']} → {row['target']}",
            f"{row['burst']:,.0f}",
            f"{row['frame by frame']:,.0f}",
            f"{row['micros after 100']:.2f}",
            f"{row['micros after 50,000']:.2f}",
            f"{row['micros after 50,000'] / row['micros after 100']:.2f}",
        )
        for row in result["rows"]
    ]
    headers = (
        "stream",
        "deltas/s, burst",
        "deltas/s, frame by frame",
        "µs after 100",
        f"µs after {result['deltas']:,}",
        "ratio",
    )
    return f"## Translate a stream (`bench/stream.py`)\n\nArgument deltas of four characters, one core.\n\n{_table(headers, rows)}"


def _scanner(result: dict) -> str:
    names = [name for name in result["rows"][0] if name != "size"]
    rows = [(f"{row['size']:,}", *(f"{row[name]:,.2f}" for name in names)) for row in result["rows"]]
    return (
        "## Scan arguments while they arrive (`bench/scanner.py`)\n\n"
        "µs for one more fragment of four characters, by the number of fragments before it in one string argument.\n\n"
        + _table(("fragments before", *names), rows)
    )


def _start(result: dict) -> str:
    bare = result["rows"][0]["seconds"]
    rows = [(row["program"], f"{row['seconds'] * 1000:.0f}", f"{row['seconds'] / bare:.1f}×") for row in result["rows"]]
    return "## A fresh process (`bench/start.py`)\n\n" + _table(("program", "ms of CPU", "of a bare interpreter"), rows)


def _schemas(result: dict) -> str:
    times = ", ".join(
        f"{row['dialect']} {row['first'] * 1000:.0f} ms, again {row['again'] * 1000:.0f} ms" for row in result["speed"]
    )
    parts = [
        "## Fit a schema to a provider (`bench/schemas.py`)\n",
        "Twelve generated values for each schema and for its lowered form. Perfect: the provider accepts the schema, every value can be written",
        "and comes back equal, and no value comes back that the original forbids. Peers are measured with their own functions for this",
        "purpose; they neither lift arguments nor report losses.\n",
    ]
    for corpus in result["corpora"]:
        if corpus["count"]:
            parts += [f"{corpus['count']:,} schemas {corpus['about']}:\n", _preserved(corpus["rows"])]
    return "\n".join([*parts, f"Lowering {result['speed'][0]['schemas']:,} schemas of real servers: {times}.\n"])


def _preserved(measured: list[dict]) -> str:
    order = {"openai_strict": 0, "anthropic_strict": 1, "gemini": 2}
    rows = []
    for row in sorted(measured, key=lambda row: (order[row["dialect"]], -row.get("perfect", 0))):
        tested = row["tested"]
        shares = [
            f"{100 * row.get(what, 0) / tested:.1f}"
            for what in ("perfect", "crashed", "not conformant", "incomplete", "unsound")
        ]
        unreported = f"{100 * row.get('unreported', 0) / tested:.1f}" if row["name"] == "toolwire" else "no report"
        rows.append((row["dialect"], row["name"], *shares, unreported))
    headers = ("dialect", "by", "perfect %", "crashed", "not conformant", "incomplete", "unsound", "unreported")
    return _table(headers, rows)


def _repair(result: dict) -> str:
    names = list(result["counts"])
    kinds = ("ok", "partial", "error", "wrong")
    rows = []
    for name in names:
        found = [str(result["counts"][name].get(kind, 0)) for kind in kinds]
        rows.append((name, *found, *(f"{micros[name]:,.0f}" for micros in result["micros"].values())))
    headers = (
        "by",
        "ok",
        "partial",
        "error",
        "silently wrong",
        *(f"µs {kind}" for kind in result["micros"]),
    )
    unlike = [row for row in result["table"] if any(row[name] != "ok" for name in names)]
    return "\n".join(
        [
            "## Repair arguments (`bench/repair.py`)\n",
            f"{len(result['table'])} kinds of invalid arguments, each with its schema; texts and expected values are ours (`tests/vectors/repair`). ok:",
            "the right value, or a refusal if there is none: the text is truncated or ambiguous. Partial: a value in spite of that, but a",
            "defensible one (the complete part of the text, the first of two objects, the last of two",
            f"equal keys); suitable for display, not for execution. Times for {result['bytes']:,} bytes, a list of 45 objects; those of toolwire and",
            "of candidates with a schema include validation.\n",
            _table(headers, rows),
            f"The {len(unlike)} kinds for which not all candidates are right:\n",
            _table(("kind", *names), [(f"`{row['kind']}`", *(row[name] for name in names)) for row in unlike]),
        ]
    )


def _idempotency(result: dict) -> str:
    rows = []
    for row in result["rows"]:
        ours, bare = row["toolwire"], row["bare"]
        cells = [f"{ours[kind]:.0f} / {bare[kind]:.0f} ({ours[kind] / bare[kind]:.2f}×)" for kind in ("cpu", "wall")]
        rows.append((row["store"], row["what"], *cells))
    return "\n".join(
        [
            "## At most once (`bench/idempotency.py`)\n",
            "A call's claim and completion, and the replay of a recorded result, compared with the bare statements on the same table and server:",
            "an insert and an update, one select; for Redis `SET NX`, `SET XX` and `GET`. toolwire / bare in µs, and the factor. CPU is",
            "that of the client; wall time includes the servers and the shared disk.\n",
            _table(("store", "", "CPU", "wall"), rows),
        ]
    )


def _runs(result: dict) -> str:
    rows = [
        (row["store"], str(row["turns"]), f"{row['cpu_ms']:.2f} ms", f"{row['bytes']:,.0f}") for row in result["rows"]
    ]
    return "\n".join(
        [
            "## Stored runs (`bench/runs.py`)\n",
            "Runs of 200, 400 and 800 turns, each with a result of 50 kB. CPU of the process per turn, with the threads of the store and without its",
            "server; bytes of the appended rows. Before runs were logs of events, 200 turns wrote 19.5 MB per turn and took 79 ms of CPU per turn.",
            "The growth is Python's garbage collector, which walks the conversation: without it, CPU per turn is flat.\n",
            _table(("store", "turns", "CPU per turn", "bytes written per turn"), rows),
        ]
    )


def _text(result: dict) -> str:
    rows = [
        (
            f"`{row['format']}`",
            row["by"],
            *(f"{micros:,.1f}" for micros in row["micros"]),
            f"{row['micros'][-1] / row['micros'][0]:,.2f}",
            row["streams"],
        )
        for row in result["rows"]
    ]
    headers = ("format", "by", *(f"µs after {size:,}" for size in result["sizes"]), "ratio", "yields the argument")
    names = result["names"]
    columns = (*names, *result["limits"])
    whole = [(f"`{row['format']}`", *(_speed(row.get(name)) for name in columns)) for row in result["whole"]]
    others = [
        (f"`{row['format']}`", row["turn"], _speed(row[names[0]]), _speed(row[names[2]])) for row in result["others"]
    ]
    code = ", ".join(f"{row['format']} {row['code']:.1f}" for row in result["rows"] if "code" in row)
    return "\n".join(
        [
            "## Read calls in text (`bench/text.py`)\n",
            "µs for one more token of four characters, by the number of tokens before it in one string argument; the tools are given, with",
            "their schemas. sglang: its detectors, unchanged from the wheel. transformers: its response parser, with our own response",
            "template for each format; it returns the raw text of a call while it arrives, and the arguments when the call is closed.\n",
            _table(headers, rows),
            f"toolwire, {result['characters']:,} characters of source code instead of plain text, µs per token over the whole turn: {code}.\n",
            f"A whole turn at once, with an argument of {result['characters']:,} characters of source code: million characters per second.",
            "jiter and msgspec: the JSON parser alone, on the arguments of the same turn.\n",
            _table(("format", *columns), whole),
            "Other whole turns:\n",
            _table(("format", "turn", names[0], names[2]), others),
            _detectors(result),
        ]
    )


def _speed(found: float | str | None) -> str:
    if found is None or isinstance(found, str):
        return found or "–"
    return f"{found:.0f}" if found >= 10 else f"{found:.1f}"


def _detectors(result: dict) -> str:
    imports = dict(result["imports"])
    missing = [f"not {', '.join(f'`{name}`' for name in names)} ({why})" for why, names in imports.items() if why]
    return (
        f"sglang is installed without its dependencies. {len(imports[''])} detector modules can be imported, with empty replacements for\n"
        f"{', '.join(result['stand_ins'])} and for the package's own `__init__`; {'; '.join(missing) or 'all there are'}.\n"
        "It has no detector for `function_xml`.\n"
    )


def _dispatch(result: dict) -> str:
    limit = min(result["micros"], key=result["micros"].get)
    one = [
        (name, f"{micros:.1f}", f"{micros / result['micros'][limit]:.1f}×") for name, micros in result["micros"].items()
    ]
    gather = result["thousand"]["bare gather of the function"]
    many = [
        (name, f"{took:.0f}", f"{took / result['thousand'][limit]:.1f}×", f"{took / gather:.1f}×")
        for name, took in result["thousand"].items()
    ]
    return "\n".join(
        [
            "## Dispatch a call (`bench/dispatch.py`)\n",
            "From the arguments as text to the result as text, of a function that adds two numbers. The work differs: toolwire finds the tool,",
            "repairs and validates the arguments, checks the policy, enforces a timeout and caps the output; openai-agents is measured without its",
            "runner, pydantic-ai with its tool manager, without instrumentation.\n",
            _table(("by", "µs of CPU", "of the limit"), one),
            "A thousand calls at once that sleep 10 ms each:\n",
            _table(("by", "ms of CPU", "of the limit", "of the bare gather"), many),
            *(f"Could not be measured: {name} ({why})\n" for name, why in result["missing"].items()),
        ]
    )


def _local(result: dict) -> str:
    columns = ("finished", "valid", "right function", "right arguments")
    calls = [
        (mode, *(f"{row[one]} of {row['asked']}" for one in columns), f"{row['tokens'] / row['asked']:.0f}")
        for mode, row in result["forced"].items()
    ]
    choices = [
        (title, *(" of ".join(map(str, result[f"choosing_{part}"][kind])) for kind in ("wanted", "not wanted")))
        for part, title in (("first", "used to find the threshold"), ("second", "not used for it"))
    ]
    obvious = [
        (title, *(" of ".join(map(str, result[f"obvious_{part}"][kind])) for kind in ("wanted", "not wanted")))
        for part, title in (("first", "used to find the rule"), ("second", "not used for it"))
    ]
    stop = result["stopping"]
    saved = 1 - stop["stopped"] / stop["to the end"]
    return "\n".join(
        [
            "## The local model (`bench/local.py`)\n",
            (
                f"SmolLM2-135M, one thread: {result['speed']['read']:.0f} tokens per second read, "
                f"{result['speed']['written']:.0f} written; wall time on a shared machine."
            ),
            f"In the two seconds after its reader left the loop, the process used {result['leaving'] * 1000:.0f} ms of CPU.\n",
            "A call is required, at most 128 tokens, temperature 0. `grammar` is the normal mode of the model; `response_format` is",
            "llama.cpp's own option with the prompt of `generic_json`; `free` is that prompt alone. The wording of the prompt for",
            "`grammar` was chosen on half of these prompts; the figures are for all of them.\n",
            _table(("", *columns, "tokens"), calls),
            "No call is required: how often the model makes one\n",
            _table(("prompts", "that need a call", "that need none"), choices),
            "The same with one tool, for prompts that obviously ask for it and for prompts of a plain chat (`bench/local_obvious.py`)\n",
            _table(("prompts", "that ask for the tool", "of a plain chat"), obvious),
            (
                f"Stopping at `</function`: {stop['answers']} answers, with a given beginning in the format `function_xml`, take "
                f"{stop['to the end']} tokens to the model's own end\n(or 256) and {stop['stopped']} to the mark, "
                f"which {stop['reached the mark']} of them reach: {saved:.0%} fewer (counted in one run, not by aborting).\n"
            ),
        ]
    )


def _mcp_server(result: dict) -> str:
    rows = []
    for way, found in result["over"].items():
        peers = {name: (speed, cost) for name, speed, cost in found}
        for name, (speed, cost) in peers.items():
            times = speed / peers["mcp SDK"][0]
            rows.append(
                (way, name, f"{speed:.0f}", f"{times:.1f}×", f"{cost:.0f}", f"{cost / peers['mcp SDK'][1]:.2f}×")
            )
    limit = result["in process"][0][1]
    inside = [(name, f"{micros:.0f}", f"{micros / limit:.1f}×") for name, micros in result["in process"]]
    return "\n".join(
        [
            "## Serve a call over MCP (`bench/mcp_server.py`)\n",
            "A tool that adds two numbers, each server in its own process on the same uvicorn (httptools, uvloop), one client for all, one",
            f"connection, one call after the other: the best of {result['rounds']} rounds of {result['calls']} calls, and the server's CPU (the median).\n",
            _table(("way", "server", "calls/s", "of the SDK's", "µs of CPU per call", "of the SDK's"), rows),
            "In process, from the bytes of a message to the bytes of its response. The peers are called with decoded arguments, and",
            "encode no message.\n",
            _table(("by", "µs of CPU", "of the limit"), inside),
        ]
    )


def _durable(result: dict) -> str:
    chaos = [
        (
            row["store"],
            *(str(row[name]) for name in ("kills", "database restarts", "seconds", "runs", "done", "writes")),
            *(str(row[name]) for name in ("writes twice", "unknown writes", "lost runs")),
        )
        for row in result["chaos"]
    ]
    taken = [
        (
            row["store"],
            f"{row['lease']:g} s",
            f"{row['heartbeat']:g} s",
            ", ".join(f"{each:g} s" for each in row["seconds"]),
        )
        for row in result["take_over"]
    ]
    turns = [
        (
            row["store"],
            row["agent"],
            f"{row['CPU ms per turn']:.2f} ms",
            str(row["turns per second"]),
            f"{row['ms per turn of one run']} ms",
        )
        for row in result["turns"]
    ]
    headers = (
        "store",
        "kills",
        "restarts of the database",
        "seconds",
        "runs",
        "done",
        "writes",
        "twice",
        "unknown",
        "lost",
    )
    return "\n".join(
        [
            "## Durable runs (`bench/durable.py`)\n",
            "Three workers execute 200 runs with writes, approvals and subagents, and one of them is killed every second.\n",
            _table(headers, chaos),
            "The time until another worker continues the run of a killed one. 60 and 15 seconds are the defaults.\n",
            _table(("store", "lease of a run", "heartbeat", "measured"), taken),
            "Four turns for each run, 16 runs at a time, with a model that takes no time: a bare agent, one with a store, and durable runs of",
            "one worker, with the process that enqueues and asks for them. One run: the median of 20, one after the other, from `enqueue` to the",
            "end of `wait`; a worker looks at a queue every half second.\n",
            _table(("store", "agent", "CPU per turn", "turns per second", "time per turn of one run"), turns),
        ]
    )


def _executors(result: dict) -> str:
    return "\n".join(
        [
            "## Batch work (`bench/executors.py`)\n",
            "`map_items` beside a plain loop over the same work: CPU time of the process, medians of 15 interleaved rounds. `tools eval` searches 20,000",
            "generated tools by words, 256 times: the smallest work that the executors are used for.\n",
            _table(("measured", "value"), [(name, f"{value:g}") for name, value in result.items()]),
        ]
    )


REPORTS = {
    "translate": _translate,
    "stream": _stream,
    "scanner": _scanner,
    "start": _start,
    "schemas": _schemas,
    "repair": _repair,
    "text": _text,
    "dispatch": _dispatch,
    "idempotency": _idempotency,
    "runs": _runs,
    "durable": _durable,
    "executors": _executors,
    "local": _local,
    "mcp_server": _mcp_server,
}
