"""The verbs that change something: retain, compact, fsck."""

from __future__ import annotations

from typing import TYPE_CHECKING

from strandline.cli.facts import Document, retention_text, shard_facts
from strandline.cli.opening import opened, sight_of
from strandline.cli.render import counted, shown
from strandline.cli.reports import compaction_table, fsck_document, fsck_lines
from strandline.errors import UsageError
from strandline.journal.fsck import fsck_journals
from strandline.model.ids import printable
from strandline.upkeep.fsck import fsck

if TYPE_CHECKING:
    from strandline.cli.output import Output, Step
    from strandline.handles.store import Store


def retain_history(url: str, name: str, rule: str, out: Output) -> None:
    with opened(url, name) as store:
        shard = store.shard(name)
        before = retention_text(shard.state().retention)
        shard.retain(rule)
        after = retention_text(shard.state().retention)
    document: Document = {"shard": name, "retention": after, "before": before}
    said = f"{name} keeps {after}; it was {before}. Merging is up to upkeep, or strandline compact."
    out.answer(document, shown(said))


def retain_transactions(url: str, name: str, rule: str, out: Output) -> None:
    """The same of a pipeline: on record, for all that it has and for every replica."""
    kept = _transactions(rule)
    with opened(url) as store:
        pipeline = store.pipeline(name)
        before = pipeline.status().retain
        pipeline.retain(kept)
    document: Document = {"pipeline": name, "retain": kept, "before": before}
    said = f"{name} keeps {_counted(kept)}; it was {_counted(before)}. Its replicas follow it."
    out.answer(document, shown(said))


def _transactions(rule: str) -> int | None:
    if rule.strip() == "forever":
        return None
    count = rule.strip().removesuffix("transactions").removesuffix("transaction").strip()
    if not (count.isascii() and count.isdigit()) or int(count) < 1:
        raise UsageError(
            f"a pipeline can't keep {printable(rule)}: write '100 transactions', or forever"
        )
    return int(count)


def _counted(transactions: int | None) -> str:
    return "all transactions" if transactions is None else counted(transactions, "transaction")


def compact_shards(url: str, name: str | None, out: Output, *, full: bool) -> None:
    """Merge one shard, or all of them, and say what that changed."""
    with opened(url, name) as store, out.progress("compact") as step:
        names = store.shards() if name is None else [name]
        done = [_compact(store, each, step, full=full) for each in names]
        document: Document = {"store": store.url, "shards": done}
    out.answer(document, compaction_table(done))


def _compact(store: Store, name: str, step: Step, *, full: bool) -> Document:
    machine = store.machine(name)
    before = shard_facts(sight_of(machine))

    def report(what: str, done: int, total: int) -> None:
        step(done, total, f"{name}: {what}")

    step(0, None, name)
    collected = store.upkeep.compact(machine, full=full, report=report)
    after = shard_facts(sight_of(machine))
    kept = ("updates", "parts", "bytes", "since")
    return {
        "shard": name,
        "before": {each: before[each] for each in kept},
        "after": {each: after[each] for each in kept},
        "objects_deleted": collected.deleted,
    }


def check_store(url: str, name: str | None, out: Output, *, deep: bool, repair: bool) -> bool:
    """Check a store or one shard of it; `True` if something is damaged."""
    with opened(url, name) as store, out.progress("fsck") as step:

        def report(what: str, done: int, total: int) -> None:
            step(done, total, what)

        # A name that does not exist is a mistake in the command, and no damage.
        names = None if name is None else [store.shard(name).name]
        found = fsck(store.env, store.leases, names, deep=deep, repair=repair, report=report)
        if names is None:
            fsck_journals(store.env, found, repair=repair, progress=report)
    out.answer({"store": store.url, **fsck_document(found)}, fsck_lines(found))
    return not found.sound
