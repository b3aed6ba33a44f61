"""Calls of all four kinds by grpcio, and one that is refused: grpc_client.py CA_FILE ALLOWED_AUTHORITY REFUSED_AUTHORITY."""
import sys

import grpc

ca, allowed, refused = open(sys.argv[1], "rb").read(), sys.argv[2], sys.argv[3]
credentials = grpc.ssl_channel_credentials(root_certificates=ca)
with grpc.secure_channel(allowed, credentials) as channel:
    answer, call = channel.unary_unary("/s.S/Unary").with_call(b"one", timeout=20)
    assert answer == b"one", answer
    assert ("x-path", "/s.S/Unary") in call.trailing_metadata(), call.trailing_metadata()
    assert list(channel.unary_stream("/s.S/Down")(b"two", timeout=20)) == [b"two"]
    assert channel.stream_unary("/s.S/Up")(iter([b"three"]), timeout=20) == b"three"
    messages = [bytes([number]) * 70_000 for number in range(20)]
    assert list(channel.stream_stream("/s.S/Both")(iter(messages), timeout=20)) == messages
    try:
        channel.unary_unary("/s.S/None")(b"x", timeout=20)
        raise SystemExit("not found, and yet found")
    except grpc.RpcError as error:
        assert error.code() == grpc.StatusCode.NOT_FOUND, error
with grpc.secure_channel(refused, credentials) as channel:
    try:
        channel.unary_unary("/s.S/Unary")(b"x", timeout=20)
        raise SystemExit("let through")
    except grpc.RpcError as error:
        details = dict(error.trailing_metadata())["grpc-status-details-bin"]
        assert b"google.rpc.ErrorInfo" in details, details
        print(error.code().name, error.details())
