"""The process at the other end of a connection is known while it is open, and never guessed afterwards."""

import os
import socket
from contextlib import closing

import pytest

from rookery.system.network import find_connection_holders
from tests.support.requirements import requirement

HOSTS = {socket.AF_INET: "127.0.0.1", socket.AF_INET6: "::ffff:127.0.0.1"}


@requirement("house.auth.loopback-agents")
@pytest.mark.parametrize("family", list(HOSTS))
def test_a_connection_is_its_processs_until_that_has_closed_it(family: socket.AddressFamily) -> None:
    with closing(socket.create_server(("127.0.0.1", 0))) as server:
        port = server.getsockname()[1]
        with closing(socket.socket(family)) as client:
            client.connect((HOSTS[family], port))
            client.sendall(b"sent before it goes")
            accepted, address = server.accept()
            assert find_connection_holders(address, port) == [os.getpid()]
            # One that only says no more still waits for an answer.
            client.shutdown(socket.SHUT_WR)
            assert find_connection_holders(address, port) == [os.getpid()]
        with closing(accepted):
            assert accepted.recv(100) == b"sent before it goes"
            assert find_connection_holders(address, port) is None
