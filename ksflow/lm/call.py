"""A model call that one can follow: from a question to its record, all in the thread of whoever asks.

stage -> Program.ask -> dspy.Predict, which lays the question out -> MeteredLM -> ModelCall -> the answer, to be parsed

ModelCall.answered      asks as `dspy.LM` does, this call being the engine: an answer is kept on disk, or DSPy calls
  complete              for each try:
    _admit              what it may cost is reserved (`protocols.reserve`), room under the rate limits waited for
    _try                the provider is asked, in a thread that may be left behind, for what is left of the deadline
    reduced             after a refusal of the answer's allowance: less of it, at once
    _pause              after an error that may pass: as long as the provider says, else 1, 2, 4 ... 60 s
  _keep_answer          the answer, or why there is none, is recorded (`protocols.record`) before anybody looks at it
  close                 the reservation ends: the record has what it cost, or where nobody told what it may have cost
  _keep_late            an answer that comes after the deadline is recorded and cached too, for whoever asks again
"""

import contextvars
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any

import dspy
from dspy.lm15 import (
    RETRYABLE_ERRORS,
    InvalidRequestError,
    Request,
    Response,
    ServerError,
    TextPart,
    materialize_response,
)

from ksflow.errors import BudgetError, Interrupted, KsflowError, StageError
from ksflow.lm.lengths import fit_allowance, reduce_allowance, tell
from ksflow.lm.limits import Slot, rate_limiter
from ksflow.lm.model import Model
from ksflow.lm.prices import answer_price, cached_tokens, price, tokens
from ksflow.lm.prompts.brief import count
from ksflow.lm.refusals import LATE, Filtered, classify_error, failed_inside, filter_reason, refusal, serialize_error
from ksflow.protocols import override_call, record, reserve
from ksflow.records import Call, Cost, Question, Reservation
from ksflow.redaction import redact

Messages = list[dict[str, Any]]
Complete = Callable[[Request], Response]
LONGEST_ANSWER = 32_000  # tokens to reckon with, where `max_tokens` leaves it to the provider
_A_MESSAGE = 8  # tokens that its role and its ends are
_LONGEST_PAUSE_S = 60.0
_CUTS = 3  # of the answer's allowance, for one question
_GRACE_S = 1.0  # after the deadline an engine may give up too: whoever asks is told first


