"""OpenAPI documents as executable tools.

toolwire.openapi.toolbox("petstore.json", base_url="https://api.example.com/v1", auth="${PETSTORE_TOKEN}")
toolwire.openapi.read_operations(document).tools     only the declarations, and the requests of their calls
toolwire.openapi.load_document("petstore.yaml")      a document, within limits
"""

from __future__ import annotations

from .._lazy import lazy_exports

TYPE_CHECKING = False  # as in `typing`, without the import

if TYPE_CHECKING:
    from .api_tools import ApiTool as ApiTool
    from .api_tools import OperationProblem as OperationProblem
    from .api_tools import OperationRequest as OperationRequest
    from .client import ApiToolbox as ApiToolbox
    from .client import toolbox as toolbox
    from .document import load_document as load_document
    from .document import parse_document as parse_document
    from .operations import OperationList as OperationList
    from .operations import read_operations as read_operations
else:
    __getattr__, __dir__, __all__ = lazy_exports(
        __name__,
        {
            "api_tools": "ApiTool OperationProblem OperationRequest",
            "client": "ApiToolbox toolbox",
            "document": "load_document parse_document",
            "operations": "OperationList read_operations",
        },
    )
