"""One call of the server: what it asks, and what the worker asks back on its stream.

A handler is a generator: what it yields goes to the server, and `yield from session.write(...)` waits for the answer. It returns a verdict, or
raises one of the exceptions below, which stand for a verdict.
"""

import datetime
import json

import metamorph.provisioner.v1.provisioner_pb2 as pb

ADVICE_MAKER = "report it to whoever makes this provisioner"


class Failed(Exception):
    """The call fails. `cause` is one of the contract's (docs/external-provisioners.md)."""

    def __init__(self, cause, message, advice="", retry=pb.RETRY_LATER, component=""):
        super().__init__(message)
        self.verdict = pb.Verdict(failure=pb.Failure(cause=cause, message=message, retry=retry))
        if advice:
            self.verdict.failure.advice = advice
        if component:
            self.verdict.failure.component = component


def unrecorded(error, message):
    """The server refuses a write or an order: the call ends without effect."""
    return Failed("NotLeading" if error.not_leading else "RecordUnavailable", message, "nothing was done, it is tried again")


class Put(Exception):
    """The work is under way, or cannot begin: the verdict says which."""

    def __init__(self, verdict):
        super().__init__()
        self.verdict = verdict


def seconds(duration, into):
    """Writes a number of seconds into a Duration."""
    into.FromTimedelta(datetime.timedelta(seconds=duration))


def done(answer="done", value=None):
    """Done, with the answer of that name."""
    text = b"" if answer == "done" else json.dumps(value).encode()
    return pb.Verdict(done=pb.Done(answer=answer, value=text))


def working(step, look_again, percent=None, accepted=False):
    """Begun, and not done yet."""
    verdict = pb.Verdict(working=pb.Working(step=step, accepted=accepted))
    if percent is not None:
        verdict.working.percent = percent
    seconds(look_again, verdict.working.look_again)
    return verdict


def busy(reason, look_again=5):
    """There is no room."""
    verdict = pb.Verdict(busy=pb.Busy(reason=reason))
    seconds(look_again, verdict.busy.look_again)
    return verdict


class Session:
    """A call under way."""

    def __init__(self, requests, call, name, version):
        self._requests, self._name, self._version = requests, name, version
        self._questions = 0
        self.name, self.host, self.leads = call.name, call.host, call.leads
        self.request = json.loads(call.request) if call.request else {}
        self.facts = json.loads(call.facts)
        self.bmc = call.bmc if call.HasField("bmc") else None
        self.now = call.now.ToNanoseconds() / 1e9
        self.revision, self.content = call.recorded.revision, None
        if call.recorded.HasField("content"):
            self.content = call.recorded.content

    def recorded(self):
        """The record's data, {} if there is none. Who cannot read it does nothing to the machine."""
        if self.content is None:
            return {}

        def held(why, advice):
            return Failed("RecordUnreadable", f"read the host's record: {why}", advice, pb.RETRY_HELD)

        if self.content.provisioner != self._name:
            raise held(f'it is that of the provisioner "{self.content.provisioner}"', "name that provisioner in the host's annotation")
        if self.content.version > self._version:
            raise held(f"it has the format {self.content.version}", "run the version of this provisioner that wrote it")
        data = json.loads(self.content.data)
        if not isinstance(data, dict):
            raise held("it is no record", "restore the MachineRecord from a backup, or delete it")
        return data

    def _ask(self, response, question):
        """Yields a question and waits for its answer. The stream's end ends the call: nothing more is done."""
        yield response
        for said in self._requests:
            kind = said.WhichOneof("message")
            if kind == "leadership":
                self.leads = said.leadership.leads
                continue
            answer = getattr(said, kind)
            self.leads = answer.leads
            if answer.question == question:
                return answer
        raise Failed("NotLeading", "the server hears no more")

    def _question(self):
        self._questions += 1
        return self._questions

    def write(self, data, intent):
        """Records `data`. Before an effect, as an intent: the effect follows its confirmation, or does not happen."""
        number = self._question()
        purpose = pb.PURPOSE_INTENT if intent else pb.PURPOSE_NOTE
        content = pb.RecordContent(provisioner=self._name, version=self._version, data=json.dumps(data).encode())
        write = pb.WriteRecord(question=number, expected_revision=self.revision, content=content, purpose=purpose)
        answer = yield from self._ask(pb.AskResponse(write_record=write), number)
        if answer.WhichOneof("result") != "revision":
            error = answer.refused.error
            raise unrecorded(error, f"record {error.what}: {error.why}")
        self.revision = answer.revision

    def effect(self, effect, detail, act):
        """Does something to the machine: asks for permission, calls `act`, and tells what came of it. `act` returns whether anything happened."""
        number = self._question()
        asked = pb.AskResponse(may_act=pb.MayAct(question=number, effect=effect, detail=detail))
        answer = yield from self._ask(asked, number)
        if answer.WhichOneof("result") == "error":
            raise unrecorded(answer.error, f"{detail}: {answer.error.why}")
        if not answer.granted:
            raise Failed("NotLeading", f"{detail}: another process leads")
        happened = False
        try:
            happened = act()
        finally:
            yield pb.AskResponse(effected=pb.Effected(effect=effect, nothing_happened=not happened, detail=detail))

    def still_wanted(self):
        """Raises if the host has changed since the call was decided on: right before an order that comes long after its intent."""
        number = self._question()
        answer = yield from self._ask(pb.AskResponse(still_wanted=pb.Question(question=number)), number)
        if not answer.granted:
            raise unrecorded(answer.error, f"{answer.error.what}: {answer.error.why}")

    def tell(self, entry, soon=False):
        """Shows a piece of work (a HostOperation)."""
        yield pb.AskResponse(tell=pb.Tell(entry=json.dumps(entry).encode(), soon=soon))
