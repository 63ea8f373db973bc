"""The model of `python -m benchmarks.scale`: what it says of sizes, from figures of a run that is made up."""

import re

from benchmarks.scale_model import SIZES, Taken, compared, plan, rate_of, simulated, table

#: A thousand chunks a second of a core of the store, ten kilobytes a chunk.
SMALL = Taken(
    chunks=1_000,
    store_s=1.0,
    chunk_s=0.2,
    embed_s=0.3,
    redis_s=0.05,
    operations=1_000.0,
    index_bytes=5_000_000.0,
    redis_bytes=1_500_000.0,
    all_s=3.0,
    cores=2.0,
    wall_s=4.0,
)


def test_what_a_run_takes_grows_with_its_chunks() -> None:
    large = SMALL.scaled(20_000)

    assert (large.chunks, large.store_s, large.operations) == (20_000, 20.0, 20_000.0)
    rows = {name: (said, was) for name, said, was in compared(SMALL, large, hosts=1)}
    # Half a core of the store, of the twenty seconds that it works: longer than two cores for sixty.
    assert rows.pop("wall_s") == (40.0, 4.0)
    assert [name for name, (said, was) in rows.items() if said != was] == []


def test_what_is_in_flight_grows_with_the_hosts_and_not_with_the_chunks() -> None:
    assert SMALL.scaled(20_000, hosts=2).redis_bytes == 2 * SMALL.redis_bytes
    # One host more does not make the cores of the run more.
    large = SMALL.scaled(20_000, hosts=2)
    (seconds,) = [said for name, said, _ in compared(SMALL, large, hosts=2) if name == "wall_s"]
    assert seconds == 30.0


def test_a_backfill_takes_what_the_slowest_takes() -> None:
    def rate(*, hosts: int = 1, provider: float = 1e9, cores: float = 1e9) -> float:
        return round(rate_of(SMALL, hosts, provider=provider, cores=cores), 3)

    assert rate(provider=300) == 300
    assert (rate(), rate(hosts=4)) == (500, 2_000)
    # Three seconds of processor a thousand chunks, of all processes.
    assert rate(hosts=4, cores=2) == 666.667


def test_a_small_fleet_is_one_of_each_and_ends_with_its_provider() -> None:
    small = plan(SMALL, 0.005, agents=1_000, chunks=1_000_000)

    assert (small.index_hosts, small.embed_workers, small.redis) == (1, 1, 1)
    # Half of a core of the store: 500 chunks a second.
    assert round(small.backfill_hours, 2) == round(1_000_000 / 500 / 3_600, 2)
    assert small.dollars == 6.0


def test_the_disk_decides_how_many_hosts_hold_many_chunks() -> None:
    large = plan(SMALL, 0.005, agents=1_000_000, chunks=10**10)

    # 5 KB, and 1,280 dimensions more than in the run: 10.3 KB a chunk, half a terabyte a host.
    assert large.index_hosts == 206
    # The provider: 10 million tokens a minute, 300 a chunk.
    assert round(large.backfill_hours / 24) == 208
    assert large.restored_hours < large.rebuilt_hours


def test_an_edit_waits_for_what_is_in_flight_and_not_for_the_backfill() -> None:
    size = plan(SMALL, 0.005, agents=10_000, chunks=10_000_000)

    wait_s, spare = simulated(size, rate=500.0)
    busier_s, less = simulated(size, rate=20.0)

    assert wait_s < 60 < busier_s
    assert 1 > spare > less


def test_the_table_is_markdown_with_a_row_for_each_size() -> None:
    lines = list(table(SMALL, 0.005, SIZES))

    assert len(lines) == 2 + len(SIZES)
    assert {line.count("|") for line in lines} == {lines[0].count("|")}
    assert all(re.match(r"\| [\d,]+ \| [\d,]+ \|", line) for line in lines[2:])
