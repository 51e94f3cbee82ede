"""A REST interface with Flink's recorded answers, on a port of this machine."""

import contextlib
import http.server
import json
import pathlib
import threading

# Answers of Flink 1.19.3 to the requests of runs of this package, without fields that nobody reads.
RECORDED = json.loads(pathlib.Path(__file__).with_name("flink_answers.json").read_text())
JOB = RECORDED["job"]


class Flink:
    """A REST interface that gives the answers it is told, the last one again and again.

    Attributes:
      answers: Lists of status and body, by request.
      asked: The requests, in order.
      meanwhile: A function that is called once, while the first request waits for its answer.
    """

    def __init__(self):
        self.answers, self.asked = {}, []
        self.meanwhile = None
        flink = self

        class Handler(http.server.BaseHTTPRequestHandler):
            def answer(self):
                request = f"{self.command} {self.path}"
                flink.asked.append(request)
                meanwhile, flink.meanwhile = flink.meanwhile, None
                if meanwhile:
                    meanwhile()
                queue = flink.answers.get(request, [(404, RECORDED["not_found"])])
                status, body = queue.pop(0) if len(queue) > 1 else queue[0]
                data = json.dumps(body).encode()
                self.send_response(status)
                self.send_header("Content-Type", "application/json")
                self.send_header("Content-Length", str(len(data)))
                self.end_headers()
                self.wfile.write(data)

            do_GET = do_PATCH = answer

            def log_message(self, *_):
                pass

        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.address = f"127.0.0.1:{self.server.server_port}"

    def states(self, *states):
        self.answers[f"GET /jobs/{JOB}"] = [(200, RECORDED["states"][state]) for state in states]


@contextlib.contextmanager
def serve_flink():
    """Yields a server that answers, and stops it."""
    flink = Flink()
    thread = threading.Thread(target=flink.server.serve_forever, args=(0.01,), daemon=True)
    thread.start()
    try:
        yield flink
    finally:
        flink.server.shutdown()
        flink.server.server_close()
        thread.join()
