"""Five schedulers of docs/schedulers.md as loops over requests."""

from collections.abc import Callable, Iterator

from tests.reference.request import Request, Row
from tests.reference.server import Server

Policy = Callable[[Server], None]


def fcfs(max_num_seqs: int) -> Policy:
    """Static batches, with cache for each request's most tokens set aside; the next batch when the last has ended."""

    def policy(server: Server) -> None:
        free = server.free
        batch = list(server.running)
        for request in () if batch else server.waiting[:max_num_seqs]:
            free -= server.growth(request, request.prompt + request.most, 0)
            if free < 0:
                break
            batch.append(request)
        server.verify([Row(request, request.pending) for request in batch])

    return policy


def continuous(max_num_seqs: int, max_num_batched_tokens: int, watermark: float) -> Policy:
    """Whole prompts first; who decodes waits meanwhile; the youngest gives way where memory is short."""
    return vllm_v0_spec(0, max_num_seqs, max_num_batched_tokens, watermark)


def vllm_v0_spec(
    num_speculative_tokens: int, max_num_seqs: int, max_num_batched_tokens: int, watermark: float
) -> Policy:
    """`continuous` with a chain of `num_speculative_tokens` for whoever decodes."""

    def policy(server: Server) -> None:
        rows: list[Row] = []
        left = max_num_batched_tokens
        for request in _let_in(server, max_num_seqs, watermark, server.free, bool(num_speculative_tokens)):
            if rows and request.pending > left:
                break
            rows.append(Row(request, request.pending))
            left -= request.pending
        growing = not rows
        if growing:
            kept, evicted, _ = _in_slot(server, [1] * len(server.running))
            server.evict(evicted)
            rows = [Row(request, 1) for request in kept]
        if num_speculative_tokens:
            rows = _drafted(server, rows, len(rows) if growing else 0, num_speculative_tokens)
        server.verify(rows)

    return policy


def sarathi(max_num_seqs: int, max_num_batched_tokens: int, watermark: float) -> Policy:
    """All decodes, then what is left of prompts that are begun, then new ones, up to a budget of tokens."""
    return vllm_spec(0, max_num_seqs, max_num_batched_tokens, watermark)


def vllm_spec(num_speculative_tokens: int, max_num_seqs: int, max_num_batched_tokens: int, watermark: float) -> Policy:
    """`sarathi` with a chain of `num_speculative_tokens` for whoever decodes, which the budget holds as well."""

    def policy(server: Server) -> None:
        chunks: dict[int, int] = {}
        decodes = sum(request.decodes for request in server.running)
        most = max_num_batched_tokens // (1 + num_speculative_tokens)
        left = most if decodes > most else max_num_batched_tokens - decodes * num_speculative_tokens
        for decodes in (True, False):
            for request in server.running:
                if request.decodes == decodes:
                    chunks[request.number] = min(request.pending, left)
                    left -= chunks[request.number]
        kept, evicted, free = _in_slot(server, [chunks[request.number] for request in server.running])
        rows = [Row(request, chunks[request.number]) for request in kept if chunks[request.number]]
        for request in () if evicted else _let_in(server, max_num_seqs, watermark, free, bool(num_speculative_tokens)):
            if left > 0:
                rows.append(Row(request, min(request.pending, left)))
                left -= rows[-1].chunk
        server.evict(evicted)
        rows.sort(key=lambda row: not row.request.decodes)
        if num_speculative_tokens:
            growing = sum(row.request.decodes for row in rows)
            rows = _drafted(server, rows, growing, num_speculative_tokens)
        server.verify(rows)

    return policy


def _let_in(server: Server, most: int, watermark: float, free: float, drafting: bool) -> Iterator[Request]:
    """Yield whoever waits, first come first served, while slots and memory for a prompt and one token last."""
    if server.running:
        free -= watermark * server.hardware.capacity
    for request in server.waiting[: max(most - len(server.running), 0)]:
        need = request.pending + 1
        free -= server.growth(request, need, need if drafting else 0)
        if free < 0:
            return
        yield request


def _in_slot(server: Server, growth: list[int]) -> tuple[list[Request], list[Request], int]:
    """Return who keeps its cache, who gives way (the youngest, never the oldest), and the bytes left free."""
    kept, evicted = list(server.running), []
    more = {request.number: server.growth(request, tokens, 0) for request, tokens in zip(kept, growth, strict=True)}
    free = server.free - sum(more.values())
    for youngest in sorted(kept, key=lambda each: -each.number)[:-1]:
        if free >= 0:
            break
        kept.remove(youngest)
        evicted.append(youngest)
        free += more[youngest.number] + server.hardware.bytes_of(youngest.target, youngest.draft)
    return kept, evicted, free


def _drafted(server: Server, rows: list[Row], growing: int, num_speculative_tokens: int) -> list[Row]:
    """Draft a chain behind each of the first `growing` rows and feed the drafter the prompts of the others.

    No chain is longer than what its request may still emit.
    """
    chains, prompts = rows[:growing], rows[growing:]
    lags = [row.request.draft_pending if row.request.useful else 0 for row in chains]
    lags += [min(row.request.draft_pending, row.chunk) if row.request.useful else 0 for row in prompts]
    depths = [num_speculative_tokens] * growing + [0] * len(prompts)
    wanted = [(row, row.chunk + depth, lag + depth) for row, lag, depth in zip(rows, lags, depths, strict=True)]
    if sum(server.growth(row.request, *tokens) for row, *tokens in wanted) > server.free:
        return rows
    fed = [Row(row.request, lag) for row, lag in zip(rows, lags, strict=True)]
    if not any(row.request.useful for row in chains):
        if any(lags):
            server.draft(fed, [], 0, 0)
        return rows
    nodes = 0
    for level in range(num_speculative_tokens):
        leaves = [row.request for row in chains if row.request.useful > level]
        if leaves:
            server.draft(fed, leaves, level, nodes)
            nodes += len(leaves)
            fed = [Row(row.request, 0) for row in rows]
    return [Row(row.request, row.chunk, min(num_speculative_tokens, row.request.useful)) for row in chains] + prompts
