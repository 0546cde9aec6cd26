"""The one machine behind all text formats: a reader of text that is still arriving, a writer of events, and a style for
each way of writing a call. Styles are generators that ask for more text by `yield`, so no state is kept by hand, whole
text is one big chunk, and what was read is never looked at again.
"""
