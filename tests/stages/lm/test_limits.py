"""Rate limits across threads and stages; and what is asked before, and told after, each try at a provider."""

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from itertools import pairwise
from types import SimpleNamespace

import pytest
from conftest import until

from ksflow.errors import BudgetError, StageError
from ksflow.lineage.transcript import Transcript
from ksflow.lm import call, limits
from ksflow.lm.answers import answer
from ksflow.lm.call import LONGEST_ANSWER
from ksflow.lm.limits import RateLimiter
from ksflow.lm.prices import price
from ksflow.lm.refusals import failure
from ksflow.loop.budget import Meter
from ksflow.protocols import override_call
from ksflow.records import Call, Question, Reservation, schema
from lm.server import TOKENS_IN, TOKENS_OUT, Reply

PERIOD_S = 0.5
RETRY = {"Retry-After": "0"}


@pytest.fixture
def short(monkeypatch) -> None:
    """A minute is half a second."""
    monkeypatch.setattr(limits, "PERIOD_S", PERIOD_S)


def together(count: int, work) -> None:
    threads = [threading.Thread(target=work, args=(index,)) for index in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(300)
        assert not thread.is_alive()


def test_requests_within_any_minute_stay_under_the_limit(short):
    limiter, times = RateLimiter(), []
    together(8, lambda index: times.append(limiter.enter(1, requests_limit=3).at))
    times.sort()
    assert all(later - earlier >= PERIOD_S for earlier, later in zip(times, times[3:], strict=False))
    assert any(later - earlier < PERIOD_S for earlier, later in pairwise(times))


def test_tokens_are_counted_as_feared_and_then_as_they_were(monkeypatch):
    limiter = RateLimiter()
    first = limiter.enter(90, tokens_limit=100)
    started = time.monotonic()
    threading.Timer(0.1, limiter.settle, (first, 10)).start()
    limiter.enter(80, tokens_limit=100)
    assert time.monotonic() - started < limits.PERIOD_S / 2
    monkeypatch.setattr(limits, "PERIOD_S", PERIOD_S)
    limiter = RateLimiter()
    full = limiter.enter(90, tokens_limit=100)
    assert limiter.enter(1000, tokens_limit=100).at - full.at >= PERIOD_S


def test_stages_with_the_same_model_share_its_limit_and_others_do_not(monkeypatch, provider, calls, select):
    monkeypatch.setattr(limits, "PERIOD_S", PERIOD_S)
    times, enter = [], RateLimiter.enter
    monkeypatch.setattr(RateLimiter, "enter", lambda *asked: times.append(enter(*asked)) or times[-1])
    limited = [provider.model(requests_per_minute=2) for _ in range(3)]
    limits.rate_limiter(limited[0])._slots.clear()
    together(4, lambda index: select(limited[index % 3], seed=index))
    moments = sorted(made.at for made in times)
    assert len(moments) == 4
    assert moments[2] - moments[0] >= PERIOD_S
    monkeypatch.setattr(limits, "PERIOD_S", 60.0)
    started = time.monotonic()
    select(provider.model(name="other", requests_per_minute=2))
    assert time.monotonic() - started < 30


def test_waiting_for_the_limit_counts_towards_no_deadline(monkeypatch, provider, calls, select):
    """By the clock that deadlines are kept by, the limit lets this call wait for 1,000 s."""
    waits, enter = [], RateLimiter.enter
    clock = SimpleNamespace(monotonic=lambda: time.monotonic() + 1000 * len(waits))
    monkeypatch.setattr(RateLimiter, "enter", lambda *asked: waits.append(asked) or enter(*asked))
    monkeypatch.setattr(call, "time", clock)
    select(provider.model(name="patient", requests_per_minute=1, deadline_s=100, cache=False))
    assert len(waits) == 1
    assert calls[-1].error == ""
    assert calls[-1].cost.wall_s > 1000


class Kept:
    """Keeps what it was asked, what became of it, and how many calls were kept by then."""

    def __init__(self, calls: list, refuse: int = 10**9) -> None:
        self.calls = calls
        self.refuse = refuse
        self.questions: list[Question] = []
        self.reservations: list[Reservation] = []
        self.kept: list[int] = []

    @contextmanager
    def __call__(self, question: Question) -> Iterator[Reservation]:
        if len(self.questions) >= self.refuse:
            raise BudgetError("1 $ is left; raise loop.usd")
        assert threading.current_thread() is threading.main_thread()
        self.questions.append(question)
        reservation = Reservation()
        try:
            yield reservation
        finally:
            self.reservations.append(reservation)
            self.kept.append(len(self.calls))


@pytest.fixture
def meter(calls) -> Iterator[Kept]:
    made = Kept(calls)
    with override_call(meter=made):
        yield made


def test_leave_is_asked_for_each_call_to_a_provider(provider, meter, select):
    """With what it may cost; and it lasts until the call is in the transcript. The cache needs none."""
    model = provider.model(name="gpt-5", max_tokens=20000)
    provider.reply = lambda prompt: Reply(answer(prompt))
    select(model)
    select(model, seed=1)
    select(model)
    assert len(meter.calls) == 3
    assert meter.kept == [1, 2]
    question, call = meter.questions[0], meter.calls[0]
    assert (question.stage, question.model, question.tokens_out) == (call.stage, "openai/gpt-5", 20000)
    text = sum(len(message["content"]) for message in call.messages)
    assert text / 6 < question.tokens_in < text / 2
    rate = price(model)
    assert question.usd_in == pytest.approx(question.tokens_in * rate.usd_in)
    assert question.usd_most == pytest.approx(question.usd_in + 20000 * rate.usd_out)
    assert question.price_source == call.price_source
    assert not any(reservation.lost for reservation in meter.reservations)


def test_without_leave_nothing_is_sent_and_the_budgets_error_comes_out(provider, calls, meter, select):
    meter.refuse = 0
    with pytest.raises(BudgetError, match=r"raise loop\.usd"):
        select(provider.model(retries=3))
    assert not provider.requests
    assert not calls


@pytest.mark.parametrize(
    ("fault", "lost"), [("stall", True), ("truncate", True), ("cut", True), ("garble", True), ("", False)]
)
def test_a_call_that_nobody_knows_the_charge_of_is_on_record_with_the_most_it_may_be(
    fault, lost, provider, meter, calls, select
):
    provider.reply = lambda prompt: Reply(answer(prompt), 200 if fault else 500, fault=fault)
    with pytest.raises(StageError):
        select(provider.model(name="gpt-5", max_tokens=20000, deadline_s=0.3 if fault == "stall" else 300))
    (call,), (question,) = calls, meter.questions
    assert (call.cost.untold, call.cost.tokens_out) == ((1, 20000) if lost else (0, 0))
    assert call.cost.usd == (question.usd_most if lost else 0.0)
    assert call.cost.dollars().startswith("at most $") is lost
    assert meter.kept == [1]  # it was reserved until it was on record


def test_a_server_that_is_not_there_charges_nothing(meter, select, provider):
    with pytest.raises(StageError, match="cannot be reached"):
        select(provider.model(api_base="http://127.0.0.1:9/v1"))
    assert [reservation.lost for reservation in meter.reservations] == [False]


def test_a_try_after_one_that_was_lost_needs_leave_of_its_own(provider, meter, select, monkeypatch):
    monkeypatch.setattr("time.sleep", lambda seconds: None)
    provider.reply = lambda prompt: Reply(
        answer(prompt), status=500 if len(provider.requests) == 1 else 200, fault="cut" * (len(provider.requests) == 2)
    )
    select(provider.model(retries=3))
    assert len(provider.requests) == 3
    assert [reservation.lost for reservation in meter.reservations] == [False, True]
    assert meter.kept == [1, 1]  # the first one's, too, until it was on record
    assert meter.calls[0].cost.untold == 1
    assert meter.calls[0].cost.tokens_out == LONGEST_ANSWER + TOKENS_OUT


def test_what_a_late_answer_cost_is_kept(provider, calls, meter, select, tmp_path):
    """And nothing is asked again once nobody waits."""
    late = threading.Event()
    provider.reply = lambda prompt: late.wait(60) and Reply(answer(prompt))
    model = provider.model(name="gpt-5", deadline_s=0.3, retries=3)
    with pytest.raises(StageError, match=r"no answer within 0\.3 s"):
        select(model)
    assert (calls[0].cost.untold, calls[0].cost.tokens_out) == (1, LONGEST_ANSWER)
    late.set()
    until(lambda: len(calls) == 2 and any((tmp_path / "dspy").rglob("*.json")))
    assert [call.error for call in calls] == ["no answer within 0.3 s", "answered after the deadline"]
    assert [call.cost.calls for call in calls] == [1, 0]  # it is one call
    cost = calls[0].cost + calls[1].cost  # the second corrects what the first may have been at most
    assert (cost.tokens_in, cost.tokens_out, cost.untold) == (TOKENS_IN, TOKENS_OUT, 0)
    rate = price(model)
    assert cost.usd == pytest.approx(TOKENS_IN * rate.usd_in + TOKENS_OUT * rate.usd_out)
    assert calls[1].answer
    assert select(model).rationale
    assert calls[2].price_source == "cache"
    assert len(provider.requests) == 1


def test_no_retry_after_the_deadline(provider, calls, select):
    provider.reply = lambda prompt: Reply("slow down", 429, headers={"Retry-After": "0.6"})
    with pytest.raises(StageError, match="no answer within"):
        select(provider.model(name="hurried", deadline_s=0.4, retries=3))
    until(lambda: "ask openai/hurried" not in {thread.name for thread in threading.enumerate()})
    assert len(provider.requests) == len(calls) == 1


def test_prices_by_configuration_win_and_are_named(provider, calls, select):
    model = provider.model(name="gpt-5", usd_per_mtok_in=2.0, usd_per_mtok_out=10.0)
    select(model)
    assert calls[0].cost.usd == pytest.approx(TOKENS_IN * 2e-6 + TOKENS_OUT * 10e-6)
    assert calls[0].price_source == "configuration"


@pytest.mark.parametrize(
    ("name", "engine", "usd_in"),
    [
        ("gemini/gemini-2.5-pro", "lm15", 1.25),
        ("openai/gpt-5", "lm15", 1.25),
        ("anthropic/claude-sonnet-4-5", "lm15", 3.0),
        ("azure/gpt-5", "litellm", 1.25),
        ("vertex_ai/gemini-2.5-pro", "litellm", 1.25),
        ("bedrock/us.anthropic.claude-sonnet-4-5-20250929-v1:0", "litellm", 3.3),
    ],
)
def test_the_price_list_knows_the_presets(name, engine, usd_in, provider):
    rate = price(provider.model(name=name, provider="", engine=engine))
    assert rate.usd_in * 1e6 == pytest.approx(usd_in)
    assert rate.usd_out > rate.usd_in
    assert rate.source.startswith("DSPy's price list ")


def test_a_long_prompt_has_its_own_price_and_an_unknown_model_none(provider):
    gemini = provider.model(name="gemini-2.5-pro", provider="gemini")
    assert price(gemini, 300_000).usd_in > price(gemini, 100_000).usd_in
    assert price(provider.model()) is None


def go_on(select, model) -> None:
    """Ask ever anew, as a run would."""
    for seed in range(20):
        select(model, seed=seed)


UNTOLD = {"missing": Reply(counted=False), "zeros": Reply(zeros=True)}


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])
@pytest.mark.parametrize("usage", UNTOLD)
def test_a_server_that_tells_no_usage_is_taken_to_have_used_the_most(usage, stream, provider, calls, select):
    provider.reply = lambda prompt: replace(UNTOLD[usage], text=answer(prompt))
    select(provider.model(name="gpt-5", max_tokens=20000, stream=stream))
    select(provider.model(name="gpt-5", usd_per_mtok_in=0, usd_per_mtok_out=0, stream=stream), seed=1)
    costs = [call.cost for call in calls]
    assert [(cost.calls, cost.untold, cost.tokens_out) for cost in costs] == [(1, 1, 20000), (1, 1, LONGEST_ANSWER)]
    assert costs[0].usd > 20000 * price(provider.model(name="gpt-5")).usd_out
    assert costs[1].usd == 0.0
    assert all("at most: the server told no usage" in call.price_source for call in calls)


