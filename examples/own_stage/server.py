"""A stand-in for a model: it speaks OpenAI's chat completions on this machine, and answers without wit.

    python server.py 8011

Put your own model in place of `reply`.
"""

import json
import sys
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from ksflow.lm.answers import answer


def reply(messages: list[dict[str, str]]) -> str:
    """The answer: a valid one that is made from the question."""
    return answer(messages[-1]["content"])


class Handler(BaseHTTPRequestHandler):
    """POST /v1/chat/completions."""

    def do_POST(self) -> None:
        asked = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        message = {"role": "assistant", "content": reply(asked["messages"])}
        said = {
            "id": "1",
            "object": "chat.completion",
            "created": 0,
            "model": asked["model"],
            "choices": [{"index": 0, "message": message, "finish_reason": "stop"}],
            "usage": {"prompt_tokens": 1000, "completion_tokens": 500, "total_tokens": 1500},
        }
        body = json.dumps(said).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)


if __name__ == "__main__":
    ThreadingHTTPServer(("127.0.0.1", int(sys.argv[1])), Handler).serve_forever()
