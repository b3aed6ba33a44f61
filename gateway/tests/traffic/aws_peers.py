# A server that checks each request's signature (AWS Signature Version 4) and a client of botocore that signs them (case T06).
import base64
import datetime
import hashlib
import hmac
import http.server
import os
import re
import sys
import urllib.parse
import zlib

KEY, SECRET = "AKIDEXAMPLE", "wJalrXUtnFEMI/K7MDENG+bPxRfiCYEXAMPLEKEY"
# Of temporary keys: with it each request must bring it, covered by its signature.
TOKEN = os.environ.get("SERVER_TOKEN")
STORED = {}


def digest(key, text):
    return hmac.new(key, text.encode(), hashlib.sha256).digest()


class Chain:
    """The signatures of chunks, each of which covers the one before."""

    def __init__(self, key, at, scope, seed):
        self.key, self.at, self.scope, self.last = key, at, scope, seed

    def sign(self, kind, *parts):
        text = "\n".join([f"AWS4-HMAC-SHA256-{kind}", self.at, self.scope, self.last, *parts])
        self.last = digest(self.key, text).hex()
        return self.last

    def chunk(self, content):
        return self.sign("PAYLOAD", hashlib.sha256(b"").hexdigest(), hashlib.sha256(content).hexdigest())

    def trailer(self, text):
        return self.sign("TRAILER", hashlib.sha256(text).hexdigest())


class Server(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, *_):
        pass

    def signed(self):
        """What is wrong with the signature, from what came over the wire alone."""
        path, _, query = self.path.partition("?")
        pairs = [pair.partition("=")[::2] for pair in query.split("&") if pair]
        given = dict(pairs)
        authorization = self.headers.get("authorization")
        if authorization:
            found = re.fullmatch(
                r"AWS4-HMAC-SHA256 Credential=(\S+), SignedHeaders=(\S+), Signature=(\w+)", authorization
            )
            if not found:
                return f"authorization is {authorization!r}"
            credential, names, signature = found.groups()
            at, payload = self.headers["x-amz-date"], self.headers.get("x-amz-content-sha256")
            if payload is None:
                payload = hashlib.sha256(self.body).hexdigest()
            token, covered = self.headers["x-amz-security-token"], "x-amz-security-token" in names.split(";")
        else:
            credential = given["X-Amz-Credential"].replace("%2F", "/")
            names, signature = given["X-Amz-SignedHeaders"].replace("%3B", ";"), given["X-Amz-Signature"]
            at, payload = given["X-Amz-Date"], "UNSIGNED-PAYLOAD"
            token, covered = urllib.parse.unquote(given.get("X-Amz-Security-Token", "")), True
            pairs = [pair for pair in pairs if pair[0] != "X-Amz-Signature"]
        access, date, region, service, end = credential.split("/")
        headers = "".join(
            f"{name}:{','.join(' '.join(value.split()) for value in self.headers.get_all(name, []))}\n"
            for name in names.split(";")
        )
        query = "&".join(f"{name}={value}" for name, value in sorted(pairs))
        canonical = "\n".join([self.command, path, query, headers, names, payload])
        scope = f"{date}/{region}/{service}/{end}"
        text = "\n".join(["AWS4-HMAC-SHA256", at, scope, hashlib.sha256(canonical.encode()).hexdigest()])
        key = ("AWS4" + SECRET).encode()
        for part in [date, region, service, end]:
            key = digest(key, part)
        right = digest(key, text).hex()
        if (access, signature) != (KEY, right):
            return f"signature does not fit:\n{canonical}"
        if TOKEN and (token, covered) != (TOKEN, True):
            return "the session token is missing"
        made = datetime.datetime.strptime(at, "%Y%m%dT%H%M%SZ").replace(tzinfo=datetime.timezone.utc)
        if abs(datetime.datetime.now(datetime.timezone.utc) - made) > datetime.timedelta(minutes=5):
            return f"the request is of {at}"
        self.chain = Chain(key, at, scope, signature)
        return None

    def read_body(self):
        if self.headers.get("transfer-encoding", "").lower() != "chunked":
            return self.rfile.read(int(self.headers.get("content-length", 0)))
        whole = b""
        while size := int(self.rfile.readline().split(b";")[0], 16):
            whole += self.rfile.read(size)
            self.rfile.readline()
        while self.rfile.readline().strip():
            pass
        return whole

    def unwrapped(self):
        """The content of a body in chunks of AWS's own, held against the checksum behind it."""
        if "aws-chunked" not in self.headers.get("content-encoding", ""):
            return self.body
        rest, content = self.body, b""
        signed = self.headers["x-amz-content-sha256"].startswith("STREAMING-AWS4-HMAC-SHA256-PAYLOAD")
        while True:
            line, _, rest = rest.partition(b"\r\n")
            size = int(line.split(b";")[0], 16)
            if signed:
                assert line.endswith(b";chunk-signature=" + self.chain.chunk(rest[:size]).encode()), line
            if size == 0:
                break
            content, rest = content + rest[:size], rest[size + 2 :]
        assert len(content) == int(self.headers["x-amz-decoded-content-length"])
        if signed and not self.headers["x-amz-content-sha256"].endswith("-TRAILER"):
            assert rest == b"\r\n", rest
            return content
        lines = rest.split(b"\r\n")
        if signed:
            assert lines[1] == b"x-amz-trailer-signature:" + self.chain.trailer(lines[0] + b"\n").encode(), lines
        name, _, value = lines[0].partition(b":")
        assert name == b"x-amz-checksum-crc32", rest
        assert base64.b64decode(value) == zlib.crc32(content).to_bytes(4, "big")
        return content

    def answer(self, status, body=b"", **headers):
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name.replace("_", "-"), value)
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def serve(self):
        self.body = self.read_body()
        wrong = self.signed()
        if wrong:
            return self.answer(403, wrong.encode())
        if self.command == "POST":
            identity = b"<GetCallerIdentityResponse><GetCallerIdentityResult><Account>1</Account></GetCallerIdentityResult></GetCallerIdentityResponse>"
            return self.answer(200, identity, content_type="text/xml")
        path = self.path.partition("?")[0]
        if self.command == "PUT":
            STORED[path] = self.unwrapped()
            return self.answer(200, etag='"tag"')
        whole = STORED[path]
        found = re.fullmatch(r"bytes=(\d+)-(\d+)", self.headers.get("range", ""))
        if not found:
            return self.answer(200, whole)
        first, last = map(int, found.groups())
        self.answer(206, whole[first : last + 1], content_range=f"bytes {first}-{last}/{len(whole)}")

    do_GET = do_PUT = do_POST = serve