@pytest.mark.parametrize("usage", UNTOLD)
def test_a_server_that_tells_no_usage_defeats_no_cap(usage, provider, select, lineage):
    transcript = Transcript(lineage)
    meter = Meter(transcript, {"tokens": 50_000})
    provider.reply = lambda prompt: replace(UNTOLD[usage], text=answer(prompt))
    with (
        override_call(record=transcript.keep, meter=meter.reserve),
        pytest.raises(BudgetError, match="tokens=50000 used up"),
    ):
        go_on(select, provider.model(max_tokens=9000))
    assert 3 <= len(provider.requests) <= 5
    assert 40_000 < transcript.total.tokens <= 50_000
    assert lineage.total_cost() == transcript.total


@pytest.mark.slow
@pytest.mark.parametrize("reply", [Reply(fault="stall"), Reply("slow down", 429, headers={"Retry-After": "300"})])
@pytest.mark.parametrize("cap", ["minutes", "stages.selector.minutes"])
def test_a_budget_in_time_ends_the_call_that_is_in_flight(cap, reply, provider, select, lineage):
    """And it is on record as what it was, for a replay."""
    transcript = Transcript(lineage)
    meter = Meter(transcript, {cap: 0.02})
    provider.reply = lambda prompt: reply
    with (
        override_call(record=transcript.keep, meter=meter.reserve),
        pytest.raises(BudgetError, match=f"{cap}=0.02 used up"),
    ):
        select(provider.model(retries=3))
    assert len(provider.requests) == 1
    call = schema.load("call", lineage.store.read("refs/ksflow/toy/main/calls:call.json"), Call)
    assert isinstance(failure(call.stage, call.error), BudgetError)
    assert call.cost.untold == (reply.fault == "stall")


def test_nobody_waits_for_a_rate_limit_beyond_a_budget_in_time(provider, select, lineage):
    transcript = Transcript(lineage)
    meter = Meter(transcript, {"minutes": 0.1})
    with (
        override_call(record=transcript.keep, meter=meter.reserve),
        pytest.raises(BudgetError, match=r"minutes=.* used up"),
    ):
        go_on(select, provider.model(name="rare", requests_per_minute=1))
    assert len(provider.requests) == 1


def test_a_refused_try_frees_its_room_for_tokens(provider, calls, select):
    provider.reply = lambda prompt: Reply(answer(prompt), 429 if len(provider.requests) == 1 else 200, headers=RETRY)
    model = provider.model(name="narrow", tokens_per_minute=22_000, max_tokens=16_000, retries=1)
    started = time.monotonic()
    select(model)
    assert time.monotonic() - started < 30
