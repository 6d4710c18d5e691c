"""A folder as a model: questions are files, and so are answers."""

import signal
import subprocess
import sys
import threading

import pytest
from conftest import until
from structlog.testing import capture_logs

from ksflow.config.compose import build, compose
from ksflow.errors import ConfigError, StageError
from ksflow.lm import inbox
from ksflow.lm.answers import answer
from ksflow.lm.inbox import inbox_model
from ksflow.protocols import override_call
from ksflow.stages.selector.llm import LlmSelector


@pytest.fixture(autouse=True)
def quick(monkeypatch) -> None:
    monkeypatch.setattr(inbox, "POLL_S", 0.02)


class Person:
    """Answers every question in a folder with what `say` makes of it."""

    def __init__(self, folder, say=answer, hand_in=None) -> None:
        self.folder, self.say = folder, say
        self.hand_in = hand_in or (lambda path, text: path.write_text(text))
        self.read: list[str] = []
        self.gone = threading.Event()
        threading.Thread(target=self.work, daemon=True).start()

    def work(self) -> None:
        while not self.gone.wait(0.02):
            for path in sorted(self.folder.glob("*-*.md")):
                reply = path.with_suffix(".answer.md")
                if ".answer" not in path.name and not reply.exists():
                    try:
                        text = path.read_text()
                    except FileNotFoundError:
                        continue  # taken meanwhile
                    self.read.append(text)
                    self.hand_in(reply, self.say(text))


@pytest.fixture
def folder(tmp_path):
    return tmp_path / "inbox"


def names(folder) -> list[str]:
    return sorted(path.name for path in folder.iterdir() if path.is_file())


def test_a_question_is_a_file_and_its_answer_another(folder, calls, problem, population):
    person = Person(folder)
    assert LlmSelector(inbox_model(str(folder)))(problem, population).rationale
    person.gone.set()
    (call,) = calls
    assert (call.model, call.cost.usd, call.cost.calls, call.price_source) == ("inbox", 0.0, 1, "inbox")
    text = person.read[0]
    for message in call.messages:
        assert message["content"] in text
    question, reply = sorted(names(folder / "done"), key=len)
    assert question.startswith("selector-")
    assert reply == question.replace(".md", ".answer.md")
    assert reply in text.split("## system")[0]
    assert (folder / "done" / reply).read_text() == call.answer
    assert names(folder) == []


def test_an_answer_that_is_written_slowly_or_moved_there_is_taken_whole(
    folder, calls, problem, population, monkeypatch
):
    rest, look = [], inbox._look

    def grown(path):
        if rest:
            with path.open("a") as file:
                file.write(rest.pop(0))
        return look(path)

    monkeypatch.setattr(inbox, "_look", grown)

    def slowly(path, text):
        path.touch()
        size = len(text) // 8 + 1
        rest.extend(text[start : start + size] for start in range(0, len(text), size))

    def moved(path, text):
        draft = path.with_name("draft")
        draft.write_text(text)
        draft.rename(path)

    for seed, hand_in in enumerate((slowly, moved)):
        person = Person(folder, hand_in=hand_in)
        assert LlmSelector(inbox_model(str(folder)), seed=seed)(problem, population).rationale
        person.gone.set()
    assert len(names(folder / "done")) == 4


def test_a_malformed_answer_is_a_new_question_with_the_reason(folder, calls, problem, population):
    person = Person(folder, lambda text: answer(text) if "was refused" in text else "prose")
    LlmSelector(inbox_model(str(folder)))(problem, population)
    person.gone.set()
    assert len(person.read) == 2
    assert "was refused: the last line must be" in person.read[1]
    assert len(names(folder / "done")) == 4


def test_after_a_crash_the_question_finds_its_answer(folder, calls, problem, population):
    model = inbox_model(str(folder), deadline_s=0.5)
    for _ in range(100):  # until it came so far as to put its question
        with pytest.raises(StageError, match=r"no answer within 0\.5 s"):
            LlmSelector(model)(problem, population)
        until(lambda: not any(thread.name == "ask inbox" for thread in threading.enumerate()))  # who waited has gone
        if folder.exists():
            break
    (question,) = names(folder)
    text = (folder / question).read_text()
    (folder / question.replace(".md", ".answer.md")).write_text(answer(text))
    assert LlmSelector(inbox_model(str(folder)))(problem, population).rationale
    assert names(folder) == []


def test_equal_questions_have_numbers_and_answers_of_their_own(folder, problem, population):
    model = inbox_model(str(folder))
    made = []

    def ask(name):
        with override_call(about=name, sample_index=int(name[-1])):
            made.append(LlmSelector(model, seed=7)(problem, population))

    def questions():
        return sorted(path.name for path in folder.glob("selector-*.md") if ".answer" not in path.name)

    def asked(name):
        thread, before = threading.Thread(target=ask, args=(name,), daemon=True), len(questions())
        thread.start()
        until(lambda: len(questions()) > before)

    def answer_to(name):
        count = len(made)
        (folder / name.replace(".md", ".answer.md")).write_text(answer((folder / name).read_text()))
        until(lambda: len(made) > count)

    with capture_logs() as logs:
        asked("round 1.1")
        (first,) = questions()
        asked("round 1.2")
        second = first.replace(".md", "-2.md")
        assert questions() == [second, first]
        assert "asked the same" not in (folder / first).read_text()
        text = (folder / second).read_text()
        assert f"`{first}` asked the same; this is for round 1.2, and an answer of its own is wanted." in text
        answer_to(second)
        assert questions() == [first]
        answer_to(first)
        asked("round 1.3")
        third = first.replace(".md", "-3.md")
        assert questions() == [third]
        answer_to(third)
    events = [each["event"] for each in logs]
    assert events[0] == "waiting for an answer"
    assert events[1:] == [f"asked again, for round {name}: an answer of its own is wanted" for name in ("1.2", "1.3")]
    assert len(names(folder / "done")) == 6


def test_a_folder_that_cannot_be_is_a_sentence(tmp_path, problem, population):
    (tmp_path / "file").write_text("")
    with pytest.raises(ConfigError, match=r"the inbox .* cannot be used: .*set model\.folder"):
        LlmSelector(inbox_model(str(tmp_path / "file" / "inbox")))(problem, population)


def test_the_folder_is_a_key_of_the_configuration(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert build(compose(["llm=inbox"]).selector).program.model.engine.folder == tmp_path / "runs" / "inbox"
    cfg = compose(["llm=inbox", "model.folder=elsewhere", "model.name=me"])
    model = build(cfg.writer.llm.lm)
    assert (model.engine.folder, model.model, model.deadline_s) == (tmp_path / "elsewhere", "me", None)


def test_ctrl_c_ends_the_wait(folder):
    """And leaves the question, for the next time."""
    code = (
        "import dspy; from ksflow.lm.inbox import inbox_model;"
        "from ksflow.lm.program import Inquiry, Program;"
        f"Program('writer', dspy.Signature('a -> b'), inbox_model({str(folder)!r})).ask(Inquiry({{'a': '1'}}, print))"
    )
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, stderr=subprocess.PIPE) as waiting:
        until(lambda: folder.exists() and any(name.startswith("writer-") for name in names(folder)))
        waiting.send_signal(signal.SIGINT)
        _, said = waiting.communicate(timeout=300)
    assert b"KeyboardInterrupt" in said
    assert names(folder)[0].startswith("writer-")
