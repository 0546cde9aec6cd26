"""The parsing engine of all text formats: an incremental reader, a writer of events, and a style per notation of calls.

Styles are generators that request more text by `yield`, so there is no explicit state machine, whole text is one big
chunk, and no text is read twice.
"""