def ask(at, proxy, ca):
    import botocore.auth
    import botocore.session
    import urllib3
    from botocore.config import Config

    # Keys in variables that a machine has; its clock may be wrong.
    keys = [os.environ.get(name) for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN")]
    if late := int(os.environ.get("LATE_HOURS", "0")):
        real = botocore.auth.get_current_datetime
        botocore.auth.get_current_datetime = lambda *any: real(*any) - datetime.timedelta(hours=late)
    session = botocore.session.Session()
    session.set_credentials(*(keys if keys[0] else [KEY, SECRET]))
    config = Config(proxies={"https": proxy}, retries={"total_max_attempts": 1}, s3={"addressing_style": "path"})
    common = dict(region_name="eu-test-1", endpoint_url=f"https://{at}", verify=ca, config=config)
    s3 = session.create_client("s3", **common)
    content = bytes(range(256)) * 8000
    name = dict(Bucket="bucket", Key="folder/a b+c~ü.bin")
    s3.put_object(**name, Body=content, Metadata={"note": "two words"})
    part = s3.upload_part(**name, Body=content, PartNumber=1, UploadId="an id/with+signs=")
    assert part["ETag"] == '"tag"', part
    piece = s3.get_object(**name, Range="bytes=256-515")
    assert piece["ResponseMetadata"]["HTTPStatusCode"] == 206, piece
    assert piece["Body"].read() == content[256:516]
    assert session.create_client("sts", **common).get_caller_identity()["Account"] == "1"
    pool = urllib3.ProxyManager(proxy, ca_certs=ca, proxy_headers=proxy_login(proxy))
    url = s3.generate_presigned_url("get_object", Params=name)
    answer = pool.request("GET", url, headers={"Range": "bytes=0-9"})
    assert (answer.status, answer.data) == (206, content[:10]), answer.data
    url = s3.generate_presigned_url("put_object", Params=dict(Bucket="bucket", Key="by link"))
    answer = pool.request("PUT", url, body=b"by link")
    assert answer.status == 200, answer.data
    if keys[0]:
        for trailer in (False, True):
            in_signed_chunks(pool, f"https://{at}/bucket/in chunks".replace(" ", "%20"), session.get_credentials(), content, trailer)
        answer = s3.get_object(Bucket="bucket", Key="in chunks")
        assert answer["Body"].read() == content
    print("all signatures held")


def in_signed_chunks(pool, url, credentials, content, trailer):
    """An upload each chunk of which is signed, as no client of botocore makes it over TLS."""
    from botocore.auth import S3SigV4Auth
    from botocore.awsrequest import AWSRequest

    payload = "STREAMING-AWS4-HMAC-SHA256-PAYLOAD" + ("-TRAILER" if trailer else "")

    class Auth(S3SigV4Auth):
        def payload(self, request):
            return payload

    checksum = base64.b64encode(zlib.crc32(content).to_bytes(4, "big"))
    line = b"x-amz-checksum-crc32:" + checksum
    pieces = [content[at : at + 65536] for at in range(0, len(content), 65536)] + [b""]
    length = sum(len(f"{len(piece):x}") + 83 + len(piece) + 2 for piece in pieces)
    if trailer:
        length += len(line) + 2 + len("x-amz-trailer-signature:") + 64 + 2
    headers = {
        "content-encoding": "aws-chunked",
        "content-length": str(length),
        "x-amz-decoded-content-length": str(len(content)),
    }
    if trailer:
        headers["x-amz-trailer"] = "x-amz-checksum-crc32"
    request = AWSRequest("PUT", url, headers=headers)
    auth = Auth(credentials, "s3", "eu-test-1")
    auth.add_auth(request)
    seed = request.headers["Authorization"].partition("Signature=")[2]
    key = ("AWS4" + credentials.secret_key).encode()
    at = request.context["timestamp"]
    parts = [at[:8], "eu-test-1", "s3", "aws4_request"]
    for part in parts:
        key = digest(key, part)
    chain, body = Chain(key, at, "/".join(parts), seed), b""
    for piece in pieces:
        body += f"{len(piece):x};chunk-signature={chain.chunk(piece)}\r\n".encode() + piece
        body += b"\r\n" if piece else b""
    if trailer:
        body += line + b"\r\nx-amz-trailer-signature:" + chain.trailer(line + b"\n").encode() + b"\r\n"
    body += b"\r\n"
    assert len(body) == length, (len(body), length)
    answer = pool.request("PUT", url, body=body, headers=dict(request.headers.items()))
    assert answer.status == 200, answer.data


def proxy_login(proxy):
    import urllib3

    return urllib3.make_headers(proxy_basic_auth=urllib3.util.parse_url(proxy).auth)


if sys.argv[1] == "serve":
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Server)
    print(server.server_port, flush=True)
    server.serve_forever()
else:
    ask(*sys.argv[2:])
