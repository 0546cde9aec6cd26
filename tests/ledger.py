"""What must hold, numbered, and which test holds it.

CASES are the tricky cases of the wires (the numbers are those of the fact sheet that the product was built from), BAD_INPUTS
the inputs that must end in a typed error, PAINS what users have reported of others, AMBIGUITIES what a grammar of raw text
must decide, PARSER_BUGS what went wrong in parsers of text in the field, FAILURES what can happen between a claim and its
completion, on every store. A test names its number by a marker:

    @pytest.mark.case("57")
    def test_...

tests/unit/test_ledger.py fails if a number has no test, if a test names a number that is not here, or if a deferred number
has one.
"""

from typing import NamedTuple


class Entry(NamedTuple):
    behaviour: str
    deferred: str = ""
    later: str = ""
    """What of it does not hold yet, and why; the rest has its test."""


_OTHER_WIRE = "a wire that is not there yet"
_GATEWAY = "belongs to the gateway, which has the sockets"

CASES = {
    "1": Entry("a tool without parameters gets an empty object schema where one is required, and nothing elsewhere"),
    "2": Entry("strict left out on Chat is strict:false on Responses"),
    "3": Entry("strict left out on Responses is unset, and a loss on Chat"),
    "4": Entry("strict with an optional property is made required and nullable"),
    "5": Entry("more strict tools than Anthropic takes are downgraded"),
    "6": Entry("an illegal tool name is mapped in tools, choice, history, calls and streams, and mapped back"),
    "7": Entry("two names that clean to the same stay distinct, and the mapping is the same in every turn"),
    "8": Entry("a name of 100 characters is kept where it is legal and shortened where it is not"),
    "9": Entry("one call at a time without a choice makes an automatic choice on Anthropic"),
    "10": Entry("two calls where one was asked for are passed on and recorded"),
    "11": Entry("a forced tool on Gemini is mode ANY with its name"),
    "12": Entry("allowed tools go between Chat's nested and Responses' flat form"),
    "13": Entry("choice none with calls in the history on Bedrock", _OTHER_WIRE),
    "14": Entry("a forced choice with a thinking budget is caught; with adaptive thinking it passes"),
    "15": Entry("a custom tool's grammar goes between Chat's nested and Responses' flat form"),
    "16": Entry("a custom tool is a function with one argument on Anthropic, and its calls come back as text"),
    "17": Entry("duplicate tool names are refused before anything goes to Anthropic"),
    "18": Entry("temperature is dropped with a loss on Anthropic 2026-10-21 and sent on 2023-06-01"),
    "19": Entry("both of Anthropic's key headers are accepted", _GATEWAY),
    "20": Entry("empty arguments are an empty object, and empty again on the same wire"),
    "21": Entry("duplicate keys, 1e400 and 2^63 survive as text and are flagged on the way to an object"),
    "22": Entry("arguments that are no object are invalid, not a crash, and wrapped for object wires"),
    "23": Entry("double-encoded arguments are recognised by repair"),
    "24": Entry("text behind a call keeps its place on Responses and is a loss on Chat"),
    "25": Entry("results are matched by call_id; the item id is kept for replay"),
    "26": Entry("calls without ids get stable ones; two of the same name are matched by order"),
    "27": Entry("a result's name is recovered from its call"),
    "28": Entry("a thought signature stays with its part; an unsigned second call is left alone"),
    "29": Entry("calls of another provider get the documented stand-in signature on Gemini 3"),
    "30": Entry("thinking and redacted thinking go back byte for byte"),
    "31": Entry("a thinking block that is only a signature is kept"),
    "32": Entry("reasoning that is dropped takes the item ids of its partners with it"),
    "33": Entry("encrypted reasoning is taken from the finished item"),
    "34": Entry("artefacts never go to another provider or model, and a loss says so"),
    "35": Entry("results split over two user messages are merged for Anthropic"),
    "36": Entry("results stand before text in an Anthropic user message"),
    "37": Entry("tool messages become one Anthropic user message, followed by the user's words"),
    "38": Entry("a call without a result gets an error result"),
    "39": Entry("a result without a call becomes text, with a loss"),
    "40": Entry("results are put in call order"),
    "41": Entry("a failed result is marked unmistakably on Chat and is an error on Gemini"),
    "42": Entry("strings and arrays are wrapped in an object for Gemini"),
    "43": Entry("an image in a result becomes a placeholder and a user message on Chat"),
    "44": Entry("an empty result is legal everywhere"),
    "45": Entry("ids that are too long are remapped in the whole history"),
    "46": Entry("ids that are used again in a later turn are made unique"),
    "47": Entry("function_call and role function become calls and results with ids"),
    "48": Entry("system messages in the middle go in place or to the head, with a loss"),
    "49": Entry("Mistral's arguments as an object, and its id null", _OTHER_WIRE),
    "50": Entry("consecutive assistant messages are one turn on Anthropic and Gemini"),
    "51": Entry("a prefilled answer is refused for models that do not continue one"),
    "52": Entry("a paused turn is echoed without a user message"),
    "53": Entry("unknown blocks survive on their wire and are a loss on others"),
    "54": Entry("indexes with gaps are renumbered"),
    "55": Entry("ids and names that are repeated are not concatenated"),
    "56": Entry("the first chunk of a call carries empty arguments"),
    "57": Entry("interleaved deltas are reassembled, and written block by block for Anthropic"),
    "58": Entry("a call without argument deltas is an empty object"),
    "59": Entry("a character cut in its surrogate pair arrives whole"),
    "60": Entry("a stop with calls is a tool call"),
    "61": Entry("a call that is cut off is truncated"),
    "62": Entry("a usage chunk without choices is read, and written for who asked for it"),
    "63": Entry("usage at the end overwrites, what is absent keeps its value"),
    "64": Entry("pings are written as each wire knows them"),
    "65": Entry("an error in the middle is an error on the other wire"),
    "66": Entry("a stream that is cut is an error, never a normal stop"),
    "67": Entry("a Responses stream has all of its brackets and rising numbers"),
    "68": Entry("arguments that come only in done are preceded by a delta"),
    "69": Entry("an empty Gemini part with a signature is no text"),
    "70": Entry("arguments by JSONPath are put together"),
    "71": Entry("a blocked prompt is a content filter stop"),
    "72": Entry("Bedrock's deltas without a start", _OTHER_WIRE),
    "73": Entry("several choices keep their index, and are a loss on single-choice wires"),
    "74": Entry("line ends, comments, BOM and cuts make no difference"),
    "75": Entry("Cohere's single-object tool_calls", _OTHER_WIRE),
    "76": Entry("type arrays compile on all dialects"),
    "77": Entry("maps never become closed empty objects"),
    "78": Entry("recursive schemas"),
    "79": Entry("integer enums on Gemini"),
    "80": Entry("$ref with a description beside it"),
    "81": Entry("allOf of two objects"),
    "81b": Entry("anyOf at the root"),
    "81c": Entry("one bad schema takes only its own tool out"),
    "81d": Entry("exclusiveMinimum on Gemini"),
    "81e": Entry("arrays without items"),
    "81f": Entry("noise stripped for Gemini"),
    "82": Entry("constraints that a dialect removes are still enforced"),
    "83": Entry("Anthropic's input tokens plus its cache tokens are OpenAI's prompt tokens"),
    "84": Entry("Gemini's candidates plus thoughts are the output, thoughts the reasoning"),
    "85": Entry("an overloaded provider keeps its retry-after; Gemini's delay is one"),
    "86": Entry("an HTML page from the edge becomes a JSON error"),
    "87": Entry("a failed Responses object in a 200 is an error on Chat"),
    "88": Entry("a malformed Gemini call is an error that can be asked again"),
    "89": Entry("Ollama's dropped keywords go into descriptions"),
    "90": Entry("x-should-retry is heard"),
}

