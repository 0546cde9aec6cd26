"""A local server with the endpoints that hand out credentials of AWS: of containers, of instances, and of STS.

The forms of the answers are those that botocore reads; the tests let botocore read them as well.
"""

import json
import threading
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import parse_qs

_STS = """\
<AssumeRoleWithWebIdentityResponse xmlns="https://sts.amazonaws.com/doc/2011-06-15/">
  <AssumeRoleWithWebIdentityResult>
    <AssumedRoleUser><Arn>arn:aws:sts::123456789012:assumed-role/r/s</Arn><AssumedRoleId>A:s</AssumedRoleId></AssumedRoleUser>
    <Credentials>
      <AccessKeyId>{key}</AccessKeyId><SecretAccessKey>{secret}</SecretAccessKey>
      <SessionToken>{token}</SessionToken><Expiration>{expiration}</Expiration>
    </Credentials>
  </AssumeRoleWithWebIdentityResult>
</AssumeRoleWithWebIdentityResponse>
"""
_INSTANCE_TOKEN = "instance-token"
_ROLE_PATH = "/latest/meta-data/iam/security-credentials/"


class AwsEndpoints:
    """`lifetime`: seconds of new credentials. `requests`: method, path and headers. `faults`: answers by path."""

    def __init__(self, url):
        self.url = url
        self.lifetime = 3600
        self.requests = []
        self.forms = []
        self.faults = {}
        self.count = 0
        self.container_token = None

    def credentials(self, source, token="Token"):
        self.count += 1
        expiration = (datetime.now(UTC) + timedelta(seconds=self.lifetime)).strftime("%Y-%m-%dT%H:%M:%SZ")
        return {
            "AccessKeyId": f"AKIA-{source}",
            "SecretAccessKey": f"secret-of-{source}-{self.count}",
            token: f"token-of-{source}",
            "Expiration": expiration,
        }

    def answer(self, method, path, headers, body):
        if path in self.faults:
            return self.faults[path]
        if path == "/latest/api/token":
            has_ttl = method == "PUT" and "x-aws-ec2-metadata-token-ttl-seconds" in headers
            return (200, _INSTANCE_TOKEN) if has_ttl else (405, "")
        if path.startswith(_ROLE_PATH):
            if headers.get("x-aws-ec2-metadata-token") != _INSTANCE_TOKEN:
                return 401, ""
            return (200, "role") if path == _ROLE_PATH else (200, json.dumps(self.credentials("instance")))
        if path.startswith("/container"):
            is_allowed = headers.get("authorization") == self.container_token
            return (200, json.dumps(self.credentials("container"))) if is_allowed else (403, "{}")
        if path == "/" and method == "POST":
            self.forms.append({name: values[0] for name, values in parse_qs(body.decode()).items()})
            found = self.credentials("identity", "SessionToken")
            fields = {"key": "AccessKeyId", "secret": "SecretAccessKey", "token": "SessionToken"}
            values = {ours: found[theirs] for ours, theirs in fields.items()}
            return 200, _STS.format(**values, expiration=found["Expiration"])
        return 404, ""


@contextmanager
def aws_endpoints():
    """Run the server in a thread."""

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def respond(self):
            body = self.rfile.read(int(self.headers.get("content-length") or 0))
            headers = {name.lower(): value for name, value in self.headers.items()}
            endpoints.requests.append((self.command, self.path, headers))
            status, text = endpoints.answer(self.command, self.path, headers, body)
            data = text if isinstance(text, bytes) else text.encode()
            self.send_response(status)
            self.send_header("content-length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        do_GET = do_PUT = do_POST = respond

        def log_message(self, *_):
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    endpoints = AwsEndpoints(f"http://127.0.0.1:{server.server_port}")
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
    thread.start()
    try:
        yield endpoints
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
