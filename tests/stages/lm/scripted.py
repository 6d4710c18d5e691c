"""An engine whose answers are made by a function of the good answer."""

from collections.abc import Callable

from ksflow.lm import Model
from ksflow.lm.engines import DummyEngine


class Scripted:
    """Answers with `change` of what the dummy would say."""

    def __init__(self, change: Callable[[str], str]) -> None:
        self.change = change

    def complete(self, request):
        response = DummyEngine().complete(request)
        from dspy.lm15 import Message, Response, TextPart, Usage

        text = self.change(response.message.parts[0].text)
        return Response(
            id=None,
            model=request.model,
            message=Message.assistant([TextPart(text)]),
            finish_reason="stop",
            usage=Usage(input_tokens=1, output_tokens=1, total_tokens=2),
        )


def scripted(change: Callable[[str], str]) -> Model:
    """A model that answers with `change` of the good answer."""
    return Model("ksflow/scripted", engine=Scripted(change), cache=False)


def dummy() -> Model:
    """A model that answers well."""
    return scripted(lambda text: text)
