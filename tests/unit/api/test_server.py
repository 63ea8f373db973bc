"""Where the HTTP server may listen."""

import socket
from contextlib import closing

import pytest

from memline.producers.web.serving import listen, require_token
from memline.shared.config.installation import Serve
from memline.shared.errors import ConfigError, MemlineError


@pytest.mark.parametrize(
    ("host", "loopback"),
    [("127.0.0.1", True), ("127.8.8.8", True), ("::1", True), ("localhost", True), ("0.0.0.0", False)],
)
def test_loopback_is_known_by_its_address(host, loopback):
    if loopback:
        require_token(Serve(host=host))
    else:
        with pytest.raises(ConfigError, match="a token is needed"):
            require_token(Serve(host=host))
        require_token(Serve(host=host, tokens={"main": "a-token-of-tests"}))


@pytest.mark.parametrize("host", ["not a host", "192.0.2.1"])
def test_a_host_that_is_not_of_this_machine_is_an_error_that_names_its_key(host):
    with pytest.raises(MemlineError, match="cannot listen") as caught:
        listen(Serve(host=host, port=0))

    assert caught.value.hint == "set serve.host to an address of this machine, such as 127.0.0.1"


def test_the_body_of_an_answer_does_not_wait_until_its_head_is_acknowledged():
    opened = listen(Serve(port=0))
    with closing(opened), closing(socket.create_connection(opened.getsockname())):
        connection, _ = opened.accept()
    with closing(connection):
        assert connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)
