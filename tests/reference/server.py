"""One replica as a plain loop: who is there, slots of the paged cache, and a clock that passes push on."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from tests.reference.hardware import Hardware, Pass
from tests.reference.request import Request, Row

DRAFT, VERIFY = 0, 1


class Server:
    """One replica; `policy(server)` is called at each scheduling point and runs passes by `draft` and `verify`."""

    def __init__(self, hardware: Hardware, requests: Iterable[Request]) -> None:
        self.hardware = hardware
        self.requests = list(requests)
        self.coming = list(self.requests)
        self.now_s = 0.0
        self.steps_s: list[float] = []
        self.unseen: list[Request] = []
        self.waiting: list[Request] = []
        self.running: list[Request] = []
        self.passes: list[Pass] = []
        self.gaps_s: list[float] = []

    def serve(self, policy: Callable[[Server], None]) -> None:
        while self.coming or self.unseen or self.waiting or self.running:
            self._begin_step()
            if self.waiting or self.running:
                policy(self)
            elif self.coming:
                self.now_s = max(self.now_s, self._in_queue_s(self.coming[0]))
                self._let_arrive()

    @property
    def free(self) -> int:
        """Bytes that nobody holds between two steps."""
        return self.hardware.capacity - sum(self.hardware.bytes_of(each.target, each.draft) for each in self.running)

    def growth(self, request: Request, target: int, draft: int) -> int:
        """Return the bytes that caching so many tokens more of each model takes."""
        held = self.hardware.bytes_of(request.target, request.draft)
        return self.hardware.bytes_of(request.target + target, request.draft + draft) - held

    def draft(self, rows: list[Row], leaves: list[Request], level: int, nodes: int) -> None:
        """Run a draft pass: `rows` feed their chunks, `leaves` are extended to depth `level` + 1, `nodes` are there."""
        # The root of a chain is the last token of its chunk; the drafter reads later leaves as tokens of their own.
        queries = [Row(row.request, row.chunk, int(level > 0 and row.request in leaves)) for row in rows]
        prefill = sum(row.chunk for row in rows if row.request.draft < row.request.prompt)
        start_s = self.now_s
        self._run(DRAFT, queries, prefill, nodes + len(leaves), level + bool(leaves))
        for row in rows:
            row.request.draft += row.chunk
            self._admit(row.request)
        for request in leaves:
            request.begin_decoding(start_s)
        self.passes[-1].queued = len(self.unseen) + len(self.waiting)

    def evict(self, requests: Iterable[Request]) -> None:
        """Take the cache of residents before the first pass of a step."""
        for request in requests:
            self.running.remove(request)
            self.waiting.append(request)
            self.waiting.sort(key=lambda each: each.number)
            request.lose_cache()

    def verify(self, rows: list[Row]) -> None:
        """Run a target pass; whoever has fed all that was pending emits what is right of its chain, and one token."""
        prefill = sum(row.chunk for row in rows if not (row.chunk == 1 and row.request.output_tokens))
        start_s = self.now_s
        self._run(VERIFY, rows, prefill, sum(row.drafted for row in rows), max(row.drafted for row in rows))
        for row in rows:
            self._admit(row.request)
            row.request.begin_decoding(start_s)
            before, accepted = row.request.output_tokens, row.request.accepted_tokens
            gap_s = row.request.commit(row, self.now_s)
            self.gaps_s += [] if gap_s is None else [gap_s]
            self.passes[-1].emitted_tokens += row.request.output_tokens - before
            self.passes[-1].accepted_tokens += row.request.accepted_tokens - accepted
            if row.request.output_tokens == row.request.output:
                self.running.remove(row.request)
        self.passes[-1].queued = len(self.unseen) + len(self.waiting)

    def _run(self, kind: int, rows: list[Row], prefill: int, drafted: int, depth: int) -> None:
        """Let the time of a pass go by and write it down."""
        batched = context = pairs = logits = 0
        for request, chunk, nodes in rows:
            cached = request.target if kind == VERIFY else request.draft
            batched += chunk + nodes
            context += cached if chunk + nodes else 0
            logits += nodes + (chunk > 0)
            pairs += sum(cached + seen for seen in range(1, chunk + 1)) + nodes * (cached + chunk + 1)
        cost = self.hardware.target_s if kind == VERIFY else self.hardware.draft_s
        seconds = cost(context, batched, pairs, logits)
        self.passes.append(Pass(self.now_s, seconds, kind, len(rows), batched, context, prefill, drafted, depth))
        self.now_s += seconds
        prefill_s = seconds * prefill / batched
        for each in (each for each in self.requests if 0 < each.output_tokens < each.output):
            own = sum(row.chunk for row in rows if row.request is each and kind == VERIFY and row.chunk > 1)
            each.prompts_s += prefill_s - seconds * own / batched
            each.drafting_s += (kind == DRAFT) * (seconds - prefill_s)
        self._let_arrive()

    def _in_queue_s(self, request: Request) -> float:
        return request.arrival_s + self.hardware.frontend_s

    def _let_arrive(self) -> None:
        """Let in whoever is in the queue by now, one who comes at the very end of a pass too."""
        while self.coming and self._in_queue_s(self.coming[0]) <= self.now_s:
            self.unseen.append(self.coming.pop(0))
        if not self.hardware.ahead:
            self._see(self.now_s)

    def _begin_step(self) -> None:
        """See who was in the queue when this step was decided: as an earlier step began, or now if nothing ran."""
        ahead = self.hardware.ahead
        if not (self.waiting or self.running):
            self.steps_s.clear()
        self._see(self.steps_s[-ahead] if 0 < ahead <= len(self.steps_s) else self.now_s)
        self.steps_s.append(self.now_s)

    def _see(self, by_s: float) -> None:
        """Put into line whoever was in the queue by then; reject what can never fit."""
        while self.unseen and self._in_queue_s(self.unseen[0]) <= by_s:
            request = self.unseen.pop(0)
            most = request.prompt + request.most
            request.rejected = self.hardware.bytes_of(most, most) > self.hardware.capacity
            self.waiting += [] if request.rejected else [request]

    def _admit(self, request: Request) -> None:
        if request in self.waiting:
            self.waiting.remove(request)
            self.running.append(request)
