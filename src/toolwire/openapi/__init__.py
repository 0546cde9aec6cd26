"""OpenAPI documents as executable tools.

toolwire.openapi.toolbox("petstore.json", base_url="https://api.example.com/v1", auth="${PETSTORE_TOKEN}")
toolwire.openapi.read_operations(document).tools     only the declarations, and the requests of their calls
toolwire.openapi.load_document("petstore.yaml")      a document, within limits
"""

from __future__ import annotations

from .._lazy import lazy_exports

TYPE_CHECKING = False  # as in `typing`, without the import

if TYPE_CHECKING:
    from .api_tools import ApiTool, OperationProblem, OperationRequest
    from .client import ApiToolbox, toolbox
    from .document import load_document, parse_document
    from .operations import OperationList, read_operations
else:
    __getattr__, __dir__ = lazy_exports(
        __name__,
        {
            "client": ("ApiToolbox", "toolbox"),
            "operations": ("OperationList", "read_operations"),
            "api_tools": ("ApiTool", "OperationProblem", "OperationRequest"),
            "document": ("load_document", "parse_document"),
        },
    )

__all__ = [
    "ApiTool",
    "ApiToolbox",
    "OperationList",
    "OperationProblem",
    "OperationRequest",
    "load_document",
    "parse_document",
    "read_operations",
    "toolbox",
]
