"""What a scan takes for a change, told by names, sizes and times."""

from memline.shared.index.rows import LedgerEntry
from memline.shared.sources.discover import DiscoveredFile, Discovery
from memline.shared.sources.outcomes import LINK_PROBLEM
from memline.shared.sync.plan import Changes, compare


def found(path, *, problem=None, **changes):
    times = {"size": 1, "mtime_ns": 10, "ctime_ns": 10, **changes}
    return DiscoveredFile(path=path, absolute=f"/ws/{path}", problem=problem, **times)


def seen(outcome="indexed", *, size=1, mtime_ns=10, chunking="c1"):
    times = {"size": size, "mtime_ns": mtime_ns, "ctime_ns": 10, "observed_ns": 0}
    return LedgerEntry(path="", source="memory", outcome=outcome, chunking=chunking, **times)


def scan(files, ledger, *unlisted):
    return compare(Discovery(files=tuple(files), issues=(), unlisted=unlisted), ledger, "c1")


def test_the_same_size_time_and_chunking_is_no_change():
    changes = scan([found("a.md")], {"a.md": seen()})

    assert changes == Changes(unchanged=("a.md",))
    assert changes.count == 0
    assert changes.to_read() == ()
    assert changes.to_read(force=True) == ("a.md",)


def test_another_size_time_or_chunking_is_a_change_older_times_too():
    changes = scan(
        [
            found("size.md", size=2),
            found("time.md", mtime_ns=9),
            found("inode.md", ctime_ns=11),
            found("chunking.md"),
        ],
        {"size.md": seen(), "time.md": seen(), "inode.md": seen(), "chunking.md": seen(chunking="c0")},
    )

    assert changes.changed == ("size.md", "time.md", "inode.md", "chunking.md")


def test_content_that_cannot_be_indexed_is_not_tried_again_until_it_changes():
    ledger = {name: seen(name, chunking="") for name in ("empty", "not_text", "too_large")}

    assert scan([found(name) for name in ledger], ledger).count == 0
    assert len(scan([found(name, size=9) for name in ledger], ledger).changed) == 3


def test_what_could_not_be_read_is_tried_every_time():
    ledger = {name: seen(name) for name in ("unreadable", "failed", "symlink", "special")}

    changes = scan([found(name) for name in ledger], ledger)
    assert changes == Changes(again=("unreadable",), changed=("failed", "symlink", "special"))
    assert set(changes.to_read()) == {*ledger}
    # It looks as it did, so the index is not behind.
    assert scan([found("unreadable")], {"unreadable": seen("unreadable")}).count == 0
    assert scan([found("unreadable", size=9)], {"unreadable": seen("unreadable")}).count == 1


def test_files_behind_a_folder_that_became_a_link_are_announced_once():
    link = found("memory/sub", problem=LINK_PROBLEM)
    ledger = {"memory/sub": seen("symlink"), "memory/sub/a.md": seen()}

    assert scan([link], ledger).removed == ("memory/sub/a.md",)
    ledger["memory/sub/a.md"] = seen("symlink")
    assert scan([link], ledger).count == 0
    assert scan([], ledger).removed == ("memory/sub", "memory/sub/a.md")


def test_nothing_is_removed_from_where_nothing_could_be_listed():
    ledger = {"memory/private/a.md": seen(), "memory/gone.md": seen(), "/vault/a.md": seen()}

    assert scan([], ledger, "memory/private", "/vault").removed == ("memory/gone.md",)
    assert scan([], ledger, ".").removed == ("/vault/a.md",)
    assert scan([], ledger, ".").to_read(force=True) == ("/vault/a.md",)


def grown(by, was=None, path="sessions/a.jsonl"):
    """A transcript that grew, below a threshold of 100 bytes."""
    was = was or seen(chunking="t1", size=50)
    discovery = Discovery(files=(found(path, size=50 + by, mtime_ns=11),), issues=())
    return compare(discovery, {path: was}, "c1", transcript_chunking="t1", growth=100)


def test_a_transcript_that_grew_a_little_is_growing_and_not_behind():
    changes = grown(99)

    assert changes == Changes(growing=("sessions/a.jsonl",))
    assert changes.count == 0
    assert changes.to_read() == changes.to_read(force=True) == ("sessions/a.jsonl",)
    assert changes.to_read(tails=False) == ()


def test_a_transcript_has_changed_that_grew_much_shrank_or_was_cut_otherwise():
    for changes in (
        grown(100),
        grown(0),
        grown(-1),
        grown(1, seen(chunking="t0", size=50)),
        grown(1, seen("unreadable", chunking="t1", size=50)),
    ):
        assert changes == Changes(changed=("sessions/a.jsonl",))
    assert grown(1, seen(size=50), path="a.md") == Changes(changed=("a.md",))
