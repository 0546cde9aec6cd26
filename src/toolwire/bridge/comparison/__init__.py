"""Show one document on every wire and in text formats, with the positions of each element and of each loss.

    comparison = compare(body, targets=["openai_chat", "gemini"])
    comparison.source.places                    # [Placed("t0.name", "/tools/0/name", ((31, 44),)), …]
    comparison.outputs[0].losses[0].source_at   # position in the text of the source

An element is a thing that has the same meaning in every document: a tool, a parameter, a call, its name, a text. Three
rules make its positions exact:

1. An element is read from the canonical value of a document, never from its text. Its pointer comes from the wire's
   `locator`, and counts only if the document has the element's value there (`reading`).
2. Elements of two documents are matched by names, ids and content. An element that could match two others matches
   neither: no link is better than a wrong one (`matching`).
3. In a text format, whose prompts have no pointers, an element is found by writing the text again with the element's
   value replaced by a marker. The position counts only if the marker is the only difference (`text_formats`).
"""

from __future__ import annotations

from .documents import ComparedDocument, Comparison, PlacedLoss, compare

__all__ = ["ComparedDocument", "Comparison", "PlacedLoss", "compare"]
