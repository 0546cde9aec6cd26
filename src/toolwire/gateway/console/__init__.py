"""The console: a page that shows a document in every format, and its small API.

All answers are pure functions of the request: nothing is stored, no model is asked and no key is needed. The functions
of `translation`, `streams` and `tool_lists` need no server and no extra; `app` serves them on loopback.
"""
