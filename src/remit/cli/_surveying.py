"""What `remit models` does."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Iterator
from dataclasses import dataclass, replace
from decimal import Decimal
from pathlib import Path
from typing import Any, Final

from rich.text import Text

from remit.cli._formats import count, tokens
from remit.cli._place import find_place
from remit.cli._screen import Results, console_on, glyphs_of
from remit.cli._words import one_line, say
from remit.config import Config, with_default_model
from remit.errors import ConfigError, RemitError
from remit.models import (
    DEFAULT_WINDOW_TOKENS,
    LOCAL_WINDOW_TOKENS,
    Looked,
    ModelFacts,
    PoolMember,
    ProviderSettings,
    find_window,
    known_efforts,
    known_max_output,
    look_up,
)
from remit.primitives import SystemClock
from remit.usage import FREE, Price, PriceBook

_GAP: Final = 2
_NAMES: Final = ("", "model", "pools", "window", "in/out per Mtok", "tools", "effort", "")


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """What is known of one model, or of a provider of which no model is in a pool."""

    provider: str
    kind: str | None
    """None: the provider isn't configured."""
    member: PoolMember | None
    """None: no pool names a model of the provider."""
    pools: tuple[str, ...] = ()
    settings: ProviderSettings | None = None
    """None: its settings can't work; `why` says it."""
    looked: Looked | None = None
    why: str = ""
    price: Price | None = None

    @property
    def model(self) -> str:
        """`NAME:MODEL`, or the provider's name alone."""
        return self.provider if self.member is None else self.member.model

    @property
    def reachable(self) -> bool | None:
        """None: nobody was asked."""
        return False if self.settings is None or self.looked is None else self.looked.reachable

    @property
    def listed(self) -> bool | None:
        """Whether the provider lists the model; None: it lists none, or no model is meant."""
        models = self.looked.models if self.looked is not None else None
        return None if not models or self.member is None else self.member.model_name in models

    @property
    def told(self) -> ModelFacts:
        """What the provider says of the model."""
        models = (self.looked.models if self.looked is not None else None) or {}
        return (models.get(self.member.model_name) if self.member is not None else None) or ModelFacts()

    @property
    def window(self) -> tuple[int | None, str | None]:
        """The context window, and who says so: `set`, `provider`, `known`; None: nobody."""
        if self.member is None:
            return None, None
        if self.member.context_window_tokens is not None:
            return self.member.context_window_tokens, "set"
        if self.told.window_tokens is not None:
            # What Ollama is told to set; its model may have more.
            most = LOCAL_WINDOW_TOKENS if self.kind == "ollama" else self.told.window_tokens
            return min(self.told.window_tokens, most), "provider"
        known = find_window(self.member.model_name)
        return known, "known" if known is not None else None

    @property
    def tools(self) -> str | None:
        """`native`, `json` or `json, since it has none`; None: not known."""
        if self.member is None:
            return None
        if self.member.tool_mode == "json":
            return "json"
        if self.told.tools is False:
            return "none" if self.member.tool_mode == "native" else "json"
        known = self.told.tools or self.member.tool_mode == "native" or self.kind not in _UNTOLD
        return "native" if known else None

    @property
    def efforts(self) -> tuple[str, ...] | None:
        """The reasoning efforts that it takes; empty: it doesn't reason; None: not known."""
        return None if self.member is None else known_efforts(self.member.model_name)


_UNTOLD: Final = frozenset({"openai-compatible", "openrouter", "ollama"})
"""Kinds behind which there are models without tools."""


def survey(*, as_json: bool, config_file: Path | None, workspace: str | None) -> int:
    """Show the models; 1 when a member of a pool can't be reached."""
    config = find_place(wanted=workspace, config_file=config_file).config
    if not config.pools:
        config = _with_default(config)
    rows = asyncio.run(_ask(list(_rows(config))))
    rows = [replace(row, price=_price(row, config)) for row in rows]
    if as_json:
        results = Results()
        for row in rows:
            results.write_json(_as_json(row))
        results.require_written()
    else:
        for note in config.notes:
            say(note)
        _show(rows)
    return 1 if any(row.pools and row.reachable is False for row in rows) else 0


def _with_default(config: Config) -> Config:
    """With the model that a run would take; providers of which there is no pool are shown alone."""
    try:
        return with_default_model(config)
    except ConfigError:
        if not config.providers:
            raise
        return config


def _rows(config: Config) -> Iterator[Row]:
    """One for each model of a pool, then one for each provider that no pool names."""
    members: dict[str, tuple[PoolMember, list[str]]] = {}
    for name, pool in config.pools.items():
        for member in pool.members:
            members.setdefault(member.model, (member, []))[1].append(name)
    used: set[str] = set()
    for member, pools in members.values():
        used.add(member.provider_name)
        yield _resolved(config, member.provider_name, member, tuple(pools))
    for name in config.providers:
        if name not in used:
            yield _resolved(config, name, None, ())