class ModelCall:
    """One question on its way to its record; the engine that DSPy calls where no answer is kept."""

    def __init__(self, stage: str, model: Model, sent: Messages, provider: Any) -> None:
        """`sent` goes on record, `provider` is the engine that reaches one."""
        self.stage, self.model = stage, model
        self.provider = provider
        texts = [(str(each["role"]), str(each["content"])) for each in sent]
        self.messages = tuple({"role": role, "content": redact(text)} for role, text in texts)
        self.cut = False  # the provider stopped at its token limit
        self._tokens_in = prompt_tokens([text for _, text in texts])
        self._started, self._waited_s = time.monotonic(), 0.0
        self._asked = False  # a provider was asked: the answer is not out of the cache
        self._lost = False  # a try is on its way, or broke off: nobody knows whether it will be charged
        self._most = Cost()  # what a try may cost at most
        self._untold = Cost()  # the most that the tries may have cost that were lost
        self._held = ExitStack()
        self._reservation: Reservation | None = None
        self._limiter = rate_limiter(model)
        self._slot: Slot | None = None
        self.place: Path | None = None  # where the answer is kept on disk, or will be
        self._late: Future[Response] | None = None  # what the provider is asked for, until it has answered

    def obtain_answer(self, through_dspy: Callable[[Complete], Response]) -> Response:
        """The answer, recorded. `through_dspy`: what is kept on disk, else what it is given answers, which is then
        kept. StageError after the deadline, when the provider fails, or for a refusal (Filtered);
        ConfigError for what no retry mends; BudgetError where it cannot be paid.
        """

        def keep_late(future: Future[Response]) -> None:
            """In the provider's thread, once there is an answer that nobody waits for: what it cost is true."""
            with suppress(Exception):  # it failed, or the run is over
                self._keep_answer(future.result(), LATE)
                through_dspy(lambda request: future.result())

        try:
            response = through_dspy(self.complete)
            refused = self._keep_answer(response)
        except dspy.LMError as error:
            cause = error.__cause__
            failed = refusal(error, self.stage, self.model, self._tokens_in, self._started)
            if isinstance(cause, Interrupted) or (isinstance(cause, KsflowError) and not self._asked):
                raise cause from None  # of the reservation: nothing was asked; or the question stays
            if self._lost:
                self._untold += self._most
            self._keep(error=serialize_error(failed), cost=self._untold + Cost(calls=1, wall_s=self._elapsed_s))
            raise failed from (None if failed is cause else error)
        finally:
            if not self._lost:
                self._settle(self._tokens_in)
            self._held.close()
            if self._late is not None:
                self._late.add_done_callback(keep_late)
        if refused:
            self.forget()
            raise Filtered(self.stage, refused)
        return response

    def forget(self) -> None:
        """The answer was not accepted: whoever asks the same is not to have it out of the cache."""
        if self.place is not None:
            self.place.unlink(missing_ok=True)

    def complete(self, request: Request) -> Response:
        """For DSPy, where no answer is kept: tries until there is one. What it raises is lm15's or ours."""
        attempt, cuts = 0, 0
        request = fit_allowance(self.model, request, self._tokens_in)
        while True:
            self._admit()
            try:
                return self._try(request)
            except InvalidRequestError as error:
                shorter = reduce_allowance(self.model, request, error.message, self._tokens_in)
                if shorter is None or cuts == _CUTS:
                    raise
                request, cuts = shorter, cuts + 1
                continue
            except RETRYABLE_ERRORS as error:
                if attempt >= self.model.retries:
                    raise
                hint_s = error.retry_after
                pause_s = hint_s if hint_s is not None and hint_s >= 0 else min(2.0**attempt, _LONGEST_PAUSE_S)
                left_s, too_late = self._left()
                if left_s is not None and pause_s >= left_s:
                    raise too_late from error
                time.sleep(pause_s)
            attempt += 1

    # -- one try -------------------------------------------------------------------------------

    def _admit(self) -> None:
        """Return once there is money for a try and room under the rate limits. This time counts to no deadline."""
        began = time.monotonic() if self._asked else self._started
        question = first_question(self.stage, self.model, self._tokens_in)
        tokens_in, tokens_out = question.tokens_in, question.tokens_out
        if self._lost and self._reservation is not None:
            self._reservation.lost = True  # it is held until the record has it
            self._untold += self._most
        if self._lost or self._reservation is None:
            self._most = Cost(question.usd_most or 0.0, tokens_in, tokens_out, untold=1)
            self._lost = False
            self._reservation = self._held.enter_context(reserve(question))
        self._settle(tokens_in)  # all that a try before this one took
        limits = self.model.requests_per_minute, self.model.tokens_per_minute
        self._slot = self._limiter.enter(tokens_in + tokens_out, *limits, self._reservation.until)
        if self._slot is None:
            raise BudgetError(f"{self._reservation.budget} used up")
        self._waited_s += time.monotonic() - began

    def _try(self, request: Request) -> Response:
        """What the provider answers. A provider's own time limit is per read, and an answer that drips never meets it:
        so another thread waits for it, and is left behind at the deadline. StageError then.
        """
        self._asked = self._lost = True
        left_s, too_late = self._left()
        try:
            response = self._provided(request) if left_s is None else self._in_time(request, left_s, too_late)
            if failed := failed_inside(response):
                raise ServerError(failed)
        except Exception as error:
            meant, self._lost = classify_error(error)
            self._lost = self._lost or self._late is not None
            if meant is error:
                raise
            raise meant from error
        self._lost = False
        return response

    def _provided(self, request: Request) -> Response:
        if isinstance(self.model.engine, str) and self.model.stream:  # sent as it is made
            response: Response = materialize_response(self.provider.stream(request), request)
        else:
            response = self.provider.complete(request)
        return response

    def _in_time(self, request: Request, left_s: float, too_late: KsflowError) -> Response:
        future: Future[Response] = Future()

        def ask() -> None:
            try:
                future.set_result(self._provided(request))
            except BaseException as error:  # handed over, not handled  # noqa: BLE001
                future.set_exception(error)

        with override_call(until=time.monotonic() + left_s + _GRACE_S):
            context = contextvars.copy_context()
        self._late = future
        threading.Thread(target=context.run, args=(ask,), daemon=True, name=f"ask {self.model.model}").start()
        try:
            future.exception(left_s)  # of the provider, which `result` raises
        except TimeoutError:
            raise too_late from None
        self._late = None
        return future.result()

    def _left(self) -> tuple[float | None, KsflowError]:
        """Seconds until the deadline, or until a budget in time ends; None for any. And what is raised then."""
        deadline_s, held = self.model.deadline_s, self._reservation
        ends: list[tuple[float, KsflowError]] = []
        if held and held.until is not None:
            ends.append((held.until - time.monotonic(), BudgetError(f"{held.budget} used up")))
        if deadline_s is not None:
            late = StageError(self.stage, f"no answer within {deadline_s:g} s")
            ends.append((deadline_s + self._waited_s - self._elapsed_s, late))
        left_s, error = min(ends, key=lambda end: end[0], default=(None, KsflowError()))
        return None if left_s is None else max(0.0, left_s), error

    # -- its record ----------------------------------------------------------------------------

    @property
    def _elapsed_s(self) -> float:
        return time.monotonic() - self._started

    def _keep_answer(self, response: Response, error: str = "") -> str:
        """Record an answer. What a safety filter said instead of one; empty where none did."""
        self.cut = response.finish_reason == "length"
        refused = redact(filter_reason(response))
        cost, source = Cost(wall_s=self._elapsed_s), "cache"
        if self._asked:
            cost, source = self._cost(response)
            self._settle(cost.tokens)
            if error == LATE:  # the call is in the transcript already, with what it may have cost
                cost = cost - self._most + Cost(wall_s=self._elapsed_s)
            else:
                cost = cost + self._untold + Cost(calls=1, wall_s=self._elapsed_s)
        self._keep(text_of(response), error or refused, cost=cost, price_source=source)
        return refused

    def _cost(self, response: Response) -> tuple[Cost, str]:
        """What an answer cost, and where the price was read; the most that it may have, where that is not told."""
        counts = tokens(self.model, response)
        usd, source = answer_price(self.model, response)
        if all(counts) or not isinstance(self.model.engine, str):
            if isinstance(self.model.engine, str):
                tell(self.model, self._tokens_in, counts[0], response.model or "")
            cached, usd_cached = cached_tokens(self.model, response)
            return Cost(usd, *counts, tokens_cached=cached, usd_cached=usd_cached), source
        rate = price(self.model, self._tokens_in)
        return self._most, f"{rate.source}; at most: the server told no usage" if rate else ""

    def _keep(self, answer: str = "", error: str = "", **spent: Any) -> None:
        texts, settings = (redact(answer), redact(error)), self.model.settings
        record(Call(self.stage, self.model.model, self.messages, *texts, cut=self.cut, settings=settings, **spent))

    def _settle(self, count: int) -> None:
        """The newest try had so many tokens, as far as the rate limits are concerned."""
        if self._slot is not None:
            self._limiter.settle(self._slot, count)
            self._slot = None


def prompt_tokens(texts: Sequence[str]) -> int:
    """Of messages, about."""
    return sum(count(text) + _A_MESSAGE for text in texts)


def first_question(stage: str, model: Model, tokens_in: int) -> Question:
    """What a call with a prompt of so many tokens may cost."""
    tokens_out = model.max_tokens or LONGEST_ANSWER
    if (rate := price(model, tokens_in)) is None:
        return Question(stage, model.model, tokens_in, tokens_out)
    usd_in = tokens_in * rate.usd_in
    return Question(stage, model.model, tokens_in, tokens_out, usd_in, usd_in + tokens_out * rate.usd_out, rate.source)


def text_of(response: Response) -> str:
    """Its words, without what the model thought."""
    return "".join(part.text for part in response.message.parts if isinstance(part, TextPart))
