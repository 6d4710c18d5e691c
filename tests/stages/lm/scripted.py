"""An engine whose answers are made by a function of the good answer."""

from collections.abc import Callable

from ksflow.lm import Model
from ksflow.lm.engines import DummyEngine, as_response


class Scripted:
    """Answers with `change` of what the dummy would say."""

    def __init__(self, change: Callable[[str], str]) -> None:
        self.change = change

    def complete(self, request):
        response = DummyEngine().complete(request)
        return as_response(request, self.change(response.message.parts[0].text), (1, 1))


def scripted(change: Callable[[str], str]) -> Model:
    """A model that answers with `change` of the good answer."""
    return Model("ksflow/scripted", engine=Scripted(change), cache=False)


def dummy() -> Model:
    """A model that answers well."""
    return scripted(lambda text: text)
