# A server that checks each request's signature (AWS Signature Version 4) and a client of botocore that signs them (case T06).
import base64
import hashlib
import hmac
import http.server
import re
import sys
import zlib

KEY, SECRET = "AKIDEXAMPLE", "wJalrXUtnFEMI/K7MDENG+bPxRfiCYEXAMPLEKEY"
STORED = {}


def digest(key, text):
    return hmac.new(key, text.encode(), hashlib.sha256).digest()


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
        else:
            credential = given["X-Amz-Credential"].replace("%2F", "/")
            names, signature = given["X-Amz-SignedHeaders"].replace("%3B", ";"), given["X-Amz-Signature"]
            at, payload = given["X-Amz-Date"], "UNSIGNED-PAYLOAD"
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
        return None if (access, signature) == (KEY, right) else f"signature does not fit:\n{canonical}"

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
        while True:
            line, _, rest = rest.partition(b"\r\n")
            size = int(line.split(b";")[0], 16)
            if size == 0:
                break
            content, rest = content + rest[:size], rest[size + 2 :]
        name, _, value = rest.partition(b"\r\n")[0].partition(b":")
        assert name == b"x-amz-checksum-crc32", rest
        assert base64.b64decode(value) == zlib.crc32(content).to_bytes(4, "big")
        assert len(content) == int(self.headers["x-amz-decoded-content-length"])
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
    import botocore.session
    import urllib3
    from botocore.config import Config

    session = botocore.session.Session()
    session.set_credentials(KEY, SECRET)
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
    print("all signatures held")


def proxy_login(proxy):
    import urllib3

    return urllib3.make_headers(proxy_basic_auth=urllib3.util.parse_url(proxy).auth)


if sys.argv[1] == "serve":
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Server)
    print(server.server_port, flush=True)
    server.serve_forever()
else:
    ask(*sys.argv[2:])