def _resolved(config: Config, provider: str, member: PoolMember | None, pools: tuple[str, ...]) -> Row:
    table = config.find_provider(provider)
    row = Row(provider=provider, kind=table.kind if table else None, member=member, pools=pools)
    try:
        if member is not None:
            config.check_model(member.model)
        return replace(row, settings=config.get_provider(provider))
    except RemitError as error:
        return replace(row, why=error.message)


async def _ask(rows: list[Row]) -> list[Row]:
    """Ask each provider, all at once."""
    async with asyncio.TaskGroup() as group:
        asked = {
            number: group.create_task(
                look_up(row.settings, model=row.member.model_name if row.member is not None else None)
            )
            for number, row in enumerate(rows)
            if row.settings is not None
        }
    return [
        replace(row, looked=asked[number].result(), why=asked[number].result().why)
        if number in asked
        else row
        for number, row in enumerate(rows)
    ]


def _price(row: Row, config: Config) -> Price | None:
    if row.member is None or row.kind is None:
        return None
    book = PriceBook(config.prices)
    table = config.find_provider(row.provider)
    base_url = table.base_url if table is not None else None
    return book.find(row.model, kind=row.kind, at=SystemClock().now(), base_url=base_url)


def _as_json(row: Row) -> dict[str, Any]:
    window, source = row.window
    price = row.price
    return {
        "model": row.model,
        "provider": row.provider,
        "kind": row.kind,
        "pools": list(row.pools),
        "reachable": row.reachable,
        "why": row.why or None,
        "listed": row.listed,
        "window_tokens": window,
        "window_from": source,
        "max_output_tokens": _longest(row),
        "price": None
        if price is None
        else {
            "input_usd_per_mtok": _usd(price.input_micros),
            "output_usd_per_mtok": _usd(price.output_micros),
            "cache_read_usd_per_mtok": _usd(price.cache_read_micros),
            "cache_write_usd_per_mtok": _usd(price.cache_write_micros),
            "free": price == FREE,
            "from": price.version,
        },
        "tools": row.tools,
        "tool_mode": row.member.tool_mode if row.member is not None else None,
        "efforts": None if row.efforts is None else list(row.efforts),
    }


def _longest(row: Row) -> int | None:
    if row.member is None:
        return None
    known = known_max_output(row.member.model_name) if find_window(row.member.model_name) else None
    return row.member.max_output_tokens or row.told.max_output_tokens or known


def _show(rows: list[Row]) -> None:
    console, glyphs = console_on(sys.stdout), glyphs_of(sys.stdout)
    signs = {
        True: Text(glyphs.done, style="green"),
        False: Text(glyphs.failed, style="red"),
        None: Text("?", style="yellow"),
    }
    table = [[Text(name, style="dim") for name in _NAMES]]
    table += [[signs[row.reachable], *_cells(row)] for row in rows]
    widths = [max(line[column].cell_len for line in table) for column in range(len(_NAMES))]
    for line in table:
        shown = Text()
        for column, cell in enumerate(line[:-1]):
            shown.append_text(cell)
            shown.append(" " * (widths[column] - cell.cell_len + _GAP))
        shown.append_text(line[-1])
        shown.rstrip()
        console.print(shown, soft_wrap=True)


def _cells(row: Row) -> Iterator[Text]:
    window, source = row.window
    yield Text(one_line(row.model))
    yield Text(", ".join(row.pools), style="dim")
    default = LOCAL_WINDOW_TOKENS if row.kind == "ollama" else DEFAULT_WINDOW_TOKENS
    assumed = "?" if row.member is None else f"{tokens(default)} assumed"
    yield Text(assumed if source is None else tokens(window))
    yield Text(_price_words(row))
    yield Text(row.tools or "?")
    yield Text("?" if row.efforts is None else " ".join(row.efforts) or "none")
    yield Text(one_line(_remark(row), width=500), style="dim")


def _price_words(row: Row) -> str:
    price = row.price
    if price is None:
        return "?"
    return "free" if price == FREE else f"${_usd(price.input_micros)} / ${_usd(price.output_micros)}"


def _remark(row: Row) -> str:
    if row.why:
        return row.why
    if row.listed is False:
        return "the provider doesn't list it"
    models = row.looked.models if row.looked is not None else None
    return (
        f"{count(len(models), 'model')}, none in a pool" if row.member is None and models is not None else ""
    )


def _usd(micros: int) -> str:
    """Micro-USD as USD, without zeros at the end."""
    text = f"{Decimal(micros) / 1_000_000:f}"
    return text.rstrip("0").rstrip(".") if "." in text else text