_TOOLS_RUN = "belongs to running tools"

BAD_INPUTS = {
    1: Entry("a body that is not UTF-8"),
    2: Entry("a byte order mark"),
    3: Entry("an empty body"),
    4: Entry("null"),
    5: Entry("an array"),
    6: Entry("200,000 opening brackets"),
    7: Entry("an argument of 10 MB"),
    8: Entry("a million keys"),
    9: Entry("a duplicate name in a call"),
    10: Entry("a duplicate key, one of them escaped"),
    11: Entry("NaN and Infinity"),
    12: Entry("1e999"),
    13: Entry("an integer of 5,000 digits"),
    14: Entry("2^53+1 survives exactly"),
    15: Entry("a lone surrogate"),
    16: Entry("NUL in a name"),
    17: Entry("arguments that are null"),
    18: Entry("empty arguments"),
    19: Entry("arguments that are an array"),
    20: Entry("double-encoded arguments"),
    21: Entry("arguments with a format's marker behind them"),
    22: Entry("truncated arguments, finished as tool_calls"),
    23: Entry("two objects, concatenated"),
    24: Entry("single quotes and bare keys"),
    25: Entry("__proto__ and constructor as keys"),
    26: Entry("a name like a path"),
    27: Entry("names of 65, 129 and 1,000 characters"),
    28: Entry("names with dot, space, slash and emoji"),
    29: Entry("a name that only looks like an offered one"),
    30: Entry("invisible characters in a description"),
    31: Entry("two tools that are equal after cleaning"),
    32: Entry("a tool named like an internal one", "there are no internal tools yet"),
    33: Entry("a call to a tool that was not offered"),
    34: Entry("a call although the choice was none"),
    35: Entry("duplicate call ids in a turn"),
    36: Entry("the same id in two turns"),
    37: Entry("an empty id"),
    38: Entry("an id with a newline and a bar"),
    39: Entry("a result for an unknown id"),
    40: Entry("a missing result"),
    41: Entry("two results for one call"),
    42: Entry("results in reverse order"),
    43: Entry("Gemini calls without ids, the same name twice"),
    44: Entry("a thousand parallel calls"),
}

