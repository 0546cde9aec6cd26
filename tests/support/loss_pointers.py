"""Check the pointers of losses: into the source document, and into the target document."""

from toolwire.ir.pointer import resolve


def unresolved(document, translation):
    """Return the losses whose pointers do not resolve in the document that they point into."""
    found = [loss for loss in translation.losses if not _resolves(document, loss.path)]
    found += [
        loss for loss in translation.losses if loss.target is not None and not _resolves(translation.body, loss.target)
    ]
    return found + [loss for loss in translation.losses if loss.action == "dropped" and loss.target is not None]


def _resolves(document, pointer):
    try:
        resolve(document, pointer)
    except (LookupError, TypeError, ValueError):
        return False
    return True
