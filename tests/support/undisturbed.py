"""What an index must be after any trouble: that of one calm run over the same notes."""

from tests.support.embedding_server import EmbeddingServer
from tests.support.workspace import Place, remote


def undisturbed(place, folder):
    """What a single run in one process, with a provider of its own, makes of the notes of a place."""
    with EmbeddingServer(dims=16) as other:
        calm = Place(folder=folder / "calm", memory=remote(other.url))
        calm.workspace.rmdir()
        calm.workspace.symlink_to(place.workspace)
        calm.configure(extraPaths=[])
        report = calm.index()
    assert not report.failed
    return calm.contents()


def assert_as_undisturbed(place, folder):
    """The index of a place equals that of a calm run."""
    right, found = undisturbed(place, folder), place.contents()
    assert found.files == right.files
    assert found.chunks == right.chunks
    assert found.vectors == right.vectors


def assert_paid_once(server, *, but=(), at_most=0):
    """No text was embedded twice, but for those given and so many that were on the way at a kill."""
    repeated = {digest: times for digest, times in server.repeated().items() if digest not in but}
    again = sum(times - 1 for times in repeated.values())
    assert again <= at_most, f"{again} texts were sent again; {at_most} were on the way"
