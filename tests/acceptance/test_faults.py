"""Four faults of `python -m tests.faults`: every face of a fleet says each, and none contradicts another."""

from pathlib import Path

from tests.faults import inject, opened
from tests.support.fleet_faults import FAULTS
from tests.support.redis_server import redis_command

#: Seconds until the faces must agree: reached only when the test fails.
PATIENCE_S = 150.0


def test_every_face_says_what_is_wrong_and_none_contradicts_another(tmp_path: Path) -> None:
    redis_command()
    with opened(tmp_path) as (world, faces):
        for name in ("redis killed", "dead letters", "paused", "workspace moved"):
            result = inject(world, faces, FAULTS[name], patience_s=PATIENCE_S)

            assert None not in result.seen.values(), (name, result.seen)
            assert None not in result.gone.values(), (name, result.gone)
            assert result.contradictions == [], name
