"""The console: a page, and the small API behind it, that shows a document in every format.

All answers are pure functions of the request: nothing is stored, no model is asked and no key is needed. The functions
of `translation`, `streams`, `model_text` and `tool_lists` need no server and no extra; `app` serves them on loopback.
"""
