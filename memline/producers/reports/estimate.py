"""Say what a reindex would read, send and cost, without doing it."""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import closing
from typing import Any

from memline.shared.clock import SystemClock
from memline.shared.config.schema import AgentSettings
from memline.shared.embedders.choice import choose
from memline.shared.finding import Finding
from memline.shared.index import driver, identities, ledger
from memline.shared.index.accounts import AccountFile, Accounts, account_id
from memline.shared.index.chunks import text_hash
from memline.shared.providers import LISTED, PROVIDERS, price_of
from memline.shared.scheduling import health
from memline.shared.scheduling.budget import Budget, Charge
from memline.shared.sources.paths import is_transcript
from memline.shared.sources.tokens import estimate_tokens
from memline.shared.sync.plan import make_plan
from memline.shared.sync.read_file import FileReader
from memline.shared.words import counted

_KNOWN = "SELECT text_hash FROM vectors WHERE identity_id = ? AND state IN ('ready', 'leased')"
_UNREADY_TEXTS = (
    "SELECT text_hash, text FROM chunks WHERE NOT EXISTS (SELECT 1 FROM vectors"
    " WHERE identity_id = ? AND vectors.text_hash = chunks.text_hash AND state = 'ready')"
)


def estimate(settings: AgentSettings, *, force: bool = False) -> dict[str, Any]:
    """Read and split what a reindex would, and count, as JSON. Writes nothing and sends nothing."""
    choice, batch = choose(settings), settings.memory.remote.batch
    with driver.reading_if_any(settings.index_path) as reader:
        index = reader if reader is not None else driver.empty()
        paths = make_plan(settings, choice, index).changes.to_read(force=force)
        file_reader = FileReader(settings, clock=SystemClock())
        #: Text hash -> tokens.
        texts = dict[bytes, int]()
        chunk_count = 0
        for path in paths:
            entry = ledger.entry(index, path) if is_transcript(path) else None
            chunks = file_reader.read(path, entry=entry, force=force).chunks or ()
            chunk_count += len(chunks)
            texts.update((text_hash(chunk.text), estimate_tokens(chunk.text)) for chunk in chunks)
        known, price, is_batch, left, refusal = set[bytes](), None, False, math.inf, None
        if (identity := choice.identity) is None:
            texts.clear()
        else:
            target = identities.by_key(index, identity.key)
            target_id = target.id if target else 0
            # What the index has without a vector: after a run that was cut, or of a new model.
            for digest, text in index.execute(_UNREADY_TEXTS, (target_id,)):
                texts.setdefault(digest, estimate_tokens(text))
            # Those at the provider are paid for.
            known = {digest for (digest,) in index.execute(_KNOWN, (target_id,))} & texts.keys()
            own, public = settings.content.prices, not identity.endpoint
            price = price_of(identity.provider, identity.model, public=public, own=own)
            account = account_id(choice.provider, choice.mark)
            charge = Charge(identity=identity, account=account, mode=health.REQUESTS)
            with closing(AccountFile(settings.account_path)) as file:
                of_batches = health.read(Accounts(index=index, file=file), choice.provider, health.BATCH)
                left, refusal = Budget.of(file, settings).left(charge, SystemClock().now())
            has_api = PROVIDERS[choice.provider].batch_hours > 0
            is_worth_it = len(texts) - len(known) >= batch.min_texts
            is_batch = batch.enabled and has_api and is_worth_it and not of_batches.is_stopped
    tokens = sum(tokens for digest, tokens in texts.items() if digest not in known)
    cost = price.cost(tokens, by_batch=is_batch) if price else None
    return {
        "agentId": settings.agent,
        "provider": choice.provider,
        "model": choice.model,
        "files": len(paths),
        "chunks": chunk_count,
        # Texts to embed, and those whose vector is in the index or on its way.
        "texts": len(texts) - len(known),
        "cached": len(known),
        # Estimated, of the texts to embed; and how they would be sent: requests, batch or nothing.
        "tokens": tokens,
        "mode": "" if identity is None else health.BATCH if is_batch else health.REQUESTS,
        "costUsd": cost,
        "costInWords": price.words(cost) if price else "no price known",
        "price": price.to_json() if price else None,
        # What the limits of the day leave, where that is less.
        "limit": _limit(tokens, left, refusal),
    }


def _limit(tokens: int, left: float, refusal: Finding | None) -> str:
    if refusal is None or tokens <= left:
        return ""
    return refusal.what if left < 1 else f"the daily limit leaves {counted(int(left), 'token')} for today"


def words(plan: dict[str, Any]) -> Iterator[str]:
    """Yield the lines that say what would be done and what it costs."""
    parts = [f"{counted(plan['files'], 'file')} to read"]
    parts += [f"{counted(plan['chunks'], 'chunk')} in them"] if plan["chunks"] else []
    parts.append(f"{counted(plan['texts'], 'text')} to embed, about {counted(plan['tokens'], 'token')}")
    parts += [f"{counted(plan['cached'], 'vector')} there or on the way"] if plan["cached"] else []
    yield f"{plan['agentId']}: {'; '.join(parts)}"
    if not plan["mode"]:
        yield "  nothing to embed, keyword search only"
        return
    price, by = plan["price"], "in batches" if plan["mode"] == health.BATCH else "in requests"
    yield f"  {plan['provider']} {plan['model']} {by}: {plan['costInWords']}"
    if plan["limit"]:
        yield f"  {plan['limit']}"
    if price is None:
        entry = f'prices: {{ "{plan["model"]}": {{ perMillion: 0.02 }} }}'
        yield f"  add a price to the configuration file: {entry}"
    elif price["asOf"]:
        source = "list price" if price["source"] == LISTED else "price of the configuration"
        yield f"  {source} of {price['asOf']}; tokens are estimated"
