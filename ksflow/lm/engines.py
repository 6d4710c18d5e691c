"""Engines that stand in for a provider. `DummyEngine` makes `llm=dummy` a dry run without keys or network."""

from typing import TYPE_CHECKING

from ksflow.lm import answers

if TYPE_CHECKING:
    from dspy.lm15 import Request, Response


class Engine:
    """A replacement for a provider. Any other object with `complete` will do, too; its price is then not known."""

    price_source = ""  # who says that an answer costs nothing before it is there; empty where nobody does

    def complete(self, request: "Request") -> "Response":
        """Return one answer. DSPy calls this instead of a provider. Raises errors of lm15 or of ksflow."""
        raise NotImplementedError

    def check(self) -> None:
        """Raise ConfigError if it cannot answer any question. Called before a run begins."""

    def answer_cost(self, response: "Response") -> tuple[float, str] | None:
        """Return what an answer cost in dollars, and who says so; None if its tokens tell."""
        return None


class DummyEngine(Engine):
    """Answers every question of the llm stages with valid content made from the prompt, the same each time."""

    price_source = "dummy"

    def __repr__(self) -> str:
        return "DummyEngine()"

    def complete(self, request: "Request") -> "Response":
        """Return an answer made from the last message."""
        prompt = request.messages[-1].text or ""
        text = answers.answer(prompt)
        return as_response(request, text, (len(prompt) // 4, len(text) // 4))


def as_response(
    request: "Request", text: str, tokens: tuple[int, int] | None = None, id: str | None = None
) -> "Response":
    """Return `text` as the answer to a request; `tokens`: of the prompt and of the answer, where they are known."""
    from dspy.lm15 import Message, Response, TextPart, Usage

    usage = Usage(input_tokens=tokens[0], output_tokens=tokens[1], total_tokens=sum(tokens)) if tokens else Usage()
    message = Message.assistant([TextPart(text)])
    return Response(id=id, model=request.model, message=message, finish_reason="stop", usage=usage)
