"""What is said where the queue has no place left.

Gradio refuses with status 503 and "Queue is full. Max size is ...". Its page hides the words behind
a fixed sentence for that status and shows those of any other; its Python client knows a full queue
by the status. So only the page gets another one.
"""

from __future__ import annotations

from fastapi import HTTPException, Request, Response, status
from fastapi.exception_handlers import http_exception_handler

from app.events import QUEUE_SIZE

SENTENCE = (
    f"All {QUEUE_SIZE} places in the queue are taken: very many visitors at the moment. What you "
    "wrote is still there. Try again in a minute or two."
)
_GRADIO_SAYS = "Queue is full"


async def refuse(request: Request, error: Exception) -> Response:
    """FastAPI's handler of HTTPException, which it is otherwise too."""
    assert isinstance(error, HTTPException)
    if str(error.detail).startswith(_GRADIO_SAYS):
        is_program = request.headers.get("x-gradio-user") != "app"
        code = error.status_code if is_program else status.HTTP_429_TOO_MANY_REQUESTS
        error = HTTPException(code, SENTENCE)
    return await http_exception_handler(request, error)
