"""A worker: the services of the protocol, over a Unix socket, with one class that does the work.

`METAMORPH_PROVISIONER_LISTEN` names the socket (a server that starts a worker sets it).
"""

import json
import os
import signal
import sys
from concurrent import futures

import grpc

import metamorph.provisioner.v1.provisioner_pb2 as pb
import metamorph.provisioner.v1.provisioner_pb2_grpc as rpc
from session import ADVICE_MAKER, Failed, Put, Session

VERSION = 1


class Service(rpc.ProvisionerServiceServicer):
    """The protocol. `backend` has NAME, FORMAT (of its records), CAPABILITIES, `handlers` by call and `forget`; KIND, if it provisions no hosts."""

    def __init__(self, backend, check_address=""):
        self.backend, self.check_address = backend, check_address

    def Hello(self, request, context):
        kind = getattr(self.backend, "KIND", "host")
        if (request.kind or "host") != kind:
            context.abort(grpc.StatusCode.FAILED_PRECONDITION, f"it provisions {kind}s, and not {request.kind or 'host'}s")
        return pb.HelloResponse(
            lowest_version=VERSION,
            highest_version=VERSION,
            name=self.backend.NAME,
            program_version="1",
            id_prefix=self.backend.NAME + "-",
            capabilities=json.dumps(self.backend.CAPABILITIES).encode(),
            schemes=self.backend.SCHEMES,
            check_address=self.check_address,
            kind=kind,
        )

    def Describe(self, request, context):
        return pb.DescribeResponse(capabilities=json.dumps(self.backend.CAPABILITIES).encode())

    def Ask(self, requests, context):
        first = next(requests)
        if first.WhichOneof("message") != "call":
            context.abort(grpc.StatusCode.INVALID_ARGUMENT, "a stream of Ask begins with a call")
        yield from self._answer(requests, first.call)

    def _answer(self, requests, call):
        try:
            handler = self.backend.handlers.get(call.name)
            if call.version > VERSION or handler is None:
                raise Failed("NotServed", f"{call.name}: this provisioner does not serve it", "choose another one", pb.RETRY_AFTER_CHANGE)
            session = Session(requests, call, self.backend.NAME, self.backend.FORMAT)
            verdict = yield from handler(session)
        except (Failed, Put) as ended:
            verdict = ended.verdict
        except (KeyError, TypeError, ValueError) as error:
            print(f"{call.name}: {type(error).__name__}", file=sys.stderr)
            verdict = Failed("Internal", f"{call.name}: a fault of the provisioner", ADVICE_MAKER).verdict
        yield pb.AskResponse(verdict=verdict)

    def Subscribe(self, request, context):
        context.abort(grpc.StatusCode.UNIMPLEMENTED, "it wakes nobody: hosts are looked at when their time comes")

    def Expect(self, request, context):
        return pb.ExpectResponse()

    def Forget(self, request, context):
        self.backend.forget(request.host.uid)
        return pb.ForgetResponse()

    def Close(self, request, context):
        return pb.CloseResponse()


def serve(service, troubles=None):
    """Serves until SIGTERM. Calls that are under way end first."""
    listen = os.environ.get("METAMORPH_PROVISIONER_LISTEN", "")
    if not listen.startswith("unix:/"):
        sys.exit("METAMORPH_PROVISIONER_LISTEN names no socket: set it to unix:/path")
    os.umask(0o077)
    options = [("grpc.max_receive_message_length", 4 << 20)]
    server = grpc.server(futures.ThreadPoolExecutor(max_workers=64), options=options)
    rpc.add_ProvisionerServiceServicer_to_server(service, server)
    if troubles is not None:
        rpc.add_TroubleServiceServicer_to_server(troubles, server)
    server.add_insecure_port(listen)
    server.start()
    signal.signal(signal.SIGTERM, lambda *_: server.stop(grace=5))
    signal.signal(signal.SIGINT, lambda *_: server.stop(grace=5))
    print(f"listening on {listen}", file=sys.stderr, flush=True)
    server.wait_for_termination()