PAINS = {
    1: Entry("only keywords that Gemini knows reach it, and every removal is a loss"),
    2: Entry("references are inlined where a dialect has none, and mean the same"),
    3: Entry("a reference to a property keeps what stands there"),
    4: Entry("a type is one word on Gemini"),
    5: Entry("no wire gets an empty list of tools"),
    6: Entry("the audit names a cycle before anything is sent, and the tool is sent all the same"),
    7: Entry("a definition that is used twice does not contain itself"),
    8: Entry("where a cycle is cut there is a warning, and never an empty schema"),
    9: Entry("maps, unions and anything come back as they were"),
    10: Entry("no combinator at the root, and its rule is still enforced"),
    11: Entry("what the model leaves out has its Python default"),
    12: Entry("strict is said only of schemas that pass the strict checker"),
    13: Entry("the root is always an object"),
    14: Entry("one bad outputSchema takes only its own tool out"),
    15: Entry(
        "what cannot be enforced is a loss, and an error in strict mode; a schema that cannot be read accepts nothing",
        later="grammars are compiled by constrained decoding, which is not there yet: it has to refuse what it cannot compile",
    ),
    57: Entry(
        "no more tools are sent than the provider takes; those that are left out are losses",
        later="finding the right ones among thousands, with the recall told, belongs to retrieval",
    ),
    58: Entry(
        "the tokens of each tool are counted for each wire",
        later="the table of the audit shows those of one wire; hoisting $defs and trimming descriptions to save them is not done",
    ),
}

AMBIGUITIES = {
    1: Entry("a value contains the closer of a value"),
    2: Entry("a value contains the closer of the call"),
    3: Entry("a value contains the closer of the section"),
    4: Entry("a value contains a whole call"),
    5: Entry("a JSON string contains the closer"),
    6: Entry("007 and 42: by the schema, never by the look"),
    7: Entry("a missing closer before the next argument"),
    8: Entry("line breaks at the edges of a value"),
}

PARSER_BUGS = {
    1: Entry("an opener split over chunks was content, the call lost"),
    2: Entry("empty arguments unless one token came a chunk"),
    3: Entry("a longer streaming interval lost the arguments"),
    4: Entry("the end of the stream sent the arguments again"),
    5: Entry("a coerced value broke what had been sent"),
    6: Entry("a truncated opener: streamed was not whole"),
    7: Entry("a call cut off leaked markup and dropped earlier calls"),
    8: Entry("unterminated JSON at some splits"),
    9: Entry("a long argument cost quadratic time"),
    10: Entry("the end of reasoning was searched in all of the history"),
    11: Entry("brackets were closed before the model closed them"),
    12: Entry("arguments in tags were not streamed"),
    13: Entry("a closer inside of a value cut it"),
    14: Entry("strings were sent only when closed"),
    15: Entry("half of a string delimiter was sent"),
    16: Entry("deltas without the id and name of a call"),
    17: Entry("a call inside of reasoning never reached the parser"),
    18: Entry("parallel calls failed"),
    19: Entry("a malformed header was an exception"),
    20: Entry("two calls lost data at random splits; braces in strings were counted"),
    21: Entry("one chunk with several calls lost arguments"),
    22: Entry("names with hyphens, numbers in disorder"),
    23: Entry("a name was sent before it was whole"),
    24: Entry("a missing section closer discarded whole calls"),
    25: Entry("content beside calls was cut"),
    26: Entry("text that had been sent was taken back"),
    27: Entry("order and white space made an exception"),
    28: Entry("arguments that are not JSON became an error object"),
    29: Entry("calls arrived as content, or only at the end"),
    30: Entry("parallel deltas merged under one index"),
    31: Entry("missing closers, tags run together, copied examples"),
    32: Entry("first closer, one of two shapes, truncated arguments repaired and run"),
}


FAILURES = {
    1: Entry("killed before the claim: nothing happened, it is run"),
    2: Entry(
        "killed between claim and completion: unknown once the lease has passed, reported, never run again by itself"
    ),
    3: Entry("the same with a tool that may run twice: claimed anew with another token, and run"),
    4: Entry(
        "the completion fails: it is written again with the token; the caller gets the result, marked as not recorded"
    ),
    5: Entry("a duplicate at the same time sees it running and does not run: it waits, or is refused"),
    6: Entry("the same key with another payload is told with the first one's fingerprint, and not taken"),
    7: Entry("the tool raised: released where it was not executed, done or unknown otherwise"),
    8: Entry("after its time a result is forgotten; what is running or unknown never is"),
    9: Entry("a late worker whose token is no longer the record's changes nothing"),
    10: Entry("a store that cannot be reached raises at once; a write is not run then, a read is"),
    11: Entry(
        "what a store has acknowledged survives its death, as far as it is set up to; where it is not, the docs say so"
    ),
}
